"""Removal groups: what a tombstone record says.

A group names sequences that are gone from one block, and how many messages and bytes each subject loses by that, so
that recovery can bring the whole stream's counters up to date without reading the block. A group is bound to the
generation of its block: once the block has been rewritten without those messages, the group no longer applies.

    kind        u8      REMOVED, LOST (by damage) or ERASE
    block_id    varint  0: the sequences left with their block, or this block was written anew without them
    generation  varint
    seqs        varint size, SequenceSet
    subjects    varint count, then for each: varint size, subject, varint messages, varint bytes
    place       ERASE only: varint offset, varint size of the record to overwrite
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.records.trim import encode_losses, skip_losses
from jetlake.store.records.varint import decode_varint, encode_varint

REMOVED, LOST, ERASE = 0, 1, 2


class RemovalGroup:
    """Sequences that are gone from one block.

    One that was decoded keeps its bytes: there may be many subjects, and hardly anybody asks for them.
    """

    __slots__ = ("_encoded", "_subjects", "_subjects_start", "block_id", "generation", "kind", "place", "seqs")

    def __init__(
        self,
        block_id: int,
        generation: int,
        seqs: SequenceSet,
        subjects: dict[bytes, tuple[int, int]] | None = None,
        kind: int = REMOVED,
        place: tuple[int, int] = (0, 0),
    ) -> None:
        self.block_id, self.generation, self.seqs, self.kind, self.place = block_id, generation, seqs, kind, place
        self._subjects: dict[bytes, tuple[int, int]] = {} if subjects is None else subjects
        self._encoded, self._subjects_start = b"", 0

    @property
    def subjects(self) -> dict[bytes, tuple[int, int]]:
        """How many messages and bytes each subject loses."""
        return _decode_losses(_Reader(self._encoded, self._subjects_start)) if self._encoded else self._subjects

    def encode(self) -> bytes:
        """The payload of a tombstone."""
        if self._encoded:
            return self._encoded
        seqs, subjects = self.seqs.encode(), self._subjects
        parts = [bytes((self.kind,)), encode_varint(self.block_id), encode_varint(self.generation)]
        parts += [encode_varint(len(seqs)), seqs, encode_varint(len(subjects)), encode_losses(subjects)]
        if self.kind == ERASE:
            parts += [encode_varint(number) for number in self.place]
        return b"".join(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemovalGroup) and self.encode() == other.encode()

    __hash__ = None  # type: ignore[assignment]  # a group that changes cannot be a key

    def __repr__(self) -> str:
        return f"RemovalGroup({self.block_id}, {self.generation}, {self.seqs}, {self.subjects}, {self.kind})"

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
    group = RemovalGroup(reader.varint(), reader.varint(), SequenceSet.decode(reader.sized()), kind=data[0])
    group._encoded, group._subjects_start = data, reader.offset
    reader.offset = skip_losses(data, reader.offset)
    if group.kind == ERASE:
        group.place = (reader.varint(), reader.varint())
    if reader.offset != len(data):
        raise ValueError("bytes after a removal group")
    return group


def still_said(
    groups: Iterable[RemovalGroup], generations: Mapping[int, int], first_seq: int
) -> Iterator[RemovalGroup]:
    """Of what a block says of others, what matters as the generations of blocks and the stream's first sequence are."""
    for group in groups:
        if group.block_id:
            if generations.get(group.block_id) == group.generation:
                yield group
        else:
            seqs = group.seqs.copy()
            if first_seq > 0:
                seqs.remove_range(0, first_seq - 1)
            if seqs:
                yield RemovalGroup(0, 0, seqs, kind=group.kind)


def _decode_losses(reader: _Reader) -> dict[bytes, tuple[int, int]]:
    subjects = {}
    for _ in range(reader.varint()):
        subject = reader.sized()
        subjects[subject] = (reader.varint(), reader.varint())
    return subjects


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
