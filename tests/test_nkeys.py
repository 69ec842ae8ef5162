"""Keys as text: what is written is read, and nothing else is."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from jetlake import nkeys
from jetlake.nkeys import BadNkey, KeyPair, decode_public, decode_seed, encode_public

# Made with package nkeys 0.2.1: the pair of the seed 00 01 ... 1f.
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NKEY = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK"
SEED = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y"


def public(private: Ed25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def test_nkey_of_a_known_pair() -> None:
    assert encode_public(nkeys.USER, public(PRIVATE)) == NKEY
    assert decode_public(NKEY, nkeys.USER) == public(PRIVATE)


@given(st.binary(min_size=32, max_size=32))
def test_nkey_written_is_read(key: bytes) -> None:
    text = encode_public(nkeys.USER, key)
    assert text[0] == "U" and len(text) == 56
    assert decode_public(text, nkeys.USER) == key


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds 0 bytes, not 35"),
        (NKEY.lower(), "is not base32"),
        (NKEY[:-1], "holds 34 bytes, not 35"),
        (NKEY[:-8], "holds 30 bytes, not 35"),
        (NKEY + "AAAAAAAA", "holds 40 bytes, not 35"),
        (NKEY[:20] + "A" + NKEY[21:], "has a wrong checksum"),
        (NKEY[:3] + "é" + NKEY[4:], "is not base32"),
        ("SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y", "holds 36 bytes, not 35"),  # its seed
    ],
)
def test_a_text_that_is_no_nkey_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadNkey) as refused:
        decode_public(text, nkeys.USER)
    assert refused.value.problem == problem
    assert not text or text[8:] not in str(refused.value), "the error names no key in full: it may be a seed"


def test_the_key_of_an_account_is_not_one_of_a_user() -> None:
    with pytest.raises(BadNkey, match="not the public key of a user"):
        decode_public(nkeys.encode_public(nkeys.ACCOUNT, bytes(32)), nkeys.USER)


def test_a_seed_gives_the_pair() -> None:
    assert decode_seed(SEED) == (nkeys.USER, bytes(range(32)))
    pair = KeyPair(*decode_seed(SEED))
    assert (pair.public, pair.seed) == (NKEY, SEED)


@pytest.mark.parametrize("kind", [nkeys.OPERATOR, nkeys.ACCOUNT, nkeys.USER, nkeys.SERVER, nkeys.CURVE])
def test_the_first_letter_tells_the_kind(kind: int) -> None:
    letter = {nkeys.OPERATOR: "O", nkeys.ACCOUNT: "A", nkeys.USER: "U", nkeys.SERVER: "N", nkeys.CURVE: "X"}[kind]
    assert encode_public(kind, bytes(32))[0] == letter
    assert nkeys.encode_seed(kind, bytes(32))[:2] == "S" + letter
    assert nkeys.is_public(encode_public(kind, bytes(32)), kind) and not nkeys.is_public(7, kind)


def test_a_public_key_is_no_seed() -> None:
    for text in (NKEY, SEED[:10] + "A" + SEED[11:], "S"):
        with pytest.raises(BadNkey):
            decode_seed(text)
