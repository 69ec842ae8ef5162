# The struct of `ops.py`, for kernels.
from libc.stdint cimport uint32_t, uint64_t

from jetlake.buffers cimport room_of

ctypedef struct PubOp:
    uint32_t subject_start
    uint32_t subject_size
    uint32_t reply_start
    uint32_t reply_size
    uint32_t headers_start
    uint32_t headers_size
    uint32_t payload_start
    uint32_t payload_size
    uint32_t slot
    uint32_t flags
    uint64_t expected


cdef inline Py_ssize_t op_count(Py_ssize_t words) noexcept nogil:
    """How many operations are in an array of words."""
    return words // <Py_ssize_t>(sizeof(PubOp) // sizeof(uint32_t))


cdef inline PubOp* ops_of(ops, Py_ssize_t* words) except? NULL:
    """The operations in an array of words, and how many words it has."""
    cdef PubOp* start = <PubOp*>room_of(ops, words)
    words[0] //= <Py_ssize_t>sizeof(uint32_t)
    return start
