"""Counter streams: increments, totals, what is refused, and sums over several origins. Both servers answer alike."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Pair
from tests.compat.peer import Peer, header_block
from tests.compat.script import Script, assert_same
from tests.compat.servers import wait_until


def incr(value: object, **more: object) -> bytes:
    return header_block(**{"Nats-Incr": value, **more})


def test_increments_add_up(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_msg_counter=True, allow_direct=True)
        for value in ("+1", "1", "-3", "0", "+0", "007", "12345678901234567890123456", "-12345678901234567890123456"):
            script.publish("S.a", b"", incr(value))
        script.publish("S.b", b"", incr(5, A="b"))
        for seq in (1, 7, 9):
            script.api("STREAM.MSG.GET.S", {"seq": seq})
        script.api("STREAM.PURGE.S", {"filter": "S.a"})
        script.publish("S.a", b"", incr(2))
        script.publish("S.a", b"", incr(2, **{"Nats-Msg-Id": "x"}))
        script.publish("S.a", b"", incr(2, **{"Nats-Msg-Id": "x"}))

    assert_same(pair, name, act)


REFUSED = [
    (b"", b""),
    (incr(""), b""),
    (incr("1_000"), b""),
    (incr("0x10"), b""),
    (incr("1.5"), b""),
    (incr("+"), b""),
    (incr("+ 5"), b""),
    (incr(1), b"payload"),
    (incr(1, **{"Nats-Rollup": "sub"}), b""),
    (incr(1, **{"Nats-Expected-Last-Sequence": 0}), b""),
    (incr(1, **{"Nats-Expected-Last-Subject-Sequence": 0}), b""),
    (incr(1, **{"Nats-TTL": "5s"}), b""),
    (header_block(A="b"), b""),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_is_no_increment_is_refused(pair: Pair, name: str, case: int) -> None:
    headers, payload = REFUSED[case]

    def act(script: Script) -> None:
        script.create(allow_msg_counter=True)
        script.publish("S.a", payload, headers)
        script.publish("S.a", b"", incr(1))

    assert_same(pair, name, act)


@pytest.mark.parametrize("value", ["1", "x"])
def test_streams_without_counters_refuse_increments(pair: Pair, name: str, value: str) -> None:
    def act(script: Script) -> None:
        script.create()
        script.publish("S.a", b"", incr(value))

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "config",
    [
        {"discard": "new"},
        {"allow_msg_ttl": True},
        {"retention": "workqueue"},
        {"allow_msg_schedules": True},
        {"max_msgs_per_subject": 1},
        {"storage": "memory"},
    ],
)
def test_configurations(pair: Pair, name: str, config: dict[str, object]) -> None:
    def act(script: Script) -> None:
        script.create(allow_msg_counter=True, **config)
        script.publish("S.a", b"", incr(1))
        script.publish("S.a", b"", incr(1))
        script.update(allow_msg_counter=False, **config)

    assert_same(pair, name, act)


def test_counters_of_several_origins_are_summed(peer: Peer, name: str) -> None:
    def make(stream: str, **config: object) -> None:
        answer = peer.api(
            f"STREAM.CREATE.{stream}", {"name": stream, "storage": "file", "allow_msg_counter": True} | config
        )
        assert "error" not in answer, answer

    def total() -> str:
        answer = peer.api(f"STREAM.MSG.GET.{name}T", {"last_by_subj": f"{name}.all.h"})
        return str(answer.get("message", {}).get("data", ""))

    def add(subject: str, value: int) -> None:
        assert b'"val"' in peer.request(f"{name}.{subject}", b"", incr(value)).payload

    make(f"{name}E", subjects=[f"{name}.es.*"])
    make(f"{name}F", subjects=[f"{name}.fr.*"])
    add("es.h", 5)
    add("fr.h", 10)
    sources = [
        {
            "name": f"{name}{letter}",
            "subject_transforms": [{"src": f"{name}.{place}.*", "dest": f"{name}.all.{{{{wildcard(1)}}}}"}],
        }
        for letter, place in (("E", "es"), ("F", "fr"))
    ]
    make(f"{name}T", subjects=[f"{name}.all.*"], sources=sources)
    wait_until(lambda: total() == "eyJ2YWwiOiIxNSJ9", "5 and 10 to be added", 15)
    add("es.h", 2)
    add("all.h", -4)
    wait_until(lambda: total() == "eyJ2YWwiOiIxMyJ9", "2 to be added and 4 taken away", 15)
