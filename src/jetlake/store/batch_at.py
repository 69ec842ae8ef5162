"""Store a batch of messages whose sequences and times are given: what was stored before, here or elsewhere.

Sequences that are left out become SKIP records. The kernel writes those between two messages of a batch; very many are
skipped before the batch, for the messages after them may belong into another block.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from jetlake.ops import OP_MORE, OP_REST, OP_WORDS
from jetlake.store.blocks.block import MsgBlock
from jetlake.store.format import BLOCK_SEQ_SPAN_MAX, Buffer
from jetlake.store.records.encode import encode_batch_at

if TYPE_CHECKING:
    from jetlake.store.engine import BlockStore

# Flags, three lengths and the trailer.
RECORD_OVERHEAD_MAX = 1 + 3 * 5 + 2 + 32
SEQ_SPAN_MAX = BLOCK_SEQ_SPAN_MAX // 2  # of a block's messages; skipped ones may follow
_SKIP_APART = 1 << 20


def append_some(
    store: BlockStore,
    data: Buffer,
    ops: array[int],
    seqs: array[int],
    times: array[int],
    expires: array[int],
    first: int,
    stop: int,
    over: list[int],
) -> int:
    """Store as many operations as fit into a chunk; where it stopped."""
    catalog = store.catalog
    if seqs[first] - catalog.last_seq > _SKIP_APART:
        store._skip(seqs[first] - catalog.last_seq - 1, times[first])
    block = store._block_for(seqs[first])
    stop = bisect_right(seqs, block.first_seq + SEQ_SPAN_MAX, first + 1, stop)
    return _append_some(store, block, data, ops, seqs, times, expires, first, stop, over)


def append_together(
    store: BlockStore, data: Buffer, ops: array[int], time_ns: int, expires: array[int], over: list[int]
) -> None:
    """Store an atomic batch: all of it in one block, marked so that no reader takes a part of it for the whole."""
    count, seq = len(ops) // OP_WORDS, store.catalog.last_seq + 1
    seqs, times = array("Q", range(seq, seq + count)), array("q", [time_ns]) * count
    block = store._block_for(seq)
    ops[9::OP_WORDS] = array("I", (flags | OP_MORE | OP_REST for flags in ops[9::OP_WORDS]))
    ops[9] &= ~OP_REST
    ops[9 - OP_WORDS] &= ~OP_MORE
    first = 0
    while first < count:
        first = _append_some(store, block, data, ops, seqs, times, expires, first, count, over)


def _append_some(
    store: BlockStore,
    block: MsgBlock,
    data: Buffer,
    ops: array[int],
    seqs: array[int],
    times: array[int],
    expires: array[int],
    first: int,
    stop: int,
    over: list[int],
) -> int:
    catalog = store.catalog
    index, gaps = block.index, list[int]()
    assert index is not None
    needed = record_room(ops, first, len(data)) + RECORD_OVERHEAD_MAX  # a SKIP record may come before it
    chunk = block.chunks[-1] if block.chunks else block.room(needed)
    index.reserve(stop - first)
    done, used, size = encode_batch_at(
        data, ops, seqs, times, expires, first, stop, chunk.data, chunk.used, chunk.base, index.offsets, index.ids,
        index.count, catalog.table, catalog.last_seq, block.header.hash_seed, store.size_fixed, store.size_headers,
        store.limits.max_msgs_per_subject, over, gaps,
    )  # fmt: skip
    if done == first:
        if block.room(needed) is chunk:
            raise AssertionError("a record does not fit into the room made for it")
        return first
    for place in range(0, len(gaps), 2):
        block.gone.add_range(gaps[place], gaps[place + 1])
    if not catalog.table.total - (done - first):
        catalog.first_seq = seqs[first]
    index.extend_at(seqs, first, done)
    chunk.used = used
    block.body_size = chunk.base + used
    run = times[first:done]
    block.note_time(min(run))
    block.note_time(max(run))
    store._count_in(block, seqs[done - 1], run[-1], size)
    if expires:
        for place in range(first, done):
            if expires[place]:
                block.expiring.append((seqs[place], expires[place]))
                store.expiry.add(seqs[place], expires[place])
    return done


def record_room(ops: array[int], number: int, data_size: int) -> int:
    """At least as many bytes as an operation's record takes, if it is one at all."""
    at = number * OP_WORDS
    return min(ops[at + 1] + ops[at + 5] + ops[at + 7], data_size) + RECORD_OVERHEAD_MAX
