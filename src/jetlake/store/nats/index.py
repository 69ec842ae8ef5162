"""index.db: which messages of which block are live, as nats-server wrote it down last.

File = body · hash of body (key: the stream's name). Under a key the body is sealed.

body    u8 11 · u8 version 1..4
        varints: messages, bytes, first_seq; zig-zag first_time_ns; varint last_seq; zig-zag last_time_ns
        varint number of subjects; each: size and text, total, first block, last block (not in versions 1 to 3 when
        the total is 1)
        varint number of blocks; each: number, bytes, first_seq, zig-zag first time after the stream's, last_seq,
        zig-zag last time after the stream's, size of the delete set, ttls (from 2 on), schedules (from 3 on), and
        the delete set itself when it is not empty
        varint number of the last block · 8 bytes, the hash of its last record

Delete set = u8 22 · u8 version · u32 nodes · u32 members · nodes
Node = u64 base · 32 words of 64 bits (64 in version 1) · u16: bit b of word w says that base + 64 w + b is gone
"""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

from jetlake.store.format import Buffer
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.nats.format import HASH_SIZE, key_of
from jetlake.store.nats.walk import hash64
from jetlake.store.records.varint import decode_varint

_MAGIC, _VERSIONS = 11, range(1, 5)
_SIZE_MIN = 32
_SET_HEAD = struct.Struct("<BBII")
_SET_MAGIC = 22
_NODE_WORDS = {1: 64, 2: 32}
MAGIC_BYTES = tuple(bytes([_MAGIC, version]) for version in _VERSIONS)


class BlockEntry(NamedTuple):
    """What is live in a block: first_seq..last_seq without `gone`. A block without messages has first = last + 1."""

    number: int
    size: int  # of the live records
    first_seq: int
    first_time_ns: int
    last_seq: int
    last_time_ns: int
    gone: SequenceSet

    @property
    def msgs(self) -> int:
        return self.last_seq + 1 - self.first_seq - self.gone.count if self.last_seq >= self.first_seq else 0


class Index(NamedTuple):
    """The whole stream."""

    msgs: int
    size: int
    first_seq: int
    last_seq: int
    last_time_ns: int
    subject_count: int
    blocks: list[BlockEntry]
    last_block: int
    last_hash: bytes


def checked_body(data: bytes, stream: str) -> bytes:
    """What stands before the hash; ValueError when that is wrong."""
    if len(data) < _SIZE_MIN:
        raise ValueError(f"index.db has {len(data)} bytes")
    body, found = data[:-HASH_SIZE], int.from_bytes(data[-HASH_SIZE:], "little")
    if hash64(key_of(stream), body) != found:
        raise ValueError("the hash of index.db is wrong")
    return body


def parse_index(body: Buffer) -> Index:
    """What an index says; raises ValueError."""
    reader = _Reader(body)
    magic, version = reader.take(2)
    if magic != _MAGIC or version not in _VERSIONS:
        raise ValueError(f"index.db begins with {magic} and {version}")
    msgs, size, first_seq, first_time_ns = reader.uint(), reader.uint(), reader.uint(), reader.int()
    last_seq, last_time_ns = reader.uint(), reader.int()
    subject_count = reader.uint()
    for _ in range(subject_count):
        _skip_subject(reader, version)
    blocks = [_block(reader, version, first_time_ns) for _ in range(reader.uint())]
    last_block = reader.uint()
    last_hash = reader.take(HASH_SIZE)
    return Index(msgs, size, first_seq, last_seq, last_time_ns, subject_count, blocks, last_block, last_hash)


def _skip_subject(reader: _Reader, version: int) -> None:
    reader.take(reader.uint())
    total = reader.uint()
    reader.uint()
    if version >= 4 or total > 1:
        reader.uint()


def _block(reader: _Reader, version: int, base_ns: int) -> BlockEntry:
    number, size, first_seq, first_ns, last_seq, last_ns = (
        reader.uint(),
        reader.uint(),
        reader.uint(),
        reader.int(),
        reader.uint(),
        reader.int(),
    )
    gone_count = reader.uint()
    for _ in range(min(version - 1, 2)):
        reader.uint()
    gone = _delete_set(reader) if gone_count else SequenceSet()
    return BlockEntry(number, size, first_seq, base_ns + first_ns, last_seq, base_ns + last_ns, gone)


def _delete_set(reader: _Reader) -> SequenceSet:
    magic, version, nodes, members = _SET_HEAD.unpack(reader.take(_SET_HEAD.size))
    if magic != _SET_MAGIC or version not in _NODE_WORDS:
        raise ValueError(f"a delete set begins with {magic} and {version}")
    size = 8 * _NODE_WORDS[version]
    found: dict[int, bytes] = {}
    for _ in range(nodes):
        base = int.from_bytes(reader.take(8), "little")
        found[base] = reader.take(size)
        reader.take(2)
    seqs = array("Q")
    for base in sorted(found):
        bits = int.from_bytes(found[base], "little")
        while bits:
            low = bits & -bits
            seqs.append(base + low.bit_length() - 1)
            bits ^= low
    if len(seqs) != members:
        raise ValueError(f"a delete set of {len(seqs)} sequences says that it has {members}")
    gone = SequenceSet()
    gone.add_all(seqs)
    return gone


class _Reader:
    """Takes one field after the other."""

    def __init__(self, data: Buffer) -> None:
        self._data, self._at = bytes(data), 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ValueError("index.db is cut off")
        self._at += size
        return self._data[self._at - size : self._at]

    def uint(self) -> int:
        value, self._at = decode_varint(self._data, self._at, len(self._data))
        return value

    def int(self) -> int:
        value = self.uint()
        return value >> 1 ^ -(value & 1)
