from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from jetlake.jetstream.streams.stream import Stream
from tests.server.harness import Peer, Running, running, until


def hurry(server: Running, grace_s: float, duration_s: float) -> None:
    """Shorter times than a configuration may ask for."""
    short = {"lame_duck_grace_period_s": grace_s, "lame_duck_duration_s": duration_s}
    server.use_options(replace(server.options, **short))


async def test_clients_are_told_then_let_go_one_by_one() -> None:
    async with running() as server:
        hurry(server, 0.1, 0.3)
        peers = [await Peer.connect(server) for _ in range(3)]
        old = await Peer.connect(server, protocol=0)
        for peer in (*peers, old):
            await peer.ask(), await peer.ask()
        server.lame_duck_soon()
        server.lame_duck_soon()  # which changes nothing
        await until(lambda: server.broker.is_lame_duck, "lame duck mode")
        assert (await peers[0].line()).startswith("INFO") and peers[0].info["ldm"] is True
        assert await peers[0].ask("SUB a 1\r\nPUB a 2\r\nhi\r\n") == ["MSG a 1 2", "hi"]
        for peer in (*peers, old):
            assert await peer.rest() == []
        assert all(peer.info["ldm"] for peer in peers) and "ldm" not in old.info
        await until(server.stopped.is_set, "the end")


async def test_nobody_is_accepted_any_more() -> None:
    async with running() as server:
        hurry(server, 0.2, 0.3)
        peer = await Peer.connect(server)
        await peer.ask()
        server.lame_duck_soon()
        await until(lambda: server.broker.is_lame_duck, "lame duck mode")
        try:
            await Peer.open(server)
        except OSError:
            pass
        else:
            raise AssertionError("a client was accepted")


async def test_a_server_without_clients_stops_at_once() -> None:
    async with running() as server:
        server.lame_duck_soon()
        await until(server.stopped.is_set, "the end", 2)


async def test_streams_are_stopped_and_clients_are_told_so(tmp_path: Path) -> None:
    async with running("", tmp_path) as server:
        hurry(server, 0.3, 0.4)
        peer = await Peer.connect(server)
        await peer.request("$JS.API.STREAM.CREATE.S", '{"name":"S","subjects":["s"]}')
        assert (await peer.request("s", "hi"))["seq"] == 1
        server.lame_duck_soon()
        await until(lambda: server.jetstream is None, "streams to stop")
        assert "503" in await peer.request("$JS.API.STREAM.INFO.S")
        assert "503" in await peer.request("s", "more")
    async with running("", tmp_path) as server:
        peer = await Peer.connect(server)
        assert (await peer.request("$JS.API.STREAM.INFO.S"))["state"]["messages"] == 1


@pytest.mark.parametrize("is_slow", [False, True], ids=["stop", "lame duck"])
async def test_a_server_that_is_told_to_stop_stops_whatever_fails(
    is_slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running("", tmp_path) as server:
        peer = await Peer.connect(server)
        await peer.request("$JS.API.STREAM.CREATE.S", '{"name":"S","subjects":["s"]}')
        monkeypatch.setattr(Stream, "close", lambda self: 1 // 0)
        monkeypatch.setattr(server, "_until_sent", lambda: 1 // 0)
        monkeypatch.setattr(server.events, "leaving", lambda how: 1 // 0)
        server.lame_duck_soon() if is_slow else server.stop_soon()
        await asyncio.wait_for(server.stopped.wait(), 10)
        assert server.log_lines.has("shutdown failed: ZeroDivisionError")
    assert server.log_lines.has("Server Exiting..")
