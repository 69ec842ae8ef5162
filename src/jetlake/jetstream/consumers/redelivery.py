"""When messages that nobody acknowledged are due again, and in which order they go out.

`Deadlines` is a heap of (time, first, last): no later than that time, look at the pending messages first..last. A run
of deliveries is one entry, however long it is, and runs that follow each other closely share one. A message whose
deadline moves back (a redelivery, +WPI) keeps its entry: when that comes up, it is put back with the time that holds by
then. Only a deadline that comes closer is a new entry. So the heap grows with time and not with messages.

`RedeliveryQueue` holds what is due, first in, first out, each message once.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator


class Deadlines:
    """Ranges of pending messages by when to look at them."""

    def __init__(self) -> None:
        self._heap: list[list[int]] = []
        self._latest: list[int] | None = None  # the entry of the last run, while it is in the heap

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ns(self) -> int | None:
        """When to look next."""
        return self._heap[0][0] if self._heap else None

    def add(self, time_ns: int, first: int, last: int) -> None:
        """Look at first..last at this time."""
        heapq.heappush(self._heap, [time_ns, first, last])

    def add_run(self, time_ns: int, first: int, last: int, slack_ns: int) -> None:
        """Look at first..last, which lie above all others, at this time or up to so much earlier."""
        latest = self._latest
        if latest is not None and latest[2] < first and latest[0] <= time_ns <= latest[0] + slack_ns:
            latest[2] = last
            return
        self._latest = [time_ns, first, last]
        heapq.heappush(self._heap, self._latest)

    def pop_due(self, now_ns: int) -> tuple[int, int] | None:
        """A range whose time has come, which is taken out; None when there is none."""
        if not self._heap or self._heap[0][0] > now_ns:
            return None
        entry = heapq.heappop(self._heap)
        if entry is self._latest:
            self._latest = None
        return entry[1], entry[2]

    def clear(self) -> None:
        self._heap.clear()
        self._latest = None


class RedeliveryQueue:
    """Sequences in the order in which they are to be delivered again."""

    def __init__(self) -> None:
        self._seqs: OrderedDict[int, None] = (
            OrderedDict()
        )  # a plain dict would look for its first key among deleted ones

    def __len__(self) -> int:
        return len(self._seqs)

    def __contains__(self, seq: int) -> bool:
        return seq in self._seqs

    def __iter__(self) -> Iterator[int]:
        return iter(self._seqs)

    def add(self, seqs: Iterable[int]) -> None:
        """Put sequences at the end, those that wait already excepted."""
        for seq in seqs:
            self._seqs.setdefault(seq)

    def peek(self) -> int:
        """The next one; 0 when there is none."""
        return next(iter(self._seqs), 0)

    def discard(self, seq: int) -> None:
        """Take one out, if it is there."""
        self._seqs.pop(seq, None)

    def clear(self) -> None:
        self._seqs.clear()
