"""What is in a stream: messages, bytes and rates, by subject token and by time."""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jetlake.spark.frames import read
from jetlake.table.errors import BadOption

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Stats(NamedTuple):
    """Two tables: by group of subjects, and by time."""

    groups: DataFrame
    times: DataFrame


def stats(
    spark: SparkSession, options: dict[str, str], *, where: str = "", depth: int = 1, bucket: str = "1h"
) -> Stats:
    """Count messages by the first tokens of their subjects (or by `subject_tokens`), and by buckets of time."""
    names = [part[1:-1].rstrip(">") for part in options.get("subject_tokens", "").split(".") if part.startswith("{")]
    frame = read(spark, where, **{**options, "columns": _columns(options, where, names)})
    by = [F.col(name) for name in names] or [F.substring_index("subject", ".", depth).alias("subjects")]
    length_s = F.unix_timestamp(F.max("time")) - F.unix_timestamp(F.min("time"))
    groups = frame.groupBy("stream", *by).agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.round(F.avg("size"), 1).alias("average_size"),
        F.max("size").alias("largest"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.round(F.count("*") / F.greatest(length_s, F.lit(1)), 2).alias("messages_per_s"),
    )
    window = F.window("time", _interval(bucket))
    times = (
        frame.groupBy("stream", window.alias("bucket"))
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
        .select("stream", F.col("bucket.start").alias("time"), "messages", "bytes")
    )
    return Stats(groups.orderBy("stream", F.desc("messages")), times.orderBy("stream", "time"))


def _columns(options: dict[str, str], where: str, names: list[str]) -> str:
    """What has to be read: all of it, which is "", where a condition may ask for more than is counted."""
    given = {name.lower() for name in options}
    if "columns" in given:
        raise BadOption("statistics choose their columns themselves: not with the option columns")
    if where and ("payload" in given or re.search("headers|payload", where, re.IGNORECASE)):
        return ""
    return ",".join(["stream", "seq", "subject", "time", "time_ns", "size", *names])


def _interval(text: str) -> str:
    """15m as Spark says it: 15 minutes."""
    found = re.fullmatch(r"([1-9][0-9]*)([smhd])", text)
    if found is None:
        raise BadOption(f"{text!r} is not a length of time like 10s, 15m, 1h or 1d")
    return f"{found[1]} {_UNITS[found[2]]}"
