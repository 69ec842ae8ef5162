"""HTTP, and the pages that compat tests do not look at; their shapes are compared with nats-server's there."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from jetlake.clock import SECOND_NS
from jetlake.server import monitor
from jetlake.server.observe.process import uptime
from tests.server.harness import LOOPBACK, Peer, get, page, running, until

HTTP = "http: 127.0.0.1:-1\n"


async def raw(server: Any, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(LOOPBACK, server.monitor.port)
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def spoil(store: Path) -> None:
    """Damage what says how stream S is configured."""
    meta = next(store.glob("jetstream/*/streams/S/meta.json"))
    meta.write_bytes(meta.read_bytes()[:-5] + b"junk}")


def spoil_consumer(store: Path) -> None:
    """Damage the file of consumer c of stream S."""
    next(store.glob("jetstream/*/streams/S/consumers/c.*")).write_bytes(b"")


async def test_a_connection_is_kept_for_the_next_request() -> None:
    async with running(HTTP) as server:
        assert server.monitor is not None
        reader, writer = await asyncio.open_connection(LOOPBACK, server.monitor.port)
        for _ in range(3):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"Content-Length: 15\r\n" in head
            assert await reader.readexactly(15) == b'{"status":"ok"}'
        writer.close()


async def test_requests_may_come_before_their_answers() -> None:
    async with running(HTTP) as server:
        two = b"GET /healthz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"
        assert (await raw(server, two)).count(b'{"status":"ok"}') == 2


async def test_old_clients_get_one_answer() -> None:
    async with running(HTTP) as server:
        assert (await raw(server, b"GET /healthz HTTP/1.0\r\n\r\n")).endswith(b'{"status":"ok"}')


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/3.0\r\n\r\n",
        b"GET /varz HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"GET /varz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\xff\r\n\r\n",
        b"GET http://[x/varz HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_refused(data: bytes) -> None:
    async with running(HTTP) as server:
        assert (await raw(server, data)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert (await page(server, "/healthz"))["status"] == "ok"


async def test_only_reading_is_allowed() -> None:
    async with running(HTTP) as server:
        assert (await get(server, "/varz", "POST"))[0] == 405
        status, fields, body = await get(server, "/varz", "HEAD")
        assert status == 200 and body == b"" and int(fields["content-length"]) > 100


async def test_a_silent_peer_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "IDLE_S_MAX", 0.1)
    async with running(HTTP) as server:
        assert await raw(server, b"GET /varz HT") == b""


async def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "CONNECTIONS_MAX", 2)
    async with running(HTTP) as server:
        assert server.monitor is not None
        (idle, _), (busy, writer) = [await asyncio.open_connection(LOOPBACK, server.monitor.port) for _ in range(2)]
        await until(lambda: len(server.monitor._connections) == 2, "both")  # type: ignore[union-attr]
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await busy.readuntil(b"}")).endswith(b'{"status":"ok"}')
        assert (await page(server, "/healthz"))["status"] == "ok"
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(idle.read(), 10) == b""  # it made room
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await busy.readuntil(b"}")).endswith(b'{"status":"ok"}')


async def test_a_page_that_fails_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(HTTP) as server:
        monkeypatch.setitem(monitor._PAGES, "/varz", lambda *_: {"x": 1 // 0})
        two = b"GET /varz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"
        said = await raw(server, two)
        assert said.startswith(b"HTTP/1.1 500 Internal Server Error\r\n") and said.endswith(b'{"status":"ok"}')
        assert server.failed.count == 1


async def test_pages_may_lie_under_a_path() -> None:
    async with running(HTTP + 'http_base_path: "/nats"') as server:
        assert (await page(server, "/nats/healthz"))["status"] == "ok"
        assert (await get(server, "/healthz"))[0] == 404


async def test_the_index_links_to_every_page() -> None:
    async with running(HTTP) as server:
        _, fields, body = await get(server, "/")
        assert fields["content-type"] == "text/html; charset=utf-8"
        for path in ("varz", "connz", "subsz", "jsz", "healthz", "metrics"):
            assert f'href="./{path}"'.encode() in body
            assert (await get(server, f"/{path}"))[0] == 200


async def test_requests_are_counted() -> None:
    async with running(HTTP) as server:
        for path in ("/", "/connz", "/connz", "/nothing"):
            await get(server, path)
        assert (await page(server, "/varz"))["http_req_stats"] == {"/": 1, "/connz": 2, "/varz": 1}


async def test_closed_connections_are_remembered_up_to_a_bound() -> None:
    async with running(HTTP) as server:
        assert server.closed.maxlen == 1000
        for number in range(3):
            peer = await Peer.connect(server, name=f"n{number}")
            await peer.ask("SUB a 1\r\n")
            await peer.close()
        await until(lambda: len(server.closed) == 3, "three closed connections")
        closed = (await page(server, "/connz?state=closed&sort=stop&subs=1"))["connections"]
        assert [one["name"] for one in closed] == ["n2", "n1", "n0"]
        assert {one["reason"] for one in closed} == {"Client Closed"}
        assert closed[0]["subscriptions_list"] == ["a"] and closed[0]["stop"] >= closed[0]["start"]


async def test_connz_filters_by_account_and_user() -> None:
    users = {name: f"{{user: {name}, password: p}}" for name in ("a", "aa", "b")}
    accounts = f"accounts {{ A {{ users: [{users['a']}, {users['aa']}] }}, B {{ users: [{users['b']}] }} }}"
    async with running(HTTP + accounts) as server:
        peers = [await Peer.connect(server, user=user, **{"pass": "p"}) for user in users]
        for peer in peers:
            await peer.ask()
        found = await page(server, "/connz?acc=A&auth=1")
        assert [one["authorized_user"] for one in found["connections"]] == ["a", "aa"] and found["total"] == 2
        assert [one["account"] for one in (await page(server, "/connz?user=b&auth=true"))["connections"]] == ["B"]


async def test_an_offline_stream_is_unhealthy(tmp_path: Path) -> None:
    async with running(HTTP, tmp_path) as server:
        peer = await Peer.connect(server)
        for name in ("S", "T"):
            await peer.request(f"$JS.API.STREAM.CREATE.{name}", f'{{"name":"{name}"}}')
    spoil(tmp_path)
    async with running(HTTP, tmp_path) as server:
        status, _, body = await get(server, "/healthz")
        assert status == 503 and json.loads(body)["status"] == "unavailable" and "'S'" in json.loads(body)["error"]
        assert (await get(server, "/healthz?js-enabled-only=true"))[0] == 200
        assert (await page(server, "/healthz?account=$G&stream=T"))["status"] == "ok"
        assert server.log_lines.has("Healthcheck failed")


async def test_an_offline_consumer_is_unhealthy(tmp_path: Path) -> None:
    async with running(HTTP, tmp_path) as server:
        peer = await Peer.connect(server)
        for name in ("S", "T"):
            await peer.request(f"$JS.API.STREAM.CREATE.{name}", f'{{"name":"{name}"}}')
        for name in ("c", "d"):
            body = f'{{"stream_name":"S","config":{{"durable_name":"{name}","ack_policy":"none"}}}}'
            await peer.request(f"$JS.API.CONSUMER.CREATE.S.{name}", body)
    spoil_consumer(tmp_path)
    async with running(HTTP, tmp_path) as server:
        status, _, body = await get(server, "/healthz?details=1")
        assert status == 503 and json.loads(body)["errors"][0]["consumer"] == "c"
        assert (await get(server, "/healthz?account=$G&stream=S&consumer=c"))[0] == 503
        assert (await page(server, "/healthz?account=$G&stream=S&consumer=d"))["status"] == "ok"
        assert (await page(server, "/healthz?account=$G&stream=T"))["status"] == "ok"


async def test_a_server_that_leaves_is_unhealthy() -> None:
    async with running(HTTP) as server:
        server.close_listeners()
        assert (await get(server, "/healthz"))[0] == 500


async def test_metrics_are_prometheus_text(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    async with running(HTTP, tmp_path) as server:
        peer = await Peer.connect(server)
        await peer.request("$JS.API.STREAM.CREATE.S", '{"name":"S","subjects":["s"]}')
        await peer.request("s", "hello")
        _, fields, body = await get(server, "/metrics")
        assert fields["content-type"].startswith("text/plain; version=0.0.4")
        samples = {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
        assert samples["jetlake_open_connections",] == 1 and samples["jetlake_received_messages_total",] == 2
        assert samples["jetlake_stream_messages", "$G", "S"] == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59, "59s"), (61, "1m1s"), (3600, "1h0m0s"), (90_061, "1d1h1m1s"), (86_400 * 400, "1y35d0h0m0s")],
)
def test_uptime_is_written_as_nats_server_does(seconds: int, text: str) -> None:
    assert uptime(seconds * SECOND_NS) == text


async def test_names_that_are_not_utf8_are_shown_on_every_page(tmp_path: Path) -> None:
    async with running(HTTP, tmp_path) as server:
        peer = await Peer.connect(server, name="é\n")
        body = b'{"stream_name":"S","config":{"inactive_threshold":60000000000}}'
        peer.send("SUB in.* 1\r\n")
        await peer.request("$JS.API.STREAM.CREATE.S", '{"name":"S","subjects":["s.>"]}')
        for name in (b"\xff", b"\xfe"):
            head = b"PUB $JS.API.CONSUMER.CREATE.S.%s in.x %d\r\n" % (name, len(body))
            peer.send(head + body + b"\r\nSUB x.%s q%s %s\r\n" % (name, name, name))
        assert server.jetstream is not None
        streams = server.jetstream.accounts["$G"].streams
        await until(lambda: len(streams["S"].consumers) == 2, "both consumers")
        for path in ("/connz?subs=detail", "/subsz?subs=1", "/jsz?consumers=1", "/accountz?acc=$G"):
            assert (await get(server, path))[0] == 200
        _, _, metrics = await get(server, "/metrics")
        assert b'consumer="\\\\xff"' in metrics and b'consumer="\\\\xfe"' in metrics
        assert b"jetlake_internal_errors_total 0.0" in metrics and server.failed.count == 0
