"""What engines push down: understood where it can rule out blocks, and never understood too narrowly."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from jetlake.table.predicates import of_arrow, of_polars

NAMES = ["seq", "subject", "time", "region"]
SEQ, SUBJECT, TIME = pc.field("seq"), pc.field("subject"), pc.field("time")


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        (None, ""),
        (SEQ > 5, "seq > 5"),
        (
            (SEQ > 5) & (SUBJECT == "a.b") & (pc.field("region") == "eu"),
            "seq > 5 AND subject = 'a.b' AND region = 'eu'",
        ),
        ((SEQ > 5) | (SEQ < 2), ""),
        (((SEQ > 5) | (SEQ < 2)) & (SEQ < 9), "seq < 9"),
        (~(SEQ > 5), ""),
        ((SEQ > 5) & pc.is_valid(SUBJECT), "seq > 5"),
        (pc.scalar(5) < SEQ, "seq > 5"),
        (SUBJECT == 'x" and (seq > 5) and (subject == "y', ""),
        (SUBJECT == "it's", ""),
        (SUBJECT == "a\\b", ""),
        (SEQ > 2.5, ""),
        (SEQ.cast("string") == "5", ""),
        (
            pa.scalar(1_772_323_200_000_000, pa.timestamp("us", tz="UTC")) <= TIME,
            "time >= '2026-03-01T00:00:00.000000Z'",
        ),
    ],
)
def test_arrow_expressions_are_read(expression: pc.Expression | None, condition: str) -> None:
    assert of_arrow(expression, NAMES) == condition


def test_a_test_for_members_as_duckdb_writes_it_is_read() -> None:
    def members(*texts: str) -> pc.Expression:
        return pc.if_else(SUBJECT.is_valid(), SUBJECT.isin(list(texts)), pa.scalar(None, pa.bool_()))

    assert of_arrow(members("a.b", "x"), NAMES) == "subject IN ('a.b','x')"
    assert of_arrow(members("a.b", "x") & (SEQ > 3), NAMES) == "subject IN ('a.b','x') AND seq > 3"
    assert of_arrow(members("a]b", "x"), NAMES) == of_arrow(members("it's"), NAMES) == ""


def test_odd_names_of_columns_are_not_taken_for_conditions() -> None:
    odd = "seq > 5) and (x"
    assert of_arrow(pc.field(odd) == 1, [*NAMES, odd]) == ""


def test_polars_expressions_are_read() -> None:
    pl = pytest.importorskip("polars")

    def read(expression: object) -> str:
        return of_polars(expression.meta.serialize(format="json"))  # type: ignore[attr-defined]

    seq, subject = pl.col("seq"), pl.col("subject")
    assert read(seq > pl.lit(5, pl.Int64)) == "seq > 5"
    assert read((seq >= pl.lit(5, pl.Int64)) & (subject == "a.b")) == "seq >= 5 AND subject = 'a.b'"
    assert read(subject.str.starts_with("orders.")) == "subject LIKE 'orders.%'"
    assert read(seq.is_between(pl.lit(1, pl.Int64), pl.lit(3, pl.Int64))) == "seq BETWEEN 1 AND 3"
    assert read((seq > 5) | (seq < 2)) == read(~(seq > 5)) == read(subject == "it's") == ""
    assert read((seq + 1 > 5) & (seq < pl.lit(9, pl.Int64))) == "seq < 9"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"BinaryExpr": 5}', '{"Function": {"input": [], "function": 1}}']
)
def test_forms_that_are_not_known_rule_nothing_out(text: str) -> None:
    assert of_polars(text) == ""
