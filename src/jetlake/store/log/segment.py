"""The format of a log's files: a header, and records behind each other.

A segment is a file `<number, 8 digits>.log`. Integers are little-endian.

    offset  size  field
         0     8  magic      "JLLOGSEG"
         8     2  version    1
        10     2  purpose    what the log is for; a log of one purpose is never read for another
        12     4  zero
        16     8  number     as in the file's name
        24     8  seed       random; of all hashes and marks in this file
        32     8  first_seq  the number of its first record
        40    16  note       for whoever keeps the log, such as the boot that wrote it
        56     8  hash       XXH64, seed 0, over the 56 bytes before it
       512    64  the same once more
      4096        the first record

A record begins at a multiple of 8:

         0     4  mark       the lower half of the seed
         4     4  size       of the body
         8     8  seq        records count from 1, through all segments of a log
        16     8  hash       XXH64, the seed's, over the offset in the file, the 16 bytes before it, and the body
        24     n  body
      24+n     8  end        seq XOR seed
               m  zeros, up to a multiple of 8

Zeros are reserved behind the last record, so that a sync does not have to change the size of the file.

A worked example, with seed 0x1122334455667788: the record 7 with the body "hi" at offset 4096 is

    88 77 66 55  02 00 00 00  07 00 00 00 00 00 00 00  a0 cf f7 42 9b f7 e7 68
    68 69  8f 77 66 55 44 33 22 11  00 00 00 00 00 00

The end of a log. Each append is synced before the next one, so an interrupted write can only be the last, and nothing
sound follows it. A record that is not sound and has a sound one behind it was damaged later. If only its own `end` is
there, it was either damaged or written in part, by a disk that writes sectors in any order: which of the two, nobody
can tell, so the reader is told.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from jetlake.store.format import Buffer, hash64

MAGIC = b"JLLOGSEG"
VERSION = 1
HEADER_SIZE = 4096
COPY_OFFSETS = (0, 512)
NOTE_SIZE = 16
_HEADER = struct.Struct(f"<8sHH4xQQQ{NOTE_SIZE}s")
HEAD = struct.Struct("<IIQ")
_U64 = struct.Struct("<Q")
HEAD_SIZE = HEAD.size + _U64.size
END_SIZE = _U64.size
RECORD_SIZE_MIN = HEAD_SIZE + END_SIZE
BODY_SIZE_MAX = (1 << 31) - 1
_U32_MASK = (1 << 32) - 1

assert _HEADER.size == 56 and HEAD_SIZE == 24


class SegmentHeader(NamedTuple):
    """What a segment says of itself."""

    purpose: int
    number: int
    seed: int
    first_seq: int
    note: bytes = bytes(NOTE_SIZE)

    def encode(self) -> bytes:
        """All the bytes in front of the first record."""
        head = _HEADER.pack(MAGIC, VERSION, *self)
        copy = head + hash64(head, 0).to_bytes(8, "little")
        data = bytearray(HEADER_SIZE)
        for offset in COPY_OFFSETS:
            data[offset : offset + len(copy)] = copy
        return bytes(data)


def decode_header(data: bytes) -> SegmentHeader | None:
    """The header from whichever copy is sound; None when neither is. ValueError for a version of the future."""
    for offset in COPY_OFFSETS:
        copy = data[offset : offset + _HEADER.size + 8]
        if len(copy) < _HEADER.size + 8 or hash64(copy[:-8], 0) != int.from_bytes(copy[-8:], "little"):
            continue
        magic, version, *fields = _HEADER.unpack_from(copy)
        if magic != MAGIC:
            continue
        if version != VERSION:
            raise ValueError(f"log version {version} is newer than {VERSION}")
        return SegmentHeader(*fields)
    return None


def record_size(body_size: int) -> int:
    """How much room a record takes."""
    return (RECORD_SIZE_MIN + body_size + 7) & ~7


def encode_record(body: Buffer, seq: int, offset: int, seed: int) -> bytes:
    """The bytes of a record that is to lie at an offset."""
    size = len(body)
    assert size <= BODY_SIZE_MAX and not offset % 8
    head = HEAD.pack(seed & _U32_MASK, size, seq)
    hashed = hash64(b"".join((_U64.pack(offset), head, body)), seed)
    end = end_mark(seq, seed) + bytes(-(RECORD_SIZE_MIN + size) % 8)
    return b"".join((head, _U64.pack(hashed), body, end))


def end_mark(seq: int, seed: int) -> bytes:
    """What stands at the end of a record."""
    return _U64.pack(seq ^ seed)


class Record(NamedTuple):
    """A sound record."""

    seq: int
    offset: int
    body: bytes


class Scanned(NamedTuple):
    """What the bytes of a segment hold."""

    records: list[Record]
    end: int  # where the last sound record ends
    damage: list[str]  # what was written in full once, and cannot be read now
    tail: str  # what is wrong with the last record, if it is not sure that it was ever written in full; else empty


def scan(data: bytes, header: SegmentHeader) -> Scanned:
    """Every sound record of a segment, from all its bytes."""
    records: list[Record] = []
    damage: list[str] = []
    offset, seq = HEADER_SIZE, header.first_seq
    while True:
        found = _record_at(data, offset, header.seed)
        if found is None or found.seq != seq:
            found = _next_record(data, offset, header.seed, seq)
            if found is None:
                return Scanned(records, offset, damage, _tail(data, offset, header.seed, seq))
            damage.append(f"records {seq} to {found.seq - 1} at offset {offset} are damaged")
        records.append(found)
        offset, seq = found.offset + record_size(len(found.body)), found.seq + 1


def _record_at(data: bytes, offset: int, seed: int) -> Record | None:
    if len(data) - offset < RECORD_SIZE_MIN:
        return None
    mark, size, seq = HEAD.unpack_from(data, offset)
    if mark != seed & _U32_MASK or size > len(data) - offset - RECORD_SIZE_MIN:
        return None
    start = offset + HEAD_SIZE
    body = data[start : start + size]
    hashed = hash64(b"".join((_U64.pack(offset), data[offset : offset + HEAD.size], body)), seed)
    return Record(seq, offset, body) if hashed == _U64.unpack_from(data, offset + HEAD.size)[0] else None


def _next_record(data: bytes, offset: int, seed: int, seq: int) -> Record | None:
    """The first sound record behind an offset that comes after one."""
    mark = (seed & _U32_MASK).to_bytes(4, "little")
    place = data.find(mark, offset)
    while place >= 0:
        found = _record_at(data, place, seed) if not place % 8 else None
        if found is not None and found.seq > seq:
            return found
        place = data.find(mark, place + 1)
    return None


def _tail(data: bytes, offset: int, seed: int, seq: int) -> str:
    place = data.find(end_mark(seq, seed), offset)
    return f"record {seq} at offset {offset} is damaged, or was not written in full" if place >= 0 else ""


def segment_name(number: int) -> str:
    """The file name of a segment."""
    return f"{number:08d}.log"


def parse_segment_name(name: str) -> int | None:
    """The number of a segment from its file name; None for any other name."""
    stem, dot, suffix = name.partition(".")
    if dot and suffix == "log" and stem.isascii() and stem.isdigit() and segment_name(int(stem)) == name:
        return int(stem)
    return None
