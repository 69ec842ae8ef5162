"""Operator mode: who may log in by a token, and what an account's token allows."""

from __future__ import annotations

import time

import pytest

from jetlake import nkeys
from jetlake.nkeys import KeyPair
from tests.compat.conftest import Start
from tests.compat.tokens import STREAMS, Operator

REFUSED = [b"-ERR 'Authorization Violation'\r\n"]
NO_MORE = [b"-ERR 'maximum account active connections exceeded'\r\n"]


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_a_user_signed_by_its_account_is_let_in(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token()))
    with account.user("ann").connect(server) as peer:
        assert peer.ask() == peer.ask() == []
        assert peer.infos[0]["auth_required"] and peer.infos[0]["nonce"]
        assert peer.info["remote_account"] == account.id and "acc_is_sys" not in peer.info
    with operator.admin.connect(server) as peer:
        assert peer.ask() == peer.ask() == [] and peer.info["acc_is_sys"]


def test_accounts_see_nothing_of_each_other(start: Start, operator: Operator) -> None:
    one, two = operator.account("A"), operator.account("B")
    server = start(operator.config(one.token(), two.token()))
    with one.user().connect(server) as mine, two.user().connect(server) as other, one.user().connect(server) as own:
        for peer in (mine, other):
            peer.subscribe(">")
        own.publish("x", b"1")
        assert own.ask() == [] and mine.message().payload == b"1" and other.ask() == []


def test_a_user_without_proof_is_refused(start: Start, operator: Operator) -> None:
    account, stranger = operator.account("A"), Operator().account("X")
    server = start(operator.config(account.token()))
    user, other = account.user(), account.user()
    now = int(time.time())
    for jwt, signer in (
        ("", user),
        ("a.b.c", user),
        ("x" * 3000, user),
        (user.token, other),
        (user.token[:-4] + "AAAA", user),
        (stranger.user().token, user),
        (account.user(top={"exp": now - 5}).token, user),
        (account.user(top={"nbf": now + 500}).token, user),
        (operator.token(), user),
        (account.token(), user),
    ):
        with user.connect(server, jwt=jwt, sign=signer.sign) as peer:
            assert peer.ask() == REFUSED and peer.is_closed
    assert user.login(server) == [] and account.user(bearer_token=True).login(server) == []
    assert stranger.user().login(server) == REFUSED


def test_a_token_of_another_nonce_is_refused(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token()))
    user = account.user()
    with user.connect(server) as peer:
        assert peer.ask() == []
        replayed = user.sign(peer.infos[0]["nonce"].encode())
    with user.connect(server, sign=lambda nonce: replayed) as peer:
        assert peer.ask() == REFUSED


def test_an_account_that_no_operator_signed_is_refused(start: Start, operator: Operator) -> None:
    account, signing = operator.account("A"), KeyPair(nkeys.OPERATOR)
    other, self_signed = operator.account("B"), operator.account("C")
    server = start(
        operator.config(
            account.token(signing),
            other.token(KeyPair(nkeys.OPERATOR)),
            self_signed.token(self_signed.key),
            signing_keys=[signing.public],
        )
    )
    assert account.user().login(server) == []
    assert other.user().login(server) == REFUSED and self_signed.user().login(server) == REFUSED


def test_strict_signing_keys(start: Start, operator: Operator) -> None:
    signing, key = KeyPair(nkeys.OPERATOR), KeyPair(nkeys.ACCOUNT)
    account, other = operator.account("A"), operator.account("B")
    system = operator.system.token(signing)
    config = operator.config(
        account.token(signing, signing_keys=[key.public]),
        other.token(signing_keys=[key.public]),
        signing_keys=[signing.public],
        strict_signing_key_usage=True,
    ).replace(operator.system.token(), system)
    preloaded = [line for line in config.splitlines() if line.startswith(operator.system.id)]
    server = start(config.replace(preloaded[0], f"{operator.system.id}: {system}"))
    assert account.user(signer=key).login(server) == []
    assert account.user().login(server) == REFUSED and other.user(signer=key).login(server) == REFUSED


def test_a_signing_key_needs_the_account_in_the_users_token(start: Start, operator: Operator) -> None:
    account, key = operator.account("A"), KeyPair(nkeys.ACCOUNT)
    server = start(operator.config(account.token(signing_keys=[key.public])))
    assert account.user(signer=key).login(server) == []
    assert account.user(signer=key, issuer_account="").login(server) == REFUSED
    assert account.user(signer=KeyPair(nkeys.ACCOUNT)).login(server) == REFUSED


