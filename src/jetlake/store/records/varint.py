"""Unsigned LEB128 numbers: seven bits a byte, low bits first, the high bit says that more follow.

A u64 takes 1 to 10 bytes. The encoder writes the shortest form. The decoder takes padded forms of up to 10 bytes too
(as other LEB128 readers do); a format that allows one spelling per value compares what it read with `varint_size`.
"""

from __future__ import annotations

VARINT_SIZE_MAX = 10
U64_MAX = 2**64 - 1

_ONE_BYTE = tuple(bytes((n,)) for n in range(0x80))


def encode_varint(n: int) -> bytes:
    """Encode a u64 in its shortest form."""
    if 0 <= n < 0x80:
        return _ONE_BYTE[n]
    if not 0 <= n <= U64_MAX:
        raise ValueError(f"varint {n} is outside 0..2**64-1")
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def decode_varint(data: bytes | bytearray | memoryview, offset: int, end: int | None = None) -> tuple[int, int]:
    """Decode the number at `offset`, reading nothing at or past `end`: its value and the offset after it."""
    end = len(data) if end is None else end
    if not 0 <= offset <= end <= len(data):
        raise ValueError(f"varint at offset {offset} with end {end} lies outside {len(data)} bytes")
    if offset < end and data[offset] < 0x80:
        return data[offset], offset + 1
    value = shift = 0
    for position in range(offset, min(end, offset + VARINT_SIZE_MAX)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return _checked(value, offset), position + 1
        shift += 7
    if end - offset >= VARINT_SIZE_MAX:
        raise ValueError(f"varint at offset {offset} is longer than {VARINT_SIZE_MAX} bytes")
    raise ValueError(f"varint at offset {offset} is truncated: {end - offset} bytes remain")


def varint_size(n: int) -> int:
    """How many bytes the shortest form of a u64 takes."""
    return max(1, (n.bit_length() + 6) // 7)


def _checked(value: int, offset: int) -> int:
    if value > U64_MAX:
        raise ValueError(f"varint at offset {offset} exceeds 2**64-1")
    return value
