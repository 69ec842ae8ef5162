from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from jetlake.broker.auth import Authenticator, Credentials, User
from jetlake.server import reload
from tests.server.certificates import Certificates
from tests.server.harness import LOOPBACK, Peer, page, running, until

A = {"user": "a", "pass": "p"}
B = {"user": "b", "pass": "p"}
REFUSED = ["-ERR 'Authorization Violation'"]


def users(*entries: str) -> str:
    return f"authorization {{ users: [{', '.join(entries)}] }}"


USER_A, USER_B = "{user: a, password: p}", "{user: b, password: p}"


async def test_who_vanished_is_hung_up_on_and_others_stay() -> None:
    async with running(users(USER_A, USER_B)) as server:
        a, b = await Peer.connect(server, **A), await Peer.connect(server, **B)
        await a.ask(), await b.ask()
        await server.reload_with(users(USER_B))
        assert await a.rest() == [] and await b.ask() == []


async def test_another_password_refuses_who_has_the_old_one() -> None:
    async with running(users(USER_A)) as server:
        a = await Peer.connect(server, **A)
        await a.ask()
        await server.reload_with(users("{user: a, password: other}"))
        assert await a.rest() == REFUSED
        assert server.log_lines.has('authentication error - User "a"')
        assert await (await Peer.connect(server, user="a", **{"pass": "other"})).ask() == []


async def test_a_hash_of_the_same_password_refuses_nobody() -> None:
    import bcrypt

    hashed = bcrypt.hashpw(b"p", bcrypt.gensalt(4)).decode()
    async with running(users(USER_A)) as server:
        a = await Peer.connect(server, **A)
        await a.ask()
        await server.reload_with(users(f'{{user: a, password: "{hashed}"}}'))
        assert await a.ask() == []


async def test_who_moves_to_another_account_has_to_come_again() -> None:
    async with running(f"accounts {{ X {{ users: [{USER_A}] }}, Y {{ users: [{USER_B}] }} }}") as server:
        a = await Peer.connect(server, **A)
        await a.ask()
        await server.reload_with(f"accounts {{ X {{ users: [{USER_B}] }}, Y {{ users: [{USER_A}] }} }}")
        assert await a.rest() == []
        again = await Peer.connect(server, **A)
        await again.ask(), await again.ask()
        assert again.info["remote_account"] == "Y"


async def test_users_where_there_were_none_refuse_who_is_nobody() -> None:
    async with running() as server:
        peer = await Peer.connect(server)
        await peer.ask()
        await server.reload_with("authorization { token: t }")
        assert await peer.rest() == REFUSED
        assert (await Peer.open(server)).info["auth_required"] is True


async def test_subscriptions_that_are_no_longer_permitted_are_removed() -> None:
    async with running(users(USER_A)) as server:
        a = await Peer.connect(server, **A)
        await a.ask("SUB in 1\r\nSUB out 2\r\nSUB out q 3\r\nSUB all.> 4\r\n")
        rules = 'permissions: {subscribe: {allow: ["in", "all.>"], deny: "all.secret"}, publish: {deny: "no"}}'
        await server.reload_with(users(f"{{user: a, password: p, {rules}}}"))
        assert [await a.line() for _ in range(3)][1:] == [
            """-ERR 'Permissions Violation for Subscription to "out" (sid "2")'""",
            """-ERR 'Permissions Violation for Subscription to "out" using queue "q" (sid "3")'""",
        ]
        assert await a.ask("PUB all.secret 1\r\nx\r\nPUB all.else 1\r\ny\r\n") == ["MSG all.else 4 1", "y"]
        assert await a.ask("PUB no 0\r\n\r\n") == ["""-ERR 'Permissions Violation for Publish to "no"'"""]
        await server.reload_with(users(USER_A))
        assert await a.ask("PUB all.secret 1\r\nx\r\nPUB no 0\r\n\r\n") == ["MSG all.secret 4 1", "x"]


async def test_limits_hold_for_those_who_are_here() -> None:
    async with running() as server:
        peer = await Peer.connect(server)
        await peer.ask("SUB a 1\r\n")
        await server.reload_with("max_payload: 4\nmax_subscriptions: 1\nmax_control_line: 64")
        assert await peer.ask("SUB b 2\r\n") == ["-ERR 'maximum subscriptions exceeded'"]
        assert await peer.ask("PUB x 5\r\n12345\r\n") == ["-ERR 'Maximum Payload Violation'"]
        assert server.log_lines.has("Reloaded: max_payload = 4")
        assert (await Peer.open(server)).info["max_payload"] == 4


