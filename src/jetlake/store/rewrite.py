"""Write blocks anew, and make bytes unrecoverable.

A rewritten block keeps its id, its range of sequences and its hash seed, has the next generation, and ends with a
record of the sequences that are gone from it. The new file is complete and durable before it takes the old one's name.

A Rewrite does the work in pieces, each of them part of a commit: `run` touches files only, so that any thread may call
it while the store goes on. Two moments matter, both of them the preparation of a commit:

    begin    Which messages are live is taken down. This commit and the next ones copy those, a piece each.
    install  What is gone is taken down again. The commit, when its own bytes are durable, adds that to the copy as
             tombstones and gives it the old file's name. A message that left since `begin` is in the copy, and gone.

Why a crash at any point is harmless. Until the rename nobody looks at the copy, and opening the store removes it. After
the rename the new file says by itself all that was removed before `install`; the tombstones for the old generation are
void, and none of them says more. What is removed after `install` is bound to the new generation and gets to the disk
with a later commit: after the rename, or not at all. So no tombstone ever speaks of a generation that is not there yet,
and no removal is on record only for one that is there no more. A block that is dropped while it is copied takes the
copy with it; dropped while the copy takes its place, it is removed by the next commit, whichever file it is. An erasure
first throws away, overwritten, a copy that may hold its message.

Erasing. The intention (a tombstone of kind ERASE, with the record's place) is durable first; recovery finishes an
erasure that was cut short. Without an envelope the record is overwritten in place with random bytes. In a compressed
or encrypted block the whole block is written anew without it, and the old file is overwritten before it is removed:

    x.blk.new   complete           and x.blk: forget it         no x.blk: it takes its place
    x.blk.shred the old file       to be overwritten and removed, once x.blk is there
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from jetlake.errors import CorruptBlock
from jetlake.store.block import BlockIndex, MsgBlock
from jetlake.store.block_file import BlockFile, envelope_of, frame_cuts
from jetlake.store.block_scan import read_body, scan_block, uncount_gone
from jetlake.store.files import Files, atomic_write
from jetlake.store.format import ERASED, HEADER_SIZE, RECORD_SIZE_MIN, TOMBSTONE, Buffer, sidecar_name
from jetlake.store.record import BadRecord, Record, decode, encode
from jetlake.store.removal import LOST, REMOVED, RemovalGroup
from jetlake.store.scan import Scan, scan
from jetlake.store.sequence_set import SequenceSet
from jetlake.store.sidecar import encode_sidecar, seal
from jetlake.store.subject_table import SubjectTable
from jetlake.store.varint import U64_MAX, varint_size

if TYPE_CHECKING:
    from jetlake.store.filestore import FileStore

# How much of a block is copied at a time. A commit that carries a piece takes so much longer, and no more.
STEP_SIZE = 4 * 1024 * 1024
_STEP_FRAMES_MAX = 4096
_SHRED_STEP_SIZE = 1024 * 1024


class Rewrite:
    """A block on its way to its next generation."""

    def __init__(self, store: FileStore, block: MsgBlock, last_seq: int | None = None, *, shred: bool = False) -> None:
        """Begin: what is live now, up to a sequence, will be copied. `shred`: overwrite the old file in the end."""
        self.block, self.shred = block, shred
        self.last_seq = block.last_seq if last_seq is None else last_seq
        header = store.new_header(block.id, block.header.generation + 1, block.first_seq, block.floor_seq, block.seed)
        self.header = header._replace(last_time_ns=block.header.last_time_ns)
        self.file = BlockFile(
            store.files,
            f"{block.path}.{secrets.token_hex(8)}.tmp",
            self.header,
            envelope_of(self.header, store.options.keys, block.path),
        )
        self.step_size = STEP_SIZE
        self.is_copied = self.is_installing = self.is_over = False
        self.is_cancelled = False  # the block was dropped: away with the copy
        self.missing = SequenceSet()  # messages that ought to be live and cannot be read
        self.groups: list[RemovalGroup] = []  # what the new file says of other blocks
        self.index_before: BlockIndex | None = None  # for readers, while the file changes
        self.after = MsgBlock(self.header, block.path)  # the block as its new file tells it
        self._files, self._directory = store.files, store.directory
        self._sizes = (store.size_fixed, store.size_headers)
        self._left_out = _up_to(block.gone, self.last_seq)
        self._gone, self._lost = SequenceSet(), SequenceSet()
        self._old = _Source(store.block_files[block.id], block)
        self._body_size = 0  # of the copy so far
        self._copied_seq = block.first_seq - 1  # up to which messages are accounted for
        self._is_made = False

    def run(self) -> None:
        """Do the next piece of work."""
        if self.is_installing:
            self._install()
        elif self.is_cancelled:
            self.discard()
        else:
            self._copy()

    def prepare_install(self, groups: Iterable[RemovalGroup]) -> None:
        """Take down what is gone by now. From here on removals are bound to the new generation."""
        assert self.is_copied and not self.is_cancelled and not self.is_installing
        block = self.block
        self._gone, self._lost = _up_to(block.gone, self.last_seq), _up_to(block.lost, self.last_seq)
        self.groups, self.index_before = list(groups), block.index
        block.header = self.header
        self.is_installing = True

    def discard(self, *, shred: bool = False) -> None:
        """Throw the copy away."""
        self._old.file.release()
        self.file.release()
        if self._is_made and shred:
            _shred(self._files, self._directory, self.file.path)
        elif self._is_made:
            self._files.remove(self.file.path)
        self.is_over = True

    def _copy(self) -> None:
        """Copy the live messages of the next piece."""
        if not self._is_made:
            self.file.create()
            self._is_made = True
        data, found = self._old.next_piece(self.step_size, self._copied_seq)
        last_seq = self.last_seq if self._old.is_read else min(found.last_seq, self.last_seq)
        spans = list(_spans(found, list(self._live_runs(found, last_seq))))
        self._copied_seq = max(self._copied_seq, found.last_seq)
        view, offsets = memoryview(data), found.offsets
        live = b"".join([view[offsets[start] : end] for start, _, end in spans])
        self._append(live, [] if self.file.envelope.is_plain else _starts(offsets, spans))
        if self._old.is_read:
            self.is_copied = True
            if self._old.evidence and not self.shred:
                path = f"{self.block.path}.{self._old.file.header.generation}.damaged"
                atomic_write(self._files, path, self._old.evidence)
        self.file.file.sync()  # each time, so that no single sync takes long

    def _live_runs(self, found: Scan, last_seq: int) -> Iterator[tuple[int, int]]:
        """Which of the messages that a scan found are to be copied, as half-open ranges of their positions."""
        seqs, stop = found.seqs, 0
        base_seq = seqs[0] if isinstance(seqs, range) and seqs else None
        for first, last in self._left_out.gaps(self._copied_seq + 1, last_seq):
            if base_seq is not None:
                start, stop = max(first - base_seq, 0), min(last + 1 - base_seq, len(seqs))
            else:
                start = bisect_left(seqs, first, stop)
                stop = bisect_right(seqs, last, start)
            if stop - start < last - first + 1:
                self.missing.update(SequenceSet(_without(first, last, seqs[start:stop] if start < stop else ())))
            if start < stop:
                yield start, stop

    def _append(self, data: bytes, starts: list[int]) -> None:
        """Add whole records to the copy; `starts` is where each of them begins."""
        if not data:
            return
        base, end = self._body_size, self._body_size + len(data)
        cuts = []
        if not self.file.envelope.is_plain:
            cuts = frame_cuts([base + start for start in starts], len(starts), base, end)
        self.file.append([memoryview(data)], base, cuts, self.last_seq)
        self._body_size = end

    def _install(self) -> None:
        """Finish the copy, make sure that it says what it should, and put it in place."""
        self._append(*_joined([encode(record, self.header.hash_seed) for record in self._tombstones()]))
        self.file.file.sync()
        sidecar = self._read_back()
        self._old.file.release()
        if self.shred:
            self._exchange_and_shred()
        else:
            self._files.rename(self.file.path, self.block.path)
            self._files.sync_dir(self._directory)
        self.file.path = self.block.path
        atomic_write(self._files, f"{self._directory}/{sidecar_name(self.block.id)}", [sidecar])
        self.is_over = True

    def _tombstones(self) -> Iterator[Record]:
        """What is gone from the block, and what it says of others."""
        removed = self._gone.copy()
        removed.difference_update(self._lost)
        own = [RemovalGroup(0, 0, removed, kind=REMOVED), RemovalGroup(0, 0, self._lost, kind=LOST)]
        for group in [*own, *self.groups]:
            if group.seqs:
                yield Record(TOMBSTONE, b"", b"", group.encode(), group.seqs.first, 0)

    def _read_back(self) -> bytes:
        """Know the block by its new file; its sidecar."""
        after, body = self.after, read_body(self.file)
        scanned = scan_block(after, self.file, body, SubjectTable(), self._sizes)
        if scanned.damage or scanned.torn_size:
            raise CorruptBlock(self.file.path, 0, "; ".join(scanned.damage) or "its end is missing")
        assert (after.gone, after.lost) == (self._gone, self._lost), "what is live is live in the new file too"
        assert after.index is not None
        uncount_gone(after, after.index, body, self._sizes)
        return encode_sidecar(seal(after, after.index), after.index, self.file)

    def _exchange_and_shred(self) -> None:
        path, files = self.block.path, self._files
        files.rename(self.file.path, f"{path}.new")
        files.sync_dir(self._directory)
        files.rename(path, f"{path}.shred")
        files.sync_dir(self._directory)
        files.rename(f"{path}.new", path)
        files.sync_dir(self._directory)
        _shred(files, self._directory, f"{path}.shred")


class _Source:
    """The body of the old file, from its beginning, in pieces of whole records."""

    def __init__(self, file: BlockFile, block: MsgBlock) -> None:
        self.file = BlockFile(file.files, file.path, file.header, file.envelope)  # not the one that readers use
        self.file.frames = file.frames
        self.is_read = False
        self.evidence: list[bytes] = []  # what nobody can read, to be kept beside the block
        self._seed, self._end, self._file_end = block.seed, block.body_size, file.file_size
        self._offset = self._frame_count = 0

    def next_piece(self, size: int, prev_seq: int) -> tuple[Buffer, Scan]:
        """About so many bytes, and what a scan of them found."""
        if self.file.envelope.is_plain:
            return self._next_records(size, prev_seq)
        data = self._next_frames(size)
        return data, self._scan(data, prev_seq)

    def _scan(self, data: Buffer, prev_seq: int) -> Scan:
        return scan(data, 0, len(data), self._seed, prev_seq, SubjectTable(), 0, 0)

    def _next_records(self, size: int, prev_seq: int) -> tuple[bytes, Scan]:
        """A record that the piece would cut in two is left to the next one."""
        end = min(self._offset + size, self._end)
        data = self.file.file.pread(HEADER_SIZE + self._offset, end - self._offset)
        found = self._scan(data, prev_seq)
        self.is_read = end == self._end
        if not found.end and not self.is_read:
            return self._next_records(2 * size, prev_seq)
        damage = [*found.damage, (found.end, len(data) - found.end)] if self.is_read else found.damage
        self.evidence += [data[start : start + count] for start, count in damage if count]
        self._offset += found.end
        return data, found

    def _next_frames(self, size: int) -> bytes:
        frames = self.file.frames or read_body(self.file).frames
        self.file.frames = frames
        parts = list[bytes]()
        for frame in frames[self._frame_count : self._frame_count + _STEP_FRAMES_MAX]:
            if size <= 0:
                break
            file_start = frames[self._frame_count - 1].file_end if self._frame_count else HEADER_SIZE
            self._keep_aside(file_start, frame.file_offset)
            try:
                parts.append(self.file.read(frame.plain_offset, frame.plain_offset + frame.plain_size))
            except CorruptBlock:
                self._keep_aside(frame.file_offset, frame.file_end)
            self._frame_count += 1
            size -= frame.plain_size
        self.is_read = self._frame_count == len(frames)
        if self.is_read:
            self._keep_aside(frames[-1].file_end if frames else HEADER_SIZE, self._file_end)
        return b"".join(parts)

    def _keep_aside(self, start: int, end: int) -> None:
        if start < end:
            self.evidence.append(self.file.file.pread(start, end - start))


def rewrite_block(
    store: FileStore,
    block: MsgBlock,
    groups: Iterable[RemovalGroup],
    *,
    last_seq: int | None = None,
    shred: bool = False,
) -> None:
    """Write a block anew, here and now, with its live messages only, up to a sequence.

    `groups` is what it says of other blocks.
    """
    rewrite = Rewrite(store, block, last_seq, shred=shred)
    while not rewrite.is_copied:
        rewrite.run()
    store.prepare_install(rewrite, groups)
    rewrite.run()
    store.adopt(rewrite)


def erase_bytes(
    store: FileStore,
    block: MsgBlock,
    groups: Iterable[RemovalGroup],
    seq: int,
    place: tuple[int, int],
    time_ns: int = 0,
) -> None:
    """Overwrite a record, which is no longer live, on disk and in memory."""
    file = store.block_files[block.id]
    if not file.envelope.is_plain:
        rewrite_block(store, block, groups, shred=True)
        return
    noise = overwrite(file, seq, place, time_ns)
    for chunk in block.chunks:
        if chunk.base <= place[0] < chunk.end:
            chunk.data[place[0] - chunk.base : place[0] - chunk.base + place[1]] = noise
    if block.sealed:
        store.reattach(block)
    elif block.index is not None:
        block.index.drop(block.index.position(seq))


def overwrite(file: BlockFile, seq: int, place: tuple[int, int], time_ns: int) -> bytes:
    """Put noise in a record's place, durably; the noise."""
    noise = _erased_record(place[1], seq, time_ns, file.header.hash_seed)
    file.file.pwrite(HEADER_SIZE + place[0], noise)
    file.file.sync()
    return noise


