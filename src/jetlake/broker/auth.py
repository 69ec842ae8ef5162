"""Who is this? From the credentials in a CONNECT to a user, or to nobody.

The order is nats-server's: an nkey, then a user with a password, then the single token or user. `no_auth_user` stands
in for a client that sends nothing. A password or token that looks like `$2a$11$...` is a bcrypt hash. (We let a
`no_auth_user` with such a hash in; nats-server compares the hash with itself, and refuses.)

An nkey is an ed25519 key as text: base32 (no padding) of a prefix byte, the 32 bytes, and a CRC-16 (XMODEM, low byte
first) of both. Public keys of users begin with U. The client proves that it has the key by a signature over the nonce
of its INFO, as base64url.

`check` is synchronous and mostly cheap, but bcrypt takes its time on purpose (100 ms at nats-server's usual cost, 11):
ask `is_slow` first, and make the call in a thread, which is safe: nothing here changes after construction.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from jetlake.broker.permissions import Permissions
from jetlake.errors import BadRequest, JetLakeError

if TYPE_CHECKING:  # few servers have users with nkeys, and all wait for what is imported
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

AUTHORIZATION_VIOLATION = "Authorization Violation"  # the -ERR text for credentials that are not accepted

_BCRYPT = re.compile(r"\$2[abxy]\$[0-9]{2}\$", re.ASCII)
_BCRYPT_SIZE_MAX = 72  # bytes of a password that count
_NKEY_SIZE = 32
_NKEY_USER = 20 << 3  # `U` in base32


class BadNkey(BadRequest):
    """Text that is not the public nkey of a user."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"nkey {text[:8]}...: {problem}")
        self.problem = problem


class BcryptMissing(JetLakeError):
    """A password is a bcrypt hash, and there is nothing to check it with."""

    def __init__(self) -> None:
        super().__init__("a bcrypt password needs the package bcrypt: pip install bcrypt")


@dataclass(frozen=True)
class Account:
    """A world of subjects of its own."""

    name: str


GLOBAL_ACCOUNT = Account("$G")


@dataclass(frozen=True)
class User:
    """Someone who may connect: by password, or by nkey, which is then the name too."""

    name: str
    account: Account = GLOBAL_ACCOUNT
    password: str = field(default="", repr=False)
    nkey: str = ""
    permissions: Permissions | None = field(default=None, compare=False)
    is_standard: bool = True  # may connect as plain clients do: there are no others here


@dataclass(frozen=True)
class AuthOptions:
    """What the configuration says: a list of users, or a single token, or a single user; or nothing."""

    users: tuple[User, ...] = ()
    token: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    no_auth_user: str = ""


@dataclass(frozen=True)
class Credentials:
    """What a client says in its CONNECT; a missing field is empty."""

    user: str = ""
    password: str = field(default="", repr=False)
    auth_token: str = field(default="", repr=False)
    nkey: str = ""
    sig: str = field(default="", repr=False)


class Authenticator:
    """Checks credentials against the users of one configuration. Raises BadNkey or BcryptMissing when made."""

    def __init__(self, options: AuthOptions) -> None:
        self._options = options
        self._users = {user.name: user for user in options.users if not user.nkey and user.is_standard}
        self._nkeys = {user.nkey: user for user in options.users if user.nkey and user.is_standard}
        self._keys = {nkey: _public_key(nkey) for nkey in self._nkeys}
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
        return self._users.get(self._options.no_auth_user)

    @property
    def needs_nonce(self) -> bool:
        """True when INFO has to carry a nonce to sign."""
        return bool(self._nkeys)

    def has_user(self, name: str) -> bool:
        """True when there is a user of this name, or with this nkey."""
        return any(user.name == name for user in self._options.users)

    def is_slow(self, credentials: Credentials) -> bool:
        """True when `check` will compute a bcrypt hash."""
        if self._users and credentials.user:
            user = self._users.get(credentials.user)
            return user is not None and is_bcrypt(user.password)
        return is_bcrypt(self._options.token) or is_bcrypt(self._options.password)

    def check(self, credentials: Credentials, nonce: bytes = b"") -> User | None:
        """The user with these credentials, or None."""
        if not self.required:
            return User(credentials.user)
        if self._nkeys and credentials.nkey:
            return self._check_nkey(credentials, nonce)
        if not (credentials.user or credentials.password or credentials.auth_token):
            user = self._nkeys.get(self._options.no_auth_user) or self.no_auth_user
            if user is not None:
                return user
        if self._users and credentials.user:
            return self._check_password(credentials)
        return self._check_single(credentials)

    def _check_nkey(self, credentials: Credentials, nonce: bytes) -> User | None:
        user = self._nkeys.get(credentials.nkey)
        if user is None or verify_signature(self._keys[user.nkey], nonce, credentials.sig):
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


def _public_key(nkey: str) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(decode_user_nkey(nkey))


def verify_signature(key: Ed25519PublicKey, nonce: bytes, signature: str) -> bool:
    """True when this base64 text (either alphabet, with or without padding) is the key's signature over the nonce."""
    from cryptography.exceptions import InvalidSignature

    try:
        text = signature.rstrip("=").replace("-", "+").replace("_", "/")
        key.verify(base64.b64decode(text + "=" * (-len(text) % 4), validate=True), nonce)
    except (InvalidSignature, ValueError):  # binascii.Error is a ValueError, as is text beyond ASCII
        return False
    return True


def decode_user_nkey(text: str) -> bytes:
    """The 32 bytes of a user's public key. Raises BadNkey."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raise BadNkey(text, "is not base32") from None
    if len(raw) != 1 + _NKEY_SIZE + 2:
        raise BadNkey(text, f"holds {len(raw)} bytes, not {1 + _NKEY_SIZE + 2}")
    if binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise BadNkey(text, "has a wrong checksum")
    if raw[0] != _NKEY_USER:
        raise BadNkey(text, "is not the public key of a user")
    return raw[1:-2]


def encode_user_nkey(key: bytes) -> str:
    """The text of a user's public key."""
    assert len(key) == _NKEY_SIZE
    raw = bytes([_NKEY_USER]) + key
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")
