"""Waiting pull requests, without a consumer."""

from __future__ import annotations

import pytest

from jetlake.jetstream.consumers.config import ConsumerConfig, PriorityPolicy
from jetlake.jetstream.consumers.priority_groups import PriorityGroups
from jetlake.jetstream.consumers.pull_queue import NEVER_NS, PullQueue, Verdict
from jetlake.jetstream.consumers.pull_request import BadPullRequest, NextRequest, PullRequest, read_next

S = 10**9


def request(reply: str = "r", now_ns: int = 0, **body: object) -> PullRequest:
    return PullRequest(reply.encode(), NextRequest(**{"batch": 1, **body}), True, now_ns)  # type: ignore[arg-type]


def serve_all(request: PullRequest) -> Verdict:
    return Verdict.SERVE


def heard(reply: bytes) -> bool:
    return not reply.startswith(b"gone")


def replies(queue: PullQueue) -> list[str]:
    return [each.reply.decode() for each in queue]


def filled(*requests: PullRequest, count_max: int = 10, is_prioritized: bool = False) -> PullQueue:
    queue = PullQueue(count_max, is_prioritized=is_prioritized)
    for each in requests:
        assert queue.add(each)
    return queue


# Reading


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b"", NextRequest(batch=1)),
        (b"  ", NextRequest(batch=1)),
        (b"7", NextRequest(batch=7)),
        (b" +7 ", NextRequest(batch=7)),
        (b"seven", NextRequest(batch=1)),
        (b"{}", NextRequest()),
        (b'{"batch":3,"no_wait":true}', NextRequest(batch=3, no_wait=True)),
        (b'{"Batch":3,"other":1,"expires":null}', NextRequest(batch=3)),
        (b'{"expires":10,"idle_heartbeat":5}', NextRequest(expires=10, idle_heartbeat=5)),
    ],
)
def test_what_a_request_asks_for(payload: bytes, expected: NextRequest) -> None:
    assert read_next(payload)[0] == expected


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b'{"batch": }', "invalid character '}' looking for beginning of value"),
        (b'{"batch": "x"}', "json: cannot unmarshal string into Go struct field .batch of type int"),
        (b'{"batch": 1} x', "invalid character 'x' after top-level value"),
        (b'{"batch": 1}{', "invalid character '{' after top-level value"),
        (b'{"batch": 1', "unexpected end of JSON input"),
        (
            b'{"batch":9223372036854775808}',
            "json: cannot unmarshal number 9223372036854775808 into Go struct field .batch of type int",
        ),
        (b'{"expires":9,"idle_heartbeat":5}', "heartbeat value too large"),
    ],
)
def test_a_request_that_makes_no_sense_is_told_why(payload: bytes, problem: str) -> None:
    with pytest.raises(BadPullRequest) as error:
        read_next(payload)
    assert str(error.value) == problem


# Waiting


def test_requests_are_served_in_turn() -> None:
    queue = filled(request("a", batch=2), request("b", batch=2))
    order = []
    while (found := queue.next(0, serve_all, heard)[0]) is not None:
        order.append(found.reply.decode())
        assert queue.served(1, 10, 0) == []
    assert order == ["a", "b", "a", "b"] and len(queue) == 0


def test_prioritized_requests_take_turns_among_equals() -> None:
    queue = filled(
        request("low", batch=1, priority=5),
        request("x", batch=2, priority=1),
        request("y", batch=2, priority=1),
        is_prioritized=True,
    )
    order = []
    while (found := queue.next(0, serve_all, heard)[0]) is not None:
        order.append(found.reply.decode())
        queue.served(1, 10, 0)
    assert order == ["x", "y", "x", "y", "low"]


def test_requests_of_one_inbox_are_served_as_one() -> None:
    queue = filled(request("a", batch=2), request("a", batch=3), request("a", batch=0), request("b", batch=9))
    assert queue.together(0, 100) == (3, 6) and queue.batch_sum == 14
    assert queue.together(0, 4) == (2, 5)
    assert queue.served(4, 100, 0) == []
    assert [(each.reply, each.batch) for each in queue] == [(b"a", 0), (b"b", 9), (b"a", 1)]
    assert queue.batch_sum == 10
    queue.served(1, 10, 0)
    assert replies(queue) == ["b", "a"] and queue.batch_sum == 10


