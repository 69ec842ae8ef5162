"""One record: to bytes and back, compiled. `_record_py.py` is the reference; other kernels use the C level."""

from libc.stdint cimport uint16_t
from libc.string cimport memcpy

from jetlake.store import format
from jetlake.store._record_py import BadRecord, Record, check_sizes
from jetlake.store._record_py import measure as measure_py

cdef uint8_t EXPIRES = format.EXPIRES
cdef uint8_t NOT_MESSAGE = format.NOT_MESSAGE
cdef uint8_t UNKNOWN_FLAGS = 0xFF & ~format.KNOWN_FLAGS
cdef uint32_t SUBJECT_SIZE_MAX = format.SUBJECT_SIZE_MAX
cdef uint32_t HEADERS_SIZE_MAX = format.HEADERS_SIZE_MAX
cdef uint32_t PAYLOAD_SIZE_MAX = format.PAYLOAD_SIZE_MAX
cdef uint64_t TRAILER_SIZE = format.TRAILER.size
cdef uint64_t MIX_1 = format._MIX_1
cdef uint64_t MIX_2 = format._MIX_2


cdef inline bint _size(const uint8_t* data, uint64_t* offset, uint64_t end, uint32_t size_max,
                       uint32_t* out) noexcept nogil:
    """Read a size."""
    cdef uint64_t at = offset[0], size = 0
    cdef int shift = 0
    cdef uint8_t byte
    while True:
        if at >= end or shift > 28:
            return False
        byte = data[at]
        at += 1
        size |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    out[0] = <uint32_t>size
    offset[0] = at
    return size <= size_max


cdef inline uint16_t _check(uint8_t flags, uint32_t subject_size, uint32_t headers_size, uint32_t payload_size,
                            uint64_t seed) noexcept nogil:
    """As `format.size_check`."""
    cdef uint64_t mixed = (<uint64_t>flags | <uint64_t>subject_size << 8 | <uint64_t>headers_size << 24) ^ seed
    mixed = mixed * MIX_1 ^ payload_size
    mixed = (mixed ^ mixed >> 29) * MIX_2
    return <uint16_t>(mixed >> 48)


cdef const char* parse(const uint8_t* data, uint64_t start, uint64_t end, uint64_t seed, Parts* out) noexcept nogil:
    """Find the parts of the record at `start`; NULL when they all lie before `end`, else what is wrong."""
    cdef uint64_t at = start + 1, size
    if start >= end:
        return "no byte left"
    out.flags = data[start]
    if out.flags & UNKNOWN_FLAGS:
        return "unknown flags"
    if not (_size(data, &at, end, SUBJECT_SIZE_MAX, &out.subject_size)
            and _size(data, &at, end, HEADERS_SIZE_MAX, &out.headers_size)
            and _size(data, &at, end, PAYLOAD_SIZE_MAX, &out.payload_size)):
        return "bad size"
    if end - at < 2 or (data[at] | <uint16_t>data[at + 1] << 8) != _check(
            out.flags, out.subject_size, out.headers_size, out.payload_size, seed):
        return "bad check"
    at += 2
    size = <uint64_t>out.subject_size + out.headers_size + out.payload_size + TRAILER_SIZE
    if out.flags & EXPIRES:
        size += 8
    if size > end - at:
        return "cut off"
    out.subject_start = at
    out.headers_start = at + out.subject_size
    out.payload_start = out.headers_start + out.headers_size
    out.end = at + size
    out.expires_ns = <int64_t>load64(data + out.end - 32) if out.flags & EXPIRES else 0
    out.seq = load64(data + out.end - 24)
    out.time_ns = <int64_t>load64(data + out.end - 16)
    return NULL


cdef bint is_sound(const uint8_t* data, uint64_t start, Parts* parts, uint64_t seed) noexcept nogil:
    """Does the checksum match?"""
    return xxh64(data + start, parts.end - 8 - start, seed) == load64(data + parts.end - 8)


cdef bint is_message(Parts* parts) noexcept nogil:
    return not parts.flags & NOT_MESSAGE


