"""Removal groups: what a tombstone record says.

A group names sequences that are gone from one block, and how many messages and bytes each subject loses by that, so
that recovery can bring the whole stream's counters up to date without reading the block. A group is bound to the
generation of its block: once the block has been rewritten without those messages, the group no longer applies.

    kind        u8      REMOVED, LOST or ERASE
    block_id    varint  0: no block; the sequences are known to be gone for good (REMOVED) or for bad (LOST)
    generation  varint
    seqs        varint size, SequenceSet
    subjects    varint count, then for each: varint size, subject, varint messages, varint bytes
    place       ERASE only: varint offset, varint size of the record to overwrite
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jetlake.store.sequence_set import SequenceSet
from jetlake.store.trim import encode_losses
from jetlake.store.varint import decode_varint, encode_varint

REMOVED, LOST, ERASE = 0, 1, 2


@dataclass(slots=True)
class RemovalGroup:
    """Sequences that are gone from one block."""

    block_id: int
    generation: int
    seqs: SequenceSet
    subjects: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # messages and bytes
    kind: int = REMOVED
    place: tuple[int, int] = (0, 0)

    def encode(self) -> bytes:
        """The payload of a tombstone."""
        seqs = self.seqs.encode()
        parts = [bytes((self.kind,)), encode_varint(self.block_id), encode_varint(self.generation)]
        parts += [encode_varint(len(seqs)), seqs, encode_varint(len(self.subjects)), encode_losses(self.subjects)]
        if self.kind == ERASE:
            parts += [encode_varint(number) for number in self.place]
        return b"".join(parts)

    @property
    def count(self) -> int:
        """How many messages the subjects lose."""
        return sum(count for count, _ in self.subjects.values())

    @property
    def size(self) -> int:
        """How many bytes the subjects lose, as JetStream counts them."""
        return sum(size for _, size in self.subjects.values())


def decode_group(data: bytes) -> RemovalGroup:
    """A group from the payload of a tombstone; ValueError when it is not one."""
    if not data or data[0] > ERASE:
        raise ValueError("unknown kind of removal group")
    reader = _Reader(data, 1)
    block_id, generation = reader.varint(), reader.varint()
    seqs = SequenceSet.decode(reader.sized())
    subjects = {}
    for _ in range(reader.varint()):
        subject = reader.sized()
        subjects[subject] = (reader.varint(), reader.varint())
    place = (reader.varint(), reader.varint()) if data[0] == ERASE else (0, 0)
    if reader.offset != len(data):
        raise ValueError("bytes after a removal group")
    return RemovalGroup(block_id, generation, seqs, subjects, data[0], place)


class _Reader:
    """A position in some bytes."""

    def __init__(self, data: bytes, offset: int) -> None:
        self.data, self.offset = data, offset

    def varint(self) -> int:
        value, self.offset = decode_varint(self.data, self.offset)
        return value

    def sized(self) -> bytes:
        size = self.varint()
        if size > len(self.data) - self.offset:
            raise ValueError("removal group is cut off")
        part = self.data[self.offset : self.offset + size]
        self.offset += size
        return part
