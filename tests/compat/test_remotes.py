"""Copies of streams on a server that only client credentials reach: JetLake beside nats-server, and beside itself."""

from __future__ import annotations

import base64
import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from jetlake import nkeys
from jetlake.nkeys import KeyPair
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, KINDS, Server, wait_until
from tests.compat.tokens import Operator
from tests.server.certificates import Certificates

AUTH = "authorization { users: [{ user: copy, password: right }] }\n"
MIRROR = {"name": "M", "mirror": {"name": "O", "external": {"api": "$JETLAKE.REMOTE.prod", "deliver": ""}}}
Make = Callable[..., Server]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Start a server of a kind; all are stopped in the end."""
    with ExitStack() as stack:
        yield lambda kind, name, config="": stack.enter_context(Server(kind, tmp_path / name, ["-js"], config))


def put(peer: Peer, origin: Server, **fields: object) -> Any:
    body = {"urls": [origin.url], "user": "copy", "password": "right", **fields}
    return json.loads(peer.request("$JETLAKE.API.REMOTE.PUT.prod", json.dumps(body).encode()).payload)


def origin_peer(origin: Server) -> Peer:
    return Peer(origin, user="copy", **{"pass": "right"})


def fill(origin: Peer, first: int, last: int) -> None:
    for number in range(first, last + 1):
        origin.publish(f"o.{number % 3}", b"%d" % number, b"NATS/1.0\r\nA: b\r\n\r\n" if number % 2 else b"")
    origin.ask()


def payloads(peer: Peer, name: str, last: int) -> dict[int, str]:
    found = {}
    for seq in range(1, last + 1):
        answer = peer.api(f"STREAM.MSG.GET.{name}", {"seq": seq})
        if "message" in answer:
            found[seq] = f"{answer['message']['subject']} {answer['message']['time']} {answer['message'].get('data')}"
    return found


def health(server: Server) -> str:
    """What a health check says, in whatever words."""
    try:
        return str(server.get("/healthz?details=true"))
    except HTTPError as error:
        return error.read().decode()


def caught_up(peer: Peer, last: int, name: str = "M") -> bool:
    return bool(peer.api(f"STREAM.INFO.{name}")["state"]["last_seq"] == last)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mirror_equals_its_origin_through_restarts_of_both(make: Make, kind: str) -> None:
    origin, copy = make(kind, "origin", AUTH), make(JETLAKE, "copy")
    with origin_peer(origin) as theirs:
        theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        fill(theirs, 1, 50)
        theirs.api("STREAM.MSG.DELETE.O", {"seq": 20})
        with Peer(copy) as ours:
            assert "error" not in put(ours, origin)
            ours.api("STREAM.CREATE.M", MIRROR)
            wait_until(lambda: caught_up(ours, 50), "the copy")
            fill(theirs, 51, 60)
            wait_until(lambda: caught_up(ours, 60), "what came later")
            assert payloads(ours, "M", 60) == payloads(theirs, "O", 60)
            info = ours.api("STREAM.INFO.M")["mirror"]
            assert info["lag"] == 0 and 0 <= info["active"] < 5e9 and "error" not in info
        copy.kill()
        fill(theirs, 61, 70)
        copy.start()
        with Peer(copy) as ours:
            wait_until(lambda: caught_up(ours, 70), "what was missed")
    origin.kill()
    with Peer(copy) as ours:
        wait_until(lambda: "error" in ours.api("STREAM.INFO.M")["mirror"], "the error")
        origin.start()
        with origin_peer(origin) as theirs:
            fill(theirs, 71, 80)
            wait_until(lambda: caught_up(ours, 80), "what came after the origin's restart", 30)
            assert payloads(ours, "M", 80) == payloads(theirs, "O", 80)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_at_the_origin(make: Make, kind: str) -> None:
    origin, copy = make(kind, "origin", AUTH), make(JETLAKE, "copy")
    with origin_peer(origin) as theirs, Peer(copy) as ours:
        theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        fill(theirs, 1, 5)
        config = theirs.api("STREAM.INFO.O")["config"]
        put(ours, origin)
        ours.api("STREAM.CREATE.M", MIRROR)
        wait_until(lambda: caught_up(ours, 5), "the copy")
        assert theirs.api("CONSUMER.NAMES.O")["consumers"] in (None, [])  # it is hidden
        ours.api("STREAM.DELETE.M")
        listing = "/jsz?streams=1&consumers=1&direct-consumers=1"

        def hidden() -> int:
            streams = origin.get(listing).get("account_details", [{}])[0].get("stream_detail", [])
            return sum(len(each.get("direct_consumer_detail") or ()) for each in streams)

        wait_until(lambda: hidden() == 0, "the end of the hidden consumer", 25)
        assert theirs.api("STREAM.INFO.O")["config"] == config


def test_wrong_credentials_are_told_and_can_be_put_right(make: Make) -> None:
    origin, copy = make(KINDS[0], "origin", AUTH), make(JETLAKE, "copy")
    with origin_peer(origin) as theirs, Peer(copy) as ours:
        theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        fill(theirs, 1, 5)
        put(ours, origin, password="n0t-this")
        ours.api("STREAM.CREATE.M", MIRROR)

        def problem() -> str:
            return str(ours.api("STREAM.INFO.M")["mirror"].get("error", {}).get("description", ""))

        wait_until(lambda: "refused the login: Authorization Violation" in problem(), "the refusal")
        wait_until(lambda: "Authorization Violation" in copy.log(), "the line in the log")
        assert "n0t-this" not in copy.log()
        put(ours, origin)
        wait_until(lambda: caught_up(ours, 5), "the copy")


def test_every_kind_of_credentials(make: Make, tmp_path: Path) -> None:
    operator, key, certificates = Operator(), KeyPair(nkeys.USER), Certificates(tmp_path)
    account = operator.account("A")
    user = account.user()
    token = account.token(limits={"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1})
    creds = (
        f"-----BEGIN NATS USER JWT-----\n{user.token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.key.seed}\n------END USER NKEY SEED------\n"
    )
    origins: dict[str, tuple[Server, Peer, dict[str, Any]]] = {}
    for name, config, connect, fields in (
        ("token", "authorization { token: t0ken }", {"auth_token": "t0ken"}, {"token": "t0ken"}),
        ("nkey", f"authorization {{ users: [{{ nkey: {key.public} }}] }}", {"nkey": key.public}, {"nkey": key.seed}),
        ("creds", operator.config(token), {"jwt": user.token}, {"creds": creds}),
        ("tls", certificates.block(), {}, {"tls": True, "ca": certificates.path("ca", "crt").read_text()}),
    ):
        origin = make(KINDS[0], name, config)
        signer = {"nkey": _signer(key), "creds": user.sign}.get(name)
        peer = Peer(origin, sign=signer, tls=certificates.context() if name == "tls" else None, **connect)
        origins[name] = (origin, peer, fields)
    with Peer(make(JETLAKE, "copy")) as ours:
        for name, (origin, theirs, fields) in origins.items():
            assert "did_create" in theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]}), name
            fill(theirs, 1, 5)
            url = origin.url.replace("127.0.0.1", "localhost")
            body = json.dumps({"urls": [url], **fields}).encode()
            ours.request(f"$JETLAKE.API.REMOTE.PUT.{name}", body)
            external = {"api": f"$JETLAKE.REMOTE.{name}", "deliver": ""}
            ours.api(f"STREAM.CREATE.{name}", {"name": name, "mirror": {"name": "O", "external": external}})
        for name in origins:
            wait_until(lambda name=name: caught_up(ours, 5, name), f"the copy by {name}")  # type: ignore[misc]


def _signer(key: KeyPair) -> Callable[[bytes], str]:
    return lambda nonce: base64.urlsafe_b64encode(key.sign(nonce)).decode().rstrip("=")


def test_the_copy_of_a_work_queue_is_refused_because_it_would_take_its_messages(make: Make) -> None:
    origin, copy = make(KINDS[0], "origin", AUTH), make(JETLAKE, "copy")
    with origin_peer(origin) as theirs, Peer(copy) as ours:
        theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"], "retention": "workqueue"})
        fill(theirs, 1, 5)
        put(ours, origin)
        ours.api("STREAM.CREATE.M", MIRROR)
        wait_until(lambda: "workqueue" in str(ours.api("STREAM.INFO.M")["mirror"].get("error")), "the refusal")
        assert theirs.api("STREAM.INFO.O")["state"]["messages"] == 5
        assert theirs.api("STREAM.INFO.O")["state"]["consumer_count"] == 0


def test_sources_of_a_remote_that_comes_later(make: Make) -> None:
    origin, copy = make(KINDS[0], "origin", AUTH), make(JETLAKE, "copy")
    with origin_peer(origin) as theirs, Peer(copy) as ours:
        theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        fill(theirs, 1, 9)
        source = {**MIRROR["mirror"], "filter_subject": "o.1"}  # type: ignore[dict-item]
        ours.api("STREAM.CREATE.M", {"name": "M", "sources": [source]})
        wait_until(lambda: "not known" in str(ours.api("STREAM.INFO.M")["sources"][0].get("error")), "the refusal")
        put(ours, origin)
        wait_until(lambda: ours.api("STREAM.INFO.M")["state"]["messages"] == 3, "the copies")


def test_remotes_are_kept_for_their_owner_alone_and_shown_without_secrets(make: Make) -> None:
    copy = make(JETLAKE, "copy")
    with Peer(copy) as ours:
        body = json.dumps({"urls": ["nats://me:secret1@127.0.0.1:1"], "password": "secret2", "user": "u"}).encode()
        ours.subscribe("$JS.EVENT.ADVISORY.API", "9")
        assert b"error" not in ours.request("$JETLAKE.API.REMOTE.PUT.prod", body).payload
        refused = ours.request("$JETLAKE.API.REMOTE.PUT.a+b", body).payload
        assert b"error" in refused and b"secret" not in refused
    copy.kill()
    (path,) = copy.store.rglob("remotes.secret.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    copy.start()
    with Peer(copy) as ours:
        shown = ours.request("$JETLAKE.API.REMOTE.LIST").payload
        assert b"secret" not in shown
        assert json.loads(shown)["remotes"] == [
            {"name": "prod", "urls": ["nats://127.0.0.1:1"], "is_configured": False}
        ]
        assert json.loads(ours.request("$JETLAKE.API.REMOTE.DELETE.prod").payload)["success"]
        assert json.loads(ours.request("$JETLAKE.API.REMOTE.LIST").payload)["remotes"] == []
    assert "secret" not in copy.log()


def test_clients_of_several_accounts_name_remotes_only_where_that_is_allowed(make: Make) -> None:
    accounts = "accounts { A { jetstream: enabled, users: [{user: a, password: a}] } }"
    for number, (option, is_allowed) in enumerate((("", False), ("jetstream { allow_remote_api: true }", True))):
        with Peer(make(JETLAKE, f"copy{number}", option + "\n" + accounts), user="a", **{"pass": "a"}) as ours:
            answer = json.loads(ours.request("$JETLAKE.API.REMOTE.PUT.x", b'{"urls":["nats://127.0.0.1:1"]}').payload)
            assert ("error" not in answer) is is_allowed


def test_configured_remotes_are_for_their_account_and_the_api_can_be_turned_off(make: Make) -> None:
    origin = make(KINDS[0], "origin", AUTH)
    config = f"""
    jetstream {{ allow_remote_api: false, remotes {{
        prod {{ urls: ["{origin.url}"], user: copy, password: right, account: A }}
        other {{ url: "{origin.url}", token: x, account: B }}
    }} }}
    accounts {{ A {{ jetstream: enabled, users: [{{user: a, password: a}}] }},
                B {{ jetstream: enabled, users: [{{user: b, password: b}}] }} }}
    """
    copy = make(JETLAKE, "copy", config)
    with origin_peer(origin) as theirs, Peer(copy, user="a", **{"pass": "a"}) as ours:
        theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        fill(theirs, 1, 5)
        answer = json.loads(ours.request("$JETLAKE.API.REMOTE.PUT.x", b'{"urls":["nats://127.0.0.1:1"]}').payload)
        assert "allow_remote_api" in answer["error"]["description"]
        names = [each["name"] for each in json.loads(ours.request("$JETLAKE.API.REMOTE.LIST").payload)["remotes"]]
        assert names == ["prod"]
        ours.api("STREAM.CREATE.M", MIRROR)
        wait_until(lambda: caught_up(ours, 5), "the copy")


@pytest.mark.parametrize("is_right", [True, False])
def test_the_command_makes_remote_and_mirror(make: Make, tmp_path: Path, is_right: bool) -> None:
    origin, copy = make(KINDS[0], "origin", AUTH), make(JETLAKE, "copy")
    with origin_peer(origin) as theirs:
        theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        fill(theirs, 1, 5)
        password = "right" if is_right else "wrong"
        command = [sys.executable, "-m", "jetlake.cli.main", "mirror", origin.url, "O", "--server", copy.url]
        command += ["--as", "M", "--user", "copy", "--password", password, "--wait", "4"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if is_right:
        assert done.returncode == 0 and "M: 5 messages, 0 to come" in done.stdout, done
    else:
        assert done.returncode == 2 and "refused the login" in done.stderr and "wrong" not in done.stderr, done


def test_an_origin_that_hangs_is_left_and_found_again(make: Make) -> None:
    """A connection that is there and says nothing is given up."""
    origin, copy = make(KINDS[0], "origin", AUTH), make(JETLAKE, "copy")
    with Peer(copy) as ours:
        with origin_peer(origin) as theirs:
            theirs.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
            fill(theirs, 1, 5)
        put(ours, origin)
        ours.api("STREAM.CREATE.M", MIRROR)
        wait_until(lambda: caught_up(ours, 5), "the copy")
        origin.signal(signal.SIGSTOP)
        try:
            begin = time.monotonic()
            wait_until(lambda: "'M'" in health(copy), "the health check", 10)
            assert time.monotonic() - begin < 10
        finally:
            origin.signal(signal.SIGCONT)
        with origin_peer(origin) as theirs:
            fill(theirs, 6, 9)
        wait_until(lambda: caught_up(ours, 9), "what came later", 30)
