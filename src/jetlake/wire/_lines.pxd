# What the tokenizers of clients and of links share. The numbers are those of `protocol.py` and `ops.py`.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

cdef enum:
    SIZE_DIGITS_MAX = 9
    SPECIAL = 1
    MSG_ID = 2


cdef inline bint is_blank(uint8_t byte) noexcept nogil:
    return byte == 32 or byte == 9


cdef inline uint8_t upper(uint8_t byte) noexcept nogil:
    return byte - 32 if 97 <= byte <= 122 else byte


cdef inline int64_t parse_size(const uint8_t* text, Py_ssize_t size) noexcept nogil:
    cdef int64_t number = 0
    cdef Py_ssize_t i
    if size == 0 or size > SIZE_DIGITS_MAX:
        return -1
    for i in range(size):
        if text[i] < 48 or text[i] > 57:
            return -1
        number = number * 10 + (text[i] - 48)
    return number


cdef inline Py_ssize_t skip_visible(const uint8_t* data, Py_ssize_t at, Py_ssize_t stop) noexcept nogil:
    """Go on by eight bytes while none of them is below 33: most of a subject in a few steps."""
    cdef uint64_t word
    while stop - at >= 8:
        memcpy(&word, data + at, 8)
        if (word - <uint64_t>0x2121212121212121) & ~word & <uint64_t>0x8080808080808080:
            break
        at += 8
    return at


cdef inline uint32_t header_flags(const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef uint32_t flags = 0
    cdef const uint8_t* start = at
    while at < end:
        at = <const uint8_t*>memchr(at, 10, end - at)
        if at == NULL:
            break
        at += 1
        if end - at < 5 or at - start < 2 or (at - 2)[0] != 13 or memcmp(at, b"Nats-", 5) != 0:
            continue
        flags |= SPECIAL
        if end - at >= 12 and memcmp(at, b"Nats-Msg-Id:", 12) == 0:
            flags |= MSG_ID
    return flags
