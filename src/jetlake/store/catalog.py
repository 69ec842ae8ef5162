"""Catalog: the blocks of a stream in order, its subjects, and the counters that answer state questions in O(1).

What is always true
    blocks do not overlap and ascend; the last one is being written to
    first_seq is the first live sequence, or last_seq + 1 when there is none
    table.total is the number of live messages, and a subject's count is the number of its live messages

Block indexes of sealed blocks are loaded when needed and let go, least recently used first, beyond a bound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator

from jetlake.errors import CorruptBlock, MessageNotFound
from jetlake.store.block import BlockIndex, MsgBlock
from jetlake.store.record import BadRecord, Record
from jetlake.store.sequence_set import SequenceSet
from jetlake.store.subject_table import SubjectTable

INDEX_CACHE_SIZE_MAX = 64 * 1024 * 1024


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
        self._loaded: OrderedDict[int, int] = OrderedDict()  # block id -> size of its index
        self._loaded_size = 0

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
        """Where the messages of a block lie, loading it when it is not in memory."""
        index = block.index  # another thread may let go of it meanwhile
        if index is None:
            assert self.load_index is not None
            index = block.index = self.load_index(block)
        if block.sealed and self.load_index is not None:
            self._touch(block, index)
        return index

    def _touch(self, block: MsgBlock, index: BlockIndex) -> None:
        size = index.size_bytes + index.table.size_bytes if index.table is not self.table else index.size_bytes
        self._loaded_size += size - self._loaded.pop(block.id, 0)
        self._loaded[block.id] = size
        while self._loaded_size > INDEX_CACHE_SIZE_MAX and len(self._loaded) > 1:
            block_id, size = self._loaded.popitem(last=False)
            self._loaded_size -= size
            for other in self.blocks:
                if other.id == block_id:
                    other.index = None

    def let_go(self, block: MsgBlock) -> None:
        """A block was sealed and its sidecar written: whoever needs its index will load it."""
        block.index = None
        self.forget(block)

    def forget(self, block: MsgBlock) -> None:
        """A block is no longer part of the stream, or its index no longer true."""
        self._loaded_size -= self._loaded.pop(block.id, 0)

    def record(self, seq: int) -> Record:
        """The live message at a sequence; MessageNotFound, or CorruptBlock when its bytes are damaged."""
        block = self.block_of(seq)
        if block is None or not block.is_live(seq):
            raise MessageNotFound(f"sequence {seq}")
        index = self.index(block)
        position = index.position(seq)
        assert position >= 0, f"sequence {seq} is live but not in the index of block {block.id}"
        try:
            record = block.record(index, position)
            if record.seq == seq and record.is_message:
                return record
            problem = f"sequence {record.seq} where {seq} belongs"
        except (BadRecord, CorruptBlock) as error:
            problem = f"sequence {seq}: {error}"
        if block.index is not None and block.index is not index:  # the block was written anew meanwhile
            return self.record(seq)
        self.lost.add(seq)
        raise CorruptBlock(block.path, index.offsets[position], problem)

    def gone(self) -> SequenceSet:
        """The sequences between first and last that hold no message."""
        gone = SequenceSet()
        expected = self.first_seq
        for block in self.blocks:
            if block.last_seq < expected:
                continue
            if block.first_seq > expected:
                gone.add_range(expected, block.first_seq - 1)
            for first, last in block.gone.ranges_between(max(expected, block.first_seq), block.last_seq):
                gone.add_range(first, last)
            expected = block.last_seq + 1
        return gone


def _first_seq(block: MsgBlock) -> int:
    return block.first_seq
