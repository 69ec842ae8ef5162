"""Compressed answers, for those who ask for them: snappy (framed) or gzip."""

from __future__ import annotations

SNAPPY, GZIP, IDENTITY = b"snappy", b"gzip", b"identity"


def encode_content(accepted: bytes | None, text: bytes) -> tuple[bytes, bytes]:
    """The encoding, by what an `Accept-Encoding` header says, and the text in it; no encoding without the header."""
    if not accepted:
        return b"", text
    import cramjam  # few ask

    wanted = accepted.lower()
    if b"snappy" in wanted or b"s2" in wanted:
        return SNAPPY, bytes(cramjam.snappy.compress(text))
    if b"gzip" in wanted:
        return GZIP, bytes(cramjam.gzip.compress(text))
    return IDENTITY, text
