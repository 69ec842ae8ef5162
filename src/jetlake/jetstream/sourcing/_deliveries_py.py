"""Messages that an origin's consumer delivered, in Python: the reference of `_deliveries_c.pyx`."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from jetlake.ops import OP_MSG_ID, OP_SPECIAL, OP_WORDS

PREFIX = b"$JS.ACK."
OLD_TOKENS = 9
NEW_TOKENS_MIN = 11
DIGITS_MAX = 19
SPECIAL = b"\r\nNats-"
MSG_ID = b"\r\nNats-Msg-Id:"

Buffer = bytes | bytearray


class Delivery(NamedTuple):
    """What a reply subject says of a delivered message."""

    consumer: bytes
    seq: int
    consumer_seq: int
    time_ns: int
    pending: int


def read_delivery(reply: bytes) -> Delivery | None:
    """What a reply subject says; None when it is none of a delivery."""
    tokens = reply.split(b".")
    if not reply.startswith(PREFIX) or (len(tokens) != OLD_TOKENS and len(tokens) < NEW_TOKENS_MIN):
        return None
    at = 3 if len(tokens) == OLD_TOKENS else 5
    numbers = tokens[at + 2 : at + 6]
    if not all(0 < len(number) <= DIGITS_MAX and number.isdigit() for number in numbers):
        return None
    seq, consumer_seq, time_ns, pending = map(int, numbers)
    return Delivery(tokens[at], seq, consumer_seq, time_ns, pending) if time_ns < 2**63 else None


def read_frames(data: Buffer) -> array[int]:
    """The operations of whole MSG and HMSG frames; ValueError where there is anything else."""
    ops, at = array("I"), 0
    while at < len(data):
        line_end = data.find(b"\r\n", at)
        words = bytes(data[at:line_end]).split(b" ") if line_end >= 0 else []
        has_headers = bool(words) and words[0] == b"HMSG"
        expected = 6 if has_headers else 5
        if not words or words[0] not in (b"MSG", b"HMSG") or len(words) not in (expected, expected - 1):
            raise ValueError(f"no frame at {at}")
        if not all(0 < len(size) <= 9 and size.isdigit() for size in words[4 + (len(words) == expected) - 1 :]):
            raise ValueError(f"no frame at {at}")
        subject = at + len(words[0]) + 1
        reply = subject + len(words[1]) + len(words[2]) + 2
        reply_size = len(words[3]) if len(words) == expected else 0
        headers_size, size = (int(words[-2]) if has_headers else 0), int(words[-1])
        body = line_end + 2
        if headers_size > size or body + size + 2 > len(data) or data[body + size : body + size + 2] != b"\r\n":
            raise ValueError(f"no frame at {at}")
        headers = bytes(data[body : body + headers_size])
        flags = 0 if SPECIAL not in headers else OP_SPECIAL | OP_MSG_ID if MSG_ID in headers else OP_SPECIAL
        places = (
            subject,
            len(words[1]),
            reply,
            reply_size,
            body,
            headers_size,
            body + headers_size,
            size - headers_size,
        )
        ops.extend([*places, 0, flags, 0, 0])
        at = body + size + 2
    return ops


def read_stream(data: Buffer, start: int, end: int, sid: bytes) -> tuple[array[int], int]:
    """The operations of whole frames of one subscription, and where they end; see `deliveries.py`."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"range {start}..{end} of {len(data)} bytes")
    ops = array("I")
    while start < end:
        line_end = data.find(b"\r\n", start, end)
        words = bytes(data[start:line_end]).split(b" ") if line_end >= 0 else []
        if len(words) < 4 or words[2] != sid or not words[-1].isdigit() or len(words[-1]) > 9:
            break
        stop = line_end + 2 + int(words[-1]) + 2
        try:
            found = read_frames(bytes(data[start:stop])) if stop <= end else None
        except ValueError:
            found = None
        if found is None:
            break
        for field in (0, 2, 4, 6):
            found[field] += start
        ops.extend(found)
        start = stop
    return ops, start


def read_run(
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
    consumer: bytes,
    consumer_seq: int,
    seq: int,
    seqs: array[int],
    times: array[int],
) -> tuple[int, int]:
    """Read deliveries for as long as each is the next; see `deliveries.py`."""
    check_door(len(ops), first, stop, len(seqs), len(times))
    pending, number = 0, first
    while number < stop:
        start, size = ops[number * OP_WORDS + 2 : number * OP_WORDS + 4]
        found = read_delivery(bytes(data[start : start + size]))
        if found is None or found.consumer != consumer or found.consumer_seq != consumer_seq:
            break
        if seq and found.seq != seq + number - first:
            break
        seqs[number - first], times[number - first], pending = found.seq, found.time_ns, found.pending
        consumer_seq += 1
        number += 1
    return number, pending


def check_door(ops_size: int, first: int, stop: int, seqs_size: int, times_size: int) -> None:
    """Raise IndexError unless the operations are in the array and the results fit."""
    if not 0 <= first <= stop <= ops_size // OP_WORDS:
        raise IndexError(f"operations {first}..{stop} of {ops_size // OP_WORDS}")
    if stop - first > min(seqs_size, times_size):
        raise IndexError(f"{stop - first} operations, room for {min(seqs_size, times_size)}")
