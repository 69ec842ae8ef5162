"""The columns of a stream as a table.

    stream    STRING       the stream's name
    seq       BIGINT       its sequence
    subject   STRING
    time      TIMESTAMP    when it was stored, in microseconds
    time_ns   BIGINT       the same in nanoseconds since the epoch
    headers   MAP<STRING, ARRAY<STRING>>   empty when there are none
    payload   BINARY       STRING with payload=string; absent by default with payload=json, which has typed columns
    size      INT          of the payload in bytes

then the tokens of `subject_tokens`, the fields of the payload, and `_malformed` BINARY where payloads are decoded.
What is NOT NULL says so: Spark is faster then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jetlake.spark.arrow import HEADERS_TYPE
from jetlake.spark.errors import BadOption, BadPayload
from jetlake.spark.options import Options, split_list
from jetlake.spark.payload import Parsed, ddl_type, infer_schema, read_json, read_text
from jetlake.spark.tokens import TokenPattern

MALFORMED = "_malformed"
_HEADERS = MapType(StringType(), ArrayType(StringType(), False), False)
BASE: dict[str, DataType] = {
    "stream": StringType(),
    "seq": LongType(),
    "subject": StringType(),
    "time": TimestampType(),
    "time_ns": LongType(),
    "headers": _HEADERS,
    "payload": BinaryType(),
    "size": IntegerType(),
}
_DDL = {"headers": "MAP<STRING, ARRAY<STRING>>"}


def source_schema(options: Options, sample: Callable[[], list[bytes]]) -> str:
    """The columns that options ask for, as DDL; `sample` is called for payloads to infer from."""
    names = dict(_all_columns(options, sample))
    wanted = split_list(options.columns) or list(names)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise BadOption(f"there is no column {', '.join(unknown)}; there are {', '.join(names)}")
    return ", ".join(f"`{name}` {names[name]}" for name in wanted)


def _all_columns(options: Options, sample: Callable[[], list[bytes]]) -> Iterator[tuple[str, str]]:
    """Names and types of every column."""
    taken = set(BASE)
    for name, kind in BASE.items():
        if name == "payload" and options.payload == "json" and "payload" not in split_list(options.columns):
            continue
        if name == "payload" and options.payload == "string":
            yield name, "STRING"
        else:
            yield name, f"{_DDL.get(name, kind.simpleString().upper())} NOT NULL"
    fields = [(name, "STRING") for name in TokenPattern(options.subject_tokens).names]
    if options.payload == "json":
        fields += _payload_fields(options, sample)
    for name, type_name in fields:
        if name in taken:
            raise BadOption(f"column {name} is there twice; option payloadPrefix puts something in front of fields")
        taken.add(name)
        yield name, type_name
    if options.payload != "binary" and options.malformed == "column":
        yield MALFORMED, "BINARY"


def _payload_fields(options: Options, sample: Callable[[], list[bytes]]) -> list[tuple[str, str]]:
    if options.payload_schema:
        return [(f"{options.payload_prefix}{name}", kind) for name, kind in split_ddl(options.payload_schema)]
    return [(f"{options.payload_prefix}{field.name}", ddl_type(field.type)) for field in infer_schema(sample())]


def split_ddl(text: str) -> list[tuple[str, str]]:
    """Names and types from DDL: `id BIGINT, place STRUCT<x: DOUBLE, y: DOUBLE>`."""
    parts, depth, start = list[str](), 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    fields = []
    for part in [*parts, text[start:]]:
        name, _, kind = part.strip().partition("`" if part.strip().startswith("`") else " ")
        if part.strip().startswith("`"):
            name, _, kind = part.strip()[1:].partition("`")
        if not name or not kind.strip():
            raise BadOption(f"payloadSchema: {part.strip()!r} is not a name and a type")
        fields.append((name, kind.strip()))
    return fields


class RowBuilder:
    """Makes record batches of exactly one schema out of decoded columns."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._options, self._tokens = options, TokenPattern(options.subject_tokens)
        names = schema.fieldNames()
        extra = [name for name in names if name not in BASE and name not in self._tokens.names and name != MALFORMED]
        self._check(schema, extra)
        prefix = options.payload_prefix
        self._json = pa.schema([pa.field(name.removeprefix(prefix), self.schema.field(name).type) for name in extra])
        self._json_names = extra
        self._is_decoded = bool(extra) or MALFORMED in names or (options.payload == "string" and "payload" in names)
        needed = {name for name in names if name in BASE and name != "stream"}
        if set(self._tokens.names) & set(names):
            needed.add("subject")
        if self._is_decoded:
            needed |= {"payload", "seq"}
        self.base_names: list[str] = [name for name in BASE if name in needed]

    def _check(self, schema: StructType, extra: Sequence[str]) -> None:
        if extra and self._options.payload != "json":
            known = [*BASE, *self._tokens.names]
            raise BadOption(f"there is no column {', '.join(extra)}; there are {', '.join(known)}")
        for field in schema:
            wanted = _expected(field, self._options)
            if wanted is not None and field.dataType.typeName() != wanted.typeName():
                raise BadOption(f"column {field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}")

    @property
    def headers_type(self) -> pa.DataType:
        """The Arrow type of headers in this schema."""
        return self.schema.field("headers").type if "headers" in self.schema.names else HEADERS_TYPE

    def build(self, stream: str, rows: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        """A batch of some messages of a stream."""
        found = dict(columns)
        if "stream" in self.schema.names:
            found["stream"] = pa.repeat(pa.scalar(stream, pa.string()), rows)
        if self._tokens.names and "subject" in found:
            found |= self._tokens.columns(found["subject"])
        if self._is_decoded:
            self._decode(stream, found)
        return pa.RecordBatch.from_arrays([found[field.name] for field in self.schema], schema=self.schema)

    def _decode(self, stream: str, found: dict[str, pa.Array]) -> None:
        payloads = found["payload"]
        if self._options.payload == "string":
            parsed = read_text(payloads)
            found["payload"] = parsed.columns[0]
        elif self._json_names:
            parsed = read_json(payloads, self._json)
            found |= dict(zip(self._json_names, parsed.columns, strict=True))
        else:
            parsed = read_json(payloads, pa.schema([]))
        if parsed.malformed and self._options.malformed == "fail":
            self._fail(stream, parsed, found)
        bad = set(parsed.malformed)
        found[MALFORMED] = (
            pa.array([payload if row in bad else None for row, payload in enumerate(payloads.to_pylist())], pa.binary())
            if bad
            else pa.nulls(len(payloads), pa.binary())
        )

    def _fail(self, stream: str, parsed: Parsed, found: dict[str, pa.Array]) -> None:
        seq = found["seq"][parsed.malformed[0]].as_py()
        wanted = "UTF-8 text" if self._options.payload == "string" else "JSON that fits the columns"
        raise BadPayload(
            f"stream {stream}: the payload of sequence {seq} is not {wanted} ({len(parsed.malformed)} such payloads in "
            f"its batch); option malformed=column keeps them apart"
        )


def _expected(field: StructField, options: Options) -> DataType | None:
    if field.name == "payload" and options.payload == "string":
        return StringType()
    if field.name == MALFORMED:
        return BinaryType()
    return BASE.get(field.name)
