"""Message schedules: what is accepted, what is made of it and when, what ends it. Both servers answer alike."""

from __future__ import annotations

import time
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.compat.conftest import Pair, Start
from tests.compat.peer import Peer, header_block
from tests.compat.script import Script, assert_same
from tests.compat.servers import JETLAKE, NATS_SERVER, Server, wait_until

FLAGS: dict[str, Any] = {"allow_msg_schedules": True, "allow_msg_ttl": True}


def schedule(when: str, target: str, **more: object) -> bytes:
    fields = {"Nats-Schedule": when, "Nats-Schedule-Target": target}
    return header_block(**fields, **{name.replace("_", "-"): value for name, value in more.items()})


def at(seconds: float) -> str:
    return f"@at {(datetime.now(UTC) + timedelta(seconds=seconds)).strftime('%Y-%m-%dT%H:%M:%S.%fZ')}"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"storage": "memory"},
        {"retention": "interest"},
        {"retention": "workqueue"},
        {"discard": "new"},
        {"deny_purge": True},
        {"deny_purge": True, "allow_rollup_hdrs": True},
        {"allow_msg_counter": True},
        {"mirror": {"name": "M"}, "subjects": []},
        {"sources": [{"name": "M"}]},
    ],
)
def test_configurations(pair: Pair, name: str, config: dict[str, Any]) -> None:
    def act(script: Script) -> None:
        script.create(allow_msg_schedules=True, **config)
        script.update(**config)

    assert_same(pair, name, act)


