"""DataFrames of streams, with a condition that also rules out blocks.

Spark copies each row that a Python data source yields twice, and one that `mapInArrow` yields once, which makes a scan
a quarter faster. So where Spark is driven from this process, a batch read is planned here and its tasks are rows to
map. A Spark Connect server plans by itself, for only it may see the streams: there the data source reads.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from jetlake.spark.compat import register_source
from jetlake.spark.source import JetStreamSource
from jetlake.table.errors import BadOption
from jetlake.table.options import split_list
from jetlake.table.where import pruning

if TYPE_CHECKING:
    import pyarrow as pa


def read(spark: SparkSession, where: str = "", schema: str = "", **options: Any) -> DataFrame:
    """A stream as a table. `where` is applied by Spark, and as far as possible by reading less (see `where.py`).

    Options have the names of the data source's: read(spark, path="/data", stream="ORDERS", startSeq=100).
    """
    given = texts(options)
    if not where:
        return _table(spark, schema, given)
    _narrow(spark, where, given)
    columns = next((name for name in given if name.lower() == "columns"), "columns")
    wanted = split_list(given.pop(columns, ""))
    if schema or not wanted:
        return _table(spark, schema, given).where(where)
    lower = [name.lower() for name in wanted]
    # What a condition seems to name is read as well, and then left out.
    named = [name for name in load(spark, **given).columns if name.lower() in where.lower()]
    more = [name for name in named if name.lower() not in lower]
    frame = _table(spark, "", given | {columns: ",".join([*wanted, *more])})
    return frame.where(where).select(*(f"`{name}`" for name in frame.columns[: len(wanted)]))


def _narrow(spark: SparkSession, where: str, given: dict[str, str]) -> None:
    """Add the options that a condition allows."""
    tokens = given.get("subject_tokens", given.get("subjectTokens", ""))
    zone = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    known = {name.lower().replace("_", "") for name in given}
    for name, value in pruning(where, tokens, zone).items():
        if name.lower() not in known:  # what was given is exact, and the condition is applied anyway
            given[name] = value


def _table(spark: Any, schema: str, options: dict[str, str]) -> DataFrame:
    """A stream as a table, planned now where that is possible."""
    if not isinstance(spark, SparkSession):  # Spark Connect has a class of its own
        return load(spark, schema, **options)
    source = JetStreamSource(dict(options))
    columns = _columns(schema) if schema else source.schema()
    reader = source.reader(columns)
    tasks = [pickle.dumps(partition) for partition in reader.partitions()]

    def read_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from reader.read(pickle.loads(tasks[number]))

    return spark.range(0, len(tasks), 1, max(len(tasks), 1)).mapInArrow(read_tasks, columns)


def _columns(schema: str) -> StructType:
    columns = StructType.fromDDL(schema)
    if not isinstance(columns, StructType):
        raise BadOption(f"schema {schema!r} is one type, and should be columns: name type, name type")
    return columns


def load(spark: SparkSession, schema: str = "", **options: Any) -> DataFrame:
    """A stream as a table that Spark plans when it is first used."""
    reader = spark.read.format(register_source(spark, JetStreamSource)).options(**texts(options))
    return (reader.schema(schema) if schema else reader).load()


def read_stream(spark: SparkSession, schema: str = "", **options: Any) -> DataFrame:
    """A stream as a table that goes on."""
    reader = spark.readStream.format(register_source(spark, JetStreamSource)).options(**texts(options))
    return (reader.schema(schema) if schema else reader).load()


def texts(options: dict[str, Any]) -> dict[str, str]:
    """Options as Spark takes them. A path is meant as seen from here: Spark's processes may stand somewhere else."""
    texts = {}
    for name, value in options.items():
        if name.lower() == "path":
            value = os.path.abspath(value)
        if value is not None:
            texts[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts
