"""SQL over streams: every stream is a table of its own name."""

from __future__ import annotations

from contextlib import closing

from pyspark.sql import DataFrame, SparkSession

from jetlake.spark.frames import load
from jetlake.table.options import parse_options
from jetlake.table.origin import open_origin


def register(spark: SparkSession, options: dict[str, str]) -> list[str]:
    """Make each stream that the options mean a temporary view; their names."""
    with closing(open_origin(parse_options({"stream": "*", **options}))) as origin:
        names = origin.names()
    for name in names:
        # Planned only when a query names it: one that cannot be read keeps nobody from the others.
        load(spark, **{**options, "stream": name}).createOrReplaceTempView(f"`{name}`")
    return names


def sql(spark: SparkSession, options: dict[str, str], query: str) -> DataFrame:
    """The answer to a query."""
    register(spark, options)
    return spark.sql(query)
