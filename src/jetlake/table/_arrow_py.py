"""Decode the records of a block into Arrow columns, in Python: the reference of `_arrow_c.pyx`. See `arrow.py`."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from jetlake.store.format import BLOCK_SEQ_SPAN_MAX, ERASED, SEQ_MAX, SKIP, Buffer
from jetlake.store.index._subject_filter_py import SubjectFilter
from jetlake.store.records._record_py import BadRecord, Record
from jetlake.store.records._record_py import decode as decode_record
from jetlake.wire.headers import iter_headers

SEQ, SUBJECT, TIME, TIME_NS, HEADERS, PAYLOAD, SIZE = 1, 2, 4, 8, 16, 32, 64


class Columns(NamedTuple):
    """Buffers to be filled, in the layout of Arrow; those of columns that are not wanted are empty."""

    mask: int
    rows_max: int
    seqs: Any
    times: Any  # microseconds
    times_ns: Any
    sizes: Any
    subject_offsets: Any
    subjects: Any
    payload_offsets: Any
    payloads: Any
    map_offsets: Any  # of each row's entries
    key_offsets: Any
    list_offsets: Any  # of each entry's values
    value_offsets: Any
    keys: Any
    values: Any


class Decoded(NamedTuple):
    """How far a call came, and how much it filled."""

    end: int  # where to go on
    last_seq: int  # what is to follow: `prev_seq` of the next call
    rows: int
    seen: int
    entries: int
    values: int
    damage: list[tuple[int, int]]


def decode(
    data: Buffer,
    start: int,
    end: int,
    seed: int,
    prev_seq: int,
    is_final: bool,
    first_seq: int,
    last_seq: int,
    gone_starts: array[int],
    gone_ends: array[int],
    filter: SubjectFilter,
    time_ns_min: int,
    time_ns_max: int,
    columns: Columns,
) -> Decoded:
    """Fill columns with the wanted messages of data[start:end]; see `arrow.py`."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"range {start}..{end} of {len(data)} bytes")
    if not 0 <= prev_seq <= SEQ_MAX:
        raise ValueError(f"no sequence {prev_seq}")
    out = Rows(columns)
    seen, damage = 0, list[tuple[int, int]]()
    offset = sound_end = start
    while offset < end and out.rows < columns.rows_max:
        found = _sound_record(data, offset, end, seed, prev_seq)
        if found is None:
            if not is_final:
                break
            offset += 1
            continue
        record, after, follow_seq = found
        if offset > sound_end:
            damage.append((sound_end, offset - sound_end))
        if record.is_message and first_seq <= record.seq <= last_seq and not _is_in(record.seq, gone_starts, gone_ends):
            seen += 1
            if time_ns_min <= record.time_ns <= time_ns_max and filter.matches(record.subject):
                out.add(record)
        prev_seq, offset, sound_end = follow_seq, after, after
    if is_final and offset > sound_end:
        damage.append((sound_end, offset - sound_end))
        sound_end = offset
    return Decoded(sound_end, prev_seq, out.rows, seen, out.entries, out.values, damage)


def _sound_record(data: Buffer, offset: int, end: int, seed: int, prev_seq: int) -> tuple[Record, int, int] | None:
    """The record at an offset if it is sound and can follow `prev_seq`, its end, and the sequence to follow then."""
    try:
        record, after = decode_record(data, offset, end, seed)
    except BadRecord:
        return None
    if record.is_message and not record.subject:
        return None
    if not record.is_message and not record.flags & (SKIP | ERASED):
        return record, after, prev_seq
    if record.seq > SEQ_MAX or not 0 < record.seq - prev_seq <= BLOCK_SEQ_SPAN_MAX:
        return None
    return record, after, record.seq


def _is_in(seq: int, starts: array[int], ends: array[int]) -> bool:
    return any(first <= seq <= last for first, last in zip(starts, ends, strict=True))


class Rows:
    """Columns that are being filled."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = self.entries = self.values = 0
        self.ends = {"subject": 0, "payload": 0, "key": 0, "value": 0}
        if columns.mask & SUBJECT:
            _put(columns.subject_offsets, 0, 0, 4)
        if columns.mask & PAYLOAD:
            _put(columns.payload_offsets, 0, 0, 4)
        if columns.mask & HEADERS:
            for offsets in (columns.map_offsets, columns.key_offsets, columns.list_offsets, columns.value_offsets):
                _put(offsets, 0, 0, 4)

    def add(self, record: Record) -> None:
        columns, row = self.columns, self.rows
        if columns.mask & SEQ:
            _put(columns.seqs, row, record.seq, 8)
        if columns.mask & TIME:
            _put(columns.times, row, record.time_ns // 1000, 8)
        if columns.mask & TIME_NS:
            _put(columns.times_ns, row, record.time_ns, 8)
        if columns.mask & SIZE:
            _put(columns.sizes, row, len(record.payload), 4)
        if columns.mask & SUBJECT:
            self._text("subject", columns.subject_offsets, columns.subjects, row, _utf8(record.subject))
        if columns.mask & PAYLOAD:
            self._text("payload", columns.payload_offsets, columns.payloads, row, record.payload)
        if columns.mask & HEADERS:
            self._headers(record.headers)
            _put(columns.map_offsets, row + 1, self.entries, 4)
        self.rows += 1

    def _headers(self, block: bytes) -> None:
        columns = self.columns
        for name, values in group_headers(block).items():
            self._text("key", columns.key_offsets, columns.keys, self.entries, name)
            for value in values:
                self._text("value", columns.value_offsets, columns.values, self.values, value)
                self.values += 1
            self.entries += 1
            _put(columns.list_offsets, self.entries, self.values, 4)

    def _text(self, name: str, offsets: Any, texts: Any, place: int, text: bytes) -> None:
        start = self.ends[name]
        memoryview(texts).cast("B")[start : start + len(text)] = text
        self.ends[name] = start + len(text)
        _put(offsets, place + 1, start + len(text), 4)


def group_headers(block: bytes) -> dict[bytes, list[bytes]]:
    """The values under each name, in order of appearance."""
    grouped: dict[bytes, list[bytes]] = {}
    for name, value in iter_headers(block):
        grouped.setdefault(_utf8(name), []).append(_utf8(value))
    return grouped


def _utf8(text: bytes) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        return bytes(byte if byte < 0x80 else ord("?") for byte in text)
    return text


def _put(buffer: Any, place: int, number: int, size: int) -> None:
    memoryview(buffer).cast("B")[place * size : (place + 1) * size] = (number % (1 << 8 * size)).to_bytes(
        size, "little"
    )
