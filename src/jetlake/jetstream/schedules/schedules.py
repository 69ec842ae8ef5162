"""Schedules: which subjects of a stream hold a schedule, and when each is due next. Commands change them.

There is one schedule to a subject: the last message there, if it is one. A schedule whose message left for another
reason than a later message (deleted, purged, too old) is noticed when it is due, by who asks the store for it.

Always true: every schedule is in the heap under the time at which it is due. The heap has other entries too, which are
skipped when their time comes, and dropped when they are the larger part.
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from jetlake.ops import OP_WORDS
from jetlake.store.format import Buffer
from jetlake.subjects import decode_subject

_STALE_SPARE = 64  # entries of the heap that are not worth cleaning up


class Schedule(NamedTuple):
    """One schedule."""

    seq: int
    due_ns: int
    set_seq: int  # of the message that says when it is due: its own, or the last one that it made


class Schedules:
    """The schedules of one stream by subject."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._heap: list[tuple[int, int, str]] = []  # when, which sequence, which subject

    def __bool__(self) -> bool:
        return bool(self._schedules)

    def __len__(self) -> int:
        return len(self._schedules)

    def get(self, subject: str) -> Schedule | None:
        """The schedule of a subject."""
        return self._schedules.get(subject)

    def put(self, subject: str, seq: int, due_ns: int, set_seq: int = 0) -> None:
        """A message is a schedule, in place of an older one of its subject."""
        known = self._schedules.get(subject)
        if known is None or known.set_seq <= max(seq, set_seq):
            self._set(subject, Schedule(seq, due_ns, max(seq, set_seq)))

    def move(self, subject: str, set_seq: int, due_ns: int) -> None:
        """A message that a schedule made says when it is due again."""
        known = self._schedules.get(subject)
        if known is not None and known.set_seq < set_seq:
            self._set(subject, Schedule(known.seq, due_ns, set_seq))

    def end(self, subject: str) -> None:
        """There is no schedule on a subject any more."""
        self._schedules.pop(subject, None)

    def end_replaced(self, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        """Messages without schedule came: they end those of their subjects."""
        for at in range(first * OP_WORDS, stop * OP_WORDS, OP_WORDS):
            self.end(decode_subject(bytes(data[ops[at] : ops[at] + ops[at + 1]])))

    def clear(self) -> None:
        """There is none left."""
        self._schedules.clear()
        self._heap.clear()

    def next_ns(self) -> int | None:
        """When the first one is due."""
        while self._heap and self._is_stale(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ns: int, count_max: int) -> list[tuple[str, Schedule]]:
        """Those that are due, in the order of their sequences. Who takes one moves it, ends it or puts it back."""
        found = dict[str, Schedule]()
        while self._heap and self._heap[0][0] <= now_ns and len(found) < count_max:
            entry = heappop(self._heap)
            if not self._is_stale(entry):
                found[entry[2]] = self._schedules[entry[2]]
        return sorted(found.items(), key=lambda item: item[1].seq)

    def put_back(self, subject: str, schedule: Schedule) -> None:
        """One that was due is still to be done."""
        if self._schedules.get(subject) == schedule:
            heappush(self._heap, (schedule.due_ns, schedule.seq, subject))

    def entries(self) -> list[tuple[str, int, int, int]]:
        """All that is known, as plain values: subject, sequence, when, and who says so."""
        return [(subject, *schedule) for subject, schedule in self._schedules.items()]

    def _is_stale(self, entry: tuple[int, int, str]) -> bool:
        due_ns, seq, subject = entry
        known = self._schedules.get(subject)
        return known is None or (known.due_ns, known.seq) != (due_ns, seq)

    def _set(self, subject: str, schedule: Schedule) -> None:
        self._schedules[subject] = schedule
        heappush(self._heap, (schedule.due_ns, schedule.seq, subject))
        if len(self._heap) > 2 * len(self._schedules) + _STALE_SPARE:
            self._heap = [(each.due_ns, each.seq, name) for name, each in self._schedules.items()]
            heapify(self._heap)
