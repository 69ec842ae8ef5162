"""Sidecars: what a scan of a sealed block would find, kept beside it so that nobody needs to scan.

A sidecar is a pure function of its block's file: `check` builds it again and compares. Recovery reads the head and the
summary; the index is read when a message of the block is wanted. A sidecar that is missing, damaged, or speaks of
another generation or size of the block is ignored and made anew.

    Head, 120 bytes
    offset  size  field
         0     8  magic          "JLINDEX1"
         8     4  block_id
        12     4  generation
        16     8  file_size      of the block
        24     8  body_size
        32     8  last_hash      of the block's last record
        40     8  first_seq
        48     8  last_seq
        56     8  floor_seq      the highest floor in the block
        64     8  size           of the messages, as JetStream counts it
        72     8  time_ns_min
        80     8  time_ns_max
        88     4  summary_size   plain
        92     4  summary_stored_size
        96     4  index_size     plain
       100     4  index_stored_size
       104     8  zero
       112     8  hash           seeded, as all here, with the block's hash_seed

    then the summary and the index, each followed by its hash, sealed as the block's frames are; from version 2 of the
    block on, the head without the two stored sizes is authenticated with each.

    Summary: gone and lost (each varint size, SequenceSet); removal groups (varint count, each varint size, group);
             expiring messages (varint count, each varint seq - first_seq, expires_ns 8 bytes); subjects (`summary.py`,
             from first_seq)
    Index:   count u32, has_seqs u32, base_seq u64, frame count u32, zero u32; offsets u32 each; ids u32 each; seqs u32
             each if has_seqs; frames: plain_offset, plain_size, file_offset, stored_size, u64 each
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.block_file import BlockFile, Frame
from jetlake.store.blocks.envelope import Envelope, EnvelopeError
from jetlake.store.blocks.removal import RemovalGroup, decode_group
from jetlake.store.format import hash64
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.index.summary import encode_subjects, localize, merge_subjects
from jetlake.store.records.varint import decode_varint, encode_varint

MAGIC = b"JLINDEX1"
_HEAD = struct.Struct("<8sIIQQQQQQQqqIIII8x")
HEAD_SIZE = _HEAD.size + 8
_INDEX_HEAD = struct.Struct("<IIQI4x")
_EXPIRES = struct.Struct("<q")

assert HEAD_SIZE == 120


@dataclass(slots=True)
class Sidecar:
    """The head and the summary of a sidecar."""

    block_id: int
    generation: int
    file_size: int
    body_size: int
    last_hash: int
    first_seq: int
    last_seq: int
    floor_seq: int
    size: int
    time_ns_min: int
    time_ns_max: int
    summary_size: int
    summary_stored_size: int
    index_size: int
    index_stored_size: int
    summary: bytes = b""
    subjects_start: int = 0  # in the summary
    gone: SequenceSet = field(default_factory=SequenceSet)
    lost: SequenceSet = field(default_factory=SequenceSet)
    groups: list[RemovalGroup] = field(default_factory=list)
    expiring: list[tuple[int, int]] = field(default_factory=list)

    @property
    def index_start(self) -> int:
        return HEAD_SIZE + self.summary_stored_size + 8

    @property
    def index_end(self) -> int:
        return self.index_start + self.index_stored_size + 8

    def fill(self, block: MsgBlock) -> None:
        """Tell a block what a scan of it would."""
        block.last_seq, block.last_hash = self.last_seq, self.last_hash
        block.gone, block.lost = self.gone, self.lost
        block.size, block.floor_seq = self.size, self.floor_seq
        block.time_ns_min, block.time_ns_max = self.time_ns_min, self.time_ns_max
        block.body_size = block.written_size = block.synced_size = self.body_size
        block.sealed, block.expiring = True, self.expiring

    def merge_into(self, table: SubjectTable) -> None:
        """Count the block's subjects into a table."""
        merge_subjects(self.summary, self.subjects_start, len(self.summary), self.first_seq, table)


_FIELDS = (
    "block_id",
    "generation",
    "file_size",
    "body_size",
    "last_hash",
    "first_seq",
    "last_seq",
    "floor_seq",
    "size",
    "time_ns_min",
    "time_ns_max",
)


class Seal(NamedTuple):
    """What goes into a block's sidecar, taken at the moment when it was sealed: later removals do not belong there."""

    block: MsgBlock
    last_hash: int
    last_seq: int
    size: int
    summary: bytes
    subjects: bytes  # with which the summary ends
    ids: array[int]


def seal(block: MsgBlock, index: BlockIndex) -> Seal:
    """Take down a block that is complete."""
    ids = memoryview(index.ids)[: index.count]
    local, local_ids = localize(index.table, ids, index.seqs, index.base_seq, *block.gone.arrays)
    subjects = encode_subjects(local, block.first_seq)
    summary = _encode_summary(block) + subjects
    return Seal(block, block.last_hash, block.last_seq, block.size, summary, subjects, local_ids)


def encode_sidecar(sealed: Seal, index: BlockIndex, file: BlockFile) -> bytes:
    """The sidecar of a sealed block whose every byte has been written."""
    block, seed, envelope = sealed.block, sealed.block.seed, file.envelope
    body = _encode_index(index, sealed.ids, file.frames)
    fields = (
        block.id,
        block.header.generation,
        file.file_size,
        block.body_size,
        sealed.last_hash,
        block.first_seq,
        sealed.last_seq,
        block.floor_seq,
        sealed.size,
        block.time_ns_min,
        block.time_ns_max,
    )
    bound = _HEAD.pack(MAGIC, *fields, len(sealed.summary), 0, len(body), 0) if envelope.is_bound else b""
    stored = [_seal(envelope, sealed.summary, b"summary" + bound), _seal(envelope, body, b"index" + bound)]
    head = _HEAD.pack(MAGIC, *fields, len(sealed.summary), len(stored[0]), len(body), len(stored[1]))
    return b"".join(part + hash64(part, seed).to_bytes(8, "little") for part in (head, *stored))