async def test_fewer_connections_are_made_so() -> None:
    async with running() as server:
        first, second = await Peer.connect(server), await Peer.connect(server)
        await first.ask(), await second.ask()
        await server.reload_with("max_connections: 1")
        assert await first.rest() == ["-ERR 'maximum connections exceeded'"] and await second.ask() == []


async def test_fewer_connections_of_an_account_are_made_so() -> None:
    account = f"accounts {{ X {{ users: [{USER_A}] LIMITS }} }}"
    async with running(account.replace("LIMITS", "")) as server:
        first, second = await Peer.connect(server, **A), await Peer.connect(server, **A)
        await first.ask(), await second.ask()
        await server.reload_with(account.replace("LIMITS", ", limits { max_connections: 1 }"))
        assert await first.rest() == ["-ERR 'maximum account active connections exceeded'"]
        assert await second.ask() == []


async def test_pings_come_as_often_as_the_new_interval_says() -> None:
    async with running() as server:
        peer = await Peer.connect(server)
        await peer.ask()
        await server.reload_with('ping_interval: "50ms"\nping_max: 1')
        assert await peer.rest() == ["PING", "-ERR 'Stale Connection'"]


async def test_log_options_change() -> None:
    async with running() as server:
        await server.reload_with("debug: true\ntrace: true")
        await (await Peer.connect(server)).ask()
        assert server.log_lines.has("Client connection created") and server.log_lines.has("<<- [PING]")
        await server.reload_with("debug: false")
        count = len(server.log_lines.lines)
        await (await Peer.connect(server)).ask()
        assert len(server.log_lines.lines) == count


async def test_tls_comes_changes_and_goes(tmp_path: Path) -> None:
    one, two = (Certificates(tmp_path / name) for name in ("one", "two") if (tmp_path / name).mkdir() is None)

    async def is_trusted(certificates: Certificates) -> bool:
        try:
            await Peer.open(server, certificates.context())
        except OSError:
            return False
        return True

    async with running() as server:
        old = await Peer.connect(server)
        await old.ask()
        for certificates, other in ((one, two), (two, one)):
            await server.reload_with(certificates.block("handshake_first: true"))
            assert await is_trusted(certificates) and not await is_trusted(other)
        assert server.log_lines.has("Reloaded: tls = enabled")
        await server.reload_with("ping_max: 2")
        assert await (await Peer.connect(server)).ask() == [] and await old.ask() == []


async def test_websocket_takes_other_certificates(tmp_path: Path) -> None:
    one, two = (Certificates(tmp_path / name) for name in ("one", "two") if (tmp_path / name).mkdir() is None)

    def listener(certificates: Certificates, more: str = "") -> str:
        return f"websocket {{ host: {LOOPBACK}, port: -1\n{certificates.block()}\n{more} }}"

    async def is_trusted(certificates: Certificates) -> bool:
        port, context = server.websocket_listener.port, certificates.context()
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context, server_hostname="localhost")
        except OSError:
            return False
        writer.close()
        return True

    async with running(listener(one)) as server:
        assert await is_trusted(one) and not await is_trusted(two)
        await server.reload_with(listener(two))
        assert await is_trusted(two) and not await is_trusted(one)
        await server.reload_with(listener(one, "compression: true"))
        assert "not supported for websocket" in server.log_lines.lines[-1] and await is_trusted(two)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("server_name: other", "not supported for server_name"),
        ("http: 127.0.0.1:-1", "not supported for http"),
        ('jetstream { store_dir: "/dev/null/nowhere" }', "/dev/null"),
        ("websocket { port: -1, no_tls: true }", "not supported for websocket"),
        ('tls { cert_file: "/nowhere", key_file: "/nowhere" }', "certificate"),
        (users('{user: a, permissions: {publish: "a..b"}}'), "a..b"),
    ],
)
async def test_what_cannot_change_changes_nothing(text: str, complaint: str) -> None:
    async with running(users(USER_A)) as server:
        before = server.options
        await server.reload_with(f"ping_max: 7\n{text}")
        assert server.options is before and server.tls is None
        assert server.log_lines.lines[-1].startswith("[error] Failed to reload server configuration:")
        assert complaint in server.log_lines.lines[-1]
        assert await (await Peer.connect(server, **A)).ask() == []


