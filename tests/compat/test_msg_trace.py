"""Message traces: what servers tell of a message that asks for it, on one server and over leaf nodes."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.leafs import ROLES, Linked, hub_config, leaf_config, link, wait_wanted, wanted
from tests.compat.peer import Peer
from tests.compat.servers import Server, wait_until

CONFIG = """
server_name: T
jetstream: enabled
accounts {
  A {
    jetstream: enabled
    users: [
      {user: a, password: p}
      {user: poor, password: p, permissions: {publish: ["x", "traces"], subscribe: ["traces"]}}
    ]
    exports: [ {service: svc.open, allow_trace: true}, {service: svc.shut}, {stream: "st.>"} ]
    mappings: { from: to, lost: [{destination: lost, weight: 0}] }
    msg_trace: {dest: parents, sampling: "100%"}
  }
  B {
    users: [{user: b, password: p}]
    imports: [
      {service: {account: A, subject: svc.open}, to: open}
      {service: {account: A, subject: svc.shut}, to: shut}
      {stream: {account: A, subject: "st.open.>"}, to: "bo.>", allow_trace: true}
      {stream: {account: A, subject: "st.shut.>"}}
    ]
  }
}
"""
DEST, ONLY = "Nats-Trace-Dest", "Nats-Trace-Only"
Event = dict[str, Any]


class Watcher:
    """Gets the traces of an account."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        for sid, subject in (("t1", "traces"), ("t2", "parents")):
            peer.subscribe(subject, sid)

    def trace(self) -> Event:
        """The next trace. Messages to other subscriptions are left out."""
        while (msg := self.peer.message()).sid not in ("t1", "t2"):
            pass
        return json.loads(msg.payload)  # type: ignore[no-any-return]

    def events(self) -> list[Event]:
        """The events of the next trace, without what differs from server to server."""
        return [{key: event[key] for key in event if key not in ("ts", "cid")} for event in self.trace()["events"]]


@pytest.fixture(scope="module")
def traced(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(kind, tmp_path_factory.mktemp(f"trace-{kind}"), (), CONFIG) as server:
        yield server


@pytest.fixture
def a(traced: Server) -> Iterator[Peer]:
    with Peer(traced, user="a", name="alice", **{"pass": "p"}) as peer:
        yield peer


@pytest.fixture
def b(traced: Server) -> Iterator[Peer]:
    with Peer(traced, user="b", name="bob", **{"pass": "p"}) as peer:
        yield peer


def block(headers: dict[str, str]) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items()) + b"\r\n"


def publish(peer: Peer, subject: str, is_only: bool = False, reply: str = "", **more: str) -> None:
    headers = {DEST: "traces"} | ({ONLY: "true"} if is_only else {})
    peer.publish(
        subject, b"hi", block(headers | {name.replace("_", "-"): value for name, value in more.items()}), reply
    )


def ingress(subject: str, account: str = "A", name: str = "alice") -> Event:
    return {"type": "in", "kind": 0, "name": name, "acc": account, "subj": subject}


def egress(sub: str, name: str = "alice", **more: str) -> Event:
    return {"type": "eg", "kind": 0, "name": name, "sub": sub, **more}


def test_a_trace_names_the_server_the_request_and_who_got_it(a: Peer) -> None:
    watcher = Watcher(a)
    a.subscribe("x", "1")
    a.subscribe("x", "2", "q")
    publish(a, "x", more="a b")
    got = [a.message() for _ in range(3)]
    assert [(msg.sid, msg.payload) for msg in got[:2]] == [("1", b"hi"), ("2", b"hi")]
    trace = json.loads(got[2].payload)
    assert trace["server"]["name"] == "T" and "hops" not in trace
    assert trace["request"] == {"header": {DEST: ["traces"], "more": ["a b"]}, "msgsize": 50}
    assert trace["events"][0]["cid"] == trace["events"][1]["cid"] > 0
    publish(a, "x", is_only=True)
    assert watcher.events() == [ingress("x"), egress("x"), egress("x", queue="q")]
    assert a.ask() == []


