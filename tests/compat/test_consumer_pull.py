"""Pull consumers: requests, statuses, acks. Both servers do the same, message by message."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Pair
from tests.compat.consumer_script import MS, ConsumerScript, same
from tests.compat.peer import header_block


def fill(script: ConsumerScript, count: int = 6, **config: object) -> None:
    """A stream with a few messages, on two subjects in turn."""
    script.script.create(**config)
    for number in range(count):
        script.script.peer.request(f"{script.name}.{'ab'[number % 2]}", b"x" * (number + 1))


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"batch": 3},
        {"batch": 0},
        {"batch": -2},
        {"batch": 20, "no_wait": True},
        {"batch": 20, "expires": 100 * MS},
        {"batch": 20, "no_wait": True, "expires": 100 * MS},
        {"batch": 10, "max_bytes": 200},
        {"batch": 10, "max_bytes": 10},
        {"batch": 2, "max_bytes": 1000},
        {"batch": 20, "max_bytes": 10_000, "expires": 100 * MS},
        {"batch": 20, "expires": 300 * MS, "idle_heartbeat": 100 * MS},
        {"batch": 3, "expires": 100 * MS, "idle_heartbeat": 80 * MS},
        {"batch": 2, "unknown": 1},
        {"batch": 2, "group": "A"},
        {"batch": 2, "id": "x"},
        {"batch": 2, "min_pending": 1},
        {"batch": 2, "priority": 11},
        b"3",
        b" 3 ",
        b"three",
        b'{"batch": }',
        b'{"batch": "x"}',
        b'{"batch": 1} x',
        b"{",
        b'{"batch": 1',
        b'{"batch": 9223372036854775808}',
        b'{"batch": 9223372036854775807, "no_wait": true}',
        b'{"max_bytes": 99999999999999999999}',
        b'{"min_pending": 9223372036854775808}',
        b"9223372036854775807",
        b"9223372036854775808",
    ],
    ids=repr,
)
def test_a_request_and_what_comes_of_it(pair: Pair, name: str, body: object) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer()
        script.next(body, wait_s=0.8 if isinstance(body, dict) and "expires" in body else 0.06)
        script.info()
        script.next({"batch": 20, "no_wait": True})
        script.info()

    same(pair, name, steps)


def test_a_request_for_a_newer_api(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer()
        script.next({"batch": 1}, headers=header_block(Nats_Required_Api_Level=99))
        script.next({"batch": 1}, headers=header_block(Nats_Required_Api_Level="x"))
        script.next({"batch": 1}, headers=header_block(Nats_Required_Api_Level=1))

    same(pair, name, steps)


def test_ceilings_of_requests(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer(max_batch=2, max_expires=1500 * MS, max_bytes=100)
        script.next({"batch": 3})
        script.next({"batch": 1, "expires": 2000 * MS})
        script.next({"batch": 1, "max_bytes": 101})
        script.next({"batch": 2, "max_bytes": 100})

    same(pair, name, steps)


def test_too_many_requests(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer(max_waiting=2, filter_subject="S.none")
        for _ in range(3):
            script.next({"batch": 1, "expires": 10_000 * MS})
        script.next({"batch": 1, "expires": 10_000 * MS, "idle_heartbeat": 4000 * MS})
        script.info()

    same(pair, name, steps)


def test_requests_take_turns(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 0)
        script.consumer()
        for batch in (3, 1, 2):
            script.next({"batch": batch})
        for number in range(7):
            script.publish(b"%d" % number)
        script.listen()
        script.info()

    same(pair, name, steps)


def test_requests_that_claim_all_that_is_there(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 3)
        script.consumer(max_ack_pending=1)
        script.next({"batch": 5})
        script.next({"batch": 1, "no_wait": True})
        script.info()
        script.ack(0)
        script.info()

    same(pair, name, steps)


def test_max_ack_pending_holds_back(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer(max_ack_pending=2)
        script.next({"batch": 4, "expires": 500 * MS})
        script.info()
        script.ack(1)
        script.ack(0)
        script.info()
        script.listen(wait_s=0.6)

    same(pair, name, steps)


@pytest.mark.parametrize("policy", ["explicit", "all", "none"])
def test_acks_of_every_kind(pair: Pair, name: str, policy: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer(ack_policy=policy)
        script.next({"batch": 5})
        for place, payload in ((2, b""), (0, b"+ACK"), (1, b"-NAK"), (3, b"+WPI"), (3, b"+TERM no"), (4, b"junk")):
            script.ack(place, payload, answer=policy != "none")
            script.info()
        script.ack(2, answer=policy != "none")
        script.ack(4, b'+NXT {"batch":2}', answer=True)
        script.info()

    same(pair, name, steps)


def test_an_ack_to_nobody(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer()
        for subject in (f"{script.name}.c.1.99.99.0.0", f"{script.name}.c.1.x.1.0.0", f"{script.name}.none.1.1.1.0.0"):
            script.peer.publish(f"$JS.ACK.{subject}", b"", b"", f"{script.inbox}.ack")
            script.listen(subject)

    same(pair, name, steps)


@pytest.mark.parametrize(
    "config",
    [
        {"deliver_policy": "all"},
        {"deliver_policy": "last"},
        {"deliver_policy": "new"},
        {"deliver_policy": "last_per_subject", "filter_subject": "S.*"},
        {"deliver_policy": "last_per_subject", "filter_subject": "S.none"},
        {"deliver_policy": "last_per_subject", "filter_subjects": ["S.a", "S.c"]},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 90},
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2090-01-01T00:00:00Z"},
        {"deliver_policy": "last", "filter_subject": "S.b"},
        {"deliver_policy": "last", "filter_subject": "S.none"},
        {"filter_subject": "S.b"},
        {"filter_subjects": ["S.a", "S.b"]},
        {"filter_subjects": ["S.b", "S.none"]},
        {"headers_only": True},
        {"ack_policy": "none"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_where_a_consumer_starts_and_what_it_wants(
    pair: Pair, name: str, config: dict[str, object], storage: str
) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, storage=storage)
        script.publish(b"with headers", headers=header_block(A="b"))
        own = {key: script.script._own_body(value) for key, value in config.items()}
        script.consumer(**own)
        script.next({"batch": 2, "no_wait": True})
        script.publish(b"new", subject="S.b")
        script.info()
        script.next({"batch": 20, "no_wait": True})
        script.info()

    same(pair, name, steps)


def test_what_the_stream_loses(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 10)
        script.consumer()
        script.consumer("b", filter_subject=f"{script.name}.b")
        script.next({"batch": 5})
        script.next({"batch": 2}, "b")
        for seq in (1, 2, 8):
            script.script.api("STREAM.MSG.DELETE.S", {"seq": seq})
            script.listen()
            script.info()
        for purge in ({"seq": 4}, {"filter": "S.b"}, {}):
            script.script.api("STREAM.PURGE.S", purge)
            script.listen()
            script.info()
            script.info("b")

    same(pair, name, steps)


@pytest.mark.parametrize("purge", [{}, {"filter": "S.none"}, {"filter": "S.b"}, {"seq": 3}, {"keep": 50}])
def test_a_purge_that_removes_nothing(pair: Pair, name: str, purge: dict[str, Any]) -> None:
    """Consumers are told all the same, and take note of what limits took before."""

    def steps(script: ConsumerScript) -> None:
        fill(script, 0, max_msgs=4)
        script.consumer()
        script.consumer("b", filter_subject=f"{script.name}.b")
        script.publish(b"1", b"2")
        script.next({"batch": 1})
        script.publish(b"3", b"4", b"5", b"6", b"7")
        if not purge:
            script.script.api("STREAM.PURGE.S", {})
            script.consumer("late", deliver_policy="by_start_sequence", opt_start_seq=3)
        script.script.api("STREAM.PURGE.S", purge)
        script.info()
        script.info("b")
        script.next({"batch": 5, "no_wait": True})
        script.info()

    same(pair, name, steps)


def test_a_consumer_that_goes_ends_its_requests(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 0)
        script.consumer()
        script.next({"batch": 2, "expires": 5000 * MS})
        script.api("CONSUMER.DELETE.S.c")
        script.listen()
        script.next({"batch": 1})

    same(pair, name, steps)


def test_a_push_consumer_takes_no_requests(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 1)
        script.consumer(deliver_subject="elsewhere")
        script.next({"batch": 1})

    same(pair, name, steps)


def test_a_reset(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script)
        script.consumer()
        script.consumer("n", deliver_policy="new")
        script.consumer("s", deliver_policy="by_start_sequence", opt_start_seq=3)
        script.next({"batch": 3})
        script.ack(0)
        script.api("CONSUMER.RESET.S.c")
        script.next({"batch": 2})
        script.api("CONSUMER.RESET.S.c", b'{"seq": 5')
        script.api("CONSUMER.RESET.S.c", b'{"seq": }')
        script.api("CONSUMER.RESET.S.c", b'{"seq": 5} x')
        script.api("CONSUMER.RESET.S.c", {"seq": 5})
        script.next({"batch": 9, "no_wait": True})
        for consumer, seq in (("n", 1), ("s", 2), ("s", 4)):
            script.api(f"CONSUMER.RESET.S.{consumer}", {"seq": seq})

    same(pair, name, steps)


def test_a_client_that_waits_is_pinned_with_the_first_message(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 0)
        script.consumer(priority_policy="pinned_client", priority_groups=["A"])
        for _ in range(2):
            script.next({"group": "A", "batch": 2, "expires": 5000 * MS})
            script.info()
        for _ in range(2):
            script.publish(b"m")
            script.listen()
            script.info()

    same(pair, name, steps)


@pytest.mark.parametrize("how", ["timeout", "unpin"])
def test_who_lost_its_pin_hears_of_it_with_the_next_message(pair: Pair, name: str, how: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 1)
        timeout = 300 * MS if how == "timeout" else None
        script.consumer(priority_policy="pinned_client", priority_groups=["A"], priority_timeout=timeout)
        script.next({"group": "A", "batch": 3, "expires": 5000 * MS})
        script.next({"group": "A", "batch": 3, "expires": 5000 * MS})
        if how == "unpin":
            script.api("CONSUMER.UNPIN.S.c", {"group": "A"})
        script.listen(wait_s=0.5 if how == "timeout" else 0.06)
        script.info()
        script.publish(b"m")
        script.listen()
        script.info()

    same(pair, name, steps)


@pytest.mark.parametrize("limit", ["max_msgs", "max_msgs_per_subject"])
def test_limits_that_take_what_is_pending_make_room(pair: Pair, name: str, limit: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(**{limit: 3})
        script.publish(b"1", b"2", b"3")
        script.consumer(max_ack_pending=2)
        script.next({"batch": 20, "expires": 20_000 * MS})
        for number in range(4, 9):
            script.publish(b"%d" % number)
            script.hear_payloads()
        script.info()

    same(pair, name, steps)


def test_lower_limits_that_take_what_is_pending_make_room(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 6)
        script.consumer(max_ack_pending=2)
        script.next({"batch": 20, "expires": 20_000 * MS})
        script.script.update(max_msgs=3)
        script.hear_payloads()
        info = script.script.peer.api(f"CONSUMER.INFO.{script.name}.c")  # whose floor varies with nats-server's threads
        script.script.note("info", [info["delivered"]["stream_seq"], info["num_ack_pending"], info["num_pending"]])

    same(pair, name, steps)


@pytest.mark.parametrize(
    "delay",
    [b'{"delay":8000000000000000000}', b'{"delay":-9000000000000000000}', b"2562047h", b"99999999999h", b"0s"],
    ids=repr,
)
def test_a_refused_message_rests_for_however_long(pair: Pair, name: str, delay: bytes) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 2)
        script.consumer()
        script.next({"batch": 1})
        script.ack(0, b"-NAK " + delay, answer=True)
        script.next({"batch": 1, "expires": 200 * MS}, wait_s=0.3)
        script.info()

    same(pair, name, steps)


@pytest.mark.parametrize("max_deliver", [1, 2, 3])
@pytest.mark.parametrize("refuse", [True, False])
def test_a_message_is_given_up_when_it_would_be_delivered_again(
    pair: Pair, name: str, max_deliver: int, refuse: bool
) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 2)
        script.consumer(max_deliver=max_deliver, ack_wait=200 * MS)
        script.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{name}.c", "told")
        for _ in range(max_deliver):
            script.next({"batch": 1, "expires": 600 * MS}, wait_s=0.3)
        if refuse:
            script.ack(-1, b"-NAK", answer=True)
        script.listen(wait_s=0.4)
        script.info()
        script.next({"batch": 1, "no_wait": True})
        script.info()

    same(pair, name, steps)


def test_pending_messages_that_expire_count_as_terminated(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 2, max_age=500 * MS)
        script.consumer()
        script.subscribe(f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.{name}.c", "told")
        script.next({"batch": 2})
        script.listen(wait_s=1.2)
        script.info()

    same(pair, name, steps)


def test_an_ack_of_another_size_reaches_nobody(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        fill(script, 1)
        script.consumer()
        script.next({"batch": 1})
        tokens = script.replies[0].split(".")
        tokens[7] = "1"  # the time, which nobody looks at
        for subject in (tokens[:4], tokens[:-1], [*tokens[:-1], "x"], [*tokens, "x"], tokens):
            script.peer.publish(".".join(subject), b"", b"", f"{script.inbox}.ack")
            script.listen(".".join(subject), 0.25)  # an answer waits for the disk
        script.info()

    same(pair, name, steps)
