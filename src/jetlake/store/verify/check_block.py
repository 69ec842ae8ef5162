"""Look at one block as it lies on disk, without changing it: what `check.py` and `jetlake dump` build on.

A block is compared with what it says itself: both copies of its header, the checksum of every frame and record, and
its sidecar, which must say what a fresh scan finds. What other blocks say of it is up to `check.py`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.block_file import BlockFile, Frame, envelope_of
from jetlake.store.blocks.block_scan import Body, without_reserve
from jetlake.store.blocks.envelope import Envelope, KeySource
from jetlake.store.blocks.sidecar import HEAD_SIZE, Sidecar, decode_head, decode_index, decode_summary
from jetlake.store.disk.files import File, Files
from jetlake.store.filestore import FileStore
from jetlake.store.format import ERASED, HEADER_COPY_SIZE, HEADER_SIZE, BlockHeader, decode_header
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.summary import encode_subjects, localize
from jetlake.store.records.record import BadRecord, Record, decode
from jetlake.store.records.scan import Scan

Severity = Literal["damage", "note"]

SIZES = (FileStore.size_fixed, FileStore.size_headers)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be; `check.py` lists the kinds."""

    file: str
    offset: int | None  # in the file; None where the whole file is meant
    kind: str
    text: str
    severity: Severity = "damage"

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at offset {self.offset}:"
        return f"{self.file}:{place} {self.text}"


class ReadOnlyBlockFile(BlockFile):
    """A block's file that is never opened for writing."""

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self.files.open(self.path)
        return self._file


def check_header(files: Files, path: str) -> tuple[BlockHeader | None, list[Problem]]:
    """The header of a block, if a copy is sound, and what is wrong with it."""
    with files.open(path) as file:
        size, data = file.size(), file.pread(0, HEADER_SIZE)
    try:
        copies = [decode_header(data[start : start + HEADER_COPY_SIZE]) for start in (0, HEADER_COPY_SIZE)]
    except ValueError as error:
        return None, [Problem(path, 0, "header", str(error))]
    header = copies[0] or copies[1]
    if header is None:
        severity: Severity = "damage" if size > HEADER_SIZE else "note"
        return None, [Problem(path, 0, "header", "both copies of the header are damaged", severity)]
    text = "this copy of the header is damaged, the other one serves"
    wrong = [place for place, copy in enumerate(copies) if copy != header]
    return header, [Problem(path, place * HEADER_COPY_SIZE, "header", text) for place in wrong]


def open_block(
    files: Files, path: str, header: BlockHeader, keys: Sequence[KeySource]
) -> tuple[MsgBlock, ReadOnlyBlockFile]:
    """A block of which nothing is known yet, and its file; WrongKey when its key is another one."""
    return MsgBlock(header, path), ReadOnlyBlockFile(files, path, header, envelope_of(header, keys, path))


def unsound_bytes(
    block: MsgBlock, file: BlockFile, body: Body, found: Scan, *, is_last: bool, is_torn: bool
) -> Iterator[Problem]:
    """The bytes of a block that are neither record nor frame.

    At the end of the last one there may be reserved room. `is_torn`: what is unsound there is an unfinished write.
    """
    is_plain = file.envelope.is_plain
    regions = list(found.damage)
    if not is_plain and found.end < len(body.data):
        regions.append((found.end, len(body.data) - found.end))
    for offset, size in regions:
        if not is_plain and not any(body.data[offset : offset + size]):
            continue  # a frame is missing here, which is said below
        kind, text = "checksum", f"{size} bytes are not a sound record"
        if (record := record_at(block, body, offset)) is not None:
            kind, text = "order", f"sequence {record.seq} does not ascend"
        yield Problem(block.path, file_offset(body, offset), kind, text)
    yield from _unsound_frames(block.path, body)
    tail_start = HEADER_SIZE + found.end if is_plain else body.file_end
    tail_size = body.file_size - tail_start
    if is_last and is_plain:
        tail_size = len(without_reserve(bytes(body.data[found.end :]), block.seed))
    if tail_size > 0 and is_torn:
        yield Problem(block.path, tail_start, "torn", f"{tail_size} bytes of an unfinished write", "note")
    elif tail_size > 0:
        kind = "checksum" if is_plain else "frame"
        yield Problem(block.path, tail_start, kind, f"the last {tail_size} bytes are not sound")


def _unsound_frames(path: str, body: Body) -> Iterator[Problem]:
    """What lies between frames, and frames that do not go on where the one before ended."""
    expected, plain_expected = HEADER_SIZE, 0
    for frame in body.frames:
        if frame.file_offset > expected:
            yield Problem(path, expected, "frame", f"{frame.file_offset - expected} bytes are not a sound frame")
        elif frame.plain_offset != plain_expected:
            text = f"starts at plain offset {frame.plain_offset}, not {plain_expected}"
            yield Problem(path, frame.file_offset, "frame", text)
        expected, plain_expected = frame.file_end, frame.plain_offset + frame.plain_size


