"""Where an export keeps its books: beside the data, for readers take everything inside for data."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from jetlake.spark.jobs.export import checkpoint_of


def test_the_books_lie_beside_the_data() -> None:
    assert checkpoint_of("/lake/orders") == "/lake/.orders.jetlake-export"
    assert checkpoint_of("s3a://bucket/orders") == "s3a://bucket/.orders.jetlake-export"
    assert checkpoint_of("orders") == ".orders.jetlake-export"


def test_books_that_an_earlier_export_left_inside_are_used(tmp_path: Path) -> None:
    inside = tmp_path / "orders" / "_jetlake_checkpoint"
    inside.mkdir(parents=True)
    assert checkpoint_of(str(inside.parent)) == str(inside)
