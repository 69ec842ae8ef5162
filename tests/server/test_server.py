from __future__ import annotations

import asyncio
import gc
import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from jetlake.errors import StoreLocked
from jetlake.server.address import ListenFailed
from jetlake.server.server import Server
from tests.server.harness import Lines, Peer, options, running, until


async def test_start_up_lines_come_in_nats_servers_order(tmp_path: Path) -> None:
    async with running("http: 127.0.0.1:-1\nauthorization { token: plain }", tmp_path) as server:
        lines = server.log_lines.lines
    order = [
        "[info] Starting jetlake",
        "  Version:  2.15.1",
        "  Git:      [",
        "  Name:     ",
        "  ID:       N",
        "[warning] Plaintext passwords detected, use nkeys or bcrypt",
        "Starting http monitor on 127.0.0.1:",
        "Starting JetStream",
        "JETSTREAM ------",
        "  Max Memory:",
        f'Store Directory: "{tmp_path}/jetstream"',
        "Listening for client connections on 127.0.0.1:",
        "[info] Server is ready",
        "Initiating Shutdown...",
        "JetStream Shutdown",
        "Server Exiting..",
    ]
    found = [next(number for number, line in enumerate(lines) if text in line) for text in order]
    assert found == sorted(found)
    assert "kernels" in lines[0]


async def test_warnings_of_the_configuration_are_logged() -> None:
    async with running("leafnodes { host: 127.0.0.1, port: -1, write_deadline: 1s }") as server:
        assert server.log_lines.has("'write_deadline' in leafnodes is not supported yet")
        assert server.log_lines.has("Listening for leafnode connections on 127.0.0.1:")


async def test_a_port_in_use_stops_the_start_and_lets_everything_go(tmp_path: Path) -> None:
    async with running() as other:
        taken = replace(options("", tmp_path), port=other.port, pid_file=str(tmp_path / "pid"))
        with pytest.raises(ListenFailed):
            await Server(taken, Lines()).run()
        assert not (tmp_path / "pid").exists()
        async with running("", tmp_path):  # the directory's lock is free again
            pass


async def test_a_directory_in_use_stops_the_start(tmp_path: Path) -> None:
    async with running("", tmp_path):
        with pytest.raises(StoreLocked, match=str(tmp_path)):
            await Server(options("", tmp_path), Lines()).run()


async def test_the_ports_file_says_where_the_server_is(tmp_path: Path) -> None:
    async with running(f'ports_file_dir: "{tmp_path}"\nhttp: 127.0.0.1:-1') as server:
        assert server.monitor is not None
        ports = json.loads((tmp_path / f"nats-server_{os.getpid()}.ports").read_text())
        assert ports["nats"] == [f"nats://127.0.0.1:{server.port}"]
        assert ports["monitoring"] == [f"http://127.0.0.1:{server.monitor.port}"]
    assert os.listdir(tmp_path) == []


async def test_a_stop_delivers_the_acknowledgements_that_are_due(tmp_path: Path) -> None:
    async with running("", tmp_path) as server:
        peer = await Peer.connect(server)
        await peer.request("$JS.API.STREAM.CREATE.S", '{"name":"S","subjects":["s"]}')
        await peer.ask("SUB acks 1\r\n")
        peer.send("PUB s acks 2\r\nhi\r\n" * 500)
        await peer.writer.drain()
        client = next(iter(server.broker.clients.values()))
        await until(lambda: client.in_msgs >= 500, "the messages")
        await server.stop()
        lines = await peer.rest()
        assert sum(line.startswith("MSG acks") for line in lines) == 500
    async with running("", tmp_path) as server:
        info = await (await Peer.connect(server)).request("$JS.API.STREAM.INFO.S")
        assert info["state"]["messages"] == 500


async def test_a_stop_does_not_wait_for_a_peer_that_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.server.server.STOP_S_MAX", 0.2)
    async with running() as server:
        slow, fast = await Peer.connect(server), await Peer.connect(server)
        await slow.ask("SUB flood 1\r\n")
        slow.writer.transport.pause_reading()
        for _ in range(8):
            await fast.ask("PUB flood 1000000\r\n" + "x" * 1_000_000 + "\r\n")
        async with asyncio.timeout(3):
            await server.stop()


async def test_stopping_twice_is_stopping_once() -> None:
    async with running() as server:
        await asyncio.gather(server.stop(), server.stop())
        assert server.log_lines.lines.count("[info] Server Exiting..") == 1


async def test_a_server_without_a_directory_of_its_own_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with running("jetstream: enabled") as server:
        assert server.log_lines.has("Temporary storage directory used")
        assert (tmp_path / "jetlake" / "jetstream").is_dir()


async def test_garbage_is_collected_once_the_server_runs() -> None:
    server = Server(options(), Lines())
    gc.disable()  # as the command line does, to start sooner
    try:
        running = asyncio.create_task(server.run())
        await until(gc.isenabled, "the collector to be on")
        await server.stop()
        await running
    finally:
        gc.enable()
        gc.unfreeze()
