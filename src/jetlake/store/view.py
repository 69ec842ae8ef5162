"""StreamView: a stream's directory as it stands, for readers that are not the server.

    view = StreamView("orders/msgs")
    view.refresh()
    view.catalog.blocks        # what each block holds: range, live sequences, times
    view.subjects(block)       # which subjects

It takes no lock and changes nothing, so it works beside a server that writes to the same directory. A refresh reads the
sidecars of sealed blocks and the records of the others; the next one reads only what is new. The answer is that of
recovery (`recover.py` says how blocks speak of each other), except that nothing is mended, and that an unfinished write
at the end is taken for one that is still under way.

What is always true
    the catalog of one refresh never changes: later deletes, drops and rewrites are not in it
    a message that is live in it was stored whole and in order; with `sync`, it is on the disk to stay
    the end of the last block is read first, so that what it says was removed from others is known for all of them
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from jetlake.errors import CorruptBlock, StoreError
from jetlake.store.block import BlockIndex, MsgBlock
from jetlake.store.block_file import envelope_of
from jetlake.store.block_scan import read_body, scan_block
from jetlake.store.catalog import Catalog
from jetlake.store.check_block import SIZES, ReadOnlyBlockFile
from jetlake.store.checkpoint import Checkpoint, read_checkpoint
from jetlake.store.envelope import KeySource
from jetlake.store.files import OS_FILES, File, Files
from jetlake.store.format import HEADER_SIZE, BlockHeader, decode_header, parse_block_name, sidecar_name
from jetlake.store.removal import LOST, RemovalGroup
from jetlake.store.scan import scan
from jetlake.store.sequence_set import SequenceSet
from jetlake.store.sidecar import HEAD_SIZE, Sidecar, decode_head, decode_index, decode_summary
from jetlake.store.subject_table import SubjectTable

# How often a refresh begins anew because a file went away under it.
_ATTEMPTS_MAX = 20
_NO_SYNC = (errno.EROFS, errno.EINVAL, errno.ENOTSUP)


class _Changed(Exception):
    """The directory is no longer what it was when the refresh began."""


@dataclass(slots=True)
class _Part:
    """A block by itself: what its own file says, whatever others say of it."""

    block: MsgBlock
    sidecar: Sidecar | None = None  # None: it was scanned
    groups: list[RemovalGroup] = field(default_factory=list)
    erases: list[RemovalGroup] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    file_size: int = 0

    @property
    def key(self) -> tuple[int, int]:
        return self.block.id, self.block.header.generation


class StreamView:
    """What a stream's directory holds, as of the last refresh."""

    def __init__(
        self, directory: str, *, files: Files = OS_FILES, keys: Sequence[KeySource] = (), sync: bool = False
    ) -> None:
        """`sync` makes what a refresh finds durable, for readers that must never see a message vanish."""
        self.directory, self.files, self.keys = directory.rstrip("/"), files, keys
        self.catalog = Catalog()
        self.damage: list[str] = []  # what was found unreadable, in words
        self._sync = sync
        self._parts: dict[int, _Part] = {}
        self._stale: set[int] = set()  # blocks to be read anew the next time

    def refresh(self) -> Catalog:
        """Look again; FileNotFoundError when the directory is not there."""
        for _ in range(_ATTEMPTS_MAX):
            names = self.files.list(self.directory)
            try:
                parts = self._read(_block_paths(self.directory, names))
                self.catalog.close()
                self.catalog = _put_together(parts, read_checkpoint(self.files, self.directory))
            except (_Changed, FileNotFoundError):
                self._parts.clear()
                continue
            self.catalog.load_index = self._load_index
            for block in self.catalog.blocks:
                block.read_body = self._body_reader(block)
            self.damage = [text for part in parts for text in part.damage]
            self._parts = {part.block.id: part for part in parts}
            # Once its tombstone lies in a sealed block, only the sidecar of its own block tells of an erasure.
            self._stale = {group.block_id for part in parts for group in part.erases}
            return self.catalog
        raise StoreError(f"{self.directory}: changes faster than it can be read")

    def subjects(self, block: MsgBlock) -> SubjectTable:
        """The subjects of a block, and perhaps some that have left it since."""
        part = self._parts[block.id]
        if part.sidecar is None:
            assert part.block.index is not None
            return part.block.index.table
        table = SubjectTable()
        part.sidecar.merge_into(table)
        return table

    def _read(self, paths: dict[int, str]) -> list[_Part]:
        """Every block, oldest first, read newest first."""
        parts: list[_Part] = []
        for block_id in sorted(paths, reverse=True):
            part = self._part(block_id, paths[block_id], is_last=not parts)
            if part is not None:
                parts.append(part)
        if self._sync and paths.keys() - self._parts.keys():
            self._settle(self.directory)
        return parts[::-1]

    def _part(self, block_id: int, path: str, *, is_last: bool) -> _Part | None:
        """What is known of a block, read anew as far as it may have changed; None when it has no header."""
        known = self._parts.get(block_id)
        with self.files.open(path) as file:
            header = _header(file, path)
            if header is None or header.block_id != block_id:
                return None
            if known is not None and known.block.header != header:
                known = None
            if known is not None and known.sidecar is not None and block_id not in self._stale:
                return known
            sidecar = None if is_last else self._sidecar(file, header)
            if sidecar is not None:
                return _part_of_sidecar(header, path, sidecar)
            if known is not None and known.sidecar is None and self._advance(known, file):
                return known
            return self._scan(file, header, path)

    def _sidecar(self, file: File, header: BlockHeader) -> Sidecar | None:
        """The sidecar of a block, when it is sound and speaks of the block as it is."""
        try:
            with self.files.open(f"{self.directory}/{sidecar_name(header.block_id)}") as source:
                sidecar = decode_head(source.pread(0, HEAD_SIZE), header.hash_seed)
                if sidecar is None or (sidecar.generation, sidecar.file_size) != (header.generation, file.size()):
                    return None
                summary = source.pread(HEAD_SIZE, sidecar.summary_stored_size + 8)
        except FileNotFoundError:
            return None
        envelope = envelope_of(header, self.keys, file.path)
        return sidecar if decode_summary(sidecar, summary, header.hash_seed, envelope) else None

    def _scan(self, file: File, header: BlockHeader, path: str) -> _Part:
        """Know a block by its records."""
        block = MsgBlock(header, path)
        source = pinned(file, header, self.files, self.keys)
        body = read_body(source)
        scanned = scan_block(block, source, body, SubjectTable(), SIZES)
        self._settle(file)
        damage = [f"{path}: {text}" for text in scanned.damage]
        return _Part(block, None, block.groups, scanned.erases, damage, body.file_size)

    def _advance(self, part: _Part, file: File) -> bool:
        """Take in messages that a block got since it was scanned; False where anything else happened to it."""
        block, index = part.block, part.block.index
        assert index is not None
        size = file.size() - HEADER_SIZE
        if not envelope_of(block.header, self.keys, block.path).is_plain:
            return size + HEADER_SIZE == part.file_size
        if size < block.body_size:
            return False
        data = file.pread(HEADER_SIZE + block.body_size, size - block.body_size)
        if not data.strip(b"\0"):
            return True  # there is nothing behind it but reserved room
        found = scan(data, 0, len(data), block.seed, block.last_seq, index.table, *SIZES)
        is_whole = not data[found.end :].strip(b"\0") and not found.others and not found.damage
        if not is_whole or found.last_seq - block.last_seq != len(found.seqs):
            return False  # tombstones, holes, an unfinished write: a scan of the whole block knows what to make of it
        self._settle(file)
        for offset, slot, seq in zip(found.offsets, found.ids, found.seqs, strict=True):
            index.add(seq, block.body_size + offset, slot)
        block.last_seq, block.last_hash = found.last_seq, found.last_hash
        block.time_ns_min = min(block.time_ns_min, found.time_ns_min)
        block.time_ns_max = max(block.time_ns_max, found.time_ns_max)
        block.size += found.size
        block.expiring += found.expiring
        block.body_size = block.written_size = block.synced_size = block.body_size + found.end
        return True

    def _settle(self, what: File | str) -> None:
        """Make bytes that were read, or names, durable: they are given out from now on."""
        if not self._sync:
            return
        try:
            if isinstance(what, str):
                self.files.sync_dir(what)
            else:
                what.sync()
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise

    def _body_reader(self, block: MsgBlock) -> Callable[[int, int], bytes]:
        """Reads single messages, as few as a search for a time needs."""
        frames: list[bytes | memoryview] = []  # the whole body, where it is in frames

        def read(start: int, end: int) -> bytes:
            if not frames:
                with self.files.open(block.path) as file:
                    if _header(file, block.path) != block.header:
                        raise CorruptBlock(block.path, 0, "was written anew since the directory was looked at")
                    source = pinned(file, block.header, self.files, self.keys)
                    if source.envelope.is_plain:
                        return file.pread(HEADER_SIZE + start, end - start)
                    frames.append(read_body(source).data)
            return bytes(frames[0][start:end])

        return read

    def _load_index(self, block: MsgBlock) -> BlockIndex:
        """Where the messages of a block lie, from its sidecar if that still speaks of this state of it."""
        part = self._parts[block.id]
        if part.block.index is not None:
            return part.block.index
        assert part.sidecar is not None
        envelope = envelope_of(block.header, self.keys, block.path)
        with self.files.open(f"{self.directory}/{sidecar_name(block.id)}") as source:
            head = source.pread(0, HEAD_SIZE)
            stored = source.pread(part.sidecar.index_start, part.sidecar.index_stored_size + 8)
        sidecar = decode_head(head, block.seed)
        same = sidecar is not None and (sidecar.block_id, sidecar.generation) == (block.id, block.header.generation)
        found = decode_index(part.sidecar, stored, block.seed, envelope) if same else None
        if found is None:
            raise CorruptBlock(block.path, 0, "its sidecar was replaced or damaged since the directory was looked at")
        return found[0]


