"""Files to a stream: Parquet, JSON lines or CSV.

A row becomes a message. Its subject is the column `subject`, or made from a template: orders.{region}.{id}. Its payload
is the column `payload`, or, where there is none, the whole row as JSON. Columns `headers`, `time` and `time_ns` are
used if they are there.
"""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jetlake.spark.errors import BadOption

FORMATS = {"parquet": "parquet", "jsonl": "json", "json": "json", "csv": "csv"}
_FIELD = re.compile(r"\{(\w+)\}")
_OWN = ("subject", "payload", "headers", "time", "time_ns")


def import_files(
    spark: SparkSession, files: str, options: dict[str, str], *, format: str = "", subject: str = ""
) -> int:
    """Append the rows of files to a stream; how many."""
    kind = format or files.rstrip("/").rpartition(".")[2]
    if kind not in FORMATS:
        raise BadOption(f"format {kind!r} is not {', '.join(FORMATS)}")
    reader = spark.read.format(FORMATS[kind])
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", "true")
    frame = messages(reader.load(files), subject, is_live="url" in options)
    count = frame.count()
    frame.write.format("jetstream").mode("append").options(**options).save()
    return count


def messages(frame: DataFrame, subject: str = "", *, is_live: bool = False) -> DataFrame:
    """The rows of a frame as messages."""
    fields = set(frame.columns)
    chosen: list[Column] = [_subject(fields, subject).alias("subject")]
    if "payload" in fields:
        chosen.append(F.col("payload"))
    else:
        chosen.append(F.to_json(F.struct(*[F.col(f"`{name}`") for name in frame.columns])).alias("payload"))
        return frame.select(*chosen)
    if "headers" in fields:
        chosen.append(F.col("headers"))
    if not is_live and "time_ns" in fields:
        chosen.append(F.col("time_ns"))
    elif not is_live and "time" in fields:
        chosen.append(F.col("time"))
    return frame.select(*chosen)


def _subject(fields: set[str], template: str) -> Column:
    if not template:
        if "subject" not in fields:
            raise BadOption("the files have no column subject: give a template like orders.{region}.{id}")
        return F.col("subject")
    missing = [name for name in _FIELD.findall(template) if name not in fields]
    if missing:
        raise BadOption(f"the files have no column {', '.join(missing)} for the subject {template}")
    parts = _FIELD.split(template)
    texts = [F.lit(part) if place % 2 == 0 else F.col(f"`{part}`").cast("string") for place, part in enumerate(parts)]
    return F.concat(*texts)
