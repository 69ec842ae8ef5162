"""Search an array of slots for subjects that match: the reference twin of `_subject_scan_c.pyx`.

Import `subject_table`. `ids` holds a slot of the table per message, or NO_ID. `memo` has a byte per slot, 0 as long as
nothing is known, so that the filter is asked once per slot however often it is searched. The caller keeps the memo with
the filter, and clears it when the table's `reuse_count` has changed. A slot without live messages never matches, and
nothing is remembered of it. A filter of one literal subject has one slot, which is looked up: it needs no memo.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence

from jetlake.store.index._subject_filter_py import SubjectFilter
from jetlake.store.index._subject_table_py import SubjectTable
from jetlake.store.records.varint import U64_MAX

NO_ID = 0xFFFFFFFF

_UNKNOWN, _NO, _YES = 0, 1, 2


def find_match(
    table: SubjectTable, filter: SubjectFilter, ids: Sequence[int], start: int, stop: int, memo: bytearray
) -> int:
    """The smallest index in [start, stop) of `ids` whose slot is live and matches, or -1."""
    match = _matcher(table, filter, ids, start, stop, memo)
    return next((index for index in range(start, stop) if match(ids[index])), -1)


def find_match_back(
    table: SubjectTable, filter: SubjectFilter, ids: Sequence[int], start: int, stop: int, memo: bytearray
) -> int:
    """The largest index in [start, stop) of `ids` whose slot is live and matches, or -1."""
    match = _matcher(table, filter, ids, start, stop, memo)
    return next((index for index in reversed(range(start, stop)) if match(ids[index])), -1)


def count_matches(
    table: SubjectTable, filter: SubjectFilter, ids: Sequence[int], start: int, stop: int, memo: bytearray
) -> int:
    """How many indexes in [start, stop) of `ids` have a slot that is live and matches."""
    match = _matcher(table, filter, ids, start, stop, memo)
    return sum(match(ids[index]) for index in range(start, stop))


def count_live(
    table: SubjectTable,
    filter: SubjectFilter,
    ids: Sequence[int],
    count: int,
    seqs: Sequence[int] | None,
    base_seq: int,
    first: int,
    last: int,
    starts: Sequence[int],
    ends: Sequence[int],
    memo: bytearray,
) -> int:
    """How many of `count` messages have a sequence of first..last, a slot that is live and matches, and are not gone.

    Message i has the sequence base_seq + seqs[i], or base_seq + i without `seqs`; sequences ascend. Gone are those of
    starts[i]..ends[i], which ascend and do not overlap: the arrays of a SequenceSet.
    """
    return len(list_live(table, filter, ids, count, seqs, base_seq, first, last, starts, ends, memo))


def list_live(
    table: SubjectTable,
    filter: SubjectFilter,
    ids: Sequence[int],
    count: int,
    seqs: Sequence[int] | None,
    base_seq: int,
    first: int,
    last: int,
    starts: Sequence[int],
    ends: Sequence[int],
    memo: bytearray,
) -> array[int]:
    """The sequences of the messages that `count_live` counts."""
    check_live(table, ids, count, seqs, base_seq, first, last, starts, ends, memo)
    match = _matcher(table, filter, ids, 0, count, memo)
    distances = range(count) if seqs is None else seqs
    place, found = bisect_left(ends, first), array("Q")
    for index in range(bisect_left(distances, first - base_seq, 0, count), count):
        seq = base_seq + distances[index]
        if seq > last:
            break
        while place < len(ends) and ends[place] < seq:
            place += 1
        if (place == len(ends) or seq < starts[place]) and match(ids[index]):
            found.append(seq)
    return found


def _matcher(
    table: SubjectTable, filter: SubjectFilter, ids: Sequence[int], start: int, stop: int, memo: bytearray
) -> Callable[[int], bool]:
    """Check the arguments; return the test of one slot, which asks the filter once per slot and keeps the answer."""
    check_scan(table, ids, start, stop, memo)
    if filter.literal is not None:
        wanted = table.match(filter)
        return lambda slot: slot in wanted

    def match(slot: int) -> bool:
        subject = table.live_subject(slot)
        if subject is None:
            return False
        if memo[slot] == _UNKNOWN:
            memo[slot] = _YES if filter.matches(subject) else _NO
        return memo[slot] == _YES

    return match


def check_live(
    table: SubjectTable,
    ids: Sequence[int],
    count: int,
    seqs: Sequence[int] | None,
    base_seq: int,
    first: int,
    last: int,
    starts: Sequence[int],
    ends: Sequence[int],
    memo: bytearray,
) -> None:
    """Raise unless the columns are long enough and the sequences fit in 64 bits."""
    check_scan(table, ids, 0, count, memo)
    if count < 0:
        raise IndexError(f"count {count} of {len(ids)} ids")
    if seqs is not None and len(seqs) < count:
        raise IndexError(f"count {count} of {len(seqs)} seqs")
    if len(starts) != len(ends):
        raise ValueError(f"{len(starts)} starts and {len(ends)} ends of ranges")
    for seq in (base_seq, first, last):
        if not 0 <= seq <= U64_MAX:
            raise ValueError(f"seq {seq}, expected 0 to {U64_MAX}")


def check_scan(table: SubjectTable, ids: Sequence[int], start: int, stop: int, memo: bytearray) -> None:
    """Raise unless the range lies in `ids` and the memo has a byte for each slot."""
    if start < 0 or stop > len(ids):
        raise IndexError(f"range {start} to {stop} of {len(ids)} ids")
    if len(memo) < table.slot_limit:
        raise ValueError(f"memo of {len(memo)} bytes for {table.slot_limit} slots")
