"""The header block of a message: `NATS/1.0[ status[ text]]` CRLF, `Name: value` CRLF lines, and a last CRLF.

A block is kept and passed on as the bytes that came: order, case and duplicates included. Nobody checked it, so every
function here takes any bytes. Names are compared case by case, and only at the start of a line, as nats-server does.
An empty block is no block: a message without headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jetlake.ops import OP_MSG_ID, OP_SPECIAL

VERSION_LINE = b"NATS/1.0"
_CRLF = b"\r\n"
_SPECIAL, _MSG_ID = b"\r\nNats-", b"\r\nNats-Msg-Id:"

Pair = tuple[bytes, bytes]


def header_value(block: bytes, name: bytes) -> bytes | None:
    """The first value under a name, in exactly this spelling; None if there is none."""
    mark = _CRLF + name + b":"
    at = block.find(mark)
    if at < 0:
        return None
    end = block.find(_CRLF, at + len(mark))
    return block[at + len(mark) : end if end >= 0 else len(block)].lstrip(b" ")


def iter_headers(block: bytes) -> Iterator[Pair]:
    """Every name and value in order; lines that are not `name: value` are skipped."""
    for line in block.split(_CRLF)[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            yield name, value.lstrip(b" ")


def append_headers(block: bytes, pairs: Iterable[Pair]) -> bytes:
    """The block with more headers behind its own; a new block if it is empty."""
    lines = b"".join(_line(name, value) for name, value in pairs)
    if len(block) > len(_CRLF):
        return block.removesuffix(_CRLF) + lines + _CRLF
    return VERSION_LINE + _CRLF + lines + _CRLF if lines else block


def without_header(block: bytes, name: bytes) -> bytes:
    """The block without the first line under a name; nothing when that was all."""
    mark = _CRLF + name + b":"
    at = block.find(mark)
    if at < 0:
        return block
    end = block.find(_CRLF, at + len(mark))
    rest = block[:at] + (block[end:] if end >= 0 else b"")
    return b"" if rest == VERSION_LINE + 2 * _CRLF else rest


def set_header(block: bytes, name: bytes, value: bytes) -> bytes:
    """The block with one line under a name, behind all others."""
    return append_headers(without_header(block, name), [(name, value)])


def header_flags(block: bytes | bytearray) -> int:
    """What the names of headers say of an operation (see `jetlake.ops`)."""
    if _SPECIAL not in block:
        return 0
    return OP_SPECIAL | OP_MSG_ID if _MSG_ID in block else OP_SPECIAL


def status_block(code: int, text: str = "", pairs: Iterable[Pair] = ()) -> bytes:
    """A block with a status in its first line: `NATS/1.0 404 No Messages`."""
    assert 100 <= code <= 999 and not {"\r", "\n"} & set(text)
    lines = b"".join(_line(name, value) for name, value in pairs)
    return b"%s %d%s\r\n%s\r\n" % (VERSION_LINE, code, f" {text}".encode() if text else b"", lines)


def no_responders_block(subject: bytes) -> bytes:
    """What a request that nobody listens to is answered with."""
    return status_block(503, pairs=[(b"Nats-Subject", subject)])


def strip_status(block: bytes) -> bytes:
    """The block without the status in its first line, its headers as they are."""
    first, crlf, rest = block.partition(_CRLF)
    return VERSION_LINE + crlf + rest if first.startswith(VERSION_LINE + b" ") else block


def _line(name: bytes, value: bytes) -> bytes:
    assert b"\n" not in name and b"\n" not in value, "a header of ours fits on its line"
    return b"%s: %s\r\n" % (name, value)
