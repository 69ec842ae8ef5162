"""Deadlines and the queue of messages to be delivered again."""

from __future__ import annotations

from jetlake.jetstream.consumers.redelivery import Deadlines, RedeliveryQueue


def due(deadlines: Deadlines, now_ns: int) -> list[tuple[int, int]]:
    """All whose time has come."""
    return list(iter(lambda: deadlines.pop_due(now_ns), None))


def test_ranges_come_up_at_their_time_and_once() -> None:
    deadlines = Deadlines()
    deadlines.add(20, 5, 9)
    deadlines.add(10, 1, 4)
    assert deadlines.next_ns == 10
    assert due(deadlines, 9) == []
    assert due(deadlines, 10) == [(1, 4)]
    assert due(deadlines, 30) == [(5, 9)]
    assert deadlines.next_ns is None and len(deadlines) == 0


def test_runs_that_follow_closely_share_an_entry() -> None:
    deadlines = Deadlines()
    for seq in range(1, 101):
        deadlines.add_run(1000 + seq, seq, seq, 200)
    assert len(deadlines) == 1
    deadlines.add_run(1500, 101, 101, 200)
    assert len(deadlines) == 2
    assert due(deadlines, 1001) == [(1, 100)]
    deadlines.add_run(1501, 102, 102, 200)
    assert due(deadlines, 1500) == [(101, 102)]


def test_a_run_does_not_join_an_entry_that_came_up() -> None:
    deadlines = Deadlines()
    deadlines.add_run(10, 1, 1, 100)
    assert due(deadlines, 10) == [(1, 1)]
    deadlines.add_run(11, 2, 2, 100)
    assert due(deadlines, 11) == [(2, 2)]


def test_a_run_with_an_earlier_time_is_an_entry_of_its_own() -> None:
    deadlines = Deadlines()
    deadlines.add_run(100, 1, 1, 50)
    deadlines.add_run(60, 2, 2, 50)
    assert due(deadlines, 60) == [(2, 2)]


def test_the_queue_is_first_in_first_out_without_repetition() -> None:
    queue = RedeliveryQueue()
    queue.add([3, 1, 3, 2])
    assert list(queue) == [3, 1, 2] and len(queue) == 3 and 1 in queue
    assert queue.peek() == 3
    queue.discard(3)
    queue.discard(9)
    assert queue.peek() == 1
    queue.clear()
    assert queue.peek() == 0 and len(queue) == 0
