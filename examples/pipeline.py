"""The whole of JetLake in one run: publish with a NATS client, query with Spark, write results back, export.

    python examples/pipeline.py [--messages 200000] [--directory DIR]

It starts a server of its own, publishes orders, sensor readings and a key-value bucket through nats-py, and then works
on the very files that the server writes: a batch query, a streaming aggregation whose results go back into a stream
exactly once, and an export to Parquet. Nothing is staged: every figure comes from the run you see. Without --directory
it works in a temporary directory, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

import jetlake
from jetlake.spark import read, read_stream, session
from jetlake.spark.jobs.export import export
from jetlake.spark.jobs.plot import bars
from jetlake.testing.server import run_server

SEED = 42
REGIONS, PRODUCTS = ("eu", "us", "apac"), ("lamp", "chair", "desk", "shelf")
SITES, DEVICES = ("berlin", "lima", "osaka"), 40
WINDOW = 5000  # messages that may wait for their ack

console = Console(highlight=False, width=110)
steps: list[tuple[str, str, float]] = []


@contextmanager
def step(title: str) -> Iterator[dict[str, str]]:
    """Say what is done, and note how long it took; `result` is filled in by the step."""
    console.print(f"\n[bold]{len(steps) + 1}. {title}[/bold]")
    note, started = {"result": ""}, time.perf_counter()
    yield note
    took = time.perf_counter() - started
    steps.append((title, note["result"], took))
    console.print(f"   {note['result']}  [dim]({took:.1f} s)[/dim]")


# 1: publish


def orders(count: int) -> Iterator[tuple[str, bytes]]:
    """A shop's orders on orders.<region>.<product>."""
    rng = random.Random(SEED)
    for number in range(count):
        region, product = rng.choices(REGIONS, (5, 3, 2))[0], rng.choice(PRODUCTS)
        order = {"id": number, "amount": round(rng.lognormvariate(3, 0.8), 2), "customer": rng.randrange(5000)}
        yield f"orders.{region}.{product}", json.dumps(order).encode()


def readings(count: int) -> Iterator[tuple[str, bytes]]:
    """Temperatures on sensors.<site>.<device>; one device of each site runs hot."""
    rng = random.Random(SEED + 1)
    for number in range(count):
        site, device = rng.choice(SITES), rng.randrange(DEVICES)
        celsius = rng.gauss(35 if device == 13 else 20, 2)
        yield f"sensors.{site}.{device}", json.dumps({"n": number, "celsius": round(celsius, 2)}).encode()


