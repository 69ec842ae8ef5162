"""The latency of services: what is told of requests that another account answers, or does not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from jetlake.clock import SECOND_NS
from tests.compat.peer import Peer
from tests.compat.servers import Server

CONFIG = """
server_name: LAT
accounts {
  E {
    users: [{user: e, password: p}]
    exports: [
      {service: svc.all, latency: metrics, threshold: "300ms"}
      {service: svc.shared, latency: {subject: metrics, sampling: 100}}
      {service: svc.headers, latency: {subject: metrics, sampling: headers}}
    ]
  }
  I {
    users: [{user: i, password: p}]
    imports: [
      {service: {account: E, subject: svc.all}, to: all}
      {service: {account: E, subject: svc.shared}, to: shared, share: true}
      {service: {account: E, subject: svc.headers}, to: headers}
    ]
  }
}
"""


@pytest.fixture(scope="module")
def measured(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(kind, tmp_path_factory.mktemp(f"latency-{kind}"), (), CONFIG) as server:
        yield server


@pytest.fixture
def responder(measured: Server) -> Iterator[Peer]:
    with Peer(measured, user="e", name="resp", lang="t", version="1", **{"pass": "p"}) as peer:
        peer.subscribe("metrics", "m")
        yield peer


@pytest.fixture
def requester(measured: Server) -> Iterator[Peer]:
    with Peer(measured, user="i", name="req", **{"pass": "p"}) as peer:
        peer.subscribe("_INBOX.r", "1")
        peer.ask()
        yield peer


def block(headers: dict[str, str]) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items()) + b"\r\n"


def serve(responder: Peer, subject: str) -> None:
    responder.subscribe(subject, "s")
    responder.ask()


def answer(responder: Peer) -> None:
    request = responder.message()
    assert request.sid == "s" and request.reply.startswith("_R_.")
    responder.publish(request.reply, b"answer")


def metric(responder: Peer) -> dict[str, Any]:
    msg = responder.message()
    assert msg.sid == "m"
    found: dict[str, Any] = json.loads(msg.payload)
    assert found["type"] == "io.nats.server.metric.v1.service_latency" and found["id"] and found["timestamp"]
    return found


def test_the_parts_of_the_time_come_to_the_whole(responder: Peer, requester: Peer) -> None:
    serve(responder, "svc.all")
    requester.publish("all", b"?", reply="_INBOX.r")
    time.sleep(0.05)  # longer than any round trip
    answer(responder)
    found = metric(responder)
    assert requester.message().payload == b"answer"
    assert found["status"] == 200 and found["requestor"].keys() == {"acc", "rtt"} and found["requestor"]["acc"] == "I"
    by = found["responder"]
    facts = {"acc": "E", "user": "e", "name": "resp", "lang": "t", "ver": "1", "server": "LAT", "kind": "Client"}
    assert {name: by[name] for name in facts} == facts and by["client_type"] == "nats" and by["id"] > 0
    assert found["service"] > 0.02 * SECOND_NS and found["system"] >= 0 and "header" not in found
    assert found["total"] == found["service"] + found["system"] + found["requestor"]["rtt"] + by["rtt"]


def test_an_import_that_shares_tells_who_asks(responder: Peer, requester: Peer) -> None:
    serve(responder, "svc.shared")
    requester.publish("shared", b"?", reply="_INBOX.r")
    answer(responder)
    asked = metric(responder)["requestor"]
    assert (asked["name"], asked["user"], asked["acc"], asked["server"]) == ("req", "i", "I", "LAT")


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        (
            {"Uber-Trace-Id": "479f:5adb:479f:1", "Uberctx-a": "b"},
            {"Uber-Trace-Id": "479f:5adb:479f:1", "Uberctx-A": "b"},
        ),
        ({"Uber-Trace-Id": "479f:5adb:479f:0"}, None),
        ({"X-B3-Sampled": "1", "X-B3-SpanId": "7"}, {"X-B3-Sampled": "1", "X-B3-Spanid": "7"}),
        ({"X-B3-Sampled": "0", "X-B3-TraceId": "80f1"}, None),
        ({"X-B3-TraceId": "80f1"}, {"X-B3-Traceid": "80f1"}),
        ({"B3": "80f1-e457-1-05e3"}, {"B3": "80f1-e457-1-05e3"}),
        ({"B3": "80f1-e457-0-05e3"}, None),
        ({"B3": "0"}, None),
        ({"traceparent": "00-4bf9-00f0-01"}, {"Traceparent": "00-4bf9-00f0-01"}),
        ({"traceparent": "00-4bf9-00f0-00"}, None),
        ({"traceparent": "00-4bf9-00f0-xx"}, None),
        ({"other": "1"}, None),
    ],
)
def test_headers_ask_for_it(
    responder: Peer, requester: Peer, headers: dict[str, str], told: dict[str, str] | None
) -> None:
    serve(responder, "svc.headers")
    requester.publish("headers", b"?", block(headers), "_INBOX.r")
    answer(responder)
    assert requester.message().payload == b"answer"
    if told is None:
        assert responder.ask() == []
    else:
        assert metric(responder)["header"] == {name: [value] for name, value in told.items()}


def test_nobody_answers(responder: Peer, requester: Peer) -> None:
    requester.publish("all", b"?", reply="_INBOX.r")
    assert requester.message().status == "503"
    found = metric(responder)
    assert (found["status"], found["description"], found["requestor"]["acc"]) == (503, "Service Unavailable", "I")
    assert (found["service"], found["system"], found["total"]) == (0, 0, 0) and "responder" not in found


def test_nobody_answers_in_time(responder: Peer, requester: Peer) -> None:
    serve(responder, "svc.all")
    requester.publish("all", b"?", reply="_INBOX.r")
    assert responder.message().sid == "s"
    found = metric(responder)
    assert (found["status"], found["description"]) == (504, "Service Timeout")


def test_a_request_that_wants_no_answer_is_a_bad_one(responder: Peer, requester: Peer) -> None:
    serve(responder, "svc.all")
    requester.publish("all", b"?")
    got = {msg.sid: msg for msg in (responder.message(), responder.message())}
    assert got["s"].reply == "" and got["m"].json["status"] == 400 and got["m"].json["description"] == "Bad Request"


def test_who_asked_is_gone(responder: Peer, requester: Peer) -> None:
    serve(responder, "svc.shared")
    requester.publish("shared", b"?", reply="_INBOX.r")
    request = responder.message()
    requester.ask(b"UNSUB 1\r\n")
    found = metric(responder)
    assert (found["status"], found["description"]) == (408, "Request Timeout")
    responder.publish(request.reply, b"late")
    assert responder.ask() == []
