"""How fast is a stream read without Spark, beside the same rows in uncompressed Parquet, and beside nats-py?

`jetlake.scan` into Arrow, DuckDB and Polars, `jetlake sql` from its start to its end, and a live nats-server over the
network. Times are on the wall, for both sides use threads; they take turns, and the medians of paired ratios count.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._load import SEED
from benchmarks._report import goal, heading, scratch, table
from benchmarks.bench_spark import consume, fill, publish, server

TOKENS = "bench.{number}"
Row = list[str]


def main(smoke: bool = False) -> None:
    count, live_count, rounds = (2_000, 500, 1) if smoke else (1_000_000, 200_000, 7)
    heading(__doc__, f"{count:,} messages of 128 B and 1 KiB; seed {SEED}, median of {rounds} pairs")
    rows: list[Row] = []
    with scratch() as directory:
        for size, bound in ((128, 1.2), (1024, 1.0)):
            stream = directory / f"BENCH{size}"
            fill(stream, count, size, 32 * 1024 * 1024)
            rows += over_parquet(stream, bound, rounds, has_engines=size == 128)
        rows.append(sql(directory / "BENCH128", rounds))
        rows += network(directory, live_count, rounds)
    table(["work", "ours", "other", "ratio", "goal"], rows, left=(0, 4))


def paired(ours: Callable[[], object], other: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Seconds of both, and the median of their ratios; each runs once before it counts."""
    took: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        took.append((timed(ours), timed(other)))
    warm = took[1:]
    ratio = statistics.median(mine / theirs for mine, theirs in warm)
    return statistics.median(mine for mine, _ in warm), statistics.median(theirs for _, theirs in warm), ratio


def timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def over_parquet(stream: Path, bound: float, rounds: int, *, has_engines: bool) -> list[Row]:
    import duckdb
    import polars as pl
    import pyarrow.parquet as pq

    import jetlake

    scan, parquet = jetlake.scan(stream), f"{stream}.parquet"
    pq.write_table(scan.to_arrow(), parquet, compression="none")
    rows = [_row(f"to_arrow, {stream.name}", paired(scan.to_arrow, lambda: pq.read_table(parquet), rounds), bound)]
    if not has_engines:
        return rows
    query = "select split_part(subject, '.', 2) t, count(*), sum(size) from {} group by t"
    with duckdb.connect() as connection:
        connection.register("stream", scan.dataset())

        def ask(source: str) -> Callable[[], object]:
            return lambda: connection.sql(query.format(source)).fetchall()

        assert sorted(ask("stream")()) == sorted(ask(f"'{parquet}'")())  # type: ignore[call-overload]
        rows.append(_row("DuckDB: count and sum by token", paired(ask("stream"), ask(f"'{parquet}'"), rounds), 1.5))

    def group(frame: Any) -> Callable[[], object]:
        token = pl.col("subject").str.split(".").list.get(1)
        return lambda: frame.group_by(token).agg(pl.len(), pl.col("size").sum()).collect()

    found = paired(group(scan.lazy()), group(pl.scan_parquet(parquet)), rounds)
    rows.append(_row("Polars: count and sum by token", found, 1.5))
    return rows


def sql(stream: Path, rounds: int) -> Row:
    """The command, cold: a process of its own for each query."""
    query = f"select subject, count(*) from {stream.name} group by 1 order by 2 desc limit 10"
    command = [sys.executable, "-m", "jetlake.cli.main", "sql", str(stream), query, "--engine", "duckdb", "--json"]
    took = [timed(lambda: subprocess.run(command, check=True, capture_output=True)) for _ in range(rounds)]
    seconds = statistics.median(took)
    return [
        "jetlake sql, cold",
        f"{seconds:.2f} s",
        "bound 1.5 s",
        f"{seconds / 1.5:.2f}",
        goal(seconds, 1.5, at_most=True),
    ]


def network(directory: Path, count: int, rounds: int) -> list[Row]:
    import jetlake

    with server("nats-server", directory / "nats") as url:
        if url is None:
            return []
        publish(url, count)
        scan = jetlake.scan(url, "BENCH")
        assert scan.to_arrow().num_rows == count
        ours, other, ratio = paired(scan.to_arrow, lambda: asyncio.run(consume(url, count)), max(rounds // 2, 1))
    rates = [f"{count / seconds:,.0f}/s" for seconds in (ours, other)]
    return [["scan of a live nats-server, beside nats-py", *rates, f"{1 / ratio:.1f}", goal(1 / ratio, 20)]]


def _row(work: str, found: tuple[float, float, float], bound: float) -> Row:
    ours, other, ratio = found
    return [work, f"{ours:.3f} s", f"{other:.3f} s", f"{ratio:.2f}", goal(ratio, bound, at_most=True)]
