"""Who handles which request, and what is noted of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jetlake.config.options import JetStreamOptions, ServerOptions
from jetlake.jetstream.api.request import Endpoint, EndpointTable, Request
from jetlake.jetstream.api_level import exceeds_api_level
from jetlake.jetstream.service import JetStream
from tests.broker.sessions import FakeConnection, connect, make_broker
from tests.jetstream.harness import FakeHost, InProcess


def nothing(request: Request) -> None: ...


TABLE = EndpointTable(
    [
        Endpoint("INFO", "info", nothing),
        Endpoint("STREAM.INFO.*", "stream_info", nothing),
        Endpoint("STREAM.MSG.GET.*", "get", nothing),
        Endpoint("CONSUMER.CREATE.*", "one", nothing),
        Endpoint("CONSUMER.CREATE.*.*", "two", nothing),
        Endpoint("CONSUMER.CREATE.*.*.>", "more", nothing),
    ]
)


@pytest.mark.parametrize(
    ("subject", "type", "names"),
    [
        ("INFO", "info", ()),
        ("STREAM.INFO.S", "stream_info", ("S",)),
        ("STREAM.MSG.GET.S", "get", ("S",)),
        ("CONSUMER.CREATE.S", "one", ("S",)),
        ("CONSUMER.CREATE.S.C", "two", ("S", "C")),
        ("CONSUMER.CREATE.S.C.f", "more", ("S", "C", "f")),
        ("CONSUMER.CREATE.S.C.f.*.>", "more", ("S", "C", "f.*.>")),
    ],
)
def test_a_subject_finds_its_endpoint(subject: str, type: str, names: tuple[str, ...]) -> None:
    found = TABLE.find(subject)
    assert found is not None and (found[0].type, found[1]) == (type, names)


@pytest.mark.parametrize("subject", ["", "NOPE", "INFO.x", "STREAM", "STREAM.INFO", "STREAM.INFO.a.b", "STREAM.MSG.S"])
def test_others_find_none(subject: str) -> None:
    assert TABLE.find(subject) is None


@pytest.mark.parametrize(
    ("value", "expected"), [(b"0", False), (b"5", False), (b"6", True), (b"x", True), (b"-1", False), (b"", False)]
)
def test_exceeds_api_level(value: bytes, expected: bool) -> None:
    assert exceeds_api_level(b"NATS/1.0\r\nNats-Required-Api-Level: %s\r\n\r\n" % value) is expected
    assert not exceeds_api_level(b"")


def test_a_request_without_reply_is_carried_out(tmp_path: Path) -> None:
    on = InProcess(str(tmp_path))
    on.account.send(b"$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    on.host.settle()
    assert "S" in on.js.streams


def test_requests_and_errors_are_counted(tmp_path: Path) -> None:
    on = InProcess(str(tmp_path))
    for subject in ("STREAM.INFO.NOPE", "STREAM.NAMES", "NOPE", "INFO"):
        on.request(f"$JS.API.{subject}")
    assert (on.js.api_total, on.js.api_errors) == (3, 1)


def test_a_server_that_is_not_strict_takes_unknown_fields(tmp_path: Path) -> None:
    jetstream = JetStreamOptions(enabled=True, strict=False, max_memory=1 << 30, max_store=1 << 30)
    on = InProcess(str(tmp_path), FakeHost(options=ServerOptions(server_name="test", jetstream=jetstream)))
    answer = json.loads(on.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","nope":1}')[0][1])
    assert answer["did_create"]


class Talk:
    """A client of a broker with JetStream."""

    def __init__(self, directory: Path) -> None:
        self.broker, self.host = make_broker(), FakeHost()
        self.service = JetStream(self.host, str(directory))
        self.service.start([self.broker.default_account])
        self.client: FakeConnection = connect(self.broker)
        self.client.say(b"SUB in 1\r\n")

    def ask(self, subject: str, payload: bytes = b"") -> bytes:
        self.client.say(b"PUB %s in %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))
        self.host.settle()
        return self.client.heard()


def test_direct_gets_and_pulls_that_nobody_serves_have_no_responders(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    talk.ask("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    for subject in ("DIRECT.GET.S", "DIRECT.GET.S.x", "DIRECT.GET.T", "CONSUMER.MSG.NEXT.S.C", "CONSUMER.MSG.NEXT.T.C"):
        talk.client.say(b"PUB $JS.API.%s in 0\r\n\r\n" % subject.encode())
    assert talk.client.heard() == b""
    answers = [
        talk.client.say(b"PUB $JS.API.%s in 0\r\n\r\n" % subject.encode())
        for subject in ("DIRECT.GET.S", "CONSUMER.MSG.NEXT.S.C")
    ]
    assert all(b"NATS/1.0 503\r\n" in answer for answer in answers)


def test_unknown_subjects_get_no_answer(tmp_path: Path) -> None:
    assert Talk(tmp_path).ask("$JS.API.NOPE") == b""


def advisories(talk: Talk) -> list[dict[str, Any]]:
    lines = talk.client.heard().split(b"\r\n")
    return [json.loads(line) for line in lines if line.startswith(b'{"type":"io.nats.jetstream.advisory')]


def test_streams_tell_what_happens_to_them(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    listener = connect(talk.broker)
    listener.say(b"SUB $JS.EVENT.ADVISORY.STREAM.> 7\r\n")
    talk.ask("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    talk.ask("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')  # the same again is no event
    talk.ask("$JS.API.STREAM.UPDATE.S", b'{"name":"S","max_msgs":5}')
    talk.ask("$JS.API.STREAM.DELETE.S")
    heard = listener.heard()
    lines = heard.split(b"\r\n")
    assert [line.split()[1] for line in lines if line.startswith(b"MSG")] == [
        b"$JS.EVENT.ADVISORY.STREAM.CREATED.S",
        b"$JS.EVENT.ADVISORY.STREAM.UPDATED.S",
        b"$JS.EVENT.ADVISORY.STREAM.DELETED.S",
    ]
    events = [json.loads(line) for line in lines if line.startswith(b"{")]
    assert [event["action"] for event in events] == ["create", "modify", "delete"]
    assert list(events[0]) == ["type", "id", "timestamp", "stream", "action"]
    assert events[0]["type"] == "io.nats.jetstream.advisory.v1.stream_action"


def test_requests_are_audited_where_somebody_listens(tmp_path: Path) -> None:
    talk = Talk(tmp_path)
    listener = connect(
        talk.broker, b'CONNECT {"verbose":false,"name":"me","lang":"py","version":"1","headers":true}\r\n'
    )
    listener.say(b"SUB $JS.EVENT.ADVISORY.API 7\r\nSUB back 8\r\n")
    listener.say(b'PUB $JS.API.STREAM.CREATE.S back 12\r\n{"name":"S"}\r\n')
    talk.host.settle()
    lines = listener.heard().split(b"\r\n")
    answer, audit = (json.loads(line) for line in lines if line.startswith(b"{"))
    assert json.loads(audit["response"]) == answer
    assert list(audit) == ["type", "id", "timestamp", "server", "client", "subject", "request", "response"]
    assert (audit["subject"], audit["request"]) == ("$JS.API.STREAM.CREATE.S", '{"name":"S"}')
    client = audit["client"]
    assert (client["acc"], client["name"], client["lang"], client["ver"]) == ("$G", "me", "py", "1")
    assert (client["kind"], client["client_type"], client["server"]) == ("Client", "nats", "test")


def test_a_stream_may_capture_advisories(tmp_path: Path) -> None:
    on = InProcess(str(tmp_path))
    on.request("$JS.API.STREAM.CREATE.E", b'{"name":"E","subjects":["$JS.EVENT.ADVISORY.STREAM.>"]}')
    on.request("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    stored = on.js.streams["E"].store.load_last("$JS.EVENT.ADVISORY.STREAM.CREATED.S")
    assert stored is not None and json.loads(stored.payload)["stream"] == "S"


def test_a_request_that_nobody_foresaw_is_answered_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = InProcess(str(tmp_path), FakeHost(failures=[]))
    monkeypatch.setattr(type(on.js), "streams_about", lambda *_: [1 // 0])
    [(_, payload)] = on.request("$JS.API.STREAM.NAMES")
    assert json.loads(payload)["error"] == {"code": 500, "err_code": 10051, "description": "internal error"}
    assert on.host.failures == ["request subject=$JS.API.STREAM.NAMES: integer division or modulo by zero"]
    on.stop()