def pinned(file: File, header: BlockHeader, files: Files, keys: Sequence[KeySource]) -> ReadOnlyBlockFile:
    """A block's file by a descriptor that is open: it stays the same file even when its name gets another one."""
    block_file = ReadOnlyBlockFile(files, file.path, header, envelope_of(header, keys, file.path))
    block_file._file = file
    return block_file


def _header(file: File, path: str) -> BlockHeader | None:
    try:
        return decode_header(file.pread(0, HEADER_SIZE))
    except ValueError as error:
        raise CorruptBlock(path, 0, str(error)) from error


def _block_paths(directory: str, names: Sequence[str]) -> dict[int, str]:
    """Where each block lies. One that is being erased from may be without its name for a moment: see `rewrite.py`."""
    paths: dict[int, str] = {}
    for suffix in (".shred", ".new", ""):
        for name in names:
            block_id = parse_block_name(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if block_id is not None:
                paths[block_id] = f"{directory}/{name}"
    return paths


def _part_of_sidecar(header: BlockHeader, path: str, sidecar: Sidecar) -> _Part:
    block = MsgBlock(header, path)
    block.last_seq, block.last_hash = sidecar.last_seq, sidecar.last_hash
    block.gone, block.lost = sidecar.gone, sidecar.lost
    block.size, block.floor_seq = sidecar.size, sidecar.floor_seq
    block.time_ns_min, block.time_ns_max = sidecar.time_ns_min, sidecar.time_ns_max
    block.body_size = block.written_size = block.synced_size = sidecar.body_size
    block.sealed, block.expiring = True, sidecar.expiring
    return _Part(block, sidecar, sidecar.groups)


def _put_together(parts: list[_Part], checkpoint: Checkpoint | None) -> Catalog:
    """What the whole stream holds: each block less what others, the floor and the checkpoint say of it."""
    catalog = Catalog()
    truncate_seq = checkpoint.truncate_seq if checkpoint is not None else None
    floor_seq = max((part.block.floor_seq for part in parts), default=1)
    if checkpoint is not None and truncate_seq is None:
        floor_seq = max(floor_seq, checkpoint.first_seq)
    blocks = {part.key: _copy(part.block) for part in parts}
    gone, lost, explained = _hear_groups(parts, blocks)
    if checkpoint is not None:
        lost.update(checkpoint.lost_seqs)
        for block in blocks.values():
            _remove(block, checkpoint.gone_seqs)
    expected = max(floor_seq, 1)
    for block in blocks.values():
        lost.update(block.lost)
        if block.first_seq > expected:
            lost.update(SequenceSet(gone.gaps(expected, block.first_seq - 1)))
        expected = max(expected, block.last_seq + 1)
        if block.first_seq <= min(floor_seq - 1, block.last_seq):
            block.gone.add_range(block.first_seq, min(floor_seq - 1, block.last_seq))
    last_seq = expected - 1
    if truncate_seq is not None:
        _truncate(blocks.values(), truncate_seq)
        last_seq = min(last_seq, truncate_seq)
    elif checkpoint is not None:
        end_seq = checkpoint.end_seq(parts[-1].block.id if parts else 0)
        if end_seq > last_seq:  # its end is missing
            lost.update(SequenceSet(checkpoint.gone_seqs.gaps(last_seq + 1, end_seq)))
            last_seq = end_seq
    lost.difference_update(explained)
    if floor_seq > 0:
        lost.remove_range(0, floor_seq - 1)
    catalog.blocks = [block for block in blocks.values() if block.message_count]
    catalog.lost, catalog.last_seq, catalog.first_seq = lost, last_seq, floor_seq
    catalog.size = sum(block.size for block in catalog.blocks)
    catalog.last_time_ns = max((block.time_ns_max for block in catalog.blocks), default=0)
    following = catalog.next_live(floor_seq)
    catalog.first_seq = last_seq + 1 if following is None else following
    return catalog


def _hear_groups(
    parts: list[_Part], blocks: dict[tuple[int, int], MsgBlock]
) -> tuple[SequenceSet, SequenceSet, SequenceSet]:
    """Remove from each block what tombstones say: what is gone with its block, what is lost, what was meant to go."""
    generations = dict(blocks.keys())
    gone, lost, explained = SequenceSet(), SequenceSet(), SequenceSet()
    for part in parts:
        for group in [*part.groups, *part.erases]:
            if group.block_id:
                block = blocks.get((group.block_id, group.generation))
                if block is not None:
                    _remove(block, group.seqs)
                    explained.update(group.seqs)
                elif group.generation > generations.get(group.block_id, group.generation):
                    raise _Changed  # the block was written anew since it was read
            elif group.kind == LOST:
                lost.update(group.seqs)
            else:
                gone.update(group.seqs)
    explained.update(gone)
    known = gone.copy()
    known.update(lost)
    for block in blocks.values():
        _remove(block, known)
    return known, lost, explained


def _copy(block: MsgBlock) -> MsgBlock:
    """A block whose live sequences can be changed without touching what is cached of it."""
    copy = MsgBlock(block.header, block.path)
    for name in ("last_seq", "last_hash", "size", "time_ns_min", "time_ns_max", "body_size", "floor_seq", "sealed"):
        setattr(copy, name, getattr(block, name))
    copy.gone, copy.lost, copy.index = block.gone.copy(), block.lost.copy(), block.index
    copy.written_size = copy.synced_size = block.body_size
    return copy


def _remove(block: MsgBlock, seqs: SequenceSet) -> None:
    for first, last in seqs.ranges_between(block.first_seq, block.last_seq):
        block.gone.add_range(first, last)


def _truncate(blocks: Iterable[MsgBlock], seq: int) -> None:
    """A truncation is under way: what lies after it is gone already."""
    for block in blocks:
        if block.last_seq > seq:
            block.gone.add_range(max(block.first_seq, seq + 1), block.last_seq)
