"""Who is this, in operator mode? From the token of a user, signed by a known account, to a user, or to nobody.

The order is nats-server's: the token and its times, the account, the signer, what the account says (bearers,
revocations), where and when the user may connect, and the signature over the nonce. A client that is refused is not
told why; the log says it, at debug level.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from jetlake import jwt, nkeys
from jetlake.broker.auth import Credentials, User, UserToken
from jetlake.broker.operator import BadAccount, KnownAccount, Operator, is_revoked
from jetlake.broker.token_options import user_permissions
from jetlake.clock import SECOND_NS
from jetlake.config.auth import CONNECTION_TYPES
from jetlake.errors import BadSubject, JetLakeError
from jetlake.jwt.claims import TimeRange, UserBody, UserLimits
from jetlake.jwt.template import Names, fill

_TOKENS_CACHED_MAX = 1024
_USERS_CACHED_MAX = 1024
_read_user = lru_cache(maxsize=_TOKENS_CACHED_MAX)(jwt.read_user)


class Refused(JetLakeError):
    """A user who may not connect, and why."""


class TokenAuthenticator:
    """Checks the tokens of users against the known accounts."""

    required = needs_nonce = True
    no_auth_user: User | None = None

    def __init__(self, operator: Operator, log: Callable[[str, str], None]) -> None:
        self._operator, self._log = operator, log
        self._users: dict[str, tuple[KnownAccount, User, UserLimits]] = {}

    def has_user(self, name: str) -> bool:
        """True: tokens are not listed, so nobody is known to be gone."""
        return True

    def account_of(self, credentials: Credentials) -> str:
        """The account whose token is needed to check these credentials; empty when they are no good anyway."""
        try:
            claims, body = _read_user(self._token(credentials))
        except jwt.BadJwt:
            return ""
        name = body.issuer_account or claims.iss
        pinned = self._operator.options.pinned_accounts
        return name if not pinned or name in pinned else ""

    def is_slow(self, credentials: Credentials) -> bool:
        """True when the account's token has to be fetched first, or somebody else is to be asked."""
        name = self.account_of(credentials)
        account = self._operator.accounts.get(name)
        return bool(name) and (account is None or bool(account.body.authorization.auth_users))

    def check(self, credentials: Credentials, nonce: bytes = b"") -> User | None:
        """The user with this token, or None."""
        try:
            return self._check(credentials, nonce)
        except (Refused, jwt.BadJwt, BadAccount, BadSubject) as error:
            self._log("debug", f"{credentials.host} - user refused: {error}")
            return None

    def _token(self, credentials: Credentials) -> str:
        return credentials.jwt or self._operator.options.default_sentinel

    def _check(self, credentials: Credentials, nonce: bytes) -> User:
        token = self._token(credentials)
        claims, body = _read_user(token)
        if problem := claims.time_problem(self._operator.now_s):
            raise Refused(problem)
        account = self._operator.accounts.get(self.account_of(credentials))
        if account is None:
            raise Refused("the account is not known")
        user, limits = self._user(token, account, claims, body)
        if account.is_expired(self._operator.now_s):
            raise Refused("the account is expired")
        if limits.bearer_token:
            if account.body.limits.disallow_bearer:
                raise Refused("the account does not allow bearer tokens")
        elif not nkeys.is_signed(nkeys.public_key(claims.sub, nkeys.USER), nonce, credentials.sig):
            raise Refused("the nonce is not signed by the user")
        if limits.proxy_required and not credentials.proxy:
            raise Refused("the user has to come through a trusted proxy")
        if is_revoked(account.body.revocations, claims.sub, claims.iat):
            raise Refused("the user is revoked")
        return permitted(user, limits, credentials, self._operator.now_s)

    def refresh(self, user: User, account: KnownAccount) -> User | None:
        """A connected user, with what it may do now; None when its signer is gone or has another scope."""
        assert user.token is not None
        try:
            changed, _ = self.make_user(user.token.text, account, *_read_user(user.token.text))
        except (Refused, jwt.BadJwt, BadAccount, BadSubject):
            return None
        if changed.token is None or changed.token.scope != user.token.scope:
            return None
        return replace(changed, name=user.name, expires_ns=user.expires_ns)

    def _user(self, token: str, account: KnownAccount, claims: jwt.Claims, body: UserBody) -> tuple[User, UserLimits]:
        """The user of a token, remembered for as long as the account stays as it is."""
        found = self._users.get(token)
        if found is not None and found[0] is account:
            return found[1:]
        user, limits = self.make_user(token, account, claims, body)
        while len(self._users) >= _USERS_CACHED_MAX:
            del self._users[next(iter(self._users))]
        self._users[token] = (account, user, limits)
        return user, limits

    def make_user(
        self, token: str, account: KnownAccount, claims: jwt.Claims, body: UserBody
    ) -> tuple[User, UserLimits]:
        """The user that an account's key signed, with what it may do. Raises BadAccount, BadJwt or BadSubject."""
        scope = self._operator.signer_scope(account, claims.iss)
        limits: UserLimits = body
        if scope is not None:
            if not body.is_unlimited_by_itself:
                raise Refused("a user of a scope has permissions or limits of its own")
            limits = fill(
                scope.template,
                Names(claims.name, claims.sub, body.tags),
                Names(account.claims.name, account.name, account.body.tags),
            )
        user = plain_user(token, account.name, claims, limits, tuple(body.tags), scope)
        if user.permissions is None:
            user = replace(user, permissions=user_permissions(account.body.default_permissions))
        return user, limits


