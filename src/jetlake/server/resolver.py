"""Where the tokens of accounts come from: memory, a directory, or an HTTP server.

A directory holds `<account>.jwt` with the bare token, one file for each account; a deleted one becomes
`<account>.jwt.deleted`, or goes. A token is written beside the old one, synced, and renamed: after a power cut there is
the old one or the new one. A `full` directory is the place where tokens are kept; a `cache` holds those that were asked
for, the oldest goes when there are more than `limit`, and each one after `ttl`.

The calls block, some of them for long: `TokenAccounts` makes them in a thread, one at a time.
"""

from __future__ import annotations

import hashlib
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from jetlake import jwt, nkeys
from jetlake.config import ResolverOptions
from jetlake.errors import JetLakeError
from jetlake.jwt.envelope import SIZE_MAX
from jetlake.store.disk.files import OS_FILES, atomic_write, is_temp

_SUFFIX, _DELETED = ".jwt", ".deleted"
_HASH_SIZE = 32


class ResolverError(JetLakeError):
    """Tokens cannot be had, or kept."""


class Resolver(Protocol):
    """Knows the tokens of accounts. Every call may raise OSError or ResolverError."""

    def start(self, preload: dict[str, str]) -> None: ...
    def fetch(self, account: str) -> str | None: ...
    def store(self, account: str, token: str) -> None: ...


class MemoryResolver:
    """The tokens that the configuration has; those that are sent later are forgotten with the server."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}

    def start(self, preload: dict[str, str]) -> None:
        """Take what the configuration has."""
        self._tokens |= preload

    def fetch(self, account: str) -> str | None:
        """The token of an account."""
        return self._tokens.get(account)

    def store(self, account: str, token: str) -> None:
        """Have another token for an account."""
        self._tokens[account] = token


class UrlResolver:
    """Tokens from an HTTP server, at `<url><account>`."""

    def __init__(self, options: ResolverOptions) -> None:
        self._url, self._timeout_s = options.url, options.timeout_s
        self._sent: dict[str, str] = {}  # tokens that came by another way, and are newer
        handlers = [HTTPSHandler(context=_client_context(options))] if options.url.startswith("https") else []
        self._opener = build_opener(ProxyHandler({}), *handlers)

    def start(self, preload: dict[str, str]) -> None:
        """See that there is an answer."""
        self._sent |= preload
        try:
            self._get(self._url)
        except (OSError, ValueError) as error:
            raise ResolverError(f"could not fetch <{self._url}>: {error}") from error

    def fetch(self, account: str) -> str | None:
        """The token of an account."""
        if account in self._sent:
            return self._sent[account]
        try:
            return self._get(self._url + account).decode("ascii").strip()
        except HTTPError as error:
            if error.code == 404:
                return None
            raise
        except ValueError:
            return None

    def store(self, account: str, token: str) -> None:
        """Have another token for an account, until the server stops."""
        self._sent[account] = token

    def _get(self, url: str) -> bytes:
        with self._opener.open(url, timeout=self._timeout_s) as answer:
            data: bytes = answer.read(SIZE_MAX + 1)
        return data


def _client_context(options: ResolverOptions) -> ssl.SSLContext:
    context, tls = ssl.create_default_context(), options.tls
    if tls is not None:
        if tls.ca_file:
            context.load_verify_locations(tls.ca_file)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
        if tls.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class DirectoryResolver:
    """Tokens in the files of a directory."""

    def __init__(self, options: ResolverOptions) -> None:
        self._options, self._directory = options, options.directory
        self.is_cache = options.kind == "cache"
        self._used: dict[str, float] = {}  # of a cache: since when each is there, the one not used for longest first

    def start(self, preload: dict[str, str]) -> None:
        """Make the directory, and keep what is newer in the configuration."""
        OS_FILES.make_dirs(self._directory)
        for name in OS_FILES.list(self._directory):
            if is_temp(name):
                OS_FILES.remove(f"{self._directory}/{name}")
        self._used = dict.fromkeys(self.accounts(), time.monotonic())
        for account, token in preload.items():
            old = self.fetch(account)
            if old is None or _issued_s(token) > _issued_s(old):
                self.store(account, token)

    def accounts(self) -> list[str]:
        """The accounts whose tokens are here."""
        names = (name.removesuffix(_SUFFIX) for name in OS_FILES.list(self._directory) if name.endswith(_SUFFIX))
        return sorted(name for name in names if nkeys.is_public(name, nkeys.ACCOUNT))

    def fetch(self, account: str) -> str | None:
        """The token of an account."""
        if self.is_cache and self._is_stale(account):
            self._remove(account)
            return None
        try:
            text: str = OS_FILES.read(self._path(account)).decode("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        if account in self._used:
            self._used[account] = self._used.pop(account)  # the last one to go
        return text

    def store(self, account: str, token: str) -> None:
        """Keep the token of an account."""
        self._make_room(account)
        atomic_write(OS_FILES, self._path(account), [token.encode()])
        self._used.pop(account, None)
        self._used[account] = time.monotonic()

    def delete(self, account: str) -> None:
        """Have no token for an account any more."""
        path = self._path(account)
        try:
            if self._options.hard_delete:
                OS_FILES.remove(path)
            else:
                OS_FILES.rename(path, path + _DELETED)
        except FileNotFoundError:
            raise ResolverError(f"{account} is not here") from None
        OS_FILES.sync_dir(self._directory)
        self._used.pop(account, None)

    def digest(self) -> bytes:
        """The XOR of the hashes of all tokens: equal for those who have the same."""
        result = 0
        for _, token in self.tokens():
            result ^= int.from_bytes(hashlib.sha256(token.encode()).digest(), "big")
        return result.to_bytes(_HASH_SIZE, "big")

    def tokens(self) -> Iterator[tuple[str, str]]:
        """All accounts with their tokens."""
        for account in self.accounts():
            token = self.fetch(account)
            if token is not None:
                yield account, token

    def _make_room(self, account: str) -> None:
        limit = self._options.limit
        if not limit or account in self._used or len(self._used) < limit:
            return
        if not self.is_cache:
            raise ResolverError("jwt store is full")
        self._remove(next(iter(self._used)))

    def _is_stale(self, account: str) -> bool:
        ttl_s, since = self._options.ttl_s, self._used.get(account)
        return ttl_s > 0 and since is not None and time.monotonic() - since > ttl_s

    def _remove(self, account: str) -> None:
        self._used.pop(account, None)
        with suppress(FileNotFoundError):
            OS_FILES.remove(self._path(account))

    def _path(self, account: str) -> str:
        assert nkeys.is_public(account, nkeys.ACCOUNT), "names of files are made of keys only"
        return f"{self._directory}/{account}{_SUFFIX}"


def _issued_s(token: str) -> int:
    try:
        return jwt.read_account(token)[0].iat
    except jwt.BadJwt:
        return 0


def make_resolver(options: ResolverOptions) -> Resolver:
    """The resolver that the configuration asks for."""
    if options.kind == "memory":
        return MemoryResolver()
    return UrlResolver(options) if options.kind == "url" else DirectoryResolver(options)
