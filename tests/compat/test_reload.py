"""What a reload changes for those who are connected: JetStream that comes and goes, permissions, users."""

from __future__ import annotations

import bcrypt
import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE

LIMITS = "jetstream { max_mem: 1GB, max_file: 1GB }\n"
NOT_ENABLED = {"code": 503, "err_code": 10039, "description": "JetStream not enabled for account"}
STREAM = {"name": "S", "subjects": ["s"]}
MSG = {"stream": "S", "seq": 1}


def test_turned_on_and_off_and_on_again(start: Start) -> None:
    server = start("max_payload: 1000")
    with Peer(server) as peer:
        assert peer.request("$JS.API.INFO").status == "503" and "jetstream" not in peer.info
        server.reload("max_payload: 1000\n" + LIMITS)
        assert "error" not in peer.api("STREAM.CREATE.S", STREAM)
        assert peer.request("s").json == MSG
    with Peer(server) as later:
        assert later.info["jetstream"]
    server.reload("max_payload: 1000")
    server.reload("max_payload: 1000\n" + LIMITS)
    with Peer(server) as again:
        assert again.api("STREAM.INFO.S")["state"]["messages"] == 1
        assert again.request("s").json == {**MSG, "seq": 2}


def accounts(of_x: str, of_y: str) -> str:
    x = f"X {{ jetstream: {of_x}, users: [{{user: x, password: p}}] }}"
    y = f"Y {{ jetstream: {of_y}, users: [{{user: y, password: p}}] }}"
    return f"{LIMITS} accounts {{ {x}, {y} }}"


def test_accounts_get_and_lose_it(start: Start) -> None:
    server = start(accounts("true", "false"))
    x, y = ({"user": user, "pass": "p"} for user in "xy")
    with Peer(server, **x) as peer:
        peer.api("STREAM.CREATE.S", STREAM)
        assert peer.request("s").json == MSG
    with Peer(server, **y) as peer:
        assert peer.api("INFO")["error"] == NOT_ENABLED
        server.reload(accounts("false", "{ max_streams: 3 }"))
        assert peer.api("INFO")["limits"]["max_streams"] == 3
    with Peer(server, **x) as peer:
        assert peer.api("INFO")["error"] == NOT_ENABLED and peer.request("s").status == "503"
        server.reload(accounts("true", "true"))
        assert peer.api("STREAM.INFO.S")["state"]["messages"] == 1
        assert peer.request("s").json == {**MSG, "seq": 2}


@pytest.mark.parametrize(
    "text", [LIMITS.replace("max_mem: 1GB", "max_mem: 1MB"), LIMITS + "server_name: other", "jetstream: enabled"]
)
def test_what_takes_a_restart_is_refused(start: Start, text: str) -> None:
    server = start(LIMITS)
    before = server.get("/varz")["jetstream"]["config"]
    server.refuse_reload("max_payload: 1000\n" + text)
    assert server.get("/varz")["jetstream"]["config"] == before
    with Peer(server) as peer:
        assert peer.info["max_payload"] == 1024 * 1024


def permitted(*denied: str, users: str = "ab") -> str:
    """Users who may not subscribe to some subjects."""
    rules = ", ".join(f'"{subject}"' for subject in denied)
    entries = [f"{{user: {name}, password: p, permissions: {{subscribe: {{deny: [{rules}]}}}}}}" for name in users]
    return f"authorization {{ users: [{', '.join(entries)}] }}"


def test_no_bytes_in_a_subscription_keep_a_reload_from_its_end(start: Start) -> None:
    server = start(permitted("no"))
    with Peer(server, user="a", **{"pass": "p"}) as a, Peer(server, user="b", **{"pass": "p"}) as b:
        odd = b"SUB secret.a \xff\r\nSUB secret.\xfe q\xfd r\r\nSUB secret.b s\"'\x01\r\nSUB other 1\r\n"
        assert a.ask(odd) == [] and b.ask() == []
        server.reload(permitted("no", "secret.>", users="a"))
        violation = b"-ERR 'Permissions Violation for Subscription to "
        assert sorted(a.ask(b"PUB secret.a 0\r\n\r\nPUB secret.b 0\r\n\r\nPUB other 0\r\n\r\n")) == sorted(
            [
                violation + b'"secret.a" (sid "\\xff")\'\r\n',
                violation + b'"secret.\\xfe" using queue "q\\xfd" (sid "r")\'\r\n',
                violation + b'"secret.b" (sid "s\\"\'\\x01")\'\r\n',
                b"MSG other 1 0\r\n\r\n",
            ]
        )
        b.rest()
        assert b.is_closed


def test_a_login_that_is_checked_during_a_reload_is_checked_by_what_holds_then(start: Start) -> None:
    hashed = bcrypt.hashpw(b"p", bcrypt.gensalt(12)).decode()  # which takes a good part of a second to check

    def users(*names: str) -> str:
        entries = ", ".join(f'{{user: {name}, password: "{hashed}"}}' for name in names)
        return f"authorization {{ users: [{entries}], timeout: 20 }}"

    server = start(users("a", "b"))
    with Peer(server, user="a", **{"pass": "p"}) as gone, Peer(server, user="b", **{"pass": "p"}) as stays:
        server.reload(users("b"))
        gone.rest()
        assert gone.is_closed
        if server.kind == JETLAKE:  # nats-server may refuse anybody whom it was checking
            assert stays.ask() == [] and not stays.is_closed
