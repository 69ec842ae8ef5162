"""Streams to files: Parquet, CSV, JSON or Delta, by token and date, from where the last export ended.

CSV and JSON hold text: payloads are read with payload=string there unless told otherwise, and those that are none stand
in the column `_malformed`, as base64. In CSV headers are JSON. `import_.py` reads all of it back.

An export is a streaming query that reads what is there and ends: Spark's file sink writes each message once, and a
checkpoint knows the last sequence. It lies beside the directory of the files, for everything in there is data to those
who read it; one that an earlier export left inside is used as it is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from jetlake.spark.compat import parse_offset
from jetlake.spark.frames import read_stream
from jetlake.table.errors import BadOption
from jetlake.table.options import parse_options
from jetlake.table.schema import MALFORMED

FORMATS = ("parquet", "csv", "json", "delta")
_CHECKPOINT_INSIDE = "_jetlake_checkpoint"
_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
_WRITING = {
    "json": _TIMES,
    "csv": _TIMES
    | {"header": "true", "escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"},
}
NO_DELTA = (
    "Spark has no Delta here: its jar is not part of JetLake. Give Spark the package io.delta:delta-spark of its own "
    "version (spark.jars.packages, or on the cluster), or export to parquet"
)


class Exported(NamedTuple):
    """What an export did."""

    messages: int
    batches: int
    offsets: dict[str, Any]


def export(
    spark: SparkSession,
    options: dict[str, str],
    target: str,
    *,
    format: str = "parquet",
    partition_by: Sequence[str] = ("date",),
) -> Exported:
    """Write what is new since the last export to the same target; `date` and tokens of the subject partition it."""
    if format not in FORMATS:
        raise BadOption(f"format {format} is not {' or '.join(FORMATS)}")
    target = target.rstrip("/")
    given = dict(options)
    if format in _WRITING:
        given = {"payload": "string"} | given
        if parse_options(given).payload == "binary":
            raise BadOption(f"{format} holds text: payload=binary is for parquet and delta")
    frame = _flat(_dated(read_stream(spark, **given), partition_by), format)
    unknown = [name for name in partition_by if name not in frame.columns]
    if unknown:
        raise BadOption(f"there is no column {', '.join(unknown)} to partition by; tokens come from subject_tokens")
    writer = frame.writeStream.format(format).option("checkpointLocation", checkpoint_of(target))
    writer = writer.options(**_WRITING.get(format, {}))
    try:
        query = writer.partitionBy(*partition_by).trigger(availableNow=True).start(target)
    except Exception as error:  # Spark and Spark Connect have no class in common for it
        if format == "delta" and "DATA_SOURCE_NOT_FOUND" in str(error):
            raise BadOption(NO_DELTA) from None
        raise
    return _finish(query)


def checkpoint_of(target: str) -> str:
    """Where the bookkeeping of an export lies."""
    inside = f"{target}/{_CHECKPOINT_INSIDE}"
    if os.path.isdir(inside.removeprefix("file://")):
        return inside
    parent, _, name = target.rpartition("/")
    return f"{parent}/.{name}.jetlake-export" if parent else f".{name}.jetlake-export"


def _finish(query: StreamingQuery) -> Exported:
    """Wait for the end, and count: a query remembers its last 100 batches only, and cannot make so many in a second."""
    counts: dict[int, int] = {}
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(1))
        counts |= {batch["batchId"]: batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]}
    last = query.lastProgress
    offsets = last["sources"][0]["endOffset"] if last is not None else "{}"
    return Exported(sum(counts.values()), len(counts), parse_offset(offsets))


def _dated(frame: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    if "date" in partition_by and "date" not in frame.columns:
        return frame.withColumn("date", F.to_date("time"))
    return frame


def _flat(frame: DataFrame, format: str) -> DataFrame:
    """What text can hold: payloads that are none become base64, and for CSV headers become JSON."""
    if format == "csv" and "headers" in frame.columns:
        frame = frame.withColumn("headers", F.to_json("headers"))
    if format in _WRITING and MALFORMED in frame.columns:
        frame = frame.withColumn(MALFORMED, F.base64(MALFORMED))
    return frame
