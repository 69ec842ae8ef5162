"""What the system account is told unasked: clients that come and go, the server's numbers, its end."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Msg, Peer
from tests.compat.servers import Server

CONFIG = """
server_name: teller
lame_duck_duration: 30s, lame_duck_grace_period: 1s
accounts {
  SYS { users: [{user: s, password: p}] }
  A { users: [{user: a, password: p}] }
}
system_account: SYS
"""
ADVISORY = "io.nats.server.advisory.v1."
SERVER_FIELDS = {"name", "host", "id", "ver", "jetstream", "flags", "seq", "time"}


@pytest.fixture
def server(start: Start) -> Server:
    return start(CONFIG, "-js")


def listen(server: Server, *subjects: str) -> Peer:
    peer = Peer(server, user="s", **{"pass": "p"})
    for number, subject in enumerate(subjects):
        peer.subscribe(subject, str(number))
    return peer


def login(server: Server, **options: Any) -> Peer:
    peer = Peer(server, **{"user": "a", "pass": "p", "name": "app", "lang": "test", "version": "1", **options})
    peer.ask()
    return peer


def check_event(msg: Msg, type: str) -> dict[str, Any]:
    event: dict[str, Any] = msg.json
    assert event["type"] == ADVISORY + type and event["id"] and event["timestamp"].endswith("Z")
    assert event["server"].keys() >= SERVER_FIELDS and event["server"]["name"] == "teller"
    return event


def test_clients_that_come_and_go_are_told(server: Server) -> None:
    with listen(server, "$SYS.ACCOUNT.A.CONNECT", "$SYS.ACCOUNT.A.DISCONNECT") as system:
        with login(server) as peer:
            peer.subscribe("x")
            assert len(peer.ask(b"PUB x 3\r\nabc\r\nPUB y 4\r\nabcd\r\n")) == 1
        came, left = system.message(), system.message()
    assert (came.subject, left.subject) == ("$SYS.ACCOUNT.A.CONNECT", "$SYS.ACCOUNT.A.DISCONNECT")
    client = check_event(came, "client_connect")["client"]
    told = {"host": "127.0.0.1", "acc": "A", "user": "a", "name": "app", "lang": "test", "ver": "1", "name_tag": "A"}
    assert client == {"start": client["start"], "id": client["id"], **told, "kind": "Client", "client_type": "nats"}
    event = check_event(left, "client_disconnect")
    assert event["client"] == {**client, "stop": event["client"]["stop"], "rtt": event["client"]["rtt"]}
    assert (event["sent"], event["received"]) == ({"msgs": 2, "bytes": 7}, {"msgs": 1, "bytes": 3})
    assert event["reason"] == "Client Closed"


def test_an_account_tells_how_many_connections_it_has(server: Server) -> None:
    with listen(server, "$SYS.ACCOUNT.A.SERVER.CONNS", "$SYS.SERVER.ACCOUNT.A.CONNS") as system:
        with login(server), login(server):
            pass
        events = [system.message() for _ in range(8)]
    subjects = {"$SYS.ACCOUNT.A.SERVER.CONNS", "$SYS.SERVER.ACCOUNT.A.CONNS"}
    for subject in subjects:
        counts = [check_event(msg, "account_connections")["conns"] for msg in events if msg.subject == subject]
        assert counts == [1, 2, 1, 0]
    event = events[-1].json
    assert {"acc", "name", "leafnodes", "total_conns", "num_subscriptions", "sent", "received"} <= event.keys()


def names(msg: Msg) -> set[str]:
    return {stat["name"] for stat in msg.json["data"]["account_statz"]}


def test_the_numbers_of_accounts_are_asked_for(server: Server) -> None:
    with listen(server) as system:
        ping, one = "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.ACCOUNT.A.STATZ"
        assert names(system.request(ping)) == {"SYS"}
        assert names(system.request(one, b'{"include_unused": true}')) == {"A"}
        with login(server):
            assert names(system.request(ping)) == {"SYS", "A"} and names(system.request(one)) == {"A"}
            assert names(system.request(ping, b'{"accounts": ["A", "none"]}')) == {"A"}
            told = check_event(system.request("$SYS.REQ.ACCOUNT.A.CONNS"), "account_connections")
            assert (told["acc"], told["conns"]) == ("A", 1)


@pytest.mark.parametrize("subject", ["A.STATZ", "A.CONNS", "none.STATZ", "none.CONNS"])
def test_an_account_without_connections_is_not_spoken_of(server: Server, subject: str) -> None:
    with listen(server, "answer") as system:
        system.publish(f"$SYS.REQ.ACCOUNT.{subject}", reply="answer")
        assert system.request("$SYS.REQ.SERVER.PING").json["statsz"] and system.ask() == []


def test_who_cannot_log_in_is_told(server: Server) -> None:
    with listen(server, "$SYS.SERVER.*.CLIENT.AUTH.ERR", "$SYS.ACCOUNT.*.DISCONNECT") as system:
        server_id = system.info["server_id"]
        login(server, **{"pass": "wrong"}).socket.close()
        failed, left = system.message(), system.message()
    assert failed.subject == f"$SYS.SERVER.{server_id}.CLIENT.AUTH.ERR" and left.subject == "$SYS.ACCOUNT.$G.DISCONNECT"
    for msg in (failed, left):
        event = check_event(msg, "client_disconnect")
        assert event["reason"] == "Authentication Failure"
        assert (event["client"]["user"], event["client"]["acc"]) == ("a", "$G")


def test_the_server_tells_its_numbers(server: Server) -> None:
    with listen(server, "$SYS.SERVER.*.STATSZ") as system:
        told = system.message()
        assert told.subject == f"$SYS.SERVER.{system.info['server_id']}.STATSZ"
        asked = system.request("$SYS.REQ.SERVER.PING").json
    assert told.json["server"].keys() >= SERVER_FIELDS
    assert told.json["statsz"].keys() == asked["statsz"].keys()
    assert told.json["statsz"]["connections"] == 1


@pytest.mark.parametrize(("number", "name"), [(signal.SIGTERM, "SHUTDOWN"), (signal.SIGUSR2, "LAMEDUCK")])
def test_the_end_is_told(server: Server, number: signal.Signals, name: str) -> None:
    with listen(server, f"$SYS.SERVER.*.{name}") as system:
        server.signal(number)
        told = system.message()
    assert told.subject == f"$SYS.SERVER.{system.info['server_id']}.{name}"
    assert told.json.keys() >= SERVER_FIELDS and told.json["id"] == system.info["server_id"]


def test_other_accounts_are_told_nothing(server: Server) -> None:
    with login(server) as peer:
        peer.subscribe("$SYS.>")
        login(server).socket.close()
        assert peer.ask(b"PUB $SYS.own 0\r\n\r\n") == [b"MSG $SYS.own 1 0\r\n\r\n"]
