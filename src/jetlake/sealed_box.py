"""Boxes of the auth callout: encrypted for one X25519 key, authenticated by another.

    xkv1 | nonce, 24 bytes | Poly1305 tag, 16 bytes | text, encrypted with XSalsa20

This is NaCl's `crypto_box` behind a version, as in nkeys. X25519 and Poly1305 are of package `cryptography`; Salsa20,
which it does not have, is written out here: 64 bytes take about 0.1 ms. The tag is checked before anything is
decrypted, so a stranger's box costs one block, whatever its size.
"""

from __future__ import annotations

import os
import struct

from jetlake import nkeys
from jetlake.errors import BadRequest

VERSION = b"xkv1"
SIZE_MAX = 64 * 1024
_NONCE_SIZE, _TAG_SIZE, _BLOCK_SIZE = 24, 16, 64
_CONSTANTS = struct.unpack("<4I", b"expand 32-byte k")
_QUARTERS = (
    *((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11)),  # columns
    *((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)),  # rows
)
_MASK = 0xFFFFFFFF


class BadBox(BadRequest):
    """Bytes that are no box for this key, or from another one."""


class BoxKey:
    """A key that boxes are sealed with, and opened."""

    def __init__(self, seed: bytes | None = None) -> None:
        """With these 32 bytes, or a new key."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = X25519PrivateKey.from_private_bytes(seed or os.urandom(32))
        self.public = nkeys.encode_public(nkeys.CURVE, self._key.public_key().public_bytes_raw())

    def seal(self, text: bytes, receiver: str) -> bytes:
        """A box for who has this public key."""
        nonce = os.urandom(_NONCE_SIZE)
        tag_key, stream = self._stream(receiver, nonce, len(text))
        sealed = _xor(text, stream)
        return VERSION + nonce + _tag(tag_key, sealed) + sealed

    def open(self, box: bytes, sender: str) -> bytes:
        """The text of a box that this sender sealed. Raises BadBox."""
        from cryptography.hazmat.primitives.constant_time import bytes_eq

        head = len(VERSION) + _NONCE_SIZE
        if len(box) < head + _TAG_SIZE or not box.startswith(VERSION):
            raise BadBox("is not a box")
        if len(box) > SIZE_MAX:
            raise BadBox(f"a box of {len(box)} bytes is too large: {SIZE_MAX} are allowed")
        nonce, tag, sealed = box[len(VERSION) : head], box[head : head + _TAG_SIZE], box[head + _TAG_SIZE :]
        tag_key, _ = self._stream(sender, nonce, 0)
        if not bytes_eq(_tag(tag_key, sealed), tag):
            raise BadBox("is from somebody else, or was changed")
        return _xor(sealed, self._stream(sender, nonce, len(sealed))[1])

    def _stream(self, peer: str, nonce: bytes, size: int) -> tuple[bytes, bytes]:
        """The key of the tag, and as many bytes of the key stream as the text has."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(nkeys.decode_public(peer, nkeys.CURVE)))
        except ValueError as error:  # BadNkey is one; a weak key, too
            raise BadBox(f"the key of the peer: {error}") from None
        key = _hsalsa20(_hsalsa20(shared, bytes(16)), nonce[:16])
        blocks = (size + 32 + _BLOCK_SIZE - 1) // _BLOCK_SIZE
        stream = b"".join(_salsa20_block(key, nonce[16:], number) for number in range(blocks))
        return stream[:32], stream[32 : 32 + size]


def _rounds(state: list[int]) -> list[int]:
    """Twenty rounds over sixteen words."""
    words = state.copy()
    for _ in range(10):
        for a, b, c, d in _QUARTERS:
            found = words[a] + words[d] & _MASK
            words[b] ^= (found << 7 | found >> 25) & _MASK
            found = words[b] + words[a] & _MASK
            words[c] ^= (found << 9 | found >> 23) & _MASK
            found = words[c] + words[b] & _MASK
            words[d] ^= (found << 13 | found >> 19) & _MASK
            found = words[d] + words[c] & _MASK
            words[a] ^= (found << 18 | found >> 14) & _MASK
    return words


def _state(key: bytes, middle: bytes) -> list[int]:
    k, m, c = struct.unpack("<8I", key), struct.unpack("<4I", middle), _CONSTANTS
    return [c[0], *k[:4], c[1], *m, c[2], *k[4:], c[3]]


def _hsalsa20(key: bytes, nonce: bytes) -> bytes:
    words = _rounds(_state(key, nonce))
    return struct.pack("<8I", *(words[at] for at in (0, 5, 10, 15, 6, 7, 8, 9)))


def _salsa20_block(key: bytes, nonce: bytes, number: int) -> bytes:
    state = _state(key, nonce + number.to_bytes(8, "little"))
    words = (a + b & _MASK for a, b in zip(state, _rounds(state), strict=True))
    return struct.pack("<16I", *words)


def _xor(data: bytes, stream: bytes) -> bytes:
    size = len(data)
    return (int.from_bytes(data, "little") ^ int.from_bytes(stream, "little")).to_bytes(size, "little")


def _tag(key: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    return Poly1305.generate_tag(key, data)
