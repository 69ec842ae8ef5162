"""Search an array of slots for subjects that match: the reference twin of `_subject_scan_c.pyx`.

Import `subject_table`. `ids` holds a slot of the table per message, or NO_ID. `memo` has a byte per slot, 0 as long as
nothing is known, so that the filter is asked once per slot however often it is searched. The caller keeps the memo with
the filter, and clears it when the table's `reuse_count` has changed. A slot without live messages never matches, and
nothing is remembered of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jetlake.store._subject_filter_py import SubjectFilter
from jetlake.store._subject_table_py import SubjectTable

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


def _matcher(
    table: SubjectTable, filter: SubjectFilter, ids: Sequence[int], start: int, stop: int, memo: bytearray
) -> Callable[[int], bool]:
    """Check the arguments; return the test of one slot, which asks the filter once per slot and keeps the answer."""
    check_scan(table, ids, start, stop, memo)

    def match(slot: int) -> bool:
        subject = table.live_subject(slot)
        if subject is None:
            return False
        if memo[slot] == _UNKNOWN:
            memo[slot] = _YES if filter.matches(subject) else _NO
        return memo[slot] == _YES

    return match


def check_scan(table: SubjectTable, ids: Sequence[int], start: int, stop: int, memo: bytearray) -> None:
    """Raise unless the range lies in `ids` and the memo has a byte for each slot."""
    if start < 0 or stop > len(ids):
        raise IndexError(f"range {start} to {stop} of {len(ids)} ids")
    if len(memo) < table.slot_limit:
        raise ValueError(f"memo of {len(memo)} bytes for {table.slot_limit} slots")
