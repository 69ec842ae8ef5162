"""Take WebSocket frames apart, compiled. `_unframe_py.py` is the reference."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from jetlake.buffers cimport room_of
from jetlake.wire import websocket_format as _format
from jetlake.wire._unframe_py import check_arguments

cdef uint8_t FINAL = _format.FINAL, RESERVED = _format.RSV1 | _format.RSV2 | _format.RSV3, OPCODE = _format.OPCODE
cdef uint8_t MASK = _format.MASK, SIZE_16 = _format.SIZE_16, SIZE_64 = _format.SIZE_64
cdef uint8_t CONTINUATION = _format.CONTINUATION, TEXT_OR_BINARY_MAX = _format.TEXT_OR_BINARY_MAX
cdef uint64_t NO_MESSAGE = _format.NO_MESSAGE, PLAIN = _format.PLAIN, SIZE_MAX = _format.SIZE_MAX
cdef Py_ssize_t KEY_SIZE = _format.KEY_SIZE

cdef struct State:
    uint64_t remaining
    uint64_t key
    uint64_t message
    uint64_t masked

assert sizeof(State) == 8 * _format.STATE_WORDS
assert (_format.REMAINING, _format.KEY, _format.MESSAGE, _format.MASKED) == (0, 1, 2, 3)


def unframe(data, Py_ssize_t offset, Py_ssize_t end, Py_ssize_t out, state):
    """Move what the frames of data[offset:end] carry to data[out:]; see `unframe.py`."""
    cdef Py_ssize_t data_size, state_size, size
    cdef uint8_t* start = <uint8_t*>room_of(data, &data_size)
    cdef State* frame = <State*>room_of(state, &state_size)
    if not 0 <= out <= offset <= end <= data_size or state_size != sizeof(State):
        check_arguments(data_size, offset, end, out, state_size // 8)
        raise IndexError("a state is of words of 8 bytes")
    while offset < end:
        if frame.remaining:
            size = end - offset
            if frame.remaining < <uint64_t>size:
                size = <Py_ssize_t>frame.remaining
            frame.key = _move(start + out, start + offset, size, <uint32_t>frame.key)
            frame.remaining -= <uint64_t>size
            offset += size
            out += size
        else:
            size = _begin(start + offset, end - offset, frame)
            if not size:
                break
            offset += size
    return offset, out


cdef Py_ssize_t _begin(const uint8_t* header, Py_ssize_t end, State* frame) noexcept nogil:
    """Read the header of a plain frame with data: its size, or 0 when there is none."""
    if end < 2:
        return 0
    cdef uint8_t first = header[0], second = header[1], opcode = first & OPCODE
    if first & RESERVED or opcode > TEXT_OR_BINARY_MAX:
        return 0
    if frame.message != (PLAIN if opcode == CONTINUATION else NO_MESSAGE) or (frame.masked and not second & MASK):
        return 0
    cdef uint64_t size = second & <uint8_t>~MASK
    cdef Py_ssize_t size_bytes = 2 if size == SIZE_16 else 8 if size == SIZE_64 else 0
    cdef Py_ssize_t key_at = 2 + size_bytes, i
    cdef Py_ssize_t header_size = key_at + (KEY_SIZE if frame.masked else 0)
    cdef uint32_t key = 0
    if header_size > end:
        return 0
    if size_bytes:
        size = 0
        for i in range(2, key_at):
            size = size << 8 | header[i]
        if size > SIZE_MAX:
            return 0
    for i in range(key_at, header_size):
        key |= <uint32_t>header[i] << <uint32_t>(8 * (i - key_at))
    frame.remaining, frame.key = size, key
    frame.message = NO_MESSAGE if first & FINAL else PLAIN
    return header_size


cdef uint32_t _move(uint8_t* target, const uint8_t* source, Py_ssize_t size, uint32_t key) noexcept nogil:
    """Unmask bytes on their way down to the target; the key for those that follow.

    A word is read before any of it is written, and the target never lies behind the source.
    """
    cdef uint8_t[8] pattern
    cdef uint64_t keys, word
    cdef Py_ssize_t i = 0
    if not key:
        memmove(target, source, size)
        return 0
    for i in range(8):
        pattern[i] = <uint8_t>(key >> <uint32_t>(8 * (i & 3)))
    memcpy(&keys, pattern, 8)
    i = 0
    while size - i >= 8:
        memcpy(&word, source + i, 8)
        word ^= keys
        memcpy(target + i, &word, 8)
        i += 8
    while i < size:
        target[i] = source[i] ^ <uint8_t>key
        key = key >> 8 | key << 24
        i += 1
    return key
