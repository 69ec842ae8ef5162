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
    it shows a state that the stream was in at one moment of the refresh

For the last one, the files are read in this order, whatever the server does between two reads:
    1. the checkpoint. What it knows of the last sequence, the blocks that are read later know too.
    2. sealed blocks, newest first. A tombstone lies in a later block than the messages it removes, and goes when its
       block is written anew after theirs: so it is seen, or the block that it speaks of is seen without the messages.
    3. the last block, and blocks that were begun meanwhile. They say what was removed from the others up to now, and
       have the messages that took the place of what left the others up to now.
    4. the checkpoint again, which tells whether messages were undone meanwhile (a truncation): then all is read anew.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from jetlake.errors import CorruptBlock, StoreError
from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.block_file import envelope_of
from jetlake.store.blocks.block_scan import read_body, scan_block
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.blocks.checkpoint import Checkpoint, read_checkpoint
from jetlake.store.blocks.envelope import KeySource
from jetlake.store.blocks.identity import Identity, identify
from jetlake.store.blocks.removal import LOST, RemovalGroup
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.blocks.sidecar import HEAD_SIZE, Sidecar, decode_head, decode_index, decode_summary
from jetlake.store.disk.files import OS_FILES, File, Files
from jetlake.store.format import (
    HEADER_SIZE,
    MORE,
    NO_STREAM,
    BlockHeader,
    decode_header,
    parse_block_name,
    sidecar_name,
)
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.scan import scan
from jetlake.store.redo.at_rest import check_at_rest
from jetlake.store.verify.check_block import SIZES, ReadOnlyBlockFile

# How often a refresh begins anew because a file went away under it.
_ATTEMPTS_MAX = 20
# How often it looks for blocks that were begun meanwhile, before it leaves the newest for the next refresh.
_FOLLOWED_MAX = 20
_NO_SYNC = (errno.EROFS, errno.EINVAL, errno.ENOTSUP)


class _Changed(Exception):
    """The directory is no longer what it was when the refresh began."""


