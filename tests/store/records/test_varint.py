"""Unsigned LEB128 numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.records.varint import U64_MAX, VARINT_SIZE_MAX, decode_varint, encode_varint, varint_size

U64 = st.integers(0, U64_MAX)


@given(U64, st.binary(max_size=4), st.binary(max_size=12))
def test_what_is_encoded_is_decoded_wherever_it_lies(n: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(n)
    assert decode_varint(before + encoded + after, len(before)) == (n, len(before) + len(encoded))


@given(U64)
def test_the_size_is_known_without_encoding(n: int) -> None:
    assert varint_size(n) == len(encode_varint(n)) <= VARINT_SIZE_MAX


@pytest.mark.parametrize(
    ("n", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16384, "808001"), (U64_MAX, "ff" * 9 + "01")],
)
def test_known_values_have_their_known_bytes(n: int, encoded: str) -> None:
    assert encode_varint(n).hex() == encoded


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_byte_buffer_can_be_decoded(wrap: type) -> None:
    assert decode_varint(wrap(b"\xac\x02"), 0) == (300, 2)


@given(U64)
def test_every_truncation_is_refused(n: int) -> None:
    encoded = encode_varint(n)
    for size in range(len(encoded)):
        with pytest.raises(ValueError, match="truncated"):
            decode_varint(encoded[:size], 0)


def test_nothing_is_read_past_the_end() -> None:
    with pytest.raises(ValueError, match="truncated"):
        decode_varint(b"\x80\x01", 0, 1)


@pytest.mark.parametrize(("offset", "end"), [(-1, None), (3, None), (2, 1), (0, 3)])
def test_a_place_outside_the_buffer_is_refused(offset: int, end: int | None) -> None:
    with pytest.raises(ValueError, match="outside"):
        decode_varint(b"\x01\x01", offset, end)


def test_more_than_ten_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="longer than 10 bytes"):
        decode_varint(b"\x80" * 10 + b"\x00", 0)


def test_a_value_above_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="exceeds"):
        decode_varint(b"\xff" * 9 + b"\x02", 0)


def test_a_padded_form_of_ten_bytes_is_accepted() -> None:
    assert decode_varint(b"\x81" + b"\x80" * 8 + b"\x00", 0) == (1, 10)


@pytest.mark.parametrize("n", [-1, U64_MAX + 1])
def test_a_number_outside_64_bits_cannot_be_encoded(n: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        encode_varint(n)


@given(st.binary(max_size=16), st.integers(-2, 18), st.none() | st.integers(-2, 18))
def test_any_bytes_decode_or_raise_value_error(data: bytes, offset: int, end: int | None) -> None:
    try:
        value, after = decode_varint(data, offset, end)
    except ValueError:
        return
    assert 0 <= value <= U64_MAX
    assert offset < after <= len(data)
