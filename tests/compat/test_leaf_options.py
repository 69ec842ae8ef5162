"""Leaf nodes with users, keys, TLS, WebSocket, denials and domains: JetLake in both roles beside nats-server."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from jetlake import nkeys
from tests.compat.leafs import Linked, RawLeaf, hub_config, leaf_config, leaf_port, link, wait_wanted, wanted
from tests.compat.peer import Peer
from tests.compat.servers import JETLAKE, LOOPBACK, NATS_SERVER, Server, wait_until
from tests.compat.tokens import Operator
from tests.server.certificates import Certificates

TOO_MANY = b"maximum account active connections exceeded"
MIXED = [(NATS_SERVER, JETLAKE), (JETLAKE, NATS_SERVER), (JETLAKE, JETLAKE)]
both_roles = pytest.mark.parametrize(("hub", "leaf"), MIXED, ids=["-".join(roles) for roles in MIXED])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@contextmanager
def running(hub: str, leaf: str, directory: Path, hub_text: str, leaf_text: Callable[[int], str]) -> Iterator[Linked]:
    found = link(hub, leaf, directory, hub_text, leaf_text)
    try:
        yield found
    finally:
        found.leaf.kill()
        found.hub.kill()


ACCOUNTS = """accounts {
  A { users: [{user: a, password: p}] }
  B { users: [{user: b, password: p}] }
}"""


@both_roles
def test_a_link_binds_the_accounts_that_both_sides_name(hub: str, leaf: str, tmp_path: Path) -> None:
    hub_text = hub_config(leafnodes="authorization { users: [{user: l, password: s3cret, account: B}] }", rest=ACCOUNTS)
    leaf_rest = "accounts { X { users: [{user: x, password: p}] }, Y { users: [{user: y, password: p}] } }"
    with running(
        hub, leaf, tmp_path, hub_text, lambda port: leaf_config(port, "account: X", leaf_rest, user="l:s3cret@")
    ) as linked:
        linked.wait()
        with (
            Peer(linked.hub, user="a", **{"pass": "p"}) as a,
            Peer(linked.hub, user="b", **{"pass": "p"}) as b,
            Peer(linked.leaf, user="x", **{"pass": "p"}) as x,
        ):
            for client in (a, b):
                client.subscribe("s")
            wait_wanted(linked.leaf, "s")
            x.publish("s", b"1")
            assert b.message().payload == b"1" and a.ask() == []
        assert linked.hub.get("/leafz")["leafs"][0]["account"] == "B"
        assert linked.leaf.get("/leafz")["leafs"][0]["account"] == "X"


@both_roles
def test_an_nkey_signs_the_nonce(hub: str, leaf: str, tmp_path: Path) -> None:
    key = nkeys.KeyPair(nkeys.USER)
    hub_text = hub_config(leafnodes=f"authorization {{ nkey: {key.public} }}")
    with running(hub, leaf, tmp_path, hub_text, lambda port: leaf_config(port, f"nkey: {key.seed}")) as linked:
        linked.wait()


@pytest.mark.parametrize("first", [False, True])
@both_roles
def test_a_link_over_tls(hub: str, leaf: str, first: bool, tmp_path: Path, certificates: Certificates) -> None:
    words = "handshake_first: true" if first else ""
    server, remote = certificates.block(words), f'tls {{ ca_file: "{certificates.path("ca", "crt")}"\n {words} }}'
    with running(hub, leaf, tmp_path, hub_config(leafnodes=server), lambda port: leaf_config(port, remote)) as linked:
        linked.wait()
        with Peer(linked.hub) as far, Peer(linked.leaf) as near:
            far.subscribe("s")
            wait_wanted(linked.leaf, "s")
            near.publish("s", b"x" * 100_000)
            assert far.message().payload == b"x" * 100_000


@pytest.mark.parametrize("is_secure", [False, True])
@both_roles
def test_a_leaf_connects_over_websocket(
    hub: str, leaf: str, is_secure: bool, tmp_path: Path, certificates: Certificates
) -> None:
    words = certificates.block() if is_secure else "no_tls: true"
    rest = f'websocket {{ listen: "{LOOPBACK}:-1"\n {words} }}'
    with Server(hub, tmp_path / "hub", (), hub_config(rest=rest)) as first:
        port = first.get("/varz")["websocket"]["port"]
        tls = f'tls {{ ca_file: "{certificates.path("ca", "crt")}" }}' if is_secure else ""
        url = f'url: "{"wss" if is_secure else "ws"}://{LOOPBACK}:{port}/some"'
        remote = f"server_name: LEAF\nleafnodes {{ reconnect: 100ms, remotes: [ {{ {url}\n {tls} }} ] }}"
        with Server(leaf, tmp_path / "leaf", (), remote) as second:
            linked = Linked(first, second).wait()
            with Peer(linked.hub) as far, Peer(linked.leaf) as near:
                far.subscribe("up")
                near.subscribe("down")
                wait_wanted(linked.leaf, "up")
                wait_wanted(linked.hub, "down")
                for size in (0, 1, 200, 70_000, 900_000):
                    near.publish("up", b"u" * size)
                    far.publish("down", b"d" * size)
                    assert far.message().payload == b"u" * size and near.message().payload == b"d" * size


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"INFO {}\r\n\r\n",
        b"x" * 40_000,
    ],
    ids=["nothing", "not found", "without a key", "no websocket", "endless"],
)
@pytest.mark.parametrize("leaf", [NATS_SERVER, JETLAKE])
def test_what_is_no_hub_over_websocket_is_tried_again(leaf: str, answer: bytes, tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        listener.settimeout(20)
        url = f"ws://{LOOPBACK}:{listener.getsockname()[1]}"
        config = f'leafnodes {{ reconnect: 100ms, remotes: [ {{ url: "{url}", first_info_timeout: 300ms }} ] }}'
        with Server(leaf, tmp_path, (), config) as server:
            for _ in range(2):
                peer, _ = listener.accept()
                with peer:
                    assert peer.recv(4096).startswith(b"GET /leafnode HTTP/1.1\r\n")
                    peer.sendall(answer)
                    with contextlib.suppress(OSError):
                        peer.shutdown(socket.SHUT_WR)
            with Peer(server) as client:
                assert client.ask() == []
            assert server.get("/leafz")["leafnodes"] == 0


@both_roles
def test_an_account_has_no_more_leafs_than_it_may(hub: str, leaf: str, tmp_path: Path) -> None:
    rest = "accounts { A { users: [{user: a, password: p}], limits { max_leafnodes: 1 } } }"
    hub_text = hub_config(leafnodes="authorization { account: A, user: l, password: p }", rest=rest)
    with running(hub, leaf, tmp_path, hub_text, lambda port: leaf_config(port, user="l:p@")) as linked:
        linked.wait()
        with RawLeaf(leaf_port(linked.hub), {"user": "l", "pass": "p", "name": "second"}) as second:
            # Only with tokens nats-server tells the reason.
            text = b"Authorization Violation" if hub == NATS_SERVER else TOO_MANY
            assert second.ask()[-1] == b"-ERR '%s'\r\n" % text and second.is_closed
        assert linked.hub.get("/leafz")["leafnodes"] == 1


@pytest.mark.parametrize("kind", [NATS_SERVER, JETLAKE])
@pytest.mark.parametrize("count", [0, 1])
def test_the_token_of_an_account_limits_its_leafs(kind: str, count: int, tmp_path: Path) -> None:
    operator = Operator()
    account = operator.account("A")
    user = account.user()
    config = operator.config(account.token(limits={"leaf": count}), more=hub_config())
    with Server(kind, tmp_path / kind, (), config) as hub, ExitStack() as stack:
        for number in range(count + 1):
            raw = stack.enter_context(RawLeaf(leaf_port(hub)))
            fields = {"jwt": user.token, "sig": user.sign(raw.info["nonce"].encode()), "name": f"L{number}"}
            said = raw.ask(b"CONNECT " + json.dumps(fields).encode() + b"\r\n")
            assert (said[-1] == b"-ERR '%s'\r\n" % TOO_MANY) == (number == count)


@both_roles
def test_what_a_remote_denies_does_not_cross(hub: str, leaf: str, tmp_path: Path) -> None:
    remote = 'deny_imports: "in.no", deny_exports: "out.no"'
    with running(hub, leaf, tmp_path, hub_config(), lambda port: leaf_config(port, remote)) as linked:
        linked.wait()
        with Peer(linked.hub) as far, Peer(linked.leaf) as near:
            far.subscribe("out.>")
            near.subscribe("in.>")
            wait_wanted(linked.leaf, "out.>")
            wait_wanted(linked.hub, "in.>")
            near.send(b"PUB out.no 0\r\n\r\nPUB out.yes 0\r\n\r\n")
            far.send(b"PUB in.no 0\r\n\r\nPUB in.yes 0\r\n\r\n")
            assert far.message().subject == "out.yes" and near.message().subject == "in.yes"


@both_roles
def test_a_server_without_jetstream_uses_the_domain_of_its_hub(hub: str, leaf: str, tmp_path: Path) -> None:
    hub_text = hub_config(rest="jetstream { domain: hub }")
    rest = 'default_js_domain { "$G": hub }'
    with running(hub, leaf, tmp_path, hub_text, lambda port: leaf_config(port, rest=rest)) as linked:
        wait_until(lambda: any(name.startswith("$JS.hub.API.") for name in wanted(linked.leaf)), "the domain")
        with Peer(linked.leaf) as near:
            assert near.api("INFO")["domain"] == "hub"


@pytest.mark.parametrize("kind", [NATS_SERVER, JETLAKE])
def test_the_port_for_leafs_refuses_what_is_no_leaf(kind: str, tmp_path: Path) -> None:
    permissions = '{publish: "up.>", subscribe: {allow: "down.>", deny: "down.no"}}'
    users = f"authorization {{ users: [{{user: u, password: p, permissions: {permissions}}}] }}"
    with Server(kind, tmp_path / kind, (), hub_config(rest=users)) as hub:
        port = leaf_port(hub)
        for connect, text in [
            ({"lang": "go", "user": "u", "pass": "p"}, b"attempted to connect to leaf node port"),
            ({"user": "u", "pass": "x"}, b"Authorization Violation"),
            ({"cluster": "a b", "user": "u", "pass": "p"}, b"cluster name cannot contain spaces"),
        ]:
            with RawLeaf(port, connect) as raw:
                assert raw.ask()[-1] == b"-ERR '%s'\r\n" % text
        with RawLeaf(port) as raw:
            assert raw.ask(b"LS+ a\r\n")[-1:] == [b"-ERR 'Authorization Violation'\r\n"]
        for line, text in [
            (b"LS+ other\r\n", b'Permissions Violation for Subscription to "other"'),
            (b"LMSG other 0\r\n\r\n", b'Permissions Violation for Publish to "other"'),
            (b"MSG a 1 0\r\n\r\n", b"Unknown Protocol Operation"),
        ]:
            with RawLeaf(port, {"user": "u", "pass": "p", "headers": True}) as raw:
                assert raw.ask(line)[-1] == b"-ERR '%s'\r\n" % text
        for line in (b"LS+ a b\r\n", b"LMSG s * r 0\r\n\r\n", b"LS+ a b c d\r\n"):
            with RawLeaf(port, {"user": "u", "pass": "p"}) as raw:
                assert not any(said.startswith(b"-ERR") for said in raw.ask(line)) and raw.is_closed


@pytest.mark.parametrize("kind", [NATS_SERVER, JETLAKE])
def test_a_loop_is_seen(kind: str, tmp_path: Path) -> None:
    with Server(kind, tmp_path / kind, (), hub_config()) as hub, RawLeaf(leaf_port(hub), {"name": "L"}) as raw:
        told = raw.ask()
        own = next(line for line in told if line.startswith(b"LS+ $LDS."))
        assert raw.ask(own)[-1].startswith(b'-ERR \'Loop detected for leafnode account="$G"')


@pytest.mark.parametrize("kind", [NATS_SERVER, JETLAKE])
def test_a_second_link_of_the_same_server_replaces_the_first(kind: str, tmp_path: Path) -> None:
    who = {"name": "L", "remote_account": "$G"}
    with Server(kind, tmp_path / kind, (), hub_config()) as hub, RawLeaf(leaf_port(hub), who) as first:
        first.ask()
        with RawLeaf(leaf_port(hub), who) as second:
            second.ask()
            assert first.line() == b"-ERR 'Duplicate Remote LeafNode Connection'\r\n" and first.is_closed


@both_roles
def test_mappings_hold_for_what_comes_over_a_link(hub: str, leaf: str, tmp_path: Path) -> None:
    hub_text = hub_config(rest="mappings { up: mapped.up, lost: [{destination: lost, weight: 0}] }")
    with running(
        hub, leaf, tmp_path, hub_text, lambda port: leaf_config(port, rest='mappings { "down.*": "mapped.$1" }')
    ) as linked:
        wait_wanted(linked.leaf, "up", "lost")
        wait_wanted(linked.hub, "down.*")
        with Peer(linked.hub) as far, Peer(linked.leaf) as near:
            far.subscribe("mapped.up", "1", "q")
            far.subscribe("lost", "2")
            near.subscribe("mapped.1", "1")
            far.ask()
            near.ask()
            for number in range(3):
                near.send(b"PUB lost 0\r\n\r\nPUB up 1\r\n%d\r\n" % number)
                far.publish("down.1", b"%d" % number)
            for peer, subject in ((far, "mapped.up"), (near, "mapped.1")):
                got = [peer.message() for _ in range(3)]
                assert [(msg.subject, msg.payload) for msg in got] == [(subject, b"%d" % n) for n in range(3)]