async def publish(url: str, count: int) -> None:
    """Orders, readings and settings, every message acknowledged by the server."""
    client = await nats.connect(url)
    js = client.jetstream(publish_async_max_pending=WINDOW)
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    await js.add_stream(name="SENSORS", subjects=["sensors.>"])
    for messages in (orders(count // 2), readings(count - count // 2 - count // 100)):
        for subject, payload in messages:
            await js.publish_async(subject, payload, wait_stall=30)
        await js.publish_async_completed()
    settings = await js.create_key_value(bucket="SETTINGS", history=5)
    rng = random.Random(SEED + 2)
    for _ in range(count // 100):
        site, device = rng.choice(SITES), rng.randrange(DEVICES)
        await settings.put(f"{site}.{device}", json.dumps({"limit": rng.randrange(28, 33)}).encode())
    await client.close()


# 2: ask


def ask(spark: SparkSession, data: Path) -> DataFrame:
    """Revenue by region and product, straight from the server's files."""
    frame = read(
        spark,
        path=data,
        stream="ORDERS",
        subject_tokens="orders.{region}.{product}",
        payload="json",
        payloadSchema="id BIGINT, amount DOUBLE, customer BIGINT",
    )
    return (
        frame.groupBy("region")
        .agg(
            F.count("*").alias("orders"),
            F.countDistinct("customer").alias("customers"),
            F.round(F.sum("amount"), 2).alias("revenue"),
            F.round(F.avg("amount"), 2).alias("average"),
        )
        .orderBy(F.desc("revenue"))
    )


def settings_in_force(spark: SparkSession, data: Path) -> DataFrame:
    """The last value of every key of the bucket, which is a stream like any other."""
    keys = read(spark, path=data, stream="KV_SETTINGS", subject_tokens="$KV.SETTINGS.{site}.{device}", payload="string")
    last = keys.groupBy("site", "device").agg(F.max_by("payload", "seq").alias("value"))
    return last.select("site", "device", F.get_json_object("value", "$.limit").cast("int").alias("limit"))


# 3: aggregate, and write back


def watch(spark: SparkSession, data: Path, url: str, work: Path) -> int:
    """Mean temperature of every device into the stream ALERTS, where it is above the limit in force."""
    limits = settings_in_force(spark, data)

    def write_alerts(batch: DataFrame, number: int) -> None:
        means = batch.groupBy("site", "device").agg(
            F.round(F.avg("celsius"), 2).alias("celsius"), F.count("*").alias("readings")
        )
        hot = means.join(limits, ["site", "device"]).where("celsius > limit").orderBy("site", "device")
        message = F.to_json(F.struct("site", "device", "celsius", "limit", "readings")).alias("payload")
        rows = hot.select(F.concat(F.lit("alerts."), "site", F.lit("."), "device").alias("subject"), message)
        # The job's id makes a batch that is run again write nothing twice.
        options = {"url": url, "stream": "ALERTS", "subjects": "alerts.>", "jobId": f"alerts-{work.name}-{number}"}
        rows.coalesce(1).write.format("jetstream").mode("append").options(**options).save()

    stream = read_stream(
        spark,
        path=data,
        stream="SENSORS",
        subject_tokens="sensors.{site}.{device}",
        payload="json",
        payloadSchema="n BIGINT, celsius DOUBLE",
        maxRowsPerTrigger=50_000,
    )
    query = (
        stream.writeStream.foreachBatch(write_alerts)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return len(query.recentProgress)


# 4: a look without Spark


def look(data: Path) -> str:
    """How many orders each region has, by DuckDB over the same files."""
    orders = jetlake.scan(data, "ORDERS", subject_tokens="orders.{region}.{product}")
    counts = orders.duckdb().aggregate("region, count(*) AS orders").order("orders DESC, region").fetchall()
    for line in bars(counts):
        console.print(f"   {line}")
    return f"{sum(count for _, count in counts):,} orders counted"


# Showing


def show(frame: DataFrame, title: str, rows_max: int = 8) -> None:
    """The first rows of a frame as a table."""
    table = Table(title=title, title_justify="left")
    for name, kind in frame.dtypes:
        table.add_column(name, justify="right" if kind in ("bigint", "int", "double") else "left")
    for row in frame.collect()[:rows_max]:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else str(value) for value in row))
    console.print(table)


def summary(total_s: float) -> None:
    """What was done, at a glance."""
    table = Table(title="What this run did", title_justify="left")
    for name in ("step", "result", "seconds"):
        table.add_column(name, justify="right" if name == "seconds" else "left")
    for title, result, took in steps:
        table.add_row(title, result, f"{took:.1f}")
    table.add_row("[bold]all", "", f"{total_s:.1f}")
    console.print()
    console.print(table)


def run(count: int, directory: Path) -> None:
    """The tour."""
    started, data = time.perf_counter(), directory / "data"
    work = directory / f"run-{time.time_ns():x}"
    work.mkdir(parents=True)
    console.print(f"JetLake: {count:,} messages through a NATS client, and the same files as Spark tables")
    with run_server(data) as url:
        with step("Publish with nats-py: orders, sensor readings, a key-value bucket") as note:
            asyncio.run(publish(url, count))
            note["result"] = f"{count:,} messages acknowledged by the server at {url}"
        with step("Start Spark, on this machine") as note:
            spark = session("pipeline")
            note["result"] = f"Spark {spark.version}; its tables are the streams in {data}"
        with step("Batch query: revenue by region, from the server's files") as note:
            revenue = ask(spark, data)
            show(revenue, "select region, … from ORDERS group by region")
            found: list[Any] = revenue.collect()
            for line in bars([(row.region, row.revenue) for row in found]):
                console.print(f"   {line}")
            note["result"] = f"{sum(row.orders for row in found):,} orders read"
        with step("Streaming: devices above their limit, written back exactly once") as note:
            batches = watch(spark, data, url, work)
            alerts = read(
                spark,
                url=url,
                stream="ALERTS",
                payload="json",
                payloadSchema="site STRING, device STRING, celsius DOUBLE, limit INT, readings BIGINT",
                columns="seq,subject,celsius,limit,readings",
            )
            show(alerts.orderBy("seq"), "the stream ALERTS, read back from the server")
            note["result"] = f"{batches} micro-batches, {alerts.count():,} alerts in the stream ALERTS"
        with step("Export to Parquet, by region and date") as note:
            options = {"path": str(data), "stream": "ORDERS", "subject_tokens": "orders.{region}.{product}"}
            done = export(spark, options, str(directory / "export"), partition_by=("region", "date"))
            files = len(list((directory / "export").glob("region=*/date=*/*.parquet")))
            note["result"] = f"{done.messages:,} messages in {files} files"
        with step("The same stream by DuckDB, without Spark") as note:
            note["result"] = look(data)
    summary(time.perf_counter() - started)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=200_000, help="how many messages (default %(default)s)")
    parser.add_argument("--directory", type=Path, help="keep the data there; a second run adds to it")
    arguments = parser.parse_args()
    if arguments.directory is not None:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        run(arguments.messages, arguments.directory.resolve())
        return
    with tempfile.TemporaryDirectory(prefix="jetlake-pipeline-") as name:
        run(arguments.messages, Path(name))


if __name__ == "__main__":
    main()
