"""What do a million subjects in one stream cost: memory, questions, opening?

The peer is a Python dict of subject to (count, first, last), and a walk over it for a wildcard. Each side has a fresh
process to itself. n: subjects, m: subjects that match, b: blocks, k: messages of a block.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._load import PAYLOAD_SIZE, SEED, socket_reads, subject
from benchmarks._report import (
    ROUNDS,
    Cost,
    Stopwatch,
    calls,
    cpu_ns,
    heading,
    in_child,
    killed_child,
    rss_size,
    scratch,
    speed_ratio,
    table,
    wall_ns,
)
from jetlake.store import FileOptions, FileStore

OPTIONS = FileOptions(sync="never")
CASE_S_MAX = 0.3
COMPLEXITY = {
    "num_pending, subject": "1",
    "load_last, subject": "1 + 1 read",
    "num_pending, orders.3.*": "log n + m",
    "num_pending, orders.*.77": "n",
    "num_pending, orders.3.*, from the middle": "b (log n + m) + k",
    "num_pending, last per subject, from the middle": "n",
    "subjects_totals, orders.3.*": "log n + m",
}


class Side(NamedTuple):
    """What a side takes to get ready, and for each question."""

    ready: Cost
    rss_delta: int
    table_size: int
    questions: dict[str, Cost]
    answers: dict[str, int]


def write(directory: Path, count: int) -> Iterator[int]:
    """A message on each of `count` subjects, in any order."""
    store = FileStore(directory, options=OPTIONS, autocommit=False)
    for read in socket_reads(subject(number) for number in shuffled(count)):
        store.append_batch(read.data, read.ops)
        store.commit()
    yield count


def shuffled(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(SEED).shuffle(numbers)
    return numbers


def some_subjects(count: int) -> list[str]:
    rng = random.Random(SEED)
    return [subject(rng.randrange(count)).decode() for _ in range(1000)]


def store_side(directory: Path, count: int) -> Side:
    before = rss_size()
    with Stopwatch() as watch:
        store = FileStore(directory, options=OPTIONS, autocommit=False)
    rss_delta, names, middle = rss_size() - before, some_subjects(count), count // 2
    questions, answers = _ask(
        {
            "num_pending, subject": (lambda name: store.num_pending(1, name).msgs, names),
            "load_last, subject": (lambda name: getattr(store.load_last(name), "seq", 0), names),
            "num_pending, orders.3.*": (lambda filter: store.num_pending(1, filter).msgs, ["orders.3.*"] * 100),
            "num_pending, orders.*.77": (lambda filter: store.num_pending(1, filter).msgs, ["orders.*.77"] * 100),
            "num_pending, orders.3.*, from the middle": (
                lambda filter: store.num_pending(middle, filter).msgs,
                ["orders.3.*"] * 100,
            ),
            "num_pending, last per subject, from the middle": (
                lambda filter: store.num_pending(middle, filter, last_per_subject=True).msgs,
                [">"] * 100,
            ),
            "subjects_totals, orders.3.*": (lambda filter: len(store.subjects_totals(filter)), ["orders.3.*"] * 100),
        }
    )
    return Side(watch.per(1), rss_delta, store.catalog.table.size_bytes, questions, answers)


def dict_side(count: int) -> Side:
    numbers = shuffled(count)
    before = rss_size()
    with Stopwatch() as watch:
        held = {subject(number).decode(): (1, seq, seq) for seq, number in enumerate(numbers, 1)}
    rss_delta, names, middle = rss_size() - before, some_subjects(count), count // 2

    def region(first: int) -> int:
        return sum(entry[0] for name, entry in held.items() if name.startswith("orders.3.") and entry[2] >= first)

    questions, answers = _ask(
        {
            "num_pending, subject": (lambda name: held[name][0], names),
            "load_last, subject": (lambda name: held[name][2], names),
            "num_pending, orders.3.*": (region, [1] * 100),
            "num_pending, orders.*.77": (
                lambda end: sum(entry[0] for name, entry in held.items() if name.endswith(end)),
                [".77"] * 100,
            ),
            "num_pending, orders.3.*, from the middle": (region, [middle] * 100),
            "num_pending, last per subject, from the middle": (
                lambda first: sum(entry[2] >= first for entry in held.values()),
                [middle] * 100,
            ),
            "subjects_totals, orders.3.*": (
                lambda start: len({name: entry[0] for name, entry in held.items() if name.startswith(start)}),
                ["orders.3."] * 100,
            ),
        }
    )
    return Side(watch.per(1), rss_delta, 0, questions, answers)


def _ask(questions: dict[str, tuple[Callable[[Any], int], list[Any]]]) -> tuple[dict[str, Cost], dict[str, int]]:
    """What each question costs once everything is warm, and its first answer, for the two sides to be compared."""
    answers = {label: answer(arguments[0]) for label, (answer, arguments) in questions.items()}
    return {label: calls(*question, CASE_S_MAX) for label, question in questions.items()}, answers


def main(smoke: bool = False) -> None:
    count, rounds = (3_000, 1) if smoke else (1_000_000, ROUNDS)
    heading(
        __doc__,
        f"{count:,} messages of {PAYLOAD_SIZE} B on as many subjects like {subject(count - 1).decode()}; CPU µs a "
        f"call, seed {SEED}, median of {rounds}",
    )
    ours, theirs = list[Side](), list[Side]()
    with scratch() as directory:
        with killed_child(write, directory / "store", count):
            pass
        for _ in range(rounds):
            ours.append(in_child(store_side, directory / "store", count))
            theirs.append(in_child(dict_side, count))
    assert ours[0].answers == theirs[0].answers, f"{ours[0].answers} here, {theirs[0].answers} there"
    rows = []
    for label, complexity in COMPLEXITY.items():
        pair = [[side.questions[label] for side in sides] for sides in (ours, theirs)]
        figures = [f"{cpu_ns(costs) / 1e3:,.1f}" for costs in pair]
        rows.append([label, *figures, f"{speed_ratio(*pair):.2f}", complexity])
    table(["question", "µs", "dict µs", "ratio", "complexity"], rows, left=(0, 4))
    ready, ready_peer = [side.ready for side in ours], [side.ready for side in theirs]
    print(f"  open after kill -9: {wall_ns(ready) / 1e9:.2f} s, {cpu_ns(ready) / 1e9:.2f} s of CPU time")
    print(f"  ratio of making the dict to opening: {speed_ratio(ready, ready_peer):.2f}")
    sizes = [sorted(side.rss_delta for side in sides)[rounds // 2] / count for sides in (ours, theirs)]
    print(
        f"  memory: {sizes[0]:.0f} B a subject, {ours[0].table_size / count:.0f} B of it in the subject table; "
        f"dict {sizes[1]:.0f} B; ratio {sizes[1] / max(sizes[0], 1):.1f}"
    )
