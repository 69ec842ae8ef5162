"""server/links/routes.py: routes in the test's own process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from jetlake.broker.route import Route
from jetlake.server.links.connection import RouteConnection
from jetlake.server.links.routes import Routes
from tests.server.harness import LOOPBACK, Peer, Running, running, until

CLUSTER = f'cluster {{ name: C, listen: "{LOOPBACK}:-1" }}'
CONNECT = b'CONNECT {"name":"RAW","cluster":"C"}\r\n'


def config(name: str, *others: Running, cluster: str = "") -> str:
    urls = ", ".join(f'"nats-route://{LOOPBACK}:{port(other)}"' for other in others)
    return f'server_name: {name}\ncluster {{ name: C, listen: "{LOOPBACK}:-1", routes: [{urls}]\n {cluster} }}'


def port(server: Running) -> int:
    assert server.routes.listener is not None
    return server.routes.listener.port


async def dial(server: Running, said: bytes = b"") -> Peer:
    """A connection to the cluster port that has said something."""
    peer = Peer(*await asyncio.open_connection(LOOPBACK, port(server)))
    assert (await peer.line()).startswith("INFO ")
    peer.send(said)
    return peer


async def linked(*servers: Running) -> None:
    await until(lambda: all(len(server.routes.open) == len(servers) - 1 for server in servers), "routes")


async def test_two_servers_are_linked_and_told_of_each_other() -> None:
    async with running(config("A")) as a, running(config("B", a)) as b:
        b.routes.identity = {"node": "b"}
        await linked(a, b)
        (route,) = a.routes.open.values()
        assert route.server_name == "B" and not route.did_solicit
        assert b.ports(b.options)["cluster"] == [f"nats://{LOOPBACK}:{port(b)}"]


async def test_what_jetlake_servers_tell_each_other_is_in_info() -> None:
    async with running(config("A")) as a:
        a.routes.identity = {"node": "a", "proto": 1}
        peer = await dial(a, CONNECT + b'INFO {"server_id":"RAW","cluster":"C","jetlake":{"node":"raw"}}\r\n')
        assert peer.info["jetlake"] == {"node": "a", "proto": 1}
        await until(lambda: "RAW" in a.routes.open, "the route")
        info = a.routes.open["RAW"].info
        assert info is not None and info.jetlake == {"node": "raw"}
        await peer.close()


class Echo(asyncio.Protocol):
    """What somebody else speaks on the same port."""

    transport: asyncio.Transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


async def test_a_connection_is_handed_to_whoever_wants_its_kind() -> None:
    async with running(config("A")) as server:
        said: list[Any] = []

        def switch(kind: str, args: bytes, connection: RouteConnection) -> None:
            echo = Echo()
            echo.transport, rest = connection.take_over(echo)
            said.append((kind, args, rest))
            echo.transport.resume_reading()

        server.routes.on_switch["RAFT"] = switch
        peer = await dial(server, CONNECT + b"RAFT 7 3\r\nfirst")
        await until(lambda: bool(said), "the switch")
        assert said == [("RAFT", b"7 3", b"first")]
        peer.send(b"more\n")
        assert await peer.line() == "MORE"
        refused = await dial(server, CONNECT + b"COPY {}\r\n")
        assert await refused.rest() == ["-ERR 'Unknown Protocol Operation'"]
        early = await dial(server, b"RAFT 7 3\r\n")
        assert await early.rest() == ["-ERR 'Unknown Protocol Operation'"]
        await peer.close()


async def test_a_slow_password_is_waited_for() -> None:
    bcrypt = pytest.importorskip("bcrypt")
    hashed = bcrypt.hashpw(b"p", bcrypt.gensalt(5, b"2a")).decode()
    text = config("A", cluster=f"authorization {{ user: u, password: {json.dumps(hashed)} }}")
    async with running(text) as server:
        info = b'INFO {"server_id":"RAW","server_name":"RAW","cluster":"C"}\r\n'
        good = await dial(server, b'CONNECT {"user":"u","pass":"p","cluster":"C"}\r\n' + info + b"RS+ $G a\r\n")
        await until(lambda: "RAW" in server.routes.open, "the route")
        assert server.broker.default_account.has_interest(b"a")
        bad = await dial(server, b'CONNECT {"user":"u","pass":"x","cluster":"C"}\r\n' + info + b"RS+ $G b\r\n")
        assert await bad.rest() == ["-ERR 'Authorization Violation'"]
        assert not server.broker.default_account.has_interest(b"b") and server.broker.auth_errors == 1
        await good.close()


async def test_both_connections_are_tried_again_if_each_side_kept_the_other_one() -> None:
    """A and B connect to each other at the same time, and each of them drops the connection that the other keeps."""
    async with running(config("A")) as a, running(config("B")) as b:
        for server, other in ((a, b), (b, a)):
            server.routes._dialer.dial(f"nats-route://{LOOPBACK}:{port(other)}", is_explicit=False)
        await linked(a, b)
        await asyncio.sleep(0.3)
        await linked(a, b)
        assert len(a.broker.routes) == len(b.broker.routes) == 1


async def test_a_route_that_is_lost_at_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side hangs up as soon as it is connected to, before the task that connected has come to its end."""
    monkeypatch.setattr("jetlake.server.links.route_dial.WAIT_S", 0.01)
    seen = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        writer.write(b'INFO {"server_id":"X","cluster":"OTHER"}\r\n')
        writer.close()

    other = await asyncio.start_server(hang_up, LOOPBACK, 0)
    url = f"nats-route://{LOOPBACK}:{other.sockets[0].getsockname()[1]}"
    async with running(f'cluster {{ name: C, listen: "{LOOPBACK}:-1", routes: ["{url}"] }}'):
        await until(lambda: seen >= 20, "many tries")
    other.close()


