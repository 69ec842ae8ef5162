"""Who is this? From the credentials in a CONNECT to a user, or to nobody.

The order is nats-server's: an nkey, then a user with a password, then the single token or user. `no_auth_user` stands
in for a client that sends nothing. A password or token that looks like `$2a$11$...` is a bcrypt hash. (We let a
`no_auth_user` with such a hash in; nats-server compares the hash with itself, and refuses.)

A client with an nkey proves that it has the key by a signature over the nonce of its INFO, as base64url.

`check` is synchronous and mostly cheap, but bcrypt takes its time on purpose (100 ms at nats-server's usual cost, 11):
ask `is_slow` first, and make the call in a thread, which is safe: nothing here changes after construction.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from jetlake import nkeys
from jetlake.broker.permissions import Permissions
from jetlake.errors import JetLakeError

if TYPE_CHECKING:
    from jetlake.jwt import Scope

AUTHORIZATION_VIOLATION = "Authorization Violation"  # the -ERR text for credentials that are not accepted

_BCRYPT = re.compile(r"\$2[abxy]\$[0-9]{2}\$", re.ASCII)
_BCRYPT_SIZE_MAX = 72  # bytes of a password that count


class BcryptMissing(JetLakeError):
    """A password is a bcrypt hash, and there is nothing to check it with."""

    def __init__(self) -> None:
        super().__init__("a bcrypt password needs the package bcrypt: pip install bcrypt")


GLOBAL_ACCOUNT = "$G"


class UserToken(NamedTuple):
    """What the token of a user says beside what it allows."""

    text: str
    issuer: str
    name: str
    tags: tuple[str, ...]
    issued_s: int
    scope: Scope | None
    is_bearer: bool


@dataclass(frozen=True)
class User:
    """Someone who may connect: by password, or by nkey, which is then the name too, or by a token."""

    name: str
    account: str = GLOBAL_ACCOUNT  # its name
    password: str = field(default="", repr=False)
    nkey: str = ""
    permissions: Permissions | None = field(default=None, compare=False)
    is_standard: bool = True  # may connect as plain clients do: there are no others here
    proxy_required: bool = False  # has to come through a trusted proxy
    max_subscriptions: int = -1
    max_payload: int = -1
    expires_ns: int = 0  # when the connection ends; 0: never
    token: UserToken | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class AuthOptions:
    """What the configuration says: a list of users, or a single token, or a single user; or nothing."""

    users: tuple[User, ...] = ()
    token: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    no_auth_user: str = ""
    maps_certificates: bool = False  # `verify_and_map`: who somebody is depends on the certificate
    has_callout: bool = False  # somebody else decides, whom the server has to ask


@dataclass(frozen=True)
class Credentials:
    """What a client says in its CONNECT; a missing field is empty."""

    user: str = ""
    password: str = field(default="", repr=False)
    auth_token: str = field(default="", repr=False)
    nkey: str = ""
    sig: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    host: str = ""
    connection_type: str = "STANDARD"
    certificate: bytes = field(default=b"", repr=False)  # of the client, if it says who it is
    proxy: str = ""  # the key of the trusted proxy through which the client came


class Authenticator:
    """Checks credentials against the users of one configuration. Raises BadNkey or BcryptMissing when made."""

    def __init__(self, options: AuthOptions) -> None:
        self._options = options
        self._users = {user.name: user for user in options.users if not user.nkey and user.is_standard}
        self._nkeys = {user.nkey: user for user in options.users if user.nkey and user.is_standard}
        self._keys = {nkey: nkeys.public_key(nkey, nkeys.USER) for nkey in self._nkeys}
        passwords = [options.token, options.password, *(user.password for user in options.users)]
        if any(map(is_bcrypt, passwords)):
            _bcrypt()

    @property
    def required(self) -> bool:
        """True when a client has to say who it is: `auth_required` in INFO."""
        return bool(self._options.users or self._options.username or self._options.token)

    @property
    def no_auth_user(self) -> User | None:
        """Who a client is that begins without a CONNECT; None when it may not. Nobody with an nkey."""
        return None if self._options.has_callout else self._users.get(self._options.no_auth_user)

    @property
    def needs_nonce(self) -> bool:
        """True when INFO has to carry a nonce to sign."""
        return bool(self._nkeys) or self._options.has_callout

    def has_user(self, name: str) -> bool:
        """True when there is a user of this name, or with this nkey."""
        return any(user.name == name for user in self._options.users)

    def is_slow(self, credentials: Credentials) -> bool:
        """True when `check` will compute a bcrypt hash, or does not decide alone."""
        if self._options.has_callout:
            return True
        if self._users and credentials.user:
            user = self._users.get(credentials.user)
            return user is not None and is_bcrypt(user.password)
        return is_bcrypt(self._options.token) or is_bcrypt(self._options.password)

    def check(self, credentials: Credentials, nonce: bytes = b"") -> User | None:
        """The user with these credentials, or None."""
        user = self._check(credentials, nonce)
        return None if user is not None and user.proxy_required and not credentials.proxy else user

    def _check(self, credentials: Credentials, nonce: bytes) -> User | None:
        if not self.required:
            return User(credentials.user)
        if self._nkeys and credentials.nkey:
            return self._check_nkey(credentials, nonce)
        if self._options.maps_certificates and self._users:
            from jetlake.broker.certificates import mapped_name  # few servers need it

            return self._users.get(mapped_name(credentials.certificate, self._users) or "")
        if not (credentials.user or credentials.password or credentials.auth_token):
            name = self._options.no_auth_user
            user = self._nkeys.get(name) or self._users.get(name)
            if user is not None:
                return user
        if self._users and credentials.user:
            return self._check_password(credentials)
        return self._check_single(credentials)

    def _check_nkey(self, credentials: Credentials, nonce: bytes) -> User | None:
        user = self._nkeys.get(credentials.nkey)
        if user is None or nkeys.is_signed(self._keys[user.nkey], nonce, credentials.sig):
            return user
        # Whoever says nothing becomes this user, so who names them proves nothing either.
        return user if user.nkey == self._options.no_auth_user else None

    def _check_password(self, credentials: Credentials) -> User | None:
        user = self._users.get(credentials.user)
        return user if user is not None and passwords_match(user.password, credentials.password) else None

    def _check_single(self, credentials: Credentials) -> User | None:
        options = self._options
        if options.token:
            return User("") if passwords_match(options.token, credentials.auth_token) else None
        if not options.username or options.username != credentials.user:
            return None
        return User(options.username) if passwords_match(options.password, credentials.password) else None


def is_bcrypt(password: str) -> bool:
    """True when a configured password is a hash."""
    return _BCRYPT.match(password) is not None


def passwords_match(configured: str, given: str) -> bool:
    """Compare with a configured password, or its hash, in a time that does not tell where they differ."""
    expected, found = (text.encode("utf-8", "surrogatepass") for text in (configured, given))
    if not is_bcrypt(configured):
        return hmac.compare_digest(expected, found)
    try:
        return bool(_bcrypt().checkpw(found[:_BCRYPT_SIZE_MAX], expected))
    except ValueError:  # a hash that is none
        return False


def _bcrypt() -> Any:
    try:
        return import_module("bcrypt")
    except ImportError:
        raise BcryptMissing from None
