"""Operators, accounts and users: their keys, and the tokens that they sign for each other."""

from __future__ import annotations

import base64
import time
from typing import Any

from jetlake import jwt, nkeys
from jetlake.nkeys import KeyPair
from tests.compat.peer import Peer
from tests.compat.servers import Server

UNLIMITED = {**dict.fromkeys(["subs", "data", "payload", "imports", "exports", "conn", "leaf"], -1), "wildcards": True}
STREAMS = dict.fromkeys(["mem_storage", "disk_storage", "streams", "consumer"], -1)
Claims = dict[str, Any]


def sign(signer: KeyPair, subject: str, kind: str, name: str, top: Claims, nats: Claims) -> str:
    """A token."""
    claims = {"sub": subject, "name": name, "iat": int(time.time()), **top}
    return jwt.encode({**claims, "nats": {**nats, "type": kind, "version": 2}}, signer)


class Account:
    """An account with its key."""

    def __init__(self, operator: Operator, name: str) -> None:
        self.operator, self.name, self.key = operator, name, KeyPair(nkeys.ACCOUNT)
        self.id = self.key.public

    def token(
        self,
        signer: KeyPair | None = None,
        limits: Claims | None = None,
        top: Claims | None = None,
        **nats: Any,
    ) -> str:
        """Its token, with these limits beside none."""
        nats["limits"] = {**UNLIMITED, **(limits or {})}
        return sign(signer or self.operator.key, self.id, "account", self.name, top or {}, nats)

    def user(self, name: str = "user", signer: KeyPair | None = None, scoped: bool = False, **options: Any) -> User:
        """A user that it signs, or a signing key."""
        return User(self, name, signer or self.key, scoped, **options)


class User:
    """A user with its key and token."""

    def __init__(
        self, account: Account, name: str, signer: KeyPair, scoped: bool, top: Claims | None = None, **nats: Any
    ) -> None:
        self.account, self.key = account, KeyPair(nkeys.USER)
        self.id = self.key.public
        limits = {} if scoped else {"subs": -1, "data": -1, "payload": -1}
        if signer is not account.key:
            limits["issuer_account"] = account.id
        self.token = sign(signer, self.id, "user", name, top or {}, {**limits, **nats})

    def sign(self, nonce: bytes) -> str:
        """The signature over a nonce."""
        return base64.urlsafe_b64encode(self.key.sign(nonce)).decode().rstrip("=")

    def connect(self, server: Server | int, **options: Any) -> Peer:
        """A connection as this user."""
        return Peer(server, **{"jwt": self.token, "sign": self.sign, **options})

    def login(self, server: Server | int, **options: Any) -> list[bytes]:
        """What the server says to it: nothing when it is let in."""
        with self.connect(server, **options) as peer:
            said = peer.ask()
            assert peer.is_closed == bool(said)
            return said


class Operator:
    """An operator with its key and a system account."""

    def __init__(self) -> None:
        self.key = KeyPair(nkeys.OPERATOR)
        self.system = Account(self, "SYS")
        self.admin = self.system.user("admin")

    def account(self, name: str) -> Account:
        """An account."""
        return Account(self, name)

    def token(self, **nats: Any) -> str:
        """Its token."""
        return sign(self.key, self.key.public, "operator", "OP", {}, {"system_account": self.system.id, **nats})

    def config(self, *tokens: str, resolver: str = "MEMORY", more: str = "", **nats: Any) -> str:
        """A configuration in which these accounts, and the system account, are preloaded."""
        every = [self.system.token(), *tokens]
        preload = "\n".join(f"{jwt.read_account(token)[0].sub}: {token}" for token in every)
        return f"operator: {self.token(**nats)}\nresolver: {resolver}\nresolver_preload {{\n{preload}\n}}\n{more}\n"
