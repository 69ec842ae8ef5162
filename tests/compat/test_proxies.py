"""Clients behind proxies: the PROXY protocol, and proxies that sign."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetlake import nkeys
from jetlake.nkeys import KeyPair
from tests.compat.conftest import Start
from tests.compat.peer import DEFAULTS, Peer
from tests.compat.servers import LOOPBACK, Server
from tests.server.certificates import Certificates

REFUSED = [b"-ERR 'Authorization Violation'\r\n"]
CONNECT = b"CONNECT " + json.dumps(DEFAULTS).encode() + b"\r\n"
SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
ADDRESSES = socket.inet_aton("9.8.7.6") + socket.inet_aton("1.1.1.1") + b"\x15\xb3\x10\x7e"
BLOCK = SIGNATURE + b"\x21\x11\x00\x0c" + ADDRESSES
LINE = b"PROXY TCP4 9.8.7.6 10.0.0.1 5555 4222\r\n"


def test_a_proxy_says_whom_it_stands_for(start: Start) -> None:
    server = start("proxy_protocol: true")
    for header in (LINE, BLOCK):
        with Peer(server, None) as peer:
            assert "client_ip" not in peer.info
            peer.send(header + CONNECT)
            assert peer.ask() == peer.ask() == [] and peer.info["client_ip"] == "9.8.7.6"
            shown = [(found["ip"], found["port"]) for found in server.get("/connz")["connections"]]
            assert shown == [("9.8.7.6", 5555)]


def test_a_header_may_come_in_pieces(start: Start) -> None:
    server = start("proxy_protocol: true")
    with Peer(server, None) as peer:
        for byte in LINE:
            peer.send(bytes([byte]))
        peer.send(CONNECT)
        assert peer.ask() == peer.ask() == [] and peer.info["client_ip"] == "9.8.7.6"


def test_a_client_without_a_proxy_is_welcome(start: Start) -> None:
    server = start("proxy_protocol: true")
    for header in (b"", b"PROXY UNKNOWN\r\n", SIGNATURE + b"\x20\x00\x00\x00"):
        with Peer(server, None) as peer:
            peer.send(header + CONNECT)
            assert peer.ask() == peer.ask() == [] and peer.info["client_ip"] == LOOPBACK


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 9.8.7.6\r\n",
        b"PROXY TCP4 x y 1 2\r\n",
        b"PROXY " + b"x" * 200 + b"\r\n",
        SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12),
        SIGNATURE + b"\x21\x11\x00\x02" + bytes(2),
    ],
)
def test_a_broken_header_ends_the_connection(proxied: Server, header: bytes) -> None:
    with Peer(proxied, None) as peer:
        peer.send(header + CONNECT)
        peer.ask()
        assert peer.is_closed
    with Peer(proxied) as peer:
        assert peer.ask() == []


@pytest.fixture(scope="module")
def proxied(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(kind, tmp_path_factory.mktemp(kind), [], "proxy_protocol: true") as server:
        yield server


def test_a_header_comes_ahead_of_tls(start: Start, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    server = start(certificates.block() + "\nproxy_protocol: true")
    with Peer(server, None) as peer:
        peer.send(LINE)
        peer.socket = certificates.context().wrap_socket(peer.socket, server_hostname="localhost")
        peer.send(CONNECT)
        assert peer.ask() == peer.ask() == [] and peer.info["client_ip"] == "9.8.7.6"


# Proxies that sign


def signature(key: KeyPair, nonce: str) -> str:
    return base64.urlsafe_b64encode(key.sign(nonce.encode())).decode().rstrip("=")


def test_users_that_have_to_come_through_a_trusted_proxy(start: Start) -> None:
    proxy, stranger = KeyPair(nkeys.SERVER), KeyPair(nkeys.SERVER)
    server = start(
        f"proxies {{ trusted: [ {{key: {proxy.public}}} ] }}\n"
        "authorization { users: [ {user: a, password: p, proxy_required: true}, {user: b, password: p} ] }"
    )

    def login(user: str, key: KeyPair | None) -> list[bytes]:
        with Peer(server, None) as peer:
            signed = {"proxy_sig": signature(key, peer.info["nonce"])} if key else {}
            options = {**DEFAULTS, "user": user, "pass": "p", **signed}
            peer.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
            said = peer.ask()
            if not said and key:
                [found] = server.get("/connz")["connections"]
                assert found["proxy"] == {"key": key.public}
            return said

    assert login("a", proxy) == login("b", proxy) == login("b", None) == []
    assert login("a", None) == login("a", stranger) == login("b", stranger) == REFUSED
