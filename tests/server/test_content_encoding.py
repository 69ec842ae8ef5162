"""Compressed answers."""

from __future__ import annotations

import gzip

import cramjam
import pytest

from jetlake.server.observe.content_encoding import encode_content

TEXT = b'{"server":{}}' * 100


@pytest.mark.parametrize("accepted", [None, b""])
def test_nothing_is_encoded_unasked(accepted: bytes | None) -> None:
    assert encode_content(accepted, TEXT) == (b"", TEXT)


def test_snappy_comes_before_gzip() -> None:
    for accepted in (b"snappy", b"S2", b"gzip, snappy"):
        encoding, packed = encode_content(accepted, TEXT)
        assert encoding == b"snappy" and bytes(cramjam.snappy.decompress(packed)) == TEXT
    encoding, packed = encode_content(b"deflate, GZIP", TEXT)
    assert encoding == b"gzip" and gzip.decompress(packed) == TEXT


def test_other_encodings_are_none() -> None:
    assert encode_content(b"zstd", TEXT) == (b"identity", TEXT)
