"""The entries of a snapshot archive, compiled. `_archive_py.py` is the reference."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jetlake.buffers cimport bytes_of, room_of
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.store.nats import _archive_py
from jetlake.store.nats._archive_py import Packed, Unpacked
from jetlake.store.nats._headers cimport header_flags
from jetlake.store.records._record_c cimport NOT_MESSAGE, Parts, is_sound, parse

cdef uint64_t NUMBERS_SIZE_MAX = _archive_py.NUMBERS_SIZE_MAX
cdef uint64_t NAME_SIZE_MAX = _archive_py.NAME_SIZE_MAX
cdef uint64_t CONTENT_SIZE_MAX = _archive_py.CONTENT_SIZE_MAX


cdef inline uint64_t _put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    cdef uint64_t size = 0
    while value >= 0x80:
        out[size] = <uint8_t>value | 0x80
        value >>= 7
        size += 1
    out[size] = <uint8_t>value
    return size + 1


cdef inline uint64_t _put_bytes(uint8_t* out, const uint8_t* data, uint64_t size) noexcept nogil:
    memcpy(out, data, size)
    return size


cdef inline uint64_t _put_entry(uint8_t* out, const uint8_t* base, const Parts* parts) noexcept nogil:
    cdef uint8_t* at = out
    at += _put_varint(at, parts.subject_size)
    at += _put_varint(at, <uint64_t>parts.time_ns << 1 ^ <uint64_t>(parts.time_ns >> 63))
    at += _put_varint(at, parts.seq)
    at += _put_varint(at, parts.headers_size)
    at += _put_varint(at, parts.payload_size)
    at += _put_bytes(at, base + parts.subject_start, parts.subject_size)
    at += _put_bytes(at, base + parts.headers_start, parts.headers_size)
    at += _put_bytes(at, base + parts.payload_start, parts.payload_size)
    return at - out


cdef inline uint32_t _varint_size(uint64_t value) noexcept nogil:
    cdef uint32_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint64_t _entry_size(const Parts* parts) noexcept nogil:
    return (_varint_size(parts.subject_size) + _varint_size(parts.seq) + _varint_size(parts.headers_size)
            + _varint_size(<uint64_t>parts.time_ns << 1 ^ <uint64_t>(parts.time_ns >> 63))
            + _varint_size(parts.payload_size) + <uint64_t>parts.subject_size + parts.headers_size
            + parts.payload_size)


def pack(data, uint64_t start, uint64_t end, uint64_t seed, uint64_t first_seq, uint64_t last_seq,
         const uint64_t[::1] gone_starts, const uint64_t[::1] gone_ends, out, uint64_t used):
    """Append the live messages of data[start:end] to `out` as entries, for as long as they fit; see `archive.py`."""
    cdef Py_ssize_t size, room
    cdef const uint8_t* base = <const uint8_t*>bytes_of(data, &size)
    cdef uint8_t* target = <uint8_t*>room_of(out, &room)
    if not start <= end <= <uint64_t>size or used > <uint64_t>room or gone_starts.shape[0] != gone_ends.shape[0]:
        raise IndexError(f"range {start}..{end} of {size} bytes, {used} of {room} used")
    cdef Py_ssize_t gone = 0, gone_count = gone_starts.shape[0]
    cdef uint64_t msgs = 0
    cdef bint is_bad = False
    cdef Parts parts
    with nogil:
        while start < end:
            if not parse(base, start, end, seed, True, &parts) or not is_sound(base, start, &parts, seed):
                is_bad = True
                break
            if not parts.flags & NOT_MESSAGE and first_seq <= parts.seq <= last_seq:
                while gone < gone_count and gone_ends[gone] < parts.seq:
                    gone += 1
                if gone == gone_count or parts.seq < gone_starts[gone]:
                    if _entry_size(&parts) > <uint64_t>room - used:
                        break
                    used += _put_entry(target + used, base, &parts)
                    msgs += 1
            start = parts.end
    return Packed(start, used, msgs, is_bad)


cdef enum:
    CUT_OFF = 0
    WHOLE = 1
    BAD = 2


cdef inline int _number(const uint8_t* data, uint64_t* at, uint64_t end, uint64_t* out) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint32_t shift = 0
    cdef uint8_t byte
    while True:
        if at[0] >= end:
            return CUT_OFF
        if shift > 63:
            return BAD
        byte = data[at[0]]
        at[0] += 1
        if shift == 63 and byte & 0x7E:
            if byte < 0x80:
                return BAD
        value |= <uint64_t>(byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            out[0] = value
            return WHOLE


def unpack(data, uint64_t start, uint64_t end, ops, seqs, times):
    """Fill ops, seqs and times with the messages of data[start:end]; see `archive.py`."""
    cdef Py_ssize_t size, words, seqs_size, times_size
    cdef const uint8_t* base = <const uint8_t*>bytes_of(data, &size)
    cdef PubOp* op = ops_of(ops, &words)
    cdef uint64_t* seq_out = <uint64_t*>room_of(seqs, &seqs_size)
    cdef int64_t* time_out = <int64_t*>room_of(times, &times_size)
    if not start <= end <= <uint64_t>size:
        raise IndexError(f"range {start}..{end} of {size} bytes")
    cdef Py_ssize_t entries = 0, room = min(op_count(words), seqs_size // 8, times_size // 8)
    cdef uint64_t at, i
    cdef uint64_t[5] numbers
    cdef int found = WHOLE
    cdef const char* problem = NULL
    with nogil:
        while entries < room:
            at = start
            for i in range(5):
                found = _number(base, &at, end, &numbers[i])
                if found != WHOLE:
                    break
            if found == BAD:
                problem = "a number is too long"
                break
            if found == CUT_OFF:
                break
            if numbers[0] > NAME_SIZE_MAX or numbers[3] > CONTENT_SIZE_MAX or numbers[4] > CONTENT_SIZE_MAX:
                problem = "an entry is too large"
                break
            if numbers[2] == 0 or numbers[0] + numbers[3] + numbers[4] > end - at:
                break
            if numbers[0] == 0:
                problem = "a message has no subject"
                break
            op[entries].subject_start, op[entries].subject_size = <uint32_t>at, <uint32_t>numbers[0]
            op[entries].reply_start, op[entries].reply_size = 0, 0
            op[entries].headers_start = <uint32_t>(at + numbers[0])
            op[entries].headers_size = <uint32_t>numbers[3]
            op[entries].payload_start = <uint32_t>(at + numbers[0] + numbers[3])
            op[entries].payload_size = <uint32_t>numbers[4]
            op[entries].slot, op[entries].expected = 0, 0
            op[entries].flags = header_flags(base + at + numbers[0], <uint32_t>numbers[3])
            seq_out[entries] = numbers[2]
            time_out[entries] = <int64_t>(numbers[1] >> 1) ^ -<int64_t>(numbers[1] & 1)
            entries += 1
            start = at + numbers[0] + numbers[3] + numbers[4]
    return Unpacked(start, entries, problem.decode() if problem != NULL else "")
