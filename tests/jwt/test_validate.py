"""What is wrong with an account."""

from __future__ import annotations

from typing import Any

import pytest

from jetlake import jwt
from jetlake.jwt.claims import convert
from tests.jwt.tokens import ACCOUNT, OPERATOR, OTHER, USER, token

IMPORT = {"account": OTHER.public, "subject": "a.b", "type": "service"}
UNLIMITED = {"imports": -1, "exports": -1, "conn": -1, "wildcards": True}


def problems(**nats: Any) -> list[str]:
    return jwt.account_problems(ACCOUNT.public, convert(nats, jwt.AccountBody))


def test_a_sound_account() -> None:
    activation = token(OTHER, ACCOUNT, "activation", subject="a.*", kind="service")
    assert problems() == problems(limits=UNLIMITED) == []
    assert problems(limits=UNLIMITED, imports=[{**IMPORT, "token": activation}]) == []
    position = {"subject": "a.*.b", "type": "service", "account_token_position": 2}
    assert problems(limits=UNLIMITED, exports=[position], signing_keys=[OTHER.public]) == []
    assert problems(authorization={"auth_users": [USER.public], "allowed_accounts": ["*"]}) == []
    assert problems(mappings={"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 40}]}) == []


@pytest.mark.parametrize(
    ("nats", "problem"),
    [
        ({"imports": [{**IMPORT, "type": "x"}]}, 'invalid import type: "x"'),
        ({"imports": [{**IMPORT, "account": ""}]}, "account to import from is not specified"),
        ({"imports": [{**IMPORT, "subject": "a..b"}]}, 'subject "a..b" is not valid'),
        ({"imports": [{**IMPORT, "to": "x", "local_subject": "y"}]}, "Local Subject replaces To"),
        ({"imports": [{**IMPORT, "token": "x"}]}, 'import "a.b" contains an invalid activation token'),
        ({"exports": [{"subject": "a", "type": ""}]}, 'invalid export type: "unknown"'),
        ({"exports": [{"subject": "", "type": "stream"}]}, "subject cannot be empty"),
        ({"exports": [{"subject": "a", "type": "service", "response_type": "x"}]}, "invalid response type"),
        ({"exports": [{"subject": "a", "type": "stream", "response_type": "Stream"}]}, "invalid response type"),
        ({"exports": [{"subject": "a", "type": "stream", "response_threshold": 1}]}, "response threshold only"),
        ({"exports": [{"subject": "a.b", "type": "service", "account_token_position": 1}]}, "Account Token Position"),
        ({"exports": [{"subject": "a.*", "type": "service", "account_token_position": 1}]}, "Account Token Position"),
        ({"exports": [{"subject": "a.*", "type": "service", "account_token_position": 3}]}, "Account Token Position"),
        ({"signing_keys": [USER.public]}, f"{USER.public} is not an account public key"),
        ({"signing_keys": [{"key": OTHER.public, "kind": "x"}]}, "unknown scope x"),
        ({"limits": {"tiered_limits": {"": {}}}}, "tiered JetStream Limits can not contain a blank tier name"),
        ({"authorization": {"allowed_accounts": ["*"]}}, "External authorization cannot have accounts"),
        ({"authorization": {"auth_users": ["x"]}}, 'AuthUser "x" is not a valid user public key'),
        ({"authorization": {"auth_users": [USER.public], "xkey": "x"}}, 'XKey "x" is not a valid public xkey'),
        ({"authorization": {"auth_users": [USER.public], "allowed_accounts": ["x"]}}, 'Account "x" is not'),
        ({"mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 41}]}}, 'Mapping "a" exceeds'),
    ],
)
def test_what_is_wrong_is_said(nats: dict[str, Any], problem: str) -> None:
    found = problems(**nats)
    assert found and found[0].startswith(problem)


@pytest.mark.parametrize(
    "activation",
    [
        token(ACCOUNT, ACCOUNT, "activation", subject="a.b", kind="service"),
        token(OTHER, OTHER, "activation", subject="a.b", kind="service"),
        token(OTHER, ACCOUNT, "activation", subject="a.b", kind="stream"),
        token(OTHER, ACCOUNT, "activation", subject="a.c", kind="service"),
        token(OTHER, ACCOUNT, "activation", subject="a..", kind="service"),
        token(OPERATOR, ACCOUNT, "account"),
    ],
)
def test_an_activation_that_does_not_fit(activation: str) -> None:
    assert len(problems(imports=[{**IMPORT, "token": activation}])) == 1
