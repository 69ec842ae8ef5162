"""Means of a stream, minute by minute, into another stream, exactly once: `python examples/stream_aggregation.py`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import nats
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jetlake.spark import read, read_stream, session
from jetlake.testing.server import run_server


async def publish(url: str, first: int, last: int) -> None:
    """Readings of two devices, one a second."""
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(name="SENSORS", subjects=["sensors.*"])
    for second in range(first, last):
        reading = b'{"at": "2026-03-01T12:%02d:%02dZ", "celsius": %d}' % (*divmod(second, 60), second // 60)
        await js.publish(f"sensors.{('attic', 'cellar')[second % 2]}", reading)
    await client.close()


def averages(spark: SparkSession, url: str) -> DataFrame:
    """The mean of each device and minute, once the minute is over."""
    readings = read_stream(
        spark,
        url=url,
        stream="SENSORS",
        subject_tokens="sensors.{device}",
        payload="json",
        payloadSchema="at TIMESTAMP, celsius DOUBLE",
    )
    minutes = readings.withWatermark("at", "10 seconds").groupBy("device", F.window("at", "1 minute").alias("minute"))
    means = minutes.agg(F.avg("celsius").alias("celsius"), F.count("*").alias("readings"))
    message = F.to_json(F.struct(F.col("minute.start").alias("at"), "celsius", "readings"))
    return means.select(F.concat(F.lit("minutes."), "device").alias("subject"), message.alias("payload"))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, run_server(Path(directory, "data")) as url:
        spark = session()
        for first, last in ((0, 150), (150, 300)):  # the second run goes on where the first one ended
            asyncio.run(publish(url, first, last))
            writer = averages(spark, url).writeStream.format("jetstream").trigger(availableNow=True)
            writer = writer.options(url=url, stream="MINUTES", subjects="minutes.*")
            writer.option("checkpointLocation", f"{directory}/checkpoint").start().awaitTermination()
            minutes = read(spark, url=url, stream="MINUTES", payload="string", columns="subject,payload")
            print(f"after {last} readings, {minutes.count()} messages in MINUTES")
        minutes.orderBy("payload", "subject").show(truncate=False)


if __name__ == "__main__":
    main()
