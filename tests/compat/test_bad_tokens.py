"""Tokens that somebody made wrong, or made up: refused, and nobody else is disturbed."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from jetlake.nkeys import KeyPair
from tests.compat.peer import Peer
from tests.compat.servers import Server
from tests.compat.tokens import Account, Operator

SEED, ROUNDS = 7, 60
ODD: list[Any] = [None, -1, 2**63, 1e300, "", "x", "*", ">", [], [None], {}, {"": {}}, True, "é\u0000", ["a b c"], [[]]]


def part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def resigned(token: str, claims: Any, signer: KeyPair) -> str:
    """Other claims, properly signed."""
    signed = f"{token.partition('.')[0]}.{part(json.dumps(claims).encode())}"
    return f"{signed}.{part(signer.sign(signed.encode()))}"


def mutated(chance: random.Random, token: str, signer: KeyPair) -> str:
    """A token with one thing wrong: a byte of the text, or a value of the claims, which are then signed."""
    if chance.random() < 0.3:
        at = chance.randrange(len(token))
        return token[:at] + chance.choice("AZaz09-_.") + token[at + 1 :]
    body = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    place = claims
    while True:
        key = chance.choice(list(place))
        if not isinstance(place[key], dict) or not place[key] or chance.random() < 0.3:
            place[key] = copy.deepcopy(chance.choice(ODD))
            return resigned(token, claims, signer)
        place = place[key]


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator()


@pytest.fixture(scope="module")
def account(operator: Operator) -> Account:
    return operator.account("A")


@pytest.fixture(scope="module")
def server(
    kind: str, tmp_path_factory: pytest.TempPathFactory, operator: Operator, account: Account
) -> Iterator[Server]:
    config = operator.config(account.token(), resolver='{ type: full, dir: "./jwt" }')
    with Server(kind, tmp_path_factory.mktemp(kind), ["-js"], config) as server:
        yield server
        assert "Traceback" not in server.log() and "panic" not in server.log()


def test_users_with_mutated_tokens(server: Server, account: Account) -> None:
    chance = random.Random(SEED)
    full = {
        "pub": {"allow": ["a.>"], "deny": ["b"]},
        "sub": {"allow": ["c q"]},
        "resp": {"max": 1, "ttl": 1},
        "src": ["127.0.0.0/8"],
        "times": [{"start": "00:00:00", "end": "23:59:59"}],
        "allowed_connection_types": ["STANDARD"],
        "tags": ["a:b"],
    }
    with account.user().connect(server) as other:
        for _ in range(ROUNDS):
            user = account.user(bearer_token=True, **copy.deepcopy(full))
            with Peer(server, jwt=mutated(chance, user.token, account.key), sign=user.sign) as peer:
                peer.ask(b"SUB c q 1\r\nPUB a.b 0\r\n\r\n")
        assert other.ask() == []


def test_accounts_with_mutated_tokens(server: Server, operator: Operator, account: Account) -> None:
    chance = random.Random(SEED)
    full = {
        "imports": [{"account": account.id, "subject": "x", "type": "service", "local_subject": "y"}],
        "exports": [{"subject": "s.*", "type": "service", "account_token_position": 2, "revocations": {"*": 5}}],
        "default_permissions": {"pub": {"allow": ["a"]}},
        "revocations": {"*": 5},
        "authorization": {},
        "mappings": {"m": [{"subject": "n", "weight": 50}]},
    }
    with operator.admin.connect(server) as admin, account.user().connect(server) as other:
        for _ in range(ROUNDS):
            victim = operator.account("V")
            token = mutated(chance, victim.token(**copy.deepcopy(full)), operator.key)
            answer = admin.request("$SYS.REQ.CLAIMS.UPDATE", token.encode()).json
            code = answer.get("data", answer.get("error"))["code"]
            assert code in (200, 500)
            if code == 200:
                with victim.user(bearer_token=True).connect(server) as peer:
                    peer.ask()
        assert other.ask() == admin.ask() == []


def test_bytes_that_are_no_token(server: Server, operator: Operator) -> None:
    with operator.admin.connect(server) as admin:
        for body in (b"", b"\xff\xfe", b"." * 1000, b"a" * 100_000, b"..", part(b"[" * 50_000).encode() + b".x.y"):
            for subject in ("UPDATE", "DELETE"):
                answer = admin.request(f"$SYS.REQ.CLAIMS.{subject}", body).json
                assert answer["error"]["code"] == 500
        for name in ("x", "A" * 56):
            answer = admin.request(f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.UPDATE", operator.system.token().encode()).json
            assert answer["error"]["code"] == 500
