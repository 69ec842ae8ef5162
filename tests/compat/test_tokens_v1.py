"""Tokens of version 1, which old tools made: nats-server still takes them."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from jetlake import nkeys
from jetlake.nkeys import KeyPair
from tests.compat.conftest import Start
from tests.compat.tokens import STREAMS, UNLIMITED, Account, Operator, User

VIOLATION = b"-ERR 'Authorization Violation'\r\n"


def _part(fields: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def sign_v1(signer: KeyPair, subject: str, kind: str, nats: dict[str, Any], **top: Any) -> str:
    """A token of version 1: the signature is over the claims alone."""
    claims = {"iat": int(time.time()), "iss": signer.public, "name": kind, "sub": subject, "type": kind}
    body = _part({**claims, **top, "nats": nats})
    signature = base64.urlsafe_b64encode(signer.sign(body.encode())).decode().rstrip("=")
    return f"{_part({'typ': 'jwt', 'alg': 'ed25519'})}.{body}.{signature}"


def config(operator: Operator, account: str, token: str, **operator_nats: Any) -> str:
    mine = sign_v1(operator.key, operator.key.public, "operator", {"system_account": operator.system.id})
    preload = f"{operator.system.id}: {operator.system.token()}\n{account}: {token}"
    return f"operator: {mine}\nresolver: MEMORY\nresolver_preload {{\n{preload}\n}}\n"


class World:
    """An operator, an account and a user, all of version 1."""

    def __init__(self, start: Start, user: dict[str, Any], signer: KeyPair | None = None, **top: Any) -> None:
        self.operator = Operator()
        self.account: Account = self.operator.account("A")
        keys = [signer.public] if signer is not None else []
        limits = {**UNLIMITED, **STREAMS}
        token = sign_v1(self.operator.key, self.account.id, "account", {"limits": limits, "signing_keys": keys})
        self.server = start(config(self.operator, self.account.id, token) + "jetstream: enabled\n")
        self.user: User = self.account.user()
        if signer is not None:
            top["issuer_account"] = self.account.id
        self.user.token = sign_v1(signer or self.account.key, self.user.id, "user", user, **top)


def test_a_user_without_limits_has_none(start: Start) -> None:
    world = World(start, {})
    with world.user.connect(world.server) as peer:
        assert peer.ask(b"SUB a 1\r\nPUB a 2\r\nhi\r\n") == [b"MSG a 1 2\r\nhi\r\n"]
        assert peer.request("$JS.API.INFO").json["error"]["err_code"] == 10039  # such an account has no streams


def test_permissions_limits_and_sources_hold(start: Start) -> None:
    world = World(start, {"pub": {"deny": ["x"]}, "subs": 1, "src": "127.0.0.0/8, 10.0.0.0/8"})
    with world.user.connect(world.server) as peer:
        assert peer.ask(b"PUB x 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"]
        assert peer.ask(b"SUB a 1\r\nSUB b 2\r\n") == [b"-ERR 'maximum subscriptions exceeded'\r\n"]
    world = World(start, {"src": "10.0.0.0/8"})
    assert world.user.login(world.server) == [VIOLATION]


def test_a_signing_key_signs_for_its_account(start: Start) -> None:
    world = World(start, {}, KeyPair(nkeys.ACCOUNT))
    assert world.user.login(world.server) == []


@pytest.mark.parametrize("damage", ["signature", "expired", "header signed", "other issuer"])
def test_a_bad_token_is_refused(start: Start, damage: str) -> None:
    world = World(start, {}, **({"exp": 1} if damage == "expired" else {}))
    head, body, signature = world.user.token.split(".")
    if damage == "signature":
        signature = ("A" if signature[0] != "A" else "B") + signature[1:]
    if damage == "header signed":  # as version 2 does
        signature = base64.urlsafe_b64encode(world.account.key.sign(f"{head}.{body}".encode())).decode().rstrip("=")
    world.user.token = f"{head}.{body}.{signature}"
    if damage == "other issuer":
        world.user.token = sign_v1(world.operator.system.key, world.user.id, "user", {})
        expected = []  # of the system account, whose user it is now
    else:
        expected = [VIOLATION]
    assert world.user.login(world.server) == expected
