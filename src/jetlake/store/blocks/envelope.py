"""Compression and authenticated encryption of the frames of a block.

A block names one compression and one cipher in its header; its `Envelope` seals each frame and opens it again.

    compressed  = plain                       without compression
                = method u8 · body            with it: method 0 raw, 1 snappy (raw format), 2 zstd
    stored      = compressed                  without a cipher
                = nonce 12 · ciphertext · tag 16    with one; `aad` is authenticated but not stored

A frame that compression does not shrink is kept raw, so the method of a frame is the block's or 0.

Keys: a server has one `KeySource`. It gives each store a master key (a raw key as it is, a passphrase through scrypt
with the store's salt); HKDF-SHA256 of that with a block's random salt is the block's key. From version 2 of a block on,
its header goes into that too, so that a header which somebody changed leads to another key. A block holds far fewer
frames than the 2**32 at which random nonces under one key begin to be a risk, and no two blocks share a key.

What is always true:
- `open` returns exactly the bytes that were sealed, or raises EnvelopeError; with a cipher that holds against anyone
  who lacks the key, without one the checksums of the block must catch a flipped bit.
- `open` never makes more than `plain_size` bytes, whatever a frame claims.
- No error text, repr or file made here holds key material.
"""

from __future__ import annotations

import binascii
import os
import re
import threading
from enum import IntEnum
from typing import TYPE_CHECKING

from jetlake.errors import BadRequest
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.store.format import Buffer

if TYPE_CHECKING:  # functions import what they need: few stores are encrypted or compressed, and a start would wait
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

SALT_SIZE = 16
KEY_SIZE = 32
KEY_CHECK_SIZE = 8
NONCE_SIZE = 12
TAG_SIZE = 16

_KEY_FILE_SIZE_MAX = 1024
_HEX_KEY = rb"[0-9A-Fa-f]{64}"
_BASE64_KEY = rb"[0-9A-Za-z+/]{43}="


class Cipher(IntEnum):
    """How a block is encrypted."""

    NONE = 0
    CHACHA20_POLY1305 = 1
    AES_256_GCM = 2


class Compression(IntEnum):
    """How a block is compressed; also the method byte of a frame, where NONE means raw."""

    NONE = 0
    SNAPPY = 1
    ZSTD = 2


class EnvelopeError(ValueError):
    """A frame cannot be opened: it is damaged, or was sealed with another key or for another place."""


class Envelope:
    """How one block's frames are sealed."""

    def __init__(self, compression: Compression, cipher: Cipher, key: bytes | None, *, is_bound: bool = False) -> None:
        """`is_bound`: what stands around frames, and a sidecar's head, is authenticated with them (version 2)."""
        self.compression = Compression(compression)
        self.is_bound = is_bound
        self.cipher = Cipher(cipher)
        self._aead = _aead(self.cipher, key)
        # Whether frames are stored as they are.
        self.is_plain = self.compression is Compression.NONE and self.cipher is Cipher.NONE

    def seal(self, plain: Buffer, aad: bytes) -> bytes:
        """Compress, then encrypt."""
        data = plain if self.compression is Compression.NONE else _compress(self.compression, plain)
        if self._aead is None:
            return bytes(data)
        nonce = os.urandom(NONCE_SIZE)
        return nonce + self._aead.encrypt(nonce, data, aad)

    def open(self, stored: Buffer, aad: bytes, plain_size: int) -> bytes:
        """Give back the `plain_size` bytes that were sealed with the same `aad`."""
        data: Buffer = stored if self._aead is None else self._decrypt(self._aead, stored, aad)
        if self.compression is not Compression.NONE:
            return _decompress(self.compression, data, plain_size)
        return _of_size(data, plain_size)

    @staticmethod
    def _decrypt(aead: ChaCha20Poly1305 | AESGCM, stored: Buffer, aad: bytes) -> bytes:
        if len(stored) < NONCE_SIZE + TAG_SIZE:
            raise EnvelopeError(f"frame is truncated: {len(stored)} bytes, at least {NONCE_SIZE + TAG_SIZE} needed")
        from cryptography.exceptions import InvalidTag

        view = memoryview(stored)
        try:
            return aead.decrypt(view[:NONCE_SIZE], view[NONCE_SIZE:], aad)
        except InvalidTag:
            pass
        raise EnvelopeError("frame does not authenticate: it is damaged, or its key or its place is another one")


def _aead(cipher: Cipher, key: bytes | None) -> ChaCha20Poly1305 | AESGCM | None:
    """The cipher at work; without one a key is not used."""
    if cipher is Cipher.NONE:
        return None
    if key is None:
        raise BadRequest(f"cipher {cipher.name} needs a key")
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

    _require_size("key", key, KEY_SIZE)
    return AESGCM(key) if cipher is Cipher.AES_256_GCM else ChaCha20Poly1305(key)


def _compress(method: Compression, plain: Buffer) -> bytes:
    """The method byte and the shorter of the compressed and the raw bytes."""
    import cramjam

    body = cramjam.snappy.compress_raw(plain) if method is Compression.SNAPPY else cramjam.zstd.compress(plain)
    if len(body) < len(plain):
        return b"".join((bytes((method,)), memoryview(body)))
    return b"".join((bytes((Compression.NONE,)), plain))


