"""Tokens of accounts while the server runs: where they come from, and what a new one changes at once."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from jetlake import nkeys
from jetlake.nkeys import KeyPair
from tests.compat.conftest import Start
from tests.compat.peer import Msg, Peer
from tests.compat.servers import LOOPBACK, Server, wait_until
from tests.compat.tokens import STREAMS, Account, Operator, sign

REFUSED = [b"-ERR 'Authorization Violation'\r\n"]
FULL = '{ type: full, dir: "./jwt", allow_delete: true, limit: 5 }'


@pytest.fixture
def operator() -> Operator:
    return Operator()


@pytest.fixture
def server(start: Start, operator: Operator) -> Server:
    return start(operator.config(resolver=FULL), "-js")


@pytest.fixture
def admin(server: Server, operator: Operator) -> Iterator[Peer]:
    with operator.admin.connect(server) as peer:
        yield peer


def push(admin: Peer, token: str, subject: str = "$SYS.REQ.CLAIMS.UPDATE") -> Any:
    answer = admin.request(subject, token.encode()).json
    assert answer["server"]["id"]
    return answer.get("data") or answer["error"]


def last_words(peer: Peer) -> list[bytes]:
    return [line for line in peer.rest() if line.startswith(b"-ERR")]


# Requests


def test_update_look_up_list(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    token = account.token()
    assert push(admin, token) == {"account": account.id, "code": 200, "message": "jwt updated"}
    for subject in (f"$SYS.REQ.ACCOUNT.{account.id}.CLAIMS.UPDATE", f"$SYS.ACCOUNT.{account.id}.CLAIMS.UPDATE"):
        assert push(admin, token, subject)["code"] == 200
    assert admin.request(f"$SYS.REQ.ACCOUNT.{account.id}.CLAIMS.LOOKUP").payload.decode() == token
    assert admin.request(f"$SYS.REQ.ACCOUNT.{operator.account('X').id}.CLAIMS.LOOKUP").payload == b""
    assert sorted(admin.request("$SYS.REQ.CLAIMS.LIST").json["data"]) == sorted([account.id, operator.system.id])
    assert (server.directory / "jwt" / f"{account.id}.jwt").read_text() == token
    assert account.user().login(server) == []


def test_updates_that_are_refused(admin: Peer, operator: Operator) -> None:
    account, other = operator.account("A"), operator.account("B")
    problem = push(admin, "not a token")
    assert problem == {
        "account": "n/a",
        "code": 500,
        "description": "jwt update resulted in error - expected 3 chunks",
    }
    problem = push(admin, account.token(), f"$SYS.REQ.ACCOUNT.{other.id}.CLAIMS.UPDATE")
    assert problem["description"] == "jwt update resulted in error - subject does not match jwt content"
    imported = {"account": other.id, "subject": "x", "type": "stream"}
    problem = push(admin, account.token(limits={"imports": 0}, imports=[imported]))
    assert problem["description"].startswith(
        "jwt validation failed - validation errors: [the account contains more imports than allowed by the operator"
    )
    exported = {"subject": "x.*", "type": "service"}
    assert push(admin, account.token(limits={"wildcards": False, "exports": 3}, exports=[exported]))["code"] == 500
    assert push(admin, account.token(limits={"exports": 0}, exports=[exported]))["code"] == 500
    assert push(admin, account.token(signing_keys=["x"]))["code"] == 500
    assert push(admin, account.token()[:-4] + "AAAA")["code"] == 500
    assert push(admin, account.user().token)["code"] == 500


def test_an_untrusted_account_is_kept_but_cannot_be_used(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    assert push(admin, account.token(KeyPair(nkeys.OPERATOR)))["code"] == 200
    assert account.user().login(server) == REFUSED
    assert push(admin, account.token())["code"] == 200
    assert account.user().login(server) == []


def test_delete(server: Server, admin: Peer, operator: Operator) -> None:
    account, stranger = operator.account("A"), KeyPair(nkeys.OPERATOR)
    assert push(admin, account.token())["code"] == 200

    def delete(signer: KeyPair, subject: str, **nats: Any) -> Any:
        return push(admin, sign(signer, subject, "generic", "d", {}, nats), "$SYS.REQ.CLAIMS.DELETE")

    own, ids = operator.key.public, [account.id]
    problem = f"delete accounts request by {account.id} failed - not self signed"
    assert delete(operator.key, account.id, accounts=ids)["description"] == problem
    assert delete(stranger, stranger.public, accounts=ids)["description"].endswith("failed - not trusted")
    for accounts in ("x", ["x"], [7], {}):
        assert delete(operator.key, own, accounts=accounts)["description"].endswith("failed - malformed request")
    assert delete(operator.key, own, accounts=[operator.system.id])["description"].endswith(
        "failed - not allowed to delete system account"
    )
    with account.user().connect(server) as peer:
        assert peer.ask() == []
        assert delete(operator.key, own, accounts=ids) == {"code": 200, "message": "deleted 1 accounts"}
        assert last_words(peer) == [b"-ERR 'Account Authentication Expired'\r\n"]
    assert (server.directory / "jwt" / f"{account.id}.jwt.deleted").exists()
    assert account.user().login(server) == REFUSED


def test_delete_has_to_be_allowed(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token(), resolver='{ type: full, dir: "./jwt" }'))
    with operator.admin.connect(server) as admin:
        token = sign(operator.key, operator.key.public, "generic", "d", {}, {"accounts": [account.id]})
        problem = push(admin, token, "$SYS.REQ.CLAIMS.DELETE")["description"]
    assert problem.endswith("failed - delete must be enabled in server config")


def test_pack(admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    token = account.token()
    assert push(admin, token)["code"] == 200
    packed = [msg.payload for msg in _pack(admin, b"", 3)]
    assert packed[2] == b"" and f"{account.id}|{token}".encode() in packed[:2]
    digest = bytes(32)
    for line in packed[:2]:
        hashed = hashlib.sha256(line.partition(b"|")[2]).digest()
        digest = bytes(a ^ b for a, b in zip(digest, hashed, strict=True))
    assert [msg.payload for msg in _pack(admin, digest, 1)] == [b""]


def _pack(admin: Peer, digest: bytes, count: int) -> list[Msg]:
    return admin.requests("$SYS.REQ.CLAIMS.PACK", digest, b"", count)


def test_a_full_directory_takes_no_more(admin: Peer, operator: Operator) -> None:
    answers = [push(admin, operator.account("A").token()) for _ in range(5)]
    assert [answer["code"] for answer in answers] == [200] * 4 + [500]
    assert "jwt update resulted in error - " in answers[-1]["description"]


def test_only_the_system_account_may_ask(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    push(admin, account.token())
    with account.user().connect(server) as peer:
        assert peer.request("$SYS.REQ.CLAIMS.LIST").status == "503"
        assert peer.request("$SYS.REQ.CLAIMS.UPDATE", account.token().encode()).status == "503"


# Live changes


def test_a_revoked_user_is_disconnected(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    push(admin, account.token())
    one, two = account.user(), account.user()
    with one.connect(server) as revoked, two.connect(server) as other:
        assert revoked.ask() == other.ask() == []
        push(admin, account.token(revocations={one.id: int(time.time()) + 1}))
        assert last_words(revoked) == [b"-ERR 'User Authentication Revoked'\r\n"]
        assert other.ask() == []
        push(admin, account.token(revocations={"*": int(time.time()) + 1}))
        assert last_words(other) == [b"-ERR 'User Authentication Revoked'\r\n"]
    assert one.login(server) == REFUSED


def test_bearers_are_disconnected(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    push(admin, account.token())
    with account.user(bearer_token=True).connect(server) as bearer, account.user().connect(server) as other:
        assert bearer.ask() == other.ask() == []
        push(admin, account.token(limits={"disallow_bearer": True}))
        assert last_words(bearer) == REFUSED and other.ask() == []


def test_users_of_a_signing_key_that_is_gone_are_disconnected(server: Server, admin: Peer, operator: Operator) -> None:
    account, key, scoped = operator.account("A"), KeyPair(nkeys.ACCOUNT), KeyPair(nkeys.ACCOUNT)
    scope = {"kind": "user_scope", "key": scoped.public, "template": {"subs": -1, "data": -1, "payload": -1}}
    push(admin, account.token(signing_keys=[key.public, scope]))
    with (
        account.user(signer=key).connect(server) as by_key,
        account.user(signer=scoped, scoped=True).connect(server) as by_scope,
        account.user().connect(server) as own,
    ):
        assert by_key.ask() == by_scope.ask() == own.ask() == []
        push(admin, account.token())
        by_key.rest()
        by_scope.rest()
        assert own.ask() == []


def test_a_changed_scope_disconnects(server: Server, admin: Peer, operator: Operator) -> None:
    account, key = operator.account("A"), KeyPair(nkeys.ACCOUNT)
    limits = {"subs": -1, "data": -1, "payload": -1}
    scope = {"kind": "user_scope", "key": key.public, "template": limits}
    push(admin, account.token(signing_keys=[scope]))
    user = account.user(signer=key, scoped=True)
    with user.connect(server) as peer:
        assert peer.ask() == []
        push(admin, account.token(signing_keys=[scope], tags=["x"]))
        assert peer.ask() == []
        push(admin, account.token(signing_keys=[{**scope, "template": {**limits, "pub": {"deny": ["x"]}}}]))
        peer.rest()
    with user.connect(server) as peer:
        assert len(peer.ask(b"PUB x 0\r\n\r\n")) == 1


def test_fewer_connections(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    push(admin, account.token())
    user = account.user()
    with user.connect(server) as first:
        assert first.ask() == []
        with user.connect(server) as second:
            assert second.ask() == []
            push(admin, account.token(limits={"conn": 1}))
            gone = last_words(second)
            assert gone == [b"-ERR 'maximum account active connections exceeded'\r\n"]
            assert first.ask() == []


def test_limits_and_default_permissions_hold_at_once(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    push(admin, account.token())
    with account.user().connect(server) as peer:
        peer.subscribe("a", "1")
        assert peer.ask(b"PUB x 0\r\n\r\n") == []
        push(admin, account.token(limits={"subs": 2}, default_permissions={"pub": {"deny": ["x"]}}))
        assert peer.ask(b"PUB x 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"]
        assert peer.ask(b"SUB b 2\r\nSUB c 3\r\n") == [b"-ERR 'maximum subscriptions exceeded'\r\n"]
        push(admin, account.token(limits={"payload": 10}))
        assert peer.ask(b"PUB x 11\r\n01234567890\r\n") == [b"-ERR 'Maximum Payload Violation'\r\n"]


def test_more_subscriptions_than_allowed_disconnect(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    push(admin, account.token())
    with account.user().connect(server) as peer:
        assert peer.ask(b"SUB a 1\r\nSUB b 2\r\n") == []
        push(admin, account.token(limits={"subs": 1}))
        assert last_words(peer) == [b"-ERR 'maximum subscriptions exceeded'\r\n"]


def test_an_account_expires(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    push(admin, account.token())
    user = account.user()
    with user.connect(server) as peer:
        assert peer.ask() == []
        push(admin, account.token(top={"exp": int(time.time()) + 2}))
        assert last_words(peer) == [b"-ERR 'Account Authentication Expired'\r\n"]
    assert user.login(server) == REFUSED


def test_streams_come_with_their_limits(server: Server, admin: Peer, operator: Operator) -> None:
    account = operator.account("A")
    push(admin, account.token())
    user = account.user()
    with user.connect(server) as peer:
        assert peer.request("$JS.API.INFO").json["error"]["err_code"] == 10039
        push(admin, account.token(limits=STREAMS))
        assert "error" not in peer.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}').json
        assert peer.request("s", b"1").json["seq"] == 1
        push(admin, account.token(limits={**STREAMS, "streams": 1}))
        refused = peer.request("$JS.API.STREAM.CREATE.T", b'{"name":"T","subjects":["t"]}').json
        assert refused["error"]["err_code"] == 10027
        push(admin, account.token())
        assert peer.request("$JS.API.INFO").json["error"]["err_code"] == 10039
        push(admin, account.token(limits=STREAMS))
        assert peer.request("$JS.API.STREAM.INFO.S").json["state"]["messages"] == 1


# What accounts share


def test_imports_follow_the_tokens(server: Server, admin: Peer, operator: Operator) -> None:
    owner, guest = operator.account("OWNER"), operator.account("GUEST")
    exports = [{"name": "q", "subject": "q.*", "type": "service"}, {"name": "s", "subject": "s.>", "type": "stream"}]
    imports = [
        {"account": owner.id, "subject": "q.*", "local_subject": "ask.$1", "type": "service"},
        {"account": owner.id, "subject": "s.>", "local_subject": "in.s.>", "type": "stream"},
    ]
    push(admin, owner.token())
    push(admin, guest.token(imports=imports))
    with owner.user().connect(server) as service, guest.user().connect(server) as asker:
        service.subscribe("q.*")
        asker.subscribe("in.>", "9")
        assert asker.request("ask.1").status == "503"
        push(admin, owner.token(exports=exports))
        asker.send(b"SUB back 5\r\nPUB ask.1 back 2\r\nhi\r\n")
        asked = service.message()
        assert (asked.subject, asked.payload) == ("q.1", b"hi")
        assert json.loads(asked.headers.partition(b"Nats-Request-Info: ")[2].partition(b"\r\n")[0])["acc"] == guest.id
        service.publish(asked.reply, b"there")
        assert asker.message().payload == b"there"
        service.publish("s.1", b"news")
        assert asker.message().subject == "in.s.1"
        push(admin, guest.token())
        assert asker.request("ask.1").status == "503"
        service.publish("s.1", b"news")
        assert service.ask() == asker.ask() == []


def activation(owner: Account, guest: Account, kind: str, subject: str, **top: Any) -> str:
    return sign(owner.key, guest.id, "activation", "a", top, {"subject": subject, "kind": kind})


def test_a_private_export_needs_a_token(server: Server, admin: Peer, operator: Operator) -> None:
    owner, guest, other = operator.account("OWNER"), operator.account("GUEST"), operator.account("OTHER")
    export = {"subject": "q", "type": "service", "token_req": True}
    wanted = {"account": owner.id, "subject": "q", "type": "service"}
    push(admin, owner.token(exports=[export]))
    push(admin, guest.token(imports=[wanted]))
    for wrong in (activation(owner, other, "service", "q"), activation(owner, guest, "service", "x"), "x"):
        assert push(admin, guest.token(imports=[{**wanted, "token": wrong}]))["code"] == 500
    good = activation(owner, guest, "service", "q", iat=int(time.time()) - 10)
    with owner.user().connect(server) as service, guest.user().connect(server) as asker:
        service.subscribe("q")
        asker.subscribe("back", "5")
        assert asker.request("q").status == "503"
        push(admin, guest.token(imports=[{**wanted, "token": good}]))
        asker.publish("q", b"", reply="back")
        assert service.message().subject == "q"
        push(admin, owner.token(exports=[{**export, "revocations": {guest.id: int(time.time())}}]))
        assert asker.request("q").status == "503"


def test_an_activation_expires(server: Server, admin: Peer, operator: Operator) -> None:
    owner, guest = operator.account("OWNER"), operator.account("GUEST")
    push(admin, owner.token(exports=[{"subject": "q", "type": "service", "token_req": True}]))
    token = activation(owner, guest, "service", "q", exp=int(time.time()) + 2)
    wanted = {"account": owner.id, "subject": "q", "type": "service", "token": token}
    push(admin, guest.token(imports=[wanted]))
    with owner.user().connect(server) as service, guest.user().connect(server) as asker:
        service.subscribe("q")
        asker.publish("q", b"", reply="back")
        assert service.message().subject == "q"
        wait_until(lambda: _nobody_answers(asker, "q"), "the end of the import")


def _nobody_answers(asker: Peer, subject: str) -> bool:
    """True when the server says so; a service that stays silent is waited for a moment."""
    reply = f"answers.{time.time_ns()}"
    said = asker.ask(f"UNSUB 8\r\nSUB {reply} 8\r\nPUB {subject} {reply} 0\r\n\r\n".encode())
    return any(b"503" in line for line in said)


def test_the_account_as_a_token_of_the_subject(server: Server, admin: Peer, operator: Operator) -> None:
    owner, guest = operator.account("OWNER"), operator.account("GUEST")
    push(admin, owner.token(exports=[{"subject": "p.*.req", "type": "service", "account_token_position": 2}]))
    wanted = {"account": owner.id, "subject": f"p.{guest.id}.req", "local_subject": "p.req", "type": "service"}
    stolen = {"account": owner.id, "subject": f"p.{owner.id}.req", "local_subject": "p.steal", "type": "service"}
    push(admin, guest.token(imports=[wanted, stolen]))
    with owner.user().connect(server) as service, guest.user().connect(server) as asker:
        service.subscribe("p.*.req")
        asker.publish("p.req", b"", reply="back")
        assert service.message().subject == f"p.{guest.id}.req"
        assert asker.request("p.steal").status == "503"


# Other resolvers


def test_memory_keeps_what_it_was_told(start: Start, operator: Operator) -> None:
    account, other = operator.account("A"), operator.account("B")
    server = start(operator.config(account.token()))
    with operator.admin.connect(server) as admin, account.user().connect(server) as peer:
        assert peer.ask() == []
        subject = f"$SYS.REQ.ACCOUNT.{account.id}.CLAIMS.UPDATE"
        assert push(admin, account.token(revocations={"*": int(time.time()) + 1}), subject)["code"] == 200
        assert last_words(peer) == [b"-ERR 'User Authentication Revoked'\r\n"]
        for missing in ("$SYS.REQ.CLAIMS.UPDATE", "$SYS.REQ.CLAIMS.LIST", "$SYS.REQ.CLAIMS.PACK"):
            assert admin.request(missing).status == "503"
        skipped = push(admin, other.token(), f"$SYS.REQ.ACCOUNT.{other.id}.CLAIMS.UPDATE")
        assert skipped["message"] == "jwt update skipped"
    assert other.user().login(server) == REFUSED


def test_a_cache_is_not_the_place_for_new_accounts(start: Start, operator: Operator) -> None:
    account, other = operator.account("A"), operator.account("B")
    server = start(operator.config(account.token(), resolver='{ type: cache, dir: "./jwt", ttl: "1h" }'))
    assert account.user().login(server) == []
    with operator.admin.connect(server) as admin:
        assert push(admin, account.token())["message"] == "jwt updated cache"
        assert push(admin, other.token())["message"] == "jwt update cache skipped"
        assert admin.request("$SYS.REQ.CLAIMS.PACK").status == "503"


@contextmanager
def account_server(tokens: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """An HTTP server with tokens, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            name = self.path.rpartition("/")[2]
            token = tokens.get(name, "")
            self.send_response(200 if token or not name else 404)
            self.end_headers()
            self.wfile.write(token.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/jwt/v1/accounts/", asked
    finally:
        server.shutdown()
        server.server_close()


def test_tokens_from_a_url(start: Start, operator: Operator) -> None:
    owner, guest, missing = operator.account("OWNER"), operator.account("GUEST"), operator.account("X")
    wanted = {"account": owner.id, "subject": "q", "type": "service"}
    tokens = {
        operator.system.id: operator.system.token(),
        owner.id: owner.token(exports=[{"subject": "q", "type": "service"}]),
        guest.id: guest.token(imports=[wanted]),
    }
    with account_server(tokens) as (url, asked):
        server = start(f"operator: {operator.token()}\nresolver: URL({url})\n")
        assert missing.user().login(server) == REFUSED
        with guest.user().connect(server) as asker:
            assert asker.ask() == []
            with owner.user().connect(server) as service:
                service.subscribe("q")
                asker.publish("q", b"", reply="back")
                assert service.message().subject == "q"
        assert guest.user().login(server) == []
        assert asked.count(f"/jwt/v1/accounts/{guest.id}") == 1


def test_a_url_that_does_not_answer_stops_the_start(start: Start, operator: Operator) -> None:
    with pytest.raises(AssertionError):
        start(f"operator: {operator.token()}\nresolver: URL(http://{LOOPBACK}:1/jwt/v1/accounts/)\n")
