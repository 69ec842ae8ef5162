"""Answers to a run of direct gets, in Python: the reference of `_gets_c.pyx`. Import `gets`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from jetlake.broker._routes_py import check_door
from jetlake.ops import OP_WORDS
from jetlake.store.record import BadRecord, decode
from jetlake.store.subject_table import LAST_STALE, SubjectTable
from jetlake.wire.go_time import format_time
from jetlake.wire.headers import append_headers
from jetlake.wire.writer import msg

Buffer = bytes | bytearray
TIME_NS_MAX = (1 << 32) * 10**9  # later times, and those before 1970, are for the slow way


def find_last(
    table: SubjectTable, data: Buffer, ops: array[int], first: int, stop: int, skip: int, seq_max: int, seqs: array[int]
) -> int:
    """Put the last sequence of each operation's subject into `seqs`; where it stopped. See `gets.py`."""
    check_door(len(data), len(ops), first, stop)
    check_seqs(seqs, first, stop)
    for number in range(first, stop):
        subject, size, _, reply_size, _, headers_size, _, payload_size = ops[number * OP_WORDS : number * OP_WORDS + 8]
        if subject + size > len(data):
            raise IndexError(f"operation {number} is not in the buffer")
        if headers_size or payload_size or not reply_size or not 0 < size - skip <= 65535:
            return number
        slot = table.find(bytes(data[subject + skip : subject + size]))
        if slot < 0 or table.flags(slot) & LAST_STALE or table.last(slot) > seq_max:
            return number
        seqs[number - first] = table.last(slot)
    return stop


def get_frames(
    data: Buffer,
    ops: array[int],
    first: int,
    records: Sequence[bytes],
    seqs: array[int],
    seeds: array[int],
    prefix: bytes,
    may_have_dots: bool,
    sid: bytes,
    stream: bytes,
) -> tuple[bytes, int]:
    """The answers to operations from `first` on, one for each record; where it stopped. See `gets.py`."""
    stop = first + len(records)
    if not records:
        return b"", first
    check_door(len(data), len(ops), first, stop)
    check_seqs(seqs, first, stop)
    check_seqs(seeds, first, stop)
    frames: list[bytes] = []
    for number, record in enumerate(records, first):
        start, size = ops[number * OP_WORDS + 2 : number * OP_WORDS + 4]
        if start + size > len(data):
            raise IndexError(f"operation {number} is not in the buffer")
        reply = bytes(data[start : start + size])
        rest = reply[len(prefix) :]
        if not reply.startswith(prefix) or not rest or (not may_have_dots and b"." in rest):
            return b"".join(frames), number
        if may_have_dots and b"" in rest.split(b"."):
            return b"".join(frames), number
        try:
            found, _ = decode(record, 0, len(record), seeds[number - first])
        except BadRecord:
            return b"".join(frames), number
        if found.seq != seqs[number - first] or not found.is_message or not 0 <= found.time_ns < TIME_NS_MAX:
            return b"".join(frames), number
        pairs = [
            (b"Nats-Stream", stream),
            (b"Nats-Subject", found.subject),
            (b"Nats-Sequence", b"%d" % found.seq),
            (b"Nats-Time-Stamp", format_time(found.time_ns).encode()),
        ]
        frames.append(msg(reply, sid, found.payload, b"", append_headers(found.headers, pairs)))
    return b"".join(frames), stop


def check_seqs(numbers: array[int], first: int, stop: int) -> None:
    """Raise IndexError unless there is a place for each operation."""
    if numbers.typecode != "Q" or len(numbers) < stop - first:
        raise IndexError(f"an array of {len(numbers)} for {stop - first} operations")
