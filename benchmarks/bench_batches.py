"""How fast are atomic batches, fast-ingest batches and counters, beside nats-server on the same machine?

Everything that is sent is made before the clock starts. A publisher of atomic batches sends a few ahead of their
acks; one of a fast-ingest batch stays within the flow that the server allows, as clients do; increments of counters
have a window of open acks. A message counts when the ack that covers it has come back.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._load import PAYLOAD_SIZE, SEED
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from benchmarks._server_load import SYNCED, UNSYNCED, both_servers, cpu_ns, fresh_stream, message_count
from tests.compat.peer import Peer, header_block, publication
from tests.compat.servers import JETLAKE, NATS_SERVER, Server

BATCH_COUNT = 100  # messages of an atomic batch
AHEAD = 8  # atomic batches that are not acknowledged yet
FLOW = 500  # messages between two acks of a fast-ingest batch
WINDOW = 1000  # increments that are not acknowledged yet
SUBJECTS = 100
PAYLOAD = b"x" * PAYLOAD_SIZE
CONFIGS = {
    "neither syncing": {NATS_SERVER: UNSYNCED, JETLAKE: UNSYNCED},
    "only JetLake syncing": {NATS_SERVER: UNSYNCED, JETLAKE: SYNCED},
}


class Sent(NamedTuple):
    """What a server did: messages a second, and what it spent on one."""

    rate: float
    cpu_us: float


class Work(NamedTuple):
    name: str
    least: float
    stream: dict[str, object]
    count: int
    send: Callable[[Peer, int], Iterator[None]]  # makes its messages, yields, and sends them


def atomic(peer: Peer, count: int) -> Iterator[None]:
    batches = []
    for batch in range(count // BATCH_COUNT):
        lines = b""
        for seq in range(1, BATCH_COUNT + 1):
            last = {"Nats-Batch-Commit": 1} if seq == BATCH_COUNT else {}
            headers = header_block(**{"Nats-Batch-Id": f"batch-{batch:08}", "Nats-Batch-Sequence": seq, **last})
            lines += publication(f"bench.{seq}", PAYLOAD, headers, "R.a" if last else "")
        batches.append(lines)
    yield
    windowed(peer, batches, AHEAD, b'"count":%d' % BATCH_COUNT)


def counters(peer: Peer, count: int) -> Iterator[None]:
    headers = header_block(**{"Nats-Incr": "+1"})
    lines = [publication(f"bench.{number % SUBJECTS}", b"", headers, "R.c") for number in range(count)]
    step = 50
    yield
    windowed(peer, [b"".join(lines[at : at + step]) for at in range(0, count, step)], WINDOW // step, b'"val":', step)


def windowed(peer: Peer, parts: list[bytes], ahead: int, mark: bytes, per_part: int = 1) -> None:
    """Send parts, so many ahead of the acks, which hold a mark."""
    sent = acked = 0
    rest = b""
    while acked < len(parts) * per_part:
        while sent < len(parts) and sent < acked // per_part + ahead:
            peer.send(parts[sent])
            sent += 1
        data = rest + receive(peer.socket)
        acked += data.count(mark)
        rest = data[-len(mark) + 1 :]
        assert b'"error"' not in data, data[:300]


def fast(peer: Peer, count: int) -> Iterator[None]:
    parts, seq = [], 0
    for first in range(1, count + 1, FLOW):
        lines = b""
        for seq in range(first, min(first + FLOW, count + 1)):
            operation = 0 if seq == 1 else 2 if seq == count else 1
            reply = f"R.batch.{FLOW}.fail.{seq}.{operation}.$FI"
            lines += publication(f"bench.{seq % SUBJECTS}", PAYLOAD, b"", reply)
        parts.append(lines)
    ack = re.compile(rb'"type":"ack","seq":(\d+)')
    yield
    sent = acked = 0
    data = b""
    while b'"count":%d' % seq not in data:
        while sent < len(parts) and sent * FLOW < acked + 2 * FLOW:
            peer.send(parts[sent])
            sent += 1
        data = data[-64:] + receive(peer.socket)
        acked = max([acked, *map(int, ack.findall(data))])
        assert b'"error"' not in data, data[:300]


def receive(source: socket.socket) -> bytes:
    data = source.recv(1 << 16)
    assert data, "the server hung up"
    return data


WORKS = [
    Work(f"atomic batches of {BATCH_COUNT}", 3.0, {"allow_atomic": True}, 20_000, atomic),
    Work("fast-ingest batch", 2.0, {"allow_batched": True}, 200_000, fast),
    Work("counters", 1.5, {"allow_msg_counter": True, "max_msgs_per_subject": 1}, 40_000, counters),
]


def measure(work: Work, server: Server, count: int) -> Sent:
    fresh_stream(server, work.stream)
    with Peer(server) as peer:
        peer.subscribe("R.>")
        steps = work.send(peer, count)
        next(steps)
        start, cpu_before = time.perf_counter(), cpu_ns(server.pid)
        assert next(steps, None) is None
        wall_s, spent_ns = time.perf_counter() - start, cpu_ns(server.pid) - cpu_before
    if "max_msgs_per_subject" not in work.stream:
        assert message_count(server) == count, "every ack stands for a message"
    return Sent(count / wall_s, spent_ns / count / 1000)


def compare(work: Work, label: str, directory: Path, rounds: int, divisor: int) -> list[str]:
    count = max(work.count // divisor // BATCH_COUNT, 2) * BATCH_COUNT
    found: dict[str, list[Sent]] = {NATS_SERVER: [], JETLAKE: []}
    with both_servers(directory, CONFIGS[label]) as servers:
        for _ in range(rounds):
            for kind, server in servers.items():
                found[kind].append(measure(work, server, count))
    real, ours = found.values()
    ratio = median(one.rate / other.rate for one, other in zip(ours, real, strict=True))
    figures = [f"{median(sent.rate for sent in loads):,.0f}/s" for loads in (real, ours)]
    costs = [f"{median(sent.cpu_us for sent in loads):.2f}" for loads in (real, ours)]
    is_fair = len(set(CONFIGS[label].values())) == 1  # else a goal would compare different promises
    wanted = goal(ratio, work.least).removeprefix("goal ") if is_fair else ""
    return [f"{work.name}, {label}", *figures, *costs, f"{ratio:.2f}", wanted]


def main(smoke: bool = False) -> None:
    rounds, divisor = (1, 1000) if smoke else (ROUNDS, 1)
    heading(__doc__, f"payloads of {PAYLOAD_SIZE} B, file storage; seed {SEED}; medians of {rounds} paired rounds")
    with scratch() as directory:
        rows = [compare(work, label, directory, rounds, divisor) for label in CONFIGS for work in WORKS]
    table(["work", "nats-server", "JetLake", "its CPU µs", "our CPU µs", "ratio", "goal"], rows, left=(0, 6))
