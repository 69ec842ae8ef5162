"""Payloads as text and JSON: what parses is typed, what does not is kept apart, row by row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from jetlake.table.payload import infer_ddl, read_json, read_text  # noqa: E402

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_text_is_text() -> None:
    assert read_text(pa.array([b"a", "ä".encode(), b""])).columns[0].to_pylist() == ["a", "ä", ""]


def test_bytes_that_are_not_text_are_malformed() -> None:
    found = read_text(pa.array([b"a", b"\xff", b"b"]))
    assert (found.columns[0].to_pylist(), found.malformed) == (["a", None, "b"], [1])


def test_json_becomes_columns() -> None:
    found = read_json(pa.array([b'{"id": 1, "name": "x"}', b'{"other": [], "name": null}', b' {\n"id":\t3} ']), SCHEMA)
    assert [column.to_pylist() for column in found.columns] == [[1, None, 3], ["x", None, None]]
    assert found.malformed == []


@pytest.mark.parametrize(
    "bad",
    [b"", b"no", b"[1]", b"3", b'{"id": 1', b'{"id": 1}{"id": 2}', b'{"id": "one"}', b'{"id": 1.5}', b"\xff", b"null"],
)
def test_what_is_not_an_object_of_these_types_is_malformed_and_costs_no_other_row(bad: bytes) -> None:
    rows = [b'{"id": %d}' % number for number in range(20)]
    rows[7] = rows[12] = bad
    found = read_json(pa.array(rows), SCHEMA)
    assert found.malformed == [7, 12]
    assert found.columns[0].to_pylist() == [None if number in (7, 12) else number for number in range(20)]


def test_two_rows_that_make_up_for_each_other_are_not_mixed_up() -> None:
    found = read_json(pa.array([b"", b'{"id": 1}{"id": 2}', b'{"id": 3}']), SCHEMA)
    assert (found.columns[0].to_pylist(), found.malformed) == ([None, None, 3], [0, 1])


def test_all_rows_may_be_malformed() -> None:
    found = read_json(pa.array([b"x", b"y"]), SCHEMA)
    assert (found.columns[1].to_pylist(), found.malformed) == ([None, None], [0, 1])
    assert read_json(pa.array([b"x", b"{}"]), pa.schema([])).malformed == [0]


def test_times_dates_and_decimals_are_read_from_text() -> None:
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("d", pa.date32()), ("n", pa.decimal128(10, 2))])
    found = read_json(pa.array([b'{"t": "2026-01-02T03:04:05Z", "d": "2026-01-02", "n": "1.25"}']), schema)
    time, date, number = (column[0].as_py() for column in found.columns)
    assert (time.isoformat(), date.isoformat(), number) == ("2026-01-02T03:04:05+00:00", "2026-01-02", Decimal("1.25"))


def test_dates_and_times_are_read_inside_of_others() -> None:
    schema = pa.schema([("s", pa.struct([("d", pa.date32()), ("t", pa.list_(pa.timestamp("us", tz="UTC")))]))])
    found = read_json(pa.array([b'{"s": {"d": "2026-01-02", "t": ["2026-01-02T03:04:05Z", null]}}', b"{}"]), schema)
    (first, second), malformed = found.columns[0].to_pylist(), found.malformed
    assert (first["d"].isoformat(), first["t"][0].isoformat()) == ("2026-01-02", "2026-01-02T03:04:05+00:00")
    assert (first["t"][1], second, malformed) == (None, None, [])


def test_bytes_are_read_from_base64() -> None:
    schema = pa.schema([("b", pa.binary()), ("s", pa.struct([("l", pa.list_(pa.binary())), ("d", pa.date32())]))])
    rows = [
        b'{"b": "YQ==", "s": {"l": ["Yg==", null], "d": "2026-01-02"}}',
        b'{"b": "no"}',
        '{"b": "ä"}'.encode(),
        b"{}",
    ]
    found = read_json(pa.array(rows), schema)
    assert found.malformed == [1, 2]
    assert found.columns[0].to_pylist() == [b"a", None, None, None]
    assert found.columns[1].to_pylist()[0]["l"] == [b"b", None]


@pytest.mark.parametrize(
    "bad", [b'{"name": "\xff"}', b'{"\xff": 1}', b'{"other": "\xed\xa0\x80"}', rb'{"name": "\ud800"}']
)
@pytest.mark.parametrize("schema", [SCHEMA, pa.schema([])])
def test_json_that_is_not_utf8_is_malformed(bad: bytes, schema: Any) -> None:
    assert read_json(pa.array([b'{"name": "x"}', bad]), schema).malformed == [1]


def test_json_that_is_nested_too_deeply_is_malformed() -> None:
    deep = b'{"other": ' + b"[" * 3_000 + b"]" * 3_000 + b"}"
    found = read_json(pa.array([deep, b'{"id": 1}']), SCHEMA)
    assert (found.columns[0].to_pylist(), found.malformed) == ([None, 1], [0])
    assert infer_ddl([deep, b'{"id": 1}']) == "`id` BIGINT"


def test_a_schema_is_inferred_without_guessing_times() -> None:
    found = infer_ddl([b"not json", b'{"a": 1, "t": "2026-01-01", "n": null}', b'{"b": {"c": [true]}, "`": 1.5}'])
    assert found == "`a` BIGINT, `t` STRING, `n` STRING, `b` STRUCT<`c`: ARRAY<BOOLEAN>>, ```` DOUBLE"
    assert infer_ddl([b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}"]).count("ARRAY") == 32
