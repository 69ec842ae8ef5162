"""Rows to records and back to operations, in Python: the reference of `_rows_c.pyx`. `rows.py` says what it is for."""

from __future__ import annotations

from array import array

from jetlake.errors import MessageTooLarge
from jetlake.ops import OP_MSG_ID, OP_WORDS
from jetlake.store.format import HEADERS_SIZE_MAX, MSG_ID, NOT_MESSAGE, PAYLOAD_SIZE_MAX, SUBJECT_SIZE_MAX, Buffer
from jetlake.store.records._record_py import BadRecord, Record, decode, encode, measure

_LIMITS = (("subject", SUBJECT_SIZE_MAX), ("headers", HEADERS_SIZE_MAX), ("payload", PAYLOAD_SIZE_MAX))


def encode_rows(
    subject_offsets: Buffer,
    subjects: Buffer,
    header_offsets: Buffer,
    headers: Buffer,
    payload_offsets: Buffer,
    payloads: Buffer,
    times_ns: Buffer,
    first: int,
    stop: int,
    out: bytearray | memoryview,
    used: int,
    seq: int,
    time_ns: int,
    seed: int,
) -> tuple[int, int, int, int]:
    """Encode rows first..stop-1 as far as there is room: the row at which it stopped, bytes used, times (min, max)."""
    columns = [_column(subject_offsets, subjects, stop), _column(payload_offsets, payloads, stop)]
    header_column = _column(header_offsets, headers, stop) if len(header_offsets) else None
    times = memoryview(times_ns).cast("B")[: len(times_ns) // 8 * 8].cast("q") if len(times_ns) else None
    view, time_min, time_max = memoryview(out).cast("B"), 2**63 - 1, -(2**63)
    if not 0 <= first <= stop or (times is not None and len(times) < stop) or not 0 <= used <= len(view):
        raise IndexError(f"rows {first}..{stop}")
    while first < stop:
        subject, payload = (data[offsets[first] : offsets[first + 1]] for offsets, data in columns)
        block = b""
        if header_column is not None:
            block = bytes(header_column[1][header_column[0][first] : header_column[0][first + 1]])
        for (name, size_max), size in zip(_LIMITS, (len(subject), len(block), len(payload)), strict=True):
            if size > size_max:
                raise MessageTooLarge(name, size, size_max)
        stored_ns = time_ns if times is None else times[first]
        record = encode(Record(0, bytes(subject), block, bytes(payload), seq, stored_ns), seed)
        if len(record) > len(view) - used:
            break
        view[used : used + len(record)] = record
        used += len(record)
        time_min, time_max = min(time_min, stored_ns), max(time_max, stored_ns)
        first += 1
        seq += 1
    return first, used, time_min, time_max


def shift(data: bytearray | memoryview, start: int, end: int, seed: int, distance: int) -> int:
    """Give every record a sequence so much higher; how many. BadRecord in front of one that is not sound."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"range {start}..{end} of {len(data)} bytes")
    count = 0
    while start < end:
        record, after = decode(data, start, end, seed)
        data[start:after] = encode(record._replace(seq=record.seq + distance), seed)
        start = after
        count += 1
    return count


def operations(data: Buffer, start: int, end: int, seed: int) -> array[int]:
    """The messages of some records as operations on the same bytes, for a batch append (see `jetlake.ops`)."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"range {start}..{end} of {len(data)} bytes")
    ops = array("I")
    while start < end:
        record, after = decode(data, start, end, seed)
        if record.flags & NOT_MESSAGE:
            raise BadRecord("not a message")
        at = measure(data, start, end, seed)
        flags = OP_MSG_ID if record.flags & MSG_ID else 0
        sizes = (len(record.subject), len(record.headers), len(record.payload))
        ops.extend(
            [at.subject_start, sizes[0], 0, 0, at.headers_start, sizes[1], at.payload_start, sizes[2], 0, flags, 0, 0]
        )
        assert len(ops) % OP_WORDS == 0
        start = after
    return ops


def _column(offsets: Buffer, data: Buffer, stop: int) -> tuple[memoryview, memoryview]:
    places, view = memoryview(offsets).cast("B")[: len(offsets) // 4 * 4].cast("i"), memoryview(data).cast("B")
    if len(places) < stop + 1 or not 0 <= places[0] <= places[stop] <= len(view):
        raise IndexError(f"a column of {len(places) - 1} rows and {len(view)} bytes, {stop} rows wanted")
    if any(places[row] > places[row + 1] for row in range(stop)):
        raise IndexError("offsets of a column do not ascend")
    return places, view