def test_a_message_that_reaches_nobody_is_traced(a: Peer) -> None:
    watcher = Watcher(a)
    publish(a, "nobody", reply="_INBOX.none")
    assert watcher.events() == [ingress("nobody")]


def test_who_does_not_get_a_message_is_told_with_the_reason(traced: Server, a: Peer) -> None:
    watcher = Watcher(a)
    with Peer(traced, user="a", name="quiet", echo=False, **{"pass": "p"}) as quiet:
        quiet.subscribe("e", "1")
        publish(quiet, "e")
        denied = "Not delivered because of no echo"
        assert watcher.events() == [ingress("e", name="quiet"), egress("e", "quiet", error=denied)]


def test_what_may_not_be_published_is_traced_with_the_error(traced: Server, a: Peer) -> None:
    watcher = Watcher(a)
    with Peer(traced, user="poor", name="poor", **{"pass": "p"}) as poor:
        publish(poor, "secret")
        violation = 'Permissions Violation for Publish to "secret"'
        assert watcher.events() == [ingress("secret", name="poor") | {"error": violation}]
        assert poor.ask() == [f"-ERR '{violation}'\r\n".encode()]
        a.subscribe("x", "1")
        publish(poor, "x", **{DEST: "elsewhere"})
        assert poor.ask() == [b"-ERR 'Permissions Violation for Publish to \"elsewhere\"'\r\n"]
    assert a.ask() == []


@pytest.mark.parametrize("dest", ["a..b", "a.*", ">", "trace disabled"])
def test_a_message_with_a_bad_destination_is_delivered_and_not_traced(a: Peer, dest: str) -> None:
    a.subscribe(">", "1")
    publish(a, "x", **{DEST: dest})
    assert len(a.ask()) == 1
    publish(a, "x", is_only=dest != "trace disabled", **{DEST: dest})
    assert len(a.ask()) == (dest == "trace disabled")


def test_a_header_of_old_servers_disables_traces(a: Peer) -> None:
    a.subscribe("x", "1")
    publish(a, "x", **{"Nats-Trace-Origin-Account": "A"})
    assert a.message().headers == block({"Nats-Trace-Origin-Account": "A", DEST: "trace disabled"})


@pytest.mark.parametrize(
    ("value", "is_traced"),
    [("00-aa-bb-01", True), ("00-aa-bb-00", False), ("00-aa-01", False), ("00-aa-bb-zz", False), ("-", False)],
)
def test_another_systems_header_is_told_where_the_account_says(a: Peer, value: str, is_traced: bool) -> None:
    watcher = Watcher(a)
    a.publish("x", b"hi", block({"TraceParent": value}))
    if is_traced:
        assert watcher.trace()["request"]["header"] == {"TraceParent": [value]}
    assert a.ask() == []


def test_mappings_are_told(a: Peer) -> None:
    watcher = Watcher(a)
    a.subscribe("to", "1")
    publish(a, "from")
    assert watcher.events() == [ingress("from"), {"type": "sm", "to": "to"}, egress("to")]
    publish(a, "lost")
    assert watcher.events() == [ingress("lost"), {"type": "sm", "to": ""}]


@pytest.mark.parametrize("is_only", [False, True])
def test_a_stream_import_that_allows_it_is_traced_to_its_end(a: Peer, b: Peer, is_only: bool) -> None:
    watcher = Watcher(a)
    b.subscribe("bo.1", "1")
    b.subscribe("st.shut.1", "2")
    b.ask()
    publish(a, "st.open.1", is_only)
    exported = {"type": "se", "acc": "B", "to": "bo.1"}
    assert watcher.events() == [ingress("st.open.1"), exported, egress("st.open.1", "bob", acc="B")]
    publish(a, "st.shut.1", is_only)
    assert watcher.events() == [ingress("st.shut.1"), {"type": "se", "acc": "B", "to": "st.shut.1"}]
    assert len(b.ask()) == (0 if is_only else 2)


