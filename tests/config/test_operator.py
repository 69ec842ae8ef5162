"""The keys of operator mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetlake.config import ConfigError, OperatorOptions, ResolverOptions, load_text
from tests.jwt.tokens import ACCOUNT, OPERATOR, OTHER, USER, token

TOKEN = token(OPERATOR, OPERATOR, "operator", system_account=ACCOUNT.public)
BARE = token(OPERATOR, OPERATOR, "operator")
SYSTEM = token(OPERATOR, ACCOUNT, "account")
BEARER = token(ACCOUNT, USER, "user", bearer_token=True)
MEMORY = f"operator: {TOKEN}\nresolver: MEMORY\n"


def operator(text: str) -> OperatorOptions:
    found = load_text(text, "f.conf", {}).operator
    assert found is not None
    return found


def test_a_configuration_as_nsc_makes_it() -> None:
    options = load_text(
        f"// Operator OP\noperator: {TOKEN}\n\nsystem_account: {ACCOUNT.public}\n\nresolver: MEMORY\n\n"
        f"resolver_preload: {{\n  // Account SYS\n  {ACCOUNT.public}: {SYSTEM}\n\n}}\n",
        "f.conf",
        {},
    )
    assert options.system_account == ACCOUNT.public and options.warnings == ()
    assert options.operator == OperatorOptions(tokens=(TOKEN,), preload={ACCOUNT.public: SYSTEM})


def test_the_token_may_be_in_a_file(tmp_path: Path) -> None:
    for text in (BARE, f"-----BEGIN NATS OPERATOR JWT-----\n{BARE}\n------END NATS OPERATOR JWT------\n"):
        (tmp_path / "op.jwt").write_text(text)
        assert operator(f'operators: ["{tmp_path}/op.jwt"]\nresolver: MEM').tokens == (BARE,)


def test_the_system_account_is_the_operators() -> None:
    assert load_text(MEMORY, "f.conf", {}).system_account == ACCOUNT.public


def test_keys_without_a_token() -> None:
    assert operator(f"trusted: {OPERATOR.public}\nresolver: MEMORY").keys == (OPERATOR.public,)


def test_resolvers() -> None:
    text = f'operator: {TOKEN}\nresolver {{ type: full, dir: "d", allow_delete: true, limit: 9, interval: "2m" }}'
    assert operator(text).resolver == ResolverOptions(kind="full", directory="d", allow_delete=True, limit=9)
    text = f'operator: {TOKEN}\nresolver {{ type: CACHE, dir: "d", ttl: "1h", timeout: "5s" }}'
    assert operator(text).resolver == ResolverOptions(kind="cache", directory="d", ttl_s=3600.0, timeout_s=5.0)
    found = operator(f'operator: {TOKEN}\nresolver: URL(https://h/)\nresolver_tls {{ ca_file: "c" }}').resolver
    assert (found.kind, found.url) == ("url", "https://h/") and found.tls is not None and found.tls.ca_file == "c"
    at_operator = token(OPERATOR, OPERATOR, "operator", account_server_url="http://h/jwt/v1")
    assert operator(f"operator: {at_operator}").resolver.url == "http://h/jwt/v1/accounts/"


def test_other_keys() -> None:
    found = operator(f"{MEMORY}resolver_pinned_accounts: [{OTHER.public}]\ndefault_sentinel: {BEARER}")
    assert found.pinned_accounts == {OTHER.public} and found.default_sentinel == BEARER


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("resolver: MEMORY", "'resolver' needs an 'operator'"),
        (f"operator: {BARE}", "operators require an account resolver to be configured"),
        ("operator: eyJx", "expected 3 chunks"),
        ("operator: /no/such/file", "cannot read the operator's token"),
        (f"operator: {SYSTEM}\nresolver: MEMORY", "not operator claim"),
        (f"{MEMORY}trusted: {OPERATOR.public}", "conflicting options"),
        (f"{MEMORY}accounts {{ A {{}} }}", "do not allow accounts to be configured directly"),
        (f"{MEMORY}authorization {{ users: [{{user: a, password: b}}] }}", "do not allow users"),
        (f"{MEMORY}system_account: {OTHER.public}", "must be identical"),
        (f"operator: {TOKEN}\nresolver: OTHER", "expected MEMORY, URL(...) or a map"),
        (f"operator: {TOKEN}\nresolver: URL(ftp://x)", "begins with http:// or https://"),
        (f"operator: {TOKEN}\nresolver {{ type: full }}", "needs a 'dir'"),
        (f"operator: {TOKEN}\nresolver {{ type: other }}", "expected the type"),
        (f'operator: {TOKEN}\nresolver {{ type: cache, dir: "d", allow_delete: true }}', "is for a resolver of type"),
        (f'operator: {TOKEN}\nresolver {{ type: full, dir: "d", ttl: "1h" }}', "'ttl' is for a resolver"),
        (f'operator: {BARE}\nresolver {{ type: full, dir: "d" }}', "needs a system account"),
        (f"{MEMORY}resolver_tls {{ }}", "'resolver_tls' is for a resolver of the form URL"),
        (f"{MEMORY}resolver_preload {{ {ACCOUNT.public}: x }}", "expected the token of an account"),
        (f"{MEMORY}resolver_preload {{ {OTHER.public}: {SYSTEM} }}", f"the token is of {ACCOUNT.public}"),
        (f"{MEMORY}resolver_pinned_accounts: [x]", "expected a public nkey of an account"),
        (f"{MEMORY}default_sentinel: {token(ACCOUNT, USER, 'user')}", "is not a bearer token"),
        (f"{MEMORY}default_sentinel: x", "expected the token of a user"),
    ],
)
def test_a_mistake_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_text(text, "f.conf", {})
    assert problem in str(refused.value)
