"""Encode a batch of messages, compiled. `_encode_py.py` is the reference."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jetlake import ops as _ops
from jetlake.buffers cimport bytes_of, room_of
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.store import format as _format
from jetlake.store.records._encode_py import _check_door, check_given, op_problem, seq_problem
from jetlake.store.records._record_c cimport (
    EXPIRES,
    HEADERS_SIZE_MAX,
    MORE,
    MSG_ID,
    PAYLOAD_SIZE_MAX,
    REST,
    SKIP,
    SUBJECT_SIZE_MAX,
    put,
    record_size,
)
from jetlake.store.index._subject_entry cimport LAST_STALE, Entry
from jetlake.store.index._subject_table_c cimport SubjectTable

cdef Py_ssize_t OP_WORDS = _ops.OP_WORDS
cdef uint64_t SEQ_MAX = _format.SEQ_MAX
cdef uint32_t OP_SPECIAL = _ops.OP_SPECIAL
cdef uint32_t OP_MSG_ID = _ops.OP_MSG_ID
cdef uint32_t OP_EXPECTS = _ops.OP_EXPECTS
cdef uint32_t OP_ADMITTED = _ops.OP_ADMITTED
cdef uint32_t OP_MORE = _ops.OP_MORE
cdef uint32_t OP_REST = _ops.OP_REST
assert sizeof(PubOp) == 4 * _ops.OP_WORDS


cdef inline bint _lies_within(uint32_t start, uint32_t size, uint64_t end) noexcept nogil:
    return start <= end and size <= end - start


cdef inline bint _is_good(PubOp* op, uint64_t end) noexcept nogil:
    return (_lies_within(op.subject_start, op.subject_size, end) and 0 < op.subject_size <= SUBJECT_SIZE_MAX
            and _lies_within(op.headers_start, op.headers_size, end) and op.headers_size <= HEADERS_SIZE_MAX
            and _lies_within(op.payload_start, op.payload_size, end) and op.payload_size <= PAYLOAD_SIZE_MAX)


cdef inline bint _has_last(SubjectTable table, const uint8_t* subject, Py_ssize_t size, uint64_t seq) noexcept nogil:
    """Whether this is for certain the last sequence of a subject; 0 of one without messages."""
    cdef int64_t slot = table.find_c(subject, size)
    cdef Entry* entry
    if slot < 0:
        return seq == 0
    entry = table.live_c(<uint32_t>slot)
    return not entry.flags & LAST_STALE and entry.last == seq


def encode_batch(data, ops, Py_ssize_t first, Py_ssize_t stop, chunk, uint64_t used, uint64_t base, offsets, ids,
                 Py_ssize_t count, SubjectTable table not None, uint64_t seq, int64_t time_ns, uint64_t seed,
                 uint64_t size_fixed, uint64_t size_headers, int64_t per_subject_max, list over not None):
    """Encode operations first..stop-1 for as long as they fit; see `encode.py`."""
    cdef Py_ssize_t source_size, words, room, count_max, id_count_max, done = first
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &source_size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    cdef uint8_t* out = <uint8_t*>room_of(chunk, &room)
    cdef uint32_t* offset_out = <uint32_t*>room_of(offsets, &count_max)
    cdef uint32_t* id_out = <uint32_t*>room_of(ids, &id_count_max)
    cdef uint64_t size = 0, size_needed
    cdef int64_t slot
    count_max //= 4
    id_count_max //= 4
    if not (0 <= first <= stop <= op_count(words) and used <= <uint64_t>room and 0 <= count <= count_max <= id_count_max
            and 1 <= seq <= SEQ_MAX + 1 - <uint64_t>(stop - first)):
        _check_door(data, ops, first, stop, room, used, count_max, id_count_max, count, seq)
    if first == stop or count == count_max:
        return first, used, 0
    while done < stop and count < count_max:
        op = op_list + done
        if op.flags & (OP_SPECIAL | OP_ADMITTED) == OP_SPECIAL:
            break
        if not _is_good(op, source_size):
            if done > first:  # what is done stands; the next call says what is wrong
                break
            raise op_problem(source_size, ops[done * OP_WORDS:(done + 1) * OP_WORDS])
        size_needed = record_size(op.subject_size, op.headers_size, op.payload_size, False)
        if size_needed > <uint64_t>room - used:
            break
        if op.flags & OP_EXPECTS and not _has_last(table, source + op.subject_start, op.subject_size, op.expected):
            break
        slot = <int64_t>op.slot - 1
        if slot < 0 or not table.holds_c(<uint32_t>slot, source + op.subject_start, op.subject_size):
            slot = table.intern_c(source + op.subject_start, op.subject_size)
            if slot < 0:
                if done > first:
                    break
                raise MemoryError
            op.slot = <uint32_t>slot + 1
        table.add_c(<uint32_t>slot, seq)
        if per_subject_max > 0 and table.count_c(<uint32_t>slot) == <uint64_t>per_subject_max + 1:
            over.append(slot)
        offset_out[count] = <uint32_t>(base + used)
        id_out[count] = <uint32_t>slot
        used += put(out + used, MSG_ID if op.flags & OP_MSG_ID else 0, source + op.subject_start, op.subject_size,
                    source + op.headers_start, op.headers_size, source + op.payload_start, op.payload_size, seq,
                    time_ns, 0, seed)
        size += size_fixed + op.subject_size + op.payload_size
        if op.headers_size:
            size += size_headers + op.headers_size
        count += 1
        seq += 1
        done += 1
    return done, used, size


def check_batch(data, ops):
    """Raise unless a record can be made of every operation."""
    cdef Py_ssize_t source_size, words, number
    bytes_of(data, &source_size)
    cdef PubOp* op_list = ops_of(ops, &words)
    for number in range(op_count(words)):
        if not _is_good(op_list + number, source_size):
            raise op_problem(source_size, ops[number * OP_WORDS:(number + 1) * OP_WORDS])


cdef inline uint32_t _put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    """How many bytes it took."""
    cdef uint32_t size = 0
    while value >= 0x80:
        out[size] = <uint8_t>value | 0x80
        value >>= 7
        size += 1
    out[size] = <uint8_t>value
    return size + 1


def encode_batch_at(data, ops, seqs, times, expires, Py_ssize_t first, Py_ssize_t stop, chunk, uint64_t used,
                    uint64_t base, offsets, ids, Py_ssize_t count, SubjectTable table not None, uint64_t last_seq,
                    uint64_t seed, uint64_t size_fixed, uint64_t size_headers, int64_t per_subject_max,
                    list over not None, list gaps not None):
    """Encode operations first..stop-1, whose sequences and times are given; see `encode.py`."""
    cdef Py_ssize_t source_size, words, room, count_max, id_count_max, seqs_size, times_size, expires_size, done = first
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &source_size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    cdef const uint64_t* seq_list = <const uint64_t*>bytes_of(seqs, &seqs_size)
    cdef const int64_t* time_list = <const int64_t*>bytes_of(times, &times_size)
    cdef const int64_t* expires_list = <const int64_t*>bytes_of(expires, &expires_size)
    cdef uint8_t* out = <uint8_t*>room_of(chunk, &room)
    cdef uint32_t* offset_out = <uint32_t*>room_of(offsets, &count_max)
    cdef uint32_t* id_out = <uint32_t*>room_of(ids, &id_count_max)
    cdef uint64_t size = 0, size_needed, seq
    cdef int64_t slot, expires_ns
    cdef uint8_t[10] between
    cdef uint32_t between_size
    count_max //= 4
    id_count_max //= 4
    _check_door(data, ops, first, stop, room, used, count_max, id_count_max, count, last_seq + 1)
    check_given(seqs_size // 8, times_size // 8, expires_size // 8, stop)
    while done < stop and count < count_max:
        op, seq = op_list + done, seq_list[done]
        if not _is_good(op, source_size) or not last_seq < seq <= SEQ_MAX:
            if done > first:  # what is done stands; the next call says what is wrong
                break
            raise op_problem(source_size, ops[done * OP_WORDS:(done + 1) * OP_WORDS]) or seq_problem(seq, last_seq)
        expires_ns = expires_list[done] if expires_size else 0
        between_size = _put_varint(between, seq - last_seq - 1) if seq > last_seq + 1 else 0
        size_needed = record_size(op.subject_size, op.headers_size, op.payload_size, expires_ns != 0)
        if between_size:
            size_needed += record_size(0, 0, between_size, False)
        if size_needed > <uint64_t>room - used:
            break
        slot = <int64_t>op.slot - 1
        if slot < 0 or not table.holds_c(<uint32_t>slot, source + op.subject_start, op.subject_size):
            slot = table.intern_c(source + op.subject_start, op.subject_size)
            if slot < 0:
                if done > first:
                    break
                raise MemoryError
        if between_size:
            gaps.append(last_seq + 1)
            gaps.append(seq - 1)
            used += put(out + used, SKIP, NULL, 0, NULL, 0, between, between_size, last_seq + 1, time_list[done], 0,
                        seed)
        table.add_c(<uint32_t>slot, seq)
        if per_subject_max > 0 and table.count_c(<uint32_t>slot) == <uint64_t>per_subject_max + 1:
            over.append(slot)
        offset_out[count] = <uint32_t>(base + used)
        id_out[count] = <uint32_t>slot
        used += put(out + used, (MSG_ID if op.flags & OP_MSG_ID else 0) | (EXPIRES if expires_ns else 0)
                    | (MORE if op.flags & OP_MORE else 0) | (REST if op.flags & OP_REST else 0),
                    source + op.subject_start, op.subject_size, source + op.headers_start, op.headers_size,
                    source + op.payload_start, op.payload_size, seq, time_list[done], expires_ns, seed)
        size += size_fixed + op.subject_size + op.payload_size
        if op.headers_size:
            size += size_headers + op.headers_size
        count += 1
        last_seq = seq
        done += 1
    return done, used, size
