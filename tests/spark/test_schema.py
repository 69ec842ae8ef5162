"""Rows out of decoded columns: what is malformed does not depend on the columns that are read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructType, VarcharType, VariantType  # noqa: E402

from jetlake.spark.errors import BadOption, BadPayload  # noqa: E402
from jetlake.spark.options import parse_options  # noqa: E402
from jetlake.spark.schema import RowBuilder, source_schema  # noqa: E402
from jetlake.spark.source import JetStreamSource  # noqa: E402
from jetlake.store import FileStore  # noqa: E402

PAYLOADS = [b'{"id": 1, "n": "x"}', b'{"id": "bad", "n": "y"}', b"no", b'{"id": 4, "n": 5}', b'{"n": "\xff"}']
JSON = {"path": "/data", "payload": "json", "payloadSchema": "id BIGINT, n STRING"}


def build(options: dict[str, str], schema: StructType | None = None) -> dict[str, list[Any]]:
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
    found = build(JSON | {"payloadPrefix": "p_"}, StructType().add("seq", LongType()).add("p_id", LongType()))
    assert found == {"seq": [1, 2, 3, 4, 5], "p_id": [1] + 4 * [None]}


def test_what_was_inferred_is_kept_for_the_tasks(tmp_path: Path) -> None:
    with FileStore(tmp_path / "S") as store:
        for payload in [PAYLOADS[0]] * 1_000 + PAYLOADS[1:]:
            store.append("a", payload)
    source = JetStreamSource({"path": str(tmp_path / "S"), "payload": "json", "columns": "seq,id"})
    schema = source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    rows = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert rows[999:] == [{"seq": 1000, "id": 1}] + [{"seq": seq, "id": None} for seq in range(1001, 1005)]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (StructType().add("id", LongType(), nullable=False), "column id may be NULL"),
        (StructType().add("region", "string", nullable=False), "column region may be NULL"),
        (StructType().add("_malformed", "binary", nullable=False), "column _malformed may be NULL"),
        (StructType().add("s", StructType().add("v", VariantType())), r"column s\.v: JSON is not read as VARIANT"),
        (StructType().add("v", VarcharType(5)), r"column v: JSON is not read as VARCHAR\(5\)"),
    ],
)
def test_a_schema_that_json_does_not_fit_is_refused(schema: StructType, problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        RowBuilder(schema, parse_options(JSON | {"subject_tokens": "orders.{region}"}))
