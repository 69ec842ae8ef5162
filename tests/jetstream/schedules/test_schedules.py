"""Schedules as state: what is due when, and what a message does to it."""

from __future__ import annotations

from jetlake.jetstream.schedules.schedules import Schedule, Schedules


def test_those_that_are_due_come_in_the_order_of_their_sequences() -> None:
    schedules = Schedules()
    for subject, seq, due_ns in (("a", 3, 10), ("b", 1, 30), ("c", 2, 20), ("d", 4, 99)):
        schedules.put(subject, seq, due_ns)
    assert schedules.next_ns() == 10
    assert [subject for subject, _ in schedules.take_due(50, 10)] == ["b", "c", "a"]
    assert schedules.next_ns() == 99


def test_a_replaced_schedule_is_due_once_at_its_new_time() -> None:
    schedules = Schedules()
    schedules.put("a", 1, 10)
    schedules.put("a", 2, 20)
    assert schedules.take_due(15, 10) == []
    assert schedules.take_due(25, 10) == [("a", Schedule(2, 20, 2))]


def test_what_an_older_schedule_made_does_not_move_its_successor() -> None:
    schedules = Schedules()
    schedules.put("a", 5, 50)
    schedules.move("a", 4, 10)
    assert schedules.get("a") == Schedule(5, 50, 5)
    schedules.move("a", 6, 60)
    assert schedules.get("a") == Schedule(5, 60, 6)


def test_one_that_is_put_back_is_due_again() -> None:
    schedules = Schedules()
    schedules.put("a", 1, 10)
    ((subject, schedule),) = schedules.take_due(10, 1)
    assert schedules.next_ns() is None
    schedules.put_back(subject, schedule)
    assert schedules.next_ns() == 10


def test_schedules_that_are_replaced_all_the_time_take_no_more_room() -> None:
    schedules = Schedules()
    for seq in range(1, 10_000):
        schedules.put("a", seq, 10**18 + seq)
    assert len(schedules._heap) < 100
