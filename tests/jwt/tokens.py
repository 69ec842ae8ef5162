"""Keys and tokens to test with."""

from __future__ import annotations

from typing import Any

from jetlake import jwt, nkeys
from jetlake.nkeys import KeyPair

OPERATOR, ACCOUNT, OTHER, USER = (
    KeyPair(kind, bytes([number]) * 32)
    for number, kind in enumerate((nkeys.OPERATOR, nkeys.ACCOUNT, nkeys.ACCOUNT, nkeys.USER))
)


def token(signer: KeyPair, subject: KeyPair, kind: str, /, version: int = 2, **nats: Any) -> str:
    """A signed token."""
    return jwt.encode(
        {"sub": subject.public, "name": "n", "iat": 1, "nats": {"type": kind, "version": version, **nats}}, signer
    )
