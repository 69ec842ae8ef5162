# What the headers of a message hold that importers must know of: see `walk.py`.
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcmp

cdef enum:  # as in `jetlake.ops`; `_walk_c` compares them
    OP_SPECIAL = 1
    OP_MSG_ID = 2


cdef inline bint has_line(const uint8_t* text, uint32_t size, const char* line, uint32_t line_size) noexcept nogil:
    """Whether headers have a line that begins so."""
    cdef const uint8_t* end = text + size
    while text < end:
        text = <const uint8_t*>memchr(text, c"\r", end - text)
        if text == NULL or end - text < line_size:
            return False
        if memcmp(text, line, line_size) == 0:
            return True
        text += 1
    return False


cdef inline uint32_t header_flags(const uint8_t* headers, uint32_t size) noexcept nogil:
    """OP_MSG_ID for a Nats-Msg-Id, OP_SPECIAL for a Nats-TTL."""
    cdef uint32_t flags = 0
    if size:
        if has_line(headers, size, "\r\nNats-Msg-Id:", 14):
            flags |= OP_MSG_ID
        if has_line(headers, size, "\r\nNats-TTL:", 11):
            flags |= OP_SPECIAL
    return flags
