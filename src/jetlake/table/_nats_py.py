"""Messages of a nats-server block into Arrow columns, in Python: the reference of `_nats_c.pyx`. See `nats_rows.py`."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from jetlake.ops import OP_WORDS
from jetlake.store.format import Buffer
from jetlake.store.index._subject_filter_py import SubjectFilter
from jetlake.store.nats.envelope import SLACK
from jetlake.store.records._record_py import Record
from jetlake.table._arrow_py import Columns, Rows


class Filled(NamedTuple):
    """How much a call filled."""

    rows: int
    entries: int
    values: int


def fill(
    data: Buffer,
    ops: array[int],
    seqs: array[int],
    times: array[int],
    first: int,
    stop: int,
    filter: SubjectFilter,
    time_ns_min: int,
    time_ns_max: int,
    columns: Columns,
) -> Filled:
    """Fill columns with the messages first..stop-1 that are wanted; see `nats_rows.py`."""
    check(len(data), ops, len(seqs), len(times), first, stop, columns.rows_max)
    out = Rows(columns)
    for place in range(first, stop):
        op = ops[place * OP_WORDS : (place + 1) * OP_WORDS]
        subject, headers, payload = (bytes(data[at : at + size]) for at, size in (op[0:2], op[4:6], op[6:8]))
        if time_ns_min <= times[place] <= time_ns_max and filter.matches(subject):
            out.add(Record(0, subject, headers, payload, seqs[place], times[place]))
    return Filled(out.rows, out.entries, out.values)


def check(size: int, ops: array[int], seqs: int, times: int, first: int, stop: int, rows_max: int) -> None:
    """IndexError when there are fewer messages, bytes or rows than told."""
    if not 0 <= first <= stop <= min(len(ops) // OP_WORDS, seqs, times) or stop - first > rows_max:
        raise IndexError(f"messages {first}..{stop} of {min(len(ops) // OP_WORDS, seqs, times)}, {rows_max} rows")
    if first < stop and ops[(stop - 1) * OP_WORDS + 6] + ops[(stop - 1) * OP_WORDS + 7] > size - SLACK:
        raise IndexError(f"message {stop - 1} reaches beyond {size - SLACK} bytes")