class BlockChanged(StoreError):
    """A block was dropped or written anew since the refresh."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: was dropped or written anew since the directory was looked at")
        self.path = path


@dataclass(slots=True)
class _Part:
    """A block by itself: what its own file says, whatever others say of it."""

    block: MsgBlock
    sidecar: Sidecar | None = None  # None: it was scanned
    head: bytes = b""  # of the sidecar's file: erasing and rewriting change it
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
        self.foreign: list[str] = []  # the blocks that belong to other streams
        self._sealer = Sealer(keys=keys)
        self._identity = Identity(NO_STREAM, None)
        self._sync = sync
        self._parts: dict[int, _Part] = {}

    def refresh(self) -> Catalog:
        """Look again; FileNotFoundError when the directory is not there, StoreError when a server must finish it."""
        if not self._parts:
            check_at_rest(self.files, self.directory)
        lost = self.catalog.lost
        for _ in range(_ATTEMPTS_MAX):
            checkpoint = read_checkpoint(self.files, self.directory, self._sealer)
            paths = self._block_paths()
            try:
                self._identity, self.foreign = identify(checkpoint, self._headers(paths)), []
                parts = self._read(paths)
                _check_nothing_undone(checkpoint, read_checkpoint(self.files, self.directory, self._sealer))
                catalog = _put_together(parts, checkpoint)
            except (_Changed, FileNotFoundError):
                continue
            if catalog.lost != lost:  # a file that is being erased or removed looks damaged: look twice
                lost = catalog.lost
                continue
            self.catalog.close()
            self.catalog = catalog
            self.catalog.load_index = self._load_index
            for block in self.catalog.blocks:
                block.read_body = self._body_reader(block)
            self.foreign = sorted(set(self.foreign))
            self.damage = [f"{path}: is a block of another stream" for path in self.foreign]
            self.damage += [text for part in parts for text in part.damage]
            self._parts = {part.block.id: part for part in parts}
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

    def _headers(self, paths: dict[int, str]) -> Iterator[BlockHeader]:
        for path in paths.values():
            with self.files.open(path) as file:
                header = header_of(file)
            if header is not None:
                yield header

    def _read(self, paths: dict[int, str]) -> list[_Part]:
        """Every block, oldest first: the sealed ones read newest first, then the end."""
        *sealed, last_id = sorted(paths) or [0]
        parts = {block_id: self._part(block_id, paths[block_id], is_end=False) for block_id in reversed(sealed)}
        ends = [last_id] if paths else []
        for _ in range(_FOLLOWED_MAX):
            for block_id in ends:
                part = parts[block_id] = self._part(block_id, paths[block_id], is_end=True)
                if part is not None and block_id < ends[-1] and part.key[1]:
                    raise _Changed  # it may have been written anew after blocks that were read before that
            paths = self._block_paths()
            ends = [block_id for block_id in sorted(paths) if block_id >= last_id]
            if not ends or ends[-1] == last_id:
                break
            last_id = ends[-1]
        if self._sync and parts.keys() - self._parts.keys():
            self._settle(self.directory)
        return [part for _, part in sorted(parts.items()) if part is not None]

    def _block_paths(self) -> dict[int, str]:
        return _block_paths(self.directory, self.files.list(self.directory))

    def _part(self, block_id: int, path: str, *, is_end: bool) -> _Part | None:
        """What is known of a block, read anew as far as it may have changed; None when it is none of the stream's.

        At the end of the stream blocks are scanned: only their records tell of erasures, and the last may have grown.
        """
        known = self._parts.get(block_id)
        is_sealed = known is not None and known.sidecar is not None and not is_end
        if known is not None and is_sealed and known.head == self._sidecar_head(block_id):
            return known
        with self.files.open(path) as file:
            header = header_of(file)
            if header is None or header.block_id != block_id:
                return None
            if not self._identity.owns(header):
                self.foreign.append(path)
                return None
            part = None if is_end else self._part_of_sidecar(file, header, path)
            if part is not None:
                return part
            is_scanned = known is not None and known.sidecar is None and known.block.header == header
            if known is not None and is_scanned and self._advance(known, file):
                return known
            return self._scan(file, header, path)

    def _sidecar_head(self, block_id: int) -> bytes:
        """The bytes of the head of a block's sidecar; none when it has none."""
        try:
            with self.files.open(f"{self.directory}/{sidecar_name(block_id)}") as source:
                return source.pread(0, HEAD_SIZE)
        except FileNotFoundError:
            return b""

    def _part_of_sidecar(self, file: File, header: BlockHeader, path: str) -> _Part | None:
        """What the sidecar of a block says, when it is sound and speaks of the block as it is."""
        try:
            with self.files.open(f"{self.directory}/{sidecar_name(header.block_id)}") as source:
                head = source.pread(0, HEAD_SIZE)
                sidecar = decode_head(head, header.hash_seed)
                if sidecar is None or (sidecar.generation, sidecar.file_size) != (header.generation, file.size()):
                    return None
                summary = source.pread(HEAD_SIZE, sidecar.summary_stored_size + 8)
        except FileNotFoundError:
            return None
        envelope = envelope_of(header, self.keys, file.path)
        if not decode_summary(sidecar, summary, header.hash_seed, envelope):
            return None
        block = MsgBlock(header, path)
        sidecar.fill(block)
        return _Part(block, sidecar, head, sidecar.groups)

    def _scan(self, file: File, header: BlockHeader, path: str) -> _Part:
        """Know a block by its records."""
        block = MsgBlock(header, path)
        source = pinned(file, header, self.files, self.keys)
        body = read_body(source)
        scanned = scan_block(block, source, body, SubjectTable(), SIZES)
        self._settle(file)
        damage = [f"{path}: {text}" for text in scanned.damage]
        return _Part(block, None, b"", block.groups, scanned.erases, damage, body.file_size)

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
        is_whole = is_whole and not (found.offsets and data[found.offsets[-1]] & MORE)  # of an atomic batch
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
                with self._open_same(block) as file:
                    source = pinned(file, block.header, self.files, self.keys)
                    if source.envelope.is_plain:
                        return file.pread(HEADER_SIZE + start, end - start)
                    frames.append(read_body(source).data)
            return bytes(frames[0][start:end])

        return read

    def _open_same(self, block: MsgBlock) -> File:
        """The file of a block; BlockChanged when it is no longer the one that was looked at."""
        try:
            file = open_block_file(self.files, block.path)
        except FileNotFoundError:
            raise BlockChanged(block.path) from None
        if header_of(file) != block.header:
            file.close()
            raise BlockChanged(block.path)
        return file

    def _load_index(self, block: MsgBlock) -> BlockIndex:
        """Where the messages of a block lie, from its sidecar if that is still of this state of it, or by a scan."""
        part = self._parts[block.id]
        if part.block.index is not None:
            return part.block.index
        assert part.sidecar is not None
        try:
            with self.files.open(f"{self.directory}/{sidecar_name(block.id)}") as source:
                head = source.pread(0, HEAD_SIZE)
                stored = source.pread(part.sidecar.index_start, part.sidecar.index_stored_size + 8)
        except FileNotFoundError:
            head = b""
        envelope = envelope_of(block.header, self.keys, block.path)
        found = decode_index(part.sidecar, stored, block.seed, envelope) if head == part.head else None
        if found is not None:
            return found[0]
        with self._open_same(block) as file:
            index = self._scan(file, block.header, block.path).block.index
        assert index is not None
        return index


