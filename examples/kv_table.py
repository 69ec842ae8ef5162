"""A key-value bucket as a table: what holds now, and what held before: `python examples/kv_table.py`."""

from __future__ import annotations

import asyncio
import tempfile

import nats
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jetlake.spark import read, session
from jetlake.testing.server import run_server


async def fill(url: str) -> None:
    client = await nats.connect(url)
    bucket = await client.jetstream().create_key_value(bucket="SETTINGS", history=5)
    for key, value in (("lamp.colour", b"red"), ("lamp.power", b"60"), ("fan.power", b"5"), ("lamp.colour", b"green")):
        await bucket.put(key, value)
    await bucket.delete("fan.power")
    await client.close()


def in_force(history: DataFrame) -> DataFrame:
    """The last value of every key that was not deleted."""
    last = history.groupBy("key").agg(F.max_by(F.struct("value", "operation"), "seq").alias("last"))
    return last.where("last.operation = 'PUT'").select("key", "last.value")


def main() -> None:
    with tempfile.TemporaryDirectory() as data, run_server(data) as url:
        asyncio.run(fill(url))
        # A bucket is a stream: KV_<bucket>, with one subject for each key. A delete is a message with a header.
        rows = read(session(), path=data, stream="KV_SETTINGS", subject_tokens="$KV.SETTINGS.{key>}", payload="string")
        operation = F.coalesce(F.col("headers")["KV-Operation"][0], F.lit("PUT")).alias("operation")
        history = rows.select("seq", "key", F.col("payload").alias("value"), operation)
        history.orderBy("seq").show()
        in_force(history).orderBy("key").show()


if __name__ == "__main__":
    main()
