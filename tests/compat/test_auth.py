"""Who may connect, and what they may do: users, tokens, nkeys, permissions, accounts."""

from __future__ import annotations

import base64
import json
import re
import signal
from collections.abc import Callable
from typing import Any

import bcrypt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.compat.conftest import Start
from tests.compat.peer import DEFAULTS, Peer
from tests.compat.servers import Server, wait_until

REFUSED = [b"-ERR 'Authorization Violation'\r\n"]


def login(server: Server, **options: Any) -> bool:
    with Peer(server, **options) as peer:
        said = peer.ask()
        assert said in ([], REFUSED) and peer.is_closed == bool(said)
        return not said


def test_one_user(start: Start) -> None:
    server = start("authorization { user: derek, password: secret }")
    assert login(server, user="derek", **{"pass": "secret"})
    for options in (
        {},
        {"user": "derek"},
        {"user": "derek", "pass": "x"},
        {"user": "x", "pass": "secret"},
        {"auth_token": "secret"},
    ):
        assert not login(server, **options)
    with Peer(server, None) as peer:
        assert peer.info["auth_required"] is True


def test_user_by_flags(start: Start) -> None:
    server = start("", "--user", "derek", "--pass", "secret")
    assert login(server, user="derek", **{"pass": "secret"}) and not login(server, user="derek", **{"pass": "y"})


def test_token(start: Start) -> None:
    server = start("authorization { token: t0ken }")
    assert login(server, auth_token="t0ken")
    assert not login(server, auth_token="other") and not login(server) and not login(server, user="t0ken")


def test_token_by_flag(start: Start) -> None:
    server = start("", "--auth", "t0ken")
    assert login(server, auth_token="t0ken") and not login(server, auth_token="x")


def test_bcrypt(start: Start) -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    token = bcrypt.hashpw(b"t0ken", bcrypt.gensalt(4)).decode()
    server = start(f'authorization {{ users: [{{user: a, password: "{hashed}"}}] }}')
    assert login(server, user="a", **{"pass": "secret"})
    assert not login(server, user="a", **{"pass": "x"}) and not login(server, user="a", **{"pass": hashed})
    server = start(f'authorization {{ token: "{token}" }}')
    assert login(server, auth_token="t0ken") and not login(server, auth_token="x")


def nkey_of(key: Ed25519PrivateKey) -> str:
    """The public user key `U...` of an ed25519 key."""
    raw = bytes([20 << 3]) + key.public_key().public_bytes_raw()
    return base64.b32encode(raw + _crc16(raw).to_bytes(2, "little")).rstrip(b"=").decode()


def _crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def signer(key: Ed25519PrivateKey) -> Callable[[bytes], str]:
    return lambda nonce: base64.urlsafe_b64encode(key.sign(nonce)).rstrip(b"=").decode()


def test_nkey(start: Start) -> None:
    key, other = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
    server = start(f"authorization {{ users: [{{nkey: {nkey_of(key)}}}] }}")
    assert login(server, sign=signer(key), nkey=nkey_of(key))
    assert not login(server, sign=signer(other), nkey=nkey_of(key))
    assert not login(server, sign=signer(other), nkey=nkey_of(other))
    assert not login(server, nkey=nkey_of(key))
    with Peer(server, None) as one, Peer(server, None) as two:
        assert one.info["nonce"] != two.info["nonce"]


def test_no_auth_user(start: Start) -> None:
    server = start("accounts { A { users: [{user: a, password: p}] } }\nno_auth_user: a")
    with Peer(server) as peer:
        assert peer.request("$SYS.REQ.USER.INFO").json["data"]["account"] == "A"
    assert login(server, user="a", **{"pass": "p"}) and not login(server, user="a", **{"pass": "wrong"})


GUEST = """
accounts {
  A { users: [{user: a, password: p, permissions: {publish: "x", subscribe: "y"}}] }
  B { users: [{user: b, password: p}] }
}
no_auth_user: a
"""


def test_whoever_sends_no_connect_is_the_no_auth_user(start: Start) -> None:
    server = start(GUEST)
    with Peer(server, None) as guest, as_user(server, "b") as other:
        other.subscribe(">")
        assert guest.ask(b"SUB > 1\r\nSUB y 2\r\nPUB z 0\r\n\r\nPUB x 0\r\n\r\n") == [
            b"-ERR 'Permissions Violation for Subscription to \">\"'\r\n",
            b"+OK\r\n",
            b"-ERR 'Permissions Violation for Publish to \"z\"'\r\n",
            b"+OK\r\n",
        ]
        assert other.ask() == []


