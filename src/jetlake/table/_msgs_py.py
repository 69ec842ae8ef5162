"""Messages that a consumer delivers into Arrow columns, in Python: the reference of `_msgs_c.pyx`. See `msgs.py`."""

from __future__ import annotations

from typing import NamedTuple

from jetlake.store.format import Buffer
from jetlake.store.records._record_py import Record
from jetlake.table._arrow_py import Columns, Rows

# Where in an ack subject its numbers stand, by how many tokens it has: $JS.ACK.S.C.<deliveries>.<seq>.<…>.<time>.<left>
_PLACES = {9: (5, 7, 8)}
_PLACES_V2 = (7, 9, 10)
_LINE_SIZE_MAX = 64 * 1024
SLACK = 16


class Received(NamedTuple):
    """How far a call came."""

    end: int  # where to go on: an unfinished message, or a line that is not a delivered message
    rows: int
    seen: int  # messages, also those that were not wanted
    last_seq: int  # of the last message, also one that was not wanted
    pending: int  # how many more the consumer had then; -1 when there was no message
    entries: int
    values: int
    is_other: bool  # it stopped in front of a whole line that is not a delivered message


def receive(
    data: Buffer, start: int, end: int, last_seq: int, time_ns_min: int, time_ns_max: int, columns: Columns
) -> Received:
    """Fill columns with the delivered messages of data[start:end] up to a sequence; see `msgs.py`."""
    if not 0 <= start <= end <= len(data) - SLACK:
        raise IndexError(f"range {start}..{end} of {len(data)} bytes")
    out, seen, pending, seen_seq, is_other = Rows(columns), 0, -1, 0, False
    while start < end and out.rows < columns.rows_max:
        line_end = bytes(data[start:end]).find(b"\r\n")
        if line_end < 0:
            if end - start > _LINE_SIZE_MAX:
                raise ValueError("a line without an end")
            break
        found = _message(data, start, start + line_end, end)
        if isinstance(found, bool):
            is_other = found
            break
        record, left, start = found
        seen, seen_seq, pending = seen + 1, record.seq, left
        if record.seq <= last_seq and time_ns_min <= record.time_ns <= time_ns_max:
            out.add(record)
    return Received(start, out.rows, seen, seen_seq, pending, out.entries, out.values, is_other)


def _message(data: Buffer, start: int, line_end: int, end: int) -> tuple[Record, int, int] | bool:
    """A delivered message, how many are left, and its end; True for any other line, False for an unfinished one."""
    words = bytes(data[start:line_end]).split(b" ")
    with_headers = words[0] == b"HMSG"
    if words[0] not in (b"MSG", b"HMSG") or len(words) != 5 + with_headers:
        return True
    sizes = [_number(word) for word in words[4:]]
    numbers = _ack_numbers(words[3])
    if numbers is None or None in sizes or not words[1]:
        return True
    headers_size = sizes[0] if with_headers else 0
    size = sizes[-1]
    assert headers_size is not None and size is not None
    if headers_size > size:
        return True
    body = line_end + 2
    if size + 2 > end - body:
        return False
    seq, time_ns, left = numbers
    headers, payload = bytes(data[body : body + headers_size]), bytes(data[body + headers_size : body + size])
    return Record(0, words[1], headers, payload, seq, time_ns), left, body + size + 2


def _ack_numbers(reply: bytes) -> tuple[int, int, int] | None:
    """Sequence, time and messages left from an ack subject; None for any other subject."""
    tokens = reply.split(b".")
    if not reply.startswith(b"$JS.ACK.") or (len(tokens) != 9 and len(tokens) < 11):
        return None
    found = [_number(tokens[place]) for place in _PLACES.get(len(tokens), _PLACES_V2)]
    return None if None in found else tuple(found)  # type: ignore[return-value]


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= 19 and int(text) < 2**63 else None
