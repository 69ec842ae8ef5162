"""Questions about a stream's messages by subject, sequence and time.

Cost. Totals of a filter come from the subject table: a hash look-up for a literal subject, a walk over the matching
part of the sorted subjects for a wildcard. A search by filter looks into the indexes of blocks (8 bytes a message, no
message is read). Where the first two blocks have no match it asks the subject table, and from then on skips blocks that
lie outside the first and last sequence of what matches, those that a Bloom filter of their subjects rules out, and
those whose own subject table has no match. Counting from the middle of a stream
takes the nearer end: whole blocks are counted by their subject tables, and only the block in the middle, and blocks
with deletes, by their index.

First and last sequences in the table are bounds that go stale when messages are removed; they are corrected here, when
somebody asks.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jetlake.errors import TooManyResults
from jetlake.store.api import Pending, SimpleState
from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.format import hash64
from jetlake.store.index.subject_table import (
    FIRST_STALE,
    LAST_STALE,
    SubjectFilter,
    count_live,
    find_match,
    find_match_back,
    last_seqs,
    list_live,
    seq_bounds,
    totals_json,
)
from jetlake.store.index.summary import may_hold
from jetlake.store.records.record import BadRecord, decode
from jetlake.subjects import check_filter

_NO, _YES = 1, 2  # in a memo (see `subject_table`)
_FILTERS_MAX = 256
_AT_ONCE_COUNT = 32  # the last messages of a search by time are read together, if they are small
_AT_ONCE_SIZE_MAX = 32 * 1024
_STEP_MIN, _STEP_GROWTH = 64, 8  # of a search by time, in messages away from where it was guessed
_TRIED_MAX = 2  # blocks that are searched before it is found out which ones can hold a match
_HASHES_MAX = 16  # subjects that a search compares with each block's
ALL = SubjectFilter([">"])


class Filter:
    """A subject filter with what it remembers of the whole stream's table."""

    __slots__ = ("memo", "reuse_count", "stored", "subjects")

    def __init__(self, patterns: Sequence[str]) -> None:
        self.stored: bytes | None = None  # the one subject it is for, which looks like a pattern
        for pattern in patterns:
            check_filter(pattern)
        self.subjects = SubjectFilter(patterns)
        self.memo, self.reuse_count = bytearray(), -1


