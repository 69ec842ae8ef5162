"""Catalog: the blocks of a stream in order, its subjects, and the counters that answer state questions in O(1).

What is always true
    blocks do not overlap and ascend; the last one is being written to
    first_seq is the first live sequence, or last_seq + 1 when there is none
    table.total is the number of live messages, and a subject's count is the number of its live messages

Block indexes of sealed blocks are loaded when needed and let go, least recently used first, beyond a bound which all
stores of a process share.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator

from jetlake.errors import MessageNotFound
from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.index.ranges import seqs_within
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import Record

INDEX_CACHE_SIZE_MAX = 64 * 1024 * 1024


class _IndexCache:
    """The sealed blocks whose index is in memory, and its size."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[MsgBlock, int] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def touch(self, block: MsgBlock, size: int) -> None:
        """A block's index is used; the ones that were not for longest make room for it."""
        with self._lock:
            self._size += size - self._sizes.pop(block, 0)
            self._sizes[block] = size
            while self._size > INDEX_CACHE_SIZE_MAX and len(self._sizes) > 1:
                other, size = self._sizes.popitem(last=False)
                self._size -= size
                other.index = None

    def forget(self, block: MsgBlock) -> None:
        with self._lock:
            self._size -= self._sizes.pop(block, 0)


_loaded = _IndexCache()


class Catalog:
    """What a store knows of its messages."""

    def __init__(self) -> None:
        self.blocks: list[MsgBlock] = []
        self.table = SubjectTable()
        self.first_seq, self.last_seq = 1, 0
        self.last_time_ns = 0
        self.size = 0
        self.lost = SequenceSet()
        self.load_index: Callable[[MsgBlock], BlockIndex] | None = None
        self.on_unreadable: Callable[[int], None] | None = None  # told of a live message whose bytes are damaged

    @property
    def floor_seq(self) -> int:
        """Below it nothing is left, and nobody needs to know what became of it; at or before the first message."""
        return min(self.first_seq, self.lost.first) if self.lost else self.first_seq

    @property
    def active(self) -> MsgBlock:
        return self.blocks[-1]

    def place(self, seq: int) -> int:
        """The position of the last block that starts at or before a sequence; -1 when none does."""
        return bisect_right(self.blocks, seq, key=_first_seq) - 1

    def block_of(self, seq: int) -> MsgBlock | None:
        """The block in whose range a sequence lies."""
        place = self.place(seq)
        if place < 0 or seq > self.blocks[place].last_seq:
            return None
        return self.blocks[place]

    def blocks_from(self, seq: int) -> Iterator[MsgBlock]:
        """Blocks that may hold a sequence or later ones, oldest first."""
        for place in range(max(self.place(seq), 0), len(self.blocks)):
            if self.blocks[place].last_seq >= seq:
                yield self.blocks[place]

    def blocks_back_from(self, seq: int) -> Iterator[MsgBlock]:
        """Blocks that may hold a sequence or earlier ones, newest first."""
        for place in range(self.place(seq), -1, -1):
            yield self.blocks[place]

    def is_live(self, seq: int) -> bool:
        block = self.block_of(seq)
        return block is not None and block.is_live(seq)

    def gone_among(self, seqs: array[int]) -> array[int]:
        """Those of some sequences, in ascending order, that hold no message; one pass over them and what is gone."""
        gone, place = array("Q"), 0
        for block in self.blocks_from(seqs[0]) if seqs else ():
            start = bisect_left(seqs, block.first_seq, place)
            stop = bisect_right(seqs, block.last_seq, start)
            gone += seqs[place:start]  # before the first block, or between two
            gone += seqs_within(*block.gone.arrays, seqs[start:stop])
            place = stop
        return gone + seqs[place:]

    def next_live(self, seq: int) -> int | None:
        """The first live sequence at or after one."""
        for block in self.blocks_from(max(seq, self.first_seq)):
            found = block.next_live(max(seq, self.first_seq))
            if found is not None:
                return found
        return None

    def prev_live(self, seq: int) -> int | None:
        """The last live sequence at or before one."""
        for block in self.blocks_back_from(seq):
            found = block.prev_live(seq)
            if found is not None:
                return found
        return None

    def index(self, block: MsgBlock) -> BlockIndex:
        """Where the messages of a block lie, loading it when it is not in memory.

        When its sidecar is damaged, the block is read, and messages that cannot be are lost by that: look again.
        """
        index = block.index  # another thread may let go of it meanwhile
        if index is None:
            assert self.load_index is not None
            index = block.index = self.load_index(block)
        if block.sealed and self.load_index is not None:
            is_shared = index.table is self.table
            _loaded.touch(block, index.size_bytes if is_shared else index.size_bytes + index.table.size_bytes)
        return index

    def let_go(self, block: MsgBlock) -> None:
        """A block was sealed and its sidecar written: whoever needs its index will load it."""
        block.index = None
        self.forget(block)

    def forget(self, block: MsgBlock) -> None:
        """A block is no longer part of the stream, or its index no longer true."""
        _loaded.forget(block)

    def close(self) -> None:
        """Nobody will ask any more."""
        for block in self.blocks:
            self.forget(block)

    def record(self, seq: int) -> Record:
        """The live message at a sequence; MessageNotFound when there is none, or none that can be read."""
        record = self.find(seq)
        if record is None:
            raise MessageNotFound(f"sequence {seq}")
        return record

    def find(self, seq: int) -> Record | None:
        """The live message at a sequence, if there is one that can be read."""
        block = self.block_of(seq)
        if block is None or not block.is_live(seq):
            return None
        index = self.index(block)
        position = index.position(seq)
        assert position >= 0 or not block.is_live(seq), f"sequence {seq} is not in the index of block {block.id}"
        return self.record_at(block, index, position) if position >= 0 else None

    def record_at(self, block: MsgBlock, index: BlockIndex, position: int) -> Record | None:
        """The message at a position of a block's index, gone ones too; None when it cannot be read.

        If that is a live one, the store is told, which takes it for lost from then on.
        """
        record = block.record(index, position)
        if record is None and block.is_live(seq := index.seq(position)):
            if block.index is not None and block.index is not index:  # the block was written anew meanwhile
                return self.find(seq)
            if self.on_unreadable is not None:
                self.on_unreadable(seq)
        return record

    @property
    def gone_count(self) -> int:
        """How many sequences hold no message any more, or never did; it grows with every loss."""
        return self.last_seq - self.table.total

    def gone(self) -> SequenceSet:
        """The sequences between first and last that hold no message."""
        gone = SequenceSet()
        expected = self.first_seq
        for block in self.blocks:
            if block.last_seq < expected:
                continue
            if block.first_seq > expected:
                gone.add_range(expected, block.first_seq - 1)
            gone.append_from(block.gone, max(expected, block.first_seq), block.last_seq)
            expected = block.last_seq + 1
        return gone


def _first_seq(block: MsgBlock) -> int:
    return block.first_seq