cdef inline uint32_t _varint_size(uint32_t value) noexcept nogil:
    cdef uint32_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t* _put_size(uint8_t* out, uint32_t size) noexcept nogil:
    while size >= 0x80:
        out[0] = <uint8_t>(size | 0x80)
        size >>= 7
        out += 1
    out[0] = <uint8_t>size
    return out + 1


cdef inline uint8_t* _put_part(uint8_t* out, const uint8_t* part, uint32_t size) noexcept nogil:
    if size:  # an empty part may have no address
        memcpy(out, part, size)
    return out + size


cdef uint64_t size_of(uint32_t subject_size, uint32_t headers_size, uint32_t payload_size, bint expires) noexcept nogil:
    """How many bytes a record takes."""
    cdef uint64_t size = 3 + TRAILER_SIZE + (8 if expires else 0)
    size += _varint_size(subject_size) + subject_size
    size += _varint_size(headers_size) + headers_size
    return size + _varint_size(payload_size) + payload_size


cdef uint64_t put(uint8_t* out, uint8_t flags, const uint8_t* subject, uint32_t subject_size, const uint8_t* headers,
                  uint32_t headers_size, const uint8_t* payload, uint32_t payload_size, uint64_t seq, int64_t time_ns,
                  int64_t expires_ns, uint64_t seed) noexcept nogil:
    """Write a record, for which `size_of` bytes must be there; how many it took."""
    cdef uint8_t* at = out
    cdef uint16_t check = _check(flags, subject_size, headers_size, payload_size, seed)
    at[0] = flags
    at = _put_size(_put_size(_put_size(at + 1, subject_size), headers_size), payload_size)
    at[0] = <uint8_t>check
    at[1] = <uint8_t>(check >> 8)
    at = _put_part(at + 2, subject, subject_size)
    at = _put_part(at, headers, headers_size)
    at = _put_part(at, payload, payload_size)
    if flags & EXPIRES:
        store64(at, <uint64_t>expires_ns)
        at += 8
    store64(at, seq)
    store64(at + 8, <uint64_t>time_ns)
    store64(at + 16, xxh64(out, at + 16 - out, seed))
    return at + 24 - out


def encode(record, uint64_t seed):
    """The bytes of a record; MessageTooLarge when a part exceeds what the format holds."""
    cdef const uint8_t[::1] subject, headers, payload
    flags, subject_bytes, headers_bytes, payload_bytes, seq, time_ns, expires_ns = record
    check_sizes(len(subject_bytes), len(headers_bytes), len(payload_bytes))
    subject, headers, payload = subject_bytes, headers_bytes, payload_bytes
    cdef uint64_t size = size_of(subject.shape[0], headers.shape[0], payload.shape[0], flags & EXPIRES)
    out = bytearray(size)
    cdef uint8_t[::1] view = out
    put(&view[0], flags, _start(subject), subject.shape[0], _start(headers), headers.shape[0], _start(payload),
        payload.shape[0], seq, time_ns, expires_ns, seed)
    return bytes(out)


cdef const uint8_t* _start(const uint8_t[::1] view) noexcept:
    return &view[0] if view.shape[0] else NULL


def decode(data, Py_ssize_t start, Py_ssize_t end, uint64_t seed):
    """The record at `start` and the offset after it; BadRecord when its checksum or its shape is wrong."""
    cdef const uint8_t[::1] view = data
    cdef Parts parts
    if not 0 <= start <= end <= view.shape[0]:
        raise IndexError(f"record range {start}..{end} of {view.shape[0]} bytes")
    if start == end or parse(&view[0], start, end, seed, &parts) != NULL:
        measure_py(data, start, end, seed)  # raises, with the words of the reference
        raise AssertionError("the twins disagree")
    if not is_sound(&view[0], start, &parts, seed):
        raise BadRecord("checksum does not match")
    cdef const char* base = <const char*>&view[0]
    record = Record(
        parts.flags,
        base[parts.subject_start:parts.subject_start + parts.subject_size],
        base[parts.headers_start:parts.headers_start + parts.headers_size],
        base[parts.payload_start:parts.payload_start + parts.payload_size],
        parts.seq,
        parts.time_ns,
        parts.expires_ns,
    )
    return record, parts.end
