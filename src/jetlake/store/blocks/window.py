"""Bytes of a block for those who want many of its messages: from memory where they are there, else by few reads."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.format import Buffer

# How much of a block is read from its file at once; less where few of its messages are wanted. So many bytes more cost
# no more than reading once more.
READ_SIZES = (1024 * 1024, 64 * 1024)
READ_AGAIN_SIZE = 32 * 1024


def window(block: MsgBlock, index: BlockIndex, positions: array[int], place: int, stop: int) -> tuple[Buffer, int]:
    """Bytes that hold the message at positions[place], and those up to `stop` that lie near; where they start.

    They end where damage begins, which may be at once.
    """
    start = index.offsets[positions[place]]
    chunk = block.chunk_at(start)
    if chunk is not None:
        return memoryview(chunk.data)[: chunk.used], chunk.base
    for size in READ_SIZES:
        near = bisect_right(positions, start + size, place, stop, key=index.offsets.__getitem__)
        end = index.end(positions[near - 1], block.body_size)
        if end - start <= (near - place) * READ_AGAIN_SIZE:
            return block.read(start, end), start
    return block.read(start, index.end(positions[place], block.body_size)), start
