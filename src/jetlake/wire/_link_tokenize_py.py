"""Find the messages of a link, in Python: the reference of `_link_tokenize_c.pyx`. Import `link_tokenize`."""

from __future__ import annotations

import re
from array import array

from jetlake.ops import OP_WORDS, check_ops
from jetlake.wire.headers import header_flags
from jetlake.wire.protocol import (
    BAD_ARGS,
    BAD_HEADER_SIZE,
    BAD_SIZE,
    FULL,
    NEED_MORE,
    NO_CRLF,
    OTHER,
    PAYLOAD_VIOLATION,
    SIZE_DIGITS_MAX,
    TOO_LONG_LINE,
    UNKNOWN_OPERATION,
)

Buffer = bytes | bytearray
_SHARED_VERBS = (b"PING", b"PONG", b"INFO", b"CONNECT", b"-ERR", b"+OK")
LEAF_VERBS = (b"LMSG", b"HMSG", b"LS+", b"LS-", *_SHARED_VERBS)
ROUTE_VERBS = (b"RMSG", b"HMSG", b"RS+", b"RS-", *_SHARED_VERBS, b"RAFT", b"COPY")
MESSAGES = 2  # of the verbs: they come first
ACK_PREFIX = b"$JS.ACK."
ACK_DOTS = 8  # before the place where the stored subject may follow

_ARG = re.compile(rb"[^ \t]+")
_Place = tuple[int, int]  # start and size
_Shared = tuple[int, int, bool, int, int]  # the queues, is_mapped, the account: what all of a batch have in common
_Found = tuple[list[int], _Shared]  # the places of an operation
_NOTHING: _Shared = (0, 0, False, 0, 0)


def tokenize_link(
    data: Buffer,
    start: int,
    end: int,
    ops: array[int],
    count_max: int,
    max_payload: int,
    line_size_max: int,
    is_route: bool = False,
) -> tuple[int, int, int, int, int, int, bool, int, int]:
    """Write an operation for each message of data[start:end]; see `link_tokenize.py`."""
    check_link(len(data), start, end, len(ops), count_max)
    count, offset, shared, verbs = 0, start, _NOTHING, ROUTE_VERBS if is_route else LEAF_VERBS
    while offset < end:
        verb = _find_verb(bytes(data[offset : min(end, offset + 7)]), verbs)
        if verb < 0:
            return count, offset, UNKNOWN_OPERATION, 0, *shared
        line_end = data.find(b"\n", offset, min(end, offset + line_size_max + 1))
        if line_end < 0:
            reason = TOO_LONG_LINE if end - offset > line_size_max else NEED_MORE
            return count, offset, reason, 0, *shared
        if verb >= MESSAGES:
            return count, offset, OTHER, line_end + 1 - offset, *shared
        if count == count_max:
            return count, offset, FULL, 0, *shared
        found = _parse(data, offset + 4, line_end, verb == 1, max_payload, is_route)
        if isinstance(found, int):
            return count, offset, found, 0, *shared
        places, own = found
        stop = places[6] + places[7]
        if end > stop and data[stop] != 13:
            return count, offset, NO_CRLF, 0, *shared
        if stop > end - 2:
            return count, offset, NEED_MORE, stop + 2 - offset, *shared
        if data[stop + 1] != 10:
            return count, offset, NO_CRLF, 0, *shared
        if count == 0:
            shared = own
        elif own[2] != shared[2] or not (_same(data, own[:2], shared[:2]) and _same(data, own[3:], shared[3:])):
            return count, offset, FULL, 0, *shared
        flags = header_flags(bytes(data[places[4] : places[6]])) if places[5] else 0
        ops[count * OP_WORDS : (count + 1) * OP_WORDS] = array("I", [*places, 0, flags, 0, 0])
        count += 1
        offset = stop + 2
    return count, offset, NEED_MORE, 0, *shared


