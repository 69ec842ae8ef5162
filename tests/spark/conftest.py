"""One local Spark session for all tests here; they skip where pyspark is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

# Tests are over before the optimising compiler pays: without it Spark starts in half the time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from jetlake.spark.spark_session import session

    spark = session("tests", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    yield spark
    spark.stop()
