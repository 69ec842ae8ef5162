"""What a server says to be let in by another one: credentials files, nkey seeds, users in URLs."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote

from jetlake import nkeys
from jetlake.config import LeafRemote, RemoteOptions
from jetlake.errors import JetLakeError
from jetlake.nkeys import KeyPair

_BLOCK = re.compile(r"-{3,}[^\n]*-{3,}\s*\n(.*?)\n\s*-{3,}[^\n]*-{3,}", re.DOTALL)


class BadCredentials(JetLakeError):
    """A file that does not hold what a server needs to be let in."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"credentials {path}: {problem}")


def credentials_for(remote: LeafRemote, url: SplitResult, nonce: str) -> dict[str, Any]:
    """The fields of CONNECT that say who this is. Raises BadCredentials."""
    fields: dict[str, Any] = {}
    if remote.credentials:
        token, key = read_creds(remote.credentials)
        fields = {"jwt": token, "sig": sign(key, nonce)}
    elif remote.nkey_seed:
        key = _key("nkey", remote.nkey_seed)
        fields = {"nkey": key.public, "sig": sign(key, nonce)}
    if url.username is not None:
        user, password = unquote(url.username), unquote(url.password or "")
        fields |= {"user": user, "pass": password} if url.password is not None else {"user": user, "auth_token": user}
    return fields


def client_credentials(remote: RemoteOptions, url: SplitResult, nonce: str) -> dict[str, Any]:
    """The fields of CONNECT that say who a client is. Raises BadCredentials."""
    if remote.credentials or remote.creds:
        token, key = read_creds(remote.credentials) if remote.credentials else parse_creds(remote.creds, remote.name)
        return {"jwt": token, "sig": sign(key, nonce)}
    if remote.nkey_seed:
        key = _key("nkey", remote.nkey_seed)
        return {"nkey": key.public, "sig": sign(key, nonce)}
    if remote.token:
        return {"auth_token": remote.token}
    if remote.user:
        return {"user": remote.user, "pass": remote.password}
    if url.username is None:
        return {}
    user, password = unquote(url.username), unquote(url.password or "")
    return {"user": user, "pass": password} if url.password is not None else {"auth_token": user}


def read_creds(path: str) -> tuple[str, KeyPair]:
    """The user's token and key in a credentials file. Raises BadCredentials."""
    return parse_creds(_read(path), path)


def parse_creds(text: str, path: str) -> tuple[str, KeyPair]:
    """The user's token and key in the text of such a file, which is that of a path. Raises BadCredentials."""
    blocks = [block.strip() for block in _BLOCK.findall(text)]
    if len(blocks) < 2:
        raise BadCredentials(path, "expected a user's token and a seed between lines of dashes")
    return blocks[0], _key(path, blocks[1])


def sign(key: KeyPair, nonce: str) -> str:
    """The signature over a nonce, as CONNECT holds it."""
    return base64.urlsafe_b64encode(key.sign(nonce.encode())).decode().rstrip("=")


def _key(path: str, text: str) -> KeyPair:
    try:
        kind, seed = nkeys.decode_seed(text)
    except nkeys.BadNkey as error:
        raise BadCredentials(path, f"the seed {error.problem}") from None
    if kind != nkeys.USER:
        raise BadCredentials(path, "expected the seed of a user, which begins with SU")
    return KeyPair(kind, seed)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError as error:
        raise BadCredentials(path, error.strerror or str(error)) from None