@pytest.mark.parametrize("is_only", [False, True])
def test_a_service_export_that_allows_it_is_traced_to_its_end(a: Peer, b: Peer, is_only: bool) -> None:
    watcher = Watcher(b)
    for sid, subject in enumerate(("svc.open", "svc.shut")):
        a.subscribe(subject, str(sid))
    a.ask()
    publish(b, "open", is_only)
    imported = {"type": "si", "acc": "A", "from": "open", "to": "svc.open"}
    assert watcher.events() == [ingress("open", "B", "bob"), imported, egress("svc.open", acc="A")]
    publish(b, "shut", is_only)
    shut = {"type": "si", "acc": "A", "from": "shut", "to": "svc.shut"}
    assert watcher.events() == [ingress("shut", "B", "bob"), shut]
    got = a.ask()
    assert len(got) == (0 if is_only else 2)
    assert is_only or (b"Nats-Trace-Dest: _R_." in got[0] and b"Nats-Trace-Dest: trace disabled" in got[1])


def test_requests_to_the_server_are_told_as_services(a: Peer) -> None:
    watcher = Watcher(a)
    a.subscribe("_INBOX.r", "1")
    imported = {"type": "si", "acc": "$SYS", "from": "$JS.API.INFO", "to": "$JS.API.INFO"}
    publish(a, "$JS.API.INFO", is_only=True, reply="_INBOX.r")
    got = [a.message(), a.message()]
    assert {msg.status for msg in got} == {"503", ""}
    publish(a, "$JS.API.INFO", reply="_INBOX.r")
    assert watcher.events() == [ingress("$JS.API.INFO"), imported]


class TestStreams:
    """Of messages that a stream takes, or not."""

    @pytest.fixture
    def stream(self, a: Peer) -> str:
        config = {
            "name": "S",
            "subjects": ["js.>", "jt.*"],
            "max_msg_size": 200,
            "storage": "memory",
            "subject_transform": {"src": "jt.*", "dest": "tj.$1"},
        }
        a.request("$JS.API.STREAM.DELETE.S")
        assert "error" not in a.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode()).json
        assert a.request("js.1", b"first").json["seq"] == 1
        return "S"

    def test_a_stored_message_is_told_when_it_is_stored(self, a: Peer, stream: str) -> None:
        watcher = Watcher(a)
        publish(a, "js.1")
        assert watcher.events() == [ingress("js.1"), {"type": "js", "stream": "S", "subject": "js.1"}]
        publish(a, "jt.1", Nats_Msg_Id="1")
        assert watcher.events() == [ingress("jt.1"), {"type": "js", "stream": "S", "subject": "tj.1"}]
        stored = a.request("$JS.API.STREAM.MSG.GET.S", b'{"seq": 3}').json["message"]
        assert base64.b64decode(stored["hdrs"]) == block({DEST: "trace disabled", "Nats-Msg-Id": "1"})

    def test_only_a_trace_stores_nothing(self, a: Peer, stream: str) -> None:
        watcher = Watcher(a)
        publish(a, "js.1", is_only=True, Nats_Msg_Id="2")
        assert watcher.events() == [ingress("js.1"), {"type": "js", "stream": "S", "subject": "js.1"}]
        assert a.request("$JS.API.STREAM.INFO.S").json["state"]["messages"] == 1
        assert a.request("js.1", b"", block({"Nats-Msg-Id": "2"})).json["seq"] == 2

    @pytest.mark.parametrize("is_only", [False, True])
    @pytest.mark.parametrize(
        ("header", "value", "error"),
        [
            ("Nats-Expected-Last-Sequence", "77", "last sequence mismatch: 77 vs 1"),
            ("Nats-Expected-Last-Subject-Sequence", "77", "last sequence by subject mismatch: 77 vs 1"),
            ("Nats-Expected-Stream", "other", "expected stream does not match"),
            ("Nats-Expected-Last-Msg-Id", "77", 'last msgid mismatch: "77" vs ""'),
            ("Nats-TTL", "77", "message TTL disabled"),
            ("Nats-Rollup", "sub", "rollup not permitted"),
            ("Nats-Incr", "+1", "message counters is disabled (10168)"),
            ("more", "x" * 200, "maximum payload exceeded"),
        ],
    )
    def test_what_a_stream_refuses_is_told(
        self, a: Peer, stream: str, header: str, value: str, error: str, is_only: bool
    ) -> None:
        watcher = Watcher(a)
        publish(a, "js.1", is_only, **{header: value})
        assert watcher.events() == [ingress("js.1"), {"type": "js", "stream": "S", "error": error}]
        assert a.request("$JS.API.STREAM.INFO.S").json["state"]["messages"] == 1

    def test_a_duplicate_and_a_message_that_nobody_wants_are_told(self, a: Peer, stream: str) -> None:
        watcher = Watcher(a)
        a.request("js.1", b"", block({"Nats-Msg-Id": "1"}))
        publish(a, "js.1", Nats_Msg_Id="1")
        assert watcher.events()[1] == {"type": "js", "stream": "S", "error": "msgid is duplicate"}
        a.request("$JS.API.STREAM.CREATE.I", b'{"name": "I", "subjects": ["ji"], "retention": "interest"}')
        publish(a, "ji")
        assert watcher.events()[1] == {"type": "js", "stream": "I", "subject": "ji", "nointerest": True}


