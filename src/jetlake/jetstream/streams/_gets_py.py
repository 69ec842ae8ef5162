"""Answers to a run of gets, in Python: the reference of `_gets_c.pyx`. Import `gets`."""

from __future__ import annotations

import re
from array import array
from base64 import b64encode
from collections.abc import Callable, Sequence

from jetlake.ops import OP_WORDS, check_ops
from jetlake.store.index.subject_table import LAST_STALE, SubjectTable
from jetlake.store.records.record import BadRecord, Record, decode
from jetlake.wire.go_time import format_time
from jetlake.wire.headers import append_headers
from jetlake.wire.json_text import encode_json
from jetlake.wire.writer import msg

Buffer = bytes | bytearray
TIME_NS_MAX = (1 << 32) * 10**9  # later times, and those before 1970, are for the slow way
MESSAGE_TYPE = "io.nats.jetstream.api.v1.stream_msg_get_response"
_SPACE = rb"[ \t\r\n]*"
_GET = re.compile(
    rb'S\{S(?:"seq"S:S([1-9][0-9]{0,18})|"last_by_subj"S:S"([!#-)+-=?-\[\]-~]{1,65535})")S\}S'.replace(b"S", _SPACE)
)
_PLAIN = re.compile(rb"[ !#-\[\]-~]*")  # what JSON shows as it is


def find_last(
    table: SubjectTable, data: Buffer, ops: array[int], first: int, stop: int, skip: int, seq_max: int, seqs: array[int]
) -> int:
    """Put the last sequence of each operation's subject into `seqs`; where it stopped. See `gets.py`."""
    check_ops(len(data), len(ops), first, stop)
    check_seqs(seqs, first, stop)
    for number in range(first, stop):
        subject, size, _, reply_size, _, headers_size, _, payload_size = ops[number * OP_WORDS : number * OP_WORDS + 8]
        if subject + size > len(data):
            raise IndexError(f"operation {number} is not in the buffer")
        if headers_size or payload_size or not reply_size or not 0 < size - skip <= 65535:
            return number
        slot = table.find(bytes(data[subject + skip : subject + size]))
        if slot < 0 or not _has_certain_last(table, slot) or table.last(slot) > seq_max:
            return number
        seqs[number - first] = table.last(slot)
    return stop


def find_asked(
    table: SubjectTable,
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
    skip: int,
    name: bytes,
    seq_max: int,
    seqs: array[int],
) -> int:
    """Put the sequence that each operation's payload asks for into `seqs`; where it stopped. See `gets.py`."""
    (len(data), len(ops), first, stop)
    check_seqs(seqs, first, stop)
    for number in range(first, stop):
        subject, size, _, reply_size, _, headers_size, payload, payload_size = ops[
            number * OP_WORDS : number * OP_WORDS + 8
        ]
        if subject + size > len(data) or payload + payload_size > len(data):
            raise IndexError(f"operation {number} is not in the buffer")
        if headers_size or not reply_size or data[subject + skip : subject + size] != name:
            return number
        found = _GET.fullmatch(data, payload, payload + payload_size)
        if found is None:
            return number
        if found[1]:
            seq = int(found[1])
        else:
            slot = table.find(bytes(found[2]))
            if slot < 0 or not _has_certain_last(table, slot):
                return number
            seq = table.last(slot)
        if seq > seq_max:
            return number
        seqs[number - first] = seq
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

    def answer(reply: bytes, found: Record) -> bytes:
        pairs = [
            (b"Nats-Stream", stream),
            (b"Nats-Subject", found.subject),
            (b"Nats-Sequence", b"%d" % found.seq),
            (b"Nats-Time-Stamp", format_time(found.time_ns).encode()),
        ]
        return msg(reply, sid, found.payload, b"", append_headers(found.headers, pairs))

    return _frames(data, ops, first, records, seqs, seeds, prefix, may_have_dots, answer)


def message_frames(
    data: Buffer,
    ops: array[int],
    first: int,
    records: Sequence[bytes],
    seqs: array[int],
    seeds: array[int],
    prefix: bytes,
    may_have_dots: bool,
    sid: bytes,
) -> tuple[bytes, int]:
    """The same in the JSON of STREAM.MSG.GET. See `gets.py`."""

    def answer(reply: bytes, found: Record) -> bytes | None:
        if not _PLAIN.fullmatch(found.subject):
            return None
        shown: dict[str, object] = {"subject": found.subject.decode(), "seq": found.seq}
        if found.headers:
            shown["hdrs"] = b64encode(found.headers).decode()
        if found.payload:
            shown["data"] = b64encode(found.payload).decode()
        shown["time"] = format_time(found.time_ns)
        return msg(reply, sid, encode_json({"type": MESSAGE_TYPE, "message": shown}))

    return _frames(data, ops, first, records, seqs, seeds, prefix, may_have_dots, answer)


def _frames(
    data: Buffer,
    ops: array[int],
    first: int,
    records: Sequence[bytes],
    seqs: array[int],
    seeds: array[int],
    prefix: bytes,
    may_have_dots: bool,
    answer: Callable[[bytes, Record], bytes | None],
) -> tuple[bytes, int]:
    stop = first + len(records)
    if not records:
        return b"", first
    check_ops(len(data), len(ops), first, stop)
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
        frame = answer(reply, found)
        if frame is None:
            return b"".join(frames), number
        frames.append(frame)
    return b"".join(frames), stop


def _has_certain_last(table: SubjectTable, slot: int) -> bool:
    return table.count(slot) > 0 and not table.flags(slot) & LAST_STALE


def check_seqs(numbers: array[int], first: int, stop: int) -> None:
    """Raise IndexError unless there is a place for each operation."""
    if numbers.typecode != "Q" or len(numbers) < stop - first:
        raise IndexError(f"an array of {len(numbers)} for {stop - first} operations")
