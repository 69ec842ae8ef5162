"""Mirrors and sources: what they copy, how they go on, what info says. Origin and copy are on one server here."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Peer, header_block
from tests.compat.servers import JETLAKE, Server, wait_until

SECOND_NS = 10**9


def make(peer: Peer, name: str, **config: Any) -> Any:
    answer = peer.api(f"STREAM.CREATE.{name}", {"name": name, "storage": "file"} | config)
    assert "error" not in answer, answer
    return answer


def fill(peer: Peer, *subjects: str, headers: bytes = b"") -> None:
    for number, subject in enumerate(subjects, 1):
        answer = peer.request(subject, b"%s %d" % (subject.encode(), number), headers)
        assert b'"seq"' in answer.payload, answer


def state(peer: Peer, name: str) -> dict[str, Any]:
    found = peer.api(f"STREAM.INFO.{name}", {"deleted_details": True})["state"]
    return {key: found.get(key) for key in ("messages", "first_seq", "last_seq", "deleted")}


def messages(peer: Peer, name: str) -> list[dict[str, Any]]:
    """Everything that a stream holds."""
    found = []
    for seq in range(1, state(peer, name)["last_seq"] + 1):
        answer = peer.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
        if "message" in answer:
            found.append({key: answer["message"].get(key) for key in ("seq", "subject", "data", "hdrs", "time")})
    return found


def caught_up(peer: Peer, name: str, last_seq: int) -> None:
    wait_until(lambda: state(peer, name)["last_seq"] >= last_seq, f"{name} to reach {last_seq}", 20)


def test_a_mirror_has_the_same_messages_and_gaps(peer: Peer, name: str) -> None:
    origin, mirror = f"{name}O", f"{name}M"
    make(peer, origin, subjects=[f"{name}.>"])
    fill(peer, *[f"{name}.{number % 3}" for number in range(12)])
    for seq in (1, 5, 6, 12):
        assert peer.api(f"STREAM.MSG.DELETE.{origin}", {"seq": seq})["success"]
    make(peer, mirror, mirror={"name": origin})
    caught_up(peer, mirror, 11)
    assert messages(peer, mirror) == messages(peer, origin)
    assert state(peer, mirror) == {"messages": 8, "first_seq": 2, "last_seq": 11, "deleted": [5, 6]}
    fill(peer, f"{name}.x")
    caught_up(peer, mirror, 13)
    assert messages(peer, mirror) == messages(peer, origin)
    info = peer.api(f"STREAM.INFO.{mirror}")["mirror"]
    assert info["name"] == origin and info["lag"] == 0 and info["active"] >= 0 and "error" not in info


def test_publishing_to_a_mirror_reaches_nobody(peer: Peer, name: str) -> None:
    make(peer, f"{name}O", subjects=[f"{name}.>"])
    make(peer, f"{name}M", mirror={"name": f"{name}O"})
    assert peer.request(f"{name}M").status == "503"


@pytest.mark.parametrize(
    ("fields", "first", "wanted"),
    [
        ({"filter_subject": "{n}.1"}, 2, [2, 5]),
        ({"opt_start_seq": 4}, 4, [4, 5, 6]),
        ({"subject_transforms": [{"src": "{n}.1", "dest": "x.1"}, {"src": "{n}.2", "dest": ""}]}, 2, [2, 3, 5, 6]),
    ],
)
def test_part_of_an_origin_is_mirrored(
    peer: Peer, name: str, fields: dict[str, Any], first: int, wanted: list[int]
) -> None:
    fields = json.loads(json.dumps(fields).replace("{n}", name))
    make(peer, f"{name}O", subjects=[f"{name}.>"])
    fill(peer, *[f"{name}.{number % 3}" for number in range(6)])
    make(peer, f"{name}M", mirror={"name": f"{name}O"} | fields)
    caught_up(peer, f"{name}M", wanted[-1])
    found = messages(peer, f"{name}M")
    assert [each["seq"] for each in found] == wanted and state(peer, f"{name}M")["first_seq"] == first
    if "subject_transforms" in fields:
        assert {each["subject"] for each in found} == {"x.1", f"{name}.2"}


def test_a_mirror_of_a_mirror(peer: Peer, name: str) -> None:
    make(peer, f"{name}O", subjects=[f"{name}.>"])
    make(peer, f"{name}M", mirror={"name": f"{name}O"})
    make(peer, f"{name}N", mirror={"name": f"{name}M"})
    fill(peer, *[f"{name}.a"] * 5)
    caught_up(peer, f"{name}N", 5)
    assert messages(peer, f"{name}N") == messages(peer, f"{name}O")


def test_headers_that_meant_something_to_the_origin_are_dropped(peer: Peer, name: str) -> None:
    make(peer, f"{name}O", subjects=[f"{name}.>"])
    block = header_block(**{"Nats-Expected-Last-Sequence": 0, "A": "b", "Nats-Msg-Id": "one"})
    fill(peer, f"{name}.a", headers=block)
    fill(peer, f"{name}.a", headers=header_block(**{"Nats-Expected-Last-Sequence": 1}))
    make(peer, f"{name}M", mirror={"name": f"{name}O"})
    caught_up(peer, f"{name}M", 2)
    first, second = (peer.api(f"STREAM.MSG.GET.{name}M", {"seq": seq})["message"] for seq in (1, 2))
    import base64

    assert base64.b64decode(first["hdrs"]) == b"NATS/1.0\r\nA: b\r\nNats-Msg-Id: one\r\n\r\n"
    assert "hdrs" not in second


def test_sources_name_where_messages_come_from(peer: Peer, name: str) -> None:
    import base64

    make(peer, f"{name}A", subjects=[f"{name}.a.>"])
    make(peer, f"{name}B", subjects=[f"{name}.b.>"])
    fill(peer, f"{name}.a.1", f"{name}.b.1", f"{name}.b.2")
    transforms = [{"src": f"{name}.b.1", "dest": "y"}, {"src": f"{name}.b.2", "dest": ""}]
    sources = [{"name": f"{name}A"}, {"name": f"{name}B", "subject_transforms": transforms}]
    make(peer, f"{name}T", subjects=[f"{name}.t"], sources=sources)
    caught_up(peer, f"{name}T", 3)
    fill(peer, f"{name}.t")
    found = {}
    for seq in range(1, 5):
        message = peer.api(f"STREAM.MSG.GET.{name}T", {"seq": seq})["message"]
        lines = base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")
        value = next((line.partition(": ")[2] for line in lines if line.startswith("Nats-Stream-Source")), "")
        found[message["subject"]] = value.split(" ")[:-1]
    filters, destinations = f"{name}.b.1\f{name}.b.2", "y\f>"
    assert found == {
        f"{name}.a.1": [f"{name}A", "1", ">", ">", f"{name}.a.1"],
        "y": [f"{name}B", "1", filters, destinations, f"{name}.b.1"],
        f"{name}.b.2": [f"{name}B", "2", filters, destinations, f"{name}.b.2"],
        f"{name}.t": [],
    }
    info = {each["name"]: each for each in peer.api(f"STREAM.INFO.{name}T")["sources"]}
    assert [info[f"{name}{letter}"]["seq"] for letter in "AB"] == [1, 2]
    assert all(each["lag"] == 0 for each in info.values())


def test_a_source_is_deduplicated_where_the_target_has_a_window(peer: Peer, name: str) -> None:
    make(peer, f"{name}O", subjects=[f"{name}.>"], duplicate_window=10**8)
    fill(peer, f"{name}.a", headers=header_block(**{"Nats-Msg-Id": "one"}))
    time.sleep(0.2)
    fill(peer, f"{name}.b", headers=header_block(**{"Nats-Msg-Id": "one"}))
    fill(peer, f"{name}.c")
    make(peer, f"{name}T", sources=[{"name": f"{name}O"}], duplicate_window=60 * SECOND_NS)
    make(peer, f"{name}U", sources=[{"name": f"{name}O"}])
    caught_up(peer, f"{name}T", 2)
    caught_up(peer, f"{name}U", 3)
    assert [each["subject"] for each in messages(peer, f"{name}T")] == [f"{name}.a", f"{name}.c"]
    assert len(messages(peer, f"{name}U")) == 3


def test_an_origin_that_comes_later_is_found(peer: Peer, name: str) -> None:
    make(peer, f"{name}T", sources=[{"name": f"{name}O"}])
    make(peer, f"{name}O", subjects=[f"{name}.>"])
    fill(peer, f"{name}.a")
    caught_up(peer, f"{name}T", 1)


def test_a_work_queue_is_drained_by_its_source(peer: Peer, name: str) -> None:
    make(peer, f"{name}Q", subjects=[f"{name}.>"], retention="workqueue")
    fill(peer, *[f"{name}.a"] * 50)
    make(peer, f"{name}T", sources=[{"name": f"{name}Q"}])
    caught_up(peer, f"{name}T", 50)
    wait_until(lambda: state(peer, f"{name}Q")["messages"] == 0, "the queue to be empty", 15)
    fill(peer, f"{name}.b")
    caught_up(peer, f"{name}T", 51)
    consumers = peer.api(f"CONSUMER.LIST.{name}Q")["consumers"]
    assert [each["config"]["ack_policy"] for each in consumers] == ["flow_control"]


def test_a_mirror_is_promoted(peer: Peer, name: str) -> None:
    make(peer, f"{name}O", subjects=[f"{name}.>"])
    fill(peer, f"{name}.a", f"{name}.b")
    make(peer, f"{name}M", mirror={"name": f"{name}O"})
    caught_up(peer, f"{name}M", 2)
    other = {"name": f"{name}M", "storage": "file", "mirror": {"name": f"{name}X"}}
    assert peer.api(f"STREAM.UPDATE.{name}M", other)["error"]["err_code"] == 10055
    config = {"name": f"{name}M", "storage": "file", "subjects": [f"{name}.>"]}
    assert peer.api(f"STREAM.UPDATE.{name}M", config)["error"]["err_code"] == 10065
    moved = {"name": f"{name}O", "storage": "file", "subjects": [f"{name}old.>"]}
    assert "error" not in peer.api(f"STREAM.UPDATE.{name}O", moved)
    answer = peer.api(f"STREAM.UPDATE.{name}M", config)
    assert "error" not in answer and "mirror" not in answer["config"]
    fill(peer, f"{name}.c")
    assert state(peer, f"{name}M")["last_seq"] == 3


def test_sources_come_and_go_by_updates(peer: Peer, name: str) -> None:
    for letter in "AB":
        make(peer, f"{name}{letter}", subjects=[f"{name}.{letter}"])
        fill(peer, f"{name}.{letter}")
    make(peer, f"{name}T", sources=[{"name": f"{name}A"}])
    caught_up(peer, f"{name}T", 1)
    both = {"name": f"{name}T", "storage": "file", "sources": [{"name": f"{name}A"}, {"name": f"{name}B"}]}
    assert "error" not in peer.api(f"STREAM.UPDATE.{name}T", both)
    caught_up(peer, f"{name}T", 2)
    one = {"name": f"{name}T", "storage": "file", "sources": [{"name": f"{name}B"}]}
    assert "error" not in peer.api(f"STREAM.UPDATE.{name}T", one)
    fill(peer, f"{name}.A", f"{name}.B")
    caught_up(peer, f"{name}T", 3)
    assert [each["subject"] for each in messages(peer, f"{name}T")][2:] == [f"{name}.B"]


@pytest.mark.parametrize(
    "config",
    [
        {"mirror": {"name": ""}},
        {"sources": [{"name": "a b"}]},
        {"mirror": {"name": "O", "filter_subject": "a", "subject_transforms": [{"src": "a", "dest": "b"}]}},
        {"mirror": {"name": "O", "filter_subject": "a..b"}},
        {"sources": [{"name": "O", "filter_subject": "a..b"}]},
        {"sources": [{"name": "O"}, {"name": "O"}]},
        {"mirror": {"name": "O", "external": {"api": "$JS.API"}}},
        {"mirror": {"name": "O", "external": {"api": "$JS.*.API"}}},
        {"sources": [{"name": "O", "external": {"api": "x", "deliver": "d.>"}}]},
        {"mirror": {"name": "O", "consumer": {"name": "c"}}},
        {"sources": [{"name": "O", "consumer": {"name": "c", "deliver_subject": "d.*"}}]},
        {"mirror": {"name": "O"}, "subjects": ["x"]},
        {"mirror": {"name": "O"}, "first_seq": 3},
        {"mirror": {"name": "{n}S"}},
        {"sources": [{"name": "{n}S"}]},
        {"sources": [{"name": "O"}], "allow_msg_schedules": True},
    ],
)
def test_configurations_that_are_refused(pair: Any, name: str, config: dict[str, Any]) -> None:
    answers = []
    for server in pair:
        with Peer(server) as peer:
            body = json.loads(json.dumps({"name": f"{name}S", "storage": "memory"} | config).replace("{n}", name))
            answers.append(peer.api(f"STREAM.CREATE.{name}S", body).get("error"))
    assert answers[0] is not None and answers[0] == answers[1]


def test_restarts_neither_lose_nor_repeat(start: Start, name: str) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        make(peer, "O", subjects=["o.>"])
        make(peer, "M", mirror={"name": "O"})
        make(peer, "T", sources=[{"name": "O"}])
        fill(peer, *["o.a"] * 20)
        caught_up(peer, "M", 20)
        caught_up(peer, "T", 20)
        assert peer.api("STREAM.PURGE.T")["purged"] == 20
    for end in (server.stop, server.kill):
        end()
        server.start()
        with Peer(server) as peer:
            before = state(peer, "O")["last_seq"]
            fill(peer, *["o.b"] * 5)
            caught_up(peer, "M", before + 5)
            caught_up(peer, "T", before + 5)
            assert messages(peer, "M") == messages(peer, "O")
            assert state(peer, "T")["messages"] == before + 5 - 20


def test_an_origin_that_is_made_anew(start: Start, kind: str) -> None:
    """A source begins anew. A mirror of JetLake stops and says so; nats-server mixes the two histories."""
    server: Server = start("", "-js")
    with Peer(server) as peer:
        make(peer, "O", subjects=["o.>"])
        make(peer, "T", sources=[{"name": "O"}])
        make(peer, "M", mirror={"name": "O"})
        fill(peer, "o.a", "o.b")
        caught_up(peer, "T", 2)
        caught_up(peer, "M", 2)
        assert peer.api("STREAM.DELETE.O")["success"]
        make(peer, "O", subjects=["o.>"])
        fill(peer, "o.c", "o.d", "o.e")
        wait_until(lambda: state(peer, "T")["last_seq"] == 5, "the source to begin anew", 40)
        if kind == JETLAKE:
            wait_until(lambda: "error" in peer.api("STREAM.INFO.M")["mirror"], "the mirror to say so", 40)
            assert "made anew" in peer.api("STREAM.INFO.M")["mirror"]["error"]["description"]
            assert state(peer, "M")["last_seq"] == 2
