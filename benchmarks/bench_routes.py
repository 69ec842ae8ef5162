"""How many messages cross a route, from a client of one server to a subscriber at another one of its cluster?

Two servers of each kind, and one of each, in turn. The processor time is that of both servers.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks._load import PAYLOAD_SIZE
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from benchmarks._server_load import AS_RELEASED, Generator, Load, cpu_ns
from tests.compat.routes import Cluster, cluster_config, cluster_port
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

COUNT = 500_000
PAIRS = {  # near and far, and the rate to reach beside two nats-servers; none has pools or compression
    (NATS_SERVER, NATS_SERVER): 1.0,
    (JETLAKE, JETLAKE): 1.0,
    (NATS_SERVER, JETLAKE): 1.0,
    (JETLAKE, NATS_SERVER): 1.0,
}


def cross(generator: Generator, near_kind: str, far_kind: str, directory: Path, count: int) -> Load:
    """Publish at one server what somebody at the other wants."""
    with ExitStack() as stack:
        far = Server(far_kind, directory / "A", (), cluster_config(far_kind, "A"), AS_RELEASED)
        stack.enter_context(far)
        config = cluster_config(near_kind, "B", [cluster_port(far)])
        near = stack.enter_context(Server(near_kind, directory / "B", (), config, AS_RELEASED))
        Cluster([far, near]).wait()
        before = cpu_ns(far.pid)
        load = generator.run(near, "publish", count=count, window=0, subscribers=1, subject="core", far=far.port)
        return replace(load, server_cpu_ns=load.server_cpu_ns + cpu_ns(far.pid) - before)


def main(smoke: bool = False) -> None:
    rounds, count = (1, 1000) if smoke else (ROUNDS, COUNT)
    heading(__doc__, f"{count:,} messages of {PAYLOAD_SIZE} B; no seed, medians of {rounds} rounds")
    loads: dict[tuple[str, str], list[Load]] = {pair: [] for pair in PAIRS}
    with scratch() as directory:
        generator = Generator(directory)
        for number in range(rounds):
            for near, far in PAIRS:
                loads[near, far].append(cross(generator, near, far, directory / f"{number}-{near}-{far}", count))
    rows = []
    real = median(load.rate for load in loads[NATS_SERVER, NATS_SERVER])
    for (near, far), wanted in PAIRS.items():
        rate = median(load.rate for load in loads[near, far])
        cpu_us = median(load.server_cpu_ns / load.count for load in loads[near, far]) / 1000
        reached = goal(rate / real, wanted).removeprefix("goal ")
        rows.append([near, far, f"{rate / 1e3:,.0f} k/s", f"{cpu_us:.2f}", f"{rate / real:.2f}", reached])
    table(["near", "far", "messages", "CPU µs", "ratio", "goal"], rows, left=(0, 1, 5))
