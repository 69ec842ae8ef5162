"""Walk the records of a nats-server block, compiled. `_walk_py.py` is the reference."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jetlake import ops as _ops
from jetlake.buffers cimport bytes_of, room_of
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.store.nats import format as _format
from jetlake.store.nats._headers cimport OP_MSG_ID, OP_SPECIAL, header_flags
from jetlake.store.nats._walk_py import Walked, _check_door

cdef extern from "jetlake/store/nats/highwayhash.h" nogil:
    ctypedef struct Hash "jl_hh":
        pass
    void hash_start "jl_hh_start"(Hash* state, const uint8_t* key)
    uint64_t hash_parts "jl_hh_parts"(const Hash* keyed, const uint8_t** parts, const uint64_t* sizes)
    uint64_t hash_parts_plain "jl_hh_parts_plain"(const Hash* keyed, const uint8_t** parts, const uint64_t* sizes)

cdef enum:
    HEAD_SIZE = 22
    HASH_SIZE = 8
assert (OP_SPECIAL, OP_MSG_ID) == (_ops.OP_SPECIAL, _ops.OP_MSG_ID)
assert (HEAD_SIZE, HASH_SIZE) == (_format.HEAD_SIZE, _format.HASH_SIZE)

cdef uint64_t RECORD_SIZE_MAX = _format.RECORD_SIZE_MAX
cdef uint32_t HEADERS_BIT = _format.HEADERS_BIT
cdef uint64_t ERASED_BIT = _format.ERASED_BIT
cdef uint64_t TOMBSTONE_BIT = _format.TOMBSTONE_BIT
cdef uint32_t IS_TOMBSTONE = _format.IS_TOMBSTONE


cdef struct Record:
    uint64_t size, word, hashed_start, headers_start
    int64_t time_ns
    uint32_t subject_size, headers_size


cdef inline bint _measure(const uint8_t* at, uint64_t left, Record* out) noexcept nogil:
    """The parts of a record; False when its sizes cannot be right."""
    cdef uint32_t length, prefix = 0
    cdef uint16_t subject_size
    if left < HEAD_SIZE + HASH_SIZE:
        return False
    memcpy(&length, at, 4)
    memcpy(&out.word, at + 4, 8)
    memcpy(&out.time_ns, at + 12, 8)
    memcpy(&subject_size, at + 20, 2)
    if length & HEADERS_BIT:
        prefix = 4
    out.size = length & ~HEADERS_BIT
    out.subject_size, out.headers_size = subject_size, 0
    if out.size > left or out.size > RECORD_SIZE_MAX or out.size < <uint64_t>HEAD_SIZE + HASH_SIZE + subject_size + prefix:
        return False
    out.headers_start = <uint64_t>HEAD_SIZE + subject_size + prefix
    if prefix:
        memcpy(&out.headers_size, at + HEAD_SIZE + subject_size, 4)
        if out.headers_size > out.size - HASH_SIZE - out.headers_start:
            return False
    return True


cdef inline bint _is_sound(const uint8_t* at, const Record* record, const Hash* start) noexcept nogil:
    cdef (const uint8_t*)[3] parts
    cdef uint64_t[3] sizes
    cdef uint64_t stored
    parts[0], sizes[0] = at + 4, 16
    parts[1], sizes[1] = at + HEAD_SIZE, record.subject_size
    parts[2], sizes[2] = at + record.headers_start, record.size - HASH_SIZE - record.headers_start
    memcpy(&stored, at + record.size - HASH_SIZE, 8)
    return hash_parts(start, parts, sizes) == stored


cdef inline void _note(PubOp* op, uint64_t start, const Record* record, uint32_t flags) noexcept nogil:
    op.subject_start, op.subject_size = <uint32_t>(start + HEAD_SIZE), record.subject_size
    op.reply_start, op.reply_size = 0, <uint32_t>record.size
    op.headers_start, op.headers_size = <uint32_t>(start + record.headers_start), record.headers_size
    op.payload_start = op.headers_start + record.headers_size
    op.payload_size = <uint32_t>(record.size - HASH_SIZE - record.headers_start - record.headers_size)
    op.slot, op.flags, op.expected = 0, flags, 0


def walk(data, uint64_t start, uint64_t end, bytes key not None, bint is_strict, uint64_t prev_seq, uint64_t first_seq,
         uint64_t last_seq, const uint64_t[::1] gone_starts, const uint64_t[::1] gone_ends, ops, seqs, times):
    """Fill ops, seqs and times with the entries of data[start:end]; see `walk.py`."""
    cdef Py_ssize_t size, words, seqs_size, times_size
    cdef const uint8_t* base = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op = ops_of(ops, &words)
    cdef uint64_t* seq_out = <uint64_t*>room_of(seqs, &seqs_size)
    cdef int64_t* time_out = <int64_t*>room_of(times, &times_size)
    cdef Py_ssize_t room = _check_door(
        data, start, end, key, gone_starts.shape[0], gone_ends.shape[0], words, seqs_size // 8, times_size // 8)
    cdef Py_ssize_t count = 0, bad_count = 0, gone = 0, gone_count = gone_starts.shape[0]
    cdef const uint8_t* key_bytes = key
    cdef bint is_bad = False
    cdef uint64_t seq, at
    cdef uint32_t flags
    cdef Hash keyed
    cdef Record record
    with nogil:
        hash_start(&keyed, key_bytes)
        while start < end and count < room:
            if not _measure(base + start, end - start, &record):
                is_bad = True
                break
            at = start
            if not _is_sound(base + at, &record, &keyed):
                if is_strict:
                    is_bad = True
                    break
                start += record.size
                bad_count += 1
                continue
            start += record.size
            seq = record.word & ~(ERASED_BIT | TOMBSTONE_BIT)
            if record.word & TOMBSTONE_BIT:
                if not is_strict:
                    continue
                flags = IS_TOMBSTONE
            else:
                if seq <= prev_seq:
                    continue
                prev_seq = seq
                if record.word & ERASED_BIT or not record.subject_size or not first_seq <= seq <= last_seq:
                    continue
                while gone < gone_count and gone_ends[gone] < seq:
                    gone += 1
                if gone < gone_count and gone_starts[gone] <= seq:
                    continue
                flags = header_flags(base + at + record.headers_start, record.headers_size)
            _note(op + count, at, &record, flags)
            seq_out[count], time_out[count] = seq, record.time_ns
            count += 1
    return Walked(start, prev_seq, count, is_bad, bad_count)


def hash64(bytes key not None, data, bint is_plain=False):
    """HighwayHash-64; `is_plain` without the instructions that not all processors have."""
    if len(key) != 32:
        raise ValueError(f"a key has 32 bytes, not {len(key)}")
    cdef Py_ssize_t size
    cdef (const uint8_t*)[3] parts
    cdef uint64_t[3] sizes
    cdef Hash keyed
    cdef const uint8_t* base = <const uint8_t*>bytes_of(data, &size)
    parts[0] = parts[1] = parts[2] = base
    sizes[0] = sizes[2] = 0
    sizes[1] = size
    hash_start(&keyed, key)
    return hash_parts_plain(&keyed, parts, sizes) if is_plain else hash_parts(&keyed, parts, sizes)
