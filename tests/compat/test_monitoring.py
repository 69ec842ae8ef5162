"""Monitoring over HTTP: the same paths, the same shapes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.compat.conftest import ONLY, Pair, Start
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, LOOPBACK, NATS_SERVER, Server


def shape(value: Any) -> Any:
    """The keys and types of a JSON value; a list has one member, with all that its members have."""
    if isinstance(value, dict):
        return {key: shape(member) for key, member in value.items()}
    if isinstance(value, list):
        shapes = [shape(member) for member in value]
        return (
            [{k: v for one in shapes for k, v in one.items()} if isinstance(shapes[0], dict) else shapes[0]]
            if value
            else []
        )
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def missing(real: Any, ours: Any, path: str = "") -> list[str]:
    """Where `ours` lacks what `real` has, or has another type."""
    if isinstance(real, dict) and isinstance(ours, dict):
        return [problem for key, value in real.items() for problem in missing(value, ours.get(key), f"{path}.{key}")]
    if isinstance(real, list) and isinstance(ours, list):
        return missing(real[0], ours[0], f"{path}[]") if real and ours else []
    return [] if real == ours else [f"{path}: {real} there, {ours} here"]


# What belongs to parts that a single server without cluster, leaf nodes, gateways, MQTT and Go does not have.
ELSEWHERE = {
    "cluster", "gateway", "leaf", "mqtt", "websocket", "ocsp_peer_cache", "gitCommit", "git_commit", "go", "gomaxprocs",
    "gomemlimit", "routes", "remotes", "leafnodes", "stale_connection_stats", "slow_consumer_stats", "xkey",
    "pinned_account_fails", "http_req_stats", "system_account", "stalled_clients",
}  # fmt: skip


def without(value: Any, names: set[str]) -> Any:
    return {key: member for key, member in value.items() if key not in names}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Fresh servers with the same connection, subscription and stream each."""
    with ExitStack() as stack:
        servers = []
        for kind in (ONLY or NATS_SERVER, ONLY or JETLAKE):
            server = stack.enter_context(Server(kind, tmp_path_factory.mktemp("watched")))
            peer = stack.enter_context(Peer(server, name="watched", lang="test", version="1"))
            peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "metadata": {"a": "b"}})
            peer.request("s.a", b"x")
            peer.subscribe("in.>", "1", "workers")
            servers.append(server)
        yield Pair(*servers)


@pytest.mark.parametrize(
    "path",
    ["/varz", "/connz", "/connz?subs=1", "/connz?subs=detail", "/connz?auth=1", "/subsz", "/subsz?subs=1", "/jsz",
     "/jsz?streams=1",
     "/jsz?accounts=1", "/jsz?streams=1&config=1", "/jsz?raft=1", "/healthz"],
)  # fmt: skip
def test_pages_have_the_same_shape(watched: Pair, path: str) -> None:
    assert missing(*(without(shape(server.get(path)), ELSEWHERE) for server in watched)) == []


def test_varz_counts(start: Start) -> None:
    server = start("", "-js", "-n", "counted")
    with Peer(server) as peer:
        peer.subscribe("a")
        peer.ask(b"PUB a 5\r\nhello\r\nPUB b 3\r\nbye\r\n")
        varz = server.get("/varz")
        assert varz["connections"] == 1 and varz["total_connections"] == 1 and varz["server_name"] == "counted"
        assert (varz["in_msgs"], varz["in_bytes"], varz["out_msgs"], varz["out_bytes"]) == (2, 8, 1, 5)
        assert varz["version"] == "2.15.1" and varz["port"] == server.port and varz["max_payload"] == 1048576
        assert varz["mem"] > 0 and varz["slow_consumers"] == 0
        assert varz["jetstream"]["config"]["store_dir"].startswith(str(server.store))


def test_connz_shows_a_connection(start: Start) -> None:
    server = start()
    with Peer(server, name="me", lang="test", version="1.2") as peer:
        peer.subscribe("a.b", "s1", "q")
        peer.ask(b"PUB x 5\r\nhello\r\n")
        connz = server.get("/connz?subs=1")
        assert connz["num_connections"] == 1 and connz["total"] == 1
        (connection,) = connz["connections"]
        assert connection["cid"] == peer.info["client_id"] and connection["ip"] == "127.0.0.1"
        assert (connection["name"], connection["lang"], connection["version"]) == ("me", "test", "1.2")
        assert (connection["in_msgs"], connection["in_bytes"], connection["subscriptions"]) == (1, 5, 1)
        assert connection["subscriptions_list"] == ["a.b"]
        assert server.get(f"/connz?cid={connection['cid']}")["num_connections"] == 1
        (detail,) = server.get("/connz?subs=detail")["connections"][0]["subscriptions_list_detail"]
        assert (detail["subject"], detail["qgroup"], detail["sid"]) == ("a.b", "q", "s1")


def test_connz_pages_and_sorts(start: Start) -> None:
    server = start()
    with Peer(server) as one, Peer(server) as two, Peer(server) as three:
        one.ask(), three.ask(), two.ask(b"PUB x 0\r\n\r\n" * 5)
        first = server.get("/connz?limit=1&sort=msgs_from")
        assert first["connections"][0]["cid"] == two.info["client_id"]
        assert (first["num_connections"], first["total"], first["limit"]) == (1, 3, 1)
        assert len(server.get("/connz?offset=2")["connections"]) == 1
        assert server.get("/connz?mqtt_client=x")["connections"] == []
        with pytest.raises(HTTPError) as refused:
            server.get("/connz?sort=colour")
        assert refused.value.code == 400


def test_jsz_counts(start: Start) -> None:
    server = start("", "-js")
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for _ in range(3):
            peer.request("s", b"hello")
        jsz = server.get("/jsz?streams=1&accounts=1")
        assert (jsz["streams"], jsz["messages"], jsz["bytes"]) == (1, 3, 3 * 36)
        (stream,) = jsz["account_details"][0]["stream_detail"]
        assert stream["name"] == "S" and stream["state"]["messages"] == 3


def test_health(start: Start) -> None:
    server = start("", "-js")
    assert server.get("/healthz") == {"status": "ok"}
    assert server.get("/healthz?js-enabled-only=true") == {"status": "ok"}
    assert server.get("/healthz?js-server-only=true") == {"status": "ok"}


def test_health_without_jetstream(start: Start) -> None:
    server = start()
    assert server.get("/healthz") == {"status": "ok"}
    assert server.get("/healthz?js-enabled-only=true") == {"status": "ok"}  # 2.15.1 asks for it only where configured


def test_unknown_page(server: Server) -> None:
    with pytest.raises(HTTPError) as unknown:
        server.get("/nothing")
    assert unknown.value.code == 404


def test_metrics(server: Server, peer: Peer) -> None:
    """Prometheus metrics are JetLake's own: nats-server leaves them to an exporter."""
    if server.kind != JETLAKE:
        with pytest.raises(HTTPError):
            server.get("/metrics")
        return
    with urlopen(f"http://{LOOPBACK}:{server.http_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert "# TYPE " in text and "jetlake_" in text


def test_connections_that_ask_for_nothing_lock_nobody_out(start: Start) -> None:
    server = start()
    idle = [socket.create_connection((LOOPBACK, server.http_port), timeout=10) for _ in range(300)]
    for slow in idle[200:]:
        slow.send(b"GET /healthz HTTP/1.1\r\nHost:")
    for _ in range(3):
        assert server.get("/healthz")["status"] == "ok"
    for each in idle:
        each.close()
