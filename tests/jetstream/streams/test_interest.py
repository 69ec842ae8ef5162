"""Retention by interest and work queues, over crashes too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.consumer_world import S, World, frame


@pytest.fixture
def queue(tmp_path: Path) -> World:
    return World(tmp_path, retention="workqueue")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, retention="interest")


def stored(world: World) -> list[int]:
    return [message.seq for message in world.stream.store.messages()]


# Work queues


def test_an_ack_takes_a_message_out_of_a_work_queue(queue: World) -> None:
    queue.publish(b"1", b"2", b"3", b"4")
    queue.create()
    one, two, three, _ = queue.next(batch=4)
    queue.ack(three)
    assert stored(queue) == [1, 2, 4]
    queue.ack(one)
    queue.ack(two, b"+TERM")
    assert stored(queue) == [4]


def test_acks_that_arrive_together_leave_together(queue: World) -> None:
    queue.publish(*[b"x"] * 300)
    queue.create(max_ack_pending=-1)
    messages = queue.next(batch=300)
    queue.peer.say(b"".join(frame(each.reply) for each in [*messages[:100], *messages[150:250]]))
    assert stored(queue) == [*range(101, 151), *range(251, 301)]
    assert queue.info()["num_ack_pending"] == 100


def test_a_work_queue_keeps_what_no_consumer_wants(queue: World) -> None:
    queue.create("a", filter_subject="s.a")
    queue.publish(b"1", subject="s.z")
    queue.publish(b"2", subject="s.a")
    (message,) = queue.next("a", batch=1)
    queue.ack(message)
    assert stored(queue) == [1]
    assert queue.create("z", filter_subject="s.z")["num_pending"] == 1


def test_deleting_a_consumer_leaves_a_work_queue_as_it_is(queue: World) -> None:
    queue.publish(b"1", b"2")
    queue.create()
    queue.next(batch=2)
    queue.peer.request("CONSUMER.DELETE.S.c")
    assert stored(queue) == [1, 2]


def test_a_message_given_up_stays_in_a_work_queue_until_it_is_acknowledged(queue: World) -> None:
    queue.publish(b"1", b"2")
    queue.create(max_deliver=1, ack_wait=1 * S)
    one, two = queue.next(batch=2)
    queue.ack(two)
    queue.wait(2)
    assert stored(queue) == [1] and queue.info()["num_redelivered"] == 0
    queue.ack(one)
    assert stored(queue) == []


def test_num_pending_is_exact_while_messages_leave(queue: World) -> None:
    queue.publish(*[b"x"] * 10)
    queue.create()
    found = queue.next(batch=4)
    assert [each.ack[3] for each in found] == [9, 8, 7, 6]
    for each in found:
        queue.ack(each)
    assert queue.info()["num_pending"] == 6
    assert [each.ack[3] for each in queue.next(batch=2)] == [5, 4]


# Interest


def test_what_nobody_wants_is_acknowledged_and_not_stored(world: World) -> None:
    world.publish(b"1")
    assert stored(world) == [] and world.stream.last_seq == 1
    world.create(filter_subject="s.a")
    world.publish(b"2", subject="s.b")
    world.publish(b"3", subject="s.a")
    assert stored(world) == [3]


def test_a_message_stays_until_all_who_want_it_are_done(world: World) -> None:
    world.create("a")
    world.create("b", filter_subject="s.b")
    world.create("n", ack_policy="none")
    world.publish(b"1", subject="s.a")
    world.publish(b"2", subject="s.b")
    for each in world.next("a", batch=2):
        world.ack(each)
    assert stored(world) == [1, 2]
    world.next("n", batch=2)
    assert stored(world) == [2]
    world.ack(world.next("b", batch=1)[0])
    assert stored(world) == []


def test_deleting_a_consumer_lets_go_of_what_only_it_wanted(world: World) -> None:
    world.create("a")
    world.create("b")
    world.publish(b"1", b"2")
    world.ack(world.next("a", batch=2)[0])
    world.peer.request("CONSUMER.DELETE.S.b")
    assert stored(world) == [2]
    world.peer.request("CONSUMER.DELETE.S.a")
    assert stored(world) == []


def test_other_filters_let_go_of_what_is_no_longer_wanted(world: World) -> None:
    world.create(filter_subject="s.a")
    world.publish(b"1", subject="s.a")
    world.create(filter_subject="s.b")
    assert stored(world) == []
    world.publish(b"2", subject="s.b")
    assert stored(world) == [2]


def test_a_consumer_that_comes_later_wants_what_is_there(world: World) -> None:
    world.create("a")
    world.publish(b"1")
    world.create("late")
    world.ack(world.next("a", batch=1)[0])
    assert stored(world) == [1]
    world.ack(world.next("late", batch=1)[0])
    assert stored(world) == []


# Crashes


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_an_ack_that_was_kept_while_the_removal_was_not_is_carried_out_later(tmp_path: Path, retention: str) -> None:
    world = World(tmp_path, retention=retention)
    world.create()
    world.publish(b"1", b"2")
    one, _ = world.next(batch=2)
    world.settle()
    # The consumer's state is written, and the crash comes before the stream's commit.
    world.peer.connection.say(frame(one.reply))
    keeper = world.consumer().keeper
    assert keeper is not None
    commit = keeper.prepare_commit()
    assert commit is not None
    commit.run()
    world.crash()
    assert stored(world) == [2]


def test_a_removal_that_was_kept_while_the_ack_was_not_leaves_nothing_pending(queue: World) -> None:
    queue.create()
    queue.publish(b"1", b"2")
    queue.wait(1.1)
    one, _ = queue.next(batch=2)
    queue.wait(1.1)
    queue.ack(one)  # the stream commits, the consumer is written later
    queue.crash()
    info = queue.info()
    assert stored(queue) == [2] and info["num_ack_pending"] == 1
    queue.wait(31)
    assert [each.ack[1] for each in queue.next(batch=5)] == [2]


def test_a_work_queue_is_consistent_after_a_crash_with_filters(queue: World) -> None:
    queue.create("a", filter_subject="s.a")
    queue.create("b", filter_subject="s.b")
    for number in range(8):
        queue.publish(b"x", subject=f"s.{'ab'[number % 2]}")
    for each in queue.next("a", batch=2):
        queue.ack(each, reply="in.ack")
    queue.next("b", batch=1)
    queue.crash()
    assert stored(queue) == [2, 4, 5, 6, 7, 8]
    assert queue.info("a")["num_pending"] == 2 and queue.info("b")["num_pending"] in (3, 4)


def test_a_stream_that_goes_over_to_interest_drops_what_all_are_done_with(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create("a")
    world.publish(b"1", b"2", b"3")
    world.ack(world.next("a", batch=2)[0])
    world.peer.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "retention": "interest"})
    assert stored(world) == [2, 3]


def half_read(world: World) -> None:
    """Twenty messages on s.a and s.b by turns; the consumer read and acknowledged the first half of them."""
    for number in range(20):
        world.publish(b"x", subject=f"s.{'ab'[number % 2]}")
    world.create(filter_subject="s.a")
    for each in world.next(batch=10):
        world.ack(each, reply="in.ack")
    assert stored(world) == list(range(2, 21, 2))


@pytest.mark.parametrize("ends", ["restart", "crash"])
def test_a_work_queue_keeps_what_came_by_under_another_filter(queue: World, ends: str) -> None:
    half_read(queue)
    queue.create(filter_subject="s.b")
    getattr(queue, ends)()
    assert stored(queue) == list(range(2, 21, 2))
    assert queue.info()["num_pending"] == 1  # the last one, which came after all that was delivered
    queue.peer.request("CONSUMER.RESET.S.c", {"seq": 1})
    assert len(queue.next(batch=20)) == 10


@pytest.mark.parametrize("ends", ["restart", "crash"])
@pytest.mark.parametrize("seq", [1, 5, 9, 20])
def test_a_work_queue_keeps_what_a_reset_skips(queue: World, ends: str, seq: int) -> None:
    queue.publish(*[b"x"] * 10)
    queue.create()
    for each in queue.next(batch=4)[:2]:
        queue.ack(each, reply="in.ack")
    queue.peer.request("CONSUMER.RESET.S.c", {"seq": seq})
    getattr(queue, ends)()
    assert stored(queue) == list(range(3, 11))


def test_a_work_queue_keeps_what_an_older_file_does_not_call_acknowledged(queue: World) -> None:
    queue.publish(b"1", b"2")
    queue.create()
    queue.next(batch=2)
    ledger = queue.consumer().ledger
    ledger.ack(1)  # as if it were the stream that did not hear of it
    queue.consumer().changed()
    queue.restart()
    assert stored(queue) == [1, 2]


def test_acks_while_a_work_queue_cannot_write_are_carried_out_when_it_can(queue: World) -> None:
    queue.publish(b"1", b"2", b"3")
    queue.create()
    one, two, _ = queue.next(batch=3)
    queue.stream.log.fail_commit(OSError(28, "No space left on device"))
    queue.ack(one)
    queue.ack(two)
    queue.wait(3)
    assert queue.stream.log.problem is None and stored(queue) == [3]


def test_a_removal_that_was_lost_with_its_commit_is_carried_out_again(queue: World) -> None:
    queue.publish(b"1", b"2")
    queue.create()
    one, _ = queue.next(batch=2)
    queue.settle()
    queue.peer.connection.say(frame(one.reply))  # removed, and not committed
    queue.stream.log.prepare_commit()
    queue.stream.log.fail_commit(OSError(5, "Input/output error"))
    queue.wait(3)
    assert queue.stream.log.problem is None and stored(queue) == [2]


def test_a_consumer_is_deleted_after_what_it_acknowledged(queue: World) -> None:
    queue.publish(b"1", b"2")
    queue.create()
    one, _ = queue.next(batch=2)
    queue.settle()
    path = queue.consumer().keeper.path  # type: ignore[union-attr]
    queue.peer.connection.say(frame(one.reply) + frame("$JS.API.CONSUMER.DELETE.S.c", reply="_API.1"))
    existed: list[bool] = []

    def look() -> None:
        queue.service.redo.settle(path)
        existed.append(Path(path).exists())

    queue.stream.log.when_durable(look)
    queue.settle()
    look()
    assert existed == [True, False] and stored(queue) == [2]


def test_a_stream_that_goes_over_to_interest_keeps_what_nobody_was_asked_about(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(6):
        world.publish(b"x", subject=f"s.{'ab'[number % 2]}")
    world.create("a", filter_subject="s.a")
    for each in world.next("a", batch=2):
        world.ack(each)
    world.peer.request("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "retention": "interest"})
    assert stored(world) == [2, 4, 5, 6]
    world.restart()
    assert stored(world) == [2, 4, 5, 6]


# Late acks


def test_an_ack_after_a_reset_takes_a_message_out_of_a_work_queue(queue: World) -> None:
    queue.publish(b"1", b"2", b"3")
    queue.create()
    one, two = queue.next(batch=2)
    queue.peer.request("CONSUMER.RESET.S.c", {"seq": 3})
    queue.ack(one)
    assert stored(queue) == [2, 3]
    queue.peer.say(frame(one.reply) + frame(two.reply))
    assert stored(queue) == [3]


def test_a_message_stays_for_the_consumer_that_has_its_subject_now(queue: World) -> None:
    queue.create("x", filter_subject="s.a")
    queue.publish(b"1", b"2")
    one, two = queue.next("x", batch=2)
    queue.create("x", filter_subject="s.b")
    queue.create("y", filter_subject="s.a")
    queue.ack(one)
    queue.restart()
    queue.ack(two)
    assert stored(queue) == [1, 2]
    for each in queue.next("y", batch=2):
        queue.ack(each)
    assert stored(queue) == []


@pytest.mark.parametrize("ends", ["restart", "crash"])
def test_a_consumer_that_waits_for_what_is_to_come_goes_on_waiting(queue: World, ends: str) -> None:
    queue.publish(b"1")
    queue.create()
    queue.peer.request("CONSUMER.RESET.S.c", {"seq": 4})
    getattr(queue, ends)()
    queue.publish(b"2", b"3", b"4")
    assert [each.ack[1] for each in queue.next(batch=4)] == [4]


# A crash at any point of the two commits that acks lead to


@pytest.mark.parametrize("is_stream_first", [True, False])
@pytest.mark.parametrize("written_count", [0, 1, 2])
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_crash_between_two_commits(tmp_path: Path, retention: str, written_count: int, is_stream_first: bool) -> None:
    world = World(tmp_path, retention=retention)
    world.create()
    world.publish(*[b"x"] * 6)
    messages = world.next(batch=4)
    world.ack(messages[0], b"+WPI", reply="in.2")  # what was delivered is kept
    world.peer.connection.say(b"".join(frame(each.reply, b"+ACK", "in.3") for each in messages[:3]))
    keeper = world.consumer().keeper
    assert keeper is not None
    units: list[Any] = [world.stream.log, keeper] if is_stream_first else [keeper, world.stream.log]
    commits = [unit.prepare_commit() for unit in units]
    for commit in commits[:written_count]:
        commit.run()

    def finish() -> None:
        for commit in commits[written_count:]:
            commit.run()
        for unit, commit in zip(units, commits, strict=True):
            unit.complete_commit(commit)

    world.crash(finish)
    assert set(stored(world)) >= {4, 5, 6}
    if written_count:  # the acks are known, by one file or the other
        assert stored(world) == [4, 5, 6]
    world.wait(31)
    again = [each.ack[1] for each in world.next(batch=6)]
    assert sorted(again) == ([4, 5, 6] if written_count else [1, 2, 3, 4, 5, 6])
