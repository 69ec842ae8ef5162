"""Consumers as clients see them: everything but sockets and real time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jetlake.jetstream.consumers import registry as consumer_registry
from tests.jetstream.consumer_world import MS, Received, S, World, frame, parse_frames


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def payloads(messages: list[Received]) -> list[bytes]:
    return [message.payload for message in messages]


def seqs(info: dict[str, Any], name: str) -> tuple[int, int]:
    return info[name]["consumer_seq"], info[name]["stream_seq"]


# Pulling


def test_a_request_gets_messages_with_their_subject_and_an_ack_subject(world: World) -> None:
    world.publish(b"one", b"two", b"three")
    assert world.create()["num_pending"] == 3
    first, second = world.next(batch=2)
    assert (first.subject, first.sid, first.payload) == ("s.a", "2", b"one")
    assert first.reply.startswith("$JS.ACK.S.c.1.1.1.") and first.ack == (1, 1, 1, 2)
    assert second.ack == (1, 2, 2, 1)


def test_a_request_waits_for_messages(world: World) -> None:
    world.create()
    assert world.next(batch=3) == []
    world.publish(b"one", b"two")
    assert payloads(world.peer.take()) == [b"one", b"two"]
    assert world.info()["num_waiting"] == 1
    world.publish(b"three", b"four")
    assert payloads(world.peer.take()) == [b"three"]
    assert world.info()["num_waiting"] == 0


def test_a_waiting_consumer_with_many_filters_hears_of_what_it_wants_alone(world: World) -> None:
    many = [f"s.m.{number}" for number in range(100)]
    world.create(filter_subjects=many)
    for number in range(6):
        world.create(f"other{number}", filter_subject=f"s.o.{number}")
        world.next(name=f"other{number}", reply=f"in.other{number}")
    world.next(reply="in.many")
    world.publish(b"x", subject="s.o.7")
    assert world.peer.take() == []
    world.publish(b"two", subject="s.o.2")
    world.publish(b"99", subject="s.m.99")
    assert payloads(world.peer.take()) == [b"two", b"99"]
    world.create(filter_subjects=many[:99])
    world.next(reply="in.many")
    world.publish(b"98", b"again", subject="s.m.98")
    assert payloads(world.peer.take()) == [b"98"]


@pytest.mark.parametrize("count", [1, 1000])
def test_of_many_waiting_consumers_those_that_match_are_told(world: World, count: int) -> None:
    for number in range(10):
        world.create(f"c{number}", filter_subject=f"s.*.{number}")
        world.next(name=f"c{number}", reply=f"in.{number}")
    others = [frame(f"s.{number}.other", b"x") for number in range(count)]
    world.peer.say(b"".join([*others, frame("s.new.7", b"seven")]))
    assert payloads(world.peer.take()) == [b"seven"]


def test_requests_take_turns(world: World) -> None:
    world.create()
    for number in (1, 2):
        world.next(batch=3, reply=f"in.{number}")
    other = world.connect()
    other.sub("inbox.*", "7")
    world.next(batch=2, reply="inbox.1", peer=other)
    world.publish(b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9")
    assert payloads(other.take()) == [b"3", b"6"]
    assert payloads(world.peer.take()) == [b"1", b"2", b"4", b"5", b"7", b"8"]


def test_requests_that_want_much_get_many_at_a_time(world: World) -> None:
    world.create(max_ack_pending=-1)
    for number in (1, 2):
        world.next(batch=1000, reply=f"in.{number}")
    world.publish(*(b"%d" % number for number in range(400)))
    assert len(world.peer.take()) == 400


def test_a_request_that_does_not_wait_ends_with_what_there_is(world: World) -> None:
    world.create()
    assert [each.status for each in world.next(batch=5, no_wait=True)] == ["404 No Messages"]
    world.publish(b"one")
    message, status = world.next(batch=5, no_wait=True)
    assert message.payload == b"one" and status.status == "404 No Messages"


def test_a_request_expires_and_hears_what_it_is_owed(world: World) -> None:
    world.create()
    world.publish(b"one")
    world.next(batch=3, expires=5 * S)
    world.wait(4.9)
    assert world.peer.take() == []
    world.wait(0.2)
    (status,) = world.peer.take()
    assert status.status == "408 Request Timeout" and status.subject == "in.1"
    assert b"Nats-Pending-Messages: 2\r\nNats-Pending-Bytes: 0" in status.headers


def test_a_request_gets_heartbeats_while_nothing_comes(world: World) -> None:
    world.create()
    world.next(batch=3, expires=10 * S, idle_heartbeat=2 * S)
    world.wait(3)
    world.publish(b"one")
    world.wait(3)
    statuses = [each.status for each in world.peer.take()]
    assert statuses == ["100 Idle Heartbeat", "", "100 Idle Heartbeat"]


def test_a_request_of_a_client_that_left_is_forgotten(world: World) -> None:
    world.create()
    other = world.connect()
    other.sub("gone", "7")
    world.next(batch=1, reply="gone", peer=other)
    other.unsub("7")
    world.publish(b"one")
    assert world.info()["num_waiting"] == 0 and world.info()["num_pending"] == 1


def test_max_bytes_ends_a_request_before_a_message_that_does_not_fit(world: World) -> None:
    world.create()
    world.publish(b"x" * 100, b"y" * 100, b"z" * 100)
    *messages, status = world.next(batch=10, max_bytes=350)
    assert payloads(messages) == [b"x" * 100, b"y" * 100]
    assert status.status == "409 Message Size Exceeds MaxBytes"


def test_a_batch_with_bytes_left_is_told_that_it_is_complete(world: World) -> None:
    world.create()
    world.publish(b"one", b"two")
    message, status = world.next(batch=1, max_bytes=10_000)
    assert message.payload == b"one" and status.status == "409 Batch Completed"


def test_a_message_larger_than_a_chunk_is_delivered(world: World) -> None:
    world.create()
    large = b"L" * 700_000
    world.publish(b"small", large, b"small")
    assert [len(each.payload) for each in world.next(batch=10)] == [5, 700_000, 5]


def test_a_deleted_consumer_ends_its_requests(world: World) -> None:
    world.create()
    world.next(batch=1)
    assert world.peer.request("CONSUMER.DELETE.S.c") == {
        "type": "io.nats.jetstream.api.v1.consumer_delete_response",
        "success": True,
    }
    assert [each.status for each in world.peer.take()] == ["409 Consumer Deleted"]
    assert "c" not in world.stream.consumers


def test_the_consumers_of_a_deleted_stream_go_some_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_registry, "DROPPED_AT_ONCE", 2)
    names = [f"c{number}" for number in range(5)]
    for name in names:
        world.create(name)
    stream, consumers = world.stream, list(world.stream.consumers.values())
    world.publish(b"one")
    (message,) = world.next("c4", batch=1)
    world.next("c4", batch=1)
    stream.js.remove(stream, lambda: None, lambda error: None)
    world.host.commit_round()
    assert all(consumer.is_closed for consumer in consumers)
    world.broker.default_account.send(message.reply.encode(), b"+ACK")
    assert not world.broker.default_account.send(b"$JS.API.CONSUMER.MSG.NEXT.S.c4", b"", reply=b"in.9")
    world.settle()
    assert [each.status for each in world.peer.take()] == ["409 Consumer Deleted"]
    world.create_stream()
    for name in names:
        world.create(name)
    world.publish(b"two")
    assert [each.payload for each in world.next("c4", batch=1)] == [b"two"]


def test_too_many_requests_are_refused_unless_they_have_heartbeats(world: World) -> None:
    world.create(max_waiting=1)
    world.next(batch=1)
    assert [each.status for each in world.next(batch=1)] == ["409 Exceeded MaxWaiting"]
    assert world.next(batch=1, expires=60 * S, idle_heartbeat=5 * S) == []


def test_delivery_pauses_while_the_connection_is_full(world: World) -> None:
    world.create()
    world.publish(b"one")
    world.peer.connection.pending = 1 << 30
    assert world.next(batch=1) == []
    world.peer.connection.pending = 0
    world.wait(0.1)
    assert payloads(world.peer.take()) == [b"one"]


def test_others_have_their_turn_between_chunks(world: World) -> None:
    world.publish(*[b"x" * 10_000] * 100)
    world.create()
    first = len(parse_frames(world.peer.connection.say(frame("$JS.API.CONSUMER.MSG.NEXT.S.c", b"100", "in.1"))))
    assert 0 < first < 100
    world.settle()
    assert first + len(world.peer.take()) == 100


# Acknowledging


def test_acks_move_the_floor_and_are_answered(world: World) -> None:
    world.create()
    world.publish(b"1", b"2", b"3")
    one, two, three = world.next(batch=3)
    world.ack(two, reply="in.ack")
    assert [each.subject for each in world.peer.take()] == ["in.ack"]
    assert seqs(world.info(), "ack_floor") == (0, 0)
    world.ack(one, b"+ACK")
    world.ack(three, b"+OK")
    info = world.info()
    assert seqs(info, "ack_floor") == seqs(info, "delivered") == (3, 3) and info["num_ack_pending"] == 0


def test_acks_that_arrive_together_are_taken_together(world: World) -> None:
    world.create(max_ack_pending=-1)
    world.publish(*[b"x"] * 500)
    messages = world.next(batch=500)
    world.peer.say(b"".join(frame(each.reply) for each in messages))
    info = world.info()
    assert info["num_ack_pending"] == 0 and seqs(info, "ack_floor") == (500, 500)


def test_a_mixed_batch_of_acks_is_taken_in_order(world: World) -> None:
    world.create()
    world.publish(*[b"x"] * 6)
    replies = [each.reply for each in world.next(batch=6)]
    world.peer.say(
        frame(replies[0])
        + frame(replies[1], b"+TERM enough")
        + frame(replies[2], reply="in.ack")
        + frame(replies[3])
        + frame(replies[4], b"-NAK")
    )
    assert [each.subject for each in world.peer.take()] == ["in.ack"]
    info = world.info()
    assert seqs(info, "ack_floor") == (4, 4) and info["num_ack_pending"] == 2
    assert [each.ack[:3] for each in world.next(batch=1)] == [(2, 5, 7)]


def test_an_ack_of_all_takes_what_came_before(world: World) -> None:
    world.create(ack_policy="all")
    world.publish(*[b"x"] * 5)
    messages = world.next(batch=5)
    world.ack(messages[3])
    info = world.info()
    assert seqs(info, "ack_floor") == (4, 4) and info["num_ack_pending"] == 1


def test_an_ack_beyond_what_was_delivered_is_ignored(world: World) -> None:
    world.create()
    world.publish(b"1")
    world.peer.pub("$JS.ACK.S.c.1.1.1.0.0", b"", "in.ack")
    assert world.peer.take() == []


def test_the_newer_form_of_ack_subjects_is_understood(world: World) -> None:
    from jetlake.jetstream.consumers.ack_words import account_hash

    world.create()
    world.publish(b"1")
    world.next(batch=1)
    world.peer.pub(f"$JS.ACK._.{account_hash('$G')}.S.c.1.1.1.0.0.more", b"", "in.ack")
    assert len(world.peer.take()) == 1 and world.info()["num_ack_pending"] == 0


def test_an_ack_with_the_next_request(world: World) -> None:
    world.create()
    world.publish(b"1", b"2", b"3")
    (message,) = world.next(batch=1)
    world.ack(message, b'+NXT {"batch":2}', reply="in.9")
    assert payloads(world.peer.take()) == [b"2", b"3"]
    assert world.info()["num_ack_pending"] == 2


def test_max_ack_pending_holds_new_messages_back(world: World) -> None:
    world.create(max_ack_pending=2)
    world.publish(b"1", b"2", b"3")
    one, _ = world.next(batch=3)
    assert world.info()["num_waiting"] == 1
    world.ack(one)
    assert payloads(world.peer.take()) == [b"3"]


# Redelivery


def test_what_is_not_acknowledged_comes_again(world: World) -> None:
    world.create(ack_wait=2 * S)
    world.publish(b"1", b"2")
    world.next(batch=5)
    world.wait(1.9)
    assert world.peer.take() == []
    world.wait(0.2)
    assert [each.ack[:3] for each in world.peer.take()] == [(2, 1, 3), (2, 2, 4)]
    assert world.info()["num_redelivered"] == 2


def test_limits_that_take_what_is_pending_make_room(tmp_path: Path) -> None:
    world = World(tmp_path, max_msgs=2)
    world.create(max_ack_pending=2)
    world.next(batch=9)
    for payloads_expected in ([b"1"], [b"2"], [b"3"], [b"4"]):
        world.publish(*payloads_expected)
        world.wait(0.005)
        assert payloads(world.peer.take()) == payloads_expected
    assert world.info()["num_ack_pending"] == 2


def test_asking_for_its_numbers_lets_a_full_consumer_go_on(world: World) -> None:
    world.create(max_ack_pending=1)
    world.publish(b"1", b"2")
    world.next(batch=9)
    world.stream.store.remove(1)
    assert world.info()["num_ack_pending"] == 0
    assert payloads(world.peer.take()) == [b"2"]


def test_redeliveries_come_before_new_messages_and_past_max_ack_pending(world: World) -> None:
    world.create(max_ack_pending=2)
    world.publish(b"1", b"2", b"3")
    one, two = world.next(batch=2)
    world.ack(two, b"-NAK")
    assert [each.ack[:2] for each in world.next(batch=2)] == [(2, 2)]
    world.ack(one)
    assert payloads(world.peer.take()) == [b"3"]


def test_a_nak_may_ask_for_a_delay(world: World) -> None:
    world.create()
    world.publish(b"1", b"2")
    one, two = world.next(batch=5)
    world.ack(one, b'-NAK {"delay": 3000000000}')
    world.ack(two, b"-NAK 5s")
    world.wait(2.9)
    assert world.peer.take() == []
    world.wait(0.2)
    assert payloads(world.peer.take()) == [b"1"]
    world.wait(2)
    assert payloads(world.peer.take()) == [b"2"]


def test_progress_puts_a_redelivery_off(world: World) -> None:
    world.create(ack_wait=2 * S)
    world.publish(b"1")
    (one,) = world.next(batch=2)
    world.wait(1.5)
    world.ack(one, b"+WPI")
    world.wait(1.5)
    assert world.peer.take() == []
    world.wait(1)
    assert len(world.peer.take()) == 1


def test_backoff_spaces_redeliveries(world: World) -> None:
    world.create(backoff=[200 * MS, 600 * MS], max_deliver=4)
    world.publish(b"1")
    world.next(batch=10)
    times = []
    for tenth in range(1, 30):
        world.wait(0.1)
        times += [tenth] * len(world.peer.take())
    assert times == [2, 8, 14]


def test_a_message_is_given_up_after_max_deliver_and_that_is_told(world: World) -> None:
    world.peer.sub("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>", "9")
    world.create(ack_wait=1 * S, max_deliver=2)
    world.publish(b"1")
    world.next(batch=10)
    world.wait(10)
    again, advisory = world.peer.take()
    assert again.ack[0] == 2
    assert b'"stream_seq":1,"deliveries":2' in advisory.payload
    info = world.info()
    assert (info["num_ack_pending"], info["num_redelivered"]) == (0, 1)


def test_a_pending_message_that_is_deleted_counts_as_terminated(world: World) -> None:
    world.peer.sub("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>", "9")
    world.create()
    world.publish(b"1", b"2")
    world.next(batch=2)
    world.peer.request("STREAM.MSG.DELETE.S", {"seq": 1})
    (advisory,) = world.peer.take()
    assert b'"reason":"Unacknowledged message was deleted"' in advisory.payload
    info = world.info()
    assert info["num_ack_pending"] == 1 and seqs(info, "ack_floor") == (1, 1)


def test_a_pending_message_that_expires_counts_as_terminated(tmp_path: Path) -> None:
    world = World(tmp_path, max_age=2 * S)
    world.peer.sub("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>", "9")
    world.create()
    world.publish(b"1", b"2")
    world.next(batch=1)
    world.wait(3)
    (advisory,) = world.peer.take()
    assert b'"stream_seq":1,"deliveries":1,"reason":"Unacknowledged message was deleted"' in advisory.payload
    assert world.info()["num_ack_pending"] == 0


def test_a_pending_message_that_a_limit_takes_is_no_longer_pending(tmp_path: Path) -> None:
    world = World(tmp_path, max_msgs=2)
    world.create()
    world.publish(b"1", b"2")
    world.next(batch=2)
    world.publish(b"3")
    info = world.info()
    assert info["num_ack_pending"] == 1 and info["num_pending"] == 1


def test_a_purge_takes_pending_messages_and_moves_the_position(world: World) -> None:
    world.create()
    world.publish(b"1", b"2", b"3")
    world.next(batch=2)
    world.peer.request("STREAM.PURGE.S")
    info = world.info()
    assert seqs(info, "delivered") == (2, 3) and seqs(info, "ack_floor") == (2, 3)
    assert info["num_ack_pending"] == info["num_pending"] == 0
    world.publish(b"4")
    assert [each.ack[:3] for each in world.next(batch=1)] == [(1, 4, 3)]


# Num pending


def test_num_pending_is_exact_through_filters_deletes_and_deliveries(world: World) -> None:
    world.publish(b"1", b"2", b"3", subject="s.a")
    world.publish(b"4", b"5", subject="s.b")
    assert world.create(filter_subject="s.a")["num_pending"] == 3
    world.publish(b"6", subject="s.a")
    world.publish(b"7", subject="s.b")
    assert world.info()["num_pending"] == 4
    assert world.next(batch=1)[0].ack[3] == 3
    world.peer.request("STREAM.MSG.DELETE.S", {"seq": 3})
    assert world.info()["num_pending"] == 2
    assert [each.ack[3] for each in world.next(batch=5)] == [1, 0]


def test_the_last_of_each_subject_is_a_list_made_at_creation(world: World) -> None:
    for subject, payload in (("s.a", b"1"), ("s.b", b"2"), ("s.a", b"3"), ("s.c", b"4")):
        world.publish(payload, subject=subject)
    assert world.create(deliver_policy="last_per_subject", filter_subject="s.*")["num_pending"] == 3
    world.publish(b"5", subject="s.b")
    assert world.info()["num_pending"] == 4
    found = world.next(batch=10)
    assert [(each.payload, each.ack[3]) for each in found] == [(b"2", 3), (b"3", 2), (b"4", 1), (b"5", 0)]


def test_an_entry_of_the_list_that_is_gone_is_left_out(world: World) -> None:
    for subject in ("s.a", "s.b", "s.c"):
        world.publish(b"x", subject=subject)
    world.create(deliver_policy="last_per_subject", filter_subject="s.*")
    world.peer.request("STREAM.MSG.DELETE.S", {"seq": 2})
    assert world.info()["num_pending"] == 2
    assert [each.ack[1:] for each in world.next(batch=10)] == [(1, 1, 1), (3, 2, 0)]


@pytest.mark.parametrize("lose", ["STREAM.MSG.DELETE.S", "STREAM.PURGE.S"])
@pytest.mark.parametrize("others", [0, 1])  # with another subscriber, messages go the long way
def test_any_entries_of_the_list_may_be_gone(world: World, lose: str, others: int) -> None:
    for subject in ("s.a", "s.b", "s.c", "s.d"):
        world.publish(b"x", subject=subject)
    world.create(deliver_policy="last_per_subject", filter_subject="s.*")
    for subject, seq in (("s.b", 2), ("s.c", 3)):
        world.peer.request(lose, {"seq": seq} if "DELETE" in lose else {"filter": subject})
    for _ in range(others):
        world.connect().sub("in.*", "9")
    found = world.next(batch=10, no_wait=True)
    assert [each.ack[1:] for each in found if each.reply] == [(1, 1, 1), (4, 2, 0)]
    assert world.info()["num_pending"] == 0


def test_entries_of_the_list_that_limits_took_do_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, max_msgs=4)
    for subject in ("s.a", "s.b", "s.c", "s.d"):
        world.publish(b"x", subject=subject)
    world.create(deliver_policy="last_per_subject", filter_subject="s.*")
    world.publish(b"y", b"y")
    assert world.info()["num_pending"] == 4
    assert [each.ack[1:] for each in world.next(batch=10)] == [(3, 1, 3), (4, 2, 2), (5, 3, 1), (6, 4, 0)]


@pytest.mark.parametrize(("filter", "expected"), [("s.b", [2, 5]), ("s.none", [])])
def test_of_the_list_there_remains_what_a_new_filter_matches(world: World, filter: str, expected: list[int]) -> None:
    for subject in ("s.a", "s.b", "s.c"):
        world.publish(b"x", subject=subject)
    world.create(deliver_policy="last_per_subject", filter_subject="s.*")
    for subject in ("s.a", "s.b"):
        world.publish(b"y", subject=subject)
    changed = world.create(deliver_policy="last_per_subject", filter_subject=filter)
    assert changed["num_pending"] == len(expected)
    assert [each.ack[1] for each in world.next(batch=10)] == expected


def test_a_delivery_that_fails_costs_no_connection_and_is_tried_again(world: World) -> None:
    world.create()
    world.publish(b"one")
    delivery = world.consumer().delivery
    pump, delivery.pump = delivery.pump, lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    world.host.failures = []
    assert world.next(batch=1) == []
    assert world.host.failures == ["delivery stream=S consumer=c: division by zero"]
    delivery.pump = pump  # type: ignore[method-assign]
    world.wait(1)
    assert payloads(world.peer.take()) == [b"one"]


def test_a_list_of_which_nothing_is_left_is_followed_by_what_came_after(world: World) -> None:
    world.publish(b"1")
    world.create(deliver_policy="last_per_subject", filter_subject="s.*")
    world.publish(b"2")
    world.peer.request("STREAM.MSG.DELETE.S", {"seq": 1})
    assert [each.ack[1:] for each in world.next(batch=10)] == [(2, 1, 0)]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"deliver_policy": "all"}, [1, 2, 3, 4]),
        ({"deliver_policy": "last"}, [4]),
        ({"deliver_policy": "last", "filter_subject": "s.b"}, [2]),
        ({"deliver_policy": "new"}, []),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, [3, 4]),
        ({"deliver_policy": "last_per_subject", "filter_subject": "s.>"}, [2, 4]),
        ({"filter_subjects": ["s.b", "s.x"]}, [2]),
    ],
)
def test_where_a_consumer_starts(world: World, config: dict[str, Any], expected: list[int]) -> None:
    for subject in ("s.a", "s.b", "s.a", "s.a"):
        world.publish(b"x", subject=subject)
    assert world.create(**config)["num_pending"] == len(expected)
    assert [each.ack[1] for each in world.next(batch=10)] == expected


def test_a_start_by_time(world: World) -> None:
    from jetlake.wire.go_time import format_time

    world.publish(b"1")
    world.wait(10)
    start = format_time(world.clock())
    world.publish(b"2")
    world.create(deliver_policy="by_start_time", opt_start_time=start)
    assert payloads(world.next(batch=10)) == [b"2"]


def test_headers_only_leaves_payloads_out_and_says_their_size(world: World) -> None:
    world.publish(b"12345")
    world.create(headers_only=True)
    (message,) = world.next(batch=1)
    assert message.payload == b"" and b"Nats-Msg-Size: 5\r\n" in message.headers


def test_a_replay_keeps_the_original_pace(world: World) -> None:
    world.publish(b"1")
    world.wait(3)
    world.publish(b"2")
    world.create(replay_policy="original")
    assert payloads(world.next(batch=5)) == [b"1"]
    world.wait(2.9)
    assert world.peer.take() == []
    world.wait(0.2)
    assert payloads(world.peer.take()) == [b"2"]
    world.wait(1)
    world.publish(b"3")
    assert payloads(world.peer.take()) == [b"3"]


# Pushing


def test_a_push_consumer_delivers_while_somebody_listens(world: World) -> None:
    world.publish(b"1", b"2")
    world.create(deliver_subject="d")
    assert "push_bound" not in world.info()
    world.peer.sub("d", "7")
    assert [(each.subject, each.sid, each.payload) for each in world.peer.take()] == [
        ("s.a", "7", b"1"),
        ("s.a", "7", b"2"),
    ]
    assert world.info()["push_bound"] is True
    world.peer.unsub("7")
    world.publish(b"3")
    assert world.peer.take() == []
    world.peer.sub("d", "8")
    assert payloads(world.peer.take()) == [b"3"]


def test_a_deliver_group_delivers_to_its_members_only(world: World) -> None:
    world.create(deliver_subject="d", deliver_group="g")
    world.peer.sub("d", "7")
    world.publish(b"1")
    assert world.peer.take() == []
    world.peer.sub("d", "8", "g")
    assert sorted(each.sid for each in world.peer.take()) == ["7", "8"]  # a plain subscription hears it, too


def test_several_listeners_each_get_a_message(world: World) -> None:
    world.peer.sub("d", "7")
    world.peer.sub("d", "8")
    world.create(deliver_subject="d", headers_only=True)
    world.publish(b"12")
    assert [(each.sid, each.headers) for each in world.peer.take()] == [
        ("7", b"NATS/1.0\r\nNats-Msg-Size: 2\r\n\r\n"),
        ("8", b"NATS/1.0\r\nNats-Msg-Size: 2\r\n\r\n"),
    ]
    assert seqs(world.info(), "delivered") == (1, 1)


def test_heartbeats_come_after_silence_and_say_how_far_it_is(world: World) -> None:
    world.peer.sub("d", "7")
    world.create(deliver_subject="d", idle_heartbeat=1 * S)
    world.wait(0.6)
    world.publish(b"1")
    world.peer.take()
    world.wait(0.9)
    assert world.peer.take() == []
    world.wait(0.2)
    (beat,) = world.peer.take()
    assert beat.subject == "d" and beat.status == "100 Idle Heartbeat"
    assert b"Nats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n" in beat.headers


def test_flow_control_asks_stalls_and_goes_on_with_the_answer(world: World) -> None:
    world.peer.sub("d", "7")
    world.publish(*[b"x" * 100_000] * 40)
    world.create(deliver_subject="d", flow_control=True, idle_heartbeat=1 * S, ack_policy="none")
    found = world.peer.take()
    asked = [number for number, each in enumerate(found) if each.status == "100 FlowControl Request"]
    assert (len(found), asked) == (22, [11])
    assert found[11].reply.startswith("$JS.FC.S.c.")
    world.wait(1.1)
    (beat,) = world.peer.take()
    assert f"Nats-Consumer-Stalled: {found[11].reply}".encode() in beat.headers
    world.peer.pub(found[11].reply)
    assert len([each for each in world.peer.take() if not each.status]) == 19


def test_a_rate_limit_spreads_deliveries_out(world: World) -> None:
    world.peer.sub("d", "7")
    world.publish(*[b"x" * 500_000] * 6)
    world.create(deliver_subject="d", rate_limit_bps=8_000_000, ack_policy="none")
    first = len(world.peer.take())
    world.wait(1)
    second = len(world.peer.take())
    world.wait(10)
    assert (first, second, len(world.peer.take())) == (3, 2, 1)


def test_a_push_consumer_moves_to_another_subject_with_what_is_pending(world: World) -> None:
    world.publish(b"1")
    world.create(deliver_subject="d")
    world.peer.sub("d", "7")
    world.peer.take()
    assert world.create(deliver_subject="e")["error"]["err_code"] == 10013
    world.peer.unsub("7")
    world.peer.sub("e", "8")
    assert "error" not in world.create(deliver_subject="e")
    assert [(each.sid, each.ack[0]) for each in world.peer.take()] == [("8", 2)]


# Life


@pytest.mark.parametrize("pull", [True, False])
def test_one_that_is_not_durable_goes_when_nobody_uses_it(world: World, pull: bool) -> None:
    config = {} if pull else {"deliver_subject": "d"}
    body = {"stream_name": "S", "config": {"name": "e", "inactive_threshold": 2 * S, **config}}
    world.peer.request("CONSUMER.CREATE.S.e", body)
    world.wait(1.9)
    assert "e" in world.stream.consumers
    world.wait(1.2)
    assert "e" not in world.stream.consumers


@pytest.mark.parametrize(("before", "after", "stays"), [("e", "", True), ("", "e", False)])
def test_an_update_makes_nothing_durable_and_nothing_ephemeral(
    world: World, before: str, after: str, stays: bool
) -> None:
    for durable_name in (before, after):
        config = {"name": "e", "durable_name": durable_name, "ack_policy": "explicit"}
        world.peer.request("CONSUMER.CREATE.S.e", {"stream_name": "S", "config": config})
    world.wait(7)
    assert ("e" in world.stream.consumers) is stays


def test_requests_and_pending_acks_keep_a_pull_consumer(world: World) -> None:
    body = {"stream_name": "S", "config": {"name": "e", "ack_policy": "explicit", "ack_wait": 10 * S}}
    world.peer.request("CONSUMER.CREATE.S.e", body)
    world.next("e", batch=1, expires=20 * S)
    world.wait(15)
    assert "e" in world.stream.consumers
    world.publish(b"1")
    (message,) = world.peer.take()
    world.wait(12)
    assert "e" in world.stream.consumers
    world.ack(message)
    world.wait(7)
    assert "e" not in world.stream.consumers


def test_interest_keeps_a_push_consumer(world: World) -> None:
    world.peer.sub("d", "7")
    world.peer.request("CONSUMER.CREATE.S.e", {"stream_name": "S", "config": {"deliver_subject": "d"}})
    world.wait(20)
    assert "e" in world.stream.consumers
    world.peer.unsub("7")
    world.wait(7)
    assert "e" not in world.stream.consumers


def test_direct_consumers_do_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, max_consumers=1)
    direct = {"stream_name": "S", "config": {"name": "d", "direct": True, "deliver_subject": "x"}}
    assert "error" not in world.create()
    assert "error" not in world.peer.request("CONSUMER.CREATE.S.d", direct)
    assert world.create("e")["error"]["err_code"] == 10026


def test_an_update_of_a_consumer_that_rests_is_told(world: World) -> None:
    world.create(pause_until="2090-01-01T00:00:00Z")
    world.peer.sub("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.>", "9")
    world.create(description="x")
    (told,) = world.peer.take()
    assert b'"paused":true,"pause_until":"2090-01-01T00:00:00Z"' in told.payload


def test_a_pause_holds_messages_until_its_time(world: World) -> None:
    from jetlake.wire.go_time import format_time

    world.peer.sub("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.>", "9")
    world.create()
    world.publish(b"1")
    until = format_time(world.clock() + 5 * S)
    answer = world.peer.request("CONSUMER.PAUSE.S.c", {"pause_until": until})
    assert answer["paused"] and answer["pause_remaining"] == 5 * S
    (told,) = world.peer.take()
    assert b'"paused":true' in told.payload
    assert world.next(batch=1) == []
    assert world.info()["paused"] is True
    world.wait(5.1)
    told, message = world.peer.take()
    assert b'"paused":false' in told.payload and message.payload == b"1"
    assert "paused" not in world.info()


def test_a_reset_goes_back_and_counts_anew(world: World) -> None:
    world.create()
    world.publish(b"1", b"2", b"3")
    one, *_ = world.next(batch=3)
    world.ack(one)
    answer = world.peer.request("CONSUMER.RESET.S.c")
    assert answer["reset_seq"] == 2 and seqs(answer, "delivered") == (0, 1) and answer["num_pending"] == 2
    assert [each.ack[:3] for each in world.next(batch=5)] == [(1, 2, 1), (1, 3, 2)]
    assert world.peer.request("CONSUMER.RESET.S.c", {"seq": 1})["num_pending"] == 3


def test_new_filters_hold_from_now_on(world: World) -> None:
    for subject in ("s.a", "s.b", "s.a", "s.b"):
        world.publish(b"x", subject=subject)
    world.create(filter_subject="s.a")
    world.next(batch=1)
    assert world.create(filter_subject="s.b")["num_pending"] == 2
    assert [each.ack[1] for each in world.next(batch=5)] == [2, 4]


def test_sampled_acks_are_reported(world: World) -> None:
    world.peer.sub("$JS.EVENT.METRIC.CONSUMER.ACK.S.c", "9")
    world.create(sample_freq="100%")
    world.publish(b"1")
    (message,) = world.next(batch=1)
    world.wait(2)
    world.ack(message)
    (metric,) = world.peer.take()
    assert b'"stream_seq":1,"ack_time":2000000000,"deliveries":1' in metric.payload


# Priority groups


def test_overflow_serves_a_request_when_enough_is_pending(world: World) -> None:
    world.create(priority_policy="overflow", priority_groups=["A"])
    assert world.next(batch=5, group="A", min_pending=3) == []
    world.publish(b"1", b"2")
    assert world.peer.take() == []
    world.publish(b"3")
    assert payloads(world.peer.take()) == [b"1"]
    assert payloads(world.next(batch=5, group="A")) == [b"2", b"3"]


def test_a_pinned_client_alone_is_served_until_it_stays_away(world: World) -> None:
    world.create(priority_policy="pinned_client", priority_groups=["A"], priority_timeout=5 * S)
    world.publish(b"1", b"2", b"3")
    (message,) = world.next(batch=1, group="A")
    pin = message.headers.partition(b"Nats-Pin-Id: ")[2].partition(b"\r\n")[0].decode()
    assert world.info()["priority_groups"][0]["pinned_client_id"] == pin
    assert world.next(batch=1, group="A", reply="in.other") == []
    assert payloads(world.next(batch=1, group="A", id=pin)) == [b"2"]
    assert [each.status for each in world.next(batch=1, group="A", id="old")] == ["423 Nats-Pin-Id mismatch"]
    world.wait(5.1)
    assert [(each.subject, each.payload) for each in world.peer.take()] == [("s.a", b"3")]
    assert world.info()["priority_groups"][0]["pinned_client_id"] != pin


def test_a_client_that_waits_is_pinned_with_the_first_message(world: World) -> None:
    world.create(priority_policy="pinned_client", priority_groups=["A"], priority_timeout=5 * S)
    for number in (1, 2):
        assert world.next(batch=2, group="A", reply=f"in.{number}") == []
    assert "pinned_client_id" not in world.info()["priority_groups"][0]
    world.publish(b"1")
    assert payloads(world.peer.take()) == [b"1"] and "pinned_client_id" in world.info()["priority_groups"][0]


def test_who_lost_its_pin_hears_of_it_with_the_next_message(world: World) -> None:
    world.create(priority_policy="pinned_client", priority_groups=["A"], priority_timeout=5 * S)
    world.publish(b"1")
    assert payloads(world.next(batch=2, group="A")) == [b"1"]
    world.wait(6)
    assert world.peer.take() == []
    world.publish(b"2")
    assert [each.status for each in world.peer.take()] == ["423 Nats-Wrong-Pin-Id"]


def test_unpinning_lets_the_next_client_in(world: World) -> None:
    world.create(priority_policy="pinned_client", priority_groups=["A"])
    world.publish(b"1", b"2")
    world.next(batch=1, group="A")
    assert world.next(batch=1, group="A") == []
    world.peer.request("CONSUMER.UNPIN.S.c", {"group": "A"})
    assert payloads(world.peer.take()) == [b"2"]


def test_prioritized_requests_are_served_by_their_number(world: World) -> None:
    world.create(priority_policy="prioritized", priority_groups=["A"])
    other = world.connect()
    other.sub("first", "5")
    world.next(batch=2, group="A", priority=3)
    world.next(batch=2, group="A", priority=1, reply="first", peer=other)
    world.publish(b"1", b"2", b"3")
    assert payloads(other.take()) == [b"1", b"2"] and payloads(world.peer.take()) == [b"3"]


def test_of_requests_that_arrive_together_the_best_is_served_first(world: World) -> None:
    world.create(priority_policy="prioritized", priority_groups=["A"])
    world.publish(b"1", b"2", b"3")
    request = b'{"batch":2,"group":"A","priority":%d}'
    subject = "$JS.API.CONSUMER.MSG.NEXT.S.c"
    world.peer.sub("low", "8")
    world.peer.sub("high", "9")
    world.peer.say(frame(subject, request % 5, "low") + frame(subject, request % 1, "high"))
    assert [(each.sid, each.payload) for each in world.peer.take()] == [("9", b"1"), ("9", b"2"), ("8", b"3")]


# Costs


def test_an_idle_consumer_is_not_woken_by_publishes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from jetlake.jetstream.consumers.consumer import Consumer

    woken: list[str] = []
    monkeypatch.setattr(Consumer, "stored", lambda self, first, last: woken.append(self.name))
    for number in range(8):
        world.create(f"c{number}", filter_subject=f"s.{number}")
    world.create("all")
    world.publish(b"1", subject="s.3")
    assert woken == []
    for name in ("all", *(f"c{number}" for number in range(7))):
        world.next(name, batch=5)
    world.publish(b"2", b"3", subject="s.3")
    assert woken == ["all", "c3"]
    world.publish(b"4", subject="s.7")
    assert woken == ["all", "c3", "all"]


def test_a_tick_that_fails_is_not_the_last(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create(ack_wait=10**9)
    world.publish(b"one")
    assert payloads(world.next(batch=1)) == [b"one"]
    world.next(batch=1, expires=60 * 10**9)
    world.host.failures = []
    with monkeypatch.context() as broken:
        broken.setattr(world.consumer(), "give_up", lambda *_: 1 // 0)
        world.wait(1)
    assert world.host.failures[0].startswith("delivery stream=S consumer=c: ")
    world.wait(2)
    assert payloads(world.peer.take()) == [b"one"]
