"""Check a stream's directory: is every byte what was written, and do blocks, sidecars and checkpoint agree?

It only reads, needs no lock, and expects a store at rest: stopped, killed, or open in this process with nothing staged.
Every block is read whole, one at a time, the newest first: a block speaks of earlier blocks only, so when its turn
comes all is known that was removed from it. Recovery is not asked: where it and this module differ, one is wrong.

Problems by kind. A *note* is something that does no harm or that opening the store puts right; the rest is *damage*:

    header      a copy of a block's header is damaged; a note when the block was never finished and holds nothing
    checksum    bytes that are not a sound record
    order       a sound record, or a block, whose sequences do not ascend
    foreign     a block of another stream
    frame       bytes that are not a sound frame, or frames that do not follow one another
    torn        an unfinished write at the end of the last block: a note
    record      a sound record that makes no sense
    removal     a tombstone that does not fit the block it speaks of
    erase       a message that was to be erased is still there; a note when opening the store finishes it
    sidecar     missing, damaged or of another state of its block: a note; sound, but contradicting its block: damage
    checkpoint  unreadable, or a truncation is under way: a note; contradicted by the blocks: damage
    lost        sequences that nothing accounts for, or that are on record as lost
    left-over   a file that an interrupted operation left, or that recovery set aside: a note
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jetlake.errors import CorruptBlock
from jetlake.store.blocks.block import MsgBlock
from jetlake.store.blocks.block_file import BlockFile
from jetlake.store.blocks.block_scan import BlockScan, Body, read_body, read_tombstones, scan_block
from jetlake.store.blocks.checkpoint import KIND as CHECKPOINT_KIND
from jetlake.store.blocks.checkpoint import Checkpoint, decode_checkpoint
from jetlake.store.blocks.envelope import KeySource
from jetlake.store.blocks.identity import Identity, identify
from jetlake.store.blocks.removal import ERASE, LOST, RemovalGroup, decode_group
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.disk.files import OS_FILES, Files, is_temp
from jetlake.store.format import (
    CHECKPOINT_NAME,
    MARKER_NAME,
    NO_STREAM,
    BlockHeader,
    is_own_name,
    parse_block_name,
    sidecar_name,
)
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.verify.check_block import (
    SIZES,
    BlockRecords,
    Problem,
    ReadOnlyBlockFile,
    Severity,
    check_header,
    decode_sidecar,
    file_offset,
    open_block,
    sidecar_differences,
    unsound_bytes,
)

__all__ = ["Problem", "Report", "check_store", "check_tree", "find_streams", "show_ranges"]

_DEPTH_MAX = 16
_RANGES_SHOWN_MAX = 8


@dataclass(slots=True)
class Report:
    """What a check found."""

    directory: str
    blocks: int = 0
    records: int = 0
    messages: int = 0  # live ones
    bytes: int = 0  # of the live messages, as JetStream counts it
    file_size: int = 0  # of all blocks
    lost: SequenceSet = field(default_factory=SequenceSet)
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """No data is lost, unreadable or contradicted by other data; there may be notes."""
        return all(problem.severity == "note" for problem in self.problems)


def check_store(
    directory: str,
    *,
    files: Files = OS_FILES,
    keys: Sequence[KeySource] = (),
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Check one stream's directory; WrongKey when it cannot be read. `progress` is told how many bytes were read."""
    return _Check(directory, files, keys, progress or (lambda size: None)).run()


def check_tree(
    directory: str,
    *,
    files: Files = OS_FILES,
    keys: Sequence[KeySource] = (),
    progress: Callable[[int], None] | None = None,
) -> dict[str, Report]:
    """Check every stream's directory at or below a directory."""
    found = find_streams(directory, files)
    return {stream: check_store(stream, files=files, keys=keys, progress=progress) for stream in found}


def find_streams(directory: str, files: Files = OS_FILES, depth: int = 0) -> Iterator[str]:
    """Every directory at or below a directory that holds blocks, or a checkpoint whose blocks are gone."""
    names = files.list(directory)
    if any(name == CHECKPOINT_NAME or parse_block_name(name) is not None for name in names):
        yield directory
    for name in names if depth < _DEPTH_MAX else ():
        try:
            yield from find_streams(f"{directory.rstrip('/')}/{name}", files, depth + 1)
        except (NotADirectoryError, FileNotFoundError):  # not a directory, or removed meanwhile
            continue


def show_ranges(seqs: SequenceSet) -> str:
    """Sequences for a person to read: 3, 5-7."""
    shown = [f"{first}-{last}" if first < last else f"{first}" for first, last in seqs.ranges()]
    more = [f"... {len(shown)} ranges"] if len(shown) > _RANGES_SHOWN_MAX else []
    return ", ".join(shown[:_RANGES_SHOWN_MAX] + more)