def test_a_trace_is_compressed_for_who_accepts_it(a: Peer) -> None:
    a.subscribe("traces", "1")
    publish(a, "x", Accept_Encoding="gzip")
    msg = a.message()
    assert b"Content-Encoding: gzip" in msg.headers
    assert json.loads(gzip.decompress(msg.payload))["events"][0]["subj"] == "x"


def test_traced_messages_among_many_keep_the_order(a: Peer) -> None:
    a.subscribe("x", "1")
    traced, plain = block({DEST: "traces"}), block({"Nats-Msg-Id": "1"})
    frames = b""
    for number in range(60):
        headers = traced if number % 3 == 0 else plain
        frames += b"HPUB x %d %d\r\n%s%02d\r\n" % (len(headers), len(headers) + 2, headers, number)
    a.send(frames)
    assert [int(a.message().payload) for _ in range(60)] == list(range(60))


@pytest.fixture(scope="module", params=ROLES, ids=["-".join(roles) for roles in ROLES])
def linked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    hub, leaf = request.param
    directory: Path = tmp_path_factory.mktemp("trace-leaf")
    found = link(hub, leaf, directory, hub_config(), leaf_config)
    try:
        yield found.wait()
    finally:
        found.leaf.kill()
        found.hub.kill()


def _strip(events: list[Event]) -> list[Event]:
    return [{key: event[key] for key in event if key not in ("ts", "cid")} for event in events]


@pytest.mark.parametrize("is_only", [False, True])
def test_each_server_on_the_way_tells_what_it_did(linked: Linked, is_only: bool) -> None:
    subject = f"far.{is_only}"
    with Peer(linked.hub, name="sender") as sender, Peer(linked.leaf, name="far") as far:
        sender.subscribe("traces", "1")
        far.subscribe(subject, "1")
        far.subscribe(subject, "2", "q")
        wait_wanted(linked.hub, subject)
        wait_wanted(linked.leaf, "traces")
        publish(sender, subject, is_only)
        traces = {trace["server"]["name"]: trace for trace in (sender.message().json for _ in range(2))}
        assert traces["HUB"]["hops"] == 1
        assert _strip(traces["HUB"]["events"]) == [
            ingress(subject, "$G", "sender"),
            {"type": "eg", "kind": 4, "name": "LEAF", "hop": "1"},
        ]
        assert traces["LEAF"]["request"]["header"]["Nats-Trace-Hop"] == ["1"]
        assert _strip(traces["LEAF"]["events"]) == [
            {"type": "in", "kind": 4, "name": "HUB", "acc": "$G", "subj": subject},
            egress(subject, "far"),
            egress(subject, "far", queue="q"),
        ]
        assert len(far.ask()) == (0 if is_only else 2)
    wait_until(lambda: "traces" not in wanted(linked.leaf), "interest in traces to be gone")
