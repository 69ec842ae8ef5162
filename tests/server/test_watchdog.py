from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from jetlake.server.watchdog import LINE_START, Watchdog, WatchedLoop, limit_ms

LIMIT_MS, LONG_S = 20.0, 0.08


class Watched:
    """A loop with a watchdog, and what it logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.dog = Watchdog(LIMIT_MS, lambda level, line: self.lines.append(line))
        self.dog.is_on = lambda: True
        self.loop = WatchedLoop(self.dog)

    def run(self, main: object) -> list[str]:
        self.loop.run_until_complete(main)
        return self.lines


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.loop.close()
    watched.dog.close()


def compute() -> None:
    stop = time.thread_time() + LONG_S
    while time.thread_time() < stop:
        pass


def block() -> None:
    time.sleep(LONG_S)


def cpu_ms(line: str) -> float:
    return float(line.partition("cpu ")[2].split()[0])


def test_a_callback_that_computes_for_long_is_reported(watched: Watched) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(compute)
        await asyncio.sleep(0.01)

    (line,) = watched.run(main())
    assert line.startswith(LINE_START) and line.endswith("test_watchdog.compute")
    assert cpu_ms(line) >= LONG_S * 1000


def test_a_callback_that_waits_for_long_is_reported_with_its_processor_time(watched: Watched) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.001, block)
        await asyncio.sleep(0.01)

    (line,) = watched.run(main())
    assert line.endswith("test_watchdog.block")
    assert cpu_ms(line) < LIMIT_MS


def test_a_step_of_a_task_is_reported(watched: Watched) -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        block()

    (line,) = watched.run(main())
    assert "main > " in line and line.endswith("test_watchdog.block")


def test_short_callbacks_are_not_reported(watched: Watched) -> None:
    async def main() -> None:
        for _ in range(50):
            await asyncio.sleep(0.001)

    assert watched.run(main()) == []


def test_nothing_is_reported_while_it_is_off(watched: Watched) -> None:
    watched.dog.is_on = lambda: False

    async def main() -> None:
        block()

    assert watched.run(main()) == []


def test_what_an_accepted_connection_does_is_reported(watched: Watched) -> None:
    class Slow(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            block()
            self.transport.close()

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Slow, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x")
        await reader.read()
        writer.close()
        server.close()

    (line,) = watched.run(main())
    assert "data_received" in line


@pytest.mark.parametrize(
    ("environ", "debug", "limit"),
    [({}, False, None), ({}, True, 20.0), ({"JETLAKE_WATCHDOG_MS": "50"}, False, 50.0)],
)
def test_it_runs_where_it_is_asked_for_and_with_debug(environ: dict[str, str], debug: bool, limit: float) -> None:
    assert limit_ms(environ, debug) == limit
