"""Rows out of decoded columns: what is malformed does not depend on the columns that are read."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
from jetlake.table.errors import BadOption, BadPayload  # noqa: E402
from jetlake.table.options import parse_options  # noqa: E402
from jetlake.table.schema import RowBuilder, source_schema  # noqa: E402

PAYLOADS = [b'{"id": 1, "n": "x"}', b'{"id": "bad", "n": "y"}', b"no", b'{"id": 4, "n": 5}', b'{"n": "\xff"}']
JSON = {"path": "/data", "payload": "json", "payloadSchema": "id BIGINT, n STRING"}


def build(options: dict[str, str], schema: Any = None) -> dict[str, list[Any]]:
    """The columns of the payloads above."""
    parsed = parse_options(options)
    builder = RowBuilder(schema or source_schema(parsed), parsed)
    columns = {"seq": pa.array([1, 2, 3, 4, 5]), "payload": pa.array(PAYLOADS)}
    found: dict[str, list[Any]] = builder.build("S", 5, columns).to_pydict()
    return found


@pytest.mark.parametrize("columns", ["seq,_malformed", "id,_malformed", "n,_malformed", "id", "n,id", "payload,id"])
def test_what_is_malformed_does_not_depend_on_the_columns(columns: str) -> None:
    found = build(JSON | {"columns": columns})
    assert found.get("_malformed", [None, *PAYLOADS[1:]]) == [None, *PAYLOADS[1:]]
    assert found.get("id", [1] + 4 * [None]) == [1] + 4 * [None]
    assert found.get("n", ["x"] + 4 * [None]) == ["x"] + 4 * [None]
    assert found.get("payload", PAYLOADS) == PAYLOADS


@pytest.mark.parametrize("columns", ["seq", "seq,id", "seq,n"])
def test_malformed_payloads_fail_a_read_of_any_columns(columns: str) -> None:
    with pytest.raises(BadPayload, match=r"sequence 2 is not JSON that fits the columns \(4 such"):
        build(JSON | {"columns": columns, "malformed": "fail"})
    with pytest.raises(BadPayload, match="sequence 5 is not UTF-8 text"):
        build({"path": "/data", "payload": "string", "columns": "seq", "malformed": "fail"})


def test_a_schema_of_ones_own_may_leave_fields_out() -> None:
    found = build(JSON | {"payloadPrefix": "p_"}, pa.schema({"seq": pa.int64(), "p_id": pa.int64()}))
    assert found == {"seq": [1, 2, 3, 4, 5], "p_id": [1] + 4 * [None]}


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.field("id", pa.int64(), nullable=False), "column id may be NULL"),
        (pa.field("region", pa.string(), nullable=False), "column region may be NULL"),
        (pa.field("_malformed", pa.binary(), nullable=False), "column _malformed may be NULL"),
        (pa.field("m", pa.map_(pa.string(), pa.string())), "column m: JSON is not read as MAP<STRING,STRING>"),
        (pa.field("seq", pa.int32()), "column seq is bigint, not int"),
    ],
)
def test_a_schema_that_json_does_not_fit_is_refused(column: Any, problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        RowBuilder(pa.schema([column]), parse_options(JSON | {"subject_tokens": "orders.{region}"}))
