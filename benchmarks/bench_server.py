"""How many messages does JetLake take, store and deliver, beside nats-server on the same machine?

Both servers run the same case in turn, and each round gives a ratio. Where a stream is published to, a message counts
when its ack has come back. `CPU` is what the server's process spends on one message, all its threads together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from benchmarks._load import PAYLOAD_SIZE, SEED
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from benchmarks._server_load import SYNCED, UNSYNCED, Generator, Load, both_servers, fresh_stream, message_count
from tests.compat.servers import JETLAKE, NATS_SERVER

WINDOW = 10_000
NEITHER = {NATS_SERVER: UNSYNCED, JETLAKE: UNSYNCED}
BOTH = {NATS_SERVER: SYNCED, JETLAKE: SYNCED}
OURS_ONLY = {NATS_SERVER: UNSYNCED, JETLAKE: SYNCED}


class Case(NamedTuple):
    """What is asked of both servers. `counts` differ where one takes minutes for what the other does in a second."""

    work: str
    goal: float
    configs: Mapping[str, str]
    stream: dict[str, object] | None
    counts: tuple[int, int]
    keys: Mapping[str, object] = MappingProxyType({})
    mode: str = "publish"


def _acked(work: str, least: float, configs: Mapping[str, str] = NEITHER, **more: object) -> Case:
    stream = more.pop("stream", {})
    count = more.pop("count", 500_000)
    counts = more.pop("counts", (count, count))
    return Case(work, least, configs, stream, counts, {"window": WINDOW, **more})  # type: ignore[arg-type]


def _core(work: str, count: int, **more: object) -> Case:
    return Case(work, 0.8, NEITHER, None, (count, count), {"window": 0, **more})


def _latency(work: str, configs: Mapping[str, str], count: int) -> Case:
    return Case(work, 1.0, configs, {}, (count, count), mode="latency")


CASES = [
    _acked("publish, only JetLake syncing", 3, OURS_ONLY),
    _acked("publish, neither syncing", 4),
    _acked("publish, both syncing", 50, BOTH, counts=(4_000, 500_000)),
    _acked("1,000 subjects", 3, subjects=1000),
    _acked("Nats-Msg-Id", 3, ids=1),
    _acked("4 publishers", 3, connections=4, window=WINDOW // 4),
    _acked("max_msgs reached", 3, stream={"max_msgs": 10_000}),
    _acked("memory storage", 3, stream={"storage": "memory"}),
    _acked("payloads of 1 KiB", 2.5, size=1024, count=400_000),
    _acked("300,000 subjects", 2, subjects=300_000, count=600_000),
    _latency("latency p50, both syncing", BOTH, 2_000),
    _latency("latency p50, neither syncing", NEITHER, 20_000),
    _core("core, no subscriber", 4_000_000),
    _core("core, 1:1", 2_000_000, subscribers=1),
    _core("core, 1:4", 1_000_000, subscribers=4),
]


class Result(NamedTuple):
    """What both servers did with a case, round by round."""

    case: Case
    real: list[Load]
    ours: list[Load]

    @property
    def ratio(self) -> float:
        """How many times as fast JetLake is: the median over rounds."""
        if self.case.mode == "latency":
            return median(real.p50_ns / ours.p50_ns for real, ours in zip(self.real, self.ours, strict=True))
        return median(ours.rate / real.rate for real, ours in zip(self.real, self.ours, strict=True))

    def row(self) -> list[str]:
        return [
            self.case.work,
            *(_figure(self.case, loads) for loads in (self.real, self.ours)),
            *(
                f"{median(load.server_cpu_ns / load.count for load in loads) / 1e3:,.2f}"
                for loads in (self.real, self.ours)
            ),
            f"{self.ratio:.2f}",
            goal(self.ratio, self.case.goal).removeprefix("goal "),
        ]


def _figure(case: Case, loads: list[Load]) -> str:
    if case.mode == "latency":
        return f"{median(load.p50_ns for load in loads) / 1e3:,.0f} µs"
    return f"{median(load.rate for load in loads):,.0f}/s"


def measure(case: Case, generator: Generator, directory: Path, rounds: int, divisor: int) -> Result:
    result = Result(case, [], [])
    with both_servers(directory, dict(case.configs)) as servers:
        for _ in range(rounds):
            for server, count, loads in zip(servers.values(), case.counts, (result.real, result.ours), strict=True):
                fresh_stream(server, case.stream)
                count = max(count // divisor, 100)
                loads.append(generator.run(server, case.mode, **{"size": PAYLOAD_SIZE, **case.keys, "count": count}))
                if case.stream is not None and "max_msgs" not in case.stream:
                    assert message_count(server) == count, "every ack stands for a message"
    return result


def main(smoke: bool = False, only: str = "") -> None:
    rounds, divisor = (1, 2000) if smoke else (ROUNDS, 1)
    heading(
        __doc__,
        f"payloads of {PAYLOAD_SIZE} B, file storage and one publisher unless said; window {WINDOW:,}; seed {SEED}, "
        f"medians of {rounds} paired rounds",
    )
    with scratch() as directory:
        generator = Generator(directory)
        results = [measure(case, generator, directory, rounds, divisor) for case in CASES if only in case.work]
    columns = ["work", "nats-server", "JetLake", "its CPU µs", "our CPU µs", "ratio", "goal"]
    table(columns, [result.row() for result in results], left=(0, 6))
    share = max(load.cpu_ns / load.wall_ns for result in results for load in result.real + result.ours)
    print(f"  the generator took at most {share:.0%} of a core")
