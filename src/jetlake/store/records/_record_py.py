"""One record: to bytes and back, in Python: the reference of `_record_c.pyx`. `format.py` has the layout."""

from __future__ import annotations

from typing import NamedTuple

from jetlake.errors import MessageTooLarge
from jetlake.store.format import (
    EXPIRES,
    HEADERS_SIZE_MAX,
    IN_BATCH,
    NOT_MESSAGE,
    PAYLOAD_SIZE_MAX,
    SUBJECT_SIZE_MAX,
    TRAILER,
    Buffer,
    hash64,
    size_check,
)
from jetlake.store.records.varint import encode_varint


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
    headers_start: int
    payload_start: int
    payload_end: int
    end: int


def encode(record: Record, seed: int) -> bytes:
    """The bytes of a record; MessageTooLarge when a part exceeds what the format holds."""
    check_sizes(len(record.subject), len(record.headers), len(record.payload))
    sizes = (len(record.subject), len(record.headers), len(record.payload))
    parts = [
        bytes((record.flags,)),
        *map(encode_varint, sizes),
        size_check(record.flags, *sizes, seed).to_bytes(2, "little"),
        record.subject,
        record.headers,
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


def measure(data: Buffer, start: int, end: int, seed: int) -> Layout:
    """Where the parts of the record at `start` lie, without looking at its checksum."""
    if end - start < 1:
        raise BadRecord("no byte left")
    flags = data[start]
    if flags & IN_BATCH and flags & NOT_MESSAGE:
        raise BadRecord(f"flags 0x{flags:02x} contradict each other")
    sizes, offset = list[int](), start + 1
    for size_max in (SUBJECT_SIZE_MAX, HEADERS_SIZE_MAX, PAYLOAD_SIZE_MAX):
        size, offset = _size(data, offset, end, size_max)
        sizes.append(size)
    check = size_check(flags, sizes[0], sizes[1], sizes[2], seed)
    if end - offset < 2 or int.from_bytes(data[offset : offset + 2], "little") != check:
        raise BadRecord("sizes do not match their check")
    subject_start = offset + 2
    headers_start = subject_start + sizes[0]
    payload_start = headers_start + sizes[1]
    payload_end = payload_start + sizes[2]
    record_end = payload_end + TRAILER.size + (8 if flags & EXPIRES else 0)
    if record_end > end:
        raise BadRecord(f"record says {record_end - start} bytes, {end - start} remain")
    return Layout(subject_start, headers_start, payload_start, payload_end, record_end)


def decode(data: Buffer, start: int, end: int, seed: int) -> tuple[Record, int]:
    """The record at `start` and the offset after it; BadRecord when its checksum or its shape is wrong."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"record range {start}..{end} of {len(data)} bytes")
    at = measure(data, start, end, seed)
    seq, time_ns, stored_hash = TRAILER.unpack_from(data, at.end - TRAILER.size)
    if hash64(memoryview(data)[start : at.end - 8], seed) != stored_hash:
        raise BadRecord("checksum does not match")
    flags = data[start]
    expires_ns = 0
    if flags & EXPIRES:
        expires_ns = int.from_bytes(data[at.payload_end : at.payload_end + 8], "little", signed=True)
    record = Record(
        flags,
        bytes(data[at.subject_start : at.headers_start]),
        bytes(data[at.headers_start : at.payload_start]),
        bytes(data[at.payload_start : at.payload_end]),
        seq,
        time_ns,
        expires_ns,
    )
    return record, at.end


def _size(data: Buffer, offset: int, end: int, size_max: int) -> tuple[int, int]:
    """The size that stands at `offset`, and the offset after it."""
    size = shift = 0
    while True:
        if offset >= end or shift > 28:
            raise BadRecord("size is cut off or too long")
        byte = data[offset]
        offset += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if size > size_max:
        raise BadRecord(f"part of {size} bytes exceeds {size_max}")
    return size, offset
