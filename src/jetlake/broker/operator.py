"""Operator mode: whom the server trusts, the accounts it knows by their tokens, and what those share.

An account becomes known when its token was fetched and is good: signed by a trusted key, sound, and not expired. What
an account may have of others depends on their exports, on the tokens of its imports, and on the time; `imports` says
what holds now, and `next_change_s` when that ends. An import that does not hold is left out: requests find nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jetlake import jwt
from jetlake.broker.token_options import account_options
from jetlake.clock import SECOND_NS, Clock
from jetlake.config import AccountOptions, Export, Import, OperatorOptions, SubjectMapping
from jetlake.errors import BadRequest, BadSubject, JetLakeError
from jetlake.subjects import is_subset

_ANYBODY = "*"


class BadOperator(JetLakeError):
    """An operator that this server cannot serve."""


class BadAccount(JetLakeError):
    """A token with which an account cannot be used."""


class KnownAccount(NamedTuple):
    """An account and its token."""

    token: str
    claims: jwt.Claims
    body: jwt.AccountBody
    options: AccountOptions  # without imports

    @property
    def name(self) -> str:
        return self.claims.sub

    def is_expired(self, now_s: float) -> bool:
        """True when it cannot be used any more."""
        return 0 < self.claims.exp <= now_s


class Operator:
    """Trusted keys and known accounts."""

    def __init__(self, options: OperatorOptions, clock: Clock, version: str) -> None:
        """Raises BadOperator when one wants a newer server than this version."""
        self.options, self._clock = options, clock
        self.operators = [jwt.read_operator(token) for token in options.tokens]
        self._trusted = set(options.keys)
        self._strict: set[str] = set()  # keys whose accounts sign users by signing keys only
        for claims, body in self.operators:
            _check_version(claims.sub, body.assert_server_version, version)
            keys = {*body.signing_keys, *(() if body.strict_signing_key_usage else (claims.sub,))}
            self._trusted |= keys
            if body.strict_signing_key_usage:
                self._strict |= keys
        self.accounts: dict[str, KnownAccount] = {}

    @property
    def now_s(self) -> float:
        return self._clock() / SECOND_NS

    def is_trusted(self, key: str) -> bool:
        """True when accounts may be signed by this key."""
        return key in self._trusted

    def read(self, token: str) -> KnownAccount:
        """The account of a token that may be used. Raises BadAccount or BadJwt."""
        claims, body = jwt.read_account(token)
        if not self.is_trusted(claims.iss):
            raise BadAccount(f"the account {claims.sub} is signed by {claims.iss}, which is not trusted")
        if problem := claims.time_problem(self.now_s):
            raise BadAccount(f"the account {claims.sub}: {problem}")
        if problems := jwt.account_problems(claims.sub, body):
            raise BadAccount(f"the account {claims.sub}: {problems[0]}")
        return KnownAccount(token, claims, body, account_options(claims, body))

    def signer_scope(self, account: KnownAccount, issuer: str) -> jwt.Scope | None:
        """The scope of a key that signs users of this account. Raises BadAccount when it is none of its keys."""
        scopes = account.body.scopes
        if issuer in scopes:
            return scopes[issuer]
        if issuer != account.name or account.claims.iss in self._strict:
            raise BadAccount(f"{issuer} may not sign users of the account {account.name}")
        return None

    # What accounts share

    def importers(self, exporter: str) -> list[str]:
        """The known accounts that want something of this one."""
        return [
            name
            for name, account in self.accounts.items()
            if any(found.account == exporter for found in account.body.imports)
        ]

    def imports(self, name: str) -> tuple[Import, ...]:
        """What an account has of others now."""
        account = self.accounts[name]
        found = (self._import(account, wanted) for wanted in account.body.imports)
        return tuple(item for item in found if item is not None)

    def next_change_s(self, name: str, since_s: float) -> int:
        """When something of an account expires that had not at `since_s`, itself or an import; 0: never."""
        account = self.accounts[name]
        times = [account.claims.exp, *(exp for wanted in account.body.imports for exp in _token_expiry(wanted))]
        return min((time for time in times if time > since_s), default=0)

    def _import(self, account: KnownAccount, wanted: jwt.Import) -> Import | None:
        exporter = self.accounts.get(wanted.account)
        if exporter is None or exporter.is_expired(self.now_s):
            return None
        try:
            mapping = SubjectMapping(wanted.wanted, wanted.local)
        except (BadRequest, BadSubject):
            return None
        if wanted.type == "stream" and mapping.has_spare_wildcards:
            return None
        for offer in exporter.options.exports:
            if self._allows(exporter, offer, account, wanted):
                found = Import(
                    kind=wanted.type,
                    account=wanted.account,
                    subject=wanted.wanted,
                    local=wanted.local,
                    share=wanted.share,
                    allow_trace=wanted.allow_trace,
                )
                return found.as_offered(offer)
        return None

    def _allows(self, exporter: KnownAccount, offer: Export, account: KnownAccount, wanted: jwt.Import) -> bool:
        if offer.kind != wanted.type or not is_subset(wanted.wanted, offer.subject):
            return False
        if position := offer.account_token_position:
            return wanted.wanted.split(".")[position - 1] == account.name
        return not offer.needs_token or self._is_activated(exporter, offer, account, wanted)

    def _is_activated(self, exporter: KnownAccount, offer: Export, account: KnownAccount, wanted: jwt.Import) -> bool:
        try:
            claims, body = jwt.read_activation(wanted.token)
            if body.issuer_account:
                self.signer_scope(exporter, claims.iss)
        except (jwt.BadJwt, BadAccount):
            return False
        return (
            (body.issuer_account or claims.iss) == exporter.name
            and claims.sub == account.name
            and claims.time_problem(self.now_s) is None
            and not is_revoked(offer.revocations, account.name, claims.iat)
        )


def _check_version(name: str, wanted: str, version: str) -> None:
    if not wanted:
        return
    try:
        newer = [int(part) for part in wanted.split(".")] > [int(part) for part in version.split(".")]
    except ValueError:
        raise BadOperator(f"operator {name} expects the server version {wanted!r}, which is none") from None
    if newer:
        raise BadOperator(f"operator {name} expects server version {wanted} or newer; this is {version}")


def _token_expiry(wanted: jwt.Import) -> Iterator[int]:
    if wanted.token:
        try:
            yield jwt.read_activation(wanted.token)[0].exp
        except jwt.BadJwt:
            return


def is_revoked(revocations: dict[str, int], who: str, issued_s: int) -> bool:
    """True when what was issued then to this key counts no more."""
    return any(revocations.get(key, -1) >= issued_s for key in (who, _ANYBODY))
