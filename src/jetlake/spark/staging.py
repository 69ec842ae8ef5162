"""Staged blocks: what tasks write in parallel, before anyone knows which sequences their rows will have.

A task's directory holds block files whose records are numbered from 1 on, all blocks of the task in a row. Nobody else
reads them. When all tasks are done the driver either makes a new store of them (`number`: the sequences are put right
in place and each block gets its sidecar), or appends their messages to a store that is there.
"""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Iterator
from typing import NamedTuple

from jetlake.clock import Clock, system_clock
from jetlake.errors import CorruptBlock
from jetlake.spark.batches import Rows
from jetlake.spark.rows import encode_rows, shift
from jetlake.store.blocks.block import MsgBlock
from jetlake.store.blocks.block_file import BlockFile
from jetlake.store.blocks.block_scan import Body, scan_block
from jetlake.store.blocks.sidecar import encode_sidecar, seal
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.store.format import HEADER_SIZE, BlockHeader, block_name, sidecar_name
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.verify.check_block import SIZES
from jetlake.store.view import pinned

_RECORD_OVERHEAD_MAX = 64
_spare: list[bytearray] = []  # the buffer of the last task: fresh memory for each costs a tenth of a write


class StagedBlock(NamedTuple):
    """A block file of a task."""

    path: str
    seed: int
    first: int  # the number of its first record, from 1 within the task
    msgs: int
    body_size: int
    time_ns_max: int


class BlockStager:
    """Writes rows into block files of one directory."""

    def __init__(
        self, directory: str, block_size: int, *, files: Files = OS_FILES, clock: Clock = system_clock
    ) -> None:
        self._directory, self._block_size, self._files, self._clock = directory, block_size, files, clock
        self.blocks: list[StagedBlock] = []
        self.count = 0
        last = _spare.pop() if _spare else bytearray()
        self._buffer = last if len(last) == block_size else bytearray(block_size)
        self._seed = self._used = self._first = self._time_ns_max = 0
        self._start()

    def add(self, rows: Rows) -> None:
        """Take the rows of a batch, and write blocks that are full."""
        first = 0
        while first < rows.row_count:
            done, self._used, _, time_max = encode_rows(
                *rows[1:], first, rows.row_count, self._buffer, self._used, self.count + 1, self._clock(), self._seed
            )
            self._time_ns_max = max(self._time_ns_max, time_max)
            self.count += done - first
            if done < rows.row_count:
                self._next_block(rows, done)
            first = done

    def _next_block(self, rows: Rows, row: int) -> None:
        """There is no room for a row: start a new block, or give it a block of its own size."""
        if self._used:
            self.flush()
            self._start()
            return
        size = sum(
            int.from_bytes(memoryview(offsets)[4 * row + 4 : 4 * row + 8], "little")
            - int.from_bytes(memoryview(offsets)[4 * row : 4 * row + 4], "little")
            for offsets in (rows.subject_offsets, rows.header_offsets, rows.payload_offsets)
            if len(offsets)
        )
        self._buffer = bytearray(size + _RECORD_OVERHEAD_MAX)

    def _start(self) -> None:
        self._seed, self._used, self._first = secrets.randbits(64), 0, self.count + 1
        self._time_ns_max = -(2**63)
        if len(self._buffer) > self._block_size:
            self._buffer = bytearray(self._block_size)

    def flush(self) -> None:
        """Write what was taken so far as a block."""
        if not self._used:
            return
        path = f"{self._directory}/{block_name(len(self.blocks) + 1)}"
        header = BlockHeader(0, 0, 0, 0, self._first, 0, 0, self._seed)
        with self._files.open(path, create=True) as file:
            file.pwritev(0, [header.encode(), memoryview(self._buffer)[: self._used]])
        count = self.count + 1 - self._first
        self.blocks.append(StagedBlock(path, self._seed, self._first, count, self._used, self._time_ns_max))
        self._used = 0

    def close(self) -> None:
        """Write the rest; the next task may have the buffer."""
        self.flush()
        _spare[:] = [self._buffer]
        self._buffer = bytearray()


class Numbered(NamedTuple):
    """What a staged block became: how many bytes its messages take, as JetStream counts them."""

    path: str
    size: int


def number(
    block: StagedBlock,
    block_id: int,
    base_seq: int,
    last_time_ns: int,
    directory: str,
    stream_id: bytes,
    files: Files = OS_FILES,
) -> Numbered:
    """Make a staged block the block of a new store: sequences from base_seq + 1 on, a header, a sidecar, durable."""
    header = BlockHeader(0, 0, block_id, 0, base_seq + block.first, 1, last_time_ns, block.seed, stream_id=stream_id)
    path = f"{directory}/{block_name(block_id)}"
    files.rename(block.path, path)
    found = MsgBlock(header, path)
    with files.open(path) as opened:
        source = pinned(opened, header, files, ())
        try:
            _settle(found, source, block, base_seq)
        except ValueError as error:
            raise CorruptBlock(path, HEADER_SIZE, f"not as the task wrote it: {error}") from error
        opened.sync()
    assert found.index is not None
    with files.open(f"{directory}/{sidecar_name(block_id)}", create=True) as target:
        target.pwrite(0, encode_sidecar(seal(found, found.index), found.index, source))
        target.sync()
    return Numbered(path, found.size)


def _settle(found: MsgBlock, source: BlockFile, block: StagedBlock, base_seq: int) -> None:
    """Put a block's header and sequences right where it lies, and scan it there; ValueError if it is damaged."""
    end = HEADER_SIZE + block.body_size
    with open(found.path, "r+b") as file, mmap.mmap(file.fileno(), end) as data, memoryview(data) as view:
        view[:HEADER_SIZE] = found.header.encode()
        if base_seq:
            shift(view, HEADER_SIZE, end, block.seed, base_seq)
        with view[HEADER_SIZE:] as body:
            scan_block(found, source, Body(body, [], end, end, b"", [], 0), SubjectTable(), SIZES)
    if found.message_count != block.msgs or found.lost:
        raise ValueError(f"{block.msgs} messages were written, {found.message_count} are sound")


def bodies(blocks: list[StagedBlock], files: Files = OS_FILES) -> Iterator[tuple[StagedBlock, bytes]]:
    """The records of staged blocks, one block at a time."""
    for block in blocks:
        with files.open(block.path) as file:
            yield block, file.pread(HEADER_SIZE, block.body_size)
