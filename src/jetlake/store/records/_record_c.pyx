"""One record: to bytes and back, compiled. `_record_py.py` is the reference; `record.h` does the work for all kernels."""

from jetlake.store.records._record_py import BadRecord, Record, check_sizes
from jetlake.store.records._record_py import measure as measure_py

# What record.h takes for granted about `format.py`; a test compares the two.
NUMBERS = {
    "SKIP": SKIP,
    "ERASED": ERASED,
    "EXPIRES": EXPIRES,
    "MSG_ID": MSG_ID,
    "NOT_MESSAGE": NOT_MESSAGE,
    "MORE": MORE,
    "REST": REST,
    "TRAILER_SIZE": TRAILER_SIZE,
    "SUBJECT_SIZE_MAX": SUBJECT_SIZE_MAX,
    "HEADERS_SIZE_MAX": HEADERS_SIZE_MAX,
    "PAYLOAD_SIZE_MAX": PAYLOAD_SIZE_MAX,
}


def encode(record, uint64_t seed):
    """The bytes of a record; MessageTooLarge when a part exceeds what the format holds."""
    cdef const uint8_t[::1] subject, headers, payload
    flags, subject_bytes, headers_bytes, payload_bytes, seq, time_ns, expires_ns = record
    check_sizes(len(subject_bytes), len(headers_bytes), len(payload_bytes))
    subject, headers, payload = subject_bytes, headers_bytes, payload_bytes
    cdef uint64_t size = record_size(subject.shape[0], headers.shape[0], payload.shape[0], flags & EXPIRES)
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
    if start == end or not parse(&view[0], start, end, seed, False, &parts):
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
