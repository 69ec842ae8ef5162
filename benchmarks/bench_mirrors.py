"""How fast does a mirror catch up with its origin, and what does it cost those who publish to the origin?

Origin and mirror are on one server, of each kind in turn; then the origin is on the nats-server and the mirror on
JetLake, which is its client. Neither syncs. The clock of catching up starts when the mirror is made. The delay is that
of a lone message, from its publish to a subscriber of the mirror.
"""

from __future__ import annotations

import json
import time
from statistics import median
from typing import Any

from benchmarks._load import PAYLOAD_SIZE
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from benchmarks._server_load import UNSYNCED, Generator, both_servers, fresh_stream
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

COUNT = 1_000_000
WINDOW = 10_000
LONE_COUNT = 200
CATCH_UP_GOAL, BESIDE_GOAL, REMOTE_GOAL = 3.0, 0.8, 200  # the last one in thousands a second
MIRROR = {"name": "M", "mirror": {"name": "LOAD"}}
REMOTE = {"name": "M", "mirror": {"name": "LOAD", "external": {"api": "$JETLAKE.REMOTE.other", "deliver": ""}}}


def catch_up(server: Server, config: dict[str, Any], count: int) -> float:
    """Messages a second, from nothing to all of them."""
    with Peer(server) as peer:
        peer.api("STREAM.DELETE.M")
        start_s = time.perf_counter()
        assert "error" not in peer.api("STREAM.CREATE.M", config)
        while peer.api("STREAM.INFO.M")["state"]["last_seq"] < count:
            time.sleep(0.005)
        seconds = time.perf_counter() - start_s
        peer.api("STREAM.DELETE.M")
    return count / seconds


def publish(generator: Generator, server: Server, count: int) -> float:
    fresh_stream(server, {})
    return float(generator.run(server, "publish", count=count, window=WINDOW, size=PAYLOAD_SIZE).rate)


def beside(generator: Generator, server: Server, count: int) -> float:
    """The publish rate with a mirror, as a part of that without."""
    alone = publish(generator, server, count)
    with Peer(server) as peer:
        fresh_stream(server, {})
        peer.api("STREAM.CREATE.M", MIRROR)
        time.sleep(0.5)
        rate = generator.run(server, "publish", count=count, window=WINDOW, size=PAYLOAD_SIZE).rate
        peer.api("STREAM.DELETE.M")
    return float(rate) / alone


def delay_us(server: Server, count: int) -> float:
    """How long a lone message takes to a subscriber of the mirror, in the median."""
    fresh_stream(server, {})
    with Peer(server) as peer:
        peer.api("STREAM.CREATE.M", MIRROR)
        peer.subscribe("pushed", "7")
        consumer = {"stream_name": "M", "config": {"deliver_subject": "pushed", "ack_policy": "none"}}
        assert "error" not in peer.api("CONSUMER.CREATE.M", consumer)
        time.sleep(0.5)
        found = []
        for _ in range(count):
            start_s = time.perf_counter()
            peer.publish("bench", b"x" * PAYLOAD_SIZE)
            peer.message()
            found.append(time.perf_counter() - start_s)
        peer.api("STREAM.DELETE.M")
    return median(found) * 1e6


def main(smoke: bool = False) -> None:
    rounds, count, lone_count = (1, 2000, 5) if smoke else (ROUNDS, COUNT, LONE_COUNT)
    heading(__doc__, f"{count:,} messages of {PAYLOAD_SIZE} B; no seed, medians of {rounds} rounds")
    found: dict[str, list[float]] = {}

    def note(work: str, kind: str, value: float) -> None:
        found.setdefault(f"{work} {kind}", []).append(value)

    with scratch() as directory, both_servers(directory, {NATS_SERVER: UNSYNCED, JETLAKE: UNSYNCED}) as servers:
        generator = Generator(directory)
        with Peer(servers[JETLAKE]) as peer:
            body = json.dumps({"urls": [servers[NATS_SERVER].url]}).encode()
            peer.request("$JETLAKE.API.REMOTE.PUT.other", body)
        for _ in range(rounds):
            for kind, server in servers.items():
                note("beside", kind, beside(generator, server, count))
                note("delay", kind, delay_us(server, lone_count))
                publish(generator, server, count)
                note("catch up", kind, catch_up(server, MIRROR, count))
            note("remote", JETLAKE, catch_up(servers[JETLAKE], REMOTE, count))
    values = {name: median(each) for name, each in found.items()}
    _print(values, found)


def _print(values: dict[str, float], found: dict[str, list[float]]) -> None:
    def row(work: str, unit: str, scale: float, wanted: float, *, at_most: bool = False) -> list[str]:
        theirs, ours = (f"{work} {kind}" for kind in (NATS_SERVER, JETLAKE))
        ratio = median(our / their for our, their in zip(found[ours], found[theirs], strict=True))
        shown = [f"{values[name] * scale:,.0f} {unit}" for name in (theirs, ours)]
        return [work, *shown, f"{ratio:.2f}", goal(ratio, wanted, at_most=at_most).removeprefix("goal ")]

    part, remote = values[f"beside {JETLAKE}"], values[f"remote {JETLAKE}"] / 1e3
    part_goal, remote_goal = (
        goal(*each).removeprefix("goal ") for each in ((part, BESIDE_GOAL), (remote, REMOTE_GOAL))
    )
    rows = [
        row("catch up", "k/s", 1e-3, CATCH_UP_GOAL),
        row("delay", "µs", 1, 1.0, at_most=True),
        [
            "publish beside a mirror, part of alone",
            f"{values[f'beside {NATS_SERVER}']:.2f}",
            f"{part:.2f}",
            "",
            part_goal,
        ],
        ["catch up with a nats-server, as its client", "", f"{remote:,.0f} k/s", "", remote_goal],
    ]
    table(["work", "nats-server", "JetLake", "ratio", "goal"], rows, left=(0, 4))
