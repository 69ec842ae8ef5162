"""How soon is a server ready after kill -9 when its stream is large, and how much memory does the stream take?

Ready is when STREAM.INFO answers with all messages, counted from the start of the process.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._load import PAYLOAD_SIZE, SEED
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from benchmarks._server_load import UNSYNCED, Generator, both_servers, fresh_stream, message_count, rss_size
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

MEMORY_GOAL = 1.5


class Figures(NamedTuple):
    rss_filled: int
    rss_restarted: int
    ready_s: list[float]


def measure(server: Server, generator: Generator, count: int, rounds: int) -> Figures:
    fresh_stream(server, {})
    generator.run(server, "publish", count=count, size=PAYLOAD_SIZE, window=10_000, subjects=1000)
    rss_filled = rss_size(server.pid)
    ready_s = []
    for _ in range(rounds):
        server.kill()
        start = time.perf_counter()
        server.start()
        assert message_count(server) == count
        ready_s.append(time.perf_counter() - start)
    return Figures(rss_filled, rss_size(server.pid), ready_s)


def main(smoke: bool = False) -> None:
    count, rounds = (5_000, 1) if smoke else (5_000_000, ROUNDS)
    facts = f"{count:,} messages of {PAYLOAD_SIZE} B over 1,000 subjects, killed {rounds} times; seed {SEED}, medians"
    heading(__doc__, facts)
    with scratch() as directory:
        real, ours = _figures(directory, count, rounds)
    seconds = [median(found.ready_s) for found in (real, ours)]
    ready = seconds[0] / seconds[1]
    rows = [["ready after kill -9, s", *(f"{second:.3f}" for second in seconds), f"{ready:.2f}", goal(ready, 1)]]
    for what, sizes in {
        "memory when filled, MiB": (real.rss_filled, ours.rss_filled),
        "memory after the restart, MiB": (real.rss_restarted, ours.rss_restarted),
    }.items():
        ratio = sizes[1] / sizes[0]
        rows.append(
            [what, *(f"{size / 2**20:,.0f}" for size in sizes), f"{ratio:.2f}", goal(ratio, MEMORY_GOAL, at_most=True)]
        )
    table(["what", "nats-server", "JetLake", "ratio", "goal"], rows, left=(0, 4))


def _figures(directory: Path, count: int, rounds: int) -> list[Figures]:
    generator = Generator(directory)
    with both_servers(directory, {NATS_SERVER: UNSYNCED, JETLAKE: UNSYNCED}) as servers:
        return [measure(server, generator, count, rounds) for server in servers.values()]
