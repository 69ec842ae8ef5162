"""JetStream that is turned on and off by a reload, for the server and for accounts."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Peer

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
