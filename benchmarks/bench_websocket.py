"""How many messages does JetLake take and deliver over WebSocket, and through a subject mapping, beside nats-server?

Both servers run the same case in turn, and each round gives a ratio. A client's frame holds one message, as those of
nats-py do. `CPU` is what the server's process spends on one message, all its threads together.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks._load import PAYLOAD_SIZE, SEED
from benchmarks._report import ROUNDS, heading, scratch, table
from benchmarks._server_load import Generator, both_servers
from benchmarks.bench_server import Case, Result
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

PLAIN = "websocket { host: 127.0.0.1, port: -1, no_tls: true }"

MAPPED = 'mappings { bench: other, "bench.*": "other.$1" }'
WEIGHTED = "mappings { bench: [{destination: other, weight: 30%}, {destination: another, weight: 70%}] }"


def _case(work: str, count: int, config: str = PLAIN, **keys: object) -> Case:
    return Case(work, 1.0, {NATS_SERVER: config, JETLAKE: config}, None, (count, count), {"window": 0, **keys})


CASES = [
    _case("WebSocket publish, no subscriber", 2_000_000),
    _case("WebSocket publish, 1 KiB", 1_000_000, size=1024),
    _case("WebSocket publish, 1:1", 1_000_000, subscribers=1),
    _case("WebSocket subscribe, 1:1", 1_500_000, subscribers=1, listen=1),
    _case("WebSocket subscribe, 1:4", 800_000, subscribers=4, listen=1),
    _case("publish with a mapping, no subscriber", 3_000_000, MAPPED),
    _case("publish with a mapping, 1,000 subjects", 2_000_000, MAPPED, subjects=1000),
    _case("publish with a weighted mapping", 2_000_000, WEIGHTED),
]


def websocket_port(server: Server) -> int:
    """Where a server takes WebSocket clients; 0 when it does not."""
    ports = json.loads(next(server.directory.glob("*.ports")).read_text())
    return int(ports["websocket"][0].rpartition(":")[2]) if "websocket" in ports else 0


def measure(case: Case, generator: Generator, directory: Path, rounds: int, divisor: int) -> Result:
    result = Result(case, [], [])
    with both_servers(directory, dict(case.configs)) as servers:
        for _ in range(rounds):
            for server, count, loads in zip(servers.values(), case.counts, (result.real, result.ours), strict=True):
                keys = {"size": PAYLOAD_SIZE, "websocket": websocket_port(server), **case.keys}
                loads.append(generator.run(server, case.mode, **{**keys, "count": max(count // divisor, 100)}))
    return result


def main(smoke: bool = False, only: str = "") -> None:
    rounds, divisor = (1, 2000) if smoke else (ROUNDS, 1)
    heading(__doc__, f"payloads of {PAYLOAD_SIZE} B unless said; seed {SEED}, medians of {rounds} paired rounds")
    with scratch() as directory:
        generator = Generator(directory)
        results = [measure(case, generator, directory, rounds, divisor) for case in CASES if only in case.work]
    columns = ["work", "nats-server", "JetLake", "its CPU µs", "our CPU µs", "ratio", "goal"]
    table(columns, [result.row() for result in results], left=(0, 6))
