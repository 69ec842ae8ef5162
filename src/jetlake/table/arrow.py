"""Decode the records of a block into Arrow columns: the face of the kernel, and the one place that knows its buffers.

`decode` walks the records of some bytes, verifies every checksum, and copies the messages that are wanted into the
buffers of a `Columns`. It stops at the end, when as many rows as there is room for are filled, or in front of bytes
that are not a sound record; with `is_final` it looks for the next sound one instead, as `store.scan` does, and says
what it stepped over. `seen` counts the messages of the range that are not gone, also those that subject or time rule
out: the caller knows how many there must be.

Text in Arrow must be UTF-8. In a subject, header name or header value that is not, every byte from 0x80 on becomes "?".
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from functools import cache
from sys import getrefcount
from typing import NamedTuple, Protocol

import pyarrow as pa

from jetlake.store.format import RECORD_SIZE_MIN
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectFilter
from jetlake.store.kernels import COMPILED as STORE_COMPILED
from jetlake.table._arrow_py import HEADERS, PAYLOAD, SEQ, SIZE, SUBJECT, TIME, TIME_NS, Columns, Decoded

try:
    from jetlake.table._arrow_c import decode

    COMPILED = STORE_COMPILED
except ImportError:  # not built here: slower, never different
    COMPILED = False

if not COMPILED:
    from jetlake.table._arrow_py import decode

__all__ = [
    "ALL",
    "COMPILED",
    "FIELDS",
    "ColumnPool",
    "Columns",
    "Decoded",
    "Wanted",
    "arrays",
    "column_buffers",
    "decode",
]

_STRING_LIST = pa.list_(pa.field("element", pa.string(), nullable=False))
HEADERS_TYPE = pa.map_(pa.string(), pa.field("value", _STRING_LIST, nullable=False))
FIELDS = {
    "seq": (SEQ, pa.int64()),
    "subject": (SUBJECT, pa.string()),
    "time": (TIME, pa.timestamp("us", tz="UTC")),
    "time_ns": (TIME_NS, pa.int64()),
    "headers": (HEADERS, HEADERS_TYPE),
    "payload": (PAYLOAD, pa.binary()),
    "size": (SIZE, pa.int32()),
}
ALL = SEQ | SUBJECT | TIME | TIME_NS | HEADERS | PAYLOAD | SIZE
_HEADER_LINE_SIZE_MIN = 3  # a colon and CRLF
_SLACK = 16  # texts are copied in steps of that size
ROWS_MAX = 1 << 16
_POOL_MAX = 4
_last = threading.local()


class Wanted(NamedTuple):
    """Which messages are wanted."""

    first_seq: int
    last_seq: int
    gone_starts: array[int]
    gone_ends: array[int]
    filter: SubjectFilter
    time_ns_min: int = -(2**63)
    time_ns_max: int = 2**63 - 1  # inclusive

    @classmethod
    def of(
        cls, first_seq: int, last_seq: int, gone: SequenceSet, filters: tuple[str, ...] = (), **times: int
    ) -> Wanted:
        """The messages of a range that are not gone and match one of the filters; no filters: all of them."""
        starts, ends = SequenceSet(gone.ranges_between(first_seq, last_seq)).arrays
        return cls(first_seq, last_seq, starts, ends, SubjectFilter(filters), **times)


def column_buffers(mask: int, body_size: int, rows_max: int = ROWS_MAX) -> Columns:
    """Room for the messages of so many bytes of records, at most so many."""
    rows_max = min(rows_max, body_size // RECORD_SIZE_MIN + 1)
    entries_max = body_size // _HEADER_LINE_SIZE_MIN + 1

    def room(flag: int, size: int) -> pa.Buffer:
        return pa.allocate_buffer(size if mask & flag else 0)  # not zeroed: most of it is never touched

    return Columns(
        mask,
        rows_max,
        seqs=room(SEQ, 8 * rows_max),
        times=room(TIME, 8 * rows_max),
        times_ns=room(TIME_NS, 8 * rows_max),
        sizes=room(SIZE, 4 * rows_max),
        subject_offsets=room(SUBJECT, 4 * (rows_max + 1)),
        subjects=room(SUBJECT, body_size + _SLACK),
        payload_offsets=room(PAYLOAD, 4 * (rows_max + 1)),
        payloads=room(PAYLOAD, body_size + _SLACK),
        map_offsets=room(HEADERS, 4 * (rows_max + 1)),
        key_offsets=room(HEADERS, 4 * (entries_max + 1)),
        list_offsets=room(HEADERS, 4 * (entries_max + 1)),
        value_offsets=room(HEADERS, 4 * (entries_max + 1)),
        keys=room(HEADERS, body_size + _SLACK),
        values=room(HEADERS, body_size + _SLACK),
    )


class ColumnPool:
    """Buffers that are used again once nobody holds the arrays made of them: fresh memory costs as much as decoding."""

    def __init__(self, mask: int) -> None:
        self.mask = mask
        self._all: list[tuple[int, Columns]] = []

    @classmethod
    def of(cls, names: Iterable[str]) -> ColumnPool:
        """The pool of this thread for columns of these names; a thread keeps the last one from task to task."""
        mask = sum(FIELDS[name][0] for name in names)
        pool: ColumnPool | None = getattr(_last, "pool", None)
        if pool is None or pool.mask != mask:
            pool = _last.pool = cls(mask)
        return pool

    def take(self, body_size: int) -> Columns:
        """Room for the messages of so many bytes of records."""
        for size, columns in self._all:
            if size >= body_size and _reference_counts(columns) <= _UNUSED:
                return columns
        self._all = self._all[1 - _POOL_MAX :] if len(self._all) >= _POOL_MAX else self._all
        self._all.append((body_size, column_buffers(self.mask, body_size)))
        return self._all[-1][1]


def _reference_counts(columns: Columns) -> int:
    """The most that one of the buffers is held, in whatever way this Python counts; an array is one holder more."""
    return max(getrefcount(buffer) for buffer in columns[2:])


_UNUSED = _reference_counts(column_buffers(ALL, 1))


class Filled(Protocol):
    """How much of its columns a kernel filled."""

    @property
    def rows(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def values(self) -> int: ...


def arrays(
    names: Iterable[str], columns: Columns, found: Filled, headers_type: pa.DataType = HEADERS_TYPE
) -> dict[str, pa.Array]:
    """The columns of these names that were filled. Spark may call values of headers nullable, though none is null."""
    return {name: _array(name, columns, found, headers_type) for name in names if name in FIELDS}


def _array(name: str, columns: Columns, found: Filled, headers_type: pa.DataType) -> pa.Array:
    if name == "headers":
        return _headers(columns, found, headers_type)
    if name == "subject":
        buffers = [columns.subject_offsets, columns.subjects]
    elif name == "payload":
        buffers = [columns.payload_offsets, columns.payloads]
    else:
        numbers = {"seq": columns.seqs, "time": columns.times, "time_ns": columns.times_ns, "size": columns.sizes}
        buffers = [numbers[name]]
    return _from_buffers(FIELDS[name][1], found.rows, *buffers)


def _headers(columns: Columns, found: Filled, kind: pa.DataType) -> pa.Array:
    pairs = _header_pairs(columns, found, kind) if found.entries else _no_pairs(kind)
    return _from_buffers(kind, found.rows, columns.map_offsets, children=[pairs])


@cache
def _no_pairs(kind: pa.DataType) -> pa.Array:
    return pa.array([], pa.struct([kind.key_field, kind.item_field]))


def _header_pairs(columns: Columns, found: Filled, kind: pa.DataType) -> pa.Array:
    keys = _from_buffers(pa.string(), found.entries, columns.key_offsets, columns.keys)
    texts = _from_buffers(pa.string(), found.values, columns.value_offsets, columns.values)
    lists = _from_buffers(kind.item_type, found.entries, columns.list_offsets, children=[texts])
    entry = pa.struct([kind.key_field, kind.item_field])
    return _from_buffers(entry, found.entries, children=[keys, lists])


def _from_buffers(
    kind: pa.DataType, count: int, *buffers: pa.Buffer, children: list[pa.Array] | None = None
) -> pa.Array:
    """An array over the filled part of some buffers: inside a nested column, Arrow would send all of them."""
    views = [pa.py_buffer(buffer) for buffer in buffers]
    if buffers and not pa.types.is_primitive(kind):
        end = 4 * count
        views[0] = views[0].slice(0, end + 4)
        if len(views) == 2:
            views[1] = views[1].slice(0, int.from_bytes(buffers[0][end : end + 4], "little"))
    return pa.Array.from_buffers(kind, count, [None, *views], null_count=0, children=children)
