"""The auth callout: a service says who clients are, with and without encryption."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jetlake import jwt, nkeys
from jetlake.nkeys import KeyPair
from jetlake.sealed_box import BoxKey
from tests.compat.conftest import Start
from tests.compat.peer import Closed, Peer
from tests.compat.servers import Server
from tests.compat.tokens import Account, Operator, sign

REFUSED = [b"-ERR 'Authorization Violation'\r\n"]
ISSUER, SERVICE_KEY = KeyPair(nkeys.ACCOUNT), BoxKey()
Decide = Callable[[dict[str, Any]], dict[str, Any]]


def config(more: str = "") -> str:
    return f"""
    accounts {{
        AUTH {{ users: [ {{user: auth, password: pwd}} ] }}
        APP {{ users: [ {{user: local, password: pwd}} ] }}
        OTHER {{ users: [ {{user: other, password: pwd}} ] }}
    }}
    authorization {{
        timeout: 1
        auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth], {more} }}
    }}"""


@contextmanager
def service(
    peer: Peer, decide: Decide, xkey: BoxKey | None = None, seal: bool = True
) -> Iterator[list[dict[str, Any]]]:
    """Answers requests on a connection; shows what was asked."""
    asked: list[dict[str, Any]] = []
    peer.subscribe("$SYS.REQ.USER.AUTH")

    def serve() -> None:
        try:
            while True:
                msg = peer.message()
                text, sender = msg.payload, ""
                if xkey is not None:
                    sender = msg.headers.partition(b"Nats-Server-Xkey: ")[2].partition(b"\r\n")[0].decode()
                    text = xkey.open(text, sender)
                claims = jwt.decode(text.decode(), nkeys.SERVER)
                request = {**claims.nats, "aud": claims.aud, "sub": claims.sub, "iss": claims.iss, "exp": claims.exp}
                asked.append(request)
                answer = answered(request, **decide(request))
                if xkey is not None and seal:
                    answer = xkey.seal(answer, sender)
                peer.publish(msg.reply, answer)
        except (Closed, OSError):
            return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield asked


def answered(
    request: dict[str, Any],
    signer: KeyPair = ISSUER,
    account: str = "APP",
    user: dict[str, Any] | None = None,
    error: str = "",
    raw: bytes | None = None,
    user_signer: KeyPair | None = None,
    **top: Any,
) -> bytes:
    if raw is not None:
        return raw
    user_key = top.pop("user_key", request["user_nkey"])
    nats: dict[str, Any] = {"error": error}
    if not error:
        limits = {"subs": -1, "data": -1, "payload": -1, **(user or {})}
        about = {"aud": account, **top.pop("user_top", {})}
        nats = {"jwt": sign(user_signer or signer, user_key, "user", top.pop("name", "ann"), about, limits)}
    about = {"aud": request["server_id"]["id"], **top}
    return sign(signer, request["user_nkey"], "authorization_response", "", about, nats).encode()


def login(server: Server, **options: Any) -> list[bytes]:
    with Peer(server, **options) as peer:
        return peer.ask()


def by_password(request: dict[str, Any]) -> dict[str, Any]:
    said = request["connect_opts"]
    return {} if said.get("pass") == "open" else {"error": "wrong password"}


def test_the_service_decides(start: Start) -> None:
    server = start(config())
    with Peer(server, user="auth", **{"pass": "pwd"}) as auth, service(auth, by_password) as asked:
        with Peer(server, user="ann", name="app", **{"pass": "open"}) as peer:
            assert peer.ask() == peer.ask() == [] and peer.info["remote_account"] == "APP"
            assert peer.request("$SYS.REQ.USER.INFO").json["data"]["user"] == "ann"
        assert login(server, user="ann", **{"pass": "x"}) == REFUSED
        assert login(server, user="local", **{"pass": "pwd"}) == REFUSED, "the service decides for them too"
        request = asked[0]
    assert (request["aud"], request["sub"]) == ("nats-authorization-request", ISSUER.public)
    assert request["iss"] == request["server_id"]["id"] and request["type"] == "authorization_request"
    assert time.time() - 1 < request["exp"] < time.time() + 10
    about, said = request["client_info"], request["connect_opts"]
    assert (about["host"], about["kind"], about["type"], about["name"]) == ("127.0.0.1", "Client", "nats", "app")
    assert (said["user"], said["pass"], said["name"], said["protocol"]) == ("ann", "open", "app", 1)


def test_permissions_of_the_answer_hold(start: Start) -> None:
    server = start(config())

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        return {"user": {"pub": {"deny": ["x"]}}, "account": "OTHER", "user_top": {"exp": int(time.time()) + 2}}

    auth = Peer(server, user="auth", **{"pass": "pwd"})
    with auth, service(auth, decide), Peer(server, user="bob") as peer:
        assert peer.ask(b"PUB x 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"]
        assert peer.rest()[-1] == b"-ERR 'User Authentication Expired'\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        {"raw": b""},
        {"raw": b"not a token"},
        {"account": "NOWHERE"},
        {"signer": KeyPair(nkeys.ACCOUNT)},
        {"user_signer": KeyPair(nkeys.ACCOUNT)},
        {"aud": KeyPair(nkeys.SERVER).public},
        {"user_key": KeyPair(nkeys.USER).public},
        {"user_top": {"exp": 1}},
        {"error": "go away"},
    ],
)
def test_an_answer_that_does_not_count(callout: tuple[Server, list[Any]], answer: dict[str, Any]) -> None:
    server, answers = callout
    answers[0] = answer
    assert login(server, user="ann") == REFUSED
    answers[0] = {}
    assert login(server, user="ann") == []


@pytest.fixture(scope="module")
def callout(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, list[Any]]]:
    answers: list[Any] = [{}]
    with (
        Server(kind, tmp_path_factory.mktemp(kind), [], config()) as server,
        Peer(server, user="auth", **{"pass": "pwd"}) as auth,
        service(auth, lambda request: dict(answers[0])),
    ):
        yield server, answers


def test_without_an_answer_nobody_gets_in(start: Start) -> None:
    server = start(config())
    assert login(server, user="ann") == REFUSED
    with Peer(server, user="auth", **{"pass": "pwd"}) as silent:
        silent.subscribe("$SYS.REQ.USER.AUTH")
        assert login(server, user="ann") == REFUSED


def test_accounts_that_are_left_out(start: Start) -> None:
    server = start(config("allowed_accounts: [APP]"))
    assert login(server, user="other", **{"pass": "pwd"}) == [] != login(server, user="local", **{"pass": "pwd"})
    assert login(server, user="auth", **{"pass": "pwd"}) == [] != login(server, user="auth", **{"pass": "x"})


def test_members_of_the_account_cannot_ask(start: Start) -> None:
    server = start(config())
    with Peer(server, user="auth", **{"pass": "pwd"}) as auth:
        assert auth.ask(b"PUB $SYS.REQ.USER.AUTH 0\r\n\r\n") == [
            b"-ERR 'Permissions Violation for Publish to \"$SYS.REQ.USER.AUTH\"'\r\n"
        ]


@pytest.mark.parametrize("seal", [True, False])
def test_sealed_questions(start: Start, seal: bool) -> None:
    server = start(config(f"xkey: {SERVICE_KEY.public}"))
    with Peer(server, user="auth", **{"pass": "pwd"}) as auth, service(auth, by_password, SERVICE_KEY, seal) as asked:
        assert login(server, user="ann", **{"pass": "open"}) == []
        assert login(server, user="ann", **{"pass": "x"}) == REFUSED
        with Peer(server, None) as peer:
            assert asked[0]["server_id"]["xkey"] == peer.info["xkey"]


def test_a_question_that_the_service_cannot_open(start: Start) -> None:
    server = start(config(f"xkey: {BoxKey().public}"))
    with Peer(server, user="auth", **{"pass": "pwd"}) as auth:
        auth.subscribe("$SYS.REQ.USER.AUTH")
        assert login(server, user="ann") == REFUSED
        assert auth.message().payload.startswith(b"xkv1")


# Operator mode


@pytest.mark.parametrize("sealed", [False, True])
def test_the_account_of_a_sentinel_is_asked(start: Start, sealed: bool) -> None:
    operator = Operator()
    auth_account, app, other = operator.account("AUTH"), operator.account("APP"), operator.account("OTHER")
    auth_user, sentinel = (
        auth_account.user("auth"),
        auth_account.user("sentinel", bearer_token=True, pub={"deny": [">"]}),
    )
    external = {"auth_users": [auth_user.id], "allowed_accounts": [app.id]}
    if sealed:
        external["xkey"] = SERVICE_KEY.public  # type: ignore[assignment]
    tokens = [auth_account.token(authorization=external), app.token(), other.token()]
    server = start(operator.config(*tokens, more="authorization { timeout: 1 }"))
    targets = {"app": app, "other": other}

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        target: Account | None = targets.get(request["connect_opts"].get("user", ""))
        if target is None:
            return {"signer": auth_account.key, "error": "who?"}
        return {"signer": auth_account.key, "user_signer": target.key}

    box = SERVICE_KEY if sealed else None
    with auth_user.connect(server) as auth, service(auth, decide, box):
        with Peer(server, jwt=sentinel.token, user="app") as peer:
            assert peer.ask() == peer.ask() == [] and peer.info["remote_account"] == app.id
        assert login(server, jwt=sentinel.token, user="other") == REFUSED, "not an allowed account"
        assert login(server, jwt=sentinel.token, user="nobody") == REFUSED
        assert login(server, user="app") == REFUSED, "no token, no account to ask"
        assert app.user().login(server) == [], "other accounts have tokens of their own"


def test_the_default_sentinel(start: Start) -> None:
    operator = Operator()
    account = operator.account("A")
    sentinel = account.user("nobody", bearer_token=True)
    server = start(operator.config(account.token(), more=f"default_sentinel: {sentinel.token}"))
    with Peer(server) as peer:
        assert peer.ask() == peer.ask() == [] and peer.info["remote_account"] == account.id


def test_pinned_accounts(start: Start) -> None:
    operator = Operator()
    one, two = operator.account("A"), operator.account("B")
    pinned = f"resolver_pinned_accounts: [{one.id}, {operator.system.id}]"
    server = start(operator.config(one.token(), two.token(), more=pinned))
    assert one.user().login(server) == [] and two.user().login(server) == REFUSED
