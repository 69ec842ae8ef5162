"""Take many messages out of a stream at once, as max_msgs_per_subject asks for after a batch, and acks do.

One by one, each removal looks up a block, decodes a message and moves ranges of sequences about. Here the work is done
in loops over arrays, block by block. Everything is read before anything is changed, so that a read that fails leaves
the stream as it was.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.blocks.window import window
from jetlake.store.records.trim import leave, locate, measure_at, oldest_in, oldest_known

if TYPE_CHECKING:
    from jetlake.store.retention.retention import Retention


class _Part(NamedTuple):
    """Messages that are to leave one block."""

    block: MsgBlock
    seqs: array[int]
    slots: array[int]  # of their subjects in the whole stream's table
    sizes: array[int]  # as JetStream counts them


def oldest_over(catalog: Catalog, slots: Sequence[int], count_max: int) -> array[int]:
    """The messages, oldest first, by which subjects exceed `count_max`."""
    need = bytearray(4 * catalog.table.slot_limit)
    seqs, left, low = oldest_known(catalog.table, slots, count_max, need)
    is_sorted = not seqs  # what the blocks tell comes in order
    for block in catalog.blocks_from(low):
        if not left:
            break
        if block.message_count:
            found = _oldest_in_block(catalog, block, slots, low, need, left)
            seqs.extend(found)
            left -= len(found)
    assert not left, "a subject with messages has an oldest one"
    return seqs if is_sorted else array("Q", sorted(seqs))


def _oldest_in_block(
    catalog: Catalog, block: MsgBlock, slots: Sequence[int], low: int, need: bytearray, left: int
) -> array[int]:
    """Needed messages of one block; `need` is what is needed after it."""
    index, (starts, ends) = catalog.index(block), block.gone.arrays
    columns = (index.ids, index.position_from(low), index.count, index.seqs, index.base_seq, starts, ends)
    if index.table is catalog.table:
        return oldest_in(*columns, need, left)
    own = bytearray(4 * index.table.slot_limit)  # the block has slots of its own
    needs, own_needs, own_slots = memoryview(need).cast("I"), memoryview(own).cast("I"), dict[int, int]()
    for slot in slots:
        if needs[slot] and (found := index.table.find(catalog.table.subject(slot))) >= 0:
            own_slots[slot], own_needs[found] = found, needs[slot]
    seqs = oldest_in(*columns, own, left)
    for slot, own_slot in own_slots.items():
        needs[slot] = own_needs[own_slot]
    return seqs


def remove_all(store: Retention, seqs: array[int], *, are_oldest: bool) -> None:
    """Remove live messages, in ascending order. `are_oldest`: each is the first of its subject when its turn comes."""
    catalog, lost_count = store.catalog, store.catalog.lost.count
    for block, _ in _by_block(catalog, seqs):
        catalog.index(block)
    if catalog.lost.count != lost_count:
        seqs = array("Q", filter(catalog.is_live, seqs))
    parts = [_measured(store, block, part) for block, part in _by_block(catalog, seqs)]
    for part in parts:
        part.block.gone.add_all(part.seqs)
    first = catalog.next_live(catalog.first_seq)
    for part in parts:
        _leave(store, part, len(part.seqs) if first is None else bisect_left(part.seqs, first), are_oldest)
    if first != catalog.first_seq:
        store._advance_first(catalog.first_seq)
    for part in parts:
        if part.block.last_seq >= catalog.first_seq:
            store._after_removal(part.block)


def _by_block(catalog: Catalog, seqs: array[int]) -> Iterator[tuple[MsgBlock, array[int]]]:
    """Sequences in ascending order, cut where a block ends."""
    start = 0
    while start < len(seqs):
        block = catalog.block_of(seqs[start])
        assert block is not None, f"sequence {seqs[start]} is in no block"
        stop = bisect_right(seqs, block.last_seq, start)
        yield block, seqs[start:stop]
        start = stop


def _measured(store: Retention, block: MsgBlock, seqs: array[int]) -> _Part:
    """Find out subjects and sizes of messages; of a damaged one as near as can be told."""
    index, place, table = store.catalog.index(block), 0, store.catalog.table
    positions = locate(seqs, index.seqs, index.base_seq, index.count)
    part = _Part(block, seqs, array("I", bytes(4 * len(seqs))), array("Q", bytes(8 * len(seqs))))
    while place < len(seqs):
        before, place = place, _measure_window(store, part, index, positions, place)
        if place == before:
            stop = store.unreadable_at(block, index, positions[place]).stop
            while place < len(seqs) and positions[place] < stop:
                subject = index.table.subject(index.ids[positions[place]])
                part.slots[place] = table.find(subject)
                part.sizes[place] = store._damaged_size(block, index, positions[place])
                place += 1
    return part


def _measure_window(store: Retention, part: _Part, index: BlockIndex, positions: array[int], place: int) -> int:
    """Measure as many messages as can be read at once; up to which."""
    data, base = window(part.block, index, positions, place, len(positions))
    if not data:
        return place
    return measure_at(
        data,
        base,
        index.offsets,
        index.count,
        part.block.body_size,
        part.block.seed,
        positions,
        place,
        part.seqs,
        store.catalog.table,
        store.size_fixed,
        store.size_headers,
        part.slots,
        part.sizes,
    )


def _leave(store: Retention, part: _Part, front_count: int, are_oldest: bool) -> None:
    """Take messages out of all counters. The first ones lie below all others: that needs no record of its own."""
    table, count = store.catalog.table, len(part.seqs)
    size = leave(table, part.slots, part.seqs, part.sizes, 0, front_count, None, are_oldest)
    if front_count < count:
        group = store._removal_group(part.block)
        group.seqs.add_all(part.seqs[front_count:])
        size += leave(table, part.slots, part.seqs, part.sizes, front_count, count, group.subjects, are_oldest)
    part.block.size -= size
    store.catalog.size -= size
    if len(store.expiry.wheel) or store.expiry.never:
        for seq in part.seqs:
            store.expiry.forget(seq)
