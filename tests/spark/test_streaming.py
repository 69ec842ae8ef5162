"""Streaming reads through Spark: what comes out is every message once, whatever happens between batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from jetlake.spark.compat import HAS_READ_LIMITS, parse_offset
from tests.spark.versions import at_most
from tests.table.streams import add_orders, orders


def run(spark: Any, source: Path, work: Path, **options: Any) -> Any:
    """Read what is there into Parquet, and end; the query."""
    stream = spark.readStream.format("jetstream").options(**options).load(str(source)).select("seq", "subject")
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(work / "out"))
    )
    query.awaitTermination(120)
    return query


def seqs(spark: Any, work: Path) -> list[int]:
    return sorted(row.seq for row in spark.read.parquet(str(work / "out")).collect())


def test_available_now_reads_all_and_the_next_run_what_is_new(spark: Any, tmp_path: Path) -> None:
    with orders(tmp_path / "S", 100) as store:
        query = run(spark, tmp_path / "S", tmp_path, **at_most(40))
        assert [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]] == (
            [40, 40, 20] if HAS_READ_LIMITS else [100]
        )
        assert seqs(spark, tmp_path) == list(range(1, 101))
        add_orders(store, range(101, 121))
        query = run(spark, tmp_path / "S", tmp_path, **at_most(40))
        assert seqs(spark, tmp_path) == list(range(1, 121))
        offset = parse_offset(query.lastProgress["sources"][0]["endOffset"])
        assert offset["S"]["seq"] == 120 and offset["S"]["missed"] == 0


def test_a_batch_that_failed_is_read_again_exactly(spark: Any, tmp_path: Path) -> None:
    """A crash between the plan of a batch and its end: the checkpoint has its offsets, and no commit."""
    seen: list[tuple[int, list[int]]] = []

    def collect(frame: Any, batch: int) -> None:
        seen.append((batch, sorted(row.seq for row in frame.collect())))

    def start() -> None:
        stream = spark.readStream.format("jetstream").load(str(tmp_path / "S")).select("seq")
        writer = stream.writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination(120)

    with orders(tmp_path / "S", 50) as store:
        start()
        for name in ("commits/0", "commits/.0.crc"):
            (tmp_path / "checkpoint" / name).unlink()
        add_orders(store, range(51, 71))
        start()
        if not HAS_READ_LIMITS:  # AvailableNow is one batch there, and that was the one which failed
            start()
    first, new = list(range(1, 51)), list(range(51, 71))
    assert seen == [(0, first), (0, first), (1, new)]


def test_retention_fails_the_query_or_is_counted(spark: Any, tmp_path: Path) -> None:
    with orders(tmp_path / "S", 50) as store:
        run(spark, tmp_path / "S", tmp_path)
        add_orders(store, range(51, 101))
        store.compact(61)
        store.commit()
        with pytest.raises(Exception, match="sequences 51-60; option onGap=report"):
            run(spark, tmp_path / "S", tmp_path)
        query = run(spark, tmp_path / "S", tmp_path, onGap="report")
        assert seqs(spark, tmp_path) == [*range(1, 51), *range(61, 101)]
        assert parse_offset(query.lastProgress["sources"][0]["endOffset"])["S"]["missed"] == 10


def test_a_recreated_stream_is_refused(spark: Any, tmp_path: Path) -> None:
    store = orders(tmp_path / "S", 50)
    run(spark, tmp_path / "S", tmp_path)
    store.delete()
    with orders(tmp_path / "S", 80), pytest.raises(Exception, match="belongs to another stream"):
        run(spark, tmp_path / "S", tmp_path)