def decode_head(data: bytes, seed: int) -> Sidecar | None:
    """The head of a sidecar; None when it is damaged."""
    if len(data) < HEAD_SIZE or not _is_sound(data[:HEAD_SIZE], seed):
        return None
    magic, *fields = _HEAD.unpack_from(data)
    return Sidecar(*fields) if magic == MAGIC else None


def decode_summary(sidecar: Sidecar, stored: bytes, seed: int, envelope: Envelope) -> bool:
    """Fill in the summary from the bytes after the head; False when they are damaged."""
    stored = stored[: sidecar.summary_stored_size + 8]
    if len(stored) < sidecar.summary_stored_size + 8 or not _is_sound(stored, seed):
        return False
    try:
        data = _open(envelope, stored[:-8], b"summary" + _bound(sidecar, envelope), sidecar.summary_size)
        gone, offset = _sized(data, 0)
        lost, offset = _sized(data, offset)
        sidecar.gone, sidecar.lost = SequenceSet.decode(gone), SequenceSet.decode(lost)
        count, offset = decode_varint(data, offset)
        for _ in range(count):
            group, offset = _sized(data, offset)
            sidecar.groups.append(decode_group(group))
        count, offset = decode_varint(data, offset)
        for _ in range(count):
            distance, offset = decode_varint(data, offset)
            sidecar.expiring.append((sidecar.first_seq + distance, _EXPIRES.unpack_from(data, offset)[0]))
            offset += 8
    except (ValueError, struct.error):
        return False
    sidecar.summary, sidecar.subjects_start = data, offset
    return True


def decode_index(
    sidecar: Sidecar, stored: bytes, seed: int, envelope: Envelope
) -> tuple[BlockIndex, list[Frame]] | None:
    """The index from its bytes, with the block's own subject table; None when they are damaged."""
    if len(stored) != sidecar.index_stored_size + 8 or not _is_sound(stored, seed):
        return None
    try:
        data = _open(envelope, stored[:-8], b"index" + _bound(sidecar, envelope), sidecar.index_size)
        count, has_seqs, base_seq, frame_count = _INDEX_HEAD.unpack_from(data)
        index = BlockIndex(SubjectTable(), base_seq)
        sidecar.merge_into(index.table)
        index.count, offset = count, _INDEX_HEAD.size
        index.offsets, offset = _words(data, offset, "I", count)
        index.ids, offset = _words(data, offset, "I", count)
        if has_seqs:
            index.seqs, offset = _words(data, offset, "I", count)
        numbers, offset = _words(data, offset, "Q", 4 * frame_count)
    except (ValueError, struct.error):
        return None
    return index, [Frame(*numbers[i : i + 4]) for i in range(0, len(numbers), 4)]


def _encode_summary(block: MsgBlock) -> bytes:
    """All of it but the subjects."""
    parts = []
    for numbers in (block.gone.encode(), block.lost.encode()):
        parts += [encode_varint(len(numbers)), numbers]
    parts.append(encode_varint(len(block.groups)))
    for group in block.groups:
        data = group.encode()
        parts += [encode_varint(len(data)), data]
    expiring = [(seq, expires_ns) for seq, expires_ns in block.expiring if seq not in block.gone]
    parts.append(encode_varint(len(expiring)))
    for seq, expires_ns in expiring:
        parts += [encode_varint(seq - block.first_seq), _EXPIRES.pack(expires_ns)]
    return b"".join(parts)


def _encode_index(index: BlockIndex, ids: array[int], frames: list[Frame]) -> bytes:
    head = _INDEX_HEAD.pack(index.count, index.seqs is not None, index.base_seq, len(frames))
    words = [index.offsets[: index.count], ids]
    if index.seqs is not None:
        words.append(index.seqs)
    words.append(array("Q", [number for frame in frames for number in frame]))
    return head + b"".join(_little_endian(array_) for array_ in words)


def _little_endian(words: array[int]) -> bytes:
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words.tobytes()


def _words(data: bytes, offset: int, code: str, count: int) -> tuple[array[int], int]:
    words = array(code)
    end = offset + count * words.itemsize
    if end > len(data):
        raise ValueError("index is cut off")
    words.frombytes(data[offset:end])
    if sys.byteorder == "big":
        words.byteswap()
    return words, end


def _sized(data: bytes, offset: int) -> tuple[bytes, int]:
    size, offset = decode_varint(data, offset)
    if size > len(data) - offset:
        raise ValueError("summary is cut off")
    return data[offset : offset + size], offset + size


def _seal(envelope: Envelope, plain: bytes, aad: bytes) -> bytes:
    return plain if envelope.is_plain else envelope.seal(plain, aad)


def _open(envelope: Envelope, stored: bytes, aad: bytes, plain_size: int) -> bytes:
    if not envelope.is_plain:
        return envelope.open(stored, aad, plain_size)
    if len(stored) != plain_size:
        raise EnvelopeError(f"{plain_size} bytes expected, {len(stored)} found")
    return stored


def _bound(sidecar: Sidecar, envelope: Envelope) -> bytes:
    """The head as far as it is authenticated with what follows it."""
    if not envelope.is_bound:
        return b""
    fields = [getattr(sidecar, name) for name in _FIELDS]
    return _HEAD.pack(MAGIC, *fields, sidecar.summary_size, 0, sidecar.index_size, 0)


def _is_sound(data: bytes, seed: int) -> bool:
    return hash64(memoryview(data)[:-8], seed) == int.from_bytes(data[-8:], "little")
