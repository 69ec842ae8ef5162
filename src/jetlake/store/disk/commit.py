"""Commit: the disk's part of a group commit, apart from everything else.

A store stages changes in memory. `FileStore.prepare_commit` turns all that is staged into a Commit, `run` carries it
out (in any thread: it touches files only), and `FileStore.complete_commit` takes note. Between the first and the last,
the store goes on staging. The order inside `run` is what durability rests on:

    1. each block in turn: make its file, write its bytes, sync it. A block is synced before the next one is made, so
       that what a later block says about an earlier one (its floor) is never durable before the reason for it.
    2. the directory, when a file was made
    3. sidecars and the checkpoint: they can be made anew, but must not be ahead of the blocks
    -  of a checkpoint: whoever keeps the log of changes is told how far they are in the blocks, and keeps that durably
    4. blocks that are no longer needed go: what says so is durable by now
    5. a block is rewritten (`rewrite.py`): that its messages are gone, and what replaced them, is durable by now

A small commit that makes nothing go can be made through the redo log instead (`store.redo`), together with those of
other streams: what it writes is in the log, synced, before any of it is written to its file.

A store that is synced by checkpoints alone does 4 and 5 in these, so that a cut at the last one finds all blocks as
they were. Its other commits write blocks, unsynced, and no more.

On a full disk even the few bytes that say that messages are gone may not fit, and then no block could go. Where the
blocks to go are the oldest and no new message waits to be written, the floor is put into a header that is there
already (`Floor`), and they go first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.block_file import BlockFile
from jetlake.store.blocks.checkpoint import KIND as CHECKPOINT_KIND
from jetlake.store.blocks.checkpoint import Checkpoint, encode_checkpoint, write_checkpoint
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.blocks.sidecar import Seal, encode_sidecar
from jetlake.store.disk.files import Files, atomic_write, is_no_space
from jetlake.store.disk.rewrite import Rewrite, shred_file
from jetlake.store.format import CHECKPOINT_NAME, Buffer, block_name, sidecar_name
from jetlake.store.index.summary import subject_bits
from jetlake.store.redo.entries import Entry, Replace, Write
from jetlake.store.redo.redo_log import RedoLog

SMALL_SIZE_MAX = 4096  # what is not worth a thread, nor an object that says what there is to do
UNSYNCED_SIZE_MAX = 64 * 1024  # the same where nobody waits for the disk
LOGGED_SIZE_MAX = 64 * 1024  # what is written twice rather than synced by itself

Mark = Callable[
    [int, int], None
]  # told the id of the last block, and the offset in its file up to which all is durable


@dataclass(slots=True)
class BlockWrite:
    """What one block gets."""

    block: MsgBlock
    file: BlockFile
    parts: list[memoryview]
    start: int
    end: int
    cuts: list[int]
    last_seq: int
    is_new: bool
    sealed: Seal | None
    index: BlockIndex


@dataclass(slots=True)
class Floor:
    """How to let go of the oldest blocks without writing more than there is room for."""

    seq: int
    file: BlockFile  # of the block that was being written to
    is_going: bool  # whether that block is to go, too
    files: list[BlockFile]  # of blocks all of whose sequences lie below


@dataclass(slots=True)
class SmallCommit:
    """A commit that does nothing but write to the active block: of most streams, most of the time."""

    is_small: ClassVar[bool] = True
    block: MsgBlock
    file: BlockFile
    parts: list[memoryview]
    start: int
    end: int
    cuts: list[int]
    last_seq: int
    sync: bool
    redo: RedoLog | None
    is_logged: bool = False  # it was made through the log
    offset: int = 0
    placed: Sequence[Buffer] = ()

    def run(self) -> None:
        """Write it, and sync it if that is due. An error means what it means for a Commit."""
        reserve = self.sync and self.end - self.start <= SMALL_SIZE_MAX
        self.file.append(self.parts, self.start, self.cuts, self.last_seq, reserve=reserve)
        if self.sync:
            self.file.sync()

    def entries(self) -> Sequence[Entry]:
        file, header = self.file, self.file.header
        self.offset, self.placed = file.place(self.parts, self.start, self.cuts, self.last_seq)
        return (Write(file.path, header.hash_seed, header.generation, self.offset, self.placed),)

    def apply(self, files: Files) -> None:
        self.is_logged = True
        self.file.write_placed(self.offset, self.placed)

    def block_files(self) -> Sequence[BlockFile]:
        return (self.file,)


@dataclass(slots=True)
class Commit:
    """Everything that one commit does to the disk."""

    is_small: ClassVar[bool] = False
    files: Files
    directory: str
    sealer: Sealer
    sync: bool
    last_seq: int
    writes: list[BlockWrite] = field(default_factory=list)
    unsynced: list[BlockFile] = field(default_factory=list)  # written by earlier commits
    has_new_names: bool = False  # files were made, by this commit or earlier ones, whose names are not durable
    checkpoint: Checkpoint | None = None
    dropped: list[BlockFile] = field(default_factory=list)
    rewrite: Rewrite | None = None
    floor: Floor | None = None
    replaced: list[tuple[str, bytes]] = field(default_factory=list)  # other files of the stream: path and bytes
    is_first: bool = False  # of a new store: the names of its directory and of the one above are not durable
    before_drop: Mark | None = None  # of a checkpoint
    active: BlockFile | None = None  # where it ends
    redo: RedoLog | None = None  # through which it can be made, together with others
    is_logged: bool = False  # it was made so
    placed: list[tuple[int, Sequence[Buffer]]] = field(default_factory=list)
    state: bytes = b""

    def run(self) -> None:
        """Do it. After an error nobody knows what the disk holds: the store must not write to it again."""
        if self.sync:
            written = {write.block.id for write in self.writes}
            for file in self.unsynced:
                if file.header.block_id not in written:  # the others are synced when they are written to
                    file.sync()
        above = os.path.dirname(self.directory)
        for directory in (os.path.dirname(above), above) if self.is_first else ():
            self.files.sync_dir(directory)
        for path, data in self.replaced:
            atomic_write(self.files, path, [data])
        try:
            self._write_blocks()
        except OSError as error:
            if self.floor is None or not is_no_space(error):
                raise
            self._make_room(self.floor)
            self._write_blocks()
        try:
            self._write_extras()
        except OSError as error:
            if not is_no_space(error) or self.before_drop is not None:
                raise
            for write in self.writes:
                write.file.trim()
            self._drop()
            self._write_extras()
        if self.before_drop is not None:
            assert self.active is not None
            self.before_drop(self.active.header.block_id, self.active.file_size)
        self._drop()
        if self.rewrite is not None:
            self.rewrite.run()

    def log_by(self, redo: RedoLog) -> None:
        """Let it be made through the log, if it is small and makes nothing go."""
        is_small = self.is_first or sum(write.end - write.start for write in self.writes) <= LOGGED_SIZE_MAX
        is_plain = not (self.dropped or self.rewrite or any(write.sealed is not None for write in self.writes))
        if self.sync and is_small and is_plain and not self.unsynced:
            self.redo = redo

    def entries(self) -> Sequence[Entry]:
        found: list[Entry] = [Replace(path, data) for path, data in self.replaced]
        for write in self.writes:
            file, header = write.file, write.file.header
            identity = (file.path, header.hash_seed, header.generation)
            if write.is_new:
                found.append(Write(*identity, 0, [header.encode()], is_new=True))
            self.placed.append(file.place(write.parts, write.start, write.cuts, write.last_seq))
            found.append(Write(*identity, *self.placed[-1]))
        if self.checkpoint is not None:
            self.state = self.sealer.seal(encode_checkpoint(self.checkpoint), CHECKPOINT_KIND)
            found.append(Replace(f"{self.directory}/{CHECKPOINT_NAME}", self.state))
        return found

    def apply(self, files: Files) -> None:
        self.is_logged = True
        for path, data in self.replaced:
            atomic_write(files, path, [data], durable=False)
        for write, placed in zip(self.writes, self.placed, strict=True):
            if write.is_new:
                write.file.create()
            write.file.write_placed(*placed)
        if self.state:
            atomic_write(files, f"{self.directory}/{CHECKPOINT_NAME}", [self.state], durable=False)

    def block_files(self) -> Sequence[BlockFile]:
        return [write.file for write in self.writes]

    def _write_blocks(self) -> None:
        for write in self.writes:
            self._write(write)
        if self.sync and self.has_new_names:
            self.files.sync_dir(self.directory)

    def _write_extras(self) -> None:
        for write in self.writes:
            if write.sealed is not None:
                write.block.subject_bits = subject_bits(write.sealed.subjects, 0, len(write.sealed.subjects))
                data = encode_sidecar(write.sealed, write.index, write.file)
                atomic_write(self.files, f"{self.directory}/{sidecar_name(write.block.id)}", [data], durable=self.sync)
        if self.checkpoint is not None:
            write_checkpoint(self.files, self.directory, self.checkpoint, self.sealer, durable=self.sync)

    def _drop(self) -> None:
        for file in self.dropped:
            remove_block(self.files, self.directory, file)

    def _make_room(self, floor: Floor) -> None:
        floor.file.stamp_floor(floor.seq)
        for file in floor.files:
            remove_block(self.files, self.directory, file)
        if floor.is_going:
            floor.file.drop_body()

    def _write(self, write: BlockWrite) -> None:
        if write.is_new:
            write.file.create()
        if write.parts:
            reserve = self.sync and write.end - write.start <= SMALL_SIZE_MAX
            write.file.append(write.parts, write.start, write.cuts, write.last_seq, reserve=reserve)
        if write.sealed is not None:
            write.file.trim()
        if self.sync:
            write.file.sync()


def remove_block(files: Files, directory: str, file: BlockFile) -> None:
    """Remove a block's file and its sidecar; either may be gone already."""
    file.release()
    block_id = file.header.block_id
    if file.is_secret and files.exists(file.path):
        shred_file(files, directory, file.path)
    for name in (block_name(block_id), sidecar_name(block_id)):
        try:
            files.remove(f"{directory}/{name}")
        except FileNotFoundError:
            continue