class Queries:
    """Answers from a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._filters: dict[tuple[str, ...], Filter] = {}

    def filter(self, filters: str | Sequence[str]) -> Filter:
        """The filter for some patterns, made once."""
        key = (filters,) if isinstance(filters, str) else tuple(filters)
        found = self._filters.get(key)
        if found is None:
            if len(self._filters) >= _FILTERS_MAX:
                del self._filters[next(iter(self._filters))]
            found = self._filters[key] = Filter(key)
        return found

    def next_seq(self, filter: Filter, start: int) -> int | None:
        """The first matching live sequence at or after `start`."""
        catalog = self.catalog
        start = max(start, catalog.first_seq)
        if filter.subjects.is_all:
            return catalog.next_live(start)
        if filter.subjects.literal is None:
            return self._next_from(filter, start, None)
        for slot in catalog.table.match(filter.subjects):
            first, last = catalog.table.first(slot), catalog.table.last(slot)
            if start <= first:
                return self.first_of(slot)
            return self._next_from(filter, start, (start, last)) if start <= last else None
        return None

    def prev_seq(self, filter: Filter, start: int) -> int | None:
        """The last matching live sequence at or before `start`."""
        catalog = self.catalog
        start = min(start, catalog.last_seq)
        if filter.subjects.is_all:
            return catalog.prev_live(start)
        if filter.subjects.literal is None:
            return self._prev_from(filter, start, None)
        for slot in catalog.table.match(filter.subjects):
            first, last = catalog.table.first(slot), catalog.table.last(slot)
            if start >= last:
                return self.last_of(slot)
            return self._prev_from(filter, start, (first, start)) if start >= first else None
        return None

    def _next_from(self, filter: Filter, start: int, bounds: tuple[int, int] | None) -> int | None:
        """The first match at or after `start`, knowing perhaps between which sequences it lies."""
        hashes: list[int] | None = None
        for tried, block in enumerate(self.catalog.blocks_from(start)):
            if bounds is None and tried == _TRIED_MAX:  # not where it was likely: find out where it can be
                bounds = self._bounds(filter, block.first_seq)
                if bounds is None:
                    return None
            if hashes is None and bounds is not None and tried:
                hashes = self._subject_hashes(filter)
            if bounds is not None and block.first_seq > bounds[1]:
                return None
            if bounds is not None and block.last_seq < bounds[0]:
                continue
            if hashes and block.subject_bits and not may_hold(block.subject_bits, hashes):
                continue
            found = self._next_in_block(filter, block, start)
            if found is not None:
                return found
        return None

    def _prev_from(self, filter: Filter, start: int, bounds: tuple[int, int] | None) -> int | None:
        """The last match at or before `start`, knowing perhaps between which sequences it lies."""
        hashes: list[int] | None = None
        for tried, block in enumerate(self.catalog.blocks_back_from(start)):
            if bounds is None and tried == _TRIED_MAX:
                bounds = self._bounds(filter, 0)
                if bounds is None:
                    return None
            if hashes is None and bounds is not None and tried:
                hashes = self._subject_hashes(filter)
            if bounds is not None and block.last_seq < bounds[0]:
                return None
            if bounds is not None and block.first_seq > bounds[1]:
                continue
            if hashes and block.subject_bits and not may_hold(block.subject_bits, hashes):
                continue
            found = self._prev_in_block(filter, block, start)
            if found is not None:
                return found
        return None

    def last_seq(self, filter: Filter) -> int | None:
        """The last matching live sequence."""
        if filter.subjects.is_all:
            return self.catalog.prev_live(self.catalog.last_seq)
        table = self.catalog.table
        slots = sorted(table.match(filter.subjects), key=table.last, reverse=True)
        best = None
        for slot in slots:
            if best is not None and table.last(slot) <= best:
                break
            found = self.last_of(slot)
            best = found if best is None else max(best, found)
        return best

    def first_of(self, slot: int) -> int:
        """The exact first sequence of a subject."""
        table = self.catalog.table
        if table.flags(slot) & FIRST_STALE:
            first, last = table.first(slot), table.last(slot)
            found = self._next_from(_literal(table.subject(slot)), first, (first, last))
            assert found is not None, "a subject with messages has a first one"
            table.set_first(slot, found)
        return table.first(slot)

    def last_of(self, slot: int) -> int:
        """The exact last sequence of a subject."""
        table = self.catalog.table
        if table.flags(slot) & LAST_STALE:
            first, last = table.first(slot), table.last(slot)
            found = self._prev_from(_literal(table.subject(slot)), last, (first, last))
            assert found is not None, "a subject with messages has a last one"
            table.set_last(slot, found)
        return table.last(slot)

    def matching(self, filter: Filter, start: int, stop: int) -> Iterator[array[int]]:
        """Every matching live sequence of start..stop-1, ascending: those of each block together."""
        hashes = self._subject_hashes(filter)
        for block in self.catalog.blocks_from(start):
            if block.first_seq >= stop:
                return
            first, last = max(start, block.first_seq), min(stop - 1, block.last_seq)
            if not block.message_count or first > last:
                continue
            if not (hashes and block.subject_bits) or may_hold(block.subject_bits, hashes):
                yield list_live(*self._live_columns(filter, block, first, last))

    def live_in(self, block: MsgBlock, start: int) -> array[int]:
        """Every live sequence of a block from one on, ascending."""
        return list_live(*self._live_columns(self.filter(">"), block, max(start, block.first_seq), block.last_seq))

    def num_pending(self, start: int, filter: Filter, last_per_subject: bool) -> Pending:
        """How many matching messages lie at or after `start`; or how many subjects have their last one there."""
        catalog, table = self.catalog, self.catalog.table
        start = max(start, catalog.first_seq)
        if start > catalog.last_seq:
            count = 0
        elif last_per_subject:
            count = self._count_last_from(filter, start)
        elif start == catalog.first_seq:
            count = table.match_total(filter.subjects)
        elif filter.subjects.is_all:
            count = sum(self._live_from(block, start) for block in catalog.blocks_from(start))
        else:
            count = self._count_from(filter, start)
        return Pending(count, catalog.last_seq)

    def filtered_state(self, start: int, filter: Filter) -> SimpleState:
        """The matching messages at or after `start` in numbers."""
        count = self.num_pending(start, filter, False).msgs
        if not count:
            return SimpleState(0, 0, 0)
        first, last = self.next_seq(filter, start), self.last_seq(filter)
        assert first is not None and last is not None
        return SimpleState(count, first, last)

    def subjects_state(self, filter: Filter) -> dict[bytes, SimpleState]:
        """Each matching subject in numbers."""
        table = self.catalog.table
        return {
            table.subject(slot): SimpleState(table.count(slot), self.first_of(slot), self.last_of(slot))
            for slot in table.match(filter.subjects)
        }

    def subjects_totals(self, filter: Filter) -> dict[bytes, int]:
        """How many messages each matching subject has."""
        table = self.catalog.table
        return {table.subject(slot): table.count(slot) for slot in table.match(filter.subjects)}

    def subjects_page(self, filter: Filter, offset: int, count_max: int) -> tuple[int, bytes]:
        """How many subjects match, and a JSON object with the totals of some of them, in order."""
        slots = self.catalog.table.match(filter.subjects)
        return len(slots), totals_json(self.catalog.table, slots[offset : offset + count_max])

    def last_seqs(self, filter: Filter, max_seq: int | None, count_max: int | None) -> array[int]:
        """The last sequence of each matching subject, or its last one at or before max_seq; ascending."""
        table = self.catalog.table
        if max_seq is not None and max_seq < self.catalog.last_seq:
            return self._last_seqs_before(table.match(filter.subjects), max_seq, count_max)
        slots = table.match_unordered(filter.subjects)
        if count_max is not None and len(slots) > count_max:
            raise TooManyResults(count_max)
        seqs, stale = last_seqs(table, slots)
        return array("Q", sorted([*seqs, *map(self.last_of, stale)])) if stale else seqs

    def _last_seqs_before(self, slots: Sequence[int], max_seq: int, count_max: int | None) -> array[int]:
        """The last sequences at or before one, of those subjects that have any."""
        table = self.catalog.table
        seqs = []
        for slot in slots:
            seq: int | None = self.last_of(slot)
            if seq is not None and seq > max_seq:
                seq = self.prev_seq(_literal(table.subject(slot)), max_seq) if table.first(slot) <= max_seq else None
            if seq is not None:
                seqs.append(seq)
                if count_max is not None and len(seqs) > count_max:
                    raise TooManyResults(count_max)
        return array("Q", sorted(seqs))

    def seq_from_time(self, time_ns: int) -> int:
        """The first live sequence stored at or after a time; last_seq + 1 when there is none. Times must ascend."""
        catalog = self.catalog
        # What lies before a block was stored no later than its header says, so the search may begin at any block that
        # follows a time too early; and this is the last one where times ascend.
        place = bisect_left(catalog.blocks, time_ns, key=_time_before_ns) - 1
        start = max(catalog.first_seq, catalog.blocks[place].first_seq) if place > 0 else catalog.first_seq
        for block in catalog.blocks_from(start):
            if block.time_ns_max < time_ns or not block.message_count:
                continue
            index = catalog.index(block)
            low = _position_at(catalog, block, index, index.position_from(catalog.first_seq), time_ns)
            found = catalog.next_live(index.seq(low)) if low < index.count else None
            if found is not None:
                return found
        return catalog.last_seq + 1

    def _bounds(self, filter: Filter, start: int) -> tuple[int, int] | None:
        """Sequences between which every match at or after `start` lies; None when there is none."""
        table = self.catalog.table
        low, high = seq_bounds(table, table.match(filter.subjects), start)
        return (low, high) if high else None

    def _subject_hashes(self, filter: Filter) -> list[int]:
        """The hashes of the subjects that match, to be compared with those of blocks; none when they are too many."""
        table = self.catalog.table
        if filter.subjects.is_all:
            return []
        slots = table.match(filter.subjects)
        return [hash64(table.subject(slot), 0) for slot in slots] if len(slots) <= _HASHES_MAX else []

    def memo(self, filter: Filter, index: BlockIndex) -> bytearray:
        """What is known of the slots of an index's table; kept only for the whole stream's table."""
        table = index.table
        if filter.stored is not None:
            memo, slot = bytearray([_NO]) * table.slot_limit, table.find(filter.stored)
            if slot >= 0:
                memo[slot] = _YES
            return memo
        if table is not self.catalog.table:
            return bytearray(table.slot_limit)
        if filter.reuse_count != table.reuse_count:
            filter.memo, filter.reuse_count = bytearray(table.slot_limit), table.reuse_count
        elif len(filter.memo) < table.slot_limit:
            filter.memo.extend(bytes(table.slot_limit + table.slot_limit // 8 - len(filter.memo)))
        return filter.memo

    def _own_bounds(self, filter: Filter, index: BlockIndex) -> tuple[int, int] | None:
        """Where one subject lies in a block, if the block knows: in no place (1, 0) when it is not there."""
        table = index.table
        if table is self.catalog.table or filter.subjects.literal is None:
            return None
        for slot in table.match(filter.subjects):
            return table.first(slot), table.last(slot)
        return 1, 0

    def _next_in_block(self, filter: Filter, block: MsgBlock, start: int) -> int | None:
        if filter.subjects.is_all:
            return block.next_live(start)
        seq = block.next_live(start)
        if seq is None:
            return None
        index = self.catalog.index(block)
        bounds = self._own_bounds(filter, index)
        if bounds is not None:
            seq = max(seq, bounds[0])
            if seq > bounds[1]:
                return None
        memo = self.memo(filter, index)
        while seq is not None:
            place = find_match(index.table, filter.subjects, index.ids, index.position_from(seq), index.count, memo)
            if place < 0:
                return None
            found = index.seq(place)
            seq = block.next_live(found)
            if seq == found:
                return found
        return None

    def _prev_in_block(self, filter: Filter, block: MsgBlock, start: int) -> int | None:
        seq = block.prev_live(start)
        if seq is None:
            return None
        index = self.catalog.index(block)
        bounds = self._own_bounds(filter, index)
        if bounds is not None:
            seq = min(seq, bounds[1])
            if seq < bounds[0]:
                return None
        memo = self.memo(filter, index)
        while seq is not None:
            stop = index.position_from(seq + 1)
            place = find_match_back(index.table, filter.subjects, index.ids, 0, stop, memo)
            if place < 0:
                return None
            found = index.seq(place)
            seq = block.prev_live(found)
            if seq == found:
                return found
        return None

    def _count_last_from(self, filter: Filter, start: int) -> int:
        """Matching subjects whose last message lies at or after `start`."""
        is_first = start <= self.catalog.first_seq
        if is_first and filter.subjects.is_all:
            return len(self.catalog.table)
        count, unsure = self.catalog.table.match_last_from(filter.subjects, start)
        return count + (len(unsure) if is_first else sum(self.last_of(slot) >= start for slot in unsure))

    def _live_from(self, block: MsgBlock, start: int) -> int:
        if start <= block.first_seq:
            return block.message_count
        return block.last_seq - start + 1 - block.gone.count_between(start, block.last_seq)

    def _count_from(self, filter: Filter, start: int) -> int:
        """Matching live messages at or after `start`."""
        catalog = self.catalog
        total, whole, cut = catalog.table.match_from(filter.subjects, start)
        if not cut:
            return whole
        if total == catalog.table.total:  # every message matches
            return sum(self._live_from(block, start) for block in catalog.blocks_from(start))
        place, hashes = catalog.place(start), self._subject_hashes(filter)
        is_front = place < len(catalog.blocks) - 1 - place
        first, last = (0, start - 1) if is_front else (start, catalog.last_seq)
        count = sum(
            self._count_in(filter, block, first, last)
            for block in (catalog.blocks[: place + 1] if is_front else catalog.blocks[place:])
            if not (hashes and block.subject_bits) or may_hold(block.subject_bits, hashes)
        )
        return total - count if is_front else count

    def _count_in(self, filter: Filter, block: MsgBlock, first: int, last: int) -> int:
        """Matching live messages of a block between two sequences."""
        first, last = max(first, block.first_seq), min(last, block.last_seq)
        if first > last or not block.message_count:
            return 0
        index = self.catalog.index(block)
        is_whole = (first, last) == (block.first_seq, block.last_seq)
        is_own = index.table is not self.catalog.table
        if is_whole and is_own and index.table.total == block.message_count:  # nothing was removed since it was sealed
            return index.table.match_total(filter.subjects)
        return count_live(*self._live_columns(filter, block, first, last))

    def _live_columns(self, filter: Filter, block: MsgBlock, first: int, last: int) -> tuple[Any, ...]:
        """What the kernels need to look for live messages of a block between two sequences."""
        index = self.catalog.index(block)
        memo, (starts, ends) = self.memo(filter, index), block.gone.arrays
        columns = (index.ids, index.count, index.seqs, index.base_seq)
        return index.table, filter.subjects, *columns, first, last, starts, ends, memo


def _time_before_ns(block: MsgBlock) -> int:
    return block.header.last_time_ns


def _position_at(catalog: Catalog, block: MsgBlock, index: BlockIndex, low: int, time_ns: int) -> int:
    """The first message from position `low` on that was stored at or after a time; times ascend."""

    def stored_ns(position: int) -> int:
        return _time_at(catalog, block, index, position)

    low, high = _bracket(block, low, index.count, time_ns, stored_ns)
    coarse = range(low, high, _AT_ONCE_COUNT)
    place = bisect_left(coarse, time_ns, key=stored_ns)
    high = coarse[place] if place < len(coarse) else high
    low = coarse[place - 1] + 1 if place else low
    found = _bisect_at_once(block, index, low, high, time_ns) if low < high else low
    return found if found >= 0 else low + bisect_left(range(low, high), time_ns, key=stored_ns)


def _bracket(block: MsgBlock, low: int, high: int, time_ns: int, stored_ns: Callable[[int], int]) -> tuple[int, int]:
    """Narrow down low..high by a guess, as if messages came at an even pace, and growing steps away from it."""
    span_ns, step = block.time_ns_max - block.time_ns_min, _STEP_MIN
    if high - low <= step or not 0 < time_ns - block.time_ns_min <= span_ns:
        return low, high
    guess = low + (high - 1 - low) * (time_ns - block.time_ns_min) // span_ns
    if stored_ns(guess) < time_ns:
        low = guess + 1
        while low + step < high and stored_ns(low + step) < time_ns:
            low, step = low + step + 1, step * _STEP_GROWTH
        return low, min(high, low + step)
    high = guess
    while high - step > low and stored_ns(high - step) >= time_ns:
        high, step = high - step, step * _STEP_GROWTH
    return max(low, high - step), high


def _bisect_at_once(block: MsgBlock, index: BlockIndex, low: int, high: int, time_ns: int) -> int:
    """The first of positions low..high-1 stored at or after a time, else `high`, by one read; -1: go slowly instead."""
    start, end = index.offsets[low], index.end(high - 1, block.body_size)
    if end - start > _AT_ONCE_SIZE_MAX:
        return -1

    def stored_ns(position: int) -> int:
        at = index.offsets[position] - start
        return decode(data, at, index.end(position, block.body_size) - start, block.seed)[0].time_ns

    data = block.read(start, end)
    try:
        return low + bisect_left(range(low, high), time_ns, key=stored_ns) if len(data) == end - start else -1
    except BadRecord:
        return -1


def _time_at(catalog: Catalog, block: MsgBlock, index: BlockIndex, position: int) -> int:
    """When a message was stored; a damaged one counts as stored with the next that is not."""
    for place in range(position, index.count):
        record = catalog.record_at(block, index, place) if index.seq(place) not in block.lost else None
        if record is not None:
            return record.time_ns
    return block.time_ns_max


def _literal(subject: bytes) -> Filter:
    """A filter for one stored subject, which may contain what looks like a wildcard."""
    filter = Filter(())
    filter.subjects = SubjectFilter([subject])
    filter.stored = subject if filter.subjects.literal is None else None
    return filter
