"""What does the subject table cost a message and a question, beside a Python dict?

The peer is a dict of subject to [count, first, last], and a walk over its sorted keys for a wildcard; the Python twin
stands beside it. Calls of "intern" are made by `map`, and what `map` takes to call `hash` (a call, a look at the
subject, an int to return) is subtracted: what remains is nearly what a kernel pays that calls the table. Among a
million subjects that is the time of cache misses.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from benchmarks._load import SEED
from benchmarks._report import ROUNDS, Cost, Stopwatch, cpu_ns, goal, heading, speed_ratio, table
from jetlake.store.index import _subject_filter_py, _subject_scan_py, _subject_table_py, subject_table

SIZES = (1_000, 1_000_000)
SIZES_SMOKE = (100, 1_000)
SUBJECT_SIZE = 30
CALLS_MIN = 200_000  # few subjects are looked up again and again until there are so many calls
GOALS_NS = {1_000: 30, 1_000_000: 150}
ENTRY_SIZE_GOAL = 110

Measured = Iterator[tuple[str, Cost]]


class Side(Protocol):
    """What is measured, on the kernel, its twin or the dict."""

    def intern(self, subject: bytes) -> object: ...
    def add(self, subject: bytes) -> object: ...
    def match(self, pattern: str) -> int: ...
    def count(self, ids: array[int], pattern: str) -> int: ...


class Table:
    """A twin of the subject table."""

    def __init__(self, tables: Any, filters: Any, scans: Any) -> None:
        self.table, self._filter, self._scans = tables.SubjectTable(), filters.SubjectFilter, scans
        self.intern = self.table.intern

    def add(self, subject: bytes) -> None:
        self.table.add(self.table.intern(subject), 1)

    def match(self, pattern: str) -> int:
        return len(self.table.match(self._filter([pattern])))

    def count(self, ids: array[int], pattern: str) -> int:
        memo = bytearray(self.table.slot_limit)
        found: int = self._scans.count_matches(self.table, self._filter([pattern]), ids, 0, len(ids), memo)
        return found


class Peer:
    """The dict."""

    def __init__(self) -> None:
        self.entries: dict[bytes, list[int]] = {}
        self._order: list[bytes] = []

    def intern(self, subject: bytes) -> list[int]:
        return self.entries.setdefault(subject, [0, 0, 0])

    def add(self, subject: bytes) -> None:
        entry = self.intern(subject)
        entry[0] += 1
        entry[2] = max(entry[2], 1)

    def match(self, pattern: str) -> int:
        if len(self._order) != len(self.entries):
            self._order = sorted(self.entries)
        prefix = pattern.removesuffix(">").encode()
        start = bisect_left(self._order, prefix)
        stop = bisect_left(self._order, prefix + b"\xff")
        return sum(self.entries[subject][0] > 0 for subject in self._order[start:stop])

    def count(self, ids: array[int], pattern: str) -> int:
        prefix = pattern.removesuffix(">").encode()
        names = list(self.entries)
        return sum(names[slot].startswith(prefix) for slot in ids)


def subjects(count: int) -> list[bytes]:
    """Subjects of SUBJECT_SIZE bytes in any order, spread over a thousand customers."""
    numbers = random.Random(SEED).sample(range(10**8), count)
    return [b"orders.%03d.%08d.created.1" % (number % 1000, number) for number in numbers]


def each(function: Callable[[bytes], object], names: list[bytes]) -> Cost:
    """What a call takes beyond a call of `hash`."""
    _exhaust(map(hash, names))  # each subject keeps its hash from now on, which serves the dict as well
    costs = []
    for called in (function, hash):
        with Stopwatch() as watch:
            for _ in range(max(1, CALLS_MIN // len(names))):
                _exhaust(map(called, names))
        costs.append(watch.per(len(names) * max(1, CALLS_MIN // len(names))))
    ours, base = costs
    return Cost(ours.wall_ns - base.wall_ns, ours.cpu_ns - base.cpu_ns)


def _exhaust(items: Iterable[object]) -> None:
    deque(items, maxlen=0)


def once(function: Callable[[], object], count: int = 1) -> Cost:
    with Stopwatch() as watch:
        function()
    return watch.per(count)


def measure(side: Side, names: list[bytes], again: list[bytes]) -> Measured:
    """The cases, in this order: each one finds what those before it left."""
    ids = array("I", (number % len(names) for number in range(len(names))))
    yield "intern a new subject", once(lambda: _exhaust(map(side.intern, names)), len(names))
    yield "intern it again", each(side.intern, again)
    yield "intern and add", each(side.add, again)
    yield "first wildcard, which sorts, a subject", once(lambda: side.match("orders.>"), len(names))
    yield "orders.> again, a subject", once(lambda: side.match("orders.>"), len(names))
    yield "orders.077.>, a call", once(lambda: side.match("orders.077.>"))
    side.add(b"orders.5")
    yield "orders.077.> after a new subject, a call", once(lambda: side.match("orders.077.>"))
    yield "count matching ids of a block, an id", once(lambda: side.count(ids, "orders.077.>"), len(ids))


def run(count: int, rounds: int) -> tuple[dict[str, list[list[Cost]]], float]:
    """The costs of each case on each side, round by round, and the size of an entry."""
    names = subjects(count)
    again = [
        bytes(bytearray(name)) for name in random.Random(SEED).sample(names, count)
    ]  # side by side, as in a buffer
    costs: dict[str, list[list[Cost]]] = {}
    entry_size = 0.0
    for _ in range(rounds):
        kernel = Table(subject_table, subject_table, subject_table)
        twin = Table(_subject_table_py, _subject_filter_py, _subject_scan_py)
        sides: tuple[Side, ...] = (kernel, twin, Peer())
        for index, side in enumerate(sides):
            for label, cost in measure(side, names, again):
                costs.setdefault(label, [[], [], []])[index].append(cost)
        entry_size = kernel.table.size_bytes / count
    return costs, entry_size


def main(smoke: bool = False) -> None:
    rounds = 1 if smoke else ROUNDS
    kernel = "the kernel" if subject_table.KERNEL else "NO KERNEL"
    heading(__doc__, f"subjects of {SUBJECT_SIZE} B, {kernel}; CPU ns, seed {SEED}, median of {rounds}")
    for count in SIZES_SMOKE if smoke else SIZES:
        costs, entry_size = run(count, rounds)
        print(f"  {count:,} subjects\n")
        rows = [
            [label, *(f"{cpu_ns(side):,.0f}" for side in sides), f"{speed_ratio(sides[0], sides[2]):,.1f}"]
            for label, sides in costs.items()
        ]
        table(["case", "kernel", "Python twin", "dict", "ratio to dict"], rows)
        known = cpu_ns(costs["intern it again"][0])
        print(f"  intern a known subject: {known:.0f} ns ({goal(known, GOALS_NS.get(count, 150), at_most=True)})")
        print(f"  an entry: {entry_size:.0f} B ({goal(entry_size, ENTRY_SIZE_GOAL, at_most=True)})\n")


if __name__ == "__main__":
    main()
