"""Questions about a stream's messages by subject, sequence and time.

Cost. Totals of a filter come from the subject table: a hash look-up for a literal subject, a walk over the matching
part of the sorted subjects for a wildcard. A search by filter looks into the indexes of blocks (8 bytes a message, no
message is read), skipping the blocks that lie outside the first and last sequence of what matches, and those whose own
subject table has no match. Counting from the middle of a stream takes the nearer end: whole blocks are counted by their
subject tables, and only the block in the middle, and blocks with deletes, by their index.

First and last sequences in the table are bounds that go stale when messages are removed; they are corrected here, when
somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jetlake.errors import CorruptBlock, TooManyResults
from jetlake.store.api import Pending, SimpleState
from jetlake.store.block import BlockIndex, MsgBlock
from jetlake.store.catalog import Catalog
from jetlake.store.record import BadRecord
from jetlake.store.subject_table import (
    FIRST_STALE,
    LAST_STALE,
    SubjectFilter,
    count_matches,
    find_match,
    find_match_back,
)
from jetlake.subjects import check_filter

_FILTERS_MAX = 256
ALL = SubjectFilter([">"])


class Filter:
    """A subject filter with what it remembers of the whole stream's table."""

    __slots__ = ("memo", "reuse_count", "subjects")

    def __init__(self, patterns: Sequence[str]) -> None:
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
        bounds: tuple[int, int] | None = None
        for block in catalog.blocks_from(start):
            if bounds is not None and not (block.first_seq <= bounds[1] and bounds[0] <= block.last_seq):
                continue
            found = self._next_in_block(filter, block, start)
            if found is not None:
                return found
            if bounds is None:  # not where it was likely: find out where it can be
                bounds = self._bounds(filter, start)
                if bounds is None:
                    return None
        return None

    def prev_seq(self, filter: Filter, start: int) -> int | None:
        """The last matching live sequence at or before `start`."""
        catalog = self.catalog
        start = min(start, catalog.last_seq)
        if filter.subjects.is_all:
            return catalog.prev_live(start)
        bounds: tuple[int, int] | None = None
        for block in catalog.blocks_back_from(start):
            if bounds is not None and not (block.first_seq <= bounds[1] and bounds[0] <= block.last_seq):
                continue
            found = self._prev_in_block(filter, block, start)
            if found is not None:
                return found
            if bounds is None:
                bounds = self._bounds(filter, 0)
                if bounds is None:
                    return None
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
            found = self.next_seq(_literal(table.subject(slot)), table.first(slot))
            assert found is not None, "a subject with messages has a first one"
            table.set_first(slot, found)
        return table.first(slot)

    def last_of(self, slot: int) -> int:
        """The exact last sequence of a subject."""
        table = self.catalog.table
        if table.flags(slot) & LAST_STALE:
            found = self.prev_seq(_literal(table.subject(slot)), table.last(slot))
            assert found is not None, "a subject with messages has a last one"
            table.set_last(slot, found)
        return table.last(slot)

    def matching(self, filter: Filter, start: int, stop: int) -> Iterator[int]:
        """Every matching live sequence of start..stop-1, ascending."""
        for block in self.catalog.blocks_from(start):
            if block.first_seq >= stop:
                return
            seq = self._next_in_block(filter, block, start)
            while seq is not None and seq < stop:
                yield seq
                seq = self._next_in_block(filter, block, seq + 1)

    def num_pending(self, start: int, filter: Filter, last_per_subject: bool) -> Pending:
        """How many matching messages lie at or after `start`; or how many subjects have their last one there."""
        catalog, table = self.catalog, self.catalog.table
        start = max(start, catalog.first_seq)
        if last_per_subject:
            count = sum(self._last_reaches(slot, start) for slot in table.match(filter.subjects))
        elif start > catalog.last_seq:
            count = 0
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

    def last_seqs(self, filter: Filter, max_seq: int | None, count_max: int | None) -> list[int]:
        """The last sequence of each matching subject, or its last one at or before max_seq; ascending."""
        table = self.catalog.table
        seqs = []
        for slot in table.match(filter.subjects):
            seq: int | None = self.last_of(slot)
            if max_seq is not None and seq is not None and seq > max_seq:
                seq = self.prev_seq(_literal(table.subject(slot)), max_seq) if table.first(slot) <= max_seq else None
            if seq is not None:
                seqs.append(seq)
                if count_max is not None and len(seqs) > count_max:
                    raise TooManyResults(count_max)
        return sorted(seqs)

    def seq_from_time(self, time_ns: int) -> int:
        """The first live sequence stored at or after a time; last_seq + 1 when there is none. Times must ascend."""
        catalog = self.catalog
        for block in catalog.blocks_from(catalog.first_seq):
            if block.time_ns_max < time_ns or not block.message_count:
                continue
            index = catalog.index(block)
            low, high = index.position_from(catalog.first_seq), index.count
            while low < high:
                middle = (low + high) // 2
                if _time_at(block, index, middle) < time_ns:
                    low = middle + 1
                else:
                    high = middle
            found = catalog.next_live(index.seq(low)) if low < index.count else None
            if found is not None:
                return found
        return catalog.last_seq + 1

    def _bounds(self, filter: Filter, start: int) -> tuple[int, int] | None:
        """Sequences between which every match at or after `start` lies; None when there is none."""
        table = self.catalog.table
        low, high = None, 0
        for slot in table.match(filter.subjects):
            if table.last(slot) >= start:
                first = max(table.first(slot), start)
                low = first if low is None else min(low, first)
                high = max(high, table.last(slot))
        return None if low is None else (low, high)

    def _memo(self, filter: Filter, index: BlockIndex) -> bytearray:
        """What is known of the slots of an index's table; kept only for the whole stream's table."""
        table = index.table
        if table is not self.catalog.table:
            return bytearray(table.slot_limit)
        if filter.reuse_count != table.reuse_count:
            filter.memo, filter.reuse_count = bytearray(table.slot_limit), table.reuse_count
        elif len(filter.memo) < table.slot_limit:
            filter.memo.extend(bytes(table.slot_limit + table.slot_limit // 8 - len(filter.memo)))
        return filter.memo

    def _next_in_block(self, filter: Filter, block: MsgBlock, start: int) -> int | None:
        if filter.subjects.is_all:
            return block.next_live(start)
        seq = block.next_live(start)
        if seq is None:
            return None
        index = self.catalog.index(block)
        memo = self._memo(filter, index)
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
        memo = self._memo(filter, index)
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

    def _last_reaches(self, slot: int, start: int) -> bool:
        table = self.catalog.table
        return table.last(slot) >= start and self.last_of(slot) >= start

    def _live_from(self, block: MsgBlock, start: int) -> int:
        if start <= block.first_seq:
            return block.message_count
        return block.last_seq - start + 1 - block.gone.count_between(start, block.last_seq)

    def _count_from(self, filter: Filter, start: int) -> int:
        """Matching live messages at or after `start`."""
        catalog, table = self.catalog, self.catalog.table
        total = whole = 0
        cut = False
        for slot in table.match(filter.subjects):
            total += table.count(slot)
            if table.first(slot) >= start:
                whole += table.count(slot)
            elif table.last(slot) >= start:
                cut = True
        if not cut:
            return whole
        place = catalog.place(start)
        if place < len(catalog.blocks) - 1 - place:
            return total - sum(self._count_in(filter, block, 0, start - 1) for block in catalog.blocks[: place + 1])
        return sum(self._count_in(filter, block, start, catalog.last_seq) for block in catalog.blocks[place:])

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
        memo = self._memo(filter, index)
        return sum(
            count_matches(
                index.table, filter.subjects, index.ids, index.position_from(low), index.position_from(high + 1), memo
            )
            for low, high in block.live_runs(first, last)
        )


def _time_at(block: MsgBlock, index: BlockIndex, position: int) -> int:
    """When a message was stored; a damaged one counts as stored with the next that is not."""
    for place in range(position, index.count):
        try:
            return block.record(index, place).time_ns
        except (BadRecord, CorruptBlock):
            continue
    return block.time_ns_max


def _literal(subject: bytes) -> Filter:
    """A filter for one stored subject, which may contain what looks like a wildcard."""
    filter = Filter(())
    filter.subjects = SubjectFilter([subject])
    return filter
