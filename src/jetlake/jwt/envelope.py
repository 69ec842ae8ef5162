"""The envelope of a token: `base64url(header).base64url(claims).base64url(signature)`, without padding.

The signature is by the key that `iss` names, over the text of header and claims; in version 1, over the claims alone.
So a token that decodes was made by its issuer; whether the issuer counts is another question. Texts of errors are those
of nats-server.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec

from jetlake import nkeys
from jetlake.errors import BadRequest
from jetlake.jwt import version1

SIZE_MAX = 1024 * 1024
VERSION = 2
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_ALGORITHMS = ("ed25519-nkey", "ed25519")


class BadJwt(BadRequest):
    """Text that is not a token, or not one of the expected kind."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What every token says. Times are seconds since 1970; 0: not given."""

    iss: str = ""
    sub: str = ""
    name: str = ""
    aud: str = ""
    iat: int = 0
    exp: int = 0
    nbf: int = 0
    nats: dict[str, Any] = {}

    @property
    def type(self) -> str:
        return str(self.nats.get("type", ""))

    def time_problem(self, now_s: float) -> str | None:
        """Why the token does not hold at this time."""
        if 0 < self.exp <= now_s:
            return "claim is expired"
        return "claim is not yet valid" if 0 < now_s < self.nbf else None


def decode(text: str, *issuers: int) -> Claims:
    """The claims of a token that was signed by a key of one of these kinds. Raises BadJwt."""
    parts = text.split(".") if len(text) <= SIZE_MAX else []
    if len(parts) != 3:
        raise BadJwt("expected 3 chunks")
    _check_header(_read(parts[0]))
    found = _without_nulls(_read(parts[1]))
    is_old = version1.is_version1(found)
    claims = _claims(version1.migrated(found) if is_old else found, version1.VERSION if is_old else VERSION)
    try:
        key = nkeys.public_key(claims.iss, *issuers)
    except nkeys.BadNkey as error:
        raise BadJwt(f"unable to validate expected prefixes - {error.problem}") from None
    signed = parts[1] if is_old else f"{parts[0]}.{parts[1]}"
    if not nkeys.is_signed(key, signed.encode(), parts[2]):
        raise BadJwt(f"claim failed V{1 if is_old else VERSION} signature verification")
    return claims


def encode(claims: dict[str, Any], signer: nkeys.KeyPair) -> str:
    """A token, signed; its `iss` and `jti` are filled in."""
    claims = {**claims, "iss": signer.public}
    claims["jti"] = base64.b32encode(hashlib.sha512(msgspec.json.encode(claims)).digest()[:32]).decode().rstrip("=")
    signed = f"{_base64(msgspec.json.encode(_HEADER))}.{_base64(msgspec.json.encode(claims))}"
    return f"{signed}.{_base64(signer.sign(signed.encode()))}"


def _check_header(header: Any) -> None:
    kind = header.get("typ") if isinstance(header, dict) else None
    if not isinstance(kind, str) or kind.upper() != "JWT":
        raise BadJwt(f'not supported type "{kind or ""}"')
    if str(header.get("alg", "")).lower() not in _ALGORITHMS:
        raise BadJwt(f'unexpected "{header.get("alg", "")}" algorithm')


def _claims(found: Any, expected: int) -> Claims:
    try:
        claims = msgspec.convert(found, Claims)
    except msgspec.ValidationError as error:
        raise BadJwt(f"claims: {error}") from None
    version = claims.nats.get("version", 0)
    if version != expected:
        raise BadJwt(f"library supports version {VERSION} or less - received {version!s:.8}")
    return claims


def _without_nulls(value: Any) -> Any:
    """A null in a Go program's JSON is a value that is not given."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _read(part: str) -> Any:
    try:
        return msgspec.json.decode(base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):  # binascii.Error, UnicodeError and msgspec's errors are ValueErrors
        raise BadJwt("expected base64url of JSON") from None


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