def test_schedules_can_be_turned_on_later_and_levels_are_told(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        script.publish("S.a", b"", schedule("@every 1h", f"{script.name}.t"))
        script.update(allow_msg_schedules=True)
        script.publish("S.a", b"", schedule("@every 1h", f"{script.name}.t"))
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


PATTERNS = [
    "@at 2026-01-01",
    "@at  2036-01-01T00:00:00Z",
    "@at 2036-01-01T00:00:00.5+02:00",
    "@every 999ms",
    "@every 1.5s",
    "@every 1h30m",
    "@every -5s",
    "@every 5",
    "@every 1d",
    "@Hourly",
    "@midnight",
    "@reboot",
    "* * * * *",
    "0 0 0 * * 7",
    "0 0 0 30 2 *",
    "0 0 0 29 2 *",
    "10/5 * * * * *",
    "*/0 * * * * *",
    "10-5 * * * * *",
    "0 0 0 ? JAN-mar MON,tue",
    "0 0 0 L * *",
    "*-5 0 0 1 1 *",
    "1,,2 0 0 1 1 *",
    "+1 0 0 1 1 *",
    "1/2/3 * * * * *",
    "0 0 0 * january *",
]


def test_patterns(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(**FLAGS)
        for pattern in PATTERNS:
            script.publish("S.p", b"", schedule(pattern, f"{script.name}.t"))

    assert_same(pair, name, act)


def test_time_zones(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(**FLAGS)
        for zone in ("Asia/Kolkata", "UTC", "Local", "EST", "utc", "Nope", "", "+02:00", "../UTC", "/etc/localtime"):
            for when in ("@yearly", "@every 1h", ""):
                more = {"Nats-Schedule-Time-Zone": zone}
                script.publish("S.p", b"", schedule(when, f"{script.name}.t", **more))

    assert_same(pair, name, act)


def test_what_a_schedule_must_say(pair: Pair, name: str) -> None:
    cases = [
        {"Nats-Schedule-TTL": "z"},
        {"Nats-Schedule-TTL": "never"},
        {"Nats-Schedule-TTL": "0"},
        {"Nats-Schedule-Rollup": "all"},
        {"Nats-Schedule-Rollup": "SUB"},
        {"Nats-Schedule-Rollup": "sub"},
        {"Nats-Schedule-Source": "S.*"},
        {"Nats-Schedule-Source": "S.t"},
        {"Nats-Schedule-Source": "S.a"},
        {"Nats-Schedule-Source": "other"},
        {"Nats-Schedule-Source": "S.s"},
        {"Nats-Rollup": "all"},
        {"Nats-Rollup": "SUB"},
        {"Nats-Expected-Last-Sequence": "99"},
        {"Nats-Incr": "1"},
        {"Nats-Stream-Source": "x"},
    ]

    def act(script: Script) -> None:
        script.create(**FLAGS)
        for target in ("", "S.*", "S.a", "other", "S..t", "S.t"):
            script.publish("S.a", b"", header_block(**{"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": target}))
        for case in cases:
            own = {key: value.replace("S.", f"{script.name}.") for key, value in case.items()}
            script.publish("S.a", b"", schedule("@every 1h", f"{script.name}.t", **own))
        script.publish("S.a", b"", header_block(**{"Nats-Schedule-Target": "*", "Nats-Schedule-TTL": "z"}))

    assert_same(pair, name, act)


def test_a_time_to_live_of_what_is_made_needs_the_stream_to_allow_it(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_msg_schedules=True)
        more = {"Nats-Schedule-TTL": "5s"}
        script.publish("S.a", b"", schedule("@every 1h", f"{script.name}.t", **more))

    assert_same(pair, name, act)


@pytest.mark.parametrize("flags", [FLAGS, {}])
def test_cancelling(pair: Pair, name: str, flags: dict[str, Any]) -> None:
    def act(script: Script) -> None:
        own = script.name
        script.create(**flags)
        script.publish("S.a", b"", schedule("@every 1h", f"{own}.t"))
        script.publish("S.plain", b"")
        for following, scheduler in (
            ("purge", ""), ("", f"{own}.a"), ("x", f"{own}.a"), ("purge", f"{own}.c"), ("purge", f"{own}.*"),
            ("purge", f"{own}.plain"), ("purge", f"{own}.unknown"), ("purge", "elsewhere"), ("purge", f"{own}.a"),
        ):  # fmt: skip
            fields = {"Nats-Schedule-Next": following, "Nats-Scheduler": scheduler}
            script.publish("S.c", b"", header_block(**{key: value for key, value in fields.items() if value}))
        script.api("STREAM.INFO.S", {"subjects_filter": ">"})

    assert_same(pair, name, act)


def stored(peer: Peer, name: str) -> list[dict[str, Any]]:
    """All messages of a stream."""
    state = peer.api(f"STREAM.INFO.{name}")["state"]
    found = [peer.api(f"STREAM.MSG.GET.{name}", {"seq": n}) for n in range(state["first_seq"], state["last_seq"] + 1)]
    return [each["message"] for each in found if "message" in each]


def texts(messages: list[dict[str, Any]], subject: str) -> list[bytes]:
    return [
        b64decode(each.get("hdrs", "")) + b64decode(each.get("data", ""))
        for each in messages
        if each["subject"] == subject
    ]


def test_what_is_made_and_when(peer: Peer, name: str) -> None:
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **FLAGS})
    more = {"Nats-Schedule-TTL": "1m", "Nats-Msg-Id": "id", "A": "b", "Nats-Schedule-Rollup": "sub"}
    peer.request(f"{name}.past", b"past", schedule("@at 2020-01-01T00:00:00Z", f"{name}.t1", **more))
    peer.request(f"{name}.at", b"at", schedule(at(1.5), f"{name}.t2"))
    peer.request(f"{name}.value", b"sample", header_block(C="d"))
    sampling = {"Nats-Schedule-Source": f"{name}.value", "Nats-Schedule-Time-Zone": "Asia/Kolkata"}
    peer.request(f"{name}.cron", b"own", schedule("* * * * * *", f"{name}.t3", **sampling))
    wait_until(lambda: texts(stored(peer, name), f"{name}.t2"), "the message of @at", 5)
    messages = stored(peer, name)
    own = name.encode()
    assert texts(messages, f"{name}.t1") == [
        b"NATS/1.0\r\nA: b\r\nNats-Scheduler: %s.past\r\nNats-Schedule-Next: purge\r\nNats-TTL: 1m\r\n"
        b"Nats-Rollup: sub\r\n\r\npast" % own
    ]
    assert texts(messages, f"{name}.t2") == [
        b"NATS/1.0\r\nNats-Scheduler: %s.at\r\nNats-Schedule-Next: purge\r\n\r\nat" % own
    ]
    first = texts(messages, f"{name}.t3")[0]
    assert first.startswith(b"NATS/1.0\r\nC: d\r\nNats-Scheduler: %s.cron\r\nNats-Schedule-Next: 20" % own)
    assert first.endswith(b"+05:30\r\n\r\nsample")
    assert {each["subject"] for each in messages} == {f"{name}.{part}" for part in ("t1", "t2", "t3", "value", "cron")}


def test_made_messages_reach_consumers_and_not_subscribers_of_the_target(peer: Peer, name: str) -> None:
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **FLAGS})
    peer.subscribe(f"{name}.t", "7")
    peer.subscribe("deliver", "8")
    config = {"durable_name": "C", "deliver_subject": "deliver", "filter_subject": f"{name}.t", "ack_policy": "none"}
    peer.api(f"CONSUMER.DURABLE.CREATE.{name}.C", {"stream_name": name, "config": config})
    peer.publish(f"{name}.a", b"x", schedule("@at 2020-01-01T00:00:00Z", f"{name}.t"))
    message = peer.message()
    assert (message.sid, message.subject) == ("8", f"{name}.t")


