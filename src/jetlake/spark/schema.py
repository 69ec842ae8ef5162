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

from collections.abc import Iterator, Sequence

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
from jetlake.spark.ddl import check_nullable, check_readable, parse_ddl
from jetlake.spark.errors import BadOption, BadPayload
from jetlake.spark.options import Options, split_list
from jetlake.spark.payload import Parsed, read_json, read_text
from jetlake.spark.tokens import TokenPattern

MALFORMED = "_malformed"
_HEADERS = MapType(StringType(), ArrayType(StringType()))
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


def source_schema(options: Options) -> StructType:
    """The columns that options ask for; as in Spark, case does not count."""
    fields = {field.name.lower(): field for field in _all_columns(options)}
    wanted = split_list(options.columns)
    unknown = [name for name in wanted if name.lower() not in fields]
    if unknown:
        names = [field.name for field in fields.values()]
        raise BadOption(f"there is no column {', '.join(unknown)}; there are {', '.join(names)}")
    return StructType([fields[name.lower()] for name in wanted] or list(fields.values()))


def _all_columns(options: Options) -> Iterator[StructField]:
    """Every column."""
    for name, kind in BASE.items():
        if name == "payload" and options.payload == "json" and "payload" not in split_list(options.columns.lower()):
            continue
        if name == "payload" and options.payload == "string":
            yield StructField(name, StringType())
        else:
            yield StructField(name, kind, nullable=False)
    taken = {name.lower(): name for name in (*BASE, MALFORMED)}
    for name in TokenPattern(options.subject_tokens).names:
        if name.lower() in taken:
            raise BadOption(
                f"subject_tokens: there is a column {taken[name.lower()]} already; give {name} another name"
            )
        taken[name.lower()] = name
        yield StructField(name, StringType())
    for field in parse_ddl(options.payload_schema):
        name = f"{options.payload_prefix}{field.name}"
        if not name or name.lower() in taken:
            problem = f"there is a column {taken[name.lower()]} already" if name else "it has no name"
            raise BadOption(
                f"payload=json: field {field.name!r} cannot be a column, {problem}; option payloadPrefix puts "
                f"something in front of fields, payloadSchema names those that are wanted"
            )
        taken[name.lower()] = name
        yield StructField(name, field.dataType, True, field.metadata)
    if options.payload != "binary" and options.malformed == "column":
        yield StructField(MALFORMED, BinaryType())


class RowBuilder:
    """Makes record batches of exactly one schema out of decoded columns."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._options, self._tokens = options, TokenPattern(options.subject_tokens)
        names = schema.fieldNames()
        extra = [name for name in names if name not in BASE and name not in self._tokens.names and name != MALFORMED]
        self._check(schema, extra)
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._json_names = {name: name.removeprefix(options.payload_prefix) for name in extra}
        self._json = self._whole_json()
        self._name, self._repeats = "", pa.nulls(0, pa.string())
        is_strict = options.payload != "binary" and options.malformed == "fail"
        is_text = options.payload == "string" and "payload" in names
        self._is_decoded = bool(extra) or MALFORMED in names or is_text or is_strict
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
            if field.name not in BASE or (field.name == "payload" and self._options.payload == "string"):
                check_nullable(f"column {field.name}", field.nullable)
            if field.name in extra:
                check_readable(field.name, field.dataType)
            wanted = _expected(field, self._options)
            if wanted is not None and field.dataType.typeName() != wanted.typeName():
                raise BadOption(f"column {field.name} is {wanted.simpleString()}, not {field.dataType.simpleString()}")

    def _whole_json(self) -> pa.Schema:
        """All fields of a payload, also those that are not read: whether it is malformed depends on every one."""
        fields = to_arrow_schema(parse_ddl(self._options.payload_schema), timezone="UTC")
        kinds = {field.name: field.type for field in fields}
        kinds |= {field: self.schema.field(name).type for name, field in self._json_names.items()}
        return pa.schema(list(kinds.items()))

    @property
    def headers_type(self) -> pa.DataType:
        """The Arrow type of headers in this schema."""
        return self.schema.field("headers").type if "headers" in self.schema.names else HEADERS_TYPE

    def build(self, stream: str, rows: int, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        """A batch of some messages of a stream."""
        found = dict(columns)
        if "stream" in self.schema.names:
            found["stream"] = self._repeat(stream, rows)
        if self._tokens.names and "subject" in found:
            found |= self._tokens.columns(found["subject"])
        if self._is_decoded:
            self._decode(stream, found)
        return pa.RecordBatch.from_arrays([found[field.name] for field in self.schema], schema=self.schema)

    def _repeat(self, stream: str, rows: int) -> pa.Array:
        """The stream's name for so many rows, out of the longest such column so far."""
        if self._name != stream or len(self._repeats) < rows:
            self._name, self._repeats = stream, pa.repeat(pa.scalar(stream, pa.string()), rows + rows // 8)
        return self._repeats.slice(0, rows)

    def _decode(self, stream: str, found: dict[str, pa.Array]) -> None:
        payloads = found["payload"]
        if self._options.payload == "string":
            parsed = read_text(payloads)
            found["payload"] = parsed.columns[0]
        else:
            parsed = read_json(payloads, self._json)
            columns = dict(zip(self._json.names, parsed.columns, strict=True))
            found |= {name: columns[field] for name, field in self._json_names.items()}
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
