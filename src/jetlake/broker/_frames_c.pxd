# What other kernels may cimport from the frames of the broker.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from jetlake.ops cimport PubOp
from jetlake.output cimport put_byte


cdef inline bint lies_within(uint32_t start, uint32_t size, uint64_t end) noexcept nogil:
    return start <= end and size <= end - start


cdef inline bint is_reply_to(const uint8_t* reply, Py_ssize_t size, const uint8_t* prefix, Py_ssize_t prefix_size,
                             bint may_have_dots) noexcept nogil:
    """Whether a reply is the prefix and one more token, or several of which none is empty."""
    cdef Py_ssize_t at
    if size <= prefix_size or memcmp(reply, prefix, prefix_size) != 0:
        return False
    if not may_have_dots:
        return memchr(reply + prefix_size, c".", size - prefix_size) == NULL
    if reply[prefix_size] == c"." or reply[size - 1] == c".":
        return False
    for at in range(prefix_size, size - 1):
        if reply[at] == c"." and reply[at + 1] == c".":
            return False
    return True


cdef inline uint8_t* put_space(uint8_t* out) noexcept nogil:
    return put_byte(out, 32)


cdef inline bint is_good(PubOp* op, uint64_t end) noexcept nogil:
    return (lies_within(op.subject_start, op.subject_size, end) and lies_within(op.reply_start, op.reply_size, end)
            and lies_within(op.headers_start, op.headers_size, end)
            and lies_within(op.payload_start, op.payload_size, end))
