"""Boxes: what is sealed is opened, by whom it is for, and by nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake import nkeys
from jetlake.sealed_box import SIZE_MAX, BadBox, BoxKey

ANN, BOB, EVE = (BoxKey(bytes([number]) * 32) for number in range(1, 4))


@settings(max_examples=20)
@given(st.binary(max_size=300))
def test_what_is_sealed_is_opened(text: bytes) -> None:
    box = ANN.seal(text, BOB.public)
    assert box.startswith(b"xkv1") and len(box) == 4 + 24 + 16 + len(text)
    assert BOB.open(box, ANN.public) == text


def test_nobody_else_opens_it() -> None:
    box = ANN.seal(b"secret", BOB.public)
    for key, sender in ((EVE, ANN), (BOB, EVE)):
        with pytest.raises(BadBox):
            key.open(box, sender.public)


@pytest.mark.parametrize("at", [0, 4, 27, 28, 43, 44, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    box = bytearray(ANN.seal(b"secret", BOB.public))
    box[at] ^= 1
    with pytest.raises(BadBox):
        BOB.open(bytes(box), ANN.public)


def test_what_is_no_box_is_refused() -> None:
    for box in (b"", b"xkv1", b"xkv2" + bytes(60), b"xkv1" + bytes(SIZE_MAX)):
        with pytest.raises(BadBox):
            BOB.open(box, ANN.public)
    with pytest.raises(BadBox):
        BOB.open(ANN.seal(b"", BOB.public), "not a key")


def test_the_example_of_nacl() -> None:
    """Alice's key, Bob's public key and their nonce in "Cryptography in NaCl", and how the box there begins."""
    alice = BoxKey(bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
    bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    nonce = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
    _, stream = alice._stream(nkeys.encode_public(nkeys.CURVE, bob), nonce, 16)
    text = bytes.fromhex("be075fc53c81f2d5cf141316ebeb0c7b")
    assert bytes(a ^ b for a, b in zip(text, stream, strict=True)).hex() == "8e993b9f48681273c29650ba32fc76ce"
