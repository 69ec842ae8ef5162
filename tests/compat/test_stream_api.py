"""The stream API beyond configurations: info, lists, purge, get, delete. Both servers answer alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compat.conftest import Pair
from tests.compat.peer import Peer, header_block
from tests.compat.script import Script, assert_same
from tests.compat.servers import Server


def fill(script: Script, count: int = 9, subjects: int = 3, **config: Any) -> None:
    """A stream with a few messages over a few subjects, some of them with headers."""
    script.create(**config)
    for number in range(count):
        headers = header_block(X=number) if number % 2 else b""
        script.publish(f"S.{number % subjects}", b"payload %d" % number, headers)


def test_info_of_an_empty_stream(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        script.api("STREAM.INFO.S")
        script.api("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True})

    assert_same(pair, name, act)


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_states_of_a_stream(pair: Pair, name: str, storage: str) -> None:
    def act(script: Script) -> None:
        fill(script, storage=storage)
        details = {"deleted_details": True, "subjects_filter": ">"}
        script.api("STREAM.INFO.S", details)
        for seq in (4, 5, 1, 9, 4, 0, 10, 100):
            script.api("STREAM.MSG.DELETE.S", {"seq": seq})
            script.api("STREAM.INFO.S", details)
        script.api("STREAM.PURGE.S")
        script.api("STREAM.INFO.S", details)
        script.publish("S.a", b"after")
        script.api("STREAM.INFO.S", details)

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "request_",
    [
        {"subjects_filter": ">"},
        {"subjects_filter": "S.1"},
        {"subjects_filter": "S.*"},
        {"subjects_filter": "nothing"},
        {"subjects_filter": "bad..subject"},
        {"subjects_filter": ">", "offset": 1},
        {"subjects_filter": ">", "offset": 99},
        {"offset": 1},
        {"offset": -1, "subjects_filter": ">"},
        {"deleted_details": True},
        {"unknown": 1},
        {"deleted_details": 1},
        b"{",
        b"text",
        b"[]",
        b"",
        b"{}",
    ],
    ids=repr,
)
def test_info_requests(pair: Pair, name: str, request_: Any) -> None:
    def act(script: Script) -> None:
        fill(script)
        script.api("STREAM.MSG.DELETE.S", {"seq": 3})
        script.api("STREAM.INFO.S", request_)

    assert_same(pair, name, act)


GETS: list[Any] = [
    {"seq": 1}, {"seq": 2}, {"seq": 4}, {"seq": 9}, {"seq": 0}, {"seq": 10}, {"seq": -1}, {"seq": "1"},
    {"seq": 2, "no_hdr": True},
    {"last_by_subj": "S.1"}, {"last_by_subj": "S.*"}, {"last_by_subj": ">"}, {"last_by_subj": "S.nothing"},
    {"last_by_subj": "bad..subject"}, {"last_by_subj": ""},
    {"next_by_subj": "S.1"}, {"next_by_subj": "S.1", "seq": 3}, {"next_by_subj": "S.1", "seq": 9},
    {"next_by_subj": "S.*", "seq": 4}, {"next_by_subj": ">", "seq": 1}, {"next_by_subj": "S.nothing"},
    {"next_by_subj": "S.1", "start_time": "2020-01-01T00:00:00Z"},
    {"next_by_subj": "S.1", "start_time": "2120-01-01T00:00:00Z"},
    {"next_by_subj": "S.1", "seq": 2, "start_time": "2020-01-01T00:00:00Z"},
    {"start_time": "2020-01-01T00:00:00Z"}, {"start_time": "2120-01-01T00:00:00Z"}, {"start_time": "yesterday"},
    {"seq": 1, "last_by_subj": "S.1"}, {"seq": 1, "start_time": "2020-01-01T00:00:00Z"},
    {"start_time": "2020-01-01T00:00:00Z", "last_by_subj": "S.1"}, {"last_by_subj": "S.1", "next_by_subj": "S.1"},
    {"batch": 2, "seq": 1}, {"max_bytes": 10, "seq": 1}, {"multi_last": ["S.1"]}, {"up_to_seq": 3, "seq": 1},
    {"no_hdr": True}, {"unknown": 1}, {}, None, b"{", b"[]", b"null", b"text",
]  # fmt: skip


@pytest.mark.parametrize("request_", GETS, ids=repr)
def test_message_get(pair: Pair, name: str, request_: Any) -> None:
    def act(script: Script) -> None:
        fill(script)
        script.api("STREAM.MSG.DELETE.S", {"seq": 4})
        script.api("STREAM.MSG.GET.S", request_)

    assert_same(pair, name, act)


def test_message_get_keeps_every_byte(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        script.publish("S.empty")
        script.publish("S.empty", b"", header_block(A="b"))
        script.publish("S.status", b"x", b"NATS/1.0 503 Not Here\r\nA: b\r\n\r\n")
        script.publish("S.odd", b"\x00\xff", b"NATS/1.0\r\nb:  2\r\nB: 1\r\nb: 3\r\nNo colon\r\n\r\n")
        for seq in range(1, 5):
            script.api("STREAM.MSG.GET.S", {"seq": seq})

    assert_same(pair, name, act)


DELETES: list[Any] = [
    {"seq": 2}, {"seq": 2, "no_erase": True}, {"seq": 0}, {"seq": 99}, {"seq": -1}, {"seq": 2, "x": 1},
    {}, None, b"{", b"2",
]  # fmt: skip


@pytest.mark.parametrize("request_", DELETES, ids=repr)
def test_message_delete(pair: Pair, name: str, request_: Any) -> None:
    def act(script: Script) -> None:
        fill(script)
        script.api("STREAM.MSG.DELETE.S", request_)
        script.api("STREAM.INFO.S", {"deleted_details": True})

    assert_same(pair, name, act)


def test_deletes_that_are_denied(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        fill(script, deny_delete=True, deny_purge=True)
        script.api("STREAM.MSG.DELETE.S", {"seq": 1})
        script.api("STREAM.PURGE.S")

    assert_same(pair, name, act)


PURGES: list[Any] = [
    None, {}, {"filter": "S.1"}, {"filter": "S.*"}, {"filter": ">"}, {"filter": "S.nothing"}, {"filter": "bad..one"},
    {"seq": 1}, {"seq": 4}, {"seq": 9}, {"seq": 10}, {"seq": 100}, {"seq": 0},
    {"keep": 0}, {"keep": 1}, {"keep": 3}, {"keep": 100},
    {"filter": "S.1", "seq": 5}, {"filter": "S.1", "seq": 100}, {"filter": "S.1", "keep": 1},
    {"filter": "S.1", "keep": 9}, {"filter": "S.*", "keep": 2}, {"seq": 4, "keep": 2},
    {"seq": -1}, {"keep": "1"}, {"unknown": 1}, b"{", b"[]", b"text",
]  # fmt: skip


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("request_", PURGES, ids=repr)
def test_purge(pair: Pair, name: str, request_: Any, storage: str) -> None:
    def act(script: Script) -> None:
        fill(script, storage=storage)
        script.api("STREAM.PURGE.S", request_)
        script.api("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"})
        script.publish("S.after", b"x")
        script.api("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"})

    assert_same(pair, name, act)


def test_first_seq_and_purges_move_the_sequences(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(first_seq=10)
        script.api("STREAM.PURGE.S", {"seq": 20})
        script.api("STREAM.INFO.S")
        script.publish("S.a", b"x")
        script.api("STREAM.PURGE.S", {"seq": 5})
        script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


MISSING = [
    ("STREAM.INFO.S", None), ("STREAM.UPDATE.S", {"name": "S"}), ("STREAM.DELETE.S", None), ("STREAM.PURGE.S", None),
    ("STREAM.MSG.GET.S", {"seq": 1}), ("STREAM.MSG.DELETE.S", {"seq": 1}),
    ("STREAM.SNAPSHOT.S", {"deliver_subject": "x"}),
    ("STREAM.PEER.REMOVE.S", {"peer": "x"}), ("STREAM.LEADER.STEPDOWN.S", None), ("CONSUMER.LEADER.STEPDOWN.S.c", None),
    ("STREAM.DELETE.S", b"x"), ("STREAM.DELETE.S", b"{}"), ("STREAM.DELETE.S", b" { } "),
]  # fmt: skip


@pytest.mark.parametrize(("subject", "body"), MISSING)
def test_requests_about_a_stream_that_is_not_there(pair: Pair, name: str, subject: str, body: Any) -> None:
    assert_same(pair, name, lambda script: script.api(subject, body))


def test_delete_wants_an_empty_request(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        for body in (b"x", b'{"a":1}', b"[]", b"null", b"{}"):
            script.create()
            script.api("STREAM.DELETE.S", body)

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "subject",
    ["STREAM.PEER.REMOVE.S", "STREAM.PEER.EVACUATE.S", "STREAM.LEADER.STEPDOWN.S", "STREAM.CANCEL_MOVE.S"],
)
def test_calls_of_a_cluster_are_answered_as_a_single_server_does(pair: Pair, name: str, subject: str) -> None:
    def act(script: Script) -> None:
        script.create()
        script.api(subject, {"peer": "x"})
        script.api(subject)

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "subject",
    ["NOTHING", "STREAM", "STREAM.NOTHING", "STREAM.INFO", "STREAM.INFO.S.x", "META.LEADER.STEPDOWN", "SERVER.REMOVE",
     "ACCOUNT.PURGE.A", "STREAM.CREATE", "STREAM.NAMES.S", "stream.names", "CONSUMER.CREATE"],
)  # fmt: skip
def test_unknown_requests_are_met_with_silence(server: Server, peer: Peer, subject: str) -> None:
    peer.subscribe("_INBOX.silence.*", "9")
    peer.publish(f"$JS.API.{subject}", b"{}", reply="_INBOX.silence.1")
    answers = peer.ask() + peer.ask()
    peer.request("$JS.API.INFO")  # by then an answer would have come
    assert [frame for frame in answers + peer.ask() if b" _INBOX.silence.1 " in frame] == []


API_LEVELS = ["0", "1", "5", "6", "99", "x", "-1", "", "1.0", "18446744073709551616"]


@pytest.mark.parametrize("level", API_LEVELS)
def test_required_api_level(pair: Pair, name: str, level: str) -> None:
    def act(script: Script) -> None:
        headers = header_block(Nats_Required_Api_Level=level)
        script.api("STREAM.NAMES", {"subject": "S.>"}, headers)
        script.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"]}, headers)
        script.api("STREAM.INFO.S", None, headers)
        script.publish("S.a", b"", headers)

    assert_same(pair, name, act)


@pytest.mark.parametrize("endpoint", ["NAMES", "LIST"])
@pytest.mark.parametrize(
    "request_",
    [{"subject": "S.>"}, {"subject": "S.1.a"}, {"subject": "S.*.b"}, {"subject": "S.nothing"}, {"subject": "S..x"},
     {"subject": "S.>", "offset": 2}, {"subject": "S.>", "offset": 99}, {"subject": "S.>", "offset": -1},
     {"subject": "S.>", "unknown": 1}, {"subject": 1}, b"{", b"[]"],
    ids=repr,
)  # fmt: skip
def test_names_and_lists(pair: Pair, name: str, endpoint: str, request_: Any) -> None:
    def act(script: Script) -> None:
        others = [f"{name}-{number}" for number in (2, 0, 1)]
        for number, other in enumerate(others):
            script.api(f"STREAM.CREATE.{other}", {"name": other, "subjects": [f"S.{number}.>"]})
        script.api(f"STREAM.{endpoint}", request_)
        for other in others:
            script.api(f"STREAM.DELETE.{other}")

    assert_same(pair, name, act)


def test_a_long_list_comes_in_pages(server: Server, peer: Peer, name: str) -> None:
    names = [f"{name}-{number:03d}" for number in range(260)]
    for stream in names:
        peer.publish(
            f"$JS.API.STREAM.CREATE.{stream}",
            json.dumps({"name": stream, "subjects": [f"{name}.{stream}"], "storage": "memory"}).encode(),
        )
    for _ in range(100):
        first = peer.api("STREAM.LIST", {"subject": f"{name}.>"})
        if first["total"] == 260:
            break
    second = peer.api("STREAM.LIST", {"subject": f"{name}.>", "offset": 256})
    assert (first["total"], first["offset"], first["limit"]) == (260, 0, 256)
    assert [stream["config"]["name"] for stream in first["streams"] + second["streams"]] == names
    assert peer.api("STREAM.NAMES", {"subject": f"{name}.>"})["streams"] == names
    for stream in names:
        peer.publish(f"$JS.API.STREAM.DELETE.{stream}")
    peer.api("INFO")


def test_answers_name_their_type_first(server: Server, peer: Peer, name: str) -> None:
    created = peer.request(f"$JS.API.STREAM.CREATE.{name}", json.dumps({"name": name}).encode()).payload
    assert created.startswith(b'{"type":"io.nats.jetstream.api.v1.stream_create_response","config":{"name":')
    peer.api(f"STREAM.DELETE.{name}")


def test_a_request_without_a_reply_is_still_carried_out(server: Server, peer: Peer, name: str) -> None:
    peer.publish(f"$JS.API.STREAM.CREATE.{name}", json.dumps({"name": name}).encode())
    for _ in range(100):
        answer = peer.api(f"STREAM.INFO.{name}")
        if "error" not in answer:
            break
    assert answer["config"]["name"] == name
    peer.api(f"STREAM.DELETE.{name}")


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_sizes_are_counted_alike(pair: Pair, name: str, storage: str) -> None:
    def act(script: Script) -> None:
        script.create(storage=storage)
        for size in (0, 1, 100, 5000):
            script.publish("S.a", b"x" * size)
            script.publish("S.some.longer.subject", b"x" * size, header_block(A="b" * size))
            script.api("STREAM.INFO.S")

    assert_same(pair, name, act)


RESTORES: list[Any] = [
    None,
    b"{",
    b"[]",
    b"x",
    b"{}",
    {"config": {}, "state": {}},
    {"config": {"name": "S", "subjects": ["S.>"]}, "state": {"messages": 1, "first_ts": "2026-11-17T21:57:46Z"}},
    {"config": {"name": "S"}, "state": {"subjects": {"S.a": 1}, "deleted": [1, 2], "lost": {"msgs": None, "bytes": 1}}},
    {"config": {"name": "S"}, "state": {"subjects": {"S.a": "x"}}},
    {"config": {"name": "S"}, "state": {"first_ts": "yesterday"}},
    {"config": {"name": "M"}, "state": {}},
    {"config": {"name": "S", "retention": "x"}, "state": {}},
    {"config": {"name": "S", "max_age": 5}, "state": {}},
    {"config": {"name": "S", "subjects": ["S..x"]}, "state": {}},
    {"config": {"name": "S"}, "bogus": 1},
]


@pytest.mark.parametrize("body", RESTORES)
def test_a_stream_that_exists_is_not_restored(pair: Pair, name: str, body: Any) -> None:
    def act(script: Script) -> None:
        script.create()
        script.api("STREAM.RESTORE.S", body)

    assert_same(pair, name, act)


@pytest.mark.parametrize("body", [body for body in RESTORES if body is None or body in (b"{", b"[]", b"x")])
def test_a_restore_that_is_none(pair: Pair, name: str, body: Any) -> None:
    assert_same(pair, name, lambda script: script.api("STREAM.RESTORE.S", body))
