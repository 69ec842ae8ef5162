"""MemStore: a stream's messages in memory, in the same blocks and by the same rules as FileStore."""

from __future__ import annotations

from jetlake.clock import Clock, system_clock
from jetlake.store.api import StreamLimits
from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.engine import BlockStore
from jetlake.store.format import SEQ_MAX, BlockHeader
from jetlake.store.locked import locked
from jetlake.store.records.record import measure

BLOCK_SIZE_DEFAULT = 8 * 1024 * 1024
# A sealed block is packed when more than this part of it is dead.
_DEAD_PART_MAX = 0.5


class MemStore(BlockStore):
    """The contract of `api.StreamStore`, in memory."""

    size_fixed, size_headers = 16, 0

    def __init__(
        self,
        limits: StreamLimits = StreamLimits(),  # noqa: B008  frozen
        *,
        name: str = "memory",
        first_seq: int = 1,
        block_size_max: int = BLOCK_SIZE_DEFAULT,
        clock: Clock = system_clock,
        autocommit: bool = True,
    ) -> None:
        super().__init__(name, limits, block_size_max=block_size_max, clock=clock, autocommit=autocommit)
        self.catalog.first_seq, self.catalog.last_seq = first_seq, first_seq - 1
        self.add_block(1)

    def commit_small(self) -> bool:
        """As `FileStore.commit_small`: here every commit is one."""
        self.commit()
        return True

    def commit(self) -> int:
        """Nothing to write: pack blocks of which most is dead, and be done."""
        with self.lock:
            for block_id in self.removals:
                for block in self.catalog.blocks[:-1]:
                    if block.id == block_id and block.size < (1 - _DEAD_PART_MAX) * block.body_size:
                        self._pack(block)
            self.removals.clear()
            self.losses.clear()
            return self.catalog.last_seq

    def add_block(self, block_id: int) -> None:
        catalog = self.catalog
        header = BlockHeader(0, 0, block_id, 0, catalog.last_seq + 1, catalog.first_seq, catalog.last_time_ns, 0)
        block = MsgBlock(header, f"{self.name}/{block_id}")
        block.index = BlockIndex(catalog.table)
        catalog.blocks.append(block)

    def _rotate(self) -> None:
        block = self.catalog.active
        block.sealed = True
        self.add_block(block.id + 1)

    def _pack(self, block: MsgBlock) -> None:
        """Copy a block's live messages together, and let go of the rest."""
        old, block.index = block.index, BlockIndex(self.catalog.table)
        assert old is not None
        body = block.read(0, block.body_size)
        block.chunks, block.body_size = [], 0
        for first, last in block.live_runs(block.first_seq, block.last_seq):
            for position in range(old.position_from(first), old.position_from(last + 1)):
                start = old.offsets[position]
                record = body[start : measure(body, start, len(body), block.seed).end]
                block.index.add(old.seq(position), block.stage(record), old.ids[position])

    def _erase(self, seq: int) -> None:
        """Overwrite the message in its chunk, then remove it."""
        block = self.catalog.block_of(seq)
        assert block is not None and block.index is not None
        position = block.index.position(seq)
        start, end = block.index.offsets[position], block.index.end(position, block.body_size)
        self._remove(seq)
        for chunk in block.chunks:
            if chunk.base <= start < chunk.end:
                chunk.data[start - chunk.base : end - chunk.base] = bytes(end - start)

    def _truncate(self, seq: int) -> None:
        """Take everything after a sequence out again."""
        catalog = self.catalog
        if seq < catalog.first_seq:  # no message stays
            catalog.last_time_ns = 0
            self._purge_all(seq + 1)
            return
        while (last := catalog.prev_live(catalog.last_seq)) is not None and last > seq:
            self._remove(last)
        while len(catalog.blocks) > 1 and catalog.active.first_seq > seq:
            catalog.blocks.pop()
        block = catalog.active
        block.sealed = False
        block.gone.remove_range(seq + 1, SEQ_MAX)
        if block.last_seq < seq:  # it belonged to a block that was let go
            block.gone.add_range(block.last_seq + 1, seq)
        block.last_seq = catalog.last_seq = seq
        self._pack(block)
        catalog.last_time_ns = catalog.record(last).time_ns if last is not None else 0
        if not catalog.table.total:
            catalog.first_seq = catalog.last_seq + 1

    @locked
    def utilisation(self) -> tuple[int, int]:
        """Bytes held in blocks, and how many of them live messages account for."""
        return sum(block.body_size for block in self.catalog.blocks), self.catalog.size

    @locked
    def stop(self) -> None:
        """Refuse further writes. Reads go on."""
        self.closed = True

    @locked
    def delete(self) -> None:
        """Forget everything."""
        self.closed = True
        self.catalog.blocks, self.catalog.size = [], 0
        self.catalog.table.clear()
