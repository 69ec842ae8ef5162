"""Small files as a whole under the server's key: checkpoints, configurations, consumers, evidence of damage.

    offset  size  field
         0     8  magic        "JLSEALED"
         8     1  version      1
         9     1  cipher       1 ChaCha20-Poly1305, 2 AES-256-GCM
        10     6  zero
        16    16  store_salt   turns a passphrase into the store's key
        32    16  file_salt    turns the store's key into the file's key, new each time the file is written
        48     8  key_check    tells a wrong key
        56    12  nonce
        68     n  ciphertext
      68+n    16  tag          authenticates the 56 bytes at the start, the kind of the file, and the ciphertext
      84+n     8  hash         XXH64, seed 0, over every byte before it: tells damage from a wrong key

The *kind* is what the file is for, so that no file can take the place of one of another kind.
"""

from __future__ import annotations

import hmac
import os
import struct
from collections.abc import Sequence
from contextlib import suppress

from jetlake.errors import CorruptBlock, WrongKey
from jetlake.store.blocks.envelope import (
    KEY_CHECK_SIZE,
    NONCE_SIZE,
    SALT_SIZE,
    TAG_SIZE,
    Cipher,
    Compression,
    Envelope,
    EnvelopeError,
    KeySource,
    file_key,
    key_check,
)
from jetlake.store.format import hash64

MAGIC = b"JLSEALED"
VERSION = 1
_HEAD = struct.Struct(f"<8sBB6x{SALT_SIZE}s{SALT_SIZE}s{KEY_CHECK_SIZE}s")
HEAD_SIZE = _HEAD.size
_HASH_SIZE = 8
_SIZE_MIN = HEAD_SIZE + NONCE_SIZE + TAG_SIZE + _HASH_SIZE

OVERHEAD_SIZE = _SIZE_MIN  # what a sealed file has beyond its plain bytes

assert HEAD_SIZE == 56

EVIDENCE = b"evidence"
_NAMES = b"names of files \0"  # where the salt of a file stands, for the key of their names
_NAME_SIZE = 32
assert len(_NAMES) == SALT_SIZE


class Sealer:
    """How whole files are encrypted: with `cipher` under the first key; all keys are tried to open one."""

    def __init__(
        self,
        cipher: Cipher = Cipher.NONE,
        keys: Sequence[KeySource] = (),
        salt: bytes = bytes(SALT_SIZE),
        *,
        accepts_plain: bool = True,
    ) -> None:
        self.cipher, self.keys, self.salt, self.accepts_plain = cipher, keys, salt, accepts_plain

    def seal(self, plain: bytes, kind: bytes) -> bytes:
        """The bytes of the file; without a cipher, the plain ones."""
        if self.cipher is Cipher.NONE:
            return plain
        file_salt = os.urandom(SALT_SIZE)
        key = file_key(self.keys[0].master(self.salt), file_salt)
        head = _HEAD.pack(MAGIC, VERSION, self.cipher, self.salt, file_salt, key_check(key))
        data = head + Envelope(Compression.NONE, self.cipher, key).seal(plain, head + kind)
        return data + hash64(data, 0).to_bytes(_HASH_SIZE, "little")

    def open(self, data: bytes, kind: bytes, path: str) -> bytes:
        """The plain bytes; raises WrongKey, or CorruptBlock when they are not what was sealed."""
        if not is_sealed(data):
            if not self.accepts_plain:
                raise CorruptBlock(path, 0, "is not encrypted, as everything else is")
            return data
        key = self._key(data, path)
        stored = memoryview(data)[HEAD_SIZE:-_HASH_SIZE]
        try:
            plain_size = len(stored) - NONCE_SIZE - TAG_SIZE
            return Envelope(Compression.NONE, Cipher(data[9]), key).open(stored, data[:HEAD_SIZE] + kind, plain_size)
        except EnvelopeError as error:
            raise CorruptBlock(path, HEAD_SIZE, str(error)) from None

    def check_key(self, data: bytes, path: str) -> None:
        """Raise WrongKey when a sealed file cannot be opened; a damaged one tells nothing."""
        with suppress(CorruptBlock):
            self._key(data, path)

    def opaque_name(self, name: str) -> str:
        """A file name that tells nothing without the key: always the same for a name."""
        key = file_key(self.keys[0].master(self.salt), _NAMES)
        return hmac.new(key, name.encode("utf-8", "surrogatepass"), "sha256").hexdigest()[:_NAME_SIZE]

    def _key(self, data: bytes, path: str) -> bytes:
        head = _checked_head(data, path)
        if not self.keys:
            raise WrongKey(path, "is encrypted, and no key was given")
        for source in self.keys:
            key = _key(source, head)
            if key is not None:
                return key
        raise WrongKey(path, "is encrypted with another key")

    def is_current(self, data: bytes) -> bool:
        """Whether a file, as far as its start tells, is as this would write it: plain, or under the first key."""
        if not is_sealed(data):
            return self.cipher is Cipher.NONE
        if len(data) < HEAD_SIZE or data[9] != self.cipher:
            return False
        return _key(self.keys[0], data[:HEAD_SIZE]) is not None


def is_sealed(data: bytes) -> bool:
    """Whether a file is encrypted as a whole."""
    return data.startswith(MAGIC)


def salt_of(data: bytes) -> bytes:
    """The store's salt that a sealed file was written with."""
    return bytes(_HEAD.unpack_from(data)[3])


def _checked_head(data: bytes, path: str) -> bytes:
    if len(data) < _SIZE_MIN or hash64(data[:-_HASH_SIZE], 0) != int.from_bytes(data[-_HASH_SIZE:], "little"):
        raise CorruptBlock(path, 0, "the checksum does not match")
    if data[8] != VERSION or data[9] not in (Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM):
        raise CorruptBlock(path, 8, f"version {data[8]} with cipher {data[9]} is not known")
    return data[:HEAD_SIZE]


def _key(source: KeySource, head: bytes) -> bytes | None:
    """The key of a file, if it was made from this source."""
    *_, store_salt, file_salt, check = _HEAD.unpack(head)
    key = file_key(source.master(store_salt), file_salt)
    return key if key_check(key) == check else None
