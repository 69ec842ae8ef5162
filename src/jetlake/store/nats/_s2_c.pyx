"""Decode S2 blocks, compiled. `_s2_py.py` is the reference."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jetlake.buffers cimport bytes_of, room_of
from jetlake.store.nats._s2_py import BadS2, _table, decoded_size

cdef extern from "jetlake/store/nats/crc32c.h" nogil:
    uint32_t crc_plain "jl_crc32c_plain"(uint32_t[8][256] tables, uint32_t crc, const uint8_t* data, uint64_t size)
    uint32_t crc_any "jl_crc32c"(uint32_t[8][256] tables, uint32_t crc, const uint8_t* data, uint64_t size)

cdef uint32_t[8][256] TABLES


cdef void _fill_tables(list first) except *:
    """The table of a byte, and of one that so many others follow."""
    cdef int i, step
    for i in range(256):
        TABLES[0][i] = first[i]
    for step in range(1, 8):
        for i in range(256):
            TABLES[step][i] = TABLES[0][TABLES[step - 1][i] & 0xFF] ^ TABLES[step - 1][i] >> 8


_fill_tables(_table())


def crc32c(data, bint is_plain=False):
    """CRC-32C; `is_plain` without the instruction that not all processors have."""
    cdef Py_ssize_t size
    cdef const uint8_t* at = <const uint8_t*>bytes_of(data, &size)
    cdef uint32_t crc
    with nogil:
        if is_plain:
            crc = crc_plain(TABLES, 0xFFFFFFFF, at, size)
        else:
            crc = crc_any(TABLES, 0xFFFFFFFF, at, size)
    return crc ^ 0xFFFFFFFF


cdef inline bint _number(const uint8_t* data, uint64_t at, uint64_t end, uint32_t size, uint32_t* out) noexcept nogil:
    if size > end - at:
        return False
    out[0] = 0
    memcpy(out, data + at, size)
    return True


cdef inline void _repeat(uint8_t* out, uint64_t offset, uint64_t length) noexcept nogil:
    """Copy from bytes before, which may be made by this very copy."""
    cdef const uint8_t* source = out - offset
    if offset >= 8:
        while length >= 8:
            memcpy(out, source, 8)
            out += 8
            source += 8
            length -= 8
    while length:
        out[0] = source[0]
        out += 1
        source += 1
        length -= 1


cdef const char* _decode(const uint8_t* data, uint64_t at, uint64_t end, uint8_t* out, uint64_t size) noexcept nogil:
    """What is wrong with a block; NULL when it was decoded."""
    cdef uint64_t used = 0, length
    cdef uint32_t tag, code, value, offset = 0
    while at < end:
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                code = <uint32_t>length - 59
                if not _number(data, at, end, code, &value):
                    return "a block is cut off"
                length = value
                at += code
            length += 1
            if length > end - at or length > size - used:
                return "a literal reaches too far"
            memcpy(out + used, data + at, length)
            at += length
            used += length
            continue
        if tag & 3 == 1:
            if not _number(data, at, end, 1, &value):
                return "a block is cut off"
            at += 1
            value |= (tag & 0xE0) << 3
            code = tag >> 2 & 7
            length = code + 4
            if value:
                offset = value
            elif code >= 5:
                code -= 4
                if not _number(data, at, end, code, &value):
                    return "a block is cut off"
                at += code
                length = <uint64_t>value + (8 if code == 1 else 260 if code == 2 else 65540)
        else:
            code = 2 if tag & 3 == 2 else 4
            if not _number(data, at, end, code, &offset):
                return "a block is cut off"
            at += code
            length = (tag >> 2) + 1
        if offset == 0 or offset > used or length > size - used:
            return "a copy reaches too far"
        _repeat(out + used, offset, length)
        used += length
    if used < size:
        return "a block ends early"
    return NULL


def decode_block(data, out):
    """Fill `out`, which has exactly the decoded size, from a block; raises BadS2."""
    cdef Py_ssize_t size, room
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &size)
    cdef uint8_t* target = <uint8_t*>room_of(out, &room)
    cdef uint64_t start, end = size, out_size = room
    cdef const char* problem
    wanted, start = decoded_size(data)
    if wanted != room:
        raise BadS2(f"a block of {wanted} bytes, not {room}")
    with nogil:
        problem = _decode(source, start, end, target, out_size)
    if problem != NULL:
        raise BadS2(problem.decode())
