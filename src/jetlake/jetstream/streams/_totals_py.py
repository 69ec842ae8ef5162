"""Totals of counters, in Python: the reference of `_totals_c.pyx`. `totals.py` says what it is for."""

from __future__ import annotations

from array import array

from jetlake.jetstream.streams._members_py import _check_place, moved
from jetlake.jetstream.streams._msg_ids_py import (
    FAST_SUFFIX,
    HEADERS_SIZE_MAX,
    PLAIN_BLOCK,
    RESERVED,
    Buffer,
    check_door,
)
from jetlake.jetstream.streams._pub_acks_py import is_reply_to
from jetlake.ops import OP_ADMITTED, OP_WORDS
from jetlake.store.index._subject_table_py import LAST_STALE, SubjectTable
from jetlake.wire.writer import msg

LINE = b"\r\nNats-Incr:"
DIGITS_MAX = 17  # of an increment
TOTAL_MAX = 4 * 10**18  # to which increments can be added without a thought
TOTALS_MAX = 100_000


class Totals:
    """The totals that are known, by subject."""

    def __init__(self, table: SubjectTable) -> None:
        self._table = table
        self._totals: dict[bytes, tuple[int, int]] = {}  # where it stands, and the value

    def clear(self) -> None:
        """Forget all of them."""
        self._totals.clear()

    def put(self, subject: bytes, seq: int, value: int) -> None:
        """Remember what a subject counts, whose last message has this sequence."""
        if abs(value) <= TOTAL_MAX and self._table.find(subject) >= 0:
            if len(self._totals) >= TOTALS_MAX:
                self._totals.clear()
            self._totals[subject] = (seq, value)

    def get(self, subject: bytes) -> int | None:
        """What a subject counts; None when that is not known."""
        return self._get(subject, 2**64)

    def _get(self, subject: bytes, seq: int) -> int | None:
        """The same; a total from `seq` on is of the run that is being counted."""
        slot, known = self._table.find(subject), self._totals.get(subject)
        if slot < 0 or known is None:
            return None
        is_last = known[0] == self._table.last(slot) and not self._table.flags(slot) & LAST_STALE
        return known[1] if is_last or known[0] >= seq else None

    def count(
        self, data: Buffer, ops: array[int], first: int, stop: int, seq: int, size_max: int
    ) -> tuple[int, bytes, int, int, array[int]]:
        """Make the payloads of a run of increments; see `totals.py`."""
        check_door(len(ops), first, stop)
        payloads, least, greatest, number = list[bytes](), len(data), 0, first
        for number in range(first, stop + 1):
            if number == stop:
                break
            op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
            _check_place(len(data), op, number)
            subject, increment = bytes(data[op[0] : op[0] + op[1]]), _increment(data, op)
            total = self._get(subject, seq) if increment is not None else None
            if increment is None or total is None or abs(total + increment) > TOTAL_MAX:
                break
            payload = b'{"val":"%d"}' % (total + increment)
            if 0 <= size_max < op[5] + len(payload):
                break
            self._totals[subject] = (seq + number - first, total + increment)
            payloads.append(payload)
            least, greatest = min(least, op[0], op[4]), max(greatest, op[0] + op[1], op[4] + op[5])
        words, start = moved(ops, first, number, -least), greatest - least
        for place, payload in enumerate(payloads):
            at = place * OP_WORDS
            words[at + 6], words[at + 7], start = start, len(payload), start + len(payload)
            words[at + 9] |= OP_ADMITTED
        return number, b"".join(payloads), least, greatest, words


def _increment(data: Buffer, op: array[int]) -> int | None:
    """How much a message adds; None when it needs more of a look."""
    block = bytes(data[op[4] : op[4] + op[5]])
    if op[7] or op[5] > HEADERS_SIZE_MAX or not block.startswith(PLAIN_BLOCK) or block.count(RESERVED) != 1:
        return None
    at = block.find(LINE)
    if at < 0 or data[op[2] : op[2] + op[3]].endswith(FAST_SUFFIX):
        return None
    end = block.find(b"\r\n", at + 2)
    text = block[at + len(LINE) : end if end >= 0 else len(block)].lstrip(b" ")
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    return int(text) if 0 < len(digits) <= DIGITS_MAX and digits.isdigit() else None


def total_frames(
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
    prefix: bytes,
    may_have_dots: bool,
    sid: bytes,
    body: bytes,
    seq: int,
    payloads: bytes,
    words: array[int],
) -> tuple[bytes, int]:
    """The acks of the increments first..stop-1, as far as their replies go to one subscription; see `totals.py`."""
    check_door(len(ops), first, stop)
    check_door(len(words), 0, stop - first)
    base, frames = words[6] if words else 0, list[bytes]()
    for number in range(first, stop):
        op, at = ops[number * OP_WORDS : (number + 1) * OP_WORDS], (number - first) * OP_WORDS
        _check_place(len(data), op, number)
        start = words[at + 6] - base
        if start < 0 or start + words[at + 7] > len(payloads) or not words[at + 7]:
            raise IndexError(f"payload {number} is not in the buffer")
        reply = bytes(data[op[2] : op[2] + op[3]])
        if reply:
            if not is_reply_to(reply, prefix, may_have_dots):
                return b"".join(frames), number
            total = payloads[start + 1 : start + words[at + 7]]
            frames.append(msg(reply, sid, b"%s%d,%s" % (body, seq + number - first, total)))
    return b"".join(frames), stop
