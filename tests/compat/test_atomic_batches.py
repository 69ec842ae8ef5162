"""Atomic batches: what is stored, what is refused, and what is told about it. Both servers answer alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compat.conftest import Pair, Start
from tests.compat.peer import Peer, header_block, publication
from tests.compat.script import Script, assert_same, run
from tests.compat.servers import wait_until

Member = tuple[str, bytes, dict[str, Any]]


def headers_of(seq: object, commit: str | None = None, batch: str = "b", **more: object) -> bytes:
    fields = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": seq, **more}
    if commit is not None:
        fields["Nats-Batch-Commit"] = commit
    return header_block(**fields)


def send(script: Script, members: list[Member], commit: str | None = "1", batch: str = "b") -> Any:
    """A whole batch: all members but the last at once and without replies."""
    data = b""
    for number, (subject, payload, more) in enumerate(members[:-1], 1):
        data += publication(script._own(subject), payload, headers_of(number, None, batch, **more))
    script.peer.send(data)
    subject, payload, more = members[-1]
    return script.publish(subject, payload, headers_of(len(members), commit, batch, **more))


def show(script: Script, *seqs: int) -> None:
    info = script.api("STREAM.INFO.S")
    last = info["state"]["last_seq"]
    for seq in seqs or range(1, last + 1):
        script.api("STREAM.MSG.GET.S", {"seq": seq})


def plain(count: int) -> list[Member]:
    return [(f"S.{number % 3}", b"member %d" % number, {}) for number in range(count)]


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_a_batch_is_stored_with_its_headers(pair: Pair, name: str, storage: str, count: int) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True, storage=storage)
        script.publish("S.before")
        send(script, plain(count))
        send(script, plain(2), batch="c")
        show(script, 1, 2, count + 1, count + 3)

    assert_same(pair, name, act)


def test_an_end_of_batch_marks_the_last_member(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True)
        send(script, [*plain(3), ("S.end", b"not stored", {})], "eob")
        show(script)
        script.publish("S.end", b"", headers_of(1, "eob"))
        send(script, [("S.a", b"", {"A": "b"}), ("S.other.subject", b"", {"Nats-Msg-Id": "1"})], "eob")
        show(script)

    assert_same(pair, name, act)


def test_every_member_with_a_reply_is_answered(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True)
        for seq in range(1, 6):
            script.publish("S.a", b"x", headers_of(seq))
        script.publish("S.a", b"x", headers_of(6, "1"))
        script.create(name="S", allow_atomic=True)

    assert_same(pair, name, act)


def test_other_publishes_come_before_the_batch_and_another_connection_may_go_on_with_it(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True)
        script.publish("S.a", b"one", headers_of(1))
        script.publish("S.b", b"between")
        with Peer(script.server) as other:
            answer = other.request(script._own("S.c"), b"two", headers_of(2))
            script.note("by another", [answer.headers, answer.payload])
        script.publish("S.d", b"three", headers_of(3, "1"))
        show(script)

    assert_same(pair, name, act)


def test_a_sequence_alone_or_an_empty_id_is_a_plain_publish(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True)
        script.publish("S.a", b"", header_block(**{"Nats-Batch-Sequence": 3}))
        script.publish("S.a", b"", header_block(**{"Nats-Batch-Id": "", "Nats-Batch-Sequence": 1}))
        script.publish("S.a", b"", header_block(**{"nats-batch-id": "b", "Nats-Batch-Sequence": 1}))

    assert_same(pair, name, act)


WRONG = {
    "no sequence": [header_block(**{"Nats-Batch-Id": "b"})],
    "no number": [headers_of("x"), headers_of(-1), headers_of("+1"), headers_of(""), headers_of(2**64)],
    "zero": [headers_of(0)],
    "not the first": [
        headers_of(2),
        headers_of(1000),
        headers_of(1001),
        headers_of(1001, "eob"),
        headers_of(1002, "eob"),
    ],
    "long id": [headers_of(1, None, "x" * 64), headers_of(1, None, "x" * 65)],
    "commit": [headers_of(1), headers_of(2, "2"), headers_of(2, "1"), headers_of(1, ""), headers_of(1, "EOB")],
    "gap": [headers_of(1), headers_of(3), headers_of(2)],
    "repeated": [headers_of(1), headers_of(1), headers_of(2)],
    "level": [
        headers_of(1, **{"Nats-Required-Api-Level": 6}),
        headers_of(1),
        headers_of(2, Nats_Required_Api_Level="x"),
    ],
    "level met": [headers_of(1, **{"Nats-Required-Api-Level": 5}), headers_of(2, "1", Nats_Required_Api_Level=1)],
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_sequence_or_commit_ends_the_batch(pair: Pair, name: str, case: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True)
        script.peer.subscribe(script._own("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S"), "adv")
        for headers in WRONG[case]:
            reply = f"_INBOX.w.{name}"
            script.peer.send(f"SUB {reply} w\r\n".encode() + publication(script._own("S.a"), b"", headers, reply))
            found = [script.peer.message()]
            while found[-1].sid != "w":
                found.append(script.peer.message())
            script.peer.send(b"UNSUB w\r\n")
            for msg in sorted(found):
                script.note(f"{headers!r}", anonymous_event(msg.payload))
        rest = [frame.partition(b"\r\n")[2] for frame in script.peer.ask()]
        script.note("rest", [anonymous_event(payload.strip()) for payload in rest])
        script.api("STREAM.INFO.S")

    def sorted_notes(notes: list[tuple[str, Any]]) -> list[Any]:
        return sorted(map(repr, (note for note in notes if not note[0].startswith("rest"))))

    real, ours = run(pair.real, name, act), run(pair.ours, name, act)
    advisories = [[note[1] for note in notes if "advisory" in repr(note[1])] for notes in (real, ours)]
    assert str(advisories[0]).count("batch_abandoned") == str(advisories[1]).count("batch_abandoned")
    for notes in (real, ours):  # an advisory may come after the answer
        notes[:] = [note for note in notes if "advisory" not in repr(note[1])]
    assert sorted_notes(real) == sorted_notes(ours)


def anonymous_event(payload: bytes) -> Any:
    event = json.loads(payload) if payload.startswith(b"{") else payload
    if isinstance(event, dict) and "timestamp" in event:
        event.update(id="", timestamp="")
    return event


@pytest.mark.parametrize(("count", "commit"), [(1000, "1"), (1001, "eob"), (1001, "1"), (1002, "eob")])
def test_a_batch_of_more_than_a_thousand_is_too_large(pair: Pair, name: str, count: int, commit: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True)
        send(script, plain(count), commit)
        script.api("STREAM.INFO.S")
        script.publish("S.a", b"", headers_of(count + 1, "1"))

    assert_same(pair, name, act)


def test_fifty_batches_may_be_open(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True)
        for number in range(51):
            script.publish("S.a", b"", headers_of(1, None, f"b{number}"))
        script.publish("S.a", b"", headers_of(2, "1", "b0"))
        script.publish("S.a", b"", headers_of(1, None, "b51"))

    assert_same(pair, name, act)


COMMITS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "expected last sequence": ({}, [{"Nats-Expected-Last-Sequence": 2}, {}]),
    "wrong last sequence": ({}, [{"Nats-Expected-Last-Sequence": 1}, {}]),
    "last sequence later": ({}, [{}, {"Nats-Expected-Last-Sequence": 3}]),
    "wrong last sequence later": ({}, [{}, {"Nats-Expected-Last-Sequence": 2}]),
    "subject sequence": ({}, [{"Nats-Expected-Last-Subject-Sequence": 1}, {}]),
    "wrong subject sequence": ({}, [{"Nats-Expected-Last-Subject-Sequence": 7}, {}]),
    "subject sequence later": ({}, [{}, {"Nats-Expected-Last-Subject-Sequence": 2}]),
    "subject written": ({}, [{}, {"Nats-Expected-Last-Subject-Sequence": 1, "to": "S.0"}]),
    "subject of another": (
        {},
        [{"Nats-Expected-Last-Subject-Sequence": 2, "Nats-Expected-Last-Subject-Sequence-Subject": "S.1"}, {}],
    ),
    "subject of another later": (
        {},
        [{}, {"Nats-Expected-Last-Subject-Sequence": 3, "Nats-Expected-Last-Subject-Sequence-Subject": "S.0"}],
    ),
    "unwritten twice": (
        {},
        [{"Nats-Expected-Last-Subject-Sequence": 0, "Nats-Expected-Last-Subject-Sequence-Subject": "S.x"}] * 2,
    ),
    "subject alone": ({}, [{}, {"Nats-Expected-Last-Subject-Sequence-Subject": "S.1"}]),
    "last msg id": ({}, [{"Nats-Expected-Last-Msg-Id": "known"}, {}]),
    "expected stream": ({}, [{"Nats-Expected-Stream": "OTHER"}, {}]),
    "ids": ({}, [{"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "2"}]),
    "same id": ({}, [{"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "1"}]),
    "known id": ({}, [{"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "known"}]),
    "source": ({}, [{}, {"Nats-Stream-Source": "x"}]),
    "ttl": ({"allow_msg_ttl": True}, [{"Nats-TTL": "1h"}, {"Nats-TTL": "never"}, {}]),
    "bad ttl": ({"allow_msg_ttl": True}, [{}, {"Nats-TTL": "x"}]),
    "no ttl": ({}, [{"Nats-TTL": "1h"}, {}]),
    "bad ttl where none is": ({}, [{"Nats-TTL": "x"}, {}]),
    "roll-up": ({"allow_rollup_hdrs": True}, [{"Nats-Rollup": "sub"}, {"Nats-Rollup": "sub"}, {}]),
    "roll-up all": ({"allow_rollup_hdrs": True}, [{"Nats-Rollup": "all"}, {}]),
    "roll-up all later": ({"allow_rollup_hdrs": True}, [{}, {"Nats-Rollup": "all"}]),
    "roll-up of written": ({"allow_rollup_hdrs": True}, [{}, {"Nats-Rollup": "sub", "to": "S.0"}]),
    "no roll-up": ({}, [{}, {"Nats-Rollup": "sub"}]),
    "bad roll-up": ({"allow_rollup_hdrs": True}, [{"Nats-Rollup": "zz"}, {}]),
    "increment": ({}, [{"Nats-Incr": 1}, {}]),
    "discard new": ({"discard": "new", "max_msgs": 4}, [{}, {}]),
    "discard new full": ({"discard": "new", "max_msgs": 4}, [{}, {}, {}]),
    "discard new bytes": ({"discard": "new", "max_bytes": 300}, [{}, {}]),
    "discard new per subject": (
        {"discard": "new", "max_msgs_per_subject": 2, "discard_new_per_subject": True},
        [{}, {}, {}, {}],
    ),
    "discard old": ({"max_msgs": 3}, [{}, {}, {}]),
    "discard old less": ({"max_msgs": 2}, [{}, {}, {}]),
    "per subject": ({"max_msgs_per_subject": 1}, [{}, {}, {}, {}, {}]),
    "transform": ({"subject_transform": {"src": "S.*", "dest": "S.x.{{wildcard(1)}}"}}, [{}, {}]),
    "interest": ({"retention": "interest"}, [{}, {}]),
    "work queue": ({"retention": "workqueue"}, [{}, {}]),
    "no ack": ({"no_ack": True}, [{}, {}]),
    "size": ({"max_msg_size": 10}, [{}, {}]),
    "compressed": ({"compression": "s2"}, [{}, {}]),
}


@pytest.mark.parametrize("case", COMMITS)
def test_a_commit_is_checked_by_all_the_rules(pair: Pair, name: str, case: str) -> None:
    config, extras = COMMITS[case]

    def act(script: Script) -> None:
        script.create(allow_atomic=True, **config)
        script.peer.publish(script._own("S.0"), b"before", header_block(**{"Nats-Msg-Id": "known"}))
        script.peer.publish(script._own("S.1"), b"before")
        members = []
        for number, extra in enumerate(extras):
            fields = {key: script._own(value) if isinstance(value, str) else value for key, value in extra.items()}
            members.append((fields.pop("to", f"S.{number % 3}"), b"member", fields))
        if case == "no ack":
            for number, (subject, payload, _) in enumerate(members, 1):
                commit = "1" if number == len(members) else None
                script.peer.publish(script._own(subject), payload, headers_of(number, commit))
            script.peer.ask()
            wait_until(lambda: script.peer.api(f"STREAM.INFO.{name}")["state"]["last_seq"] == 4, "the batch")
        else:
            send(script, members)
        show(script)
        if case == "known id":
            send(script, [("S.0", b"", {"Nats-Msg-Id": "1"})], batch="again")

    assert_same(pair, name, act)


def test_counters_in_a_batch_see_the_running_total(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True, allow_msg_counter=True)
        script.publish("S.0", b"", header_block(**{"Nats-Incr": 5}))
        send(script, [(f"S.{number % 2}", b"", {"Nats-Incr": number}) for number in range(5)])
        send(script, [("S.0", b"", {"Nats-Incr": 1}), ("S.0", b"", {})])
        send(script, [("S.0", b"", {"Nats-Incr": 1}), ("S.0", b"x", {"Nats-Incr": 1})])
        send(script, [("S.0", b"", {"Nats-Incr": 1}), ("S.0", b"", {"Nats-Incr": "x"})])
        show(script)

    assert_same(pair, name, act)


def test_republished_members_carry_the_last_sequence_of_their_subject(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True, republish={"src": "S.>", "dest": "R.S.>"})
        script.peer.subscribe(script._own("R.S.>"), "rep")
        script.peer.send(
            b"".join(publication(script._own(f"S.{number % 2}"), b"x", headers_of(number + 1)) for number in range(3))
        )
        script.peer.publish(script._own("S.0"), b"x", headers_of(4, "1"))
        for _ in range(4):
            msg = script.peer.message()
            lines = [line for line in msg.headers.split(b"\r\n") if not line.startswith(b"Nats-Time-Stamp")]
            script.note("republished", [msg.subject, lines])

    assert_same(pair, name, act)


def test_an_update_that_disables_batches_drops_those_that_are_open(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_atomic=True)
        script.publish("S.a", b"", headers_of(1))
        script.update(allow_atomic=False)
        script.publish("S.a", b"", headers_of(2, "1"))
        script.update(allow_atomic=True)
        script.publish("S.a", b"", headers_of(2, "1"))
        script.publish("S.a", b"", headers_of(1))
        script.update(allow_atomic=True, max_msgs=5)
        script.publish("S.a", b"", headers_of(2, "1"))

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "config",
    [
        {"allow_atomic": True},
        {"allow_batched": True},
        {"allow_atomic": True, "allow_batched": True, "allow_msg_ttl": True},
        {"allow_atomic": True, "persist_mode": "async"},
        {"allow_batched": True, "persist_mode": "async"},
        {"allow_atomic": True, "num_replicas": 1, "storage": "memory"},
        {"persist_mode": "async", "storage": "memory"},
        {"persist_mode": "default"},
    ],
    ids=str,
)
def test_configurations_and_levels(pair: Pair, name: str, config: dict[str, Any]) -> None:
    def act(script: Script) -> None:
        script.create(**config)
        script.api("STREAM.INFO.S")
        script.update(**{**config, "allow_atomic": True})
        script.update(**{**config, "persist_mode": "async"})

    assert_same(pair, name, act)


def test_a_batch_that_is_not_enabled_is_refused(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(max_msg_size=300)
        script.publish("S.a", b"", headers_of(1))
        script.publish("S.a", b"", headers_of("x", None, "y" * 70))
        script.publish("S.a", b"x" * 400, headers_of(1))
        script.update(sealed=True, max_msg_size=300)
        script.publish("S.a", b"", headers_of(1))

    assert_same(pair, name, act)


LIMITS = "jetstream { limits { batch { max_inflight_per_stream: 2, max_msgs: 3, timeout: 700ms } } }"


def test_limits_of_the_server_and_the_advisory_of_a_timeout(start: Start) -> None:
    with Peer(start(LIMITS, "-js")) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "allow_atomic": True})
        peer.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>", "adv")
        assert peer.request("S.a", b"", headers_of(1, None, "one")).payload == b""
        assert peer.request("S.a", b"", headers_of(1, None, "two")).payload == b""
        assert peer.request("S.a", b"", headers_of(1, None, "three")).json["error"]["err_code"] == 10210
        events = sorted((peer.message().json for _ in range(2)), key=lambda event: str(event["batch"]))
        assert [(event["batch"], event["reason"], event["stream"]) for event in events] == [
            ("one", "timeout", "S"),
            ("two", "timeout", "S"),
        ]
        assert set(events[0]) == {"type", "id", "timestamp", "stream", "batch", "reason"}
        assert events[0]["type"] == "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
        assert peer.request("S.a", b"", headers_of(2, "1", "one")).json["error"]["err_code"] == 10176
        peer.send(b"UNSUB adv\r\n" + b"".join(publication("S.a", b"", headers_of(seq)) for seq in (1, 2, 3)))
        error = peer.request("S.a", b"", headers_of(4, "1")).json["error"]
        assert (error["err_code"], error["description"]) == (10199, "atomic publish batch is too large: 3")
        assert peer.api("STREAM.INFO.S")["state"]["messages"] == 0


def test_open_batches_do_not_outlive_a_restart(start: Start) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "allow_atomic": True})
        assert peer.request("S.a", b"", headers_of(1)).payload == b""
        assert peer.request("S.a", b"", headers_of(1, "1", "whole")).json["count"] == 1
    server.stop()
    server.start()
    with Peer(server) as peer:
        assert peer.request("S.a", b"", headers_of(2, "1")).json["error"]["err_code"] == 10176
        assert peer.api("STREAM.INFO.S")["state"]["messages"] == 1
