"""Conditions are applied as SQL says, NULL included; what is not understood is named."""

from __future__ import annotations

from datetime import date

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from jetlake.table.condition import Condition
from jetlake.table.errors import BadOption

BATCH = pa.RecordBatch.from_pydict(
    {
        "n": [1, 2, 3, None],
        "text": ["a", "it's", None, "b%"],
        "real": [0.5, 1.5, None, 2.5],
        "flag": [True, False, None, True],
        "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None, date(2026, 1, 4)]),
        "raw": [b"a", b"b", b"c", b"d"],
        "Two Words": [1, 2, 3, 4],
    }
)


def rows(condition: str) -> list[int]:
    """Which rows are kept, from 1 on."""
    kept = Condition(condition, BATCH.schema).keep(BATCH)
    return kept.column("Two Words").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("n = 2", [2]),
        ("n <> 2", [1, 3]),
        ("N >= 2 AND n < 3", [2]),
        ("n = 1 OR n = 3 AND n = 2", [1]),
        ("(n = 1 OR n = 3) AND NOT n = 3", [1]),
        ("not (n = 1)", [2, 3]),
        ("n IN (1, 3)", [1, 3]),
        ("n NOT IN (1, 3)", [2]),
        ("n NOT IN (1, NULL)", []),
        ("n BETWEEN 2 AND 3", [2, 3]),
        ("n NOT BETWEEN 2 AND 3", [1]),
        ("n IS NULL", [4]),
        ("n IS NOT NULL", [1, 2, 3]),
        ("n = NULL", []),
        ("n > 1.5", [2, 3]),
        ("n > -1 and n < 1e1", [1, 2, 3]),
        ("real <= 1.5", [1, 2]),
        ("text = 'it''s'", [2]),
        ("text LIKE '%t%'", [2]),
        ("text NOT LIKE 'a'", [2, 4]),
        ("flag", [1, 4]),
        ("NOT flag", [2]),
        ("flag = TRUE AND n IS NULL", [4]),
        ("day > '2026-01-01'", [2, 4]),
        ("day = DATE '2026-01-04'", [4]),
        ("raw = 'c'", [3]),
        ("`Two Words` > 3", [4]),
        ("n = 1 OR text IS NULL", [1, 3]),
    ],
)
def test_rows_are_kept_where_the_condition_is_true(condition: str, wanted: list[int]) -> None:
    assert rows(condition) == wanted


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("nope = 1", "there is no column nope; there are n, text"),
        ("n =", "a value is expected, not the end"),
        ("n = 1 n = 2", "AND or OR is expected, not n"),
        ("n", "a comparison is expected, not the end"),
        ("(n = 1", r"\) is expected, not the end"),
        ("n = 'a'", "column n is int64, and cannot be compared with 'a'"),
        ("text > 5", "column text is string, and cannot be compared with 5"),
        ("n LIKE 'a'", "LIKE is for text"),
        ("length(text) = 3", "there is no column length"),
        ("n = 1; drop", "AND or OR is expected, not ;"),
        ('text = "a"', 'a value is expected, not "'),
        ("1 = n", "a column is expected, not 1"),
        ("n + 1 = 2", "a comparison is expected"),
        ("n = 99999999999999999999", "99999999999999999999 is out of range"),
        ("day = 'yesterday'", "not a time"),
    ],
)
def test_what_is_not_understood_is_named(condition: str, problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        rows(condition)


def test_it_knows_its_columns() -> None:
    assert Condition("n = 1 AND (TEXT = 'a' OR n = 2)", BATCH.schema).columns == ["n", "text"]
