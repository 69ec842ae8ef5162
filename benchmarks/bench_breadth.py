"""How fast is JetLake at everything that is not one big batch, beside nats-server on the same machine?

Both servers do the same work in turn, and each round gives a ratio. Three ways of syncing: by default JetLake syncs
before each ack and nats-server does not ("ours"); otherwise both do, or neither. `CPU` is what the server's process
spends on one message or request, all its threads together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._load import PAYLOAD_SIZE, SEED
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from benchmarks._server_load import AS_RELEASED, SYNCED, UNSYNCED, Generator, Load, both_servers, fresh_stream
from benchmarks.bench_consumers import Result
from tests.compat.peer import Peer, publication
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

OURS, BOTH, NEITHER = "ours", "both", "neither"
SYNCING = {
    OURS: {NATS_SERVER: UNSYNCED, JETLAKE: SYNCED},
    BOTH: {NATS_SERVER: SYNCED, JETLAKE: SYNCED},
    NEITHER: {NATS_SERVER: UNSYNCED, JETLAKE: UNSYNCED},
}
USER = "somebody"
KEYS = 100_000  # of a key-value bucket
STREAMS = 200
CLIENTS = 500
WINDOW = 500
READY_MS_MAX = 150


@dataclass(frozen=True)
class Bench:
    """One server, and how much it is asked to do."""

    server: Server
    generator: Generator
    count: int
    divisor: int

    @property
    def keys(self) -> int:
        """How many keys or sequences are asked for in turn: more than are asked for at once."""
        return max(KEYS // self.divisor, 2 * WINDOW)

    def some(self, most: int) -> int:
        """So many streams or clients, or a few of them at the smoke size."""
        return max(most // self.divisor, 5)

    def load(self, mode: str = "publish", **keys: object) -> Load:
        return self.generator.run(self.server, mode, **{"size": PAYLOAD_SIZE, "count": self.count, **keys})

    def fill(self, stream: dict[str, object], **keys: object) -> None:
        """Make the stream anew, with one message for each key."""
        fresh_stream(self.server, stream)
        self.load(window=10_000, count=self.keys, subjects=self.keys, **keys)

    def api(self, subject: str, body: dict[str, Any]) -> None:
        with Peer(self.server) as peer:
            answer = peer.api(subject, body)
        assert "error" not in answer, answer


Work = Callable[[Bench], Load]


@dataclass(frozen=True)
class Case:
    """What is asked of both servers, how they sync, and how many times as fast JetLake should be."""

    work: str
    run: Work
    goal: float
    counts: tuple[int, int]  # of nats-server and of JetLake: one may take minutes for what the other does in a second
    syncing: str = OURS
    config: str = ""


# What is asked


def direct_get(bench: Bench) -> Load:
    bench.fill({"max_msgs_per_subject": 1, "allow_direct": True})
    return bench.load(subject="$JS.API.DIRECT.GET.LOAD.bench.#", body="", subjects=bench.keys, window=WINDOW)


def message_get(bench: Bench) -> Load:
    bench.fill({})
    body = '{"seq":#}'
    return bench.load(subject="$JS.API.STREAM.MSG.GET.LOAD", body=body, subjects=bench.keys, base=1, window=WINDOW)


def key_update(bench: Bench) -> Load:
    fresh_stream(bench.server, {"max_msgs_per_subject": 1})
    return bench.load(expect=1, subjects=bench.keys, window=WINDOW)


def many_streams(bench: Bench) -> Load:
    count = bench.some(STREAMS)
    with Peer(bench.server) as peer:
        for number in range(count):
            peer.api(f"STREAM.DELETE.S{number}")
            answer = peer.api(f"STREAM.CREATE.S{number}", {"name": f"S{number}", "subjects": [f"to.{number}"]})
            assert "error" not in answer, answer
    return bench.load(subject="to", subjects=count, window=10_000)


def many_clients(bench: Bench) -> Load:
    fresh_stream(bench.server, {})
    return bench.load(connections=bench.some(CLIENTS), window=1)


def large_payloads(bench: Bench) -> Load:
    fresh_stream(bench.server, {})
    return bench.load(size=512 * 1024, window=16)


def queue_group(bench: Bench) -> Load:
    return bench.load(window=0, subscribers=10, queue=1, subject="core")


def fan_out(bench: Bench) -> Load:
    load = bench.load(window=0, subscribers=100, subject="core", count=bench.count // 100)
    return Load(load.count * 100, load.wall_ns, load.cpu_ns, load.server_cpu_ns)


def overlapping_pulls(bench: Bench) -> Load:
    fresh_stream(bench.server, {})
    bench.load(window=10_000)
    config = {"durable_name": "C", "ack_policy": "none"}
    bench.api("CONSUMER.DURABLE.CREATE.LOAD.C", {"stream_name": "LOAD", "config": config})
    return bench.load(connections=0, consumers=1, batch=5_000, pulls=2)


def create_consumers(bench: Bench) -> Load:
    fresh_stream(bench.server, {})
    body = json.dumps({"stream_name": "LOAD", "config": {"durable_name": "D#", "ack_policy": "explicit"}})
    return bench.load(subject="$JS.API.CONSUMER.DURABLE.CREATE.LOAD.D#", body=body, window=16)


def create_streams(bench: Bench) -> Load:
    with Peer(bench.server) as peer:
        for number in range(bench.count):
            peer.api(f"STREAM.DELETE.N{number}")
    body = json.dumps({"name": "N#", "subjects": ["of.#"]})
    return bench.load(subject="$JS.API.STREAM.CREATE.N#", body=body, window=16)


def log_in(bench: Bench) -> Load:
    return bench.load("connect", user=USER)


def beside_nobody(bench: Bench) -> Load:
    bench.fill({"subjects": ["kv.>"]}, subject="kv.#.x")
    return bench.load(subject="kv.#.y", subjects=bench.keys, window=10_000)


def beside_one_waiting(bench: Bench) -> Load:
    """A pull waits for messages of a wildcard that matches every key, and none that is published."""
    bench.fill({"subjects": ["kv.>"]}, subject="kv.#.x")
    config = {"durable_name": "C", "deliver_policy": "new", "filter_subject": "kv.*.x", "ack_policy": "explicit"}
    bench.api("CONSUMER.DURABLE.CREATE.LOAD.C", {"stream_name": "LOAD", "config": config})
    with Peer(bench.server) as inbox:
        inbox.subscribe("_INBOX.idle", "idle")
        request = b'{"batch":10,"expires":3600000000000}'
        inbox.send(publication("$JS.API.CONSUMER.MSG.NEXT.LOAD.C", request, reply="_INBOX.idle"))
        assert inbox.ask() == []
        return bench.load(subject="kv.#.y", subjects=bench.keys, window=10_000)


LOGIN = f"""
authorization {{ users: [ {{ user: {USER}, password: {USER} }}, {{ user: guest, password: guest }} ] }}
no_auth_user: guest
"""


def _cases(work: str, run: Work, goals: dict[str, float], *counts: int) -> list[Case]:
    """A case for each way of syncing that has a goal; the smaller count is for a nats-server that syncs."""
    most, least = counts[0], counts[-1]
    return [
        Case(work, run, least_ratio, (least if syncing == BOTH else most, most), syncing)
        for syncing, least_ratio in goals.items()
    ]


CASES = [
    *_cases("KV get (direct get by subject)", direct_get, {OURS: 1.0}, 300_000),
    *_cases("message get by sequence", message_get, {OURS: 1.0}, 100_000),
    *_cases("KV update (expected last sequence)", key_update, {OURS: 1.0, NEITHER: 1.5}, 200_000),
    *_cases("publish into 200 streams", many_streams, {OURS: 0.5, NEITHER: 1.0, BOTH: 20}, 200_000, 20_000),
    *_cases("500 clients, one message each", many_clients, {OURS: 1.0, NEITHER: 1.0, BOTH: 5}, 100_000, 10_000),
    *_cases("queue group of 10", queue_group, {NEITHER: 1.0}, 1_000_000),
    *_cases("fan-out to 100", fan_out, {NEITHER: 1.5}, 5_000_000),
    *_cases("two overlapping pulls of 5,000", overlapping_pulls, {NEITHER: 3}, 1_000_000),
    *_cases("publish 512 KiB", large_payloads, {OURS: 0.8, NEITHER: 1.0}, 1_000),
    *_cases("create consumers", create_consumers, {OURS: 1.0}, 2_000),
    *_cases("create streams", create_streams, {OURS: 0.5}, 300),
    Case("connect and log in", log_in, 1.1, (3_000, 3_000), NEITHER, LOGIN),
]
WAITING = Case("publish beside one waiting consumer", beside_one_waiting, 0.8, (300_000, 300_000), NEITHER)


def measure(
    case: Case, runs: list[Work], generator: Generator, directory: Path, rounds: int, divisor: int
) -> list[Result]:
    """The results of each work of a case, all of them in turn."""
    results = [Result([], []) for _ in runs]
    configs = {kind: f"{text}\n{case.config}" for kind, text in SYNCING[case.syncing].items()}
    with both_servers(directory, configs) as servers:
        counts = [max(count // divisor, min(count, 20)) for count in case.counts]
        benches = [Bench(server, generator, n, divisor) for server, n in zip(servers.values(), counts, strict=True)]
        for _ in range(rounds):
            for run, result in zip(runs, results, strict=True):
                for bench, loads in zip(benches, result, strict=True):
                    loads.append(run(bench))
                    fresh_stream(bench.server, None)  # else nats-server's consumers use a core beside JetLake
    return results


def measure_start(directory: Path, rounds: int) -> Result:
    """From the start of the process to its ports file, without streams: as loads of one."""
    result = Result([], [])
    for number in range(rounds):
        for kind, loads in zip((NATS_SERVER, JETLAKE), result, strict=True):
            start = time.perf_counter_ns()
            with Server(kind, directory / f"start-{kind}-{number}", ("-js",), "", AS_RELEASED):
                loads.append(Load(1, time.perf_counter_ns() - start, 0, 0))
    return result


def waiting_row(alone: Result, beside: Result) -> list[str]:
    """The part of the rate that is left beside a consumer that waits."""
    real, ours = (
        median(beside_load.rate / alone_load.rate for beside_load, alone_load in zip(*pair, strict=True))
        for pair in zip(beside, alone, strict=True)
    )
    part = goal(ours, WAITING.goal).removeprefix("goal ")
    return [WAITING.work, WAITING.syncing, *beside.figures(), f"{real:.2f} of it; {ours:.2f}", part]


def main(smoke: bool = False, only: str = "") -> None:
    rounds, divisor = (1, 1000) if smoke else (ROUNDS, 1)
    heading(__doc__, f"payloads of {PAYLOAD_SIZE} B, file storage; seed {SEED}, medians of {rounds} paired rounds")
    rows = []
    with scratch() as directory:
        generator = Generator(directory)
        for case in CASES:
            if only in case.work:
                (result,) = measure(case, [case.run], generator, directory, rounds, divisor)
                wanted = goal(result.ratio, case.goal).removeprefix("goal ")
                rows.append([case.work, case.syncing, *result.figures(), f"{result.ratio:.2f}", wanted])
        if only in WAITING.work:
            rows.append(
                waiting_row(
                    *measure(WAITING, [beside_nobody, beside_one_waiting], generator, directory, rounds, divisor)
                )
            )
        if only in "start to ready":
            times = [median(load.wall_ns for load in loads) / 1e9 for loads in measure_start(directory, rounds)]
            wanted = goal(1e3 * times[1], READY_MS_MAX, at_most=True).removeprefix("goal ")
            shown = [f"{seconds * 1e3:.0f} ms" for seconds in times]
            rows.append(["start to ready", "", *shown, "", "", f"{times[0] / times[1]:.2f}", wanted])
    columns = ["work", "syncing", "nats-server", "JetLake", "its CPU µs", "our CPU µs", "ratio", "goal"]
    table(columns, rows, left=(0, 1, 7))
