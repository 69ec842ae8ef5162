"""What can be asked on `$SYS.REQ.…`: who may ask, which servers answer, and what is done; with the `nats` tool too."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import cramjam
import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Peer, header_block
from tests.compat.servers import Server, wait_until
from tests.compat.test_other_clients import skip

CONFIG = """
server_name: S1
server_tags: [red, "Zone:One"]
accounts {
  A { jetstream: enabled, users: [{user: a, password: p}] }
  B { users: [{user: b, password: p}] }
  SYS { users: [{user: sys, password: p}] }
}
system_account: SYS
"""
SERVER = "$SYS.REQ.SERVER"
ACCOUNT = "$SYS.REQ.ACCOUNT"


@pytest.fixture
def server(start: Start) -> Server:
    return start(CONFIG, "-js")


@pytest.fixture
def system(server: Server) -> Iterator[Peer]:
    with login(server, "sys") as peer:
        yield peer


def login(server: Server, user: str, **options: Any) -> Peer:
    return Peer(server, user=user, **{"pass": "p"}, **options)


def server_id(server: Server) -> str:
    return str(server.get("/varz")["server_id"])


def ask(peer: Peer, subject: str, body: object = None) -> Any:
    return peer.request(subject, b"" if body is None else json.dumps(body).encode()).json


def is_silent(peer: Peer, subject: str, payload: bytes) -> bool:
    """True when nothing comes before the answer to a request that was sent later."""
    peer.subscribe("INBOX.silent", "silent")
    peer.publish(subject, payload, reply="INBOX.silent")
    peer.request(f"{SERVER}.PING.IDZ")
    said = peer.ask(b"UNSUB silent\r\n")
    return said == []


def test_every_page_is_in_an_envelope(system: Peer) -> None:
    for page in ["VARZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "SUBSZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "RAFTZ"]:
        answer = ask(system, f"{SERVER}.PING.{page}")
        assert set(answer) == {"server", "data"}, page
        assert answer["server"]["name"] == "S1" and answer["server"]["tags"] == ["red", "zone:one"]
        assert set(answer["server"]["feature_flags"]) >= {"js_ack_fc_v2", "js_snapshot_sources"}
    assert set(ask(system, f"{SERVER}.PING")) == {"server", "statsz"}
    assert set(ask(system, f"{SERVER}.PING.IDZ")) == {"name", "host", "id"}
    assert system.request(f"{SERVER}.PING.NOPE").status == "503"
    assert system.request(f"{SERVER}.NOBODY.VARZ").status == "503"


@pytest.mark.parametrize(
    ("options", "is_answered"),
    [
        ({"server_name": "S1"}, True),
        ({"server_name": "S"}, True),
        ({"server_name": "S", "exact_match": True}, False),
        ({"server_name": "S1", "exact_match": True}, True),
        ({"server_name": "other"}, False),
        ({"host": "127"}, True),
        ({"cluster": "c"}, False),
        ({"domain": "d"}, False),
        ({"tags": ["RED"]}, True),
        ({"tags": ["red", "zone:one"]}, True),
        ({"tags": ["red", "blue"]}, False),
    ],
)
def test_servers_that_are_not_meant_stay_silent(system: Peer, options: dict[str, Any], is_answered: bool) -> None:
    for subject in (f"{SERVER}.PING.VARZ", f"{SERVER}.PING"):
        if is_answered:
            assert ask(system, subject, options)["server"]["name"] == "S1"
        else:
            assert is_silent(system, subject, json.dumps(options).encode())


def test_errors_tell_what_is_wrong(system: Peer) -> None:
    bad = system.request(f"{SERVER}.PING.CONNZ", b"{bad").json
    assert bad["error"]["code"] == 400 and "data" not in bad
    for subject, body, text in (
        (f"{SERVER}.PING.CONNZ", {"sort": "x"}, "invalid sorting option: x"),
        (f"{SERVER}.PING.CONNZ", {"filter_subject": "x"}, "filter by subject only valid with account filtering"),
        (f"{ACCOUNT}.NOPE.INFO", None, "Account NOPE does not exist"),
    ):
        answer = ask(system, subject, body)
        assert answer["error"] == {"code": 500, "description": text} and answer["data"] is None


def test_connections_by_what_they_subscribe_to(server: Server, system: Peer) -> None:
    with login(server, "a") as one, login(server, "a") as other:
        one.subscribe("orders.*")
        other.subscribe("bills.*")
        for subject, cids in (
            ("orders.1", [one.info["client_id"]]),
            ("*.*", [one.info["client_id"], other.info["client_id"]]),
            ("none", []),
        ):
            page = ask(system, f"{SERVER}.PING.CONNZ", {"acc": "A", "filter_subject": subject})["data"]
            assert [found["cid"] for found in page["connections"] or []] == cids


def test_other_accounts_hear_of_themselves_alone(server: Server) -> None:
    with login(server, "a") as a, login(server, "b"):
        for subject in (f"{SERVER}.PING.CONNZ", f"{ACCOUNT}.PING.CONNZ"):
            page = ask(a, subject, {"acc": "B", "auth": True})["data"]
            assert [found["account"] for found in page["connections"]] == ["A"]
        statz = ask(a, f"{ACCOUNT}.PING.STATZ", {"accounts": ["B"]})["data"]["account_statz"]
        assert [found["acc"] for found in statz] == ["A"]
        for subject in (f"{SERVER}.PING", f"{SERVER}.PING.VARZ", f"{ACCOUNT}.A.INFO", f"{ACCOUNT}.NSUBS"):
            assert a.request(subject).status == "503"


def test_answers_are_compressed_for_those_who_ask(system: Peer) -> None:
    plain = system.request(f"{SERVER}.PING.VARZ")
    assert not plain.headers
    unpack = {"snappy": cramjam.snappy.decompress, "gzip": gzip.decompress, "identity": bytes}
    for accepted, encoding in (("snappy", "snappy"), ("s2", "snappy"), ("gzip", "gzip"), ("zstd", "identity")):
        answer = system.request(f"{SERVER}.PING.VARZ", b"", header_block(Accept_Encoding=accepted))
        assert answer.headers == header_block(Content_Encoding=encoding)
        assert json.loads(bytes(unpack[encoding](answer.payload)))["data"]["server_name"] == "S1"
    for subject in (f"{SERVER}.PING", f"{SERVER}.PING.IDZ", "$SYS.REQ.USER.INFO"):
        assert system.request(subject, b"", header_block(Accept_Encoding="gzip")).json


def test_a_client_is_kicked(server: Server, system: Peer) -> None:
    subject = f"{SERVER}.{server_id(server)}.KICK"
    with login(server, "a", protocol=0) as peer:
        peer.ask()
        answer = ask(system, subject, {"cid": peer.info["client_id"]})
        assert set(answer) == {"server"} and peer.rest() == []
    (gone,) = (c for c in server.get("/connz?state=closed")["connections"] if c["cid"] == peer.info["client_id"])
    assert gone["reason"] == "Kicked"
    for body in ({}, {"cid": 99_999}):
        error = {"code": 500, "description": "no such client or leafnode id"}
        assert ask(system, subject, body)["error"] == error
    assert is_silent(system, subject, b"") and is_silent(system, subject, b"{bad")
    assert system.request(f"{SERVER}.PING.KICK", b'{"cid":1}').status == "503"


def test_one_client_is_told_to_leave(server: Server, system: Peer) -> None:
    subject = f"{SERVER}.{server_id(server)}.LDM"
    with login(server, "a") as peer, login(server, "a") as other:
        peer.ask()
        other.ask()
        assert set(ask(system, subject, {"cid": peer.info["client_id"]})) == {"server"}
        assert peer.ask() == [] and other.ask() == []
        assert peer.info["ldm"] is True and "ldm" not in other.info
    assert ask(system, subject, {"cid": 99_999})["error"] == {"code": 500, "description": "no such client id"}


def test_the_configuration_is_read_again(server: Server, system: Peer) -> None:
    subject = f"{SERVER}.{server_id(server)}.RELOAD"
    server.write_config(CONFIG + "max_connections: 77\n")
    assert set(ask(system, subject)) == {"server"}
    assert server.get("/varz")["max_connections"] == 77
    server.write_config(CONFIG + "bogus: 1\n")
    error = ask(system, subject)["error"]
    assert error["code"] == 500 and "server.conf:10:" in error["description"] and "bogus" in error["description"]


def test_subscribers_are_counted(server: Server, system: Peer) -> None:
    with login(server, "a") as one, login(server, "a") as other:
        one.ask(b"SUB foo 1\r\nSUB foo.* 2\r\nSUB foo.bar q 3\r\n")
        other.ask(b"SUB foo 1\r\nSUB foo.bar q 2\r\n")
        for asked, count in (
            ({"subject": "foo"}, 2),
            ({"subject": "foo.bar"}, 3),
            ({"subject": "foo.bar", "queue": base64.b64encode(b"q").decode()}, 2),
            ({"subject": "none"}, 0),
        ):
            assert ask(system, f"{ACCOUNT}.NSUBS", {"acc": "A", **asked}) == count, asked
    for payload in (b"", b"{bad", b'{"acc":"NOPE","subject":"foo"}'):
        assert is_silent(system, f"{ACCOUNT}.NSUBS", payload)
    system.subscribe("own.*")
    assert system.request("$SYS.DEBUG.SUBSCRIBERS", b"own.1").json == 1
    assert system.request("$SYS.DEBUG.SUBSCRIBERS", b"own.>").json == 1
    assert system.request("$SYS.DEBUG.SUBSCRIBERS", b"none").json == 0


# The tool


def nats_tool() -> str:
    path = shutil.which("nats")
    if path is None:
        skip("the nats tool is not on the path: it is not tried")
    return str(path)


def run_tool(server: Server, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [nats_tool(), "-s", server.url, "--user", user, "--password", "p", "--timeout", "3s", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def test_the_tool_reports(server: Server) -> None:
    with login(server, "a") as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for user, arguments, shown in (
            ("sys", "server list", "S1"),
            ("sys", "server info", "S1"),
            ("sys", "server report connections", "127.0.0.1"),
            ("sys", "server report accounts", "SYS"),
            ("sys", "server report jetstream", "S1"),
            ("sys", "server report health", "ok: 1"),
            ("sys", "server request variables", "S1"),
            ("sys", "server request connections", "num_connections"),
            ("sys", "server request jetstream", "streams"),
            ("sys", "server check server --name S1", "OK"),
            ("sys", f"server config reload {server_id(server)} --force", "S1"),
            ("a", "server check connection", "OK"),
            ("a", "server check jetstream", "OK"),
            ("a", "account info", "Streams: 1"),
            ("a", "account report connections", "127.0.0.1"),
        ):
            done = run_tool(server, user, *arguments.split())
            assert done.returncode == 0 and shown in done.stdout + done.stderr, (arguments, done)
        kicked = run_tool(server, "sys", *f"server request kick {peer.info['client_id']} {server_id(server)}".split())
        assert kicked.returncode == 0, kicked
        assert peer.rest() is not None and peer.is_closed


def test_the_tool_shows_events(server: Server) -> None:
    command = [nats_tool(), "-s", server.url, "--user", "sys", "--password", "p", "events", "--srv-advisory", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tool:
        try:
            with login(server, "sys") as system:
                wait_until(lambda: ask(system, f"{ACCOUNT}.NSUBS", _EVENTS) > 0, "the tool's subscriptions")
            with login(server, "b", name="noticed") as peer:
                peer.ask()
            assert tool.stdout is not None
            assert any('"noticed"' in line for line in tool.stdout)
        finally:
            tool.kill()


_EVENTS = {"acc": "SYS", "subject": "$SYS.ACCOUNT.B.CONNECT"}
