"""S2, the compression of nats-server: Snappy's format with repeated offsets, in frames. The face of the kernel.

    Stream = chunks
         0     1  type        0xff stream identifier, 0x00 compressed, 0x01 stored, 0x80..0xfe to be skipped
         1     3  size        of what follows
         4     4  CRC-32C     of the plain bytes, rotated and shifted; only with types 0x00 and 0x01
         8     n  an S2 block, or plain bytes

A writer may leave out repeats, so a Snappy block is a valid S2 block: that is what `encode` writes.
"""

from __future__ import annotations

from collections.abc import Iterator

import cramjam

from jetlake.store.format import Buffer
from jetlake.store.kernels import COMPILED as STORE_COMPILED
from jetlake.store.nats._s2_py import BadS2, decoded_size

try:
    from jetlake.store.nats._s2_c import crc32c, decode_block

    COMPILED = STORE_COMPILED
except ImportError:  # not built here: slower, never different
    COMPILED = False

if not COMPILED:
    from jetlake.store.nats._s2_py import crc32c, decode_block

__all__ = ["COMPILED", "IDENTIFIER", "BadS2", "Decoder", "crc32c", "decode", "decode_block", "encode_chunk"]

IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
_IDENTIFIERS = (b"S2sTwO", b"sNaPpY")
_CHUNK_HEAD, _CRC_SIZE = 4, 4
_COMPRESSED, _STORED, _SKIPPABLE, _IDENTIFIER = 0x00, 0x01, 0x80, 0xFF
PLAIN_SIZE_MAX = 4 * 1024 * 1024  # of a chunk: what nats-server's decoder takes
_CHUNK_SIZE_MAX = PLAIN_SIZE_MAX + PLAIN_SIZE_MAX // 6 + 64


class Decoder:
    """Decodes a stream that comes in pieces, in bounded memory."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_begun = False

    def feed(self, data: Buffer) -> Iterator[bytes | bytearray]:
        """The plain bytes of each chunk that is complete now; raises BadS2."""
        rest, at = self._rest, 0
        rest += data
        try:
            while (end := self._chunk_end(at)) is not None:
                plain = self._chunk(rest[at], bytes(rest[at + _CHUNK_HEAD : end]))
                at = end
                if plain:
                    yield plain
        finally:
            del rest[:at]

    def finish(self) -> None:
        """Nothing follows; BadS2 when that cuts a chunk off."""
        if self._rest:
            raise BadS2("the last chunk is cut off")

    def _chunk_end(self, at: int) -> int | None:
        """Where the chunk at a place ends; None when it is not complete."""
        rest = self._rest
        if len(rest) - at < _CHUNK_HEAD:
            return None
        size = int.from_bytes(rest[at + 1 : at + _CHUNK_HEAD], "little")
        if rest[at] in (_COMPRESSED, _STORED) and size > _CHUNK_SIZE_MAX:
            raise BadS2(f"a chunk of {size} bytes")
        end = at + _CHUNK_HEAD + size
        return end if end <= len(rest) else None

    def _chunk(self, kind: int, body: bytes) -> bytes | bytearray | None:
        if kind == _IDENTIFIER:
            if body not in _IDENTIFIERS:
                raise BadS2("another stream identifier")
            self._is_begun = True
            return None
        if not self._is_begun:
            raise BadS2("no stream identifier")
        if kind in (_COMPRESSED, _STORED):
            return _plain(kind, body)
        if kind < _SKIPPABLE:
            raise BadS2(f"a chunk of type {kind}")
        return None


def _plain(kind: int, body: bytes) -> bytes | bytearray:
    if len(body) < _CRC_SIZE:
        raise BadS2("a chunk without a checksum")
    expected, data = int.from_bytes(body[:_CRC_SIZE], "little"), memoryview(body)[_CRC_SIZE:]
    plain: bytes | bytearray
    if kind == _STORED:
        plain = bytes(data)
    else:
        size, _ = decoded_size(data)
        if size > PLAIN_SIZE_MAX:
            raise BadS2(f"a chunk of {size} plain bytes")
        plain = bytearray(size)
        decode_block(data, plain)
    if _masked(plain) != expected:
        raise BadCrc("a chunk's checksum is wrong")
    return plain


class BadCrc(BadS2):
    """A chunk is not what its checksum says."""


def decode(data: Buffer) -> bytearray:
    """The plain bytes of a whole stream; raises BadS2."""
    decoder, out = Decoder(), bytearray()
    for plain in decoder.feed(data):
        out += plain
    decoder.finish()
    return out


def encode_chunk(plain: Buffer) -> list[bytes]:
    """The parts of a chunk; what compression does not make smaller is stored."""
    packed = bytes(cramjam.snappy.compress_raw(plain))
    kind, body = (_COMPRESSED, packed) if len(packed) < len(plain) else (_STORED, bytes(plain))
    size = len(body) + _CRC_SIZE
    return [bytes([kind]) + size.to_bytes(3, "little") + _masked(plain).to_bytes(_CRC_SIZE, "little"), body]


def _masked(plain: Buffer) -> int:
    crc = crc32c(plain)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFF_FFFF