async def test_files_that_cannot_be_written_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "ports").mkdir()
    text = f'ports_file_dir: "{tmp_path}/ports"'
    async with running(text) as server:
        await server.reload_with(f'ping_max: 9\nports_file_dir: "{tmp_path}/nowhere"')
        assert server.log_lines.has("Failed to reload") and server.options.ping_max == 2
        assert len(list((tmp_path / "ports").glob("*.ports"))) == 1
        await server.reload_with(f"ping_max: 9\n{text}")
        assert server.options.ping_max == 9


async def test_a_server_without_a_file_has_nothing_to_reload() -> None:
    async with running() as server:
        await server.reload()
        assert server.log_lines.has("can only reload config when a file is provided")


async def test_secrets_of_a_refused_reload_are_not_logged(tmp_path: Path) -> None:
    async with running('jetstream { key: "hush hush" }', tmp_path) as server:
        await server.reload_with(f'jetstream {{ key: "hush again", store_dir: "{tmp_path}" }}')
        assert server.log_lines.has("not supported for jetstream key") and not server.log_lines.has("hush")


async def test_streams_may_be_given_more_room(tmp_path: Path) -> None:
    text = f'jetstream {{ max_mem: SIZE, max_file: 10MB, store_dir: "{tmp_path}" }}'
    async with running(text.replace("SIZE", "10MB"), tmp_path) as server:
        assert server.jetstream is not None
        await server.reload_with(text.replace("SIZE", "20MB"))
        assert server.jetstream.max_memory == 20 << 20
        await server.reload_with(text.replace("SIZE", "15MB"))
        assert server.jetstream.max_memory == 20 << 20 and server.log_lines.has(
            "not supported for jetstream max_memory"
        )


async def test_a_new_account_gets_its_streams(tmp_path: Path) -> None:
    text = f'jetstream {{ store_dir: "{tmp_path}" }}\naccounts {{ X {{ users: [{USER_A}], jetstream: enabled }} MORE }}'
    async with running(text.replace("MORE", ""), tmp_path) as server:
        await server.reload_with(text.replace("MORE", f", Y {{ users: [{USER_B}], jetstream: {{ max_streams: 1 }} }}"))
        peer = await Peer.connect(server, **B)
        assert (await peer.request("$JS.API.INFO"))["limits"]["max_streams"] == 1
        assert (await peer.request("$SYS.REQ.USER.INFO"))["data"]["account"] == "Y"


async def create(peer: Peer, name: str = "S") -> None:
    assert (await peer.request(f"$JS.API.STREAM.CREATE.{name}", f'{{"name":"{name}"}}'))["did_create"]


async def test_jetstream_comes_and_goes_and_its_streams_stay(tmp_path: Path) -> None:
    on, off = f'jetstream {{ store_dir: "{tmp_path}" }}', "ping_max: 2"
    async with running(off) as server:
        peer = await Peer.connect(server)
        assert await peer.ask() == [] and "jetstream" not in peer.info
        await server.reload_with(on)
        await create(peer)
        assert (await peer.request("S", "payload")) == {"stream": "S", "seq": 1}
        assert (await Peer.connect(server)).info["jetstream"]
        await server.reload_with(off)
        assert server.log_lines.has("JetStream Shutdown") and server.jetstream is None
        assert (await peer.request("S")).startswith("NATS/1.0 503")
        assert "jetstream" not in (await Peer.connect(server)).info
        await server.reload_with(on)
        assert (await peer.request("S", "payload")) == {"stream": "S", "seq": 2}


async def test_jetstream_that_cannot_start_changes_nothing(tmp_path: Path) -> None:
    async with running("", tmp_path), running("ping_max: 2") as server:
        before = server.options
        await server.reload_with(f'ping_max: 7\njetstream {{ store_dir: "{tmp_path}" }}')
        assert server.log_lines.has("Failed to reload") and server.log_lines.has("another")
        assert server.options is before and server.jetstream is None
        assert "jetstream" not in (await Peer.connect(server)).info


