"""The claims of each kind of token."""

from __future__ import annotations

import pytest

from jetlake import jwt
from jetlake.jwt import BadJwt
from jetlake.jwt.claims import Import, UserLimits
from tests.jwt.tokens import ACCOUNT, OPERATOR, OTHER, USER, token


def test_numbers_that_are_not_given_are_zero() -> None:
    _, account = jwt.read_account(token(OPERATOR, ACCOUNT, "account"))
    assert account.limits.conn == account.limits.subs == 0
    _, user = jwt.read_user(token(ACCOUNT, USER, "user"))
    assert user.subs == user.payload == 0 and user.is_unlimited_by_itself


def test_a_null_is_a_value_that_is_not_given() -> None:
    _, account = jwt.read_account(token(OPERATOR, ACCOUNT, "account", imports=None, limits={"conn": None}))
    assert account.imports == [] and account.limits.conn == 0


def test_the_kind_of_a_token_and_of_its_keys_has_to_fit() -> None:
    for text in (token(ACCOUNT, USER, "account"), token(OPERATOR, ACCOUNT, "user"), token(ACCOUNT, ACCOUNT, "user")):
        with pytest.raises(BadJwt):
            jwt.read_user(text)
    with pytest.raises(BadJwt, match="claims: "):
        jwt.read_account(token(OPERATOR, ACCOUNT, "account", limits={"conn": "many"}))
    with pytest.raises(BadJwt):
        jwt.read_operator(token(ACCOUNT, OPERATOR, "operator"))
    with pytest.raises(BadJwt, match="not activation claim"):
        jwt.read_activation(token(ACCOUNT, OTHER, "user"))


def test_signing_keys_with_and_without_a_scope() -> None:
    scope = {"kind": "user_scope", "key": OTHER.public, "template": {"subs": 5}}
    _, account = jwt.read_account(token(OPERATOR, ACCOUNT, "account", signing_keys=[ACCOUNT.public, scope]))
    found = account.scopes[OTHER.public]
    assert account.scopes[ACCOUNT.public] is None and found is not None and found.template.subs == 5


def test_sources_are_a_list_or_a_text() -> None:
    assert UserLimits(src="10.0.0.0/8, ::1/128,").sources == ["10.0.0.0/8", "::1/128"]
    assert UserLimits(src=["10.0.0.0/8"]).sources == ["10.0.0.0/8"]


@pytest.mark.parametrize(
    ("found", "wanted", "local"),
    [
        (Import(type="service", subject="q"), "q", "q"),
        (Import(type="service", subject="q", local_subject="ask"), "q", "ask"),
        (Import(type="service", subject="ask", to="q"), "q", "ask"),
        (Import(type="stream", subject="s", to="in"), "s", "in.s"),
        (Import(type="stream", subject="s", local_subject="in.x"), "s", "in.x"),
    ],
)
def test_what_an_import_is_called_on_both_sides(found: Import, wanted: str, local: str) -> None:
    assert (found.wanted, found.local) == (wanted, local)