def test_connect_as_another_forgets_what_the_no_auth_user_subscribed(start: Start) -> None:
    with Peer(start(GUEST), None) as peer:
        assert peer.ask(b"SUB y 1\r\n") == [b"+OK\r\n"]
        assert peer.ask(b'CONNECT {"verbose":false,"user":"b","pass":"p"}\r\nPUB y 0\r\n\r\n') == []


def test_a_no_auth_user_with_an_nkey_needs_a_connect(start: Start) -> None:
    nkey = nkey_of(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    server = start(f"authorization {{ users: [{{nkey: {nkey}}}] }}\nno_auth_user: {nkey}")
    with Peer(server, None) as peer:
        assert peer.ask(b"SUB a 1\r\n") == REFUSED and peer.is_closed
    assert login(server)


def test_users_that_may_connect_by_other_ways_only(start: Start) -> None:
    server = start("""
        authorization { users: [
          {user: ws, password: p, allowed_connection_types: [WEBSOCKET]}
          {user: both, password: p, allowed_connection_types: [STANDARD, WEBSOCKET]}
        ] }
        no_auth_user: ws
    """)
    assert not login(server, user="ws", **{"pass": "p"}) and login(server, user="both", **{"pass": "p"})
    assert not login(server)
    with Peer(server, None) as peer:
        assert peer.ask(b"SUB a 1\r\n") == REFUSED and peer.is_closed


ACCOUNTS = """
accounts {
  A { users: [{user: a, password: p}], jetstream: enabled }
  B { users: [{user: b, password: p}], jetstream: {max_streams: 1, max_mem: 1000, max_file: 10000} }
  C { users: [{user: c, password: p}] }
}
"""


def as_user(server: Server, user: str) -> Peer:
    return Peer(server, {**DEFAULTS, "user": user, "pass": "p"})


def test_accounts_do_not_hear_each_other(start: Start) -> None:
    server = start(ACCOUNTS, "-js")
    with as_user(server, "a") as a, as_user(server, "a") as other_a, as_user(server, "b") as b:
        for peer in (a, other_a, b):
            peer.subscribe(">")
        a.ask(b"PUB hello 0\r\n\r\n")
        assert other_a.ask() == [b"MSG hello 1 0\r\n\r\n"] and b.ask() == []
        assert a.info["remote_account"] == "A" and b.info["remote_account"] == "B"
        a.ask(b"UNSUB 1\r\n"), other_a.ask(b"UNSUB 1\r\n")
        assert a.request("service").status == "503", "b listens to everything, but in another account"


def test_streams_belong_to_accounts(start: Start) -> None:
    server = start(ACCOUNTS, "-js")
    with as_user(server, "a") as a, as_user(server, "b") as b:
        for peer in (a, b):
            assert "error" not in peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "max_bytes": 5000})
        assert a.request("s.x").json == {"stream": "S", "seq": 1}
        assert a.request("s.x").json == {"stream": "S", "seq": 2}
        assert b.request("s.x").json == {"stream": "S", "seq": 1}
        assert a.api("STREAM.DELETE.S")["success"] and a.api("STREAM.NAMES")["streams"] is None
        assert b.api("STREAM.NAMES")["streams"] == ["S"]


def test_account_without_jetstream(start: Start) -> None:
    server = start(ACCOUNTS, "-js")
    with as_user(server, "c") as c:
        error = {"code": 503, "err_code": 10039, "description": "JetStream not enabled for account"}
        assert c.api("INFO")["error"] == error
        assert c.api("STREAM.CREATE.S", {"name": "S"})["error"] == error


def test_account_limits(start: Start) -> None:
    server = start(ACCOUNTS, "-js")
    with as_user(server, "b") as b:
        info = b.api("INFO")
        assert info["limits"]["max_streams"] == 1 and info["limits"]["max_storage"] == 10000
        assert info["limits"]["max_memory"] == 1000 and info["limits"]["max_consumers"] == -1
        big = b.api("STREAM.CREATE.S", {"name": "S", "max_bytes": 20000})
        assert big["error"]["err_code"] == 10047
        memory = b.api("STREAM.CREATE.S", {"name": "S", "max_bytes": 20000, "storage": "memory"})
        assert memory["error"]["err_code"] == 10028
        assert "error" not in b.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"], "max_bytes": 9000})
        assert b.api("INFO")["reserved_storage"] == 9000
        assert b.api("STREAM.CREATE.T", {"name": "T"})["error"]["err_code"] == 10027
        assert (
            b.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "max_bytes": 11000})["error"]["err_code"] == 10047
        )


