"""Tasks read by threads: in order, bounded, and ended with whoever reads them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

pytest.importorskip("pyarrow")

from jetlake.table.threads import BATCHES_AHEAD, read_ahead, read_all

TASKS = list(range(10))
WANTED = [(task, number) for task in TASKS for number in range(20)]


def read(task: int) -> Iterator[tuple[int, int]]:
    for number in range(20):
        yield task, number


def test_batches_come_in_the_order_of_their_tasks() -> None:
    assert read_all(TASKS, read) == list(read_ahead(TASKS, read)) == WANTED
    assert read_all([], read) == list(read_ahead([], read)) == []


def test_what_is_read_ahead_is_bounded() -> None:
    made = []

    def count(task: int) -> Iterator[int]:
        for number in range(1000):
            made.append(number)
            yield number

    batches = read_ahead([1], count)
    for _ in range(5):
        next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(made) <= 5 + BATCHES_AHEAD + 2


def test_no_more_tasks_are_begun_than_there_are_threads() -> None:
    begun = []

    def note(task: int) -> Iterator[int]:
        begun.append(task)
        yield task

    batches = read_ahead(range(1000), note)
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    batches.close()  # type: ignore[attr-defined]
    assert len(begun) <= 3 + (os.cpu_count() or 1)


def test_an_error_comes_after_the_batches_before_it() -> None:
    def fail(task: int) -> Iterator[int]:
        yield task
        if task == 3:
            raise ValueError("task 3")

    batches = read_ahead(TASKS, fail)
    assert list(islice(batches, 4)) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="task 3"):
        next(batches)
    with pytest.raises(ValueError, match="task 3"):
        read_all(TASKS, fail)


def test_no_thread_outlives_a_reader_that_stops_early() -> None:
    before = threading.active_count()
    batches = read_ahead(TASKS, read)
    assert next(batches) == (0, 0)
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