async def test_accounts_get_and_lose_jetstream(tmp_path: Path) -> None:
    text = f'''jetstream {{ store_dir: "{tmp_path}" }}
        accounts {{ X {{ users: [{USER_A}], jetstream: OF_X }}, Y {{ users: [{USER_B}], jetstream: OF_Y }} }}'''
    x, y = (text.replace("OF_X", of_x).replace("OF_Y", of_y) for of_x, of_y in (("true", "false"), ("false", "true")))
    async with running(x, tmp_path) as server:
        a, b = await Peer.connect(server, **A), await Peer.connect(server, **B)
        await create(a)
        assert (await a.request("S", "payload"))["seq"] == 1
        assert (await b.request("$JS.API.INFO"))["error"]["err_code"] == 10039
        await server.reload_with(y)
        assert (await a.request("$JS.API.INFO"))["error"]["err_code"] == 10039
        await create(b)
        await server.reload_with(x)
        assert (await a.request("$JS.API.INFO"))["streams"] == 1
        assert (await a.request("S", "payload"))["seq"] == 2
        assert (await b.request("$JS.API.STREAM.NAMES"))["error"]["err_code"] == 10039


async def test_two_reloads_at_once_come_one_after_the_other() -> None:
    async with running("http: 127.0.0.1:-1") as server:
        before = (await page(server, "/varz"))["config_load_time"]
        server.reload_soon()
        server.reload_soon()
        await until(lambda: not server._tasks, "both reloads")
        await server.reload_with("http: 127.0.0.1:-1\nping_max: 9")
        varz = await page(server, "/varz")
        assert varz["ping_max"] == 9 and varz["config_load_time"] > before


async def test_a_client_with_which_a_reload_fails_is_closed_and_others_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(users(USER_A, USER_B, "{user: c, password: p}")) as server:
        odd, b, c = [await Peer.connect(server, user=name, **{"pass": "p"}) for name in "abc"]
        for peer in (odd, b, c):
            await peer.ask()
        client = next(client for client in server.broker.clients.values() if client.user_name == "a")
        monkeypatch.setattr(client, "recheck_subscriptions", lambda: 1 // 0)
        await server.reload_with(users(USER_A, USER_B))
        assert await odd.rest() == [] and await b.ask() == [] and await c.rest() == []
        assert server.failed.count == 1 and server.log_lines.has("Reloaded server configuration")


async def test_what_a_reload_could_not_do_is_done_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(users(USER_A, USER_B)) as server:
        a = await Peer.connect(server, **A)
        await a.ask()
        with monkeypatch.context() as broken:
            broken.setattr(reload, "_recheck", lambda *_: 1 // 0)
            await server.reload_with(users(USER_B))
        assert server.log_lines.has("could not be applied to: clients; reload again")
        assert await a.ask() == []
        await server.reload_with(users(USER_B))
        assert await a.rest() == []
        assert server.unapplied == set()


@pytest.mark.parametrize("after", [users(USER_B), users("{user: a, password: other}")], ids=["gone", "changed"])
async def test_a_login_that_is_checked_during_a_reload_is_checked_again(
    after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import bcrypt

    hashed = bcrypt.hashpw(b"p", bcrypt.gensalt(4)).decode()
    begun, may_end = threading.Event(), threading.Event()

    def slow(self: Authenticator, credentials: Credentials, nonce: bytes = b"") -> User | None:
        begun.set()
        assert may_end.wait(10)
        return check(self, credentials, nonce)

    async with running(users(f'{{user: a, password: "{hashed}"}}', USER_B)) as server:
        check = Authenticator.check
        monkeypatch.setattr(Authenticator, "check", slow)
        a = await Peer.connect(server, **A)
        assert await asyncio.to_thread(begun.wait, 10)
        await server.reload_with(after)
        may_end.set()
        assert await a.rest() == REFUSED


async def test_a_login_that_fails_to_be_checked_costs_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(users(USER_A, USER_B)) as server:
        b = await Peer.connect(server, **B)
        await b.ask()
        monkeypatch.setattr(Authenticator, "is_slow", lambda *_: True)
        monkeypatch.setattr(Authenticator, "check", lambda *_: 1 // 0)
        assert await (await Peer.connect(server, **A)).rest() == []
        assert await b.ask() == [] and server.failed.count == 1