def test_account_usage_limit_refuses_publishes(start: Start) -> None:
    server = start(ACCOUNTS, "-js")
    with as_user(server, "b") as b:
        b.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        acks = [b.request("s", b"x" * 1000).json for _ in range(12)]
        assert [ack["seq"] for ack in acks[:9]] == list(range(1, 10))
        assert acks[-1]["error"] == {
            "code": 400,
            "err_code": 10002,
            "description": "resource limits exceeded for account",
        }


def test_jetstream_disabled(start: Start) -> None:
    with Peer(start()) as peer:
        assert "jetstream" not in peer.info
        assert peer.request("$JS.API.INFO").status == "503"


PERMISSIONS = """
authorization { users: [
  {user: p, password: p, permissions: {publish: ["ok.>", "_R_.>"], subscribe: ["in.>", "_INBOX.>"]}}
  {user: d, password: p, permissions: {publish: {deny: "no.>"}, subscribe: {deny: ["no.*", "in.secret"]}}}
  {user: r, password: p, permissions: {subscribe: "service", allow_responses: {max: 2, expires: "1m"}}}
  {user: q, password: p, permissions: {subscribe: ["in q", "other q*"]}}
  {user: free, password: p}
] }
"""


@pytest.fixture
def limited(start: Start) -> Server:
    return start(PERMISSIONS)


def test_publish_permissions(limited: Server) -> None:
    with as_user(limited, "p") as peer, as_user(limited, "free") as listener:
        listener.subscribe(">")
        assert peer.ask(b"PUB ok.a 0\r\n\r\n") == []
        assert peer.ask(b"PUB other 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"other\"'\r\n"]
        assert peer.ask(b"PUB ok 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"ok\"'\r\n"]
        assert listener.ask() == [b"MSG ok.a 1 0\r\n\r\n"] and not peer.is_closed


def test_publish_with_a_reply_that_is_not_permitted(limited: Server) -> None:
    with as_user(limited, "p") as peer, as_user(limited, "d") as denied:
        assert peer.ask(b"PUB ok.a reply 0\r\n\r\n") == []
        assert denied.ask(b"PUB a no.reply 0\r\n\r\n") in (
            [],
            [b"-ERR 'Permissions Violation for Publish with Reply of \"no.reply\"'\r\n"],
        )


def test_subscribe_permissions(limited: Server) -> None:
    with as_user(limited, "p") as peer:
        assert peer.ask(b"SUB in.a 1\r\nSUB in.> 2\r\n") == []
        assert peer.ask(b"SUB out 3\r\n") == [b"-ERR 'Permissions Violation for Subscription to \"out\"'\r\n"]
        assert peer.ask(b"SUB > 4\r\n") == [b"-ERR 'Permissions Violation for Subscription to \">\"'\r\n"]
        assert peer.ask(b"SUB out q 5\r\n") == [
            b'-ERR \'Permissions Violation for Subscription to "out" using queue "q"\'\r\n'
        ]
        assert not peer.is_closed


def test_denied_subjects(limited: Server) -> None:
    with as_user(limited, "d") as peer, as_user(limited, "free") as other:
        assert peer.ask(b"PUB no.a 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"no.a\"'\r\n"]
        assert peer.ask(b"SUB no.a 1\r\n") == [b"-ERR 'Permissions Violation for Subscription to \"no.a\"'\r\n"]
        assert peer.ask(b"SUB in.* 2\r\n") == []
        other.ask(b"PUB in.secret 0\r\n\r\nPUB in.open 0\r\n\r\n")
        assert peer.ask() == [b"MSG in.open 2 0\r\n\r\n"]


def test_allowed_responses_are_counted(limited: Server) -> None:
    with as_user(limited, "r") as service, as_user(limited, "free") as client:
        service.subscribe("service")
        client.subscribe("inbox.*", "2")
        client.ask(b"PUB service inbox.1 0\r\n\r\n")
        assert len(service.ask()) == 1
        reply = b"PUB inbox.1 1\r\nx\r\n"
        assert service.ask(reply * 3) == [b"-ERR 'Permissions Violation for Publish to \"inbox.1\"'\r\n"]
        assert service.ask(b"PUB inbox.2 0\r\n\r\n") == [b"-ERR 'Permissions Violation for Publish to \"inbox.2\"'\r\n"]
        assert len(client.ask()) == 2