def _decompress(compression: Compression, data: Buffer, plain_size: int) -> bytes:
    """Undo `_compress`."""
    if not len(data):
        raise EnvelopeError("frame is truncated: not even its compression method is there")
    method, body = data[0], memoryview(data)[1:]
    if method == Compression.NONE:
        return _of_size(body, plain_size)
    if method != compression:
        raise EnvelopeError(f"frame says compression method {method}, its block {compression.value}")
    return _inflate(compression, body, plain_size)


def _inflate(method: Compression, body: memoryview, plain_size: int) -> bytes:
    """Decompress into a buffer of `plain_size`, which bounds what a hostile frame can cost."""
    import cramjam

    inflate_into = cramjam.snappy.decompress_raw_into if method is Compression.SNAPPY else cramjam.zstd.decompress_into
    plain = bytearray(plain_size)
    try:
        size = inflate_into(body, plain)
    except cramjam.DecompressionError as error:
        raise EnvelopeError(f"frame does not decompress to {plain_size} bytes: {error}") from None
    if size != plain_size:
        raise EnvelopeError(f"frame holds {size} bytes, {plain_size} expected")
    return bytes(plain)


def _of_size(data: Buffer, plain_size: int) -> bytes:
    """The bytes, if they are as many as were sealed."""
    if len(data) != plain_size:
        raise EnvelopeError(f"frame holds {len(data)} bytes, {plain_size} expected")
    return bytes(data)


class KeySource:
    """Where a store's key comes from; one per server."""

    def __init__(self, name: str, secret: bytes, *, stretch: bool) -> None:
        """Use the class methods; `stretch` says that the secret is a passphrase, which scrypt makes a key."""
        self._name = name
        self._secret = secret
        self._stretch = stretch
        self._stretched: dict[bytes, bytes] = {}  # by store salt
        self._mutex = threading.Lock()

    @classmethod
    def passphrase(cls, text: str | bytes) -> KeySource:
        """A key for each store, made from a passphrase and the store's salt."""
        secret = text.encode() if isinstance(text, str) else bytes(text)
        if not secret:
            raise BadRequest("the passphrase is empty")
        return cls("passphrase", secret, stretch=True)

    @classmethod
    def key_file(cls, path: str | os.PathLike[str], files: Files = OS_FILES) -> KeySource:
        """A key in a file: 32 raw bytes, or 64 hex digits or base64 of 32 bytes within white space."""
        path = os.fspath(path)
        try:
            with files.open(path) as file:
                content = file.pread(0, _KEY_FILE_SIZE_MAX + 1)
        except OSError as error:
            raise BadRequest(f"{path}: the key file cannot be read: {error.strerror}") from error
        secret = _parse_key(content)
        if secret is None:
            raise BadRequest(f"{path}: a key file holds 32 raw bytes, 64 hex digits, or base64 of 32 bytes")
        return cls(f"key file {path}", secret, stretch=False)

    @classmethod
    def key(cls, raw: bytes) -> KeySource:
        """A key of 32 bytes."""
        _require_size("key", raw, KEY_SIZE)
        return cls("key", bytes(raw), stretch=False)

    def master(self, store_salt: bytes) -> bytes:
        """The master key of the store that has this salt; a raw key ignores the salt."""
        if not self._stretch:
            return self._secret
        _require_size("store salt", store_salt, SALT_SIZE)
        with self._mutex:  # stretching takes 32 MiB and some 100 ms: once per store, also when two threads ask
            if store_salt not in self._stretched:
                self._stretched[store_salt] = _stretched(self._secret, store_salt)
            return self._stretched[store_salt]

    def __repr__(self) -> str:
        return f"KeySource({self._name})"


def _stretched(passphrase: bytes, salt: bytes) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=KEY_SIZE, n=2**15, r=8, p=1).derive(passphrase)


def block_key(master: bytes, block_salt: bytes, context: bytes = b"") -> bytes:
    """The key of the block that has this salt; another one for each `context`."""
    return _derived(master, block_salt, b"jetlake block key" + context)


def file_key(master: bytes, file_salt: bytes) -> bytes:
    """The key of the sealed file that has this salt."""
    return _derived(master, file_salt, b"jetlake file key")


def _derived(master: bytes, salt: bytes, info: bytes) -> bytes:
    _require_size("master key", master, KEY_SIZE)
    _require_size("salt", salt, SALT_SIZE)
    return _hkdf(master, KEY_SIZE, salt, info)


def key_check(block_key: bytes) -> bytes:
    """Eight bytes that tell a wrong key from the right one, and reveal neither."""
    _require_size("block key", block_key, KEY_SIZE)
    return _hkdf(block_key, KEY_CHECK_SIZE, None, b"jetlake key check")


def _hkdf(secret: bytes, size: int, salt: bytes | None, info: bytes) -> bytes:
    """HKDF-SHA256."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=info).derive(secret)


def _parse_key(content: bytes) -> bytes | None:
    """The key in a key file; None for anything else, so that no error can carry a part of it."""
    text = content.strip()
    if len(content) == KEY_SIZE:
        return content
    if re.fullmatch(_HEX_KEY, text):
        return binascii.unhexlify(text)
    if re.fullmatch(_BASE64_KEY, text):
        return binascii.a2b_base64(text)
    return None


def _require_size(what: str, value: bytes, size: int) -> None:
    if len(value) != size:
        raise BadRequest(f"a {what} has {size} bytes, not {len(value)}")
