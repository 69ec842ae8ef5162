"""Compaction: every block with dead messages is written anew, one by each commit of its store.

    compaction = Compaction(store, 0.1)
    while not compaction.is_done:
        store.commit()

The store goes on meanwhile. What is durable stays so at every moment: see `rewrite.py`. A block that is dropped or
replaced while it waits is done with, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.store.blocks.block import MsgBlock

if TYPE_CHECKING:
    from jetlake.store.filestore import FileStore


class Compaction:
    """Blocks of a store that are on their way to be written anew."""

    def __init__(self, store: FileStore, dead_part_max: float = 0.0) -> None:
        """Have the blocks rewritten of which more than a part is dead; the active one is sealed for it."""
        self._store = store
        self.size_before = store.utilisation()[0]
        active = store.catalog.active
        if active.gone and active.body_size >= store.rewrite_size_min and dead_part(active) > dead_part_max:
            store.seal_active()
        blocks = [block for block in store.catalog.blocks if block.sealed and dead_part(block) > dead_part_max]
        self._generations = [(block, block.header.generation) for block in blocks]
        store.rewrite_soon(blocks)

    @property
    def is_done(self) -> bool:
        """Whether no block is left to be written."""
        return not any(self._store.is_to_be_rewritten(block) for block, _ in self._generations)

    @property
    def block_count(self) -> int:
        """How many blocks were written anew."""
        return sum(block.header.generation > generation for block, generation in self._generations)

    @property
    def size_after(self) -> int:
        """The bytes on disk now."""
        return self._store.utilisation()[0]


def dead_part(block: MsgBlock) -> float:
    """How much of a block's bytes a rewriting could leave out, from 0 to 1, as far as that is known."""
    return 1 - min((block.size + block.fixed_size) / block.body_size, 1) if block.body_size else 0.0
