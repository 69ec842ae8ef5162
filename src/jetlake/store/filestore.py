"""FileStore: a stream's messages in block files, durable as configured.

    with FileStore("orders") as store:
        seq = store.append("orders.eu", b"...")     # on disk when it returns
        store.load(seq).payload

A directory holds one stream and is open for writing in one process at a time. With `autocommit=False` changes are
staged until `commit`, or, to keep the disk out of the caller's thread, `prepare_commit`, `Commit.run` and
`complete_commit`: see `commit.py`. After a failed write or sync the store is frozen: reads go on, writes raise
StoreFrozen, and only opening it again finds out what the disk holds.
"""

from __future__ import annotations

import errno
import os
import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from jetlake.clock import SECOND_NS, Clock, system_clock
from jetlake.errors import BadRequest, CorruptBlock, StoreFrozen
from jetlake.store.api import StreamLimits
from jetlake.store.blocks.block import CACHED_CHUNKS_MAX, BlockIndex, MsgBlock
from jetlake.store.blocks.block_file import BlockFile, envelope_of, frame_cuts, is_under, key_of
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.blocks.checkpoint import Checkpoint, write_checkpoint
from jetlake.store.blocks.envelope import Cipher, key_check
from jetlake.store.blocks.removal import ERASE, LOST, REMOVED, RemovalGroup, decode_group
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.blocks.sidecar import Seal, seal
from jetlake.store.disk import maintenance
from jetlake.store.disk.commit import (
    LOGGED_SIZE_MAX,
    SMALL_SIZE_MAX,
    UNSYNCED_SIZE_MAX,
    BlockWrite,
    Commit,
    Floor,
    Mark,
    SmallCommit,
    remove_block,
)
from jetlake.store.disk.compaction import dead_part
from jetlake.store.disk.file_options import FileOptions
from jetlake.store.disk.files import OS_FILES, Files, is_no_space
from jetlake.store.disk.legacy import migrate
from jetlake.store.disk.recover import load_index, outward_groups, rebuild_sidecar, recover, sidecar_without
from jetlake.store.disk.rewrite import Rewrite
from jetlake.store.engine import BlockStore
from jetlake.store.format import (
    CHECKPOINT_NAME,
    FLOOR,
    LOCK_NAME,
    NO_STREAM,
    SALT_SIZE,
    TOMBSTONE,
    TREE_LOCK_NAME,
    BlockHeader,
    block_name,
)
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.locked import locked
from jetlake.store.queries import ALL, Queries
from jetlake.store.records.record import Record, encode
from jetlake.store.redo.at_rest import check_at_rest
from jetlake.store.redo.redo_log import RedoLog
from jetlake.store.retention.expiry import Expiry

_TREE_DEPTH_MAX = 4  # how far above a stream's directory the lock of a server may lie
# A sealed block is rewritten without its dead messages when more than this part of it is dead.
_DEAD_PART_MAX = 0.5
# A sealed block whose frames are smaller than this on average is rewritten in larger ones.
_FRAME_SIZE_MIN = 16 * 1024
# How many sequences the checkpoint allows for beyond the last one. In a busy stream it is written about so often.
_RESERVE_COUNT_MIN, _RESERVE_COUNT_MAX = 256, 1 << 22
_RESERVE_PERIOD_NS = 10 * SECOND_NS


