"""S2: what nats-server compressed is read, and the twins agree on any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.nats import s2
from jetlake.store.nats._s2_py import decoded_size
from jetlake.store.nats.s2 import BadCrc, BadS2, Decoder, decode, encode_chunk
from jetlake.store.records.varint import encode_varint
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

# A snapshot as nats-server sent it.
REAL = bytes.fromhex(
    "ff06000053327354774f00dd000025a71c3d8602c44e415453415243310ac2bcf6dca8ebe2e8310000bf0173746174652e6a736f6e7b226d65"
    "737361676573223a312c22627974010a3c35352c2266697273745f736571223a31110e9c7473223a22323032362d31312d31375430373a3439"
    "3a35392e3434323730353234335a222c226c61113900320d0d6a380018333037313339370138246e756d5f7375626a65630130003109111864"
    "656c65746564051058636f6e73756d65725f636f756e74223a307d01b6adefa705d770011202734e4154532f312e300d0a413a20620d0a0d0a"
    "68690000000000"
)


def test_real_stream_is_decoded() -> None:
    plain = bytes(decode(REAL))
    assert len(plain) == 262 and plain.startswith(b"NATSARC1") and plain.endswith(b"hi\0\0\0\0\0")


@pytest.mark.parametrize("size", [1, 7, 100])
def test_stream_may_come_in_pieces(size: int) -> None:
    decoder, out = Decoder(), bytearray()
    for start in range(0, len(REAL), size):
        for plain in decoder.feed(REAL[start : start + size]):
            out += plain
    decoder.finish()
    assert out == decode(REAL)


def test_flipped_bit_is_noticed() -> None:
    data = bytearray(REAL)
    data[40] ^= 1
    with pytest.raises(BadCrc):
        decode(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (REAL[:-1], "cut off"),
        (REAL[10:], "identifier"),
        (b"\xff\x06\x00\x00XXXXXX", "identifier"),
        (s2.IDENTIFIER + b"\x02\0\0\0", "type 2"),
    ],
)
def test_what_is_not_s2_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(BadS2, match=problem):
        decode(data)


def test_chunk_that_claims_too_much_is_refused() -> None:
    chunk = encode_varint(2**31)
    with pytest.raises(BadS2, match="plain bytes"):
        decode(s2.IDENTIFIER + b"\x00" + (len(chunk) + 4).to_bytes(3, "little") + bytes(4) + chunk)


@given(st.binary(max_size=2000) | st.binary(min_size=1, max_size=20).map(lambda part: part * 100))
def test_what_is_encoded_is_decoded(plain: bytes) -> None:
    assert decode(s2.IDENTIFIER + b"".join(encode_chunk(plain))) == plain


@both_twins
@pytest.mark.parametrize(
    ("tags", "plain"),
    [
        ("086162630104", None),  # from before the beginning
        ("086162630503", b"abcabcab"),  # a copy of 5 from 3 before, which overlaps
        ("0861626301030500", b"abcabcabcabc"),  # and its offset again, for 5
        ("086162630103150002", b"abcabca" + b"bcabcabcab"),  # again, for 8 and 2
    ],
)
def test_copies_and_repeats(kind: str, tags: str, plain: bytes | None) -> None:
    twin = load_twin("jetlake.store.nats._s2", kind)
    if plain is None:
        out = bytearray(4)
        with pytest.raises(BadS2):
            twin.decode_block(encode_varint(4) + bytes.fromhex(tags), out)
        return
    out = bytearray(len(plain))
    twin.decode_block(encode_varint(len(plain)) + bytes.fromhex(tags), out)
    assert out == plain


@both_twins
def test_checksum_is_crc32c(kind: str) -> None:
    assert load_twin("jetlake.store.nats._s2", kind).crc32c(b"123456789") == 0xE3069283


@needs_kernels
@given(st.binary(max_size=100))
def test_twins_sum_alike(data: bytes) -> None:
    twins = load_twins("jetlake.store.nats._s2")
    assert len({twin.crc32c(data, is_plain) for twin in twins for is_plain in (True, False)}) == 1


@needs_kernels
@given(st.integers(0, 300), st.binary(max_size=60))
def test_twins_agree_on_any_bytes(size: int, tags: bytes) -> None:
    results = []
    for twin in load_twins("jetlake.store.nats._s2"):
        out = bytearray(size)
        try:
            twin.decode_block(encode_varint(size) + tags, out)
            results.append(bytes(out))
        except BadS2 as error:
            results.append(str(error).encode())
    assert results[0] == results[1]


def test_size_of_a_block_is_told_without_decoding_it() -> None:
    assert decoded_size(encode_varint(1000) + b"xx") == (1000, 2)


@needs_kernels
def test_compiled_twin_is_loaded() -> None:
    assert s2.COMPILED