def is_erased(file: BlockFile, place: tuple[int, int], seed: int) -> bool:
    """Has the record at a place been overwritten already?"""
    data = file.file.pread(HEADER_SIZE + place[0], place[1])
    try:
        return bool(decode(data, 0, len(data), seed)[0].flags & ERASED)
    except BadRecord:
        return False


def finish_shredding(store: FileStore, names: list[str]) -> None:
    """Finish what `rewrite_block` was doing when it was cut short."""
    for name in names:
        path = f"{store.directory}/{name}"
        if name.endswith(".blk.new"):
            target = path.removesuffix(".new")
            if store.files.exists(target):
                store.files.remove(path)
            else:
                store.files.rename(path, target)
            store.files.sync_dir(store.directory)
    for name in names:
        path = f"{store.directory}/{name}"
        if name.endswith(".blk.shred"):
            if not store.files.exists(path.removesuffix(".shred")):  # the new file is damaged or missing: take it back
                store.files.rename(path, path.removesuffix(".shred"))
                store.files.sync_dir(store.directory)
            else:
                _shred(store.files, store.directory, path)


def _up_to(seqs: SequenceSet, last_seq: int) -> SequenceSet:
    """The sequences of a set up to one."""
    copy = seqs.copy()
    if copy and copy.last > last_seq:
        copy.remove_range(last_seq + 1, U64_MAX)
    return copy


