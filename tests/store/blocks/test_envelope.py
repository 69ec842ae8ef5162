"""Sealing frames: every combination of compression and cipher, what is detected, and where keys come from."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import BadRequest
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
    block_key,
    key_check,
)
from jetlake.store.disk.files import Buffer
from jetlake.testing.memfiles import MemFiles

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
SALT = bytes(range(100, 100 + SALT_SIZE))
OTHER_SALT = bytes(range(101, 101 + SALT_SIZE))
AAD = b"block 3 frame 7"
TEXT = b"orders.eu.1 " * 20
NOISE = random.Random(7).randbytes(500)

CIPHERS = [Cipher.CHACHA20_POLY1305, Cipher.AES_256_GCM]
METHODS = [Compression.SNAPPY, Compression.ZSTD]
ALL = [Envelope(compression, cipher, KEY if cipher else None) for compression in Compression for cipher in Cipher]
ENCRYPTED = [envelope for envelope in ALL if envelope.cipher]
COMPRESSED = [Envelope(method, Cipher.NONE, None) for method in METHODS]


def name(envelope: object) -> str | None:
    if not isinstance(envelope, Envelope):
        return None
    return f"{envelope.compression.name}-{envelope.cipher.name}".lower()


every_envelope = pytest.mark.parametrize("envelope", ALL, ids=name)
every_encrypted = pytest.mark.parametrize("envelope", ENCRYPTED, ids=name)
every_compressed = pytest.mark.parametrize("envelope", COMPRESSED, ids=name)


# Round trips


@every_envelope
@pytest.mark.parametrize("plain", [b"", b"x", TEXT, NOISE, bytes(1_000_000)], ids=len)
def test_what_was_sealed_is_opened(envelope: Envelope, plain: bytes) -> None:
    assert envelope.open(envelope.seal(plain, AAD), AAD, len(plain)) == plain


@every_envelope
@given(plain=st.binary(max_size=2000), aad=st.binary(max_size=40), repeat=st.integers(1, 5))
def test_anything_that_was_sealed_is_opened(envelope: Envelope, plain: bytes, aad: bytes, repeat: int) -> None:
    plain *= repeat
    assert envelope.open(envelope.seal(plain, aad), aad, len(plain)) == plain


@every_envelope
@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]])
def test_any_buffer_is_sealed_and_opened(envelope: Envelope, kind: Callable[[bytes], Buffer]) -> None:
    opened = envelope.open(kind(envelope.seal(kind(TEXT), AAD)), AAD, len(TEXT))
    assert (type(opened), opened) == (bytes, TEXT)


@every_envelope
def test_sealing_copies_what_it_is_given(envelope: Envelope) -> None:
    plain = bytearray(TEXT)
    sealed = envelope.seal(plain, AAD)
    plain[:] = bytes(len(plain))
    assert envelope.open(sealed, AAD, len(TEXT)) == TEXT


@every_envelope
def test_only_the_envelope_without_either_is_plain(envelope: Envelope) -> None:
    assert envelope.is_plain is (envelope.compression == Compression.NONE and envelope.cipher == Cipher.NONE)


def test_a_plain_envelope_stores_bytes_as_they_are() -> None:
    assert Envelope(Compression.NONE, Cipher.NONE, None).seal(TEXT, AAD) == TEXT


# Compression


@every_compressed
def test_a_frame_that_shrinks_starts_with_its_method(envelope: Envelope) -> None:
    sealed = envelope.seal(TEXT, AAD)
    assert sealed[0] == envelope.compression
    assert len(sealed) < len(TEXT)


@every_compressed
def test_a_frame_that_does_not_shrink_is_kept_raw(envelope: Envelope) -> None:
    assert envelope.seal(NOISE, AAD) == b"\0" + NOISE


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_frame_is_compressed_before_it_is_encrypted(cipher: Cipher) -> None:
    assert len(Envelope(Compression.ZSTD, cipher, KEY).seal(bytes(100_000), AAD)) < 1000


@every_compressed
@pytest.mark.parametrize("claimed", [0, len(TEXT) - 1, len(TEXT) + 1])
def test_a_compressed_frame_of_another_size_is_refused(envelope: Envelope, claimed: int) -> None:
    with pytest.raises(EnvelopeError, match=str(claimed)):
        envelope.open(envelope.seal(TEXT, AAD), AAD, claimed)


@every_envelope
@pytest.mark.parametrize("claimed", [0, len(NOISE) - 1, len(NOISE) + 1])
def test_a_raw_frame_of_another_size_is_refused(envelope: Envelope, claimed: int) -> None:
    with pytest.raises(EnvelopeError, match=f"{len(NOISE)} bytes, {claimed} expected"):
        envelope.open(envelope.seal(NOISE, AAD), AAD, claimed)


@every_compressed
def test_a_compressed_frame_that_is_cut_anywhere_is_refused(envelope: Envelope) -> None:
    sealed = envelope.seal(TEXT, AAD)
    for size in range(len(sealed)):
        with pytest.raises(EnvelopeError):
            envelope.open(sealed[:size], AAD, len(TEXT))


@every_compressed
def test_bytes_after_a_compressed_frame_are_refused(envelope: Envelope) -> None:
    with pytest.raises(EnvelopeError):
        envelope.open(envelope.seal(TEXT, AAD) + b"more", AAD, len(TEXT))


@every_compressed
@given(body=st.binary(max_size=200), size=st.integers(0, 300))
def test_any_bytes_open_to_the_size_asked_for_or_are_refused(envelope: Envelope, body: bytes, size: int) -> None:
    with suppress(EnvelopeError):
        assert len(envelope.open(bytes([envelope.compression]) + body, AAD, size)) == size


@every_compressed
@pytest.mark.parametrize("method", [3, 255])
def test_an_unknown_method_is_refused(envelope: Envelope, method: int) -> None:
    with pytest.raises(EnvelopeError, match=f"method {method}"):
        envelope.open(bytes([method]) + TEXT, AAD, len(TEXT))


def test_a_method_that_is_not_the_blocks_is_refused() -> None:
    sealed = COMPRESSED[0].seal(TEXT, AAD)
    with pytest.raises(EnvelopeError, match="method 1, its block 2"):
        COMPRESSED[1].open(sealed, AAD, len(TEXT))


def test_a_snappy_bomb_is_refused_before_it_unfolds() -> None:
    bomb = b"\x01" + bytes(cramjam.snappy.compress_raw(bytes(50_000_000)))
    with pytest.raises(EnvelopeError, match="does not decompress to 100 bytes"):
        COMPRESSED[0].open(bomb, AAD, 100)


def test_a_zstd_bomb_is_refused_before_it_unfolds() -> None:
    bomb = b"\x02" + bytes(cramjam.zstd.compress(bytes(50_000_000)))
    with pytest.raises(EnvelopeError, match="does not decompress to 100 bytes"):
        COMPRESSED[1].open(bomb, AAD, 100)


# Encryption


@every_encrypted
def test_every_flipped_bit_is_detected(envelope: Envelope) -> None:
    sealed = envelope.seal(b"a small message", AAD)
    for bit in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(EnvelopeError, match="does not authenticate"):
            envelope.open(damaged, AAD, 15)


@every_encrypted
def test_a_frame_cut_at_any_byte_is_refused(envelope: Envelope) -> None:
    sealed = envelope.seal(b"a small message", AAD)
    for size in range(len(sealed)):
        text = "truncated" if size < NONCE_SIZE + TAG_SIZE else "does not authenticate"
        with pytest.raises(EnvelopeError, match=text):
            envelope.open(sealed[:size], AAD, 15)


@every_encrypted
def test_bytes_after_a_frame_are_refused(envelope: Envelope) -> None:
    with pytest.raises(EnvelopeError, match="does not authenticate"):
        envelope.open(envelope.seal(TEXT, AAD) + b"\0", AAD, len(TEXT))


@every_encrypted
def test_another_key_is_refused(envelope: Envelope) -> None:
    other = Envelope(envelope.compression, envelope.cipher, OTHER_KEY)
    with pytest.raises(EnvelopeError, match="key"):
        other.open(envelope.seal(TEXT, AAD), AAD, len(TEXT))


@every_encrypted
@pytest.mark.parametrize("aad", [b"", AAD + b"x", b"block 3 frame 8"])
def test_a_frame_from_another_place_is_refused(envelope: Envelope, aad: bytes) -> None:
    with pytest.raises(EnvelopeError, match="place"):
        envelope.open(envelope.seal(TEXT, AAD), aad, len(TEXT))


@pytest.mark.parametrize("cipher", CIPHERS)
def test_the_other_cipher_is_refused(cipher: Cipher) -> None:
    (other,) = [each for each in CIPHERS if each != cipher]
    sealed = Envelope(Compression.NONE, cipher, KEY).seal(TEXT, AAD)
    with pytest.raises(EnvelopeError):
        Envelope(Compression.NONE, other, KEY).open(sealed, AAD, len(TEXT))


@every_encrypted
def test_the_same_frame_is_never_sealed_alike(envelope: Envelope) -> None:
    sealed = {envelope.seal(TEXT, AAD) for _ in range(100)}
    assert len({each[:NONCE_SIZE] for each in sealed}) == 100


@every_encrypted
def test_no_plain_text_is_left_in_a_sealed_frame(envelope: Envelope) -> None:
    assert b"secret" not in envelope.seal(b"secret", AAD)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_sealed_frame_is_its_nonce_and_tag_larger(cipher: Cipher) -> None:
    assert len(Envelope(Compression.NONE, cipher, KEY).seal(TEXT, AAD)) == len(TEXT) + NONCE_SIZE + TAG_SIZE


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_cipher_needs_a_key(cipher: Cipher) -> None:
    with pytest.raises(BadRequest, match=f"{cipher.name} needs a key"):
        Envelope(Compression.NONE, cipher, None)


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_of_another_size_is_refused(cipher: Cipher, size: int) -> None:
    with pytest.raises(BadRequest, match=f"32 bytes, not {size}"):
        Envelope(Compression.NONE, cipher, bytes(size))


def test_an_envelope_does_not_show_its_key() -> None:
    envelope = Envelope(Compression.NONE, Cipher.AES_256_GCM, b"0123456789abcdef0123456789abcdef")
    assert "0123456789abcdef" not in repr(envelope)


# Keys of blocks


def test_a_block_key_is_the_same_for_the_same_salt() -> None:
    assert block_key(KEY, SALT) == block_key(KEY, SALT)


def test_a_block_key_follows_the_salt_and_the_master_key() -> None:
    keys = {block_key(KEY, SALT), block_key(KEY, OTHER_SALT), block_key(OTHER_KEY, SALT)}
    assert len(keys) == 3
    assert all(len(key) == 32 for key in keys)


# These were computed with hmac and hashlib alone: a change here makes every encrypted store unreadable.


def test_a_block_key_is_what_it_was_when_the_first_block_was_written() -> None:
    assert block_key(KEY, SALT).hex() == "0a6fa2762fb49e56e2f18fa55636b6172baefb44d5f2cf4fc2f1def4bdf5ebe0"


def test_a_key_check_is_what_it_was_when_the_first_block_was_written() -> None:
    assert key_check(KEY).hex() == "976786bbb04027e8"


def test_a_passphrase_gives_the_key_that_it_gave_when_the_first_block_was_written() -> None:
    expected = "5bac6bef1ccb338d9bf75b3fa1914f53589a19e0ae4daa6af8a7b103dd25d5e6"
    assert KeySource.passphrase("correct horse").master(SALT).hex() == expected


def test_a_key_check_tells_keys_apart() -> None:
    assert key_check(KEY) == key_check(KEY)
    assert key_check(KEY) != key_check(OTHER_KEY)
    assert len(key_check(KEY)) == KEY_CHECK_SIZE


def test_a_key_check_holds_no_part_of_the_key() -> None:
    assert key_check(KEY) not in KEY


def test_a_block_salt_of_another_size_is_refused() -> None:
    with pytest.raises(BadRequest, match="salt has 16 bytes, not 3"):
        block_key(KEY, b"abc")


# Where keys come from


def test_a_passphrase_gives_each_store_its_own_key() -> None:
    source = KeySource.passphrase("correct horse")
    assert source.master(SALT) != source.master(OTHER_SALT)
    assert len(source.master(SALT)) == 32


def test_a_passphrase_gives_a_store_the_same_key_in_the_next_process() -> None:
    assert KeySource.passphrase("correct horse").master(SALT) == KeySource.passphrase("correct horse").master(SALT)


def test_a_passphrase_is_its_utf_8_bytes() -> None:
    assert KeySource.passphrase("pässword").master(SALT) == KeySource.passphrase("pässword".encode()).master(SALT)


def test_another_passphrase_gives_another_key() -> None:
    assert KeySource.passphrase("a").master(SALT) != KeySource.passphrase("b").master(SALT)


def test_a_passphrase_is_stretched_once_per_store(monkeypatch: pytest.MonkeyPatch) -> None:
    source = KeySource.passphrase("correct horse")
    first = source.master(SALT)
    monkeypatch.delattr("cryptography.hazmat.primitives.kdf.scrypt.Scrypt")
    assert source.master(SALT) is first


@pytest.mark.parametrize("text", ["", b""])
def test_an_empty_passphrase_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadRequest, match="empty"):
        KeySource.passphrase(text)


def test_a_store_salt_of_another_size_is_refused() -> None:
    with pytest.raises(BadRequest, match="store salt has 16 bytes, not 3"):
        KeySource.passphrase("a").master(b"abc")


def test_a_raw_key_is_the_master_key_of_every_store() -> None:
    source = KeySource.key(KEY)
    assert source.master(SALT) == source.master(OTHER_SALT) == KEY


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_raw_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(BadRequest, match=f"32 bytes, not {size}"):
        KeySource.key(bytes(size))


ODD_KEY = b"\n" + bytes(30) + b" "  # white space at both ends, and no text
KEY_FILES = {
    "raw": (KEY, KEY),
    "raw that ends in white space": (ODD_KEY, ODD_KEY),
    "hex": (KEY.hex().encode(), KEY),
    "upper case hex": (KEY.hex().upper().encode(), KEY),
    "hex in white space": (b"\n " + KEY.hex().encode() + b"\r\n", KEY),
    "base64": (base64.b64encode(KEY), KEY),
    "base64 in white space": (b" " + base64.b64encode(KEY) + b"\n", KEY),
}


@pytest.mark.parametrize(("content", "key"), KEY_FILES.values(), ids=KEY_FILES.keys())
def test_a_key_file_is_read(content: bytes, key: bytes) -> None:
    files = MemFiles.from_snapshot({"key": content})
    assert KeySource.key_file("key", files).master(SALT) == key


BAD_KEY_FILES = {
    "empty": b"",
    "white space": b" \n",
    "31 bytes": bytes(31),
    "33 bytes": bytes(33),
    "raw and a newline": KEY + b"\n",
    "63 hex digits": b"a" * 63,
    "64 characters, not all hex": b"g" * 64,
    "hex in two lines": b"a" * 32 + b"\n" + b"a" * 32,
    "base64 of 31 bytes": base64.b64encode(bytes(31)),
    "base64 of 33 bytes": base64.b64encode(bytes(33)),
    "base64 without padding": base64.b64encode(KEY).rstrip(b"="),
    "two keys": KEY + KEY,
    "large": b"a" * 100_000,
}


@pytest.mark.parametrize("content", BAD_KEY_FILES.values(), ids=BAD_KEY_FILES.keys())
def test_anything_else_is_no_key_file(content: bytes) -> None:
    files = MemFiles.from_snapshot({"keys/key": content})
    with pytest.raises(BadRequest, match="keys/key: a key file holds 32 raw bytes, 64 hex digits, or base64"):
        KeySource.key_file("keys/key", files)


def test_a_refused_key_file_shows_nothing_of_itself() -> None:
    files = MemFiles.from_snapshot({"key": b"hunter2-hunter2"})
    with pytest.raises(BadRequest) as caught:
        KeySource.key_file("key", files)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"no\.key: the key file cannot be read: No such file"):
        KeySource.key_file(tmp_path / "no.key")


def test_a_directory_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        KeySource.key_file(tmp_path)


def test_a_key_file_on_disk_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY.hex() + "\n")
    assert KeySource.key_file(tmp_path / "key").master(SALT) == KEY


def test_a_key_source_says_what_it_is_and_not_what_it_holds() -> None:
    files = MemFiles.from_snapshot({"path/key": b"k" * 32})
    assert repr(KeySource.key(b"k" * 32)) == "KeySource(key)"
    assert repr(KeySource.passphrase("hunter2")) == "KeySource(passphrase)"
    assert repr(KeySource.key_file("path/key", files)) == "KeySource(key file path/key)"
