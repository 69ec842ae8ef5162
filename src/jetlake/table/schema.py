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
from copy import copy

import pyarrow as pa

from jetlake.table.arrow import FIELDS, HEADERS_TYPE
from jetlake.table.ddl import check_nullable, check_readable, list_of, parse_ddl, type_name
from jetlake.table.errors import BadOption, BadPayload
from jetlake.table.options import Options, split_list
from jetlake.table.payload import Parsed, read_json, read_text
from jetlake.table.tokens import TokenPattern

MALFORMED = "_malformed"
BASE: dict[str, pa.DataType] = {
    "stream": pa.string(),
    **{name: kind for name, (_, kind) in FIELDS.items()},
    "headers": pa.map_(pa.string(), list_of(pa.string())),  # as Spark has it; no value is ever null
}


def source_schema(options: Options) -> pa.Schema:
    """The columns that options ask for; as in Spark, case does not count."""
    fields = {field.name.lower(): field for field in _all_columns(options)}
    wanted = split_list(options.columns)
    unknown = [name for name in wanted if name.lower() not in fields]
    if unknown:
        names = [field.name for field in fields.values()]
        raise BadOption(f"there is no column {', '.join(unknown)}; there are {', '.join(names)}")
    return pa.schema([fields[name.lower()] for name in wanted] or list(fields.values()))


def _all_columns(options: Options) -> Iterator[pa.Field]:
    """Every column."""
    for name, kind in BASE.items():
        if name == "payload" and options.payload == "json" and "payload" not in split_list(options.columns.lower()):
            continue
        if name == "payload" and options.payload == "string":
            yield pa.field(name, pa.string())
        else:
            yield pa.field(name, kind, nullable=False)
    taken = {name.lower(): name for name in (*BASE, MALFORMED)}
    for name in TokenPattern(options.subject_tokens).names:
        if name.lower() in taken:
            raise BadOption(
                f"subject_tokens: there is a column {taken[name.lower()]} already; give {name} another name"
            )
        taken[name.lower()] = name
        yield pa.field(name, pa.string())
    for field in parse_ddl(options.payload_schema):
        name = f"{options.payload_prefix}{field.name}"
        if not name or name.lower() in taken:
            problem = f"there is a column {taken[name.lower()]} already" if name else "it has no name"
            raise BadOption(
                f"payload=json: field {field.name!r} cannot be a column, {problem}; option payloadPrefix puts "
                f"something in front of fields, payloadSchema names those that are wanted"
            )
        taken[name.lower()] = name
        yield field.with_name(name)
    if options.payload != "binary" and options.malformed == "column":
        yield pa.field(MALFORMED, pa.binary())


class RowBuilder:
    """Makes record batches of exactly one schema out of decoded columns."""

    def __init__(self, schema: pa.Schema, options: Options) -> None:
        self._options, self._tokens = options, TokenPattern(options.subject_tokens)
        names = schema.names
        extra = [name for name in names if name not in BASE and name not in self._tokens.names and name != MALFORMED]
        self._check(schema, extra)
        self.schema = schema
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

    def copy(self) -> RowBuilder:
        """Another one for another thread: it keeps what it makes anew only when a stream changes."""
        other = copy(self)
        other._name = ""
        return other

    def _check(self, schema: pa.Schema, extra: Sequence[str]) -> None:
        if extra and self._options.payload != "json":
            known = [*BASE, *self._tokens.names]
            raise BadOption(f"there is no column {', '.join(extra)}; there are {', '.join(known)}")
        for field in schema:
            if field.name not in BASE or (field.name == "payload" and self._options.payload == "string"):
                check_nullable(f"column {field.name}", field.nullable)
            if field.name in extra:
                check_readable(field.name, field.type)
            wanted = _expected(field, self._options)
            if wanted is not None and type_name(field.type) != type_name(wanted):
                raise BadOption(f"column {field.name} is {type_name(wanted)}, not {type_name(field.type)}")

    def _whole_json(self) -> pa.Schema:
        """All fields of a payload, also those that are not read: whether it is malformed depends on every one."""
        kinds = {field.name: field.type for field in parse_ddl(self._options.payload_schema)}
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


def _expected(field: pa.Field, options: Options) -> pa.DataType | None:
    if field.name == "payload" and options.payload == "string":
        return pa.string()
    if field.name == MALFORMED:
        return pa.binary()
    return BASE.get(field.name)
