"""How fast do consumers get their messages from JetLake, beside nats-server on the same machine?

Both servers do the same work in turn, and each round gives a ratio. Neither syncs. Where messages are acknowledged, the
clock stops when the last ack was answered. `CPU` is what the server's process spends on one message, all its threads
together. Idle consumers are measured by what they cost others: the publish rate beside them, against that without them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import nats
from nats.aio.msg import Msg

from benchmarks._load import PAYLOAD_SIZE, SEED
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from benchmarks._server_load import UNSYNCED, Generator, Load, both_servers, cpu_ns, fresh_stream, message_count
from tests.compat.peer import Peer, publication
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

BATCH = 5_000
WINDOW = 10_000
SUBJECTS = 1_000
IDLE_COUNT = 1_000
IDLE_GOAL = 0.8
IDLE_WALL_NS_MIN = 3_000_000_000  # a third of a second would be at the mercy of the disk
NEITHER_SYNCS = {NATS_SERVER: UNSYNCED, JETLAKE: UNSYNCED}
EXPLICIT = {"ack_policy": "explicit", "max_ack_pending": -1}
PUSH = {"deliver_subject": "pushed", "flow_control": True, "idle_heartbeat": 5_000_000_000}


@dataclass(frozen=True)
class Bench:
    """One server, and how much it is asked to do."""

    server: Server
    generator: Generator
    count: int

    def publish(self, **keys: object) -> Load:
        keys = {"size": PAYLOAD_SIZE, "window": WINDOW, "count": self.count, **keys}
        return self.generator.run(self.server, "publish", **keys)

    def consume(self, **keys: object) -> Load:
        return self.publish(connections=0, consumers=1, batch=BATCH, **keys)


@dataclass(frozen=True)
class Case:
    """What is asked of both servers: `fill` once, `run` in each round."""

    work: str
    goal: float
    count: int
    fill: Callable[[Bench], None]
    run: Callable[[Bench], Load]


# What is asked


def fill(bench: Bench) -> None:
    fresh_stream(bench.server, {})
    bench.publish()


def fill_many_subjects(bench: Bench) -> None:
    fresh_stream(bench.server, {})
    bench.publish(subjects=SUBJECTS)


def fill_nothing(bench: Bench) -> None:
    """The case publishes what it needs itself."""


def pull(bench: Bench) -> Load:
    fresh_consumer(bench.server, {"ack_policy": "none"})
    return bench.consume()


def pull_and_ack(bench: Bench) -> Load:
    fresh_consumer(bench.server, EXPLICIT)
    load = bench.consume(acks=1)
    info = consumer_info(bench.server)
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (0, bench.count), info
    return load


def push(bench: Bench) -> Load:
    fresh_consumer(bench.server, {"ack_policy": "none", **PUSH})
    return bench.consume(deliver="pushed")


def work_queue(bench: Bench) -> Load:
    fresh_stream(bench.server, {"retention": "workqueue"})
    fresh_consumer(bench.server, EXPLICIT)
    load = bench.publish(consumers=1, batch=BATCH, acks=1)
    assert message_count(bench.server) == 0, "a work queue is empty in the end"
    return load


def filtered_and_cold(bench: Bench) -> Load:
    """Restart the server, then make the consumer and read all it matches: both count."""
    bench.server.stop()
    bench.server.start()
    start = time.perf_counter_ns()
    fresh_consumer(bench.server, {"ack_policy": "none", "filter_subject": "bench.7"})
    made_ns = time.perf_counter_ns() - start
    load = bench.consume(count=bench.count // SUBJECTS)
    return replace(load, wall_ns=load.wall_ns + made_ns)


def ordered(bench: Bench) -> Load:
    return asyncio.run(_ordered(bench))


async def _ordered(bench: Bench) -> Load:
    client = await nats.connect(bench.server.url)
    done, seen, before = asyncio.Event(), 0, time.process_time_ns()

    async def take(msg: Msg) -> None:
        nonlocal seen
        seen += 1
        if seen == bench.count:
            done.set()

    start, server_cpu_ns = time.perf_counter_ns(), cpu_ns(bench.server.pid)
    await client.jetstream().subscribe("bench", cb=take, ordered_consumer=True, pending_msgs_limit=2 * bench.count)
    await done.wait()
    wall_ns, server_cpu_ns = time.perf_counter_ns() - start, cpu_ns(bench.server.pid) - server_cpu_ns
    await client.close()
    return Load(bench.count, wall_ns, time.process_time_ns() - before, server_cpu_ns)


CASES = [
    Case("pull 5,000, ack none", 3, 1_000_000, fill, pull),
    Case("pull 5,000, explicit acks", 2.5, 500_000, fill, pull_and_ack),
    Case("push, flow control", 1.5, 1_000_000, fill, push),
    Case("ordered, through nats-py", 1, 100_000, fill, ordered),
    Case("1 of 1,000 subjects, cold", 2, 1_000_000, fill_many_subjects, filtered_and_cold),
    Case("work queue to empty", 2, 300_000, fill_nothing, work_queue),
]


# Idle consumers


def no_idle(inbox: Peer, count: int) -> None:
    """Nobody but the publisher."""


def idle(inbox: Peer, count: int) -> None:
    """Consumers of which nobody asks anything."""
    make_idle(inbox, count, {})


def idle_and_asked(inbox: Peer, count: int) -> None:
    """Consumers with a request waiting for a message that never comes."""
    make_idle(inbox, count, {"filter_subject": "bench.idle.{}"})
    inbox.subscribe("_INBOX.idle.*", "idle")
    request = b'{"batch":10,"expires":3600000000000}'
    for number in range(count):
        inbox.send(publication(f"$JS.API.CONSUMER.MSG.NEXT.LOAD.I{number}", request, reply=f"_INBOX.idle.{number}"))
    assert inbox.ask() == []


def make_idle(inbox: Peer, count: int, config: dict[str, str]) -> None:
    for number in range(count):
        named = {key: value.format(number) for key, value in config.items()}
        body = {"stream_name": "LOAD", "config": {"durable_name": f"I{number}", "ack_policy": "explicit", **named}}
        answer = inbox.api(f"CONSUMER.DURABLE.CREATE.LOAD.I{number}", body)
        assert "error" not in answer, answer


IDLE_KINDS = {"no request": idle, "a request waiting": idle_and_asked}


def publish_beside(bench: Bench, prepare: Callable[[Peer, int], None], idle_count: int, wall_ns_min: int) -> Load:
    fresh_stream(bench.server, {})
    with Peer(bench.server) as inbox:
        prepare(inbox, idle_count)
        settle(bench.server)
        loads = [bench.publish()]
        while sum(load.wall_ns for load in loads) < wall_ns_min:
            loads.append(bench.publish())
    fresh_stream(bench.server, None)  # else nats-server's consumers use a core for as long as JetLake is measured
    return sorted(loads, key=lambda load: load.rate)[len(loads) // 2]


def settle(server: Server) -> None:
    """Let a server finish what making a thousand consumers left it to do."""
    for _ in range(20):
        before = cpu_ns(server.pid)
        time.sleep(0.25)
        if cpu_ns(server.pid) == before:
            return


# How it is asked


def fresh_consumer(server: Server, config: dict[str, Any]) -> None:
    """Leave no consumer C but one with this configuration."""
    with Peer(server) as peer:
        peer.api("CONSUMER.DELETE.LOAD.C")
        body = {"stream_name": "LOAD", "config": {"durable_name": "C", **config}}
        answer = peer.api("CONSUMER.DURABLE.CREATE.LOAD.C", body)
        assert "error" not in answer, answer


def consumer_info(server: Server) -> Any:
    with Peer(server) as peer:
        return peer.api("CONSUMER.INFO.LOAD.C")


@contextmanager
def benches(directory: Path, generator: Generator, count: int) -> Iterator[list[Bench]]:
    with both_servers(directory, NEITHER_SYNCS) as servers:
        yield [Bench(server, generator, count) for server in servers.values()]


class Result(NamedTuple):
    """What both servers did, round by round."""

    real: list[Load]
    ours: list[Load]

    @property
    def ratio(self) -> float:
        return median(ours.rate / real.rate for real, ours in zip(self.real, self.ours, strict=True))

    def figures(self) -> list[str]:
        rates = [f"{median(load.rate for load in loads):,.0f}/s" for loads in self]
        cpus = [f"{median(load.server_cpu_ns / load.count for load in loads) / 1e3:,.2f}" for loads in self]
        return rates + cpus


def measure(case: Case, generator: Generator, directory: Path, rounds: int, divisor: int) -> Result:
    result = Result([], [])
    with benches(directory, generator, max(case.count // divisor, SUBJECTS)) as both:
        for bench in both:
            case.fill(bench)
        for _ in range(rounds):
            for bench, loads in zip(both, result, strict=True):
                loads.append(case.run(bench))
    return result


def measure_idle(
    generator: Generator, directory: Path, rounds: int, divisor: int, idle_count: int
) -> dict[str, Result]:
    """The publish rate beside each kind, and beside none; each round begins with another of them."""
    kinds = {"none": no_idle, **IDLE_KINDS}
    results = {kind: Result([], []) for kind in kinds}
    order = list(kinds.items())
    with benches(directory, generator, 500_000 // divisor) as both:
        for _ in range(rounds):
            for kind, prepare in order:
                for bench, loads in zip(both, results[kind], strict=True):
                    loads.append(publish_beside(bench, prepare, idle_count, IDLE_WALL_NS_MIN // divisor))
            order.append(order.pop(0))
    return results


def idle_rows(results: dict[str, Result]) -> list[list[str]]:
    rows = [["none", *results["none"].figures(), "", "", ""]]
    for kind in IDLE_KINDS:
        real, ours = (
            median(beside.rate / alone.rate for beside, alone in zip(*pair, strict=True))
            for pair in zip(results[kind], results["none"], strict=True)
        )
        share = goal(ours, IDLE_GOAL).removeprefix("goal ")
        rows.append([kind, *results[kind].figures(), f"{real:.2f}", f"{ours:.2f}", share])
    return rows


def main(smoke: bool = False, only: str = "") -> None:
    rounds, divisor, idle_count = (1, 1000, 20) if smoke else (ROUNDS, 1, IDLE_COUNT)
    facts = f"payloads of {PAYLOAD_SIZE} B, file storage; seed {SEED}, medians of {rounds} paired rounds"
    heading(__doc__, facts)
    with scratch() as directory:
        generator = Generator(directory)
        results = {case: measure(case, generator, directory, rounds, divisor) for case in CASES if only in case.work}
        idle_results = measure_idle(generator, directory, rounds, divisor, idle_count) if only in "idle" else {}
    rows = [
        [case.work, *result.figures(), f"{result.ratio:.2f}", goal(result.ratio, case.goal).removeprefix("goal ")]
        for case, result in results.items()
    ]
    servers = ["nats-server", "JetLake", "its CPU µs", "our CPU µs"]
    if rows:
        table(["work", *servers, "ratio", "goal"], rows, left=(0, 6))
    if idle_results:
        table(
            [f"publish beside {idle_count:,} idle", *servers, "its part", "ours", "goal"],
            idle_rows(idle_results),
            left=(0, 7),
        )
    loads = [load for case, result in results.items() if case.run is not ordered for side in result for load in side]
    if loads:
        print(f"  the generator took at most {max(load.cpu_ns / load.wall_ns for load in loads):.0%} of a core")