def test_limits_that_are_not_given_allow_nothing(start: Start, operator: Operator) -> None:
    one, two = operator.account("A"), operator.account("B")
    server = start(operator.config(one.token(limits={"conn": 0}), two.token(limits={"subs": 0})))
    assert one.user().login(server) == NO_MORE
    for user in (two.user(), operator.system.user(subs=0)):
        with user.connect(server) as peer:
            assert peer.rest()[-1] == b"-ERR 'maximum subscriptions exceeded'\r\n"


def test_limits_of_account_and_user(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token(limits={"conn": 2, "subs": 2, "payload": 100})))
    with account.user(payload=50).connect(server) as one, account.user(subs=1).connect(server) as two:
        assert one.ask() == one.ask() == [] and one.info["max_payload"] == 50
        assert two.ask() == two.ask() == [] and two.info["max_payload"] == 100
        assert account.user().login(server) == NO_MORE
        assert two.ask(b"SUB a 1\r\nSUB b 2\r\n") == [b"-ERR 'maximum subscriptions exceeded'\r\n"]
        assert one.ask(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n") == [b"-ERR 'maximum subscriptions exceeded'\r\n"]


def test_permissions_of_a_user(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    token = account.token(default_permissions={"pub": {"deny": ["secret"]}})
    server = start(operator.config(token))
    with account.user(pub={"allow": ["a.>"]}, sub={"deny": ["b"], "allow": ["b", "c q"]}).connect(server) as peer:
        assert peer.ask(b"PUB a.b 0\r\n\r\nPUB b 0\r\n\r\nPUB secret 0\r\n\r\n") == [
            b"-ERR 'Permissions Violation for Publish to \"b\"'\r\n",
            b"-ERR 'Permissions Violation for Publish to \"secret\"'\r\n",
        ]
        assert len(peer.ask(b"SUB b 1\r\nSUB c 2\r\nSUB c q 3\r\n")) == 2
    with account.user().connect(server) as peer:
        assert peer.ask(b"PUB any 0\r\n\r\nPUB secret 0\r\n\r\n") == [
            b"-ERR 'Permissions Violation for Publish to \"secret\"'\r\n"
        ]


def test_responses(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token()))
    service = account.user(resp={"max": 1, "ttl": 60_000_000_000}, sub={"allow": ["q"]})
    with service.connect(server) as peer, account.user().connect(server) as asker:
        peer.subscribe("q")
        asker.subscribe("back")
        asker.publish("q", b"", reply="back")
        assert peer.message().reply == "back"
        assert len(peer.ask(b"PUB back 0\r\n\r\nPUB back 0\r\n\r\nPUB x 0\r\n\r\n")) == 2


def test_where_and_how_a_user_may_connect(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token()))
    for allowed in (["127.0.0.0/8"], "10.0.0.0/8,127.0.0.1/32", ["192.168.0.0/16", "127.0.0.1/32"]):
        assert account.user(src=allowed).login(server) == []
    for denied in (["10.0.0.0/8"], "10.0.0.0/8", ["nonsense"]):
        assert account.user(src=denied).login(server) == REFUSED
    for types in (["STANDARD"], ["standard", "WEBSOCKET"], ["STANDARD", "NEVER"]):
        assert account.user(allowed_connection_types=types).login(server) == []
    for types in (["WEBSOCKET"], ["NEVER"]):
        assert account.user(allowed_connection_types=types).login(server) == REFUSED


def test_times_of_the_day(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token()))
    always = [{"start": "00:00:00", "end": "23:59:59"}]
    hour = time.gmtime().tm_hour
    never = [{"start": f"{(hour + 2) % 24:02}:00:00", "end": f"{(hour + 2) % 24:02}:30:00"}]
    assert account.user(times=always, times_location="UTC").login(server) == []
    for times, zone in ((never, "UTC"), (always, "Nowhere/City"), ([{"start": "x", "end": "y"}], "UTC")):
        assert account.user(times=times, times_location=zone).login(server) == REFUSED


def test_a_user_whose_time_is_up_is_disconnected(start: Start, operator: Operator) -> None:
    account = operator.account("A")
    server = start(operator.config(account.token()))
    with account.user(top={"exp": int(time.time()) + 2}).connect(server) as peer:
        assert peer.ask() == []
        assert [line for line in peer.rest() if line.startswith(b"-ERR")] == [b"-ERR 'User Authentication Expired'\r\n"]


def test_revoked_users_and_bearers(start: Start, operator: Operator) -> None:
    account, strict = operator.account("A"), operator.account("B")
    user, other, old = account.user(), account.user(), account.user(top={"iat": int(time.time()) - 100})
    revocations = {user.id: int(time.time()) + 5, "*": int(time.time()) - 50}
    server = start(
        operator.config(account.token(revocations=revocations), strict.token(limits={"disallow_bearer": True}))
    )
    assert user.login(server) == REFUSED and old.login(server) == REFUSED and other.login(server) == []
    assert strict.user(bearer_token=True).login(server) == REFUSED and strict.user().login(server) == []