def open_block_file(files: Files, path: str) -> File:
    """Open a block's file to read; FileNotFoundError when it was dropped. While it is erased from, it has another name.

    See `rewrite.py`: the new file is there as `.new` before the old one loses its name, and then gets that name.
    """
    path = path.removesuffix(".new").removesuffix(".shred")
    for name in (path, f"{path}.new"):
        with suppress(FileNotFoundError):
            return files.open(name)
    return files.open(path)


def pinned(file: File, header: BlockHeader, files: Files, keys: Sequence[KeySource]) -> ReadOnlyBlockFile:
    """A block's file by a descriptor that is open: it stays the same file even when its name gets another one."""
    block_file = ReadOnlyBlockFile(files, file.path, header, envelope_of(header, keys, file.path))
    block_file._file = file
    return block_file


def header_of(file: File) -> BlockHeader | None:
    """The header of a block; None when both copies are damaged."""
    try:
        return decode_header(file.pread(0, HEADER_SIZE))
    except ValueError as error:
        raise CorruptBlock(file.path, 0, str(error)) from error


def _block_paths(directory: str, names: Sequence[str]) -> dict[int, str]:
    """Where each block lies. One that is being erased from may be without its name for a moment: see `rewrite.py`."""
    paths: dict[int, str] = {}
    for suffix in (".shred", ".new", ""):
        for name in names:
            block_id = parse_block_name(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if block_id is not None:
                paths[block_id] = f"{directory}/{name}"
    return paths


def _check_nothing_undone(before: Checkpoint | None, after: Checkpoint | None) -> None:
    """Raise _Changed when a truncation began or ended between two looks at the checkpoint, or the stream was replaced.

    Otherwise it stays as it was, or was written again, with the same last sequence or a higher one.
    """
    if after == before:
        return
    last_seq, truncations = (before.last_seq, before.truncations) if before is not None else (0, 0)
    is_truncated = any(checkpoint is not None and checkpoint.truncate_seq is not None for checkpoint in (before, after))
    if after is None or after.last_seq < last_seq or after.truncations != truncations or is_truncated:
        raise _Changed
    if before is not None and after.stream_id != before.stream_id:
        raise _Changed


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
                    (lost if group.kind == LOST else explained).update(group.seqs)
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