def file_offset(body: Body, offset: int) -> int:
    """Where a plain offset lies in the file: the start of its frame if there are any."""
    if not body.frames:
        return HEADER_SIZE + offset
    place = bisect_right(body.frames, offset, key=lambda frame: frame.plain_offset) - 1
    return body.frames[max(place, 0)].file_offset


def record_at(block: MsgBlock, body: Body, offset: int) -> Record | None:
    """The record at an offset, if there is a sound one."""
    try:
        return decode(body.data, offset, len(body.data), block.seed)[0]
    except (BadRecord, IndexError):
        return None


class BlockRecords:
    """The messages of a scanned block by sequence, gone ones too."""

    def __init__(self, block: MsgBlock, body: Body) -> None:
        assert block.index is not None
        self.block, self.body, self.index = block, body, block.index

    def count(self, seqs: SequenceSet) -> int:
        """How many messages some sequences are."""
        index = self.index
        return sum(index.position_from(last + 1) - index.position_from(first) for first, last in seqs.ranges())

    def subjects(self, seqs: SequenceSet) -> dict[bytes, tuple[int, int]]:
        """Messages and bytes, as JetStream counts them, of each subject among some sequences."""
        totals: dict[bytes, tuple[int, int]] = {}
        for first, last in seqs.ranges():
            for position in range(self.index.position_from(first), self.index.position_from(last + 1)):
                record = record_at(self.block, self.body, self.index.offsets[position])
                assert record is not None, "the scan took it for sound"
                count, size = totals.get(record.subject, (0, 0))
                totals[record.subject] = (count + 1, size + _size(record))
        return totals

    def size(self, seqs: SequenceSet) -> int:
        """How many bytes some sequences have, as JetStream counts them."""
        return sum(size for _, size in self.subjects(seqs).values())

    def is_erased(self, place: tuple[int, int]) -> bool:
        """Has the record at a place been overwritten?"""
        record = record_at(self.block, self.body, place[0])
        return record is not None and bool(record.flags & ERASED)


def _size(record: Record) -> int:
    size = SIZES[0] + len(record.subject) + len(record.payload)
    return size + SIZES[1] + len(record.headers) if record.headers else size


def decode_sidecar(data: bytes, seed: int, envelope: Envelope) -> tuple[Sidecar, BlockIndex, list[Frame]] | str:
    """A sidecar with its index and frames, or which part of it is damaged."""
    sidecar = decode_head(data, seed)
    if sidecar is None:
        return "its head is damaged"
    if not decode_summary(sidecar, data[HEAD_SIZE:], seed, envelope):
        return "its summary is damaged"
    index = decode_index(sidecar, data[sidecar.index_start :], seed, envelope)
    return (sidecar, *index) if index is not None else "its index is damaged"


def sidecar_differences(
    block: MsgBlock, file: BlockFile, sidecar: Sidecar, index: BlockIndex, frames: list[Frame]
) -> Iterator[str]:
    """What a sidecar says that a scan of its block does not. The block's size is that of its live messages."""
    scanned = block.index
    assert scanned is not None
    known = memoryview(scanned.ids)[: scanned.count]
    table, ids = localize(scanned.table, known, scanned.seqs, scanned.base_seq, *block.gone.arrays)
    pairs: dict[str, tuple[object, object]] = {
        "first sequence": (sidecar.first_seq, block.first_seq),
        "last sequence": (sidecar.last_seq, block.last_seq),
        "floor": (sidecar.floor_seq, block.floor_seq),
        "gone sequences": (sidecar.gone, block.gone),
        "lost sequences": (sidecar.lost, block.lost),
        "size": (sidecar.size, block.size),
        "body size": (sidecar.body_size, block.body_size),
        "last hash": (sidecar.last_hash, block.last_hash),
        "removals": ([group.encode() for group in sidecar.groups], [group.encode() for group in block.groups]),
        "expiring messages": (sidecar.expiring, [entry for entry in block.expiring if entry[0] not in block.gone]),
        "subjects": (sidecar.summary[sidecar.subjects_start :], encode_subjects(table, block.first_seq)),
        "frames": (frames, file.frames),
    }
    yield from (name for name, (theirs, ours) in pairs.items() if theirs != ours)
    # Times are bounds: a message that was erased before the block was sealed may have been the first or the last.
    if sidecar.time_ns_min > block.time_ns_min or sidecar.time_ns_max < block.time_ns_max:
        yield "times"
    # An index may know of messages that were erased since, so a difference must be looked at.
    same_places = (index.base_seq, index.seqs, index.offsets) == (scanned.base_seq, scanned.seqs, scanned.offsets)
    if not (same_places and index.ids == ids) and _places(index, block) != _places(scanned, block):
        yield "index"


def _places(index: BlockIndex, block: MsgBlock) -> dict[int, tuple[int, bytes]]:
    """Offset and subject of every live message."""
    places = {}
    for position in range(index.count):
        seq, slot = index.seq(position), index.ids[position]
        if block.is_live(seq):
            subject = index.table.subject(slot) if slot < index.table.slot_limit else b""
            places[seq] = (index.offsets[position], subject)
    return places
