"""DIRECT.GET in all its forms: both servers answer alike, byte by byte but for times."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.conftest import Pair
from tests.compat.peer import header_block, publication
from tests.compat.script import Script, assert_same

LONG_AGO, FAR_AHEAD = "2020-01-01T00:00:00Z", "2120-01-01T00:00:00Z"


def fill(script: Script, **config: Any) -> None:
    script.create(allow_direct=True, **config)
    for number in range(9):
        script.publish(f"S.{number % 3}", b"payload %d" % number, header_block(X=number) if number % 2 else b"")
    script.api("STREAM.MSG.DELETE.S", {"seq": 4})


ONE: list[Any] = [
    {"seq": 1}, {"seq": 2}, {"seq": 4}, {"seq": 10}, {"seq": 0}, {"seq": -1}, {"seq": "1"}, {"seq": 2, "no_hdr": True},
    {"last_by_subj": "S.1"}, {"last_by_subj": "S.*"}, {"last_by_subj": "S.none"}, {"last_by_subj": "bad..one"},
    {"next_by_subj": "S.1"}, {"next_by_subj": "S.1", "seq": 3}, {"next_by_subj": "S.1", "seq": 99},
    {"next_by_subj": "S.1", "start_time": LONG_AGO}, {"next_by_subj": "S.1", "start_time": FAR_AHEAD},
    {"start_time": LONG_AGO}, {"start_time": FAR_AHEAD}, {"start_time": "x"},
    {"seq": 1, "last_by_subj": "S.1"}, {"seq": 1, "start_time": LONG_AGO},
    {"last_by_subj": "S.1", "start_time": LONG_AGO},
    {"last_by_subj": "S.1", "next_by_subj": "S.1"}, {"last_by_subj": "S.1", "batch": 2},
    {"last_by_subj": "S.1", "multi_last": ["S.1"]}, {"next_by_subj": "S.1", "multi_last": ["S.1"]},
    {"multi_last": ["S.1"], "up_to_seq": 3, "up_to_time": FAR_AHEAD}, {"multi_last": ["S.none"]},
    {"multi_last": ["S.*"], "up_to_time": LONG_AGO}, {"multi_last": []}, {"up_to_seq": 3}, {"batch": 3},
    {"batch": -1, "seq": 1}, {"max_bytes": 10, "seq": 1}, {"seq": 1, "batch": 0, "max_bytes": 40}, {"no_hdr": True},
    {"unknown": 1}, {}, None, b"{", b"[]", b"null",
]  # fmt: skip


@pytest.mark.parametrize("request_", ONE, ids=repr)
def test_one_answer(pair: Pair, name: str, request_: Any) -> None:
    def act(script: Script) -> None:
        fill(script)
        script.request("$JS.API.DIRECT.GET.S", request_)

    assert_same(pair, name, act)


MANY: list[Any] = [
    {"seq": 1, "batch": 3}, {"seq": 1, "batch": 100}, {"seq": 3, "batch": 2}, {"seq": 9, "batch": 5},
    {"seq": 9, "batch": 1},
    {"seq": 10, "batch": 5}, {"seq": 0, "batch": 5}, {"batch": 3, "start_time": LONG_AGO},
    {"batch": 3, "start_time": FAR_AHEAD},
    {"next_by_subj": "S.1", "batch": 2}, {"next_by_subj": "S.1", "batch": 20},
    {"next_by_subj": "S.*", "batch": 4, "seq": 3},
    {"next_by_subj": ">", "batch": 4, "seq": 3}, {"next_by_subj": "S.1", "batch": 3, "start_time": LONG_AGO},
    {"next_by_subj": "S.none", "batch": 3}, {"seq": 1, "batch": 100, "max_bytes": 1},
    {"seq": 1, "batch": 100, "max_bytes": 40},
    {"seq": 1, "batch": 100, "max_bytes": 80}, {"seq": 1, "batch": 3, "no_hdr": True},
    {"multi_last": ["S.1"]}, {"multi_last": ["S.*"]}, {"multi_last": [">"]}, {"multi_last": ["S.1", "S.2", "S.none"]},
    {"multi_last": ["S.1", "S.1"]}, {"multi_last": ["S.*"], "batch": 2}, {"multi_last": ["S.*"], "up_to_seq": 5},
    {"multi_last": ["S.*"], "up_to_seq": 1}, {"multi_last": ["S.*"], "up_to_seq": 4},
    {"multi_last": ["S.*"], "up_to_seq": 99},
    {"multi_last": ["S.*"], "up_to_time": FAR_AHEAD}, {"multi_last": ["S.*"], "seq": 8},
    {"multi_last": ["S.*"], "seq": 9, "batch": 1},
    {"multi_last": ["S.*"], "max_bytes": 40}, {"multi_last": ["S.*"], "batch": 2, "max_bytes": 1},
    {"multi_last": ["S.*"], "no_hdr": True},
]  # fmt: skip


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("request_", MANY, ids=repr)
def test_several_answers(pair: Pair, name: str, request_: Any, storage: str) -> None:
    def act(script: Script) -> None:
        fill(script, storage=storage)
        script.request("$JS.API.DIRECT.GET.S", request_, count=-1)

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "request_", [None, {}, {"seq": 1}, {"no_hdr": True}, b"{", b"x", {"last_by_subj": "S.1"}], ids=repr
)
@pytest.mark.parametrize("subject", ["S.1", "S.none", "S.*", ">"])
def test_last_by_subject_in_the_subject(pair: Pair, name: str, subject: str, request_: Any) -> None:
    def act(script: Script) -> None:
        fill(script)
        script.request(f"$JS.API.DIRECT.GET.S.{subject}", request_)

    assert_same(pair, name, act)


def test_without_allow_direct_nobody_answers(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        script.publish("S.1")
        script.request("$JS.API.DIRECT.GET.S", {"seq": 1})
        script.request("$JS.API.DIRECT.GET.S.S.1")
        script.request("$JS.API.DIRECT.GET")
        script.update(allow_direct=True)
        script.request("$JS.API.DIRECT.GET.S", {"seq": 1})
        script.update()
        script.request("$JS.API.DIRECT.GET.S", {"seq": 1})

    assert_same(pair, name, act)


@pytest.mark.parametrize("level", ["5", "6", "x"])
def test_required_api_level(pair: Pair, name: str, level: str) -> None:
    def act(script: Script) -> None:
        fill(script)
        headers = header_block(Nats_Required_Api_Level=level)
        script.request("$JS.API.DIRECT.GET.S", {"seq": 1}, headers)
        script.request("$JS.API.DIRECT.GET.S.S.1", None, headers)

    assert_same(pair, name, act)


def test_headers_are_kept_before_those_of_the_answer(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_direct=True)
        script.publish("S.a", b"", b"NATS/1.0 404 Gone\r\nB: 2\r\nb: 1\r\n\r\n")
        script.publish("S.a", b"x", b"NATS/1.0\r\nNats-Sequence: 77\r\n\r\n")
        script.request("$JS.API.DIRECT.GET.S", {"seq": 1})
        script.request("$JS.API.DIRECT.GET.S", {"seq": 2})

    assert_same(pair, name, act)


def test_too_many_subjects(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_direct=True, storage="memory")
        for number in range(1024):
            script.peer.publish(f"{script.name}.{number}")
        script.publish("S.last")
        script.request("$JS.API.DIRECT.GET.S", {"multi_last": [">"]})
        script.api("STREAM.MSG.DELETE.S", {"seq": 1})
        script.request("$JS.API.DIRECT.GET.S", {"multi_last": [">"], "batch": 1}, count=-1)

    assert_same(pair, name, act)


TOGETHER = ["S.0", "S.1", "S.2", "S.none", "S.*", "*.2", "S.0", "bad..one", "S.gone", "S.1"] * 20


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_requests_that_arrive_together_are_answered_like_single_ones(pair: Pair, name: str, storage: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_direct=True, storage=storage, max_msgs_per_subject=2)
        for number in range(90):
            script.publish(f"S.{number % 3}", b"payload %d" % number, header_block(X=number) if number % 2 else b"")
        script.publish("S.gone", b"soon deleted")
        script.api("STREAM.PURGE.S", {"filter": "S.gone"})
        script.api("STREAM.MSG.DELETE.S", {"seq": 90})
        single = [script.request(f"$JS.API.DIRECT.GET.S.{subject}")[0] for subject in TOGETHER[:10]]
        script.peer.subscribe("_INBOX.together.*", "together")
        for headers in (b"", header_block(Nats_Required_Api_Level=1)):
            for number, subject in enumerate(TOGETHER):
                own = subject.replace("S.", f"{script.name}.")
                reply = f"_INBOX.together.{number}"
                script.peer.send(publication(f"$JS.API.DIRECT.GET.{script.name}.{own}", b"", headers, reply))
            answers = sorted((script.peer.message() for _ in TOGETHER), key=lambda msg: int(msg.subject.split(".")[-1]))
            assert [answer[2:] for answer in answers] == [answer[2:] for answer in single * 20]

    assert_same(pair, name, act)
