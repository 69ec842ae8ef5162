"""Members of batches among the publishes of a run, in Python: the reference of `_members_c.pyx`. See `members.py`."""

from __future__ import annotations

from array import array

from jetlake.jetstream.streams._msg_ids_py import (
    HEADERS_SIZE_MAX,
    PLAIN_BLOCK,
    SEQ_DIGITS_MAX,
    Buffer,
    _reserved_lines,
    check_door,
)
from jetlake.ops import OP_SPECIAL, OP_WORDS

ID_LINE = b"\r\nNats-Batch-Id:"
SEQ_LINE = b"\r\nNats-Batch-Sequence:"
COMMIT_LINE = b"\r\nNats-Batch-Commit:"
LEVEL_LINE = b"\r\nNats-Required-Api-Level:"
FAST_TAIL = b".1.$FI"
_PLACES = ((0, 1), (4, 5), (6, 7))


def atomic_run(
    data: Buffer, ops: array[int], first: int, stop: int, batch_id: bytes, seq: int, size_max: int
) -> tuple[int, int, int, bool]:
    """Where the members of an atomic batch end, and what they take in the buffer; see `members.py`."""
    check_door(len(ops), first, stop)
    least, greatest, are_plain = len(data), 0, True
    for number in range(first, stop):
        op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
        _check_place(len(data), op, number)
        is_plain = _member(data, op, batch_id, seq + number - first) if not op[3] and _fits(op, size_max) else None
        if is_plain is None:
            return number, least, greatest, are_plain
        are_plain = are_plain and is_plain
        least = min(least, *(op[start] for start, _ in _PLACES))
        greatest = max(greatest, *(op[start] + op[size] for start, size in _PLACES))
    return stop, least, greatest, are_plain


def _fits(op: array[int], size_max: int) -> bool:
    return op[5] <= HEADERS_SIZE_MAX and not 0 <= size_max < op[5] + op[7]


def _member(data: Buffer, op: array[int], batch_id: bytes, seq: int) -> bool | None:
    """Whether a member has no other headers of ours; None when it is not the next one of the batch."""
    block, is_plain = bytes(data[op[4] : op[4] + op[5]]), True
    is_seen = {ID_LINE: False, SEQ_LINE: False}
    if not block.startswith(PLAIN_BLOCK):
        return None
    for line in _reserved_lines(block):
        name = line[: line.find(b":") + 1]
        if name in (COMMIT_LINE, LEVEL_LINE) or is_seen.get(name, False):
            return None
        value = line[len(name) :].lstrip(b" ")
        if name == ID_LINE and value != batch_id:
            return None
        if name == SEQ_LINE and not (0 < len(value) <= SEQ_DIGITS_MAX and value.isdigit() and int(value) == seq):
            return None
        is_plain = is_plain and name in is_seen
        is_seen[name] = True
    return is_plain if is_seen[ID_LINE] and is_seen[SEQ_LINE] else None


def fast_run(data: Buffer, ops: array[int], first: int, stop: int, head: bytes, seq: int, size_max: int) -> int:
    """Where the members of a fast-ingest batch end; see `members.py`."""
    check_door(len(ops), first, stop)
    for number in range(first, stop):
        op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
        _check_place(len(data), op, number)
        reply = bytes(data[op[2] : op[2] + op[3]])
        if reply != b"%s%d%s" % (head, seq + number - first, FAST_TAIL) or not _fits(op, size_max):
            return number
        is_plain = not op[5] or bytes(data[op[4] : op[4] + op[5]]).startswith(PLAIN_BLOCK)
        if op[9] & OP_SPECIAL or not is_plain:
            return number
    return stop


def _check_place(data_size: int, op: array[int], number: int) -> None:
    for start, size in ((2, 3), *_PLACES):
        if op[start] > data_size or op[size] > data_size - op[start]:
            raise IndexError(f"operation {number} is not in the buffer")


def moved(ops: array[int], first: int, stop: int, distance: int) -> array[int]:
    """Operations for a buffer in which everything lies so much later; see `members.py`."""
    check_door(len(ops), first, stop)
    words = ops[first * OP_WORDS : stop * OP_WORDS]
    for number in range(len(words) // OP_WORDS):
        at = number * OP_WORDS
        for start, _ in _PLACES:
            words[at + start] = (words[at + start] + distance) & 0xFFFFFFFF
        words[at + 2] = words[at + 3] = words[at + 8] = 0
    return words
