"""A declarative pipeline over streams: a table that follows ORDERS, one that sums it up, and a stream for large orders.

JETLAKE_PATH is the directory of the stream ORDERS, JETLAKE_TARGET where the stream of large orders is written.
"""

from __future__ import annotations

import os
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark: Any = SparkSession.active()


def orders_stream() -> DataFrame:
    """The stream as it goes on."""
    reader = spark.readStream.format("jetstream").option("subject_tokens", "orders.{region}.{number}")
    reader = reader.option("payload", "json").option("payloadSchema", "id BIGINT, amount DOUBLE")
    frame: DataFrame = reader.option("columns", "seq,time,region,id,amount").load(os.environ["JETLAKE_PATH"])
    return frame


@dp.table(comment="Every order of the stream")
def orders() -> DataFrame:
    return orders_stream()


@dp.materialized_view(comment="Orders and revenue by region")
def revenue() -> DataFrame:
    frame = spark.read.table("orders").groupBy("region")
    result: DataFrame = frame.agg(F.count("*").alias("orders"), F.sum("amount").alias("revenue"))
    return result


dp.create_sink("large_orders", "jetstream", {"path": os.environ["JETLAKE_TARGET"]})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    subject = F.concat(F.lit("large."), F.col("region")).alias("subject")
    return orders_stream().where("amount > 900").select(subject, F.to_json(F.struct("id", "amount")).alias("payload"))
