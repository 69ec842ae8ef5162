"""Rows to records and back to operations, compiled. `_rows_py.py` is the reference."""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from array import array as make_array

from jetlake.errors import MessageTooLarge
from jetlake.ops import OP_MSG_ID, OP_WORDS
from jetlake.store.records._record_py import BadRecord, decode
from jetlake.store.records._record_c cimport (
    HEADERS_SIZE_MAX,
    MSG_ID,
    NOT_MESSAGE,
    PAYLOAD_SIZE_MAX,
    SUBJECT_SIZE_MAX,
    Parts,
    is_sound,
    parse,
    put,
    record_size,
)

cdef extern from "jetlake/store/records/record.h" nogil:
    uint64_t xxh64 "jl_xxh64"(const uint8_t* data, size_t size, uint64_t seed)
    void store64 "jl_store64"(uint8_t* data, uint64_t value)

cdef uint32_t WORDS = OP_WORDS
cdef uint32_t OP_ID = OP_MSG_ID
cdef array.array _U32 = make_array("I")


cdef class Bytes:
    """Bytes that stay where they are as long as this object lives."""

    cdef Py_buffer view
    cdef bint is_held

    def __cinit__(self, source, bint is_writable=False):
        PyObject_GetBuffer(source, &self.view, PyBUF_WRITABLE if is_writable else PyBUF_SIMPLE)
        self.is_held = True

    def __dealloc__(self):
        if self.is_held:
            PyBuffer_Release(&self.view)


cdef struct Column:
    const int32_t* offsets
    const uint8_t* data


cdef Column column(Bytes offsets, Bytes data, Py_ssize_t stop) except *:
    """A column of at least so many rows whose every row lies in its bytes."""
    cdef Column out
    cdef Py_ssize_t row, count = offsets.view.len // 4
    out.offsets, out.data = <const int32_t*>offsets.view.buf, <const uint8_t*>data.view.buf
    if count < stop + 1 or out.offsets[0] < 0 or out.offsets[stop] > data.view.len or out.offsets[0] > out.offsets[stop]:
        raise IndexError(f"a column of {count - 1} rows and {data.view.len} bytes, {stop} rows wanted")
    for row in range(stop):
        if out.offsets[row] > out.offsets[row + 1]:
            raise IndexError("offsets of a column do not ascend")
    return out


def encode_rows(subject_offsets, subjects, header_offsets, headers, payload_offsets, payloads, times_ns,
                Py_ssize_t first, Py_ssize_t stop, out, Py_ssize_t used, uint64_t seq, int64_t time_ns, uint64_t seed):
    """Encode rows first..stop-1 as far as there is room: the row at which it stopped, bytes used, times (min, max)."""
    cdef Bytes held_1 = Bytes(subject_offsets), held_2 = Bytes(subjects)
    cdef Bytes held_3 = Bytes(payload_offsets), held_4 = Bytes(payloads)
    cdef Bytes held_5 = Bytes(header_offsets), held_6 = Bytes(headers)
    cdef Bytes times = Bytes(times_ns), target = Bytes(out, True)
    cdef bint has_headers = held_5.view.len > 0, has_times = times.view.len > 0
    if not 0 <= first <= stop or (has_times and times.view.len // 8 < stop) or not 0 <= used <= target.view.len:
        raise IndexError(f"rows {first}..{stop}")
    cdef Column subject = column(held_1, held_2, stop), payload = column(held_3, held_4, stop), header = subject
    if has_headers:
        header = column(held_5, held_6, stop)
    cdef const int64_t* time_in = <const int64_t*>times.view.buf
    cdef uint8_t* base = <uint8_t*>target.view.buf
    cdef uint64_t room = target.view.len, size
    cdef uint32_t subject_size, headers_size = 0, payload_size
    cdef const uint8_t* headers_start = NULL
    cdef int64_t stored_ns, time_min = INT64_MAX, time_max = INT64_MIN
    while first < stop:
        subject_size = subject.offsets[first + 1] - subject.offsets[first]
        payload_size = payload.offsets[first + 1] - payload.offsets[first]
        if has_headers:
            headers_size = header.offsets[first + 1] - header.offsets[first]
            headers_start = header.data + header.offsets[first]
        if subject_size > SUBJECT_SIZE_MAX:
            raise MessageTooLarge("subject", subject_size, SUBJECT_SIZE_MAX)
        if headers_size > HEADERS_SIZE_MAX:
            raise MessageTooLarge("headers", headers_size, HEADERS_SIZE_MAX)
        if payload_size > PAYLOAD_SIZE_MAX:
            raise MessageTooLarge("payload", payload_size, PAYLOAD_SIZE_MAX)
        size = record_size(subject_size, headers_size, payload_size, False)
        if size > room - used:
            break
        stored_ns = time_in[first] if has_times else time_ns
        put(base + used, 0, subject.data + subject.offsets[first], subject_size, headers_start, headers_size,
            payload.data + payload.offsets[first], payload_size, seq, stored_ns, 0, seed)
        used += size
        time_min, time_max = min(time_min, stored_ns), max(time_max, stored_ns)
        first += 1
        seq += 1
    return first, used, time_min, time_max


def shift(data, Py_ssize_t start, Py_ssize_t end, uint64_t seed, uint64_t distance):
    """Give every record a sequence so much higher; how many. BadRecord in front of one that is not sound."""
    cdef Bytes held = Bytes(data, True)
    if not 0 <= start <= end <= held.view.len:
        raise IndexError(f"range {start}..{end} of {held.view.len} bytes")
    cdef uint8_t* base = <uint8_t*>held.view.buf
    cdef uint64_t offset = start, stop = end, count = 0
    cdef bint is_good = True
    cdef Parts parts
    with nogil:
        while offset < stop:
            if not parse(base, offset, stop, seed, False, &parts) or not is_sound(base, offset, &parts, seed):
                is_good = False
                break
            store64(base + parts.end - 24, parts.seq + distance)
            store64(base + parts.end - 8, xxh64(base + offset, parts.end - 8 - offset, seed))
            offset = parts.end
            count += 1
    if not is_good:
        decode(data, offset, end, seed)  # raises, with the words of the reference
        raise AssertionError("the twins disagree")
    return count


def operations(data, Py_ssize_t start, Py_ssize_t end, uint64_t seed):
    """The messages of some records as operations on the same bytes, for a batch append (see `jetlake.ops`)."""
    cdef Bytes held = Bytes(data)
    if not 0 <= start <= end <= held.view.len:
        raise IndexError(f"range {start}..{end} of {held.view.len} bytes")
    cdef const uint8_t* base = <const uint8_t*>held.view.buf
    cdef uint64_t offset = start, stop = end
    cdef Py_ssize_t count = 0
    cdef array.array ops = array.clone(_U32, WORDS * ((end - start) // 30 + 1), zero=True)
    cdef uint32_t* out = ops.data.as_uints
    cdef Parts parts
    while offset < stop:
        if not parse(base, offset, stop, seed, False, &parts) or not is_sound(base, offset, &parts, seed):
            decode(data, offset, end, seed)
            raise AssertionError("the twins disagree")
        if parts.flags & NOT_MESSAGE:
            raise BadRecord("not a message")
        out[0], out[1] = <uint32_t>parts.subject_start, parts.subject_size
        out[4], out[5] = <uint32_t>parts.headers_start, parts.headers_size
        out[6], out[7] = <uint32_t>parts.payload_start, parts.payload_size
        out[9] = OP_ID if parts.flags & MSG_ID else 0
        out += WORDS
        offset = parts.end
        count += 1
    array.resize(ops, WORDS * count)
    return ops