class _Check:
    """A check under way."""

    def __init__(
        self, directory: str, files: Files, keys: Sequence[KeySource], progress: Callable[[int], None]
    ) -> None:
        self.directory, self.files, self.keys, self.progress = directory, files, keys, progress
        self.report = Report(directory)
        self.checkpoint: Checkpoint | None = None
        self.checkpoint_gone = SequenceSet()
        self.identity = Identity(NO_STREAM, None)
        self.floor_seq = self.last_seq = self.last_block_id = 0
        self.last_path = ""
        self.ranges: list[tuple[int, int]] = []  # the blocks' sequences, newest first
        self.groups: dict[int, list[tuple[str, int, RemovalGroup]]] = {}  # by block; file and offset of each
        self.gone, self.lost = SequenceSet(), SequenceSet()  # as tombstones say of no block in particular
        self.explained = SequenceSet()  # removed on purpose, whatever became of the bytes
        self.revived = SequenceSet()  # live, though the checkpoint knows better

    def run(self) -> Report:
        names = self.files.list(self.directory)
        checkpoint = self._read_checkpoint(names)
        paths = self._block_paths(names)
        self.identity = identify(checkpoint, self._headers(paths))
        blocks = [found for path in paths if (found := self._open(*path)) is not None]
        self._note_left_overs(names)
        for block, file in reversed(blocks):
            try:
                self._check_block(block, file, is_last=block is blocks[-1][0])
            finally:
                file.release()
        self._check_sequences()
        self._check_checkpoint()
        if self.report.lost:
            self._problem(self.directory, None, "lost", f"sequences {show_ranges(self.report.lost)} are lost")
        self.report.problems.sort(key=lambda problem: (problem.file, problem.offset or 0))
        return self.report

    def _problem(self, file: str, offset: int | None, kind: str, text: str, severity: Severity = "damage") -> None:
        self.report.problems.append(Problem(file, offset, kind, text, severity))

    # Files

    def _block_paths(self, names: list[str]) -> list[tuple[int, str]]:
        """The id and the path of each block; one that was just being written anew may have another name only."""
        paths: dict[int, str] = {}
        for suffix in ("", ".new", ".shred"):
            for name in names:
                block_id = parse_block_name(name.removesuffix(suffix)) if name.endswith(suffix) else None
                if block_id is not None:
                    paths.setdefault(block_id, f"{self.directory}/{name}")
        return sorted(paths.items())

    def _open(self, block_id: int, path: str) -> tuple[MsgBlock, ReadOnlyBlockFile] | None:
        """A block, if it can be told what it is; WrongKey when its key is another one."""
        self.report.blocks += 1
        self.report.file_size += self.files.size(path)
        header, problems = check_header(self.files, path)
        self.report.problems += problems
        if header is not None and header.block_id != block_id:
            self._problem(path, 0, "header", f"says that it is block {header.block_id}")
            return None
        if header is not None and not self.identity.owns(header):
            self._problem(path, 0, "foreign", "is a block of another stream")
            return None
        return None if header is None else open_block(self.files, path, header, self.keys)

    def _note_left_overs(self, names: list[str]) -> None:
        for name in names:
            is_orphan = name.endswith(".idx") and f"{name.removesuffix('.idx')}.blk" not in names
            is_aside = name.endswith((".blk.new", ".blk.shred")) or (name.endswith(".damaged") and is_own_name(name))
            if is_orphan or is_aside or is_temp(name) or name == MARKER_NAME:
                self._problem(f"{self.directory}/{name}", None, "left-over", "is left over", "note")

    def _headers(self, paths: list[tuple[int, str]]) -> Iterator[BlockHeader]:
        found = (check_header(self.files, path)[0] for _, path in paths)
        return (header for header in found if header is not None)

    def _read_checkpoint(self, names: list[str]) -> Checkpoint | None:
        """Read the checkpoint; `checkpoint` is what it says of messages, unless that is about to change."""
        if CHECKPOINT_NAME not in names:
            return None
        path = f"{self.directory}/{CHECKPOINT_NAME}"
        try:
            data = Sealer(keys=self.keys).open(self.files.read(path), CHECKPOINT_KIND, path)
            checkpoint = decode_checkpoint(data)
        except CorruptBlock as error:
            self._problem(path, error.offset, "checkpoint", error.problem, "note")
            return None
        except ValueError as error:
            self._problem(path, None, "checkpoint", str(error), "note")
            return None
        if checkpoint.truncate_seq is not None:
            text = f"a truncation to sequence {checkpoint.truncate_seq} is under way"
            self._problem(path, None, "checkpoint", text, "note")
            return checkpoint
        self.checkpoint, self.checkpoint_gone = checkpoint, checkpoint.gone_seqs
        if checkpoint.first_seq > 0:
            self.checkpoint_gone.add_range(0, checkpoint.first_seq - 1)
        return checkpoint

    # One block

    def _check_block(self, block: MsgBlock, file: BlockFile, *, is_last: bool) -> None:
        body = read_body(file)
        self.progress(body.file_size)
        try:
            scanned = scan_block(block, file, body, SubjectTable(), SIZES)
            tombstones = list(_tombstones(block, body, scanned))
        except (ValueError, LookupError) as error:
            self._problem(block.path, None, "record", f"a sound record makes no sense: {error}")
            self._check_ends(block, is_last)
            return
        self.report.records += len(scanned.records.offsets) + len(scanned.records.others)
        is_torn = is_last and scanned.torn_size > 0
        unsound = list(unsound_bytes(block, file, body, scanned.records, is_last=is_last, is_torn=is_torn))
        self.report.problems += unsound
        damaged = any(problem.severity == "damage" for problem in unsound)
        records = BlockRecords(block, body)
        block.size -= records.size(block.gone)
        self._check_sidecar(block, file, body, is_last, damaged)
        self._check_ends(block, is_last)
        if is_last or not self._is_dead(block):  # a dead one is on its way out: what it says is said elsewhere
            self._take_groups(block, body, tombstones)
            self._settle(block, records, damaged)

    def _check_sidecar(self, block: MsgBlock, file: BlockFile, body: Body, is_last: bool, damaged: bool) -> None:
        """Compare a block with its sidecar. The last block needs none, but may have one from when it was sealed."""
        path = f"{self.directory}/{sidecar_name(block.id)}"
        try:
            found = decode_sidecar(self.files.read(path), block.seed, file.envelope)
        except FileNotFoundError:
            found = "is missing"
        if not isinstance(found, str):
            sidecar = found[0]
            state = (block.id, block.header.generation, body.file_size)
            if (sidecar.block_id, sidecar.generation, sidecar.file_size) != state:
                found = "is not of the block as it is now"
            elif not damaged:  # of a damaged block it may know more than is left
                wrong = list(sidecar_differences(block, file, *found))
                if wrong:
                    self._problem(path, None, "sidecar", f"contradicts its block: {', '.join(wrong)}")
        if isinstance(found, str) and not is_last:
            self._problem(path, None, "sidecar", found, "note")

    def _check_ends(self, block: MsgBlock, is_last: bool) -> None:
        """Note where a block begins and ends, and the floor; a block ends before the next one begins."""
        self.floor_seq = max(self.floor_seq, block.floor_seq)
        if is_last:
            self.last_seq, self.last_path, self.last_block_id = block.last_seq, block.path, block.id
        elif block.last_seq >= self.ranges[-1][0]:
            text = f"ends with sequence {block.last_seq}, the next block begins with {self.ranges[-1][0]}"
            self._problem(block.path, None, "order", text)
        self.ranges.append((block.first_seq, block.last_seq))

    def _is_dead(self, block: MsgBlock) -> bool:
        """Is every sequence of the block below the floor or, as a later block says, gone with its block?"""
        known = self.gone.copy()
        known.update(self.lost)
        if self.floor_seq:
            known.add_range(0, self.floor_seq - 1)
        count = block.last_seq - block.first_seq + 1
        return 0 < count == known.count_between(block.first_seq, block.last_seq)

    def _take_groups(self, block: MsgBlock, body: Body, tombstones: list[tuple[int, RemovalGroup]]) -> None:
        """Keep what a block's tombstones say until the block that they speak of is reached."""
        for offset, group in tombstones:
            place = (block.path, file_offset(body, offset))
            if group.block_id > block.id:
                self._problem(*place, "removal", f"a tombstone speaks of block {group.block_id}, which is later")
            elif group.block_id:
                self.groups.setdefault(group.block_id, []).append((*place, group))
            elif group.seqs.first < block.first_seq:
                (self.lost if group.kind == LOST else self.gone).update(group.seqs)

    def _settle(self, block: MsgBlock, records: BlockRecords, damaged: bool) -> None:
        """Find out what is live of a block, knowing all that later blocks say, and count it."""
        own_gone = block.gone.copy()
        self._apply_groups(block, records, damaged)
        if block.first_seq < self.floor_seq and block.first_seq <= block.last_seq:
            block.gone.add_range(block.first_seq, min(self.floor_seq - 1, block.last_seq))
        contradicted = _live_among(block, self.gone)
        if contradicted:
            text = f"holds sequences {show_ranges(contradicted)}, of which a tombstone says that they left with a block"
            self._problem(block.path, None, "removal", text)
        revived = _live_among(block, self.checkpoint_gone)
        self.revived.update(revived)
        block.gone.update(revived)
        self.lost.update(block.lost)
        removed = block.gone.copy()
        removed.difference_update(own_gone)
        self.report.messages += records.index.count - records.count(block.gone)
        self.report.bytes += block.size - records.size(removed)

    def _apply_groups(self, block: MsgBlock, records: BlockRecords, damaged: bool) -> None:
        """Apply what tombstones say of a block, if it fits."""
        named = SequenceSet()
        generation = block.header.generation
        for file, offset, group in self.groups.pop(block.id, ()):
            if group.generation > generation:
                text = f"speaks of generation {group.generation} of {block.path}, which is at {generation}"
                self._problem(file, offset, "removal", text)
            if group.generation != generation:
                continue
            (self.lost if group.kind == LOST else self.explained).update(group.seqs)
            if group.kind == ERASE:
                if not records.is_erased(group.place):
                    severity: Severity = "note" if file == self.last_path else "damage"
                    text = f"sequence {group.seqs.first} of {block.path} is not erased yet"
                    self._problem(file, offset, "erase", text, severity)
                continue
            inside = SequenceSet(group.seqs.ranges_between(block.first_seq, block.last_seq))
            if inside != group.seqs:
                text = f"removes {show_ranges(group.seqs)} from {block.path}: {block.first_seq}-{block.last_seq}"
                self._problem(file, offset, "removal", text)
            elif any(named.count_between(first, last) for first, last in inside.ranges()):
                self._problem(file, offset, "removal", f"removes some of {show_ranges(inside)} for a second time")
            elif not damaged and group.kind != LOST and records.subjects(inside) != group.subjects:
                text = f"counts other messages or bytes than {show_ranges(inside)} of {block.path} have"
                self._problem(file, offset, "removal", text)
            named.update(inside)
            block.gone.update(inside)

    # The whole stream

    def _check_sequences(self) -> None:
        """Find the sequences that are lost: on record as such, or nothing accounts for them."""
        self.last_seq = max(self.last_seq, self.floor_seq - 1)
        known = SequenceSet((first, last) for first, last in self.ranges if first <= last)
        known.update(self.gone)
        lost = self.report.lost
        lost.update(self.lost)
        lost.update(SequenceSet(known.gaps(max(self.floor_seq, 1), self.last_seq)))
        if self.checkpoint is not None:
            lost.update(self.checkpoint.lost_seqs)
        lost.difference_update(self.explained)
        lost.difference_update(self.gone)
        if self.floor_seq:
            lost.remove_range(0, self.floor_seq - 1)

    def _check_checkpoint(self) -> None:
        """Hear the second witness."""
        checkpoint, path = self.checkpoint, f"{self.directory}/{CHECKPOINT_NAME}"
        if checkpoint is None:
            return
        end_seq = checkpoint.end_seq(self.last_block_id)
        if end_seq > self.last_seq:
            text = f"knows of sequences up to {end_seq}, the blocks up to {self.last_seq}"
            self._problem(path, None, "checkpoint", text)
            self.report.lost.update(SequenceSet(self.checkpoint_gone.gaps(self.last_seq + 1, end_seq)))
        if self.revived:
            text = f"says that sequences {show_ranges(self.revived)} are gone, and no block does"
            self._problem(path, None, "checkpoint", text)
        elif checkpoint.gone is not None and checkpoint.last_seq == self.last_seq:  # a clean stop, and no message since
            counted, live = (checkpoint.msgs, checkpoint.bytes), (self.report.messages, self.report.bytes)
            if live[0] > counted[0] or (live[0] == counted[0] and live[1] != counted[1]):
                text = "says {} messages of {} bytes, the blocks hold {} of {}".format(*counted, *live)
                self._problem(path, None, "checkpoint", text)


def _tombstones(block: MsgBlock, body: Body, scanned: BlockScan) -> Iterator[tuple[int, RemovalGroup]]:
    """Offset and content of each tombstone; ValueError when it is not one."""
    for offset, record in read_tombstones(body.data, scanned.records.others, block.seed):
        group = decode_group(record.payload)
        if record.seq != group.seqs.first:
            raise ValueError(f"the tombstone of sequence {record.seq} begins with {group.seqs.first}")
        yield offset, group


def _live_among(block: MsgBlock, seqs: SequenceSet) -> SequenceSet:
    """Those of some sequences that are live in a block."""
    ranges = seqs.ranges_between(block.first_seq, block.last_seq)
    return SequenceSet(run for first, last in ranges for run in block.live_runs(first, last))
