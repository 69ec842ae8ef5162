"""What a stream makes of a publish: acks, headers with a meaning, limits, dedupe. Both servers answer alike."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.compat.conftest import Pair
from tests.compat.peer import Peer, header_block, parse_msg, publication
from tests.compat.script import Script, assert_same
from tests.compat.servers import Server

SECOND = 1_000_000_000
Publication = tuple[str, bytes, dict[str, Any]]


def play(script: Script, config: dict[str, Any], publications: Sequence[Publication]) -> None:
    script.create(**config)
    for subject, payload, fields in publications:
        script.publish(subject, payload, header_block(**fields) if fields else b"")
    script.api("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True})
    for seq in range(1, 2 + len(publications)):
        script.api("STREAM.MSG.GET.S", {"seq": seq})


A: Publication = ("S.a", b"x", {})
B: Publication = ("S.b", b"y", {})


def on(subject: str, **fields: Any) -> Publication:
    return (subject, b"z", fields)


CASES: dict[str, tuple[dict[str, Any], list[Publication]]] = {
    "plain": ({}, [A, B, A]),
    "msg id": ({}, [on("S.a", Nats_Msg_Id=1), on("S.b", Nats_Msg_Id=1), on("S.a", Nats_Msg_Id=2)]),
    "msg id empty": ({}, [on("S.a", Nats_Msg_Id=""), on("S.a", Nats_Msg_Id="")]),
    "msg id in lower case is user data": ({}, [("S.a", b"", {"nats-msg-id": 1}), ("S.a", b"", {"nats-msg-id": 1})]),
    "msg id twice in a block": ({}, [("S.a", b"", {"Nats-Msg-Id": 1, "Nats_Msg_Id": 2}), on("S.a", Nats_Msg_Id=2)]),
    "msg id with spaces": ({}, [on("S.a", Nats_Msg_Id="  a b "), on("S.a", Nats_Msg_Id="a b")]),
    "msg id without a window": (
        {"duplicate_window": 0, "storage": "memory"}, [on("S.a", Nats_Msg_Id=1), on("S.b", Nats_Msg_Id=1)],
    ),
    "expected stream": ({}, [on("S.a", Nats_Expected_Stream="S"), on("S.a", Nats_Expected_Stream="other")]),
    "expected last sequence": (
        {},
        [on("S.a", Nats_Expected_Last_Sequence=n) for n in (0, 1, 1, 3, "x", "", -1, "2", 18446744073709551616)],
    ),
    "expected last subject sequence": (
        {},
        [A, B, *(on("S.a", Nats_Expected_Last_Subject_Sequence=n) for n in (0, 1, 1, 3, 2, "x", ""))],
    ),
    "expected subject sequence of nothing": ({}, [on("S.a", Nats_Expected_Last_Subject_Sequence=n) for n in (1, 0, 0)]),
    "expected subject sequence of another": (
        {},
        [A, B, *(
            on("S.c", Nats_Expected_Last_Subject_Sequence=n, Nats_Expected_Last_Subject_Sequence_Subject=s)
            for n, s in ((1, "S.a"), (1, "S.b"), (3, "S.*"), (3, "S.*"), (0, "S.none"), (0, "bad..s"), (0, ">"))
        )],
    ),
    "expected subject without sequence": ({}, [A, on("S.a", Nats_Expected_Last_Subject_Sequence_Subject="S.a")]),
    "expected last msg id": (
        {},
        [on("S.a", Nats_Expected_Last_Msg_Id="x"), on("S.a", Nats_Msg_Id="m1"),
        on("S.a", Nats_Expected_Last_Msg_Id="m1"),
         on("S.a", Nats_Expected_Last_Msg_Id="m1")],
    ),
    "expected before dedupe": (
        {}, [on("S.a", Nats_Msg_Id=1, Nats_Expected_Last_Sequence=0)] * 2 + [on("S.a", Nats_Msg_Id=1)],
    ),
    "dedupe before expected msg id": ({},
    [on("S.a", Nats_Msg_Id=1), on("S.a", Nats_Msg_Id=1, Nats_Expected_Last_Msg_Id="q")]),
    "rollup not allowed": ({}, [A, on("S.a", Nats_Rollup="sub"), on("S.a", Nats_Rollup="all")]),
    "rollup of a subject": ({"allow_rollup_hdrs": True}, [A, B, A, on("S.a", Nats_Rollup="sub"), A]),
    "rollup of all": ({"allow_rollup_hdrs": True}, [A, B, A, on("S.a", Nats_Rollup="all"), A]),
    "rollup in capitals": ({"allow_rollup_hdrs": True},
    [A, B, on("S.a", Nats_Rollup="SUB"), on("S.a", Nats_Rollup="All")]),
    "rollup of nonsense": ({"allow_rollup_hdrs": True}, [A, on("S.a", Nats_Rollup="some"), on("S.a", Nats_Rollup="")]),
    "ttl not allowed": ({}, [on("S.a", Nats_TTL=t) for t in ("60s", "60", "never", "x", "", "0")]),
    "ttl": (
        {"allow_msg_ttl": True},
        [on("S.a", Nats_TTL=t) for t in ("60s", "60", "never", "1h2m", "1s", "1.5s", "0", "-1", "500ms", "x", "", "1d",
        "NEVER", "99999999999")],
    ),
    "ttl with markers": (
        {"subject_delete_marker_ttl": 30 * SECOND}, [on("S.a", Nats_TTL=t) for t in ("10s", "60s", "never")],
    ),
    "ttl with markers, one per subject": (
        {"subject_delete_marker_ttl": 30 * SECOND, "max_msgs_per_subject": 1}, [on("S.a", Nats_TTL="10s")],
    ),
    "source header": ({}, [on("S.a", Nats_Stream_Source="x 1 > > y")]),
    "increment without counters": ({}, [on("S.a", Nats_Incr="+1")]),
    "batch without batches": ({}, [on("S.a", Nats_Batch_Id="x", Nats_Batch_Sequence=1)]),
    "schedule without schedules": ({},
    [on("S.a", Nats_Schedule="@at 2030-01-01T00:00:00Z", Nats_Schedule_Target="S.b")]),
    "max_msgs": ({"max_msgs": 2}, [A, B, A, B]),
    "max_msgs, discard new": ({"max_msgs": 2, "discard": "new"}, [A, B, A, B]),
    "max_bytes": ({"max_bytes": 100}, [A, B, A, B, ("S.a", b"x" * 30, {}), ("S.a", b"x" * 200, {}), A]),
    "max_bytes, discard new": ({"max_bytes": 100, "discard": "new"}, [A, B, A, B, ("S.a", b"x" * 200, {}), A]),
    "max_bytes in memory": ({"max_bytes": 100, "storage": "memory"},
    [A, B, A, B, A, ("S.a", b"x" * 30, {}), ("S.a", b"x" * 200, {}), A]),
    "max_bytes, discard new, in memory": (
        {"max_bytes": 100, "discard": "new", "storage": "memory"}, [A, B, A, B, A, A, ("S.a", b"x" * 200, {}), A],
    ),
    "max_msgs_per_subject": ({"max_msgs_per_subject": 2}, [A, B, A, A, A, B]),
    "max_msgs_per_subject, discard new": ({"max_msgs_per_subject": 1, "discard": "new"}, [A, B, A, B, A]),
    "max_msgs_per_subject and max_msgs, discard new": (
        {"max_msgs_per_subject": 1, "discard": "new", "max_msgs": 2}, [A, B, A, B, ("S.c", b"", {}), A],
    ),
    "discard new per subject": (
        {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True, "allow_rollup_hdrs": True},
        [A, B, A, on("S.a", Nats_Rollup="sub"), A],
    ),
    "max_bytes and rollup, discard new": (
        {"max_bytes": 150, "max_msgs_per_subject": 1, "discard": "new", "allow_rollup_hdrs": True},
        [("S.a", b"x" * 20, {}), ("S.b", b"x" * 40, {}), ("S.a", b"x" * 21, {"Nats-Rollup": "sub"}),
         ("S.a", b"x" * 60, {"Nats-Rollup": "all"}), ("S.b", b"x" * 40, {})],
    ),
    "max_msg_size": ({"max_msg_size": 40},
    [("S.a", b"x" * 40, {}), ("S.a", b"x" * 41, {}), ("S.a", b"x" * 30, {"A": "b"})]),
    "size before all headers": (
        {"max_msg_size": 60},
        [("S.a", b"x", {"Nats-Msg-Id": 1}),
         *(("S.a", b"x" * 61, {name: 1}) for name in (
            "Nats-Msg-Id", "Nats-Expected-Last-Sequence", "Nats-Expected-Stream", "Nats-Rollup", "Nats-TTL",
            "Nats-Incr", "Nats-Batch-Id", "Nats-Expected-Last-Msg-Id"))],
    ),
    "header size before other headers": (
        {}, [on("S.a", Nats_Msg_Id=1), on("S.a", Nats_Msg_Id=1, A="b" * 66000), on("S.a", Nats_Incr=1, A="b" * 66000)],
    ),
    "ttl last": (
        {"allow_rollup_hdrs": True, "max_msgs": 1, "discard": "new"},
        [on("S.a", Nats_Msg_Id=1),
         *(("S.a", b"", {"Nats-TTL": "x", name: 1}) for name in (
            "Nats-Msg-Id", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence-Subject", "Nats-Rollup",
            "Nats-Stream-Source", "Nats-Schedule", "Nats-Expected-Last-Msg-Id", "A"))],
    ),
    "ttl with a sign": (
        {"allow_msg_ttl": True}, [on("S.a", Nats_TTL=t) for t in ("+100s", "+90m", "+1", "+", "++90s", "-90s", "1h+1s")]
    ),
    "increment of nonsense": ({}, [on("S.a", Nats_Incr=n) for n in ("x", "-1", "1.5", "", "1_0")]),
    "schedule headers without schedules": (
        {},
        [*(on("S.a", Nats_Schedule_Time_Zone=z) for z in ("x", "", "UTC", "Europe/Berlin", "../x", "Local")),
         *(on("S.a", Nats_Schedule_Next="purge", Nats_Scheduler=s) for s in ("", "S.a", "S.*", "S.b", "a..b")),
         on("S.a", Nats_Scheduler="S.b"), on("S.a", Nats_Schedule_Next="x"), on("S.a", Nats_Schedule_Target="S.b"),
         on("S.a", Nats_Scheduler="x", Nats_Stream_Source="x")],
    ),
    "headers of 64 KiB": ({},
    [("S.a", b"x", {"A": "b" * 65518}), ("S.a", b"x", {"A": "b" * 65519}), ("S.a", b"x", {"A": "b" * 70000})]),
    "interest without interest": ({"retention": "interest"}, [A, on("S.a", Nats_Msg_Id=1), on("S.a", Nats_Msg_Id=1)]),
    "workqueue": ({"retention": "workqueue"}, [A, B, A]),
    "transform": ({"subject_transform": {"src": "S.*", "dest": "S.t.{{wildcard(1)}}"}}, [A, B, ("S.c.d", b"", {})]),
    "transform and expected": (
        {"subject_transform": {"src": "S.*", "dest": "S.t.$1"}},
        [A, on("S.a", Nats_Expected_Last_Subject_Sequence=1), on("S.a", Nats_Expected_Last_Subject_Sequence=0)],
    ),
    "transform and max_msgs_per_subject": (
        {"subject_transform": {"src": "S.*", "dest": "S.one"}, "max_msgs_per_subject": 1}, [A, B, A],
    ),
    "sealed comes first": ({}, [A]),
    "required api level is ignored": ({}, [on("S.a", Nats_Required_Api_Level=99)]),
    "first_seq": ({"first_seq": 5},
    [A, on("S.a", Nats_Expected_Last_Sequence=4), on("S.a", Nats_Expected_Last_Sequence=5)]),
    "unknown nats headers": ({}, [on("S.a", Nats_Something=1), on("S.a", Nats_Sequence=7, Nats_Stream="x")]),
    "block without end": ({}, [A]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_publish_is_answered_alike(pair: Pair, name: str, case: str) -> None:
    config, publications = CASES[case]
    assert_same(pair, name, lambda script: play(script, config, publications))


@pytest.mark.parametrize(
    "block",
    [b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n", b"Nats-Msg-Id: 1\r\n\r\n", b"x",
    b"NATS/1.0\r\nNats-Msg-Id:1\r\n\r\n",
     b"NATS/1.0\r\nNats-Msg-Id : 1\r\n\r\n", b"NATS/1.0\r\nA: Nats-Msg-Id: 1\r\n\r\n",
     b"NATS/1.0 200 OK\r\nNats-Msg-Id: 1\r\n\r\n",
     b"NATS/1.0\r\nXNats-Msg-Id: 1\r\n\r\n", b"NATS/1.0\nNats-Msg-Id: 1\n\n",
     b"NATS/1.0\r\nNats-Msg-Id: 1\nA: b\r\n\r\n",
     b"NATS/1.0\r\nNats-Msg-Id:\t1\r\n\r\n", b"NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-Msg-Id: 2\r\n\r\n",
     b"NATS/1.0 503\r\n\r\n"],
)  # fmt: skip
def test_odd_header_blocks(pair: Pair, name: str, block: bytes) -> None:
    def act(script: Script) -> None:
        script.create()
        script.publish("S.a", b"x", block)
        script.publish("S.a", b"x", block)
        script.publish("S.a", b"x", header_block(Nats_Msg_Id=1))
        for seq in (1, 2, 3):
            script.api("STREAM.MSG.GET.S", {"seq": seq})

    assert_same(pair, name, act)


def test_a_stream_without_acks_is_silent(server: Server, peer: Peer, name: str) -> None:
    peer.api(
        f"STREAM.CREATE.{name}",
        {"name": name, "subjects": [f"{name}.>"], "no_ack": True, "max_msgs": 1, "discard": "new"},
    )
    peer.subscribe("_INBOX.noack", "9")
    for _ in range(3):
        peer.publish(f"{name}.a", b"x", reply="_INBOX.noack")
    assert peer.ask() == []
    assert peer.api(f"STREAM.INFO.{name}")["state"]["messages"] == 1
    assert peer.ask() == []


def test_a_subscriber_hears_what_a_stream_stores(server: Server, peer: Peer, name: str) -> None:
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
    with Peer(server) as listener:
        listener.subscribe(f"{name}.*")
        answer = peer.request(f"{name}.a", b"x", header_block(A="b"))
        assert answer.json == {"stream": name, "seq": 1}
        heard = listener.message()
    assert (heard.subject, heard.payload, heard.headers) == (f"{name}.a", b"x", header_block(A="b"))
    assert heard.reply.startswith("_INBOX.")


def test_acks_of_a_burst_come_in_order(server: Server, peer: Peer, name: str) -> None:
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
    peer.subscribe("_INBOX.burst.*", "9")
    peer.send(b"".join(b"PUB %s.a _INBOX.burst.%d 1\r\nx\r\n" % (name.encode(), n) for n in range(2000)))
    acks = [peer.message() for _ in range(2000)]
    assert [ack.subject for ack in acks] == [f"_INBOX.burst.{n}" for n in range(2000)]
    assert [ack.json["seq"] for ack in acks] == list(range(1, 2001))
    assert peer.api(f"STREAM.INFO.{name}")["state"]["messages"] == 2000


@pytest.mark.parametrize("headers_only", [False, True])
@pytest.mark.parametrize(("source", "destination"), [("S.*", "R.S.{{wildcard(1)}}"), (">", "R.S.>"), ("", "R.S.>")])
def test_republish(pair: Pair, name: str, source: str, destination: str, headers_only: bool) -> None:
    def act(script: Script) -> None:
        script.create(republish={"src": source, "dest": destination, "headers_only": headers_only})
        with Peer(script.server) as listener:
            listener.subscribe(f"R.{script.name}.>", "9")
            for subject, headers in (("S.a", b""), ("S.b", header_block(A="b")), ("S.a", b""), ("S.c.d", b"")):
                script.publish(subject, b"some bytes", headers)
                script.note(f"heard of {subject}", [tuple(parse_msg(frame)) for frame in listener.ask()])

    assert_same(pair, name, act)


def test_age_and_ttl_remove_messages(server: Server, peer: Peer, name: str) -> None:
    config = {
        "name": name,
        "subjects": [f"{name}.>"],
        "max_age": SECOND,
        "duplicate_window": SECOND,
        "allow_msg_ttl": True,
    }
    peer.api(f"STREAM.CREATE.{name}", config)
    peer.request(f"{name}.a", b"")
    peer.request(f"{name}.b", b"", header_block(Nats_TTL="never"))
    peer.request(f"{name}.c", b"", header_block(Nats_TTL="1s"))
    state = _wait_for(peer, name, lambda state: state["messages"] == 1)
    assert (state["first_seq"], state["last_seq"], state["subjects"]) == (2, 3, {f"{name}.b": 1})


def test_a_marker_takes_the_place_of_the_last_message(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(subject_delete_marker_ttl=5 * SECOND, max_age=SECOND)
        script.publish("S.a", b"x")
        script.publish("S.a", b"y")
        script.note("state", _wait_for(script.peer, script.name, lambda state: state["last_seq"] == 3))
        script.api("STREAM.MSG.GET.S", {"seq": 3})

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "line", ["KV-Operation:PURGE", "KV-Operation:  PURGE", "Nats-Marker-Reason:x", "KV-Operation: DEL"]
)
def test_a_marker_leaves_no_marker(server: Server, peer: Peer, name: str, line: str) -> None:
    """Some clients write headers without a space."""
    config = {"allow_msg_ttl": True, "max_msgs_per_subject": 1, "subject_delete_marker_ttl": 60 * SECOND}
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    peer.request(f"{name}.a", b"", f"NATS/1.0\r\n{line}\r\nNats-TTL:1s\r\n\r\n".encode())
    _wait_for(peer, name, lambda state: state["first_seq"] == 2)
    assert peer.api(f"STREAM.INFO.{name}")["state"]["messages"] == (1 if line.endswith("DEL") else 0)


def test_a_duplicate_is_forgotten_after_its_window(server: Server, peer: Peer, name: str) -> None:
    peer.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], "duplicate_window": 200_000_000})
    for expected in ({"stream": name, "seq": 1}, {"stream": name, "seq": 1, "duplicate": True}):
        assert peer.request(f"{name}.a", b"", header_block(Nats_Msg_Id="i")).json == expected
    time.sleep(0.7)
    assert peer.request(f"{name}.a", b"", header_block(Nats_Msg_Id="i")).json == {"stream": name, "seq": 2}


def together(script: Script, messages: list[tuple[str, bytes]]) -> None:
    """Send messages in one packet, and note their acks in order."""
    script.peer.subscribe("_INBOX.together.*", "together")
    script.peer.send(
        b"".join(
            publication(subject.replace("S.", f"{script.name}."), b"x", headers, f"_INBOX.together.{number}")
            for number, (subject, headers) in enumerate(messages)
        )
    )
    answers = sorted((script.peer.message() for _ in messages), key=lambda msg: int(msg.subject.split(".")[-1]))
    script.note("together", [json.loads(answer.payload) for answer in answers])
    script.peer.send(b"UNSUB together\r\n")


def test_expected_sequences_of_messages_that_arrive_together(pair: Pair, name: str) -> None:
    def expect(seq: int, **more: object) -> bytes:
        return header_block(Nats_Expected_Last_Subject_Sequence=seq, **more)

    def act(script: Script) -> None:
        script.create(max_msgs_per_subject=1)
        together(script, [("S.a", expect(0)), ("S.a", expect(1)), ("S.a", expect(1)), ("S.b", expect(0)), ("S.a", b"")])
        together(script, [("S.a", expect(4, Nats_Msg_Id="i")), ("S.a", expect(4)), ("S.b", expect(5, Nats_Msg_Id="i"))])
        together(script, [("S.c", header_block(Nats_Expected_Last_Sequence=seq)) for seq in (5, 6, 6, 7, 9)])
        script.api("STREAM.MSG.DELETE.S", {"seq": 5})
        together(script, [("S.a", expect(5)), ("S.a", expect(0)), ("S.b", expect(3)), ("S.b", expect(3))])
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


def test_an_id_is_remembered_of_a_message_behind_one_that_was_refused(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        limits = {"discard": "new", "discard_new_per_subject": True, "max_msgs_per_subject": 1}
        script.create(**limits)
        messages = [(subject, header_block(Nats_Msg_Id=number)) for number, subject in enumerate(("S.a", "S.a", "S.b"))]
        together(script, messages)
        together(script, messages)

    assert_same(pair, name, act)


def _wait_for(peer: Peer, stream: str, is_true: Any) -> Any:
    stop = time.monotonic() + 10
    while True:
        state = peer.api(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})["state"]
        if is_true(state):
            return state
        assert time.monotonic() < stop, state
        time.sleep(0.05)
