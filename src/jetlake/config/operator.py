"""Operator mode: the keys `operator`, `resolver`, `resolver_preload` and their neighbours.

Tokens are decoded here, so that a file with a bad one is refused when it is read. What they allow is decided by the
broker, which also checks that an account is signed by an operator.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jetlake import jwt, nkeys
from jetlake.config.auth import nkey
from jetlake.config.options import OperatorOptions, ResolverOptions, ServerOptions, TlsOptions
from jetlake.config.read import (
    Section,
    as_list,
    as_map,
    boolean,
    duration_s,
    integer,
    keys,
    string,
)
from jetlake.config.value import ConfigError, Position, Value

FIELDS = ("operators", "trusted_keys", "resolver", "resolver_tls", "preload", "pinned_accounts", "default_sentinel")
_URL = re.compile(r"(?i)URL\(\s*(\S+?)\s*\)")
_DECORATED = re.compile(r"-----BEGIN [^\n]*-----\s*(\S+)\s*-+END [^\n]*-+")
_TOKEN_START = "eyJ"


def operators(value: Value, warnings: list[str]) -> tuple[str, ...]:
    """The tokens of operators: as text, or the names of files."""
    items = value.data if isinstance(value.data, list) else [value]
    return tuple(_operator(item, warnings) for item in items)


def _operator(value: Value, warnings: list[str]) -> str:
    text = string(value, warnings)
    if not text.startswith(_TOKEN_START):
        text = _read_token(text, value)
    try:
        jwt.read_operator(text)
    except jwt.BadJwt as error:
        raise value.error(f"expected the token of an operator, or a file with it: {error}") from None
    return text


def _read_token(path: str, value: Value) -> str:
    try:
        text = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise value.error(f"cannot read the operator's token: {error}") from None
    found = _DECORATED.search(text)
    return found[1] if found else text


def trusted_keys(value: Value, warnings: list[str]) -> tuple[str, ...]:
    """Public keys of operators, without a token."""
    read = nkey(nkeys.OPERATOR, "O", "an operator")
    items = value.data if isinstance(value.data, list) else [value]
    return tuple(read(item, warnings) for item in items)


RESOLVER = Section(
    "resolver",
    keys(
        kind=("type", string),
        directory=("dir", string),
        allow_delete=("", boolean),
        hard_delete=("", boolean),
        limit=("", integer(0)),
        ttl_s=("ttl", duration_s),
        timeout_s=("timeout", duration_s),
        interval_s=("interval", duration_s),
    ),
)


def resolver(value: Value, warnings: list[str]) -> ResolverOptions:
    """MEMORY, URL(...), or a map with a type and a directory."""
    if isinstance(value.data, dict):
        return _directory_resolver(value, warnings)
    text = string(value, warnings)
    if text.lower() in ("memory", "mem"):
        return ResolverOptions(kind="memory")
    found = _URL.fullmatch(text)
    if found is None:
        raise value.error(f"expected MEMORY, URL(...) or a map with a 'type', found {text!r}")
    if not found[1].lower().startswith(("http://", "https://")):
        raise value.error(f"expected a URL that begins with http:// or https://, found {found[1]!r}")
    return ResolverOptions(kind="url", url=found[1])


def _directory_resolver(value: Value, warnings: list[str]) -> ResolverOptions:
    fields = RESOLVER.read(value, warnings)
    kind = str(fields.get("kind", "")).lower()
    if kind in ("memory", "mem"):
        return ResolverOptions(kind="memory")
    if kind not in ("full", "cache"):
        raise value.error(f"expected the type 'full', 'cache' or 'memory', found {kind!r}")
    if not fields.get("directory"):
        raise value.error(f"a resolver of type {kind!r} needs a 'dir'")
    if kind == "cache" and (wrong := [name for name in ("allow_delete", "hard_delete") if fields.get(name)]):
        raise value.error(f"{wrong[0]!r} is for a resolver of type 'full'")
    if kind == "full" and fields.get("ttl_s"):
        raise value.error("'ttl' is for a resolver of type 'cache'")
    fields.pop("interval_s", None)  # how often full resolvers of a cluster compare what they have
    if fields.get("timeout_s", 1.0) <= 0:
        raise value.error("'timeout': expected a duration above zero")
    return ResolverOptions(**{**fields, "kind": kind})


def preload(value: Value, warnings: list[str]) -> dict[str, str]:
    """The tokens of accounts, by their public keys."""
    tokens = {}
    for account, item in as_map(value, "a map from accounts to their tokens").items():
        if item.used_as_variable:
            continue
        tokens[account] = string(item, warnings)
        try:
            claims, _ = jwt.read_account(tokens[account])
        except jwt.BadJwt as error:
            raise item.error(f"expected the token of an account: {error}") from None
        if claims.sub != account:
            raise item.error(f"the token is of {claims.sub}, not of {account}")
    return tokens


def pinned_accounts(value: Value, warnings: list[str]) -> frozenset[str]:
    """The accounts that users may be of."""
    read = nkey(nkeys.ACCOUNT, "A", "an account")
    return frozenset(read(item, warnings) for item in as_list(value, "an array of accounts"))


def sentinel(value: Value, warnings: list[str]) -> str:
    """The token of clients that show none."""
    text = string(value, warnings)
    try:
        claims, body = jwt.read_user(text)
    except jwt.BadJwt as error:
        raise value.error(f"expected the token of a user: {error}") from None
    if not body.bearer_token:
        raise value.error(f"the token of {claims.sub} is not a bearer token: nobody could sign for it")
    return text


def operator_options(fields: dict[str, Any], place: Position | None) -> OperatorOptions | None:
    """What the keys come to; they are taken out of the fields. Raises ConfigError."""
    found = {name: fields.pop(name) for name in FIELDS if name in fields}
    tokens, trusted = found.get("operators", ()), found.get("trusted_keys", ())
    if not tokens and not trusted:
        if found:
            raise ConfigError(f"{_key(next(iter(found)))!r} needs an 'operator' (or 'trusted' keys)", place)
        return None
    if tokens and trusted:
        raise ConfigError("conflicting options: 'trusted' keys cannot stand beside an 'operator'", place)
    resolver = found.get("resolver") or _default_resolver(tokens, place)
    if tls := found.get("resolver_tls"):
        resolver = _with_tls(resolver, tls, place)
    _check_system_account(tokens, fields, place)
    return OperatorOptions(
        tokens=tokens,
        keys=trusted,
        resolver=resolver,
        preload=found.get("preload", {}),
        pinned_accounts=found.get("pinned_accounts", frozenset()),
        default_sentinel=found.get("default_sentinel", ""),
    )


def _key(field: str) -> str:
    return {"preload": "resolver_preload", "pinned_accounts": "resolver_pinned_accounts"}.get(field, field)


def _default_resolver(tokens: tuple[str, ...], place: Position | None) -> ResolverOptions:
    """Where an operator says that its accounts can be had."""
    for token in tokens:
        url = jwt.read_operator(token)[1].account_server_url
        if url.lower().startswith(("http://", "https://")):
            return ResolverOptions(kind="url", url=f"{url.rstrip('/')}/accounts/")
    raise ConfigError("operators require an account resolver to be configured", place)


def _with_tls(resolver: ResolverOptions, tls: TlsOptions, place: Position | None) -> ResolverOptions:
    from msgspec.structs import replace

    if resolver.kind != "url":
        raise ConfigError("'resolver_tls' is for a resolver of the form URL(...)", place)
    return replace(resolver, tls=tls)


def _check_system_account(tokens: tuple[str, ...], fields: dict[str, Any], place: Position | None) -> None:
    """The operator's system account is the server's, unless the file names the same."""
    named = {jwt.read_operator(token)[1].system_account for token in tokens} - {""}
    own = fields.get("system_account", "")
    if own and named and own not in named:
        raise ConfigError("system_account in config and operator JWT must be identical", place)
    if not own and len(named) == 1:
        fields["system_account"] = named.pop()


def check_operator(options: ServerOptions, place: Position | None) -> None:
    """Rules between operator mode and other keys. Raises ConfigError."""
    operator = options.operator
    if operator is None:
        return
    if options.accounts:
        raise ConfigError("operators do not allow accounts to be configured directly", place)
    if options.users:
        raise ConfigError("operators do not allow users to be configured directly", place)
    if options.no_auth_user:
        raise ConfigError("no_auth_user not compatible with Trusted Operator", place)
    if operator.resolver.kind in ("full", "cache") and not options.system_account:
        raise ConfigError("a resolver with a directory needs a system account", place)
    if options.system_account and not nkeys.is_public(options.system_account, nkeys.ACCOUNT):
        raise ConfigError("system_account: expected the public key of an account", place)
