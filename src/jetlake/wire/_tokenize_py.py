"""Find the publishes in a buffer, in Python: the reference of `_tokenize_c.pyx`. `tokenize.py` says what it is for."""

from __future__ import annotations

import re
from array import array
from typing import NamedTuple

from jetlake.ops import OP_WORDS
from jetlake.wire.headers import header_flags
from jetlake.wire.protocol import (
    BAD_ARGS,
    BAD_HEADER_SIZE,
    BAD_SIZE,
    BARE,
    FULL,
    HPUB,
    HPUB_ARGS_MIN,
    NEED_MORE,
    NO_CRLF,
    NO_HEADERS,
    OTHER,
    PAYLOAD_VIOLATION,
    PUB_ARGS_MIN,
    SIZE_DIGITS_MAX,
    SPACED,
    TOO_LONG_LINE,
    UNKNOWN_OPERATION,
    VERBS,
)

_CR, _LF, _BLANKS = 13, 10, b" \t"
_VERB = re.compile(b"|".join(b"(%s)" % re.escape(name) for name, _ in VERBS), re.IGNORECASE)
_VERB_SIZE_MAX = max(len(name) for name, _ in VERBS)
_BLANK_RUN = re.compile(rb"[ \t]*")
_ARG = re.compile(rb"[^ \t]+")
_SIZE = re.compile(rb"[0-9]{1,%d}" % SIZE_DIGITS_MAX)
_DATA_SIZE_MAX = 2**32 - 1

Op = list[int]
Buffer = bytes | bytearray


class _Line(NamedTuple):
    verb: int  # its place in VERBS
    arg: int  # where the argument starts
    stop: int  # where the LF is


def tokenize(
    data: Buffer,
    start: int,
    end: int,
    ops: array[int],
    count_max: int,
    max_payload: int,
    max_control_line: int,
    headers: bool = True,
) -> tuple[int, int, int, int]:
    """Write an operation for each publish of data[start:end]; see `tokenize.py`."""
    _check_door(len(data), start, end, len(ops), count_max, max_control_line)
    count, offset = 0, start
    while offset < end:
        if count == count_max:
            return count, offset, FULL, 0
        line = _find_line(data, offset, end, max_control_line)
        if isinstance(line, int):
            return count, offset, line, 0
        if line.verb > HPUB:
            return count, offset, OTHER, line.stop + 1 - offset
        if line.verb == HPUB and not headers:
            return count, offset, NO_HEADERS, 0
        op = _parse_args(data, line, max_payload)
        if isinstance(op, int):
            return count, offset, op, 0
        stop = op[6] + op[7]
        if end > stop and data[stop] != _CR:
            return count, offset, NO_CRLF, 0
        if end - stop < 2:
            return count, offset, NEED_MORE, stop + 2 - offset
        if data[stop + 1] != _LF:
            return count, offset, NO_CRLF, 0
        op[9] = header_flags(data[op[4] : op[4] + op[5]]) if op[5] else 0
        ops[count * OP_WORDS : (count + 1) * OP_WORDS] = array("I", op)
        count, offset = count + 1, stop + 2
    return count, offset, NEED_MORE, 0


def _find_line(data: Buffer, offset: int, end: int, max_control_line: int) -> _Line | int:
    """The line that starts at the offset, or the reason to stop there."""
    found = _VERB.match(data, offset, end)
    if found is None:
        rest = data[offset : min(end, offset + _VERB_SIZE_MAX)].upper()
        return NEED_MORE if any(name.startswith(rest) for name, _ in VERBS) else UNKNOWN_OPERATION
    assert found.lastindex is not None
    verb = found.lastindex - 1
    style = VERBS[verb][1]
    after = arg = found.end()
    if after == end:
        return NEED_MORE
    if style == SPACED and data[after] not in _BLANKS:
        return UNKNOWN_OPERATION
    if style != BARE:
        blanks = _BLANK_RUN.match(data, after, end)
        arg = blanks.end() if blanks else after
    if arg - after > max_control_line:
        return TOO_LONG_LINE
    if arg == end:
        return NEED_MORE
    stop = data.find(b"\n", arg if style == BARE else arg + 1, end)
    arg_end = end if stop < 0 else stop
    if arg_end - arg - (arg_end > arg and data[arg_end - 1] == _CR) > max_control_line:
        return TOO_LONG_LINE
    return NEED_MORE if stop < 0 else _Line(verb, arg, stop)


def _parse_args(data: Buffer, line: _Line, max_payload: int) -> Op | int:
    """The operation of a PUB or HPUB line, flags not yet known, or the reason to stop there."""
    stop = line.stop - (data[line.stop - 1] == _CR)
    if data.find(b"\r", line.arg, stop) >= 0 or data.find(b"\n", line.arg, stop) >= 0:
        return BAD_ARGS
    args = [found.span() for found in _ARG.finditer(data, line.arg, stop)]
    count_min = HPUB_ARGS_MIN if line.verb == HPUB else PUB_ARGS_MIN
    if not count_min <= len(args) <= count_min + 1:
        return BAD_ARGS
    subject, reply = args[0], args[1] if len(args) > count_min else (0, 0)
    headers_size = _parse_size(data, args[-2]) if line.verb == HPUB else 0
    if headers_size < 0:
        return BAD_HEADER_SIZE
    size = _parse_size(data, args[-1])
    if size < 0:
        return BAD_SIZE
    if headers_size > size:
        return BAD_HEADER_SIZE
    if 0 <= max_payload < size:
        return PAYLOAD_VIOLATION
    start = line.stop + 1
    parts = (subject, reply, (start, start + headers_size), (start + headers_size, start + size))
    return [number for begin, end in parts for number in (begin, end - begin)] + [0, 0, 0, 0]


def _parse_size(data: Buffer, arg: tuple[int, int]) -> int:
    text = data[arg[0] : arg[1]]
    return int(text) if _SIZE.fullmatch(text) else -1


def _check_door(data_size: int, start: int, end: int, ops_size: int, count_max: int, max_control_line: int) -> None:
    if data_size > _DATA_SIZE_MAX:
        raise ValueError(f"buffer of {data_size} bytes: offsets are of 32 bits")
    if not 0 <= start <= end <= data_size:
        raise IndexError(f"bytes {start}..{end} of {data_size}")
    if not 0 <= count_max <= ops_size // OP_WORDS:
        raise IndexError(f"{count_max} operations, room for {ops_size // OP_WORDS}")
    if max_control_line < 0:
        raise ValueError(f"max_control_line is {max_control_line}")
