"""Which subjects hold messages, and how many: the reference twin of `_subject_table_c.pyx`. Import `subject_table`.

A SubjectTable gives each subject (bytes) a small integer, its slot, and counts the live messages under it. One table
serves a whole stream, another one each block; per-message arrays store slots in place of subjects.

An entry knows its count, a lower bound of the first live sequence and an upper bound of the last. Removing a message at
a bound leaves that bound right but perhaps not tight: the entry is then marked stale on that side (FIRST_STALE,
LAST_STALE) until somebody who can read messages tells the exact value with `set_first` or `set_last`.

Slots are reused, the last freed first. An entry is freed when its count falls to 0. Subjects are sorted only when a
wildcard is asked for: what is new since the last time is sorted alone, then merged, so that adding costs nothing.

Always true:
- two entries never have the same subject, and a subject has 1 to 65535 bytes;
- where count > 0: first <= every live seq <= last, and a bound that is not stale is exact;
- `total` is the sum of all counts, `len()` the number of entries with count > 0, and every slot is < `slot_limit`;
- with count 0 an entry is only interned: no query returns it.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left

from jetlake.store.index._subject_filter_py import SubjectFilter

FIRST_STALE = 1
LAST_STALE = 2
SUBJECT_SIZE_MAX = 65535
SEQ_MAX = 2**64 - 2  # the next sequence must fit into 64 bits too


class _Entry:
    __slots__ = ("count", "first", "flags", "last", "subject")

    def __init__(self, subject: bytes) -> None:
        self.subject = subject
        self.count = self.first = self.last = self.flags = 0


class SubjectTable:
    """Subjects, their slots and their counters."""

    def __init__(self) -> None:
        self._entries: list[_Entry | None] = []
        self._reuse_count = 0
        self.clear()

    def clear(self) -> None:
        """Forget every subject."""
        self._reuse_count += bool(self._entries)
        self._entries.clear()
        self._slots: dict[bytes, int] = {}
        self._free: list[int] = []
        self._order: list[bytes] = []  # sorted; subjects may have left the table since
        self._tail: dict[bytes, None] = {}  # in the table, not (or no longer) in order
        self._has_holes = False
        self._live_count = self._total = 0

    def intern(self, subject: bytes) -> int:
        """The slot of this subject, with a new entry of count 0 when there is none."""
        check_size(subject)
        slot = self._slots.get(subject)
        return self._create(subject) if slot is None else slot

    def _create(self, subject: bytes) -> int:
        if self._free:
            slot = self._free.pop()
            self._reuse_count += 1
        else:
            slot = len(self._entries)
            self._entries.append(None)
        self._entries[slot] = _Entry(subject)
        self._slots[subject] = slot
        self._tail[subject] = None
        return slot

    def find(self, subject: bytes) -> int:
        """The slot of this subject if it has live messages, else -1."""
        check_size(subject)
        slot = self._slots.get(subject, -1)
        return slot if slot >= 0 and self._entry(slot).count else -1

    def add(self, slot: int, seq: int) -> None:
        """Count one more message."""
        check_seq(seq)
        entry = self._entry(slot)
        if not entry.count:
            entry.first = entry.last = seq
            entry.flags = 0
            self._live_count += 1
        else:
            if seq > entry.last:
                entry.last = seq
                entry.flags &= ~LAST_STALE
            entry.first = min(entry.first, seq)
        entry.count += 1
        self._total += 1

    def add_many(self, slot: int, count: int, first: int, last: int, flags: int) -> None:
        """Merge a summary, such as a block's."""
        check_seq(first)
        check_seq(last)
        check_count(count, SEQ_MAX - self._total)
        entry = self._entry(slot)
        if not entry.count:
            entry.first, entry.last, entry.flags = first, last, flags & 3
            self._live_count += 1
        else:
            entry.first, entry.last = min(entry.first, first), max(entry.last, last)
            entry.flags |= flags & 3
        entry.count += count
        self._total += count

    def remove(self, slot: int, seq: int, count: int = 1) -> int:
        """Count this message less, or `count` unnamed ones (with seq 0); how many remain. At 0 the entry is freed."""
        entry = self._entry(slot)
        check_count(count, entry.count)
        if count == 1 and seq:
            check_seq(seq)
        entry.count -= count
        self._total -= count
        if not entry.count:
            self._live_count -= 1
            self._free_entry(slot)
            return 0
        _loosen(entry, seq, count)
        return entry.count

    def remove_first(self, slot: int, seq: int) -> None:
        """Count a message less of which is known that no live one comes before it."""
        check_seq(seq)
        entry = self._entry(slot)
        if entry.count > 1:  # whatever the bound was, it is not above this
            entry.first = seq
        self.remove(slot, seq)

    def drop_if_unused(self, slot: int) -> None:
        """Free an entry that was interned and never used."""
        if not self._entry(slot).count:
            self._free_entry(slot)

    def _free_entry(self, slot: int) -> None:
        subject = self._entry(slot).subject
        if subject in self._tail:
            del self._tail[subject]
        else:
            self._has_holes = True
        del self._slots[subject]
        self._entries[slot] = None
        self._free.append(slot)

    def subject(self, slot: int) -> bytes:
        """The subject of this slot."""
        return self._entry(slot).subject

    def count(self, slot: int) -> int:
        """How many live messages it has."""
        return self._entry(slot).count

    def first(self, slot: int) -> int:
        """A lower bound of its first live sequence, exact unless FIRST_STALE."""
        return self._entry(slot).first

    def last(self, slot: int) -> int:
        """An upper bound of its last live sequence, exact unless LAST_STALE."""
        return self._entry(slot).last

    def flags(self, slot: int) -> int:
        """FIRST_STALE and LAST_STALE, or-ed."""
        return self._entry(slot).flags

    def set_first(self, slot: int, seq: int) -> None:
        """State the exact first sequence."""
        check_seq(seq)
        entry = self._entry(slot)
        entry.first = seq
        entry.flags &= ~FIRST_STALE
        if entry.count == 1:
            entry.last, entry.flags = seq, 0

    def set_last(self, slot: int, seq: int) -> None:
        """State the exact last sequence."""
        check_seq(seq)
        entry = self._entry(slot)
        entry.last = seq
        entry.flags &= ~LAST_STALE
        if entry.count == 1:
            entry.first, entry.flags = seq, 0

    def __len__(self) -> int:
        """How many subjects have live messages."""
        return self._live_count

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return self._total

    @property
    def slot_limit(self) -> int:
        """Every slot is below this."""
        return len(self._entries)

    @property
    def reuse_count(self) -> int:
        """How many times slots came to mean another subject, which invalidates memos."""
        return self._reuse_count

    @property
    def size_bytes(self) -> int:
        """Memory held, about."""
        entry_size = sys.getsizeof(_Entry(b"")) + 3 * sys.getsizeof(2**60)
        subjects_size = sum(map(sys.getsizeof, self._slots))
        holders = (self._slots, self._entries, self._free, self._order, self._tail)
        return subjects_size + entry_size * len(self._slots) + sum(map(sys.getsizeof, holders))

    def match(self, filter: SubjectFilter) -> array[int]:
        """The slots with live messages that match, ascending by subject."""
        if filter.all_literal():
            found = sorted(set(filter.patterns) & self._slots.keys())
        else:
            self._sort()
            ranges = [(0, len(self._order))] if filter.is_all else self._ranges(filter)
            found = [s for start, stop in ranges for s in self._order[start:stop] if filter.matches(s)]
        slots = (self._slots[subject] for subject in found)
        return array("I", (slot for slot in slots if self._entry(slot).count))

    def match_unordered(self, filter: SubjectFilter) -> array[int]:
        """The same in any order, which is faster while many subjects are new."""
        return self.match(filter)

    def match_total(self, filter: SubjectFilter) -> int:
        """How many live messages are under matching subjects."""
        return self._total if filter.is_all else sum(self._entry(slot).count for slot in self.match(filter))

    def match_from(self, filter: SubjectFilter, start: int) -> tuple[int, int, bool]:
        """How many live messages are under matching subjects; how many of them under those whose first bound is at or
        after `start`; and whether `start` lies above the first and not above the last bound of another one."""
        check_seq(start)
        entries = [self._entry(slot) for slot in self.match(filter)]
        whole = sum(entry.count for entry in entries if entry.first >= start)
        cut = any(entry.first < start <= entry.last for entry in entries)
        return sum(entry.count for entry in entries), whole, cut

    def match_last_from(self, filter: SubjectFilter, start: int) -> tuple[int, array[int]]:
        """How many matching subjects have their last live sequence at or after `start` for certain, and the slots of
        those that may have: LAST_STALE ones with `start` above the first and not above the last bound. In the order of
        slots for a filter of everything, else of subjects."""
        check_seq(start)
        count, unsure = 0, array("I")
        slots = range(len(self._entries)) if filter.is_all else self.match(filter)
        for slot in slots:
            entry = self._entries[slot]
            if entry is None or not entry.count or entry.last < start:
                continue
            if entry.flags & LAST_STALE and entry.first < start:
                unsure.append(slot)
            else:
                count += 1
        return count, unsure

    def _sort(self) -> None:
        """Bring `_order` up to date. It is one long run and a short tail, which list.sort merges in linear time."""
        if self._has_holes:
            self._order = [s for s in self._order if s in self._slots and s not in self._tail]
            self._has_holes = False
        if self._tail:
            self._order += sorted(self._tail)
            self._order.sort()
            self._tail.clear()

    def _ranges(self, filter: SubjectFilter) -> list[tuple[int, int]]:
        """The parts of `_order` that can match, ascending and disjoint."""
        ranges: list[tuple[int, int]] = []
        for prefix in sorted(filter.prefixes()):
            start = bisect_left(self._order, prefix)
            stop = bisect_left(self._order, True, start, key=lambda subject: not subject.startswith(prefix))
            if ranges:
                start = max(start, ranges[-1][1])
            ranges.append((start, max(start, stop)))
        return ranges

    def _entry(self, slot: int) -> _Entry:
        """The entry of a slot in use."""
        entry = self._entries[slot] if 0 <= slot < len(self._entries) else None
        if entry is None:
            raise IndexError(f"slot {slot} is not in use")
        return entry

    def live_subject(self, slot: int) -> bytes | None:
        """The subject of any number, if it is a slot with live messages."""
        entry = self._entries[slot] if slot < len(self._entries) else None
        return entry.subject if entry is not None and entry.count else None


def _loosen(entry: _Entry, seq: int, count: int) -> None:
    """Account for a removal in the bounds of an entry that still has messages."""
    if count > 1 or not seq:
        entry.flags |= FIRST_STALE | LAST_STALE
        return
    if seq == entry.first:
        entry.first = seq + 1
        entry.flags |= FIRST_STALE
    if seq == entry.last:
        entry.last = seq - 1
        entry.flags |= LAST_STALE
    if entry.count == 1 and entry.flags == FIRST_STALE:
        entry.first, entry.flags = entry.last, 0
    elif entry.count == 1 and entry.flags == LAST_STALE:
        entry.last, entry.flags = entry.first, 0


def check_size(subject: bytes) -> None:
    if not 1 <= len(subject) <= SUBJECT_SIZE_MAX:
        raise ValueError(f"subject of {len(subject)} bytes, expected 1 to {SUBJECT_SIZE_MAX}")


def check_seq(seq: int) -> None:
    if not 1 <= seq <= SEQ_MAX:
        raise ValueError(f"seq {seq}, expected 1 to {SEQ_MAX}")


def check_count(count: int, count_max: int) -> None:
    if not 1 <= count <= count_max:
        raise ValueError(f"count {count}, expected 1 to {count_max}")