def test_schedules_in_an_atomic_batch(peer: Peer, name: str) -> None:
    config = {"name": name, "subjects": [f"{name}.>"], "allow_atomic": True, **FLAGS}
    peer.api(f"STREAM.CREATE.{name}", config)
    members = [("past", "@at 2020-01-01T00:00:00Z", "t1"), ("soon", at(1), "t2"), ("wrong", "@at 2020", "t3")]
    for count, is_taken in ((2, True), (3, False)):
        for number, (subject, when, target) in enumerate(members[:count], 1):
            commit = {"Nats-Batch-Commit": "1"} if number == count else {}
            more = {"Nats-Batch-Id": f"b{count}", "Nats-Batch-Sequence": number, **commit}
            answer = peer.request(f"{name}.{subject}", subject.encode(), schedule(when, f"{name}.{target}", **more))
        assert ("error" not in answer.json) is is_taken
    wait_until(lambda: texts(stored(peer, name), f"{name}.t2"), "the message of the second", 5)
    made = {each["subject"]: b64decode(each["data"]) for each in stored(peer, name)}
    assert made == {f"{name}.t1": b"past", f"{name}.t2": b"soon"}


def test_a_schedule_in_a_fast_ingest_batch(peer: Peer, name: str) -> None:
    config = {"name": name, "subjects": [f"{name}.>"], "allow_batched": True, **FLAGS}
    peer.api(f"STREAM.CREATE.{name}", config)
    peer.subscribe("fast.>", "7")
    headers = schedule("@at 2020-01-01T00:00:00Z", f"{name}.t")
    peer.publish(f"{name}.a", b"x", headers, reply="fast.b.10.fail.1.2.$FI")
    assert peer.message().json["count"] == 1
    wait_until(lambda: texts(stored(peer, name), f"{name}.t"), "the message", 5)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_schedules_survive_the_end_of_the_server(start: Start, end: str) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **FLAGS})
        peer.request("s.every", b"every", schedule("@every 1s", "s.t.every"))
        peer.request("s.at", b"at", schedule(at(2), "s.t.at"))
        peer.request("s.later", b"later", schedule(at(3600), "s.t.later"))
        wait_until(lambda: texts(stored(peer, "S"), "s.t.every"), "the first message", 5)
    getattr(server, end)()
    time.sleep(2.5)
    server.start()
    with Peer(server) as peer:
        wait_until(lambda: texts(stored(peer, "S"), "s.t.at"), "what was missed", 5)
        wait_until(lambda: len(texts(stored(peer, "S"), "s.t.every")) >= 4, "more messages", 6)
        messages = stored(peer, "S")
    assert len(texts(messages, "s.t.at")) == 1
    times = [datetime.fromisoformat(each["time"][:19]) for each in messages if each["subject"] == "s.t.every"]
    assert all((later - earlier).total_seconds() <= 6 for earlier, later in pairwise(times))
    assert {each["subject"] for each in messages} >= {"s.every", "s.later"}
    assert "s.at" not in {each["subject"] for each in messages}


# Where JetLake is right and nats-server is not: see docs/comparison.md


def test_difference_a_field_of_commas_is_refused_at_once(server: Server, peer: Peer, name: str) -> None:
    """nats-server searches five years of it second by second, and the stream stands still meanwhile."""
    if server.kind == NATS_SERVER:
        pytest.skip("nats-server freezes the stream for seconds")
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **FLAGS})
    begin = time.monotonic()
    answer = peer.request(f"{name}.a", b"", schedule(", * * * * *", f"{name}.t"))
    assert answer.json["error"]["err_code"] == 10189 and time.monotonic() - begin < 1


def test_difference_what_is_made_has_no_headers_of_batches(server: Server, peer: Peer, name: str) -> None:
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **FLAGS})
    more = {"Nats-Batch-Sequence": "1"}
    peer.request(f"{name}.a", b"", schedule("@at 2020-01-01T00:00:00Z", f"{name}.t", **more))
    wait_until(lambda: texts(stored(peer, name), f"{name}.t"), "the message", 5)
    (made,) = texts(stored(peer, name), f"{name}.t")
    assert (b"Nats-Batch-Sequence" in made) is (server.kind != JETLAKE)


def test_difference_an_overdue_schedule_whose_time_to_live_ended_does_not_happen(start: Start, kind: str) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **FLAGS})
        more = {"Nats-TTL": "2s"}
        peer.request("s.a", b"", schedule(at(1.5), "s.t", **more))
    server.kill()
    time.sleep(3)
    server.start()
    with Peer(server) as peer:
        time.sleep(1.5)
        made = texts(stored(peer, "S"), "s.t")
        assert (
            not made or kind == NATS_SERVER
        )  # which makes it now and then: what is first, the schedule or the expiry?