def test_scoped_users_get_the_template(start: Start, operator: Operator) -> None:
    account, key = operator.account("A"), KeyPair(nkeys.ACCOUNT)
    template = {
        "pub": {"allow": ["req.{{name()}}.>", "t.{{tag(team)}}", "a.{{account-name()}}", "z.{{account-tag(zone)}}"]},
        "sub": {"allow": ["u.{{subject()}}", "s.{{account-subject()}}", "res.{{name()}} q"]},
        "subs": 4,
        "data": -1,
        "payload": 64,
    }
    scope = {"kind": "user_scope", "key": key.public, "role": "r", "template": template}
    server = start(operator.config(account.token(signing_keys=[scope], tags=["zone:eu"])))
    user = account.user("ann", key, scoped=True, tags=["team:red", "team:blue", "x"])
    with user.connect(server) as peer:
        allowed = ["req.ann.1", "t.red", "t.blue", "a.A", "z.eu"]
        assert peer.ask("".join(f"PUB {subject} 0\r\n\r\n" for subject in allowed).encode()) == []
        assert peer.ask() == [] and peer.info["max_payload"] == 64
        assert len(peer.ask(b"PUB req.bob.1 0\r\n\r\nPUB t.x 0\r\n\r\nSUB res.ann 1\r\nSUB res.ann q 2\r\n")) == 4
        assert peer.ask(f"SUB u.{user.id} 3\r\nSUB s.{account.id} 4\r\n".encode()) == []
    assert account.user("ann", key).login(server) == REFUSED, "a scoped user says nothing of limits"


def test_a_template_that_names_nothing_allows_nothing(start: Start, operator: Operator) -> None:
    account, key, other = operator.account("A"), KeyPair(nkeys.ACCOUNT), KeyPair(nkeys.ACCOUNT)
    limits = {"subs": -1, "data": -1, "payload": -1}
    allow = {"kind": "user_scope", "key": key.public, "template": {"pub": {"allow": ["t.{{tag(team)}}"]}, **limits}}
    deny = {"kind": "user_scope", "key": other.public, "template": {"pub": {"deny": ["t.{{tag(team)}}"]}, **limits}}
    server = start(operator.config(account.token(signing_keys=[allow, deny])))
    with account.user("ann", key, scoped=True).connect(server) as peer:
        assert len(peer.ask(b"PUB t.x 0\r\n\r\nPUB y 0\r\n\r\n")) == 2
    assert account.user("ann", other, scoped=True).login(server) == REFUSED


def test_the_user_is_told_who_it_is(start: Start, operator: Operator) -> None:
    account = operator.account("ACME")
    server = start(operator.config(account.token()))
    user = account.user("ann", top={"exp": int(time.time()) + 100}, pub={"deny": ["x"]})
    with user.connect(server) as peer:
        data = peer.request("$SYS.REQ.USER.INFO").json["data"]
    assert 90e9 < data.pop("expires") < 100e9
    assert data == {
        "user": user.id,
        "account": account.id,
        "account_name": "ACME",
        "user_name": "ann",
        "permissions": {"publish": {"deny": ["x"]}, "subscribe": {}},
    }


def test_streams_only_for_accounts_that_may_have_them(start: Start, operator: Operator) -> None:
    some, none, tiered = operator.account("A"), operator.account("B"), operator.account("C")
    tiers = {"R1": {"disk_storage": 1_000_000, "streams": 1}}
    server = start(
        operator.config(
            some.token(limits=STREAMS | {"disk_storage": 2_000_000}),
            none.token(),
            tiered.token(limits={"tiered_limits": tiers}),
        ),
        "-js",
    )
    with some.user().connect(server) as peer:
        info = peer.request("$JS.API.INFO").json
        assert (info["limits"]["max_memory"], info["limits"]["max_storage"]) == (-1, 2_000_000)
        made = peer.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"],"max_bytes":3000000}').json
        assert made["error"]["err_code"] == 10047
        assert "error" not in peer.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}').json
    with none.user().connect(server) as peer:
        assert peer.request("$JS.API.INFO").json["error"]["err_code"] == 10039
    with tiered.user().connect(server) as peer:
        info = peer.request("$JS.API.INFO").json
        assert info["limits"]["max_storage"] == 0 and info["tiers"]["R1"]["limits"]["max_storage"] == 1_000_000
        assert "error" not in peer.request("$JS.API.STREAM.CREATE.S", b'{"name":"S","subjects":["s"]}').json
        assert peer.request("$JS.API.STREAM.CREATE.T", b'{"name":"T","subjects":["t"]}').json["error"]
