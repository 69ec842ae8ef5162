"""Record batches that are to be written: their columns checked, and as buffers for the kernels.

A row is a message. Columns: `subject` (or the option `subject`, one literal for all rows), `payload` (binary or text,
NULL is empty), and optionally `headers` (map of name to value, or to an array of values) and `time` (timestamp) or
`time_ns`. Any other column is refused: it would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from jetlake.errors import BadSubject
from jetlake.store.format import Buffer
from jetlake.subjects import check_subject, is_literal, matches
from jetlake.table.errors import BadOption
from jetlake.wire.headers import append_headers

_TEXTS = (StringType, BinaryType)
_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "subject": (StringType,),
    "payload": _TEXTS,
    "headers": (MapType,),
    "time": (TimestampType, TimestampNTZType),
    "time_ns": (LongType,),
}


class Rows(NamedTuple):
    """A record batch as a kernel takes it: offsets (i32) and bytes of each column; empty where there is none."""

    row_count: int
    subject_offsets: Buffer
    subjects: Buffer
    header_offsets: Buffer
    headers: Buffer
    payload_offsets: Buffer
    payloads: Buffer
    times_ns: Buffer


def check_columns(schema: StructType, subject: str) -> None:
    """BadOption unless rows of this schema are messages."""
    names = schema.fieldNames()
    for name in names:
        if name not in _KINDS:
            raise BadOption(f"column {name} cannot be written; messages have {', '.join(_KINDS)}")
        kind = schema[name].dataType
        if not isinstance(kind, _KINDS[name]):
            raise BadOption(f"column {name} is {kind.simpleString()}, which cannot be written")
        if isinstance(kind, MapType):
            value = kind.valueType.elementType if isinstance(kind.valueType, ArrayType) else kind.valueType
            if not isinstance(kind.keyType, StringType) or not isinstance(value, StringType):
                raise BadOption("column headers must be a map of string to string, or to an array of strings")
    if "payload" not in names:
        raise BadOption("column payload is missing")
    if "subject" not in names and not subject:
        raise BadOption("column subject is missing, and there is no option subject for all rows")
    if "subject" not in names and not is_literal(subject):
        raise BadOption(f"subject {subject!r} has wildcards: messages need one subject")
    if "time" in names and "time_ns" in names:
        raise BadOption("columns time and time_ns are both there")


class RowMaker:
    """Turns record batches into rows; each distinct subject is checked once."""

    def __init__(self, subject: str = "", filters: Sequence[str] = ()) -> None:
        """`filters`, if there are any, are what subjects must match."""
        self._subject, self._filters, self._checked = subject, filters, set[str]()

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """The buffers of a batch; BadSubject for one that cannot be stored."""
        count, names = batch.num_rows, batch.schema.names
        subject = batch.column("subject") if "subject" in names else pa.repeat(pa.scalar(self._subject), count)
        self._check(subject)
        header_offsets: Buffer = b""
        headers: Buffer = b""
        if "headers" in names and len(batch.column("headers")):
            header_offsets, headers = _text(_header_blocks(batch.column("headers")))
        return Rows(
            count,
            *_text(subject.cast(pa.binary())),
            header_offsets,
            headers,
            *_text(batch.column("payload").cast(pa.binary())),
            _times(batch),
        )

    def messages(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, bytes, bytes]]:
        """The rows of a batch one by one: subject, header lines without their first and last, payload."""
        count, names = batch.num_rows, batch.schema.names
        subject = batch.column("subject") if "subject" in names else pa.repeat(pa.scalar(self._subject), count)
        self._check(subject)
        lines: list[bytes] = [b""] * count
        if "headers" in names:
            lines = [_lines(header_block(pairs)) for pairs in batch.column("headers").to_pylist()]
        payloads = batch.column("payload").cast(pa.binary()).to_pylist()
        for name, line, payload in zip(subject.cast(pa.binary()).to_pylist(), lines, payloads, strict=True):
            yield name, line, payload or b""

    def _check(self, subjects: pa.Array) -> None:
        if subjects.null_count:
            raise BadOption("column subject is NULL in some rows")
        for subject in subjects.unique().to_pylist():
            if subject not in self._checked:
                check_subject(subject)
                if self._filters and not any(matches(filter, subject) for filter in self._filters):
                    raise BadOption(f"subject {subject!r} is none of the stream's, {', '.join(self._filters)}")
                self._checked.add(subject)

    @property
    def subjects(self) -> list[str]:
        """Filters that match every subject so far: by their first tokens."""
        filters = set()
        for subject in self._checked:
            first, dot, _ = subject.partition(".")
            filters.add(f"{first}.>" if dot else first)
        return sorted(filters)


def _text(column: pa.Array) -> tuple[Buffer, Buffer]:
    """Offsets and bytes of a binary column; NULL is empty."""
    if column.null_count:
        column = pc.fill_null(column, b"")
    if column.offset or len(column) == 0:
        column = pa.concat_arrays([column, pa.array([], column.type)])
    _, offsets, data = column.buffers()
    # A writer may leave out the buffers of what is empty.
    offsets = bytes(4) if offsets is None or not offsets.size else memoryview(offsets).cast("B")
    return offsets, b"" if data is None else memoryview(data).cast("B")


def _times(batch: pa.RecordBatch) -> Buffer:
    names = batch.schema.names
    if "time_ns" in names:
        column = batch.column("time_ns")
    elif "time" in names:
        column = _nanoseconds(batch.column("time").cast(pa.timestamp("us")).cast(pa.int64()))
    else:
        return b""
    if column.null_count:
        raise BadOption("the time is NULL in some rows")
    if column.offset:
        column = pa.concat_arrays([column])
    return memoryview(column.buffers()[1]).cast("B")[: 8 * len(column)]


def _nanoseconds(microseconds: pa.Array) -> pa.Array:
    try:
        return pc.multiply_checked(microseconds, 1000)
    except pa.ArrowInvalid:
        raise BadOption("a time is out of range: messages have times from 1677 to 2262") from None


def _header_blocks(column: pa.Array) -> pa.Array:
    """Header blocks as NATS writes them; nothing where a row has no headers."""
    return pa.array([header_block(pairs) for pairs in column.to_pylist()], pa.binary())


def _lines(block: bytes) -> bytes:
    """The lines of a header block between its first and its last."""
    return block[block.find(b"\r\n") + 2 : -2] if block else b""


def header_block(pairs: Iterable[tuple[str, str | list[str | None] | None]] | None) -> bytes:
    """The block of some headers; BadOption for a name or value that would end its line."""
    lines = []
    for name, values in pairs or ():
        for value in [values] if isinstance(values, str) else values or []:
            if value is None:
                continue
            if not name or any(sign in name for sign in ":\r\n ") or "\r" in value or "\n" in value:
                raise BadOption(f"header {name!r}: {value!r} cannot be written on a line")
            lines.append((name.encode(), value.encode()))
    return append_headers(b"", lines) if lines else b""


__all__ = ["BadSubject", "RowMaker", "Rows", "check_columns", "header_block"]
