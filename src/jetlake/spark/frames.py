"""DataFrames of streams: the data source with a condition that also rules out blocks."""

from __future__ import annotations

import os
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from jetlake.spark.options import split_list
from jetlake.spark.source import JetStreamSource
from jetlake.spark.where import pruning


def read(spark: SparkSession, where: str = "", schema: str = "", **options: Any) -> DataFrame:
    """A stream as a table. `where` is applied by Spark, and as far as possible by reading less (see `where.py`).

    Options have the names of the data source's: read(spark, path="/data", stream="ORDERS", startSeq=100).
    """
    given = _texts(options)
    if not where:
        return _load(spark, schema, given)
    _narrow(spark, where, given)
    columns = next((name for name in given if name.lower() == "columns"), "columns")
    wanted = split_list(given.pop(columns, ""))
    if schema or not wanted:
        return _load(spark, schema, given).where(where)
    lower = [name.lower() for name in wanted]
    # What a condition seems to name is read as well, and then left out.
    named = [name for name in _load(spark, "", given).columns if name.lower() in where.lower()]
    more = [name for name in named if name.lower() not in lower]
    frame = _load(spark, "", given | {columns: ",".join([*wanted, *more])})
    return frame.where(where).select(*(f"`{name}`" for name in frame.columns[: len(wanted)]))


def _narrow(spark: SparkSession, where: str, given: dict[str, str]) -> None:
    """Add the options that a condition allows."""
    tokens = given.get("subject_tokens", given.get("subjectTokens", ""))
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    known = {name.lower().replace("_", "") for name in given}
    for name, value in pruning(where, tokens, zone).items():
        if name.lower() not in known:  # what was given is exact, and the condition is applied anyway
            given[name] = value


def _load(spark: SparkSession, schema: str, options: dict[str, str]) -> DataFrame:
    reader = spark.read.format(_registered(spark)).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def read_stream(spark: SparkSession, schema: str = "", **options: Any) -> DataFrame:
    """A stream as a table that goes on."""
    reader = spark.readStream.format(_registered(spark)).options(**_texts(options))
    return (reader.schema(schema) if schema else reader).load()


def _texts(options: dict[str, Any]) -> dict[str, str]:
    """Options as Spark takes them. A path is meant as seen from here: Spark's processes may stand somewhere else."""
    texts = {}
    for name, value in options.items():
        if name.lower() == "path":
            value = os.path.abspath(value)
        if value is not None:
            texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _registered(spark: SparkSession) -> str:
    """Spark finds the source by itself where JetLake is installed; it does no harm to tell it again."""
    spark.dataSource.register(JetStreamSource)
    return JetStreamSource.name()
