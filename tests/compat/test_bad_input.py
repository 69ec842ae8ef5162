"""Input that is far too large, too deep or too odd: both servers say the same of it, and go on."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Pair
from tests.compat.peer import Peer, header_block
from tests.compat.script import Script, assert_same
from tests.compat.servers import Server

KIB = 1024


def headers_of_size(size: int) -> bytes:
    return header_block(Filler="x" * (size - len(header_block(Filler=""))))


@pytest.mark.parametrize("size", [64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 512 * KIB])
def test_large_headers_are_delivered(server: Server, peer: Peer, name: str, size: int) -> None:
    headers = headers_of_size(size)
    peer.subscribe(name)
    peer.publish(name, b"payload", headers)
    msg = peer.message()
    assert (msg.headers, msg.payload) == (headers, b"payload")


@pytest.mark.parametrize("size", [64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 512 * KIB])
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_large_headers_into_a_stream(pair: Pair, name: str, size: int, storage: str) -> None:
    headers = headers_of_size(size)

    def act(script: Script) -> None:
        script.create(storage=storage, allow_direct=True)
        script.peer.send(b"PING\r\n")
        script.note("publish", script.peer.request(f"{name}.a", b"payload", headers).json)
        script.publish("S.a", b"after")
        script.api("STREAM.INFO.S")
        script.note("get", script.peer.request(f"$JS.API.DIRECT.GET.{name}", b'{"seq":1}').payload)

    assert_same(pair, name, act)


def test_large_message_ids(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        for _ in range(2):
            headers = header_block(Nats_Msg_Id="x" * 60_000)
            script.note("publish", script.peer.request(f"{name}.a", b"", headers).json)

    assert_same(pair, name, act)


@pytest.mark.parametrize("depth", [50, 5_000, 100_000])
@pytest.mark.parametrize("field", ["metadata", "unknown"])
def test_deep_json(pair: Pair, name: str, depth: int, field: str) -> None:
    def act(script: Script) -> None:
        body = b'{"name":"%s","%s":%s%s}' % (name.encode(), field.encode(), b"[" * depth, b"]" * depth)
        answer = script.peer.api(f"STREAM.CREATE.{name}", body)
        script.note("create", answer["error"]["code"])
        script.api("STREAM.NAMES", {"subject": "S.none"})

    assert_same(pair, name, act)


def test_a_request_as_large_as_a_message_may_be(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        subjects = b",".join(b'"%s.%d"' % (name.encode(), number) for number in range(60_000))
        body = b'{"name":"%s","subjects":[%s]}' % (name.encode(), subjects)
        script.note("info", script.peer.api(f"STREAM.INFO.{name}", body)["error"])
        script.note("get", script.peer.api(f"STREAM.MSG.GET.{name}", b"x" * 1_000_000)["error"])

    assert_same(pair, name, act)


@pytest.mark.parametrize(
    "consumer",
    ["a/b", "a\\b", "..", "../x", "a b", "*", ">", "x" * 255, "ü", "a%2fb", "\u0001", "a:b", ""],
    ids=lambda consumer: repr(consumer[:8]) + str(len(consumer)),
)
@pytest.mark.parametrize("field", ["name", "durable_name"])
def test_consumer_names_that_look_like_paths(pair: Pair, name: str, consumer: str, field: str) -> None:
    def act(script: Script) -> None:
        script.create()
        request = {"stream_name": name, "config": {field: consumer, "ack_policy": "explicit"}}
        answer = script.peer.api(f"CONSUMER.CREATE.{name}", request)
        script.note("create", answer.get("error") or answer["config"].get(field))
        script.api("CONSUMER.NAMES.S") if consumer else None

    assert_same(pair, name, act)


def test_streams_with_odd_names_write_nowhere_else(server: Server, peer: Peer) -> None:
    def outside() -> set[str]:
        beside = {path.name for path in server.directory.iterdir() if path.suffix != ".ports"}
        return beside | {path.name for path in server.directory.parent.iterdir()}

    before = outside()
    for stream in ("%2e%2e", "%2F", "~", "-rf", "$(x)", "nul", "meta"):
        answer = peer.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": ["odd"]})
        assert answer["config"]["name"] == stream
        assert peer.api(f"STREAM.DELETE.{stream}")["success"]
    assert outside() == before
