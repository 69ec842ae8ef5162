"""Whole files under the server's key."""

from __future__ import annotations

import pytest

from jetlake.errors import CorruptBlock, WrongKey
from jetlake.store import Cipher, KeySource
from jetlake.store.blocks.sealed_file import HEAD_SIZE, MAGIC, Sealer, is_sealed, salt_of
from jetlake.store.format import hash64

OLD, NEW = KeySource.key(b"o" * 32), KeySource.key(b"n" * 32)
SALT = b"s" * 16
SEALER = Sealer(Cipher.AES_256_GCM, [NEW], SALT)


@pytest.mark.parametrize("cipher", [Cipher.AES_256_GCM, Cipher.CHACHA20_POLY1305])
@pytest.mark.parametrize("plain", [b"", b"a secret", bytes(100_000)])
def test_what_was_sealed_is_opened(cipher: Cipher, plain: bytes) -> None:
    data = Sealer(cipher, [NEW], SALT).seal(plain, b"kind")
    assert is_sealed(data) and salt_of(data) == SALT and (not plain or plain not in data)
    assert Sealer(keys=[OLD, NEW]).open(data, b"kind", "f") == plain


def test_without_a_cipher_nothing_is_changed() -> None:
    assert Sealer().seal(b"plain", b"kind") == b"plain" and SEALER.open(b"plain", b"kind", "f") == b"plain"


def test_what_is_not_encrypted_can_be_refused() -> None:
    with pytest.raises(CorruptBlock, match="is not encrypted"):
        Sealer(Cipher.AES_256_GCM, [NEW], accepts_plain=False).open(b"plain", b"kind", "f")


@pytest.mark.parametrize(("keys", "problem"), [([], "no key was given"), ([OLD], "with another key")])
def test_a_wrong_key_is_told_from_damage(keys: list[KeySource], problem: str) -> None:
    data = SEALER.seal(b"a secret", b"kind")
    with pytest.raises(WrongKey, match=problem):
        Sealer(keys=keys).open(data, b"kind", "f")
    for offset in range(len(MAGIC), len(data)):
        damaged = bytearray(data)
        damaged[offset] ^= 1
        with pytest.raises(CorruptBlock):
            Sealer(keys=keys).open(bytes(damaged), b"kind", "f")


def test_every_byte_is_authenticated_even_if_the_checksum_is_right() -> None:
    data = SEALER.seal(b"a secret", b"kind")
    for offset in range(10, len(data) - 8):
        forged = bytearray(data[:-8])
        forged[offset] ^= 1
        forged += hash64(bytes(forged), 0).to_bytes(8, "little")
        with pytest.raises((CorruptBlock, WrongKey)):
            SEALER.open(bytes(forged), b"kind", "f")


@pytest.mark.parametrize("size", [8, HEAD_SIZE, HEAD_SIZE + 20])
def test_a_truncated_file_is_damaged(size: int) -> None:
    with pytest.raises(CorruptBlock):
        SEALER.open(SEALER.seal(b"a secret", b"kind")[:size], b"kind", "f")


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(CorruptBlock, match="does not authenticate"):
        SEALER.open(SEALER.seal(b"a secret", b"meta"), b"consumer", "f")


def test_what_has_to_be_written_anew_is_known() -> None:
    assert SEALER.is_current(SEALER.seal(b"", b"")) and not SEALER.is_current(b"plain")
    assert not SEALER.is_current(Sealer(Cipher.CHACHA20_POLY1305, [NEW], SALT).seal(b"", b""))
    assert not SEALER.is_current(Sealer(Cipher.AES_256_GCM, [OLD], SALT).seal(b"", b""))
    assert Sealer().is_current(b"plain") and not SEALER.is_current(SEALER.seal(b"", b"")[: HEAD_SIZE - 1])