def plain_user(
    token: str,
    account: str,
    claims: jwt.Claims,
    limits: UserLimits,
    tags: tuple[str, ...] = (),
    scope: jwt.Scope | None = None,
) -> User:
    """The user that a token tells of, in an account. Raises BadSubject."""
    return User(
        claims.sub,
        account,
        permissions=user_permissions(limits),
        max_subscriptions=limits.subs,
        max_payload=limits.payload,
        expires_ns=claims.exp * SECOND_NS,
        token=UserToken(token, claims.iss, claims.name, tags, claims.iat, scope, limits.bearer_token),
    )


def permitted(user: User, limits: UserLimits, credentials: Credentials, now_s: float) -> User:
    """The user, if it may come from here, now, and like this. Raises Refused."""
    if not _is_allowed_type(limits.allowed_connection_types, credentials.connection_type):
        raise Refused(f"connections of type {credentials.connection_type} are not allowed")
    if limits.sources and not is_in_networks(credentials.host, limits.sources):
        raise Refused("the address is not one that the user may come from")
    if not limits.times:
        return user
    ends_ns = allowed_until_ns(limits.times, limits.times_location, now_s)
    if not ends_ns:
        raise Refused("the user may not connect at this time of the day")
    return replace(user, expires_ns=min(user.expires_ns or ends_ns, ends_ns))


def _is_allowed_type(allowed: list[str], kind: str) -> bool:
    """As in nats-server: names that are not known are passed over, but not if there are no others."""
    known = {name.upper() for name in allowed} & CONNECTION_TYPES
    return not allowed or kind in known


def is_in_networks(host: str, networks: list[str]) -> bool:
    """True when an address is in one of these networks."""
    try:
        address = ipaddress.ip_address(host)
        return any(address in ipaddress.ip_network(network, strict=False) for network in networks)
    except ValueError:
        return False


def allowed_until_ns(ranges: list[TimeRange], location: str, now_s: float) -> int:
    """The end of the part of the day that it is now; 0 when it is none of them."""
    try:
        zone: tzinfo | None = ZoneInfo(location) if location else None
        now = datetime.fromtimestamp(now_s, zone)
        for found in ranges:
            start, end = (time.fromisoformat(text) for text in (found.start, found.end))
            last = now.date() + timedelta(days=start > end)  # the end is tomorrow's, as in nats-server
            begins, ends = datetime.combine(now.date(), start, zone), datetime.combine(last, end, zone)
            if begins < now < ends:
                return int(ends.timestamp() * SECOND_NS)
    except (LookupError, ValueError, OSError):  # a zone or a time that is none
        return 0
    return 0
