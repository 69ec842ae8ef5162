"""Tokens: what is signed is read; anything else is refused with a reason."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake import jwt, nkeys
from jetlake.jwt import BadJwt
from tests.jwt.tokens import ACCOUNT, OPERATOR, USER, token


def test_what_is_signed_is_read() -> None:
    claims = jwt.decode(token(ACCOUNT, USER, "user", x=1), nkeys.ACCOUNT)
    assert (claims.iss, claims.sub, claims.name, claims.iat) == (ACCOUNT.public, USER.public, "n", 1)
    assert claims.type == "user" and claims.nats["x"] == 1


def part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}


def signed(header: Any, claims: Any) -> str:
    text = f"{part(header)}.{part(claims)}"
    return f"{text}.{base64.urlsafe_b64encode(ACCOUNT.sign(text.encode())).decode().rstrip('=')}"


CLAIMS = {"iss": ACCOUNT.public, "sub": USER.public, "nats": {"version": 2}}


@pytest.mark.parametrize("header", [{**HEADER, "typ": "jwt"}, {**HEADER, "alg": "ED25519"}])
def test_headers_that_are_accepted(header: Any) -> None:
    assert jwt.decode(signed(header, CLAIMS), nkeys.ACCOUNT).sub == USER.public


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected 3 chunks"),
        ("a.b", "expected 3 chunks"),
        ("a" * 2_000_000 + "..", "expected 3 chunks"),
        ("!.b.c", "expected base64url of JSON"),
        (signed("x", CLAIMS), 'not supported type ""'),
        (signed({**HEADER, "typ": "x"}, CLAIMS), 'not supported type "x"'),
        (signed({**HEADER, "alg": "none"}, CLAIMS), 'unexpected "none" algorithm'),
        (signed(HEADER, []), "claims: "),
        (signed(HEADER, {**CLAIMS, "exp": "soon"}), "claims: "),
        (signed(HEADER, {**CLAIMS, "nats": {"version": 3}}), "library supports version 2 or less - received 3"),
        (signed(HEADER, {**CLAIMS, "nats": {}}), "library supports version 2 or less - received 0"),
        (signed(HEADER, {**CLAIMS, "iss": OPERATOR.public}), "unable to validate expected prefixes"),
        (signed(HEADER, {**CLAIMS, "iss": "x"}), "unable to validate expected prefixes"),
        (signed(HEADER, CLAIMS)[:-4] + "AAAA", "claim failed V2 signature verification"),
        (signed(HEADER, CLAIMS).replace(part(CLAIMS), part({**CLAIMS, "sub": "x"})), "claim failed V2"),
    ],
)
def test_a_bad_token_is_refused_with_a_reason(text: str, problem: str) -> None:
    with pytest.raises(BadJwt) as refused:
        jwt.decode(text, nkeys.ACCOUNT)
    assert str(refused.value).startswith(problem)


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda data: part(data.hex()) + ".." + part(data.hex())))
def test_no_text_raises_anything_else(text: str) -> None:
    with pytest.raises(BadJwt):
        jwt.read_user(text)


def test_deep_json_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 100_000 + b"]" * 100_000).decode().rstrip("=")
    with pytest.raises(BadJwt):
        jwt.decode(f"{part(HEADER)}.{deep}.x", nkeys.ACCOUNT)


@pytest.mark.parametrize(
    ("times", "problem"),
    [
        ({}, None),
        ({"exp": 99}, "claim is expired"),
        ({"exp": 101}, None),
        ({"nbf": 101}, "claim is not yet valid"),
        ({"nbf": 99}, None),
    ],
)
def test_times(times: dict[str, int], problem: str | None) -> None:
    assert jwt.Claims(**times).time_problem(100.0) == problem