def check_link(size: int, start: int, end: int, words: int, count_max: int) -> None:
    """Raise unless what is asked for lies within the buffer and the array."""
    if not (0 <= start <= end <= size <= 2**32 - 1 and 0 < count_max <= words // OP_WORDS):
        raise IndexError(f"bytes {start}..{end} of {size}, {count_max} operations in {words} words")


def _find_verb(head: bytes, verbs: tuple[bytes, ...]) -> int:
    """The first verb that starts like the data; -1 if none does."""
    head = head.upper()
    for place, verb in enumerate(verbs):
        size = min(len(head), len(verb))
        if head[:size] == verb[:size]:
            return place
    return -1


def _parse(data: Buffer, at: int, line_end: int, has_headers: bool, max_payload: int, is_route: bool) -> _Found | int:
    """The places of a message's parts, or why to stop there."""
    line = bytes(data[at:line_end]).removesuffix(b"\r")
    args = [(at + found.start(), found.end() - found.start()) for found in _ARG.finditer(line)]
    account = args.pop(0) if is_route and args else (0, 0)
    if line[:1] not in (b" ", b"\t") or b"\r" in line or len(args) < 2 + has_headers:
        return BAD_ARGS
    sizes = [_number(data, place) for place in args[len(args) - 1 - has_headers :]]
    args = args[: len(args) - 1 - has_headers]
    if has_headers and sizes[0] < 0:
        return BAD_HEADER_SIZE
    if sizes[-1] < 0:
        return BAD_SIZE
    headers_size = sizes[0] if has_headers else 0
    if headers_size > sizes[-1]:
        return BAD_HEADER_SIZE
    if 0 <= max_payload < sizes[-1]:
        return PAYLOAD_VIOLATION
    subject, reply, queues = args[0], (0, 0), args[2:]
    mark = bytes(data[args[1][0] : args[1][0] + args[1][1]]) if len(args) > 1 else b""
    if len(args) == 2:
        reply = args[1]
    elif mark == b"+":
        reply, queues = args[2], args[3:]
    elif len(args) > 2 and mark != b"|":
        return BAD_ARGS
    queues_start = queues[0][0] if queues else 0
    queues_size = queues[-1][0] + queues[-1][1] - queues_start if queues else 0
    headers = line_end + 1
    places = [*subject, *reply, headers, headers_size, headers + headers_size, sizes[-1] - headers_size]
    is_mapped = find_stored_subject(bytes(data[reply[0] : reply[0] + reply[1]])) >= 0
    return places, (queues_start, queues_size, is_mapped, *account)


def _number(data: Buffer, place: _Place) -> int:
    text = bytes(data[place[0] : place[0] + place[1]])
    return int(text) if text.isdigit() and len(text) <= SIZE_DIGITS_MAX else -1


def _same(data: Buffer, a: _Place, b: _Place) -> bool:
    return bytes(data[a[0] : a[0] + a[1]]) == bytes(data[b[0] : b[0] + b[1]])


def find_stored_subject(reply: bytes) -> int:
    """Where the @ is that a stored subject follows in a reply; -1 if there is none."""
    if not reply.startswith(ACK_PREFIX):
        return -1
    parts = reply.split(b".", ACK_DOTS)
    if len(parts) <= ACK_DOTS:
        return -1
    at = parts[ACK_DOTS].find(b"@")
    return len(reply) - len(parts[ACK_DOTS]) + at if 0 <= at < len(parts[ACK_DOTS]) - 1 else -1


def restore_subjects(data: Buffer, ops: array[int], count: int) -> array[int]:
    """The first operations as a subscriber is to see them; see `link_tokenize.py`."""
    check_ops(len(data), len(ops), 0, count)
    shown = ops[: count * OP_WORDS]
    for at in range(0, count * OP_WORDS, OP_WORDS):
        start, size = ops[at + 2 : at + 4]
        if start + size > len(data):
            raise IndexError(f"operation {at // OP_WORDS} is not in the buffer")
        mark = find_stored_subject(bytes(data[start : start + size]))
        if mark >= 0:
            shown[at], shown[at + 1] = start + mark + 1, size - mark - 1
            shown[at + 3] = mark
    return shown
