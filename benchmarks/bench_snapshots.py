"""How fast are snapshot and restore beside nats-server, and how fast is a nats-server's store directory taken over?

Both servers hold the same messages, and each round gives a ratio. A restore gets the archive that nats-server sent. The
store directory is imported, and read in place beside the same stream in blocks of ours: by Spark, and on one core
without it, where verifying nats-server's hashes weighs more. The smoke size leaves Spark out.
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks._load import SEED
from benchmarks._report import ROUNDS, goal, heading, scratch, table
from jetlake.jetstream.snapshots.nats_store import import_store
from jetlake.table.options import parse_options
from jetlake.table.origin import open_origin
from jetlake.table.schema import RowBuilder, source_schema
from tests.compat.peer import Peer, publication
from tests.compat.servers import JETLAKE, NATS_SERVER, Server
from tests.compat.snapshots import Taken, restore, take

PAYLOAD_SIZE, SIZE = 1024, 1_000_000_000
STREAM, WINDOW = "BENCH", 2000
_PATIENCE_S = 600.0


class Round(NamedTuple):
    """What one server took, in seconds."""

    snapshot_s: float
    restore_s: float


def fill(server: Server, count: int) -> int:
    """Store so many messages; how many bytes they are for JetStream."""
    noise = random.Random(SEED)
    with Peer(server) as peer:
        peer.socket.settimeout(_PATIENCE_S)
        peer.api(f"STREAM.CREATE.{STREAM}", {"name": STREAM, "subjects": ["bench.>"]})
        for start in range(0, count, WINDOW):
            payload = noise.randbytes(PAYLOAD_SIZE)
            stop = min(start + WINDOW, count)
            peer.send(b"".join(publication(f"bench.{number % 50}", payload) for number in range(start, stop)))
            while peer.api(f"STREAM.INFO.{STREAM}")["state"]["last_seq"] < stop:
                time.sleep(0.001)
        return int(peer.api(f"STREAM.INFO.{STREAM}")["state"]["bytes"])


def measure(server: Server, archive: Taken | None) -> tuple[Round, Taken]:
    """A snapshot, and then a restore in place of the stream."""
    with Peer(server) as peer:
        peer.socket.settimeout(_PATIENCE_S)
        start_s = time.perf_counter()
        taken = take(peer, STREAM)
        snapshot_s = time.perf_counter() - start_s
        peer.api(f"STREAM.DELETE.{STREAM}")
        data = (archive or taken).data
        start_s = time.perf_counter()
        answer = restore(peer, taken.response["config"], data, chunk_size=128 * 1024)
        restore_s = time.perf_counter() - start_s
        assert answer["state"]["messages"] == taken.response["state"]["messages"], answer
    return Round(snapshot_s, restore_s), archive or taken


def scan_cpu_s(path: str) -> float:
    options = parse_options({"path": path, "stream": STREAM})
    origin, start_s = open_origin(options), time.process_time()
    builder = RowBuilder(source_schema(options), options)
    assert sum(batch.num_rows for task in origin.plan() for batch in origin.read(task, builder))
    return time.process_time() - start_s


def spark_ratios(source: str, target: str, rounds: int) -> list[float]:
    """How long Spark takes to read the directory in place, in scans of our own blocks."""
    from jetlake.spark import read
    from jetlake.spark.spark_session import session

    spark = session("bench", master="local[2]")

    def scan_s(path: str) -> float:
        start_s = time.perf_counter()
        frame = read(spark, path=path, stream=STREAM)
        frame.selectExpr("count(*)", "sum(length(payload))", "max(time_ns)", "max(length(subject))").collect()
        return time.perf_counter() - start_s

    try:
        for path in (source, target):  # the first ones start workers
            scan_s(path)
        return [scan_s(source) / scan_s(target) for _ in range(rounds)]
    finally:
        spark.stop()


def import_cpu_s(source: Path, target: Path) -> float:
    shutil.rmtree(target, ignore_errors=True)
    start_s = time.process_time()
    (result,) = import_store(str(source), str(target))
    assert not result.error and not result.lost, result
    return time.process_time() - start_s


def main(smoke: bool = False) -> None:
    size, rounds = (2_000_000, 1) if smoke else (SIZE, ROUNDS)
    count = size // (PAYLOAD_SIZE + 40)
    heading(__doc__, f"{size // 1_000_000} MB in messages of {PAYLOAD_SIZE} B; seed {SEED}, medians of {rounds} rounds")
    with scratch() as directory:
        servers = {kind: Server(kind, directory / kind) for kind in (NATS_SERVER, JETLAKE)}
        taken: dict[str, list[Round]] = {kind: [] for kind in servers}
        archive: Taken | None = None
        stored = 0
        try:
            for server in servers.values():
                server.environment |= {"JETLAKE_VERIFY": "", "JETLAKE_WATCHDOG_MS": ""}
                server.start()
                stored = fill(server, count)
            for _ in range(rounds):
                for kind, server in servers.items():
                    each, archive = measure(server, archive)
                    taken[kind].append(each)
            servers[NATS_SERVER].stop()
        finally:
            for server in servers.values():
                server.kill()
        source, target = servers[NATS_SERVER].store, directory / "imported"
        imports = [import_cpu_s(source, target) for _ in range(rounds)]
        scans = [scan_cpu_s(str(source)) / scan_cpu_s(str(target)) for _ in range(rounds)]
        by_spark = [] if smoke else spark_ratios(str(source), str(target), rounds)
    table(["work", "nats-server", "JetLake", "ratio", "goal"], _server_rows(taken, stored), left=(0, 4))
    import_rate = stored / 1e6 / median(imports)
    rows = [
        ["import, MB for a second of CPU time", f"{import_rate:,.0f}", goal(import_rate, 200)],
        ["scan in place without Spark, CPU time of our own scan", f"{median(scans):.2f}", ""],
    ]
    if by_spark:
        ratio = median(by_spark)
        rows.append(["scan in place by Spark, time of our own scan", f"{ratio:.2f}", goal(ratio, 1.5, at_most=True)])
    table(["work", "JetLake", "goal"], rows, left=(0, 2))


def _server_rows(taken: dict[str, list[Round]], stored: int) -> list[list[str]]:
    rows = []
    for field in Round._fields:
        times = {kind: [getattr(each, field) for each in rounds] for kind, rounds in taken.items()}
        pairs = zip(times[NATS_SERVER], times[JETLAKE], strict=True)
        ratio = median(theirs / ours for theirs, ours in pairs)
        rates = [f"{stored / 1e6 / median(times[kind]):,.0f} MB/s" for kind in (NATS_SERVER, JETLAKE)]
        rows.append([field.removesuffix("_s"), *rates, f"{ratio:.2f}", goal(ratio, 2.0)])
    return rows
