"""Times and durations at the ends of what Go can tell and count. Both servers take and show them alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Pair, Start
from tests.compat.consumer_script import ConsumerScript, same
from tests.compat.peer import Peer, header_block

INT64_MAX = 2**63 - 1
TIMES = [
    "0000-01-01T00:00:00Z",
    "0000-01-01T00:00:00+23:59",  # in UTC, the year before the first that Go writes
    "0001-01-01T00:00:00+12:00",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00-00:01",
    "1969-12-31T23:59:59Z",
    "2030-01-01T00:00:00.500+02:00",
    "2030-01-01T00:00:00-00:00",
    "2300-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "9999-12-31T23:59:59-12:00",  # in UTC, the year after the last
]
NO_TIMES = [
    "",
    "2030-01-01",
    "10000-01-01T00:00:00Z",
    "-001-01-01T00:00:00Z",
    "2030-01-01t00:00:00z",
    "2030-01-01T00:00:00,5Z",
    "2030-01-01T0:00:00Z",
    "2030-01-01T00:00:60Z",
    "2030-01-01T00:00:00+24:00",
    "2030-01-01T00:00:00+23:60",
    "2030-01-01T00:00:00+2300",
]


@pytest.mark.parametrize("time", TIMES + NO_TIMES)
def test_a_pause(pair: Pair, name: str, time: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create()
        script.consumer()
        script.api("CONSUMER.PAUSE.S.c", {"pause_until": time})
        script.info()
        script.api("CONSUMER.LIST.S")
        script.publish(b"1")
        script.next({"batch": 1, "no_wait": True})

    same(pair, name, steps)


@pytest.mark.parametrize("time", TIMES + NO_TIMES)
def test_a_consumer_that_is_made_with_a_time(pair: Pair, name: str, time: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create()
        script.consumer("p", pause_until=time)
        script.consumer("s", deliver_policy="by_start_time", opt_start_time=time)
        script.info("p")
        script.api("CONSUMER.LIST.S")
        script.consumer("p", pause_until=time, description="changed")
        script.api("CONSUMER.PAUSE.S.p")
        script.info("p")

    same(pair, name, steps)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59-12:00"])
def test_a_consumer_with_such_a_time_is_kept(start: Start, time: str) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for name, config in (("c", {}), ("p", {"pause_until": time})):
            config = {"durable_name": name, "ack_policy": "explicit", **config}
            assert "error" not in peer.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})
        peer.api("CONSUMER.PAUSE.S.c", {"pause_until": time})
        peer.api("CONSUMER.PAUSE.S.c")
        peer.request("s")
        peer.request(peer.request("$JS.API.CONSUMER.MSG.NEXT.S.c").reply)
        for query in ("/jsz?streams=1&consumers=1&config=1", "/healthz"):
            assert server.get(query)
    server.stop()
    server.start()
    with Peer(server) as peer:
        assert peer.api("CONSUMER.INFO.S.c")["ack_floor"]["stream_seq"] == 1
        assert peer.api("CONSUMER.INFO.S.p")["config"]["pause_until"] == time


def test_what_is_left_of_a_pause_is_no_more_than_go_counts(pair: Pair, name: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create()
        script.consumer()
        answer = script.api("CONSUMER.PAUSE.S.c", {"pause_until": "9999-12-31T00:00:00Z"})
        assert answer["pause_remaining"] == INT64_MAX
        assert script.info()["pause_remaining"] == INT64_MAX

    same(pair, name, steps)


@pytest.mark.parametrize("field", ["start_time", "up_to_time"])
@pytest.mark.parametrize("time", [TIMES[2], TIMES[5], TIMES[6], *NO_TIMES[:4]])
def test_a_get_by_time(pair: Pair, name: str, field: str, time: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(allow_direct=True)
        script.publish(b"1")
        body: dict[str, Any] = {"next_by_subj": "S.a"} if field == "start_time" else {"multi_last": ["S.a"]}
        script.script.api("STREAM.MSG.GET.S", {**body, field: time})
        count = 1 if field == "start_time" else -1
        script.script.request(f"$JS.API.DIRECT.GET.{script.name}", {**body, field: time}, count=count)

    same(pair, name, steps)


LONG = [INT64_MAX, INT64_MAX - 1, 2**62]


@pytest.mark.parametrize("duration", LONG)
def test_the_longest_waits(pair: Pair, name: str, duration: int) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(max_age=duration, duplicate_window=duration)
        script.publish(b"1", b"2", b"3", headers=b"")
        script.consumer(ack_wait=duration)
        script.consumer("b", backoff=[duration, duration], max_deliver=5)
        script.consumer("e", inactive_threshold=duration, max_expires=duration)
        for consumer in ("c", "b", "e"):
            script.next({"batch": 2, "expires": duration}, consumer)
        script.ack(0, b'-NAK {"delay": %d}' % duration, answer=True)
        script.ack(1, b"-NAK %dns" % duration, answer=True)
        for consumer in ("c", "b", "e"):
            script.info(consumer)

    same(pair, name, steps)


@pytest.mark.parametrize(
    "ttl",
    ["9223372036s", "9223372037s", f"{INT64_MAX}", f"{INT64_MAX + 1}", "2562047h47m16s", "-1", "0", "never", "1e3"],
)
def test_the_longest_lives(pair: Pair, name: str, ttl: str) -> None:
    def steps(script: ConsumerScript) -> None:
        script.script.create(allow_msg_ttl=True)
        script.script.publish("S.a", b"x", header_block(Nats_TTL=ttl))

    same(pair, name, steps)
