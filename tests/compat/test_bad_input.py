"""Input that is far too large, too deep or too odd: both servers say the same of it, and go on."""

from __future__ import annotations

import json

import pytest

from tests.compat.conftest import Pair, Start
from tests.compat.peer import Peer, header_block, publication
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
    for number, stream in enumerate(("%2e%2e", "%2F", "~", "-rf", "$(x)", "nul", "meta")):
        answer = peer.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"odd.{number}"]})
        assert answer.get("config", answer)["name"] == stream, answer
        assert peer.api(f"STREAM.DELETE.{stream}")["success"]
    assert outside() == before


TTLS = [
    "9" * 400, "9" * 400 + "s", "1" * 400, "1" * 401, "1" + "0" * 70, "0" * 500 + "1", "0." + "9" * 400 + "s", "9" * 20,
    "9" * 19 + "ns", "9223372036854775807", "9223372036854775808", "2562047h47m16.854775807s",
    "2562047h47m16.854775808s", "0.99999999999s", "00", "0", ".s", "+5", "\xff",
]  # fmt: skip


def test_times_to_live_of_any_size(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create(allow_msg_ttl=True)
        for text in TTLS:
            answer = script.peer.request(f"{name}.a", b"", header_block(Nats_TTL=text)).json
            script.note(text, answer.get("error"))

    assert_same(pair, name, act)


DEEP = b"[" * 100_000 + b"]" * 100_000
NAKS = [
    b"-NAK " + b"9" * 400 + b"s", b"-NAK " + b"9" * 400, b'-NAK {"delay":%s}' % (b"9" * 400), b'-NAK {"delay":"\xff"}',
    b'-NAK {"delay":%s}' % DEEP, b"-NAK \xff", b"-NAK {\xff",
]  # fmt: skip


def test_naks_that_name_no_delay(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        durable_pull_consumer(script)
        script.publish("S.a")
        for payload in NAKS:
            delivered = script.peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b"1")
            script.note("delivery", delivered.reply.split(".")[4:7])
            script.note("answer", script.peer.request(delivered.reply, payload).payload)

    assert_same(pair, name, act)


PULLS = [
    b'{"batch":1,"id":"\xff"}', b'{"batch":1,"group":"\xff"}', b'{"batch":%s}' % DEEP, b'{"x":%s}' % DEEP, b"{\xff}",
    b'{"batch":1,"expires":%s}' % (b"9" * 400), b'{"batch":1e400}', b'{"no_wait":"\xff"}',
    b'{"batch":1,"expires":-1}', b'{"batch":1,"expires":-9223372036854775808}',
]  # fmt: skip


def test_pull_requests_that_make_no_sense(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        durable_pull_consumer(script)
        script.publish("S.a")
        for payload in PULLS:
            script.note(repr(payload[:40]), script.peer.request(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", payload).headers)

    assert_same(pair, name, act)


def durable_pull_consumer(script: Script, **config: object) -> None:
    request = {
        "stream_name": script.name,
        "config": {"name": "C", "durable_name": "C", "ack_policy": "explicit", **config},
    }
    assert "error" not in script.peer.api(f"CONSUMER.CREATE.{script.name}.C", request)


def test_a_consumer_whose_name_is_not_utf8(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        script.create()
        script.publish("S.a")
        ask = [
            (b"CONSUMER.CREATE.%s.\xff", b'{"stream_name":"%s","config":{"name":"\xff","durable_name":"\xff"}}'),
            (b"CONSUMER.DURABLE.CREATE.%s.\xff", b'{"stream_name":"%s","config":{"durable_name":"\xff"}}'),
            (b"CONSUMER.CREATE.%s.\xff", b'{"stream_name":"%s","config":{"ack_policy":"explicit"}}'),
            (b"CONSUMER.INFO.%s.\xff", b""),
            (b"CONSUMER.INFO.%s.\xfe", b""),
            (b"CONSUMER.NAMES.%s", b""),
            (b"CONSUMER.MSG.NEXT.%s.\xff", b"1"),
            (b"CONSUMER.DELETE.%s.\xff", b""),
            (b"CONSUMER.NAMES.%s", b""),
        ]
        for subject, body in ask:
            script.note(repr(subject), ask_raw(script.peer, b"$JS.API." + subject, body, name.encode()))

    assert_same(pair, name, act)


def ask_raw(peer: Peer, subject: bytes, body: bytes, name: bytes) -> object:
    """A request on a subject of any bytes: its answer, but for what differs by nature."""
    subject, body = subject.replace(b"%s", name), body.replace(b"%s", name)
    peer.send(b"SUB INBOX.raw 7\r\nPUB %s INBOX.raw %d\r\n%s\r\n" % (subject, len(body), body))
    while not (frame := peer.frame()).startswith((b"MSG", b"HMSG")):
        pass
    peer.send(b"UNSUB 7\r\n")
    line, _, payload = frame.partition(b"\r\n")
    if not payload.startswith(b"{"):
        return line.split(b" ")[:2]
    answer = json.loads(payload)
    return answer.get("error") or {field: answer.get(field) for field in ("name", "consumers", "success")}


SYSTEM = "accounts { $SYS { users: [{user: s, password: s}] }, A { users: [{user: a, password: a}] } }"
SYSTEM_REQUESTS = {
    b'{"name":"\xff"}': None,
    b"null": None,
    b"\xff": (400, "invalid character '\\xff' looking for beginning of value"),
    b'{"x":%s}' % DEEP: (400, "exceeded max depth"),
    DEEP: (400, "exceeded max depth"),
    b"[]": (400, "json: cannot unmarshal array into Go value of type server.ConnzEventOptions"),
    b'{"limit":"x"}': (
        400,
        "json: cannot unmarshal string into Go struct field ConnzEventOptions.limit of type int",
    ),
    b'{"limit":1e400}': (
        400,
        "json: cannot unmarshal number 1e400 into Go struct field ConnzEventOptions.limit of type int",
    ),
    b'{"acc":{}}': (
        400,
        "json: cannot unmarshal object into Go struct field ConnzEventOptions.acc of type string",
    ),
}


def test_system_requests_that_make_no_sense(start: Start) -> None:
    with Peer(start(SYSTEM), user="s", **{"pass": "s"}) as peer:
        for payload, expected in SYSTEM_REQUESTS.items():
            answer = peer.request("$SYS.REQ.SERVER.PING.CONNZ", payload).json
            error = answer.get("error")
            assert (error and (error["code"], error["description"])) == expected, payload[:40]


def odd_requests(name: str) -> list[bytes]:
    """Publishes that once ended a connection, and left a server that could not stop."""
    create = b'{"stream_name":"%s","config":{"name":"\xff","ack_policy":"explicit"}}' % name.encode()
    pause = b'{"pause_until":"9999-12-31T23:59:59-12:00"}'
    next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{name}.C"
    return [
        publication(f"{name}.a", b"", header_block(Nats_TTL="9" * 400 + "s")),
        publication(f"$JS.ACK.{name}.C.1.1.1.1.1", b"-NAK " + b"9" * 400 + b"s"),
        publication(next_subject, b'{"id":"\xff"}', reply="INBOX"),
        publication(next_subject, b'{"x":%s}' % DEEP, reply="INBOX"),
        publication("$SYS.REQ.SERVER.PING.CONNZ", b'{"name":"\xff"}', reply="INBOX"),
        publication("$SYS.REQ.ACCOUNT.PING.CONNZ", b'{"x":%s}' % DEEP, reply="INBOX"),
        publication(f"$JS.API.CONSUMER.CREATE.{name}", create, reply="INBOX"),
        publication(f"$JS.API.CONSUMER.PAUSE.{name}.C", pause, reply="INBOX"),
    ]


@pytest.mark.parametrize("number", range(len(odd_requests("S"))))
def test_a_server_stops_though_the_last_thing_it_heard_was_odd(start: Start, number: int) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "allow_msg_ttl": True})
        config = {"name": "C", "durable_name": "C", "ack_policy": "explicit"}
        peer.api("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
        for _ in range(2):
            peer.request("S.a")
        peer.request("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")
        assert not [said for said in peer.ask(odd_requests("S")[number]) if said.startswith(b"-ERR")]
        assert not peer.is_closed
        peer.send(odd_requests("S")[number])
        assert server.stop() == 0
    assert "Traceback" not in server.log() or number == len(odd_requests("S")) - 1


def test_a_stream_whose_name_is_not_utf8(pair: Pair, name: str) -> None:
    def act(script: Script) -> None:
        for subject in (b"CREATE", b"UPDATE", b"INFO", b"DELETE", b"PURGE", b"MSG.GET"):
            for body in (b"", b'{"name":"\xff"}', b'{"config":{"name":"\xff"}}', b'{"seq":1}'):
                answer = ask_raw(script.peer, b"$JS.API.STREAM.%s.\xff" % subject, body, name.encode())
                script.note(f"{subject!r} {body!r}", answer)

    assert_same(pair, name, act)