def _without(first: int, last: int, seqs: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The sequences from first to last that are not among some, which ascend, as ranges."""
    for seq in seqs:
        if first < seq:
            yield first, seq - 1
        first = seq + 1
    if first <= last:
        yield first, last


def _spans(found: Scan, runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Runs of messages, cut where something else lies between: positions of the first and the next, and the end."""
    offsets, ends = found.offsets, found.offsets[1:]
    ends.append(found.end)  # a message ends where the next one begins, unless something else comes first
    between = list[int]()  # the messages after which something else comes, the last one first
    for offset in sorted([*found.others, *(start for start, _ in found.damage)], reverse=True):
        place = bisect_left(offsets, offset) - 1
        if place >= 0:
            ends[place] = offset
            between.append(place)
    for start, stop in runs:
        while between and between[-1] < stop - 1:
            place = between.pop()
            if place >= start:
                yield start, place + 1, ends[place]
                start = place + 1
        yield start, stop, ends[stop - 1]


def _starts(offsets: Sequence[int], spans: Iterable[tuple[int, int, int]]) -> list[int]:
    """Where the messages of spans begin once they lie one after the other."""
    starts, size = list[int](), 0
    for start, stop, end in spans:
        shift = size - offsets[start]
        starts += [offset + shift for offset in offsets[start:stop]]
        size = end + shift
    return starts


def _joined(records: list[bytes]) -> tuple[bytes, list[int]]:
    """Records one after the other, and where each of them begins."""
    starts, size = [], 0
    for record in records:
        starts.append(size)
        size += len(record)
    return b"".join(records), starts


def _erased_record(size: int, seq: int, time_ns: int, seed: int) -> bytes:
    """A record of exactly `size` bytes that holds nothing but noise and its sequence."""
    room = size - RECORD_SIZE_MIN + 1  # for the payload and its length
    payload_size = room - varint_size(room)
    padding = room - payload_size - varint_size(payload_size)  # a length just below a power of 128 leaves a byte over
    noise = secrets.token_bytes(padding + payload_size)
    record = encode(Record(ERASED, b"", noise[:padding], noise[padding:], seq, time_ns), seed)
    assert len(record) == size
    return record


def _shred(files: Files, directory: str, path: str) -> None:
    """Overwrite a file with random bytes, and remove it."""
    with files.open(path, write=True) as file:
        size = file.size()
        for offset in range(0, size, _SHRED_STEP_SIZE):
            file.pwrite(offset, secrets.token_bytes(min(_SHRED_STEP_SIZE, size - offset)))
        file.sync()
    files.remove(path)
    files.sync_dir(directory)