@pytest.mark.parametrize("body", [{"max_bytes": 9}, {"no_wait": True}, {"min_pending": 2}, {"expires": S}])
def test_a_request_that_asks_for_something_special_is_served_alone(body: dict[str, int]) -> None:
    assert filled(request("a"), request("a", **body)).together(2 * S, 100) == (1, 1)
    if "expires" not in body:
        assert filled(request("a", **body), request("a")).together(2 * S, 100) == (1, 1)


def test_a_full_queue_takes_no_more() -> None:
    queue = filled(request("a"), count_max=1)
    assert not queue.add(request("b")) and replies(queue) == ["a"]


def test_the_next_request_is_one_that_is_admitted_and_heard() -> None:
    queue = filled(request("old", expires=5), request("gone"), request("no"), request("yes"))
    found, statuses = queue.next(5, lambda each: Verdict.PASS_OVER if each.reply == b"no" else Verdict.SERVE, heard)
    assert found is not None and found.reply == b"yes"
    assert [status.block.split(b"\r\n")[0] for status in statuses] == [b"NATS/1.0 408 Request Timeout"]
    assert sorted(replies(queue)) == ["no", "yes"]


def test_nobody_is_next_when_all_are_passed_over() -> None:
    queue = filled(request("a"), request("b"))
    assert queue.next(0, lambda each: Verdict.PASS_OVER, heard) == (None, [])
    assert len(queue) == 2


def test_a_wrong_pin_ends_a_request() -> None:
    queue = filled(request("a"))
    found, (status,) = queue.next(0, lambda each: Verdict.WRONG_PIN, heard)
    assert found is None and b"423 Nats-Wrong-Pin-Id" in status.block and len(queue) == 0


def test_a_byte_budget_counts_down_and_ends_the_request_when_it_is_used_up() -> None:
    queue = filled(request("a", batch=5, max_bytes=100))
    found, _ = queue.next(0, serve_all, heard)
    assert found is not None
    assert queue.served(2, 60, 0) == [] and found.bytes_left == 40
    assert queue.served(1, 40, 0) == [] and len(queue) == 0


def test_a_batch_that_is_complete_with_bytes_left_says_so() -> None:
    queue = filled(request("a", batch=2, max_bytes=100))
    found, _ = queue.next(0, serve_all, heard)
    assert found is not None
    (status,) = queue.served(2, 60, 0)
    assert status.block == (
        b"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 40\r\n\r\n"
    )


def test_a_request_for_no_messages_gets_one() -> None:
    queue = filled(request("a", batch=0))
    found, _ = queue.next(0, serve_all, heard)
    assert found is not None and found.wanted == 1
    assert queue.served(1, 10, 0) == [] and len(queue) == 0


def test_deadlines_are_expiries_and_heartbeats() -> None:
    queue = filled(request("a", expires=10 * S), request("b", expires=8 * S, idle_heartbeat=2 * S))
    assert queue.next_deadline_ns == 2 * S
    assert queue.tick(S) == ([], [])
    assert queue.tick(2 * S) == ([], [b"b"])
    assert queue.next_deadline_ns == 4 * S
    statuses, beats = queue.tick(8 * S)
    assert [status.reply for status in statuses] == [b"b"] and beats == []
    assert queue.next_deadline_ns == 10 * S
    queue.tick(10 * S)
    assert len(queue) == 0 and queue.next_deadline_ns == NEVER_NS


def test_a_delivery_puts_the_heartbeat_off() -> None:
    queue = filled(request("a", batch=5, expires=60 * S, idle_heartbeat=2 * S))
    found, _ = queue.next(S, serve_all, heard)
    assert found is not None
    queue.served(1, 10, S)
    assert queue.tick(2 * S) == ([], [])
    assert queue.tick(3 * S) == ([], [b"a"])


