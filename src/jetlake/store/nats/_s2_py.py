"""Decode S2 blocks, in Python: the reference of `_s2_c.pyx`. `s2.py` says what it is for."""

from __future__ import annotations

from functools import cache

from jetlake.store.format import Buffer
from jetlake.store.records.varint import decode_varint

_POLYNOMIAL = 0x82F63B78


class BadS2(ValueError):
    """Bytes are not S2."""


def crc32c(data: Buffer, is_plain: bool = True) -> int:
    """CRC-32C; the compiled twin has two ways to it."""
    table, crc = _table(), 0xFFFF_FFFF
    for byte in bytes(data):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFF_FFFF


@cache
def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


def decoded_size(data: Buffer) -> tuple[int, int]:
    """The size that a block will have, and where its tags begin."""
    try:
        size, start = decode_varint(data, 0, min(len(data), 5))
    except ValueError:
        raise BadS2("a block has no size") from None
    if size > 2**32 - 1:
        raise BadS2("a block has no size")
    return size, start


def decode_block(data: Buffer, out: bytearray | memoryview) -> None:
    """Fill `out`, which has exactly the decoded size, from a block; raises BadS2."""
    size, at = decoded_size(data)
    if size != len(out):
        raise BadS2(f"a block of {size} bytes, not {len(out)}")
    data, end, used, offset = bytes(data), len(data), 0, 0
    while at < end:
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length, at = _literal(data, at, end, tag)
            if length > end - at or length > size - used:
                raise BadS2("a literal reaches too far")
            out[used : used + length] = data[at : at + length]
            at, used = at + length, used + length
            continue
        length, offset, at = _copy(data, at, end, tag, offset)
        if not 0 < offset <= used or length > size - used:
            raise BadS2("a copy reaches too far")
        for _ in range(length):  # it may overlap with what it makes
            out[used] = out[used - offset]
            used += 1
    if used != size:
        raise BadS2("a block ends early")


def _literal(data: bytes, at: int, end: int, tag: int) -> tuple[int, int]:
    length = tag >> 2
    if length < 60:
        return length + 1, at
    more = length - 59
    return _number(data, at, end, more) + 1, at + more


def _copy(data: bytes, at: int, end: int, tag: int, last: int) -> tuple[int, int, int]:
    """Length, offset and where to go on."""
    kind = tag & 3
    if kind != 1:
        more = 2 if kind == 2 else 4
        return (tag >> 2) + 1, _number(data, at, end, more), at + more
    offset, code = (tag & 0xE0) << 3 | _number(data, at, end, 1), tag >> 2 & 7
    at += 1
    if offset:
        return code + 4, offset, at
    if code < 5:
        return code + 4, last, at
    more = code - 4
    return _number(data, at, end, more) + (8, 260, 65_540)[more - 1], last, at + more


def _number(data: bytes, at: int, end: int, size: int) -> int:
    if size > end - at:
        raise BadS2("a block is cut off")
    return int.from_bytes(data[at : at + size], "little")