class FileStore(BlockStore):
    """The contract of `api.StreamStore`, in files."""

    size_fixed, size_headers = 30, 4
    rewrite_size_min = 256 * 1024  # smaller blocks are not worth rewriting

    def __init__(
        self,
        directory: str | os.PathLike[str],
        limits: StreamLimits = StreamLimits(),  # noqa: B008  frozen
        options: FileOptions = FileOptions(),  # noqa: B008  frozen
        *,
        first_seq: int = 1,
        files: Files = OS_FILES,
        clock: Clock = system_clock,
        autocommit: bool = True,
        tree_locked: bool = False,
        redo: RedoLog | None = None,
        is_new: bool = False,
        cut: tuple[int, int] | None = None,
    ) -> None:
        """`tree_locked`: the caller has the lock of a directory above, so that this one needs none for itself.

        `cut`: what the last checkpoint was told, the id of a block and an offset in its file, or (0, 0) when there was
        none yet. Everything after it is removed first, as if it had never been written.

        Small commits can be made through `redo`, which is that of `files`. One that `is_new` has no files yet: even its
        directory is made durable by its first commit, which is up to the caller.
        """
        self.directory = os.fspath(directory)
        super().__init__(
            self.directory, limits, block_size_max=options.block_size_max, clock=clock, autocommit=autocommit
        )
        self.options, self.files, self.redo = options, files, redo
        self.block_files: dict[int, BlockFile] = {}
        self.frozen: BaseException | None = None
        self.store_salt = options.salt or secrets.token_bytes(SALT_SIZE)
        self.stream_id = NO_STREAM
        self.unmarked: dict[int, int] = {}  # of blocks without the id, the hash seeds: see `identity.py`
        self.is_new_identity = False  # whether the checkpoint has yet to be told
        self.truncations = 0
        self._committing = False
        self._is_first = is_new  # whether its next commit is the first
        self._synced_at_ns = clock()
        self._cut = cut
        if is_new:
            files.make_dirs(self.directory, durable=False)
        elif files.exists(self.directory):
            files.sync_dir(os.path.dirname(self.directory) or ".")  # it may be there since a crash, and not durable
        else:
            files.make_dirs(self.directory)
        self._lock = files.lock(f"{self.directory}/{LOCK_NAME}")
        try:
            if tree_locked:
                self._lock.release()  # nobody else had it, and the caller's keeps out who comes from now on
            else:
                _check_tree(files, self.directory)
                check_at_rest(files, self.directory)
            self.reload(first_seq)
            migrate(self)
            if not options.by_checkpoint:  # else the log says what goes, and when
                self._apply_limits(clock())
            if not is_new:
                self._commit_opened()
            if options.convert and self.frozen is None and not options.by_checkpoint:
                maintenance.convert(self)
        except BaseException:
            self.release()
            raise
        if os.environ.get("JETLAKE_VERIFY"):
            self._verify()

    def reload(self, first_seq: int) -> None:
        """Forget everything and read it from disk."""
        if not self._is_first:
            self.files.settle(self.directory)
        self.catalog.close()
        self.catalog = Catalog()
        self.queries, self.expiry = Queries(self.catalog), Expiry(self)
        self.removals.clear()
        self.losses.clear()
        self.catalog.load_index, self.catalog.on_unreadable = self._load_index, self._meet_unreadable
        for file in self.block_files.values():
            file.release()
        self.block_files = {}
        self.torn_size = 0  # bytes of unfinished writes that recovery cut off
        self.damage: list[str] = []  # what was found unreadable, in words; not what `on_lost` was told
        self.durable_seq = self.logged_floor_seq = 0
        self._new: set[int] = set()  # blocks whose file is not made yet
        self._sealed: dict[int, Seal] = {}  # blocks whose sidecar is not written yet
        self._unsynced: dict[int, BlockFile] = {}  # nor in the redo log
        self.replaced: list[tuple[str, bytes]] = []  # other files that the next commit is to write
        self._has_new_names = False
        self._gone: list[tuple[MsgBlock, BlockFile]] = []  # blocks whose file is to go
        self._repeats: list[bytes] = []  # staged records of what is gone, which are to be staged once more
        self.reserved_seq = 0  # up to which the checkpoint allows for: see `_reserve`
        self._reserved_from_seq = self._reserved_at_ns = 0
        self._sparse: set[int] = set()  # sealed blocks to write anew
        self._erasing: set[int] = set()  # of those, the ones whose old file is to be shredded
        self._rewriting: Rewrite | None = None  # one of them, by the commit that is running
        self.scratch: bytearray | None = bytearray()  # for recovery, which lets go of it when blocks are open
        cut, self._cut = self._cut, None
        recover(self, first_seq, cut)
        self.durable_seq = self.catalog.last_seq

    def _commit_opened(self) -> None:
        """Commit what opening changed. On a full disk it can be read all the same; as ever, it is frozen then."""
        try:
            self.commit()
        except StoreFrozen:
            if not is_no_space(self.frozen) or self.options.by_checkpoint:
                raise
            if not (self.catalog.table.total or self.catalog.lost) and self.catalog.active.id not in self._new:
                self._empty_last()

    def _empty_last(self) -> None:
        """No message is left, and no room to say so: give back what the last block takes."""
        file, first_seq = self.block_files[self.catalog.active.id], self.catalog.first_seq
        file.stamp_floor(first_seq)
        file.drop_body()
        self.frozen = None
        self.reload(first_seq)
        self.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # Committing

    def commit(self, *, sync: bool | None = None) -> int:
        """Write what is staged, and sync it when that is due (or as told); the last durable sequence."""
        with self.lock:
            self._check_writable()
            try:
                if sync is None and self.commit_small():
                    return self.durable_seq
                commit = self.prepare_commit(sync=sync)
                if commit is not None:
                    commit.run()
            except Exception as error:
                self.fail_commit(error)
                raise StoreFrozen(self.name, error) from error
            if commit is not None:
                self.complete_commit(commit)
            return self.durable_seq

    def commit_small(self) -> bool:
        """Commit here and now, when that is nothing but a few bytes for the active block; False when it is more.

        The short way of one message that somebody waits for. An error means what it means in `Commit.run`.
        """
        with self.lock:
            self._check_writable()
            catalog = self.catalog
            block = catalog.blocks[-1]
            start, end = block.written_size, block.body_size
            sync = self._is_sync_due()
            size_max = SMALL_SIZE_MAX if sync else UNSYNCED_SIZE_MAX
            if not 0 < end - start <= size_max or not self._is_small():
                return False
            if sync and (self._has_new_names or self._unsynced):
                return False
            assert not self._committing, "one commit at a time"
            file = self.block_files[block.header.block_id]
            file.append(block.pending(), start, self._frame_cuts(block, file), block.last_seq, reserve=sync)
            block.written_size, block.written_seq = end, block.last_seq
            if sync:
                file.sync()
                block.synced_size = end
                self._synced_at_ns = self.clock()
            else:
                self._unsynced[block.header.block_id] = file
            if len(block.chunks) > CACHED_CHUNKS_MAX:
                block.trim_chunks()
            self.durable_seq = catalog.last_seq
            return True

    def _is_small(self) -> bool:
        """Whether there is nothing to write but records for the active block."""
        if self._new or self._sealed or self._repeats or self.replaced:
            return False
        if (self._gone or self._sparse) and not self.options.by_checkpoint:
            return False
        if self.removals or self.losses or self.is_new_identity:
            return False
        return self.catalog.floor_seq <= self.logged_floor_seq and self.catalog.last_seq <= self.reserved_seq

    def prepare_small(self) -> SmallCommit | None:
        """What `prepare_commit` hands out, in short; None when there is nothing to write, or more than some records."""
        with self.lock:
            self._check_writable()
            block = self.catalog.blocks[-1]
            start, end = block.written_size, block.body_size
            if not 0 < end - start <= LOGGED_SIZE_MAX or not self._is_small():
                return None
            sync = self._is_sync_due()
            redo = self.redo if sync else None
            if sync and (self._has_new_names or self._unsynced):
                return None
            assert not self._committing, "one commit at a time"
            self._committing = True
            file = self.block_files[block.header.block_id]
            cuts = self._frame_cuts(block, file)
            return SmallCommit(block, file, block.pending(), start, end, cuts, block.last_seq, sync, redo)

    def complete_small(self, commit: SmallCommit) -> int:
        """Take note that a small commit was carried out; the last durable sequence."""
        with self.lock:
            self._committing = False
            block = commit.block
            block.written_size, block.written_seq = commit.end, commit.last_seq
            if commit.sync:  # or the log has it
                block.synced_size = commit.end
                if not commit.is_logged:
                    self._synced_at_ns = self.clock()
            elif self.block_files.get(block.id) is commit.file:
                self._unsynced[block.id] = commit.file
            if len(block.chunks) > CACHED_CHUNKS_MAX or block.sealed:
                block.trim_chunks(0 if block.sealed else CACHED_CHUNKS_MAX)
            self.durable_seq = commit.last_seq
            return self.durable_seq

    def prepare_checkpoint(self, before_drop: Mark) -> Commit:
        """A commit that makes everything durable, and tells `before_drop` how far that is, in the thread that runs it.

        When that returns, it must be durable that a store which is opened again is to be cut there: then blocks go, and
        one is rewritten.
        """
        assert self.options.by_checkpoint
        commit = self.prepare_commit(sync=True, before_drop=before_drop)
        assert commit is not None
        return commit

    def prepare_commit(self, *, sync: bool | None = None, before_drop: Mark | None = None) -> Commit | None:
        """Everything that is staged and not yet on its way to the disk; None when there is nothing to do."""
        with self.lock:
            may_drop = before_drop is not None or not self.options.by_checkpoint
            self._check_writable()
            assert not self._committing, "one commit at a time"
            if self.losses:
                self._let_go_of_lost()
            self._stage_removals()
            sync, rewrite = self._is_sync_due() if sync is None else sync, self._begin_rewrite() if may_drop else None
            if may_drop and (self._gone or rewrite is not None) and self.options.sync != "never":
                sync = True  # what says that messages are gone must be durable before they go
            sync = sync or bool(self.replaced)
            catalog = self.catalog
            commit = Commit(self.files, self.directory, self.sealer, sync, catalog.last_seq)
            for block in reversed(catalog.blocks):
                if not (block.pending_size or block.id in self._new or block.id in self._sealed):
                    break  # the ones before it have nothing to write either
                commit.writes.insert(0, self._block_write(block))
            commit.before_drop, commit.active = before_drop, self.block_files[catalog.active.id]
            if may_drop:
                commit.floor = self._floor()
                self._add_gap_writes(commit.writes)
            commit.has_new_names = bool(self._new) or self._has_new_names
            if sync:
                commit.unsynced = list(self._unsynced.values())
            if self._sealed or self.is_new_identity or catalog.last_seq > self.reserved_seq:
                commit.checkpoint = self._reserve()
            if may_drop:
                commit.dropped, self._gone = [file for _, file in self._gone], []
            commit.rewrite = rewrite
            commit.replaced, self.replaced, commit.is_first = self.replaced, [], self._is_first
            if self.redo is not None and before_drop is None:
                commit.log_by(self.redo)
            written = commit.writes or commit.checkpoint or commit.replaced
            if not (written or commit.unsynced or commit.dropped or rewrite or before_drop):
                self.durable_seq = catalog.last_seq
                return None
            self._committing = True
            return commit

    def complete_commit(self, commit: Commit) -> int:
        """Take note that a commit was carried out; the last durable sequence."""
        with self.lock:
            self._committing = False
            is_synced = commit.sync and not commit.is_logged
            self._is_first = self._is_first and not commit.sync  # if the log has it, that will do
            for write in commit.writes:
                block = write.block
                block.written_size, block.written_seq = write.end, write.last_seq
                self._new.discard(block.id)
                if self.block_files.get(block.id) is not write.file:
                    continue  # it was dropped, before or meanwhile
                if commit.sync:
                    block.synced_size = write.end
                elif write.parts or write.is_new:
                    self._unsynced[block.id] = write.file
                assert block.synced_size <= block.written_size <= block.body_size
                if write.sealed is not None:
                    self._sealed.pop(block.id, None)
                    write.file.release()
                    self.catalog.let_go(block)
                    if self._is_choppy(block, write.file):
                        self._sparse.add(block.id)
                block.trim_chunks(0 if block.sealed else CACHED_CHUNKS_MAX)
            if not commit.is_logged:
                self._has_new_names = commit.has_new_names and not commit.sync
            if commit.checkpoint is not None:
                self.is_new_identity = False
            if is_synced:
                for file in commit.unsynced:
                    self._unsynced.pop(file.header.block_id, None)
                self._synced_at_ns = self.clock()
            if commit.sync or self.options.sync != "always":
                self.durable_seq = commit.last_seq
            if commit.rewrite is not None:
                self.adopt(commit.rewrite)
                if commit.rewrite.block.id in self.block_files:
                    self._after_removal(commit.rewrite.block)  # of what left meanwhile
            return self.durable_seq

    @locked
    def fail_commit(self, error: BaseException) -> None:
        """A commit failed: refuse further writes, for what the disk holds is unknown."""
        self._committing = False
        self.frozen = error

    @property
    def has_more(self) -> bool:
        """Whether another commit has work to do even if nothing changes: blocks that are worth rewriting."""
        return bool(self._sparse) and self.frozen is None and not self.options.by_checkpoint

    def next_sync_ns(self) -> int | None:
        """When what was written has to be synced; None when it is, or nobody asked for it."""
        if isinstance(self.options.sync, str) or not self._unsynced:
            return None
        return self._synced_at_ns + round(self.options.sync * SECOND_NS)

    def _is_sync_due(self) -> bool:
        sync = self.options.sync
        if isinstance(sync, str):
            return sync == "always"
        return self.clock() - self._synced_at_ns >= sync * SECOND_NS

    def _block_write(self, block: MsgBlock) -> BlockWrite:
        file = self.block_files[block.id]
        return BlockWrite(
            block,
            file,
            block.pending(),
            block.written_size,
            block.body_size,
            self._frame_cuts(block, file),
            block.last_seq,
            block.id in self._new,
            self._sealed.get(block.id),
            self.catalog.index(block),
        )

    def _frame_cuts(self, block: MsgBlock, file: BlockFile) -> list[int]:
        """Where frames of what is staged have to end."""
        if file.envelope.is_plain:
            return []
        index, start, cuts = self.catalog.index(block), block.written_size, list[int]()
        for end in (*block.frame_ends, block.body_size):
            if end > start:
                cuts += frame_cuts(index.offsets, index.count, start, end)
                start = end
        block.frame_ends.clear()
        return cuts

    def _stage_removals(self) -> None:
        """Log what was removed since the last commit: tombstones, and the floor when it moved.

        All of it is staged twice, the second time in a frame of its own where there are frames: one damaged byte must
        not bring back what was deleted. Once a block is sealed, its sidecar is the second copy.
        """
        for group in (*self.removals.values(), *self.losses.values()):
            self._stage_group(group)
        self.removals.clear()
        self.losses.clear()
        floor_seq, block = self.catalog.floor_seq, self.catalog.active
        if floor_seq > self.logged_floor_seq:
            if floor_seq > block.floor_seq:
                self._stage_log(Record(FLOOR, b"", b"", b"", floor_seq, self._now()))
                block.floor_seq = floor_seq
            self.logged_floor_seq = floor_seq
        if self._repeats:
            block.frame_ends.append(block.body_size)
            for record in self._repeats:
                block.stage(record)
            self._repeats.clear()

    def _stage_log(self, record: Record) -> None:
        """Stage a record that says what is gone; `_stage_removals` stages it once more."""
        block = self.catalog.active
        data = encode(record, block.seed)
        block.stage(data)
        self._repeats.append(data)

    def _stage_group(self, group: RemovalGroup) -> None:
        block, payload = self.catalog.active, group.encode()
        self._stage_log(Record(TOMBSTONE, b"", b"", payload, group.seqs.first, self._now()))
        if group.block_id != block.id and group.kind != ERASE:
            block.groups.append(decode_group(payload))  # without its subjects as objects

    def _checkpoint(self) -> Checkpoint:
        catalog = self.catalog
        return Checkpoint(
            first_seq=catalog.floor_seq,
            last_seq=catalog.last_seq,
            last_time_ns=catalog.last_time_ns,
            msgs=catalog.table.total,
            bytes=catalog.size,
            lost=list(catalog.lost.ranges()),
            truncations=self.truncations,
            stream_id=self.stream_id.hex(),
            unmarked=list(self.unmarked.items()),
            block_id=catalog.active.id,
            reserved_seq=catalog.last_seq,
        )

    def _reserve(self) -> Checkpoint:
        """A checkpoint that allows for more sequences: few in a quiet stream, enough for seconds in a busy one."""
        last_seq, now_ns, checkpoint = self.catalog.last_seq, self.clock(), self._checkpoint()
        count = 0
        if not self._reserved_at_ns:  # the first one: keep what the checkpoint that it replaces knew
            checkpoint.gone = list(self.catalog.gone().ranges())
        elif now_ns - self._reserved_at_ns < _RESERVE_PERIOD_NS:
            count = 2 * (last_seq - self._reserved_from_seq)
        self._reserved_from_seq, self._reserved_at_ns = last_seq, now_ns
        self.reserved_seq = last_seq + min(max(count, _RESERVE_COUNT_MIN), _RESERVE_COUNT_MAX)
        checkpoint.reserved_seq = self.reserved_seq
        return checkpoint

    def _floor(self) -> Floor | None:
        """How to make room if the disk is full; None when the oldest blocks go because of messages that are new."""
        catalog = self.catalog
        if not self._gone or catalog.last_seq > self.durable_seq or self.options.by_checkpoint:
            return None
        block, file = catalog.active, self.block_files[catalog.active.id]
        is_going = block.id in self._new
        if is_going:
            block, file = max(self._gone, key=lambda gone: gone[0].id)
        if block.sealed or block.id in self._new or file.is_secret:
            return None
        files = [other for gone, other in self._gone if gone is not block and gone.last_seq < catalog.floor_seq]
        return Floor(catalog.floor_seq, file, is_going, files)

    def _add_gap_writes(self, writes: list[BlockWrite]) -> None:
        """Blocks that are gone before all of their sequences reached the disk: let them say that those are gone.

        What says so otherwise is written after the blocks between, and until then it would look as if a block had been
        lost. Sequences that were acknowledged are not named: the reason why they are gone may not be durable yet.
        """
        for block, file in sorted(self._gone, key=lambda gone: gone[0].id, reverse=True):
            place = bisect_left(writes, block.id, key=lambda write: write.block.id)
            is_new = block.id in self._new
            self._new.discard(block.id)
            # Nobody misses it where no block follows, or where the floor of the next one explains it.
            explained_seq = writes[place].block.header.floor_seq - 1 if place < len(writes) else block.last_seq
            if (is_new or block.pending_size) and max(block.written_seq, explained_seq) < block.last_seq:
                writes.insert(place, self._gap_write(block, file, is_new))

    def _gap_write(self, block: MsgBlock, file: BlockFile, is_new: bool) -> BlockWrite:
        seqs = SequenceSet([(block.written_seq + 1, block.last_seq)])
        rest = MsgBlock(block.header, block.path)
        rest.body_size = rest.written_size = rest.synced_size = start = block.written_size
        payload = RemovalGroup(0, 0, seqs).encode()
        rest.stage(encode(Record(TOMBSTONE, b"", b"", payload, seqs.first, self._now()), block.seed))
        end, index = rest.body_size, BlockIndex(self.catalog.table)
        return BlockWrite(rest, file, rest.pending(), start, end, [end], block.last_seq, is_new, None, index)

    # Blocks

    def add_block(self, block_id: int) -> None:
        """Start a new block at the next sequence; its file is made by the next commit."""
        catalog = self.catalog
        header = self.new_header(
            block_id, 0, catalog.last_seq + 1, catalog.floor_seq, catalog.last_time_ns, secrets.randbits(64)
        )
        block = MsgBlock(header, f"{self.directory}/{block_name(block_id)}")
        block.index = BlockIndex(catalog.table)
        self.attach(block)
        self._new.add(block_id)
        self._repeats.clear()  # none is left, unless the new block's floor says more
        self.logged_floor_seq = max(self.logged_floor_seq, catalog.floor_seq)
        catalog.blocks.append(block)

    def new_header(
        self, block_id: int, generation: int, first_seq: int, floor_seq: int, last_time_ns: int, seed: int
    ) -> BlockHeader:
        """A header for new bytes, with a key of its own."""
        options = self.options
        header = BlockHeader(
            options.compression,
            options.cipher,
            block_id,
            generation,
            first_seq,
            floor_seq,
            last_time_ns,
            seed,
            stream_id=self.stream_id,
        )
        if options.cipher is Cipher.NONE:
            return header
        header = header._replace(store_salt=self.store_salt, block_salt=secrets.token_bytes(SALT_SIZE))
        return header._replace(key_check=key_check(key_of(header, options.keys[0])))

    def attach(self, block: MsgBlock) -> BlockFile:
        """Connect a block with its file."""
        file = BlockFile(self.files, block.path, block.header, envelope_of(block.header, self.options.keys, block.path))
        self._connect(block, file)
        return file

    def _connect(self, block: MsgBlock, file: BlockFile) -> None:
        self.block_files[block.id] = file

        def read_body(start: int, end: int) -> bytes:
            try:
                return file.read(start, end)
            except CorruptBlock:
                return b""
            except OSError as error:
                if error.errno != errno.EIO:  # a sector that the disk cannot read
                    raise
                return b""

        block.read_body = read_body

    def reattach(self, block: MsgBlock, erased_seq: int, erased_size: int) -> None:
        """A message was overwritten in a sealed block's file: open that again, and write its sidecar anew."""
        index = self.catalog.index(block)
        self.block_files[block.id].release()
        file = self.attach(block)
        self.catalog.forget(block)
        block.chunks = []
        sidecar = sidecar_without(self, block, file, erased_seq, erased_size)
        if sidecar is None:
            fresh = MsgBlock(block.header, block.path)
            sidecar = rebuild_sidecar(self, fresh, file)
            self._lose_missing(block, index, fresh.lost)
        block.index = None
        block.body_size = block.written_size = block.synced_size = sidecar.body_size
        block.last_hash = sidecar.last_hash

    def unreadable_at(self, block: MsgBlock, index: BlockIndex, position: int) -> range:
        """All messages of a damaged frame, but for those that are in memory still."""
        frame = self.block_files[block.id].damaged_frame(index.offsets[position])
        if frame is None:
            return super().unreadable_at(block, index, position)
        end = frame.plain_offset + frame.plain_size
        if block.chunks:
            end = min(end, block.chunks[0].base)
        first, stop = (bisect_left(index.offsets, offset, 0, index.count) for offset in (frame.plain_offset, end))
        return range(first, stop) if first <= position < stop else range(position, position + 1)

    def _readable_from(self, block: MsgBlock, offset: int) -> int:
        end = block.chunks[0].base if block.chunks else block.body_size
        return min(self.block_files[block.id].frame_after(offset, end), end)

    def _lose_missing(self, block: MsgBlock, index: BlockIndex, seqs: SequenceSet) -> None:
        """Messages turned out to be unreadable when their block was read or written anew; its sidecar says so."""
        for seq in seqs:
            if block.is_live(seq):
                position = index.position(seq)
                assert position >= 0, f"sequence {seq} is live but not in the index of block {block.id}"
                self._lose(block, index, range(position, position + 1), on_record=True)

    def _load_index(self, block: MsgBlock) -> BlockIndex:
        if self._rewriting is not None and self._rewriting.block is block:
            return self._rewriting.index  # what is on disk is about to be another one
        index, frames, missing = load_index(self, block)
        self.block_files[block.id].frames = frames
        if missing:
            block.index = index
            self._lose_unknown(block, missing)
        return index

    def _lose_unknown(self, block: MsgBlock, seqs: SequenceSet) -> None:
        """Messages of a block are lost, and their sidecar with them: find out by counting which subjects they had."""
        catalog, counts = self.catalog, Counter[bytes]()
        lost = SequenceSet(run for first, last in seqs.ranges() for run in block.live_runs(first, last))
        if not lost:
            return
        size = block.size * lost.count // block.message_count
        block.gone.update(lost)
        block.lost.update(lost)
        catalog.lost.update(lost)
        for other in catalog.blocks:
            index = catalog.index(other)
            live = (position for position in range(index.count) if other.is_live(index.seq(position)))
            counts.update(index.table.subject(index.ids[position]) for position in live)
        for slot in catalog.table.match(ALL):
            if (missing := catalog.table.count(slot) - counts[catalog.table.subject(slot)]) > 0:
                catalog.table.remove(slot, 0, missing)
        block.size -= size
        catalog.size -= size
        for seq in lost:
            self.expiry.forget(seq)
        if catalog.first_seq in lost:
            following = catalog.next_live(catalog.first_seq)
            catalog.first_seq = catalog.last_seq + 1 if following is None else following
        self._tell_lost(lost, block.path)

    def _rotate(self) -> None:
        """Seal the active block, with everything that was removed from it on record in it, and start the next."""
        self._stage_removals()
        block = self.catalog.active
        assert block.index is not None
        block.seal()
        block.index.trim()
        self._sealed[block.id] = seal(block, block.index)
        self.add_block(block.id + 1)

    def seal_active(self) -> None:
        """Go on in a new block; an active one without records makes way for it."""
        if self.catalog.active.body_size:
            self._rotate()
            return
        block = self.catalog.blocks.pop()
        self._dropped(block)
        self.add_block(block.id + 1)

    def _advance_first(self, seq: int) -> None:
        """As in `Retention`; where no message is left, the block that is being written to gives its room back, too."""
        super()._advance_first(seq)
        catalog = self.catalog
        is_empty = not (catalog.table.total or catalog.lost)
        if is_empty and catalog.active.body_size >= self.rewrite_size_min:
            dropped, catalog.blocks = catalog.blocks, []
            self.add_block(dropped[-1].id + 1)
            for block in dropped:
                catalog.forget(block)
                self.removals.pop(block.id, None)
                self._dropped(block)

    def _dropped(self, block: MsgBlock) -> None:
        file = self.block_files.pop(block.id)
        self._unsynced.pop(block.id, None)
        self._sealed.pop(block.id, None)
        self._sparse.discard(block.id)
        file.is_secret = block.id in self._erasing
        self._erasing.discard(block.id)
        block.chunks = []
        self._gone.append((block, file))  # also a new one: a commit may be about to make it

    def _note_dropped_middle(self, block: MsgBlock) -> None:
        """Put on record that a block's sequences are gone, and what its tombstones said of blocks that remain."""
        gone, lost = SequenceSet(), block.lost.copy()
        if block.last_seq >= block.first_seq:
            gone.add_range(block.first_seq, block.last_seq)
        gone.difference_update(lost)
        for group in outward_groups(self, block):
            if group.block_id:
                self._stage_group(group)
            else:
                (lost if group.kind == LOST else gone).update(group.seqs)
        for seqs, kind in ((gone, REMOVED), (lost, LOST)):
            if seqs:
                self._stage_group(RemovalGroup(0, 0, seqs, kind=kind))

    # Rewriting

    def _thinned(self, block: MsgBlock) -> None:
        if block.body_size >= self.rewrite_size_min and dead_part(block) > _DEAD_PART_MAX:
            self._sparse.add(block.id)

    def _is_choppy(self, block: MsgBlock, file: BlockFile) -> bool:
        """Was a block written in frames so small that neither compression nor encryption is worth much?"""
        return block.body_size >= self.rewrite_size_min and len(file.frames) * _FRAME_SIZE_MIN > block.body_size

    def rewrite_soon(self, blocks: Iterable[MsgBlock]) -> None:
        """Have sealed blocks written anew, one by each of the commits that follow."""
        self._sparse.update(block.id for block in blocks)

    def is_to_be_rewritten(self, block: MsgBlock) -> bool:
        """Whether a block waits to be written anew, or is being written."""
        return block.id in self._sparse or (self._rewriting is not None and self._rewriting.block is block)

    def _begin_rewrite(self) -> Rewrite | None:
        """Give back the room of dead messages, one block at a time: the one that has most of them.

        Unasked, a block is rewritten when half of it is dead, so what is copied is never more than what was removed.
        """
        ready = [
            block
            for block in (self.catalog.blocks if self._sparse else ())
            if block.id in self._sparse and block.id not in self._sealed and not block.pending_size
        ]
        if not ready:
            return None
        urgent = [block for block in ready if block.id in self._erasing]
        block = max(urgent or ready, key=lambda block: block.body_size - block.size)
        self._sparse.discard(block.id)
        self._rewriting = Rewrite(self, block, shred=bool(urgent))
        return self._rewriting

    def adopt(self, rewrite: Rewrite) -> None:
        """A block's new file is in place: know the block by that from now on."""
        block, after = rewrite.block, rewrite.after
        self._lose_missing(block, rewrite.index, rewrite.missing)
        self._rewriting = None
        if block.id not in self._sparse:  # else something else of it is to be erased
            self._erasing.discard(block.id)
        rewrite.old.is_pinned = False
        rewrite.old.release()
        if self.block_files.get(block.id) is not rewrite.old:
            return  # it was dropped meanwhile
        self._unsynced.pop(block.id, None)
        self._connect(block, rewrite.file)
        self.catalog.forget(block)
        block.chunks, block.index, block.groups = [], after.index, after.groups
        block.body_size = block.written_size = block.synced_size = after.body_size
        block.fixed_size = max(after.body_size - after.size, 0)
        block.last_hash = after.last_hash

    def _after_removal(self, block: MsgBlock) -> None:
        if self._rewriting is None or self._rewriting.block is not block:  # else it is seen to in the end
            super()._after_removal(block)

    # Maintenance

    @locked
    def compact_files(self, dead_part_max: float = 0.0) -> int:
        """Rewrite every block of which more than a part is dead; how many."""
        self._check_writable()
        self._check_no_checkpoints("compact")
        return maintenance.compact_files(self, dead_part_max)

    @property
    def sealer(self) -> Sealer:
        """How files other than blocks are written."""
        options = self.options
        return Sealer(options.cipher, options.keys, self.store_salt, accepts_plain=not options.requires_cipher)

    def is_under_key(self, block: MsgBlock) -> bool:
        """Whether a block is encrypted as the options say."""
        return is_under(block.header, self.options.cipher, self.options.keys)

    def is_current(self, block: MsgBlock) -> bool:
        """Whether a block is written as the options say."""
        return block.header.compression == self.options.compression and self.is_under_key(block)

    def use_options(self, options: FileOptions) -> None:
        """Write new messages with other options. With `convert`, the commits that follow rewrite the blocks."""
        self._check_writable()
        if options == self.options:
            return
        self.options = options
        if options.convert:
            maintenance.begin_conversion(self)

    @locked
    def rotate_keys(self, options: FileOptions) -> None:
        """Write everything again under other options: another key, cipher or compression.

        Interrupted, it leaves blocks of both kinds: open the store with both keys and call it again.
        """
        self._check_writable()
        self._check_no_checkpoints("rotate keys")
        maintenance.rotate_keys(self, options)

    def _erase(self, seq: int) -> None:
        self._check_no_checkpoints("erase")
        maintenance.erase(self, seq)

    def erase_soon(self, seq: int) -> bool:
        """Delete a message whose bytes cannot be had again once `is_erasing` is over, some commits later; False when
        there is none. No commit may be running."""
        self._check_writable()
        block = self.catalog.block_of(seq)
        if block is None or not block.is_live(seq):
            return False
        if self.options.by_checkpoint:
            maintenance.erase_at_checkpoint(self, seq)
            return True
        if self.block_files[block.id].envelope.is_plain:  # a few bytes are overwritten
            return self.erase(seq)
        maintenance.erase_soon(self, seq)
        return True

    @property
    def is_erasing(self) -> bool:
        """Whether bytes of deleted messages are yet to be made unrecoverable, by further commits."""
        return bool(self._erasing) and self.frozen is None and not self.options.by_checkpoint

    def erase_live(self, block: MsgBlock, group: RemovalGroup) -> None:
        """Finish an erasure whose tombstone is on record."""
        maintenance.erase_live(self, block, group)

    def _truncate(self, seq: int) -> None:
        self._check_no_checkpoints("truncate")
        maintenance.truncate(self, seq)

    def _check_no_checkpoints(self, what: str) -> None:
        """What changes blocks in place cannot be undone by a cut."""
        if self.options.by_checkpoint:
            raise BadRequest(f"a store that is synced by checkpoints cannot {what} in place")

    # What recovery asks for

    def stage_removed(self, block: MsgBlock, seqs: SequenceSet) -> None:
        """Put on record that messages are removed, of which the counters know already."""
        index, group = self.catalog.index(block), RemovalGroup(block.id, block.header.generation, seqs.copy())
        for seq in seqs:
            position = index.position(seq)
            record = block.record(index, position) if position >= 0 else None
            if record is not None:
                count, size = group.subjects.get(record.subject, (0, 0))
                size += self._size(record.subject, record.headers, record.payload)
                group.subjects[record.subject] = (count + 1, size)
        self._stage_group(group)

    def _tell_lost(self, lost: SequenceSet, where: str) -> None:
        super()._tell_lost(lost, where)
        if self.on_lost is None:
            self.damage.append(f"{where}: lost {lost}")

    def drop_empty(self) -> None:
        """Let go of sealed blocks in which nothing is left."""
        self._drop_front()
        for block in [block for block in self.catalog.blocks[:-1] if not block.message_count]:
            if block.last_seq >= block.first_seq or not list(outward_groups(self, block)):
                self._drop_middle(block)

    def discard_blocks(self) -> None:
        """Remove every block, and start over."""
        if self.files.exists(f"{self.directory}/{CHECKPOINT_NAME}"):  # first: it would miss the blocks
            self.files.remove(f"{self.directory}/{CHECKPOINT_NAME}")
            self.files.sync_dir(self.directory)
        for file in [*(file for _, file in self._gone), *self.block_files.values()]:
            remove_block(self.files, self.directory, file)
        self.reload(1)

    def lose_tail(self) -> None:
        """The last sequence was raised because messages are missing: go on after it, in a new block."""
        self.seal_active()

    # The end

    @locked
    def utilisation(self) -> tuple[int, int]:
        """Bytes on disk, and how many of them live messages account for."""
        total = sum(file.file_size for file in self.block_files.values())
        return total, self.catalog.size

    @locked
    def stop(self) -> None:
        """Make everything durable and close. Further writes are refused."""
        if self.closed:
            return
        try:
            if self.frozen is None:
                self.commit(sync=True)
                while self.is_erasing:
                    self.commit(sync=True)
                self.block_files[self.catalog.active.id].trim()
                checkpoint = self._checkpoint()
                checkpoint.gone = list(self.catalog.gone().ranges())
                write_checkpoint(self.files, self.directory, checkpoint, self.sealer)
        finally:
            self.release()
        if os.environ.get("JETLAKE_VERIFY") and self.frozen is None:
            self._verify()

    @locked
    def delete(self) -> None:
        """Close, and remove the directory with everything in it."""
        self.release()
        self.files.remove_tree(self.directory)

    @locked
    def release(self) -> None:
        self.closed = True
        self.catalog.close()
        for file in self.block_files.values():
            file.release()
        self._lock.release()

    def _check_writable(self) -> None:
        super()._check_writable()
        if self.frozen is not None:
            raise StoreFrozen(self.name, self.frozen)
        if self.redo is not None and self.redo.failed is not None:  # it may say what is not so
            raise StoreFrozen(self.name, self.redo.failed)

    def _verify(self) -> None:
        """Check the files; for tests, which set JETLAKE_VERIFY."""
        from jetlake.store.verify.check import check_store

        report = check_store(self.directory, files=self.files, keys=self.options.keys)
        assert report.ok or self.damage or self.catalog.lost, f"{self.directory}: {report.problems}"


def _check_tree(files: Files, directory: str) -> None:
    """StoreLocked when a server has the directory, among others.

    The store's own lock is held by now: a server that starts after this finds it.
    """
    for _ in range(_TREE_DEPTH_MAX):
        directory = os.path.dirname(os.path.abspath(directory))
        path = f"{directory}/{TREE_LOCK_NAME}"
        if files.exists(path):
            files.lock(path, shared=True).release()
