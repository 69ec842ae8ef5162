"""How nats-server encrypts its store: one key in its configuration, a wrapped key of its own for each asset.

A key file holds a nonce and a sealed seed. What it is sealed with is HMAC-SHA-256 of the account and a context, under
the configured key. A small file (meta.inf, index.db, o.dat) is nonce · ciphertext · tag under the seed of its asset; a
block is one stream of its cipher under its seed and the nonce of its own key file, without authentication.

Which key and which cipher a file has is found by trial: a server may have been half way from one to another.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from jetlake.errors import WrongKey
from jetlake.store.format import Buffer

_SEED_SIZE, _TAG_SIZE = 32, 16
_CHACHA_NONCE, _AES_NONCE = 24, 16
_CONSTANTS = b"expand 32-byte k"
_WORDS = struct.Struct("<16I")
_MASK = 2**32 - 1
_QUARTERS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


class AssetKey(NamedTuple):
    """What opens the files of one stream, block or consumer."""

    seed: bytes
    nonce: bytes  # of the key file

    @property
    def is_aes(self) -> bool:
        return len(self.nonce) == _AES_NONCE

    def open(self, data: bytes) -> bytes:
        """A small file's contents; raises InvalidTag."""
        size = len(self.nonce)
        return _open(self.seed, data[:size], data[size:])

    def decrypt(self, data: Buffer) -> bytes:
        """A block's bytes, encrypted or not: it is the same both ways."""
        if self.is_aes:
            cipher = Cipher(algorithms.AES(self.seed), modes.CTR(self.nonce))
            return cipher.decryptor().update(data)
        key, nonce = _narrow(self.seed, self.nonce)
        chacha = algorithms.ChaCha20(key, bytes(4) + nonce)
        return Cipher(chacha, mode=None).decryptor().update(data)


def unwrap(data: bytes, secrets: Sequence[bytes], account: str, context: str, path: str) -> AssetKey:
    """What a key file holds; WrongKey when none of the configured keys opens it."""
    for secret in secrets:
        wrapping = hmac.new(secret, f"{account}{context}".encode("utf-8", "surrogateescape"), hashlib.sha256).digest()
        for nonce_size in (_CHACHA_NONCE, _AES_NONCE):
            if len(data) != nonce_size + _SEED_SIZE + _TAG_SIZE:
                continue
            try:
                return AssetKey(_open(wrapping, data[:nonce_size], data[nonce_size:]), data[:nonce_size])
            except InvalidTag:
                continue
    raise WrongKey(path, "none of the keys given opens it")


def _open(key: bytes, nonce: bytes, sealed: bytes) -> bytes:
    if len(sealed) < _TAG_SIZE:
        raise InvalidTag
    if len(nonce) == _AES_NONCE:
        return AESGCM(key).decrypt(nonce, sealed, None)
    key, nonce = _narrow(key, nonce)
    return ChaCha20Poly1305(key).decrypt(nonce, sealed, None)


def _narrow(key: bytes, nonce: bytes) -> tuple[bytes, bytes]:
    """XChaCha20 as ChaCha20: the key and nonce of 12 bytes that a nonce of 24 bytes leads to."""
    return hchacha20(key, nonce[:16]), bytes(4) + nonce[16:]


def hchacha20(key: bytes, nonce: bytes) -> bytes:
    """ChaCha20's rounds without the last addition."""
    words = list(_WORDS.unpack(_CONSTANTS + key + nonce))
    for _ in range(10):
        for places in (*_QUARTERS, *_DIAGONALS):
            _quarter_round(words, *places)
    return _WORDS.pack(*words)[:16] + _WORDS.pack(*words)[48:]


def _quarter_round(words: list[int], a: int, b: int, c: int, d: int) -> None:
    for target, by, rotated, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        words[target] = (words[target] + words[by]) & _MASK
        mixed = words[rotated] ^ words[target]
        words[rotated] = (mixed << turn | mixed >> (32 - turn)) & _MASK
