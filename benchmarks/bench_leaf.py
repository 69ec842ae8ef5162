"""How many messages cross a leaf link, from a client at the leaf to a subscriber at the hub?

Two servers of each kind, and JetLake as the leaf of a nats-server, in turn. The processor time is that of both servers.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks._load import PAYLOAD_SIZE
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from benchmarks._server_load import AS_RELEASED, Generator, Load, cpu_ns
from tests.compat.leafs import Linked, hub_config, leaf_config, leaf_port
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

COUNT = 500_000
PLAIN = "compression: off"  # JetLake has none, and nats-server is slower with it
PAIRS = {  # hub and leaf, and the rate to reach beside two nats-servers
    (NATS_SERVER, NATS_SERVER): 1.0,
    (JETLAKE, JETLAKE): 1.5,
    (NATS_SERVER, JETLAKE): 1.0,
    (JETLAKE, NATS_SERVER): 1.0,
}


def cross(generator: Generator, hub_kind: str, leaf_kind: str, directory: Path, count: int) -> Load:
    """Publish at the leaf what somebody at the hub wants."""
    with ExitStack() as stack:
        hub = stack.enter_context(Server(hub_kind, directory / "hub", (), hub_config(leafnodes=PLAIN), AS_RELEASED))
        config = leaf_config(leaf_port(hub), PLAIN)
        leaf = stack.enter_context(Server(leaf_kind, directory / "leaf", (), config, AS_RELEASED))
        Linked(hub, leaf).wait()
        before = cpu_ns(hub.pid)
        load = generator.run(leaf, "publish", count=count, window=0, subscribers=1, subject="core", far=hub.port)
        return replace(load, server_cpu_ns=load.server_cpu_ns + cpu_ns(hub.pid) - before)


def main(smoke: bool = False) -> None:
    rounds, count = (1, 1000) if smoke else (ROUNDS, COUNT)
    heading(__doc__, f"{count:,} messages of {PAYLOAD_SIZE} B; no seed, medians of {rounds} rounds")
    loads: dict[tuple[str, str], list[Load]] = {pair: [] for pair in PAIRS}
    with scratch() as directory:
        generator = Generator(directory)
        for number in range(rounds):
            for hub, leaf in PAIRS:
                loads[hub, leaf].append(cross(generator, hub, leaf, directory / f"{number}-{hub}-{leaf}", count))
    rows = []
    real = median(load.rate for load in loads[NATS_SERVER, NATS_SERVER])
    for (hub, leaf), wanted in PAIRS.items():
        rate = median(load.rate for load in loads[hub, leaf])
        cpu_us = median(load.server_cpu_ns / load.count for load in loads[hub, leaf]) / 1000
        reached = goal(rate / real, wanted).removeprefix("goal ")
        rows.append([hub, leaf, f"{rate / 1e3:,.0f} k/s", f"{cpu_us:.2f}", f"{rate / real:.2f}", reached])
    table(["hub", "leaf", "messages", "CPU µs", "ratio", "goal"], rows, left=(0, 1, 5))
