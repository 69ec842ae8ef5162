"""Payloads as text or as typed columns from JSON: the option `payload`.

JSON is read by pyarrow, a whole batch at a time. Where a batch does not go through as it is, payloads that are not JSON
objects are set aside, and the rest is halved until the ones that do not fit the types are found. So a message is either
read as pyarrow reads it, or is malformed: its columns are NULL, and its bytes stand in `_malformed`.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.json

from jetlake.table.errors import BadOption

SAMPLE_COUNT = 1_000
DEPTH_MAX = 32  # of inferred types; what lies deeper is malformed
_PARSE_BLOCK_MIN = 1 << 20


class Parsed(NamedTuple):
    """Typed columns, and which rows are malformed."""

    columns: list[pa.Array]
    malformed: list[int]


def read_text(payloads: pa.Array) -> Parsed:
    """Payloads as strings."""
    texts = payloads.view(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        bad = [row for row, payload in enumerate(payloads.to_pylist()) if not _is_text(payload)]
        mask = pa.array(_flags(len(payloads), bad))
        return Parsed([pa.compute.if_else(mask, None, payloads).cast(pa.string())], bad)
    return Parsed([texts], [])


def read_json(payloads: pa.Array, schema: pa.Schema) -> Parsed:
    """Payloads as the columns of a schema."""
    rows, not_text = payloads.to_pylist(), set(read_text(payloads).malformed)
    good = [row for row, payload in enumerate(rows) if row not in not_text and _is_object(payload)]
    if not len(schema):
        return Parsed([], sorted(set(range(len(rows))) - set(good)))
    tables, kept = list[pa.Table](), list[int]()
    for start, stop in _parsable(rows, good, schema, tables):
        kept += good[start:stop]
    columns = _columns(pa.concat_tables(tables) if tables else schema.empty_table())
    if len(kept) == len(rows):
        return Parsed(columns, [])
    place = {row: number for number, row in enumerate(kept)}
    taken = pa.array([place.get(row) for row in range(len(rows))], pa.int64())
    return Parsed([column.take(taken) for column in columns], [row for row in range(len(rows)) if row not in place])


def infer_ddl(payloads: list[bytes]) -> str:
    """The fields of a sample as Spark's DDL, each with the one type that all its values have."""
    rows = [payload for payload in payloads if _is_text(payload) and _is_object(payload)]
    if not rows:
        raise BadOption("payload=json: no JSON object to infer columns from; give payloadSchema")
    try:
        schema = pa.json.read_json(pa.py_buffer(b"\n".join(rows)), read_options=_block_of(rows)).schema
    except pa.ArrowInvalid as error:
        raise BadOption(f"payload=json: no columns fit the first messages ({error}); give payloadSchema") from None
    return ", ".join(f"{_quoted(field.name)} {_ddl_type(field.type)}" for field in schema)


def _ddl_type(kind: pa.DataType, depth: int = 0) -> str:
    """A type, without guesses: text that looks like a time is still text, and so is what is always null."""
    if depth == DEPTH_MAX:
        return "STRING"
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {_ddl_type(field.type, depth + 1)}' for field in fields)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_ddl_type(kind.value_type, depth + 1)}>"
    return {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN"}.get(str(kind), "STRING")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _parsable(rows: list[bytes], good: list[int], schema: pa.Schema, tables: list[pa.Table]) -> list[tuple[int, int]]:
    """Ranges of `good` that fit the schema; their tables are appended in the same order."""
    ranges, pending = [], [(0, len(good))]
    while pending:
        start, stop = pending.pop()
        if start == stop:
            continue
        table = _parse([rows[row] for row in good[start:stop]], schema)
        if table is not None:
            tables.append(table)
            ranges.append((start, stop))
        elif stop - start > 1:
            middle = (start + stop) // 2
            pending += [(middle, stop), (start, middle)]
    return ranges


def _parse(rows: list[bytes], schema: pa.Schema) -> pa.Table | None:
    """Some payloads as a table; None when one of them does not fit."""
    readable = pa.schema([pa.field(field.name, _readable(field.type)) for field in schema])
    options = pa.json.ParseOptions(
        explicit_schema=readable, unexpected_field_behavior="ignore", newlines_in_values=True
    )
    try:
        table = pa.json.read_json(pa.py_buffer(b"\n".join(rows)), read_options=_block_of(rows), parse_options=options)
        columns = [_fitted(table.column(field.name), field.type) for field in schema]
    except ValueError:  # of pyarrow, or of base64
        return None
    return pa.table(columns, schema) if len(table) == len(rows) else None


def _readable(kind: pa.DataType) -> pa.DataType:
    """What pyarrow reads in place of a type: times for dates, text for bytes."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _readable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_readable(kind.value_type))
    return {pa.date32(): pa.timestamp("s"), pa.binary(): pa.string()}.get(kind, kind)


def _fitted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """A column as the type that is wanted."""
    if "binary" not in str(kind):  # nor anything inside of it
        return column.cast(kind)
    return pa.array([_from_base64(value, kind) for value in column.to_pylist()], kind)


def _from_base64(value: Any, kind: pa.DataType) -> Any:
    """A value with the bytes inside of it decoded."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _from_base64(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_from_base64(item, kind.value_type) for item in value]
    return base64.b64decode(value, validate=True) if pa.types.is_binary(kind) else value


def _columns(table: pa.Table) -> list[pa.Array]:
    return [_combined(column) for column in table.columns]


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _block_of(rows: list[bytes]) -> pa.json.ReadOptions:
    """One block for all rows, so that none is cut in two."""
    return pa.json.ReadOptions(use_threads=False, block_size=max(sum(map(len, rows)) + len(rows) + 1, _PARSE_BLOCK_MIN))


def _is_object(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _flags(count: int, places: list[int]) -> list[bool]:
    flags = [False] * count
    for place in places:
        flags[place] = True
    return flags
