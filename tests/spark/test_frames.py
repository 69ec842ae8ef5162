"""Frames with a condition: fewer blocks are read, and the answer is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from jetlake.spark import read
from tests.table.streams import orders

TOKENS = "orders.{region}.{shard}"
CONDITIONS = [
    "seq BETWEEN 20 AND 40 AND size > 30",
    "time >= '2026-03-01 00:01:00' AND time < '2026-03-01 00:01:10'",
    "time = '2026-03-01 00:00:07'",
    "region = 'eu' AND seq > 250",
    "region IN ('us', 'asia') AND shard IN ('1', '2')",
    "subject LIKE 'orders.us.%' OR seq = 3",
    "subject LIKE 'orders.a_ia.%'",
    "seq = 5 AND seq = 6",
    "seq >= 1 -- AND seq = 5",
    "seq >= 1 /* AND seq = 5 AND */ AND true",
    'subject <> "a AND seq = 5 AND b"',
    r"subject <> 'a\' AND seq = 5 AND \'b'",
    r"subject <> r'a\' AND seq <> 5 AND subject <> 'b'",
    "region = 'eu west'",
]


def test_a_read_with_a_condition_answers_as_one_without(spark: Any, tmp_path: Path) -> None:
    orders(tmp_path / "S", 300).stop()
    options = {"path": str(tmp_path / "S"), "subject_tokens": TOKENS}
    plain = read(spark, **options)
    for condition in CONDITIONS:
        wanted = sorted(row.seq for row in plain.where(condition).collect())
        assert sorted(row.seq for row in read(spark, where=condition, **options).collect()) == wanted, condition


def test_a_condition_may_name_columns_that_are_not_wanted(spark: Any, tmp_path: Path) -> None:
    orders(tmp_path / "S", 20).stop()
    frame = read(spark, path=tmp_path / "S", where="seq > 18 AND size > 0", columns="Subject, stream")
    assert sorted(frame.collect()) == [("orders.asia.0", "S"), ("orders.us.9", "S")]
    assert frame.columns == ["subject", "stream"]


@pytest.mark.parametrize("zone", ["+02:00", "PST"])
def test_a_read_with_a_condition_works_in_any_time_zone(spark: Any, tmp_path: Path, zone: str) -> None:
    orders(tmp_path / "S", 20).stop()
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert read(spark, path=tmp_path / "S", where="seq < 5 AND time > '2020-01-01'").count() == 4
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_later_queries_on_a_frame_are_not_narrowed_by_earlier_ones(spark: Any, tmp_path: Path) -> None:
    """What Spark's own pushdown got wrong: the reason for all this."""
    orders(tmp_path / "S", 300).stop()
    frame = read(spark, path=tmp_path / "S")
    assert frame.where("seq <= 10").count() == 10
    assert frame.count() == 300