async def test_a_server_that_others_told_of_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.server.links.route_dial.WAIT_S", 0.01)
    async with running("debug: true\n" + config("A", cluster="connect_retries: 2")) as server:
        gone = await asyncio.start_server(lambda reader, writer: None, LOOPBACK, 0)
        address = gone.sockets[0].getsockname()
        gone.close()
        info = {"server_id": "GONE", "cluster": "C", "host": LOOPBACK, "port": address[1]}
        info["ip"] = f"nats-route://{LOOPBACK}:{address[1]}/"
        peer = await dial(server, CONNECT + b'INFO {"server_id":"RAW","cluster":"C"}\r\n')
        peer.send(f"INFO {json.dumps(info)}\r\n")
        await until(lambda: server.log_lines.has("(attempt 3)"), "the last try")
        await until(lambda: not server.routes._dialer._tasks, "the end of it")
        assert not server.log_lines.has("(attempt 4)")
        await peer.close()


@pytest.mark.parametrize("ip", ["", "nats-route://", "nats-route://a:x/", "\x00"])
async def test_news_of_a_server_that_cannot_be_reached_change_nothing(ip: str) -> None:
    async with running(config("A")) as server:
        peer = await dial(server, CONNECT + b'INFO {"server_id":"RAW","cluster":"C"}\r\n')
        await peer.ask("INFO " + json.dumps({"server_id": "X", "cluster": "C", "ip": ip}) + "\r\n")
        assert server.log_lines.has("Error parsing URL from INFO") and set(server.routes.open) == {"RAW"}
        await peer.close()


def test_of_two_names_that_were_made_up_the_greater_one_counts() -> None:
    class Silent:
        def log(self, level: str, line: str) -> None: ...
        def show_features(self) -> None: ...

    routes = Routes.__new__(Routes)
    routes._server, routes.open = Silent(), {}  # type: ignore[assignment]
    routes.name, routes.is_dynamic = "M", True
    assert not routes._agree("A", True, "x") and routes.name == "M"
    assert routes._agree("Z", True, "x") and (routes.name, routes.is_dynamic) == ("Z", True)
    assert routes._agree("A", False, "x") and (routes.name, routes.is_dynamic) == ("A", False)
    assert not routes._agree("Z", False, "x")


async def test_a_route_that_takes_nothing_is_closed_and_others_go_on() -> None:
    async with running("max_pending: 1MB\n" + config("A")) as server:
        peer = await dial(server, CONNECT + b'INFO {"server_id":"RAW","cluster":"C"}\r\nRS+ $G x\r\n')
        await until(lambda: "RAW" in server.routes.open, "the route")
        route = server.routes.open["RAW"]
        client = await Peer.connect(server)
        await client.ask("SUB x 1\r\n")
        for _ in range(200):
            client.send(b"PUB x 50000\r\n" + b"x" * 50000 + b"\r\n")
            await client.line(), await client.line()
            if route.is_closed:
                break
        assert isinstance(route, Route) and route.close_reason.startswith("Slow Consumer")
        assert (await client.ask("PUB x 1\r\n1\r\n"))[-2:] == ["MSG x 1 1", "1"]
        await peer.close()
