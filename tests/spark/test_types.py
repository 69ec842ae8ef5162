"""Schemas between Spark and Arrow: as pyspark itself would have them."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType, VarcharType, VariantType

from jetlake.spark.types import to_arrow, to_spark
from jetlake.table.ddl import parse_ddl
from jetlake.table.errors import BadOption
from jetlake.table.options import parse_options
from jetlake.table.schema import RowBuilder, source_schema

EVERY_TYPE = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY, j DATE, k TIMESTAMP, "
    "l TIMESTAMP_NTZ, m DECIMAL(20, 3), n ARRAY<STRUCT<x: ARRAY<INT>>> COMMENT 'lists'"
)


def _by_pyspark(schema: StructType) -> Any:
    has_zone = "timezone" in signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **({"timezone": "UTC"} if has_zone else {}))


def test_record_batches_have_the_schema_that_spark_checks_for() -> None:
    options = {"path": "/data", "subject_tokens": "{t}.>", "payload": "json", "payloadSchema": EVERY_TYPE}
    schema = source_schema(parse_options(options))
    assert to_arrow(to_spark(schema)) == schema == _by_pyspark(to_spark(schema))


def test_comments_and_what_may_be_null_are_kept() -> None:
    found = to_spark(parse_ddl(EVERY_TYPE))
    assert found["n"].metadata == {"comment": "lists"} and found["n"].nullable
    stored = to_spark(source_schema(parse_options({"path": "/data"})))
    assert not stored["seq"].nullable and stored["headers"].dataType.simpleString() == "map<string,array<string>>"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (StructType().add("s", StructType().add("v", VariantType())), r"column s\.v: JSON is not read as VARIANT"),
        (StructType().add("v", VarcharType(5)), r"column v: JSON is not read as VARCHAR\(5\)"),
    ],
)
def test_a_type_that_no_stream_has_is_refused(schema: StructType, problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        RowBuilder(to_arrow(schema), parse_options({"path": "/data", "payload": "json", "payloadSchema": "v STRING"}))
