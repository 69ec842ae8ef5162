"""What PySpark 4.0 to 4.3 do differently, in one place; the rest of the package does not ask for a version.

| | 4.0 | 4.1 | 4.2, 4.3 |
| `latestOffset` | takes nothing | takes nothing | takes the start and a limit |
| `Trigger.AvailableNow` | one batch of all there is | the same | as many as the limit asks for |
| Arrow batches for a streaming write | where the writer is an Arrow writer of batches too | a class | a class |
| a source that is found by itself | cannot be registered again | can be | can be |
| partitions of a `load()` | planned for each query | planned once | planned once |
| offsets in a query's progress | as Python shows a dict | the same | JSON |
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamWriter

from jetlake.table.errors import BadOption

__all__ = [
    "DataSourceStreamArrowWriter",
    "HAS_READ_LIMITS",
    "PLANS_ONCE",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "check_read_limits",
    "parse_offset",
    "register_source",
]

VERSION = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
PLANS_ONCE = VERSION > (4, 0)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_READ_LIMITS = True
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # 4.0 looks at the class of the batch writer, also where it streams

        class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """A streaming writer that gets Arrow batches."""

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_READ_LIMITS = True
    except ImportError:  # before 4.2
        HAS_READ_LIMITS = False

        @dataclass(frozen=True)
        class ReadLimit:
            """How much of a stream a micro-batch may hold."""

        @dataclass(frozen=True)
        class ReadAllAvailable(ReadLimit):
            """All there is."""

        @dataclass(frozen=True)
        class ReadMaxRows(ReadLimit):
            """So many rows."""

            max_rows: int

        @dataclass(frozen=True)
        class ReadMaxBytes(ReadLimit):
            """So many bytes."""

            max_bytes: int

        class SupportsTriggerAvailableNow:
            """A reader that is told about the trigger; nobody tells it before 4.2."""


def check_read_limits(**limits: Any) -> None:
    """BadOption for a limit that this Spark cannot keep.

    Before 4.2 a source is not told whether the trigger is AvailableNow. That one ends with the first offset which it
    is given, so a limit would leave messages unread without a word.
    """
    given = [name for name, value in limits.items() if value is not None]
    if given and not HAS_READ_LIMITS:
        raise BadOption(
            f"option {' and '.join(given)} needs PySpark 4.2 or newer, and this is {pyspark.__version__}: earlier "
            "versions give a data source no limits"
        )


def register_source(spark: SparkSession, source: type[DataSource]) -> str:
    """Make a data source known; its name. Spark finds ours by itself where JetLake is installed."""
    try:
        spark.dataSource.register(source)
    except PySparkException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise
    return source.name()


def parse_offset(offset: str | dict[str, Any]) -> dict[str, Any]:
    """An offset out of a query's progress."""
    if isinstance(offset, dict):
        return offset
    try:
        found = json.loads(offset)
    except json.JSONDecodeError:
        found = ast.literal_eval(offset)
    return dict(found)
