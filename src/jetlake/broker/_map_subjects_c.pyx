"""Give publishes other subjects, compiled. `_map_subjects_py.py` is the reference."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from jetlake.broker import _map_subjects_py as _twin
from jetlake.buffers cimport bytes_of
from jetlake.ops import check_ops
from jetlake.ops cimport PubOp, op_count, ops_of

cdef uint64_t WEIGHTS = _twin.WEIGHTS


cdef struct Mapped:
    uint8_t* start
    Py_ssize_t size
    Py_ssize_t room


def map_subjects(
    data, ops, Py_ssize_t first, Py_ssize_t stop, dict found, frozenset heads, Py_ssize_t base, uint64_t seed
):
    """Map the subjects of operations first..stop-1 as far as they are known; see `map_subjects.py`."""
    cdef Py_ssize_t data_size, words, number, dropped = 0
    cdef const uint8_t* start = <const uint8_t*>bytes_of(data, &data_size)
    cdef PubOp* op = ops_of(ops, &words)
    cdef Mapped mapped = Mapped(NULL, 0, 0)
    cdef uint64_t state = seed | 1
    if not 0 <= first < stop <= op_count(words) or data_size > UINT32_MAX:
        check_ops(data_size, words, first, stop)
    try:
        for number in range(first, stop):
            subject = _subject(start, data_size, op + number)
            if heads is not None and _head(subject) not in heads:
                continue
            if subject not in found:
                stop = number
                break
            choice = found[subject]
            if type(choice) is tuple:
                state ^= state << 13
                state ^= state >> 7
                state ^= state << 17
                choice = _choose(<tuple>choice, (state >> 32) * WEIGHTS >> 32)
                dropped += PyBytes_GET_SIZE(choice) == 0 if choice is not None else 0
            if choice is not None:
                op[number].subject_start = <uint32_t>(base + mapped.size)
                op[number].subject_size = <uint32_t>PyBytes_GET_SIZE(choice)
                _append(&mapped, choice)
        return stop, dropped, PyBytes_FromStringAndSize(<const char*>mapped.start, mapped.size)
    finally:
        free(mapped.start)


cdef inline bytes _subject(const uint8_t* data, Py_ssize_t size, const PubOp* op):
    if op.subject_start > size or op.subject_size > size - op.subject_start:
        raise IndexError(f"a subject at {op.subject_start} of {op.subject_size} bytes, in a buffer of {size}")
    return PyBytes_FromStringAndSize(<const char*>data + op.subject_start, op.subject_size)


cdef inline bytes _head(bytes subject):
    cdef const char* start = PyBytes_AS_STRING(subject)
    cdef const char* dot = <const char*>memchr(start, 46, PyBytes_GET_SIZE(subject))
    return subject if dot == NULL else PyBytes_FromStringAndSize(start, dot - start)


cdef object _choose(tuple choices, uint64_t drawn):
    for weight, choice in choices:
        if drawn < <uint64_t>weight:
            return choice
    return b""


cdef int _append(Mapped* mapped, bytes subject) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(subject), room
    cdef void* grown
    if size > mapped.room - mapped.size:
        room = 2 * mapped.room + size + 4096
        grown = realloc(mapped.start, room)
        if grown == NULL:
            raise MemoryError
        mapped.start, mapped.room = <uint8_t*>grown, room
    memcpy(mapped.start + mapped.size, PyBytes_AS_STRING(subject), size)
    mapped.size += size
    return 0
