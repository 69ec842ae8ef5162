"""One record: to bytes and back, in Python: the reference of `_record_c.pyx`. `format.py` has the layout."""

from __future__ import annotations

from typing import NamedTuple

from jetlake.errors import MessageTooLarge
from jetlake.store.format import (
    EXPIRES,
    HEADERS_SIZE_MAX,
    KNOWN_FLAGS,
    NOT_MESSAGE,
    PAYLOAD_SIZE_MAX,
    SUBJECT_SIZE_MAX,
    TRAILER,
    Buffer,
    hash64,
)
from jetlake.store.varint import encode_varint


class BadRecord(ValueError):
    """The bytes at this place are not a whole, sound record."""


class Record(NamedTuple):
    """A decoded record."""

    flags: int
    subject: bytes
    headers: bytes
    payload: bytes
    seq: int
    time_ns: int
    expires_ns: int = 0

    @property
    def is_message(self) -> bool:
        return not self.flags & NOT_MESSAGE


class Layout(NamedTuple):
    """Where the parts of a record lie."""

    subject_start: int
    subject_end: int
    headers_start: int
    headers_end: int
    payload_start: int
    payload_end: int
    end: int


def encode(record: Record, seed: int) -> bytes:
    """The bytes of a record; MessageTooLarge when a part exceeds what the format holds."""
    check_sizes(len(record.subject), len(record.headers), len(record.payload))
    parts = [
        bytes((record.flags,)),
        encode_varint(len(record.subject)),
        record.subject,
        encode_varint(len(record.headers)),
        record.headers,
        encode_varint(len(record.payload)),
        record.payload,
        record.expires_ns.to_bytes(8, "little", signed=True) if record.flags & EXPIRES else b"",
        record.seq.to_bytes(8, "little"),
        record.time_ns.to_bytes(8, "little", signed=True),
    ]
    body = b"".join(parts)
    return body + hash64(body, seed).to_bytes(8, "little")


def check_sizes(subject_size: int, headers_size: int, payload_size: int) -> None:
    """MessageTooLarge when a part exceeds what the format holds."""
    if subject_size > SUBJECT_SIZE_MAX:
        raise MessageTooLarge("subject", subject_size, SUBJECT_SIZE_MAX)
    if headers_size > HEADERS_SIZE_MAX:
        raise MessageTooLarge("headers", headers_size, HEADERS_SIZE_MAX)
    if payload_size > PAYLOAD_SIZE_MAX:
        raise MessageTooLarge("payload", payload_size, PAYLOAD_SIZE_MAX)


def measure(data: Buffer, start: int, end: int) -> Layout:
    """Where the parts of the record at `start` lie, without looking at its checksum."""
    if end - start < 1:
        raise BadRecord("no byte left")
    flags = data[start]
    if flags & ~KNOWN_FLAGS:
        raise BadRecord(f"unknown flags 0x{flags:02x}")
    subject_start, subject_end = _part(data, start + 1, end, SUBJECT_SIZE_MAX)
    headers_start, headers_end = _part(data, subject_end, end, HEADERS_SIZE_MAX)
    payload_start, payload_end = _part(data, headers_end, end, PAYLOAD_SIZE_MAX)
    tail = TRAILER.size + (8 if flags & EXPIRES else 0)
    if tail > end - payload_end:
        raise BadRecord(f"needs {tail - (end - payload_end)} bytes more than there are")
    return Layout(
        subject_start, subject_end, headers_start, headers_end, payload_start, payload_end, payload_end + tail
    )


def decode(data: Buffer, start: int, end: int, seed: int) -> tuple[Record, int]:
    """The record at `start` and the offset after it; BadRecord when its checksum or its shape is wrong."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"record range {start}..{end} of {len(data)} bytes")
    at = measure(data, start, end)
    seq, time_ns, stored_hash = TRAILER.unpack_from(data, at.end - TRAILER.size)
    if hash64(memoryview(data)[start : at.end - 8], seed) != stored_hash:
        raise BadRecord("checksum does not match")
    flags = data[start]
    expires_ns = 0
    if flags & EXPIRES:
        expires_ns = int.from_bytes(data[at.payload_end : at.payload_end + 8], "little", signed=True)
    record = Record(
        flags,
        bytes(data[at.subject_start : at.subject_end]),
        bytes(data[at.headers_start : at.headers_end]),
        bytes(data[at.payload_start : at.payload_end]),
        seq,
        time_ns,
        expires_ns,
    )
    return record, at.end


def _part(data: Buffer, offset: int, end: int, size_max: int) -> tuple[int, int]:
    """Start and end of the length-prefixed part whose length stands at `offset`."""
    size = shift = 0
    while True:
        if offset >= end or shift > 28:
            raise BadRecord("length is cut off or too long")
        byte = data[offset]
        offset += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if size > size_max:
        raise BadRecord(f"part of {size} bytes exceeds {size_max}")
    if size > end - offset:
        raise BadRecord(f"part says {size} bytes, {end - offset} remain")
    return offset, offset + size
