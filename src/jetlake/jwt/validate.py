"""What is wrong with the claims of an account: whoever stores or uses a token asks first.

The texts are those of nats-server, as its answers to `$SYS.REQ.CLAIMS.UPDATE` show them.
"""

from __future__ import annotations

from collections.abc import Iterator

from jetlake import nkeys
from jetlake.errors import BadSubject
from jetlake.jwt.claims import AccountBody, AccountLimits, Export, Import, read_activation
from jetlake.jwt.envelope import BadJwt
from jetlake.subjects import check_filter, is_subset

_KINDS = ("service", "stream")
_RESPONSE_TYPES = ("", "Singleton", "Stream", "Chunked")
_WEIGHT_MAX = 100


def account_problems(account_id: str, body: AccountBody) -> list[str]:
    """All that is wrong, times apart; nothing for an account that can be used."""
    return [
        *_limit_problems(body),
        *(problem for found in body.imports for problem in _import_problems(account_id, found)),
        *(problem for found in body.exports for problem in _export_problems(found)),
        *_key_problems(body),
        *_authorization_problems(body),
        *_mapping_problems(body),
    ]


def _limit_problems(body: AccountBody) -> Iterator[str]:
    limits = body.limits
    if "" in limits.tiered_limits:
        yield "tiered JetStream Limits can not contain a blank tier name"
    if limits == AccountLimits():
        return
    # Wildcards are looked at only where exports are limited, as in nats-server.
    if 0 <= limits.imports < len(body.imports):
        yield "the account contains more imports than allowed by the operator"
    if 0 <= limits.exports < len(body.exports):
        yield "the account contains more exports than allowed by the operator"
    if limits.exports >= 0 and not limits.wildcards and any(_has_wildcard(found.subject) for found in body.exports):
        yield "the account contains wildcard exports that are not allowed by the operator"


def _has_wildcard(subject: str) -> bool:
    return bool({"*", ">"} & set(subject.split(".")))


def _import_problems(account_id: str, found: Import) -> Iterator[str]:
    if found.type not in _KINDS:
        yield f'invalid import type: "{found.type or "unknown"}"'
    if not found.account:
        yield "account to import from is not specified"
    if found.local_subject and found.to:
        yield "Local Subject replaces To"
    yield from _subject_problems(found.subject)
    if found.token:
        yield from _activation_problems(account_id, found)


def _activation_problems(account_id: str, found: Import) -> Iterator[str]:
    try:
        claims, body = read_activation(found.token)
    except BadJwt:
        yield f'import "{found.subject}" contains an invalid activation token'
        return
    if found.account not in (claims.iss, body.issuer_account):
        yield f'activation token doesn\'t match account for import "{found.subject}"'
    if claims.sub != account_id:
        yield f'activation token doesn\'t match account it is being included in, "{found.subject}"'
    if body.kind != found.type:
        yield f"mismatch between token import type {body.kind} and type of import {found.type}"
    if not _is_subset(found.wanted, body.subject):
        yield f'activation token import subject "{body.subject}" doesn\'t match import "{found.subject}"'


def _export_problems(found: Export) -> Iterator[str]:
    if found.type not in _KINDS:
        yield f'invalid export type: "{found.type or "unknown"}"'
    if found.response_type not in _RESPONSE_TYPES:
        yield f'invalid response type for service: "{found.response_type}"'
    if found.type == "stream" and found.response_type:
        yield f'invalid response type for stream: "{found.response_type}"'
    if found.type == "stream" and found.response_threshold:
        yield "response threshold only valid for services"
    yield from _subject_problems(found.subject)
    if position := found.account_token_position:
        tokens = found.subject.split(".")
        if not _has_wildcard(found.subject):
            yield f"Account Token Position can only be used with wildcard subjects: {found.subject}"
        elif position > len(tokens):
            yield f"Account Token Position {position} exceeds length of subject '{found.subject}'"
        elif tokens[position - 1] != "*":
            yield f"Account Token Position {position} matches '{tokens[position - 1]}' but must match a *"


def _key_problems(body: AccountBody) -> Iterator[str]:
    for key, scope in body.scopes.items():
        if not nkeys.is_public(key, nkeys.ACCOUNT):
            yield f"{key} is not an account public key"
        if scope is not None and scope.kind != "user_scope":
            yield f"unknown scope {scope.kind} of the signing key {key}"


def _authorization_problems(body: AccountBody) -> Iterator[str]:
    external = body.authorization
    if (external.allowed_accounts or external.xkey) and not external.auth_users:
        yield "External authorization cannot have accounts without users specified"
    for user in external.auth_users:
        if not nkeys.is_public(user, nkeys.USER):
            yield f'AuthUser "{user}" is not a valid user public key'
    for account in external.allowed_accounts:
        if account != "*" and not nkeys.is_public(account, nkeys.ACCOUNT):
            yield f'Account "{account}" is not a valid account public key'
    if "*" in external.allowed_accounts and len(external.allowed_accounts) > 1:
        yield 'AllowedAccounts can only be a list of accounts or "*"'
    if external.xkey and not nkeys.is_public(external.xkey, nkeys.CURVE):
        yield f'XKey "{external.xkey}" is not a valid public xkey'


def _mapping_problems(body: AccountBody) -> Iterator[str]:
    for source, targets in body.mappings.items():
        yield from _subject_problems(source)
        by_cluster: dict[str, int] = {}
        for target in targets:
            weight = by_cluster[target.cluster] = by_cluster.get(target.cluster, 0) + (target.weight or _WEIGHT_MAX)
            if weight > _WEIGHT_MAX:
                yield f'Mapping "{source}" exceeds 100% among all of it\'s weighted to mappings'


def _subject_problems(subject: str) -> Iterator[str]:
    try:
        check_filter(subject)
    except BadSubject:
        yield f'subject "{subject}" is not valid' if subject else "subject cannot be empty"


def _is_subset(subject: str, pattern: str) -> bool:
    try:
        return is_subset(subject, pattern)
    except BadSubject:
        return False
