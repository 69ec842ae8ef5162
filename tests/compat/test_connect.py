"""How a connection begins: INFO, CONNECT and its options, and what ends it."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest

from tests.compat.conftest import Pair, Start
from tests.compat.peer import DEFAULTS, Peer
from tests.compat.servers import LOOPBACK, Server

VARY = {"server_id", "client_id", "port", "go", "git_commit", "git_ref", "nonce", "xkey", "client_ip"}
"""Fields of INFO whose values differ by nature."""


def test_info_has_the_same_fields(pair: Pair) -> None:
    infos = []
    for server in pair:
        with Peer(server) as peer:
            peer.ask(), peer.ask()  # the second INFO follows the first PONG
            first, second = peer.infos
            infos.append(
                [{key: None if key in VARY else value for key, value in info.items()} for info in (first, second)]
            )
    optional = {"git_commit", "git_ref", "xkey"}
    for real, ours in zip(*infos, strict=True):
        assert {key: real[key] for key in real.keys() - optional} == {key: ours[key] for key in ours.keys() - optional}


def test_info_line(server: Server) -> None:
    with Peer(server) as peer:
        info = peer.info
    assert info["server_id"].startswith("N") and len(info["server_id"]) == 56
    assert info["server_name"] == "compat" and info["port"] == server.port and info["proto"] == 1
    assert info["headers"] and info["jetstream"] and info["max_payload"] == 1048576 and info["version"] == "2.15.1"
    with socket.create_connection((LOOPBACK, server.port), timeout=10) as raw:
        line = raw.recv(65536)
    assert line.startswith(b"INFO {") and line.endswith(b"} \r\n")


def test_client_ids_count_up(server: Server) -> None:
    with Peer(server) as first, Peer(server) as second:
        assert second.info["client_id"] > first.info["client_id"]


def test_second_info_follows_the_first_pong(server: Server) -> None:
    with Peer(server) as peer:
        peer.send(b"PING\r\nPING\r\n")
        assert [peer.frame()[:5] for _ in range(3)] == [b"PONG\r", b"INFO ", b"PONG\r"]
        assert peer.info["connect_info"] and peer.info["remote_account"] == "$G"


def test_no_second_info_for_the_old_protocol(server: Server) -> None:
    with Peer(server, protocol=0) as peer:
        peer.ask(b"PING\r\n")
        assert len(peer.infos) == 1


def test_ping_before_connect(server: Server) -> None:
    with Peer(server, None) as peer:
        assert peer.ask(b"PING\r\n") == [b"PONG\r\n"] or not peer.is_closed


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"no_responders": True, "headers": False}, [b"-ERR 'no responders requires headers support'\r\n"]),
        ({"protocol": 2}, [b"-ERR 'invalid client protocol'\r\n"]),
        ({"protocol": -1}, [b"-ERR 'invalid client protocol'\r\n"]),
        ({"protocol": "1"}, []),
        ({"verbose": 1}, []),
    ],
    ids=repr,
)
def test_connect_options_that_are_refused(server: Server, options: dict[str, Any], answer: list[bytes]) -> None:
    with Peer(server, **options) as peer:
        assert peer.ask() == answer and peer.is_closed


@pytest.mark.parametrize("line", [b"CONNECT {\r\n", b"CONNECT []\r\n", b"CONNECT \r\n", b"CONNECT nonsense\r\n"])
def test_connect_that_is_no_json_closes_without_a_word(server: Server, line: bytes) -> None:
    with Peer(server, None) as peer:
        assert peer.ask(line) == [] and peer.is_closed


def test_verbose_is_the_default(server: Server, name: str) -> None:
    with Peer(server, None) as peer:
        peer.send(b'CONNECT {"pedantic":false}\r\n')
        asked = b"SUB %s 1\r\nPUB %s 1\r\nx\r\nUNSUB 1\r\n" % ((name.encode(),) * 2)
        assert peer.ask(asked) == [
            b"+OK\r\n",
            b"+OK\r\n",
            b"+OK\r\n",
            b"MSG %s 1 1\r\nx\r\n" % name.encode(),
            b"+OK\r\n",
        ]


def test_verbose_answers_a_second_connect(server: Server) -> None:
    with Peer(server, verbose=True) as peer:
        assert peer.ask(b'CONNECT {"verbose":true}\r\n') == [b"+OK\r\n", b"+OK\r\n"]


def test_a_second_connect_forgets_the_subscriptions(server: Server, name: str) -> None:
    with Peer(server) as peer:
        peer.subscribe(f"{name}.a", "1")
        assert peer.ask(f'CONNECT {{"verbose":false}}\r\nPUB {name}.a 0\r\n\r\n'.encode()) == []
        assert peer.ask(f"SUB {name}.b 1\r\nPUB {name}.b 0\r\n\r\n".encode()) == [f"MSG {name}.b 1 0\r\n\r\n".encode()]


def test_a_live_sid_hides_a_wrong_subject(server: Server, name: str) -> None:
    with Peer(server) as peer:
        assert peer.ask(f"SUB {name} 1\r\nSUB {name}..a 1\r\n".encode()) == []


@pytest.mark.parametrize("subject", ["a.*", "a.>", "a..b", ".a", "a."])
def test_pedantic_complains_and_delivers(server: Server, name: str, subject: str) -> None:
    subject = subject.replace("a", name)
    with Peer(server, pedantic=True) as peer:
        peer.subscribe(">", "1")
        answer = peer.ask(f"PUB {subject} 1\r\nx\r\n".encode())
        assert answer[0] == b"-ERR 'Invalid Publish Subject'\r\n" and not peer.is_closed


def test_no_echo(server: Server, name: str) -> None:
    with Peer(server, echo=False) as deaf, Peer(server) as other:
        deaf.subscribe(name)
        assert deaf.ask(f"PUB {name} 1\r\nx\r\n".encode()) == []
        other.ask(f"PUB {name} 1\r\ny\r\n".encode())
        assert deaf.message().payload == b"y"


def test_headers_are_dropped_for_a_client_without(server: Server, name: str) -> None:
    with Peer(server, headers=False, no_responders=False) as plain, Peer(server) as other:
        plain.subscribe(name)
        other.ask(f"HPUB {name} 12 14\r\nNATS/1.0\r\n\r\nhi\r\n".encode())
        assert plain.ask() == [f"MSG {name} 1 2\r\nhi\r\n".encode()]


def test_headers_before_connect_close(server: Server) -> None:
    with Peer(server, None) as peer:
        assert peer.ask(b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n") == [] and peer.is_closed


def test_headers_from_a_client_without_close(server: Server) -> None:
    with Peer(server, headers=False, no_responders=False) as peer:
        assert peer.ask(b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n") == [] and peer.is_closed


def test_no_responders(server: Server, peer: Peer, name: str) -> None:
    answer = peer.request(f"{name}.nobody", b"hello?")
    assert answer.headers == f"NATS/1.0 503\r\nNats-Subject: {name}.nobody\r\n\r\n".encode()
    assert answer.subject == "INBOX" and answer.payload == b""


def test_no_responders_needs_a_plain_subscription_on_the_reply(server: Server, peer: Peer, name: str) -> None:
    assert peer.ask(f"PUB {name}.nobody {name}.reply 0\r\n\r\n".encode()) == []
    peer.subscribe(f"{name}.r.*", "w")
    assert len(peer.ask(f"PUB {name}.nobody {name}.r.1 0\r\n\r\n".encode())) == 1


def test_no_responders_only_for_those_who_asked(server: Server, name: str) -> None:
    with Peer(server, no_responders=False) as peer:
        peer.subscribe(f"{name}.r")
        assert peer.ask(f"PUB {name}.nobody {name}.r 0\r\n\r\n".encode()) == []


def test_unknown_connect_options_are_ignored(server: Server) -> None:
    with Peer(server, colour="blue", lang="test", version="1", name="me") as peer:
        assert peer.ask() == [] and not peer.is_closed


def test_connections_beyond_the_limit_are_refused(start: Start) -> None:
    server = start("max_connections: 2")
    with Peer(server) as first, Peer(server) as second:
        first.ask(), second.ask()
        with Peer(server) as third:
            assert third.ask() == [b"-ERR 'maximum connections exceeded'\r\n"] and third.is_closed
    time.sleep(0.1)
    with Peer(server) as fourth:
        assert fourth.ask() == []


def test_subscriptions_beyond_the_limit_are_refused(start: Start) -> None:
    with Peer(start("max_subscriptions: 2")) as peer:
        assert peer.ask(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n") == [b"-ERR 'maximum subscriptions exceeded'\r\n"]
        assert not peer.is_closed
        assert peer.ask(b"UNSUB 1\r\nSUB d 4\r\nPUB d 0\r\n\r\n") == [b"MSG d 4 0\r\n\r\n"]


def test_payload_beyond_the_limit_closes(start: Start) -> None:
    server = start("max_payload: 100")
    with Peer(server) as peer:
        assert peer.info["max_payload"] == 100
        assert peer.ask(b"PUB a 100\r\n" + b"x" * 100 + b"\r\n") == []
        assert peer.ask(b"PUB a 101\r\n" + b"x" * 101 + b"\r\n") == [b"-ERR 'Maximum Payload Violation'\r\n"]
        assert peer.is_closed
    with Peer(server) as peer:  # headers count
        assert peer.ask(b"HPUB a 12 101\r\n") == [b"-ERR 'Maximum Payload Violation'\r\n"]


def test_control_line_beyond_the_limit_closes(start: Start) -> None:
    server = start("max_control_line: 128")
    with Peer(server) as peer:
        assert peer.ask(b"PUB %s 1\r\nx\r\n" % (b"s" * 120)) == []
        assert peer.ask(b"PUB %s 1\r\nx\r\n" % (b"s" * 130)) == [b"-ERR 'maximum control line exceeded'\r\n"]
        assert peer.is_closed


def test_a_connection_that_never_answers_is_stale(start: Start) -> None:
    server = start('ping_interval: "200ms"\nping_max: 2')
    with Peer(server) as peer:
        said = peer.rest()
    assert said[-1] == b"-ERR 'Stale Connection'\r\n" and said.count(b"PING\r\n") == 2


def test_a_connection_that_answers_pings_stays(start: Start) -> None:
    server = start('ping_interval: "200ms"\nping_max: 2')
    with Peer(server) as peer:
        for _ in range(6):
            while (frame := peer.frame()) != b"PING\r\n":
                assert frame.startswith(b"INFO ")
            peer.send(b"PONG\r\n")
        assert peer.ask() == []


def test_a_slow_consumer_is_cut_off(start: Start) -> None:
    server = start("max_pending: 1MB\nwrite_deadline: 1s")
    with Peer(server) as slow, Peer(server) as fast:
        slow.subscribe("flood")
        chunk = b"PUB flood 100000\r\n" + b"x" * 100_000 + b"\r\n"
        stop = time.monotonic() + 20
        while (varz := server.get("/varz"))["slow_consumers"] == 0:
            assert time.monotonic() < stop, "the slow one is still connected"
            for _ in range(20):
                fast.send(chunk)
            assert fast.ask() == []
        assert varz["slow_consumers"] == 1
        assert fast.ask() == []  # and the other is not disturbed
        slow.socket.settimeout(10)
        slow.rest()
        assert slow.is_closed


def test_a_half_closed_peer_still_gets_what_it_asked_for(server: Server, name: str) -> None:
    with Peer(server) as peer:
        peer.send(f"SUB {name} 1\r\nPUB {name} 1\r\nx\r\nPING\r\n".encode())
        peer.socket.shutdown(socket.SHUT_WR)
        said = peer.rest()
    assert said == [] or said[0].startswith((b"MSG", b"INFO", b"PONG"))


def test_authentication_timeout(start: Start) -> None:
    server = start('authorization { user: a, password: b, timeout: "300ms" }')
    with Peer(server, None) as peer:
        assert peer.rest() == [b"-ERR 'Authentication Timeout'\r\n"]


def test_defaults_of_these_tests_are_understood(server: Server) -> None:
    with Peer(server, None) as peer:
        peer.send(b"CONNECT " + json.dumps(DEFAULTS).encode() + b"\r\n")
        assert peer.ask() == []


NAMES = {
    b"\\ud800": "\ufffd",
    b"\\udc00\\ud800x": "\ufffd\ufffdx",
    b"\\ud83d\\ude00": "😀",
    b"\\\\ud800": "\\ud800",
    b"\\u00e9\\n": "é\n",
    b"\xff": "\ufffd",
    b"\\u0000": "\x00",
}


@pytest.mark.parametrize("text", NAMES, ids=repr)
def test_a_name_may_hold_what_is_no_character(server: Server, text: bytes) -> None:
    with Peer(server, connect=None) as peer:
        assert peer.ask(b'CONNECT {"verbose":false,"name":"%s"}\r\n' % text) == []
        assert not peer.is_closed
        page = server.get(f"/connz?cid={peer.infos[0]['client_id']}")
        assert page["connections"][0]["name"] == NAMES[text]
