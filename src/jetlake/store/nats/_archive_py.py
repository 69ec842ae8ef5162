"""The entries of a snapshot archive, in Python: the reference of `_archive_c.pyx`. `archive.py` says what it is for."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from jetlake.ops import OP_WORDS
from jetlake.store.format import Buffer
from jetlake.store.nats._walk_py import _flags, _is_in
from jetlake.store.records._record_py import BadRecord
from jetlake.store.records._record_py import decode as decode_record
from jetlake.store.records.varint import VARINT_SIZE_MAX, encode_varint

NUMBERS_SIZE_MAX = 5 * VARINT_SIZE_MAX
NAME_SIZE_MAX, CONTENT_SIZE_MAX = 1 << 20, 1 << 28


class Packed(NamedTuple):
    """How far a call of `pack` came."""

    end: int  # where to go on
    used: int
    msgs: int
    is_bad: bool  # whether it stopped at bytes that are not a sound record


class Unpacked(NamedTuple):
    """How far a call of `unpack` came."""

    end: int
    entries: int  # how many operations were filled
    problem: str  # "": more bytes or more room are needed


class Head(NamedTuple):
    """The numbers that an entry begins with."""

    name_size: int
    time_ns: int
    seq: int
    headers_size: int
    payload_size: int
    start: int  # of the name


def pack(
    data: Buffer,
    start: int,
    end: int,
    seed: int,
    first_seq: int,
    last_seq: int,
    gone_starts: array[int],
    gone_ends: array[int],
    out: bytearray,
    used: int,
) -> Packed:
    """Append the live messages of data[start:end] to `out` as entries, for as long as they fit; see `archive.py`."""
    if not 0 <= start <= end <= len(data) or not 0 <= used <= len(out) or len(gone_starts) != len(gone_ends):
        raise IndexError(f"range {start}..{end} of {len(data)} bytes, {used} of {len(out)} used")
    msgs = 0
    while start < end:
        try:
            record, after = decode_record(data, start, end, seed)
        except BadRecord:
            return Packed(start, used, msgs, True)
        is_wanted = record.is_message and first_seq <= record.seq <= last_seq
        if is_wanted and not _is_in(record.seq, gone_starts, gone_ends):
            parts = (record.headers, record.payload)
            numbers = encode_numbers(len(record.subject), record.time_ns, record.seq, *map(len, parts))
            entry = b"".join((numbers, record.subject, *parts))
            if len(entry) > len(out) - used:
                break
            out[used : used + len(entry)] = entry
            used += len(entry)
            msgs += 1
        start = after
    return Packed(start, used, msgs, False)


def encode_numbers(name_size: int, time_ns: int, seq: int, headers_size: int, payload_size: int) -> bytes:
    """The numbers that an entry begins with."""
    time = time_ns << 1 if time_ns >= 0 else -time_ns * 2 - 1
    return b"".join(map(encode_varint, (name_size, time, seq, headers_size, payload_size)))


def decode_numbers(data: Buffer, start: int, end: int) -> Head | str | None:
    """The head of the entry at an offset; None when it is cut off, a text when it cannot be one."""
    found = list[int]()
    for _ in range(5):
        value = shift = 0
        while True:
            if start >= end:
                return None
            if shift > 63:
                return "a number is too long"
            byte = data[start]
            start += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value >= 2**64:
            return "a number is too long"
        found.append(value)
    name_size, time, seq, headers_size, payload_size = found
    if name_size > NAME_SIZE_MAX or headers_size > CONTENT_SIZE_MAX or payload_size > CONTENT_SIZE_MAX:
        return "an entry is too large"
    return Head(name_size, time >> 1 ^ -(time & 1), seq, headers_size, payload_size, start)


def unpack(data: Buffer, start: int, end: int, ops: array[int], seqs: array[int], times: array[int]) -> Unpacked:
    """Fill ops, seqs and times with the messages of data[start:end]; see `archive.py`."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"range {start}..{end} of {len(data)} bytes")
    entries, room = 0, min(len(ops) // OP_WORDS, len(seqs), len(times))
    while entries < room:
        head = decode_numbers(data, start, end)
        if isinstance(head, str):
            return Unpacked(start, entries, head)
        if head is None or not head.seq:
            break
        headers_start = head.start + head.name_size
        payload_start = headers_start + head.headers_size
        if payload_start + head.payload_size > end:
            break
        if not head.name_size:
            return Unpacked(start, entries, "a message has no subject")
        flags = _flags(bytes(data[headers_start:payload_start]))
        parts = (head.start, head.name_size, 0, 0, headers_start, head.headers_size, payload_start, head.payload_size)
        ops[entries * OP_WORDS : (entries + 1) * OP_WORDS] = array("I", [*parts, 0, flags, 0, 0])
        seqs[entries], times[entries] = head.seq, head.time_ns
        start, entries = payload_start + head.payload_size, entries + 1
    return Unpacked(start, entries, "")
