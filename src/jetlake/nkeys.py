"""nkeys: Ed25519 and X25519 keys as text.

A public key is base32 (no padding) of a prefix byte, the 32 bytes of the key, and a CRC-16 (XMODEM, low byte first) of
both: 56 characters, of which the first tells the kind. A seed has two prefix bytes, which hold the 5 bits of `S` and
the 8 bits of the kind: 58 characters that begin with `SO`, `SA`, `SU`, ...

| kind | first letter | signs |
| --- | --- | --- |
| operator | O | accounts |
| account | A | users, activations |
| user | U | nonces |
| server | N | requests of the auth callout |
| curve | X | nothing: it encrypts (X25519, see `jetlake.sealed_box`) |
"""

from __future__ import annotations

import base64
import binascii
import os
from functools import lru_cache
from typing import TYPE_CHECKING

from jetlake.errors import BadRequest

if TYPE_CHECKING:  # few servers have users with nkeys, and all wait for what is imported
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

OPERATOR, ACCOUNT, USER, SERVER, CURVE = 14 << 3, 0, 20 << 3, 13 << 3, 23 << 3
_KINDS = {OPERATOR: "an operator", ACCOUNT: "an account", USER: "a user", SERVER: "a server", CURVE: "a curve key"}
_SEED = 18 << 3
_KEY_SIZE = 32
_KEYS_CACHED_MAX = 4096


class BadNkey(BadRequest):
    """Text that is not a key of the kind that is expected."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"nkey {text[:8]}...: {problem}")
        self.problem = problem


class KeyPair:
    """A key that can sign."""

    def __init__(self, kind: int, seed: bytes | None = None) -> None:
        """With the seed's 32 bytes, or a new key."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._raw = os.urandom(_KEY_SIZE) if seed is None else seed
        self._kind = kind
        self._key: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(self._raw)
        self.public = encode_public(kind, self._key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        return encode_seed(self._kind, self._raw)

    def sign(self, data: bytes) -> bytes:
        """The signature over some bytes."""
        return self._key.sign(data)


def encode_public(kind: int, key: bytes) -> str:
    """The text of a public key."""
    assert len(key) == _KEY_SIZE
    return _encode(bytes([kind]) + key)


def encode_seed(kind: int, seed: bytes) -> str:
    """The text of a seed."""
    assert len(seed) == _KEY_SIZE
    return _encode(bytes([_SEED | kind >> 5, (kind & 31) << 3]) + seed)


def decode_public(text: str, *kinds: int) -> bytes:
    """The 32 bytes of a public key of one of these kinds. Raises BadNkey."""
    raw = _decode(text, 1 + _KEY_SIZE)
    if raw[0] not in kinds:
        raise BadNkey(text, f"is not the public key of {' or '.join(_KINDS[kind] for kind in kinds)}")
    return raw[1:]


def decode_seed(text: str) -> tuple[int, bytes]:
    """The kind and the 32 bytes of a seed. Raises BadNkey."""
    raw = _decode(text, 2 + _KEY_SIZE)
    kind = (raw[0] & 7) << 5 | raw[1] >> 3
    if raw[0] & ~7 != _SEED or kind not in _KINDS:
        raise BadNkey(text, "is not a seed")
    return kind, raw[2:]


def is_public(text: object, *kinds: int) -> bool:
    """True when this is a public key of one of these kinds."""
    try:
        return isinstance(text, str) and bool(decode_public(text, *kinds))
    except BadNkey:
        return False


@lru_cache(maxsize=_KEYS_CACHED_MAX)
def public_key(text: str, *kinds: int) -> Ed25519PublicKey:
    """A key that can check signatures. Raises BadNkey."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(decode_public(text, *kinds))


def is_signed(key: Ed25519PublicKey, data: bytes, signature: str) -> bool:
    """True when this base64 text (either alphabet, with or without padding) is the key's signature over the data."""
    from cryptography.exceptions import InvalidSignature

    try:
        text = signature.rstrip("=").replace("-", "+").replace("_", "/")
        key.verify(base64.b64decode(text + "=" * (-len(text) % 4), validate=True), data)
    except (InvalidSignature, ValueError):  # binascii.Error is a ValueError, as is text beyond ASCII
        return False
    return True


def _encode(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _decode(text: str, size: int) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raise BadNkey(text, "is not base32") from None
    if len(raw) != size + 2:
        raise BadNkey(text, f"holds {len(raw)} bytes, not {size + 2}")
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise BadNkey(text, "has a wrong checksum")
    return raw[:-2]