def test_queue_permissions(limited: Server) -> None:
    with as_user(limited, "q") as peer:
        assert peer.ask(b"SUB in q 1\r\n") == []
        assert peer.ask(b"SUB in other 2\r\n") == [
            b'-ERR \'Permissions Violation for Subscription to "in" using queue "other"\'\r\n'
        ]
        assert peer.ask(b"SUB other q1 3\r\n") == [
            b'-ERR \'Permissions Violation for Subscription to "other" using queue "q1"\'\r\n'
        ]
        assert peer.ask(b"SUB in 4\r\n") == [b"-ERR 'Permissions Violation for Subscription to \"in\"'\r\n"]


def test_user_info_shows_permissions(limited: Server) -> None:
    with as_user(limited, "free") as peer:
        assert peer.request("$SYS.REQ.USER.INFO").json["data"]["user"] == "free"
    with as_user(limited, "d") as peer:
        data = peer.request("$SYS.REQ.USER.INFO").json["data"]
        assert data["permissions"]["publish"] == {"deny": ["no.>"]}


def test_reload_changes_users(start: Start) -> None:
    server = start("authorization { users: [{user: a, password: p}, {user: b, password: p}] }")
    with as_user(server, "a") as a, as_user(server, "b") as b:
        assert a.ask() == [] and b.ask() == []
        server.reload("authorization { users: [{user: b, password: p}, {user: c, password: p}] }")
        said = [frame for frame in a.rest() if frame[:4] != b"INFO"]
        assert said == [] and b.ask() == []
    assert not login(server, user="a", **{"pass": "p"}) and login(server, user="c", **{"pass": "p"})


def test_reload_changes_a_password(start: Start) -> None:
    server = start("authorization { users: [{user: a, password: p}] }")
    with as_user(server, "a") as a:
        assert a.ask() == []
        server.reload("authorization { users: [{user: a, password: other}] }")
        assert REFUSED[0] in a.rest()


def test_reload_refuses_who_never_logged_in(start: Start) -> None:
    server = start("max_payload: 1000")
    with Peer(server, None) as peer:
        assert peer.ask(b"SUB > 1\r\n") == [b"+OK\r\n"]
        server.reload("authorization { users: [{user: b, password: p}] }")
        assert REFUSED[0] in peer.rest()


def test_reload_changes_permissions(start: Start) -> None:
    server = start("authorization { users: [{user: a, password: p}] }")
    with as_user(server, "a") as a:
        assert a.ask(b"SUB in 1\r\nSUB out 2\r\n") == []
        server.reload(
            'authorization { users: [{user: a, password: p, permissions: {subscribe: "in", publish: "in"}}] }'
        )
        said = a.ask(b"PUB out 0\r\n\r\nPUB in 0\r\n\r\n")
    assert b'-ERR \'Permissions Violation for Subscription to "out" (sid "2")\'\r\n' in said
    assert said[-2:] == [b"-ERR 'Permissions Violation for Publish to \"out\"'\r\n", b"MSG in 1 0\r\n\r\n"]


def test_a_wrong_reload_changes_nothing(start: Start) -> None:
    server = start("authorization { users: [{user: a, password: p}] }")
    server.write_config("authorization { users: [{user: a")
    server.signal(signal.SIGHUP)
    wait_until(lambda: "[ERR]" in server.log(), "a complaint in the log")
    assert login(server, user="a", **{"pass": "p"})


def test_info_of_users_is_json(limited: Server) -> None:
    with as_user(limited, "free") as peer:
        assert json.loads(peer.request("$SYS.REQ.USER.INFO").payload)["server"]["ver"] == "2.15.1"


def test_nothing_that_a_client_says_forges_a_line_of_the_log(start: Start) -> None:
    forged = "x\n[1] 2026/01/01 00:00:00.000000 [INF] Server is forged\r\x1b[2J\u2028[INF] forged"
    denied = '"no.>"'
    permissions = f"{{publish: {{deny: [{denied}]}}, subscribe: {{deny: [{denied}]}}}}"
    server = start(f"authorization {{ users: [{{user: a, password: p, permissions: {permissions}}}] }}", "-DV")
    said = {"name": forged, "lang": forged, "version": forged}
    for login in ({"user": forged}, {"nkey": forged}, {"user": "a", "pass": forged}, {"user": "a", "pass": "p"}):
        with Peer(server, **said, **login) as peer:
            peer.ask(b"SUB no.\xff q\xfe 1\r\nPUB no.\x0b\xff 0\r\n\r\nSUB no\x0bx y\x0bz\r\nFOO\x0b\xff\r\n")
    server.stop()
    lines = [line for line in server.log().split("\n") if line]
    assert [
        line for line in lines if not re.match(r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[[A-Z]{3}\] ", line)
    ] == []