def test_requests_that_do_not_wait_end_with_the_stream() -> None:
    patient = request("first", no_wait=True, expires=10 * S, batch=2)
    queue = filled(request("waits"), request("now", no_wait=True), patient)
    assert [status.reply for status in queue.end_of_stream()] == [b"now"]
    assert replies(queue) == ["waits", "first"]
    patient.delivered = 1
    assert [status.reply for status in queue.end_of_stream()] == [b"first"]
    assert queue.no_wait_count == 0


def test_closing_ends_every_request() -> None:
    queue = filled(request("a", batch=3), request("b"))
    statuses = queue.close(409, "Server Shutdown", shows_pending=True)
    assert [status.reply for status in statuses] == [b"a", b"b"] and len(queue) == 0
    assert b"Nats-Pending-Messages: 3" in statuses[0].block


def test_requests_that_nobody_hears_are_forgotten() -> None:
    queue = filled(request("a"), request("gone", no_wait=True))
    queue.drop_unheard(heard)
    assert replies(queue) == ["a"] and queue.no_wait_count == 0


# Groups


def groups(policy: PriorityPolicy) -> PriorityGroups:
    ids = iter(["pin1", "pin2"])
    config = ConsumerConfig(priority_policy=policy, priority_groups=("A", "B"), priority_timeout=10)
    return PriorityGroups(config, lambda: next(ids))


def test_a_pin_is_given_once_and_lost_after_its_time() -> None:
    pinned = groups(PriorityPolicy.PINNED_CLIENT)
    first, second = request("a", group="A"), request("b", group="A")
    assert pinned.pin(first, 100) and first.id == "pin1" and pinned.pin_deadline_ns == 110
    assert not pinned.pin(second, 101)
    assert pinned.admits(first, 0, 0) is Verdict.SERVE and pinned.admits(second, 0, 0) is Verdict.PASS_OVER
    assert pinned.admits(request("c", id="old", group="A"), 0, 0) is Verdict.WRONG_PIN
    assert pinned.check(NextRequest(group="A", id="pin1"), 105) and pinned.pin_deadline_ns == 115
    assert not pinned.check(NextRequest(group="A", id="old"), 105)
    pinned.unpin()
    assert pinned.admits(second, 0, 0) is Verdict.SERVE and pinned.pin_deadline_ns == NEVER_NS
    assert pinned.admits(first, 0, 0) is Verdict.WRONG_PIN
    pinned.unpin(first)  # which got nothing
    assert pinned.admits(first, 0, 0) is Verdict.SERVE


def test_overflow_weighs_either_bar() -> None:
    overflow = groups(PriorityPolicy.OVERFLOW)
    assert overflow.admits(request(group="A"), 0, 0) is Verdict.SERVE
    assert overflow.admits(request(group="A", min_pending=5), 4, 99) is Verdict.PASS_OVER
    assert overflow.admits(request(group="A", min_pending=5), 5, 0) is Verdict.SERVE
    assert overflow.admits(request(group="A", min_pending=5, min_ack_pending=2), 0, 2) is Verdict.SERVE


@pytest.mark.parametrize(
    ("policy", "body", "problem"),
    [
        (PriorityPolicy.NONE, {"min_pending": 1}, "Not a Overflow Priority consumer"),
        (PriorityPolicy.OVERFLOW, {"id": "x"}, "Not a Pinned Client Priority consumer"),
        (PriorityPolicy.NONE, {"priority": 10}, "Priority must be between 0 and 9"),
        (PriorityPolicy.OVERFLOW, {}, "Priority Group missing"),
        (PriorityPolicy.OVERFLOW, {"group": "C"}, "Invalid Priority Group"),
    ],
)
def test_a_request_must_fit_the_policy(policy: PriorityPolicy, body: dict[str, object], problem: str) -> None:
    with pytest.raises(BadPullRequest, match=problem):
        groups(policy).check(NextRequest(**body), 0)  # type: ignore[arg-type]
