"""What compat tests do not compare with nats-server: INFO in every mode, and the answers to bad requests for pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, LOOPBACK, NATS_SERVER, Server
from tests.server.certificates import Certificates

VARY = {"server_id", "server_name", "client_id", "port", "go", "git_commit", "nonce", "xkey"}
NKEY = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"
A = {"user": "a", "pass": "p"}
USER = "{user: a, password: p}"
MODES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("ping_max: 2", {}),
    "streams": ("jetstream { domain: hub }", {}),
    "one user": ("authorization { user: a, password: p }", A),
    "token": ("authorization { token: t }", {"auth_token": "t"}),
    "users": (f"authorization {{ users: [{USER}] }}", A),
    "nkeys": (f"authorization {{ users: [{{nkey: {NKEY}}}, {USER}] }}", A),
    "a user for nobody": (f"no_auth_user: a\nauthorization {{ users: [{USER}] }}", {}),
    "account": (f"accounts {{ A {{ users: [{USER}], limits {{ max_payload: 10 }} }} }}", A),
    "system account": (f"accounts {{ $SYS {{ users: [{USER}] }} }}", A),
    "own system account": (f"system_account: S\naccounts {{ S {{ users: [{USER}] }} }}", A),
    "without headers": ("no_header_support: true", {"headers": False, "no_responders": False}),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def infos(server: Server, **options: Any) -> list[dict[str, Any]]:
    with server, Peer(server, **options) as peer:
        peer.ask()
        peer.ask()
        return [
            {key: len(str(value)) if key == "nonce" else value for key, value in info.items()} for info in peer.infos
        ]


def comparable(info: dict[str, Any]) -> dict[str, Any]:
    return {key: None if key in VARY - {"nonce"} else value for key, value in info.items() if key != "xkey"}


@pytest.mark.parametrize("mode", MODES)
def test_info_is_the_same(tmp_path: Path, mode: str) -> None:
    config, options = MODES[mode]
    real, ours = (infos(Server(kind, tmp_path / kind, (), config), **options) for kind in (NATS_SERVER, JETLAKE))
    assert [comparable(info) for info in ours] == [comparable(info) for info in real]


@pytest.mark.parametrize(
    ("extra", "more", "is_first"),
    [("", "", False), ("handshake_first: true", "", True), ("", "allow_non_tls: true", False)],
)
def test_info_through_tls_is_the_same(
    tmp_path: Path, certificates: Certificates, extra: str, more: str, is_first: bool
) -> None:
    options = {"tls": certificates.context(), "tls_first": is_first}
    config = certificates.block(extra) + more
    real, ours = (infos(Server(kind, tmp_path / kind, (), config), **options) for kind in (NATS_SERVER, JETLAKE))
    assert [comparable(info) for info in ours] == [comparable(info) for info in real]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    servers = []
    with ExitStack() as stack:
        for kind in (NATS_SERVER, JETLAKE):
            server = stack.enter_context(Server(kind, tmp_path_factory.mktemp(kind), ["-js", "-n", "same"]))
            with Peer(server) as peer:
                peer.api("STREAM.CREATE.T", {"name": "T"})
            servers.append(server)
        yield servers


def answer(server: Server, path: str) -> tuple[int, str, Any]:
    try:
        with urlopen(f"http://{LOOPBACK}:{server.http_port}{path}", timeout=10) as found:
            status, kind, body = found.status, found.headers["Content-Type"], found.read().decode()
    except HTTPError as error:
        status, kind, body = error.code, error.headers["Content-Type"], error.read().decode()
    return status, kind, json.loads(body) if kind == "application/json" else body


@pytest.mark.parametrize(
    "path",
    [
        "/connz?sort=colour",
        "/connz?sort=stop",
        "/connz?sort=reason",
        "/connz?limit=x",
        "/connz?offset=1.5",
        "/connz?cid=-1",
        "/connz?state=lost",
        "/connz?subs=maybe",
        "/connz?auth=2",
        "/subsz?test=a.*",
        "/subsz?subs=x",
        "/jsz?streams=x",
        "/jsz?limit=x",
        "/accountz?acc=nobody",
        "/accstatz?unused=x",
        "/healthz?details=x",
        "/healthz?stream=S",
        "/healthz?consumer=C",
        "/healthz?account=$G&stream=S",
        "/healthz?account=$G&stream=S&details=1",
        "/healthz?account=$G&stream=T&consumer=C",
        "/healthz?account=nobody",
        "/nothing",
    ],
)
def test_bad_requests_for_pages_get_the_same_answers(pair: list[Server], path: str) -> None:
    real, ours = (answer(server, path) for server in pair)
    assert ours == real


@pytest.mark.parametrize("path", ["/routez", "/gatewayz", "/leafz", "/accountz", "/accstatz", "/accstatz?unused=1"])
def test_pages_of_a_single_server_have_the_same_keys(pair: list[Server], path: str) -> None:
    real, ours = (answer(server, path)[2] for server in pair)
    assert ours.keys() == real.keys()
    assert {key: type(value) for key, value in ours.items()} == {key: type(value) for key, value in real.items()}
