"""How servers of a cluster find together, what keeps them apart, and how they part: on both kinds, and mixed."""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.compat.peer import Peer
from tests.compat.routes import (
    PAIRS,
    TRIOS,
    Cluster,
    RawRoute,
    cluster_config,
    cluster_port,
    remotes,
    start_cluster,
    wait_wanted,
)
from tests.compat.servers import LOOPBACK, Server, wait_until
from tests.server.certificates import Certificates

on_pairs = pytest.mark.parametrize("kinds", PAIRS.values(), ids=PAIRS)


@pytest.fixture
def stack() -> Any:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, directory: Path, kind: str, name: str, *args: Any, **options: Any) -> Server:
    config = cluster_config(kind, name, *args, **options)
    return stack.enter_context(Server(kind, directory / name, (), config))


# Finding together


@on_pairs
def test_two_that_connect_to_each_other_have_one_route(
    kinds: tuple[str, str], stack: ExitStack, tmp_path: Path
) -> None:
    first = start(stack, tmp_path, kinds[0], "A")
    ports = [cluster_port(first)]
    second = start(stack, tmp_path, kinds[1], "B", ports)
    ports.append(cluster_port(second))
    Cluster([first, second]).wait()
    first.stop()
    first.config = cluster_config(kinds[0], "A", ports[1:], port=ports[0])
    first.start()
    Cluster([first, second]).wait()
    for server in (first, second):  # B tries again a second after it has lost A, and finds that there is a route
        wait_until(lambda s=server: [found["is_configured"] for found in s.get("/routez")["routes"]] == [True], "one")
    with Peer(first) as a, Peer(second) as b:
        a.subscribe("x")
        wait_wanted(second, "x")
        b.publish("x", b"1")
        assert a.message().payload == b"1" and a.ask() == []


def test_a_route_to_itself_is_dropped(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    server = start(stack, tmp_path, kind, "A")
    port = cluster_port(server)
    server.stop()
    server.config = cluster_config(kind, "A", [port], port=port)
    server.start()
    time.sleep(0.3)
    assert server.get("/routez")["num_routes"] == 0
    assert server.log().count("Router connection closed") <= 2, "it does not try for ever"


@on_pairs
def test_a_route_is_there_again_after_a_restart(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    cluster = start_cluster(stack, tmp_path, kinds)
    first = cluster[0]
    port = cluster_port(first)
    with Peer(cluster[1]) as client:
        client.subscribe("x")
        wait_wanted(first, "x")
        first.stop()
        wait_until(lambda: remotes(cluster[1]) == set(), "B to notice")
        first.config = cluster_config(kinds[0], "A", port=port)
        first.start()
        cluster.wait()
        wait_wanted(first, "x")
        with Peer(first) as publisher:
            publisher.publish("x", b"again")
            assert client.message().payload == b"again"


@pytest.mark.parametrize("kinds", TRIOS.values(), ids=TRIOS)
def test_a_server_that_is_killed_is_noticed_by_all(kinds: tuple[str, ...], stack: ExitStack, tmp_path: Path) -> None:
    cluster = start_cluster(stack, tmp_path, kinds)
    with Peer(cluster[2]) as gone, Peer(cluster[0]) as client:
        gone.subscribe("x")
        client.ask()
        wait_wanted(cluster[0], "x")
        wait_wanted(cluster[1], "x")
        cluster[2].kill()
        for place in (0, 1):
            wait_until(lambda place=place: remotes(cluster[place]) == {"BA"[place]}, "the others to notice")
        assert client.request("x").status == "503"
        urls = {f"{LOOPBACK}:{cluster[place].port}" for place in (0, 1)}
        wait_until(lambda: client.ask() == [] and set(client.info["connect_urls"]) == urls, "the client to be told")


@on_pairs
def test_clients_hear_of_servers_that_come_and_go(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    first = start(stack, tmp_path, kinds[0], "A")
    with Peer(first) as client, Peer(first, protocol=0) as old:
        client.ask()
        old.ask()
        assert "connect_urls" not in client.info
        second = start(stack, tmp_path, kinds[1], "B", [cluster_port(first)])
        own, other = f"{LOOPBACK}:{first.port}", f"{LOOPBACK}:{second.port}"
        while "connect_urls" not in client.info:
            client.frame()
        assert client.info["connect_urls"] == [own, other]
        second.stop()
        while other in client.info["connect_urls"]:
            client.frame()
        assert client.info["connect_urls"] == [own]
        assert old.ask() == [] and "connect_urls" not in old.info


@on_pairs
def test_nothing_is_advertised_where_that_is_not_wanted(
    kinds: tuple[str, str], stack: ExitStack, tmp_path: Path
) -> None:
    cluster = start_cluster(stack, tmp_path, kinds, "no_advertise: true")
    for server in cluster.servers:
        with Peer(server, None) as peer:
            assert "connect_urls" not in peer.info


@on_pairs
def test_another_address_is_advertised_where_one_is_given(
    kinds: tuple[str, str], stack: ExitStack, tmp_path: Path
) -> None:
    cluster = start_cluster(stack, tmp_path, kinds, rest='client_advertise: "nats.example:4333"')
    with Peer(cluster[0], None) as peer:
        assert set(peer.info["connect_urls"]) == {"nats.example:4333"}
    with RawRoute(cluster_port(cluster[1])) as route:
        assert route.info["connect_urls"] == ["nats.example:4333"]


def test_the_advertised_address_of_a_cluster_port_is_told_to_servers(
    kind: str, stack: ExitStack, tmp_path: Path
) -> None:
    server = start(stack, tmp_path, kind, "A", (), 'advertise: "a.example:7000"')
    with RawRoute(cluster_port(server)) as route:
        info = route.info
        assert (info["host"], info["port"], info["ip"]) == ("a.example", 7000, "nats-route://a.example:7000/")


@on_pairs
def test_routes_come_and_go_with_a_reload(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    first, second = start(stack, tmp_path, kinds[0], "A"), start(stack, tmp_path, kinds[1], "B")
    port, own = cluster_port(first), cluster_port(second)
    second.stop()
    second.config = cluster_config(kinds[1], "B", port=own)
    second.start()
    assert remotes(second) == set()
    second.reload(cluster_config(kinds[1], "B", [port], port=own))
    Cluster([first, second]).wait()
    second.reload(cluster_config(kinds[1], "B", port=own))
    for server in (first, second):
        wait_until(lambda s=server: remotes(s) == set(), "the route to be removed")


def test_what_takes_a_restart_is_refused_in_a_reload(stack: ExitStack, tmp_path: Path) -> None:
    server = start(stack, tmp_path, "jetlake", "A", (), "authorization { user: u, password: hush }")
    server.refuse_reload(cluster_config("jetlake", "A", (), "authorization { user: u, password: other }"))
    assert "config reload not supported for cluster" in server.log() and "hush" not in server.log()


# What keeps servers apart


@on_pairs
def test_servers_of_another_cluster_are_refused(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    first = start(stack, tmp_path, kinds[0], "A")
    second = start(stack, tmp_path, kinds[1], "B", [cluster_port(first)], cluster_name="name: OTHER")
    text = 'Rejecting connection, cluster name "OTHER" does not match "C"'
    wait_until(lambda: text in first.log() or "Cluster Name Conflict" in second.log(), "a refusal")
    assert remotes(first) == remotes(second) == set()


@on_pairs
def test_servers_without_a_cluster_name_agree_on_one(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    cluster = start_cluster(stack, tmp_path, kinds, cluster_name="")
    names = {server.get("/varz")["cluster"]["name"] for server in cluster.servers}
    assert len(names) == 1 and len(names.pop()) == 22


@on_pairs
def test_a_made_up_cluster_name_gives_way(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    first = start(stack, tmp_path, kinds[0], "A", cluster_name="")
    second = start(stack, tmp_path, kinds[1], "B", [cluster_port(first)])
    Cluster([first, second]).wait()
    with Peer(first, None) as peer:
        assert peer.info["cluster"] == "C"


@on_pairs
def test_a_second_server_of_one_name_is_refused(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    first = start(stack, tmp_path, kinds[0], "A")
    config = cluster_config(kinds[1], "A", [cluster_port(first)])
    second = stack.enter_context(Server(kinds[1], tmp_path / "twin", (), config))
    wait_until(lambda: 'Remote server has a duplicate name: "A"' in first.log(), "a refusal")
    wait_until(lambda: remotes(first) == remotes(second) == set(), "no route")


AUTHORIZATION = "authorization { user: u, password: p, timeout: 1 }"


@on_pairs
def test_servers_show_the_user_of_the_cluster(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    first = start(stack, tmp_path, kinds[0], "A", (), AUTHORIZATION)
    second = start(stack, tmp_path, kinds[1], "B", [cluster_port(first)], AUTHORIZATION, user="u:wrong@")
    wait_until(lambda: "authentication error" in first.log(), "a refusal")
    wait_until(lambda: remotes(first) == set(), "no route")
    second.stop()
    second.config = cluster_config(kinds[1], "B", [cluster_port(first)], AUTHORIZATION, user="u:p@")
    second.start()
    Cluster([first, second]).wait()


@pytest.mark.parametrize("kinds", TRIOS.values(), ids=TRIOS)
def test_a_server_that_was_told_of_is_shown_the_user_too(
    kinds: tuple[str, ...], stack: ExitStack, tmp_path: Path
) -> None:
    start_cluster(stack, tmp_path, kinds, AUTHORIZATION, user="u:p@")


@pytest.mark.parametrize(
    ("connect", "said"),
    [
        ({"lang": "python"}, b"-ERR 'attempted to connect to route port'\r\n"),
        ({"gateway": "G"}, b"-ERR 'Rejecting connection from gateway \"G\" on the Route port'\r\n"),
        ({"cluster": "X"}, b'-ERR \'Rejecting connection, cluster name "X" does not match "C"\'\r\n'),
    ],
)
def test_others_are_told_that_this_is_no_place_for_them(
    kind: str, stack: ExitStack, tmp_path: Path, connect: dict[str, Any], said: bytes
) -> None:
    server = start(stack, tmp_path, kind, "A")
    with RawRoute(cluster_port(server), connect) as route:
        assert route.ask() == [said] and route.is_closed


def test_nobody_waits_for_a_server_that_says_nothing(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    server = start(stack, tmp_path, kind, "A", (), AUTHORIZATION)
    with RawRoute(cluster_port(server)) as route:
        assert route.line() == b"-ERR 'Authentication Timeout'\r\n" and route.is_closed
    with RawRoute(cluster_port(server)) as route:
        assert route.ask(b"RS+ $G a\r\n") == [b"-ERR 'Authorization Violation'\r\n"] and route.is_closed


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
        b"\x00" * 100_000,
        b"CONNECT {not json}\r\n",
        b"CONNECT []\r\n",
        b"INFO {\r\n",
        b"RMSG $G a 99999999999999\r\n",
        b"RS+\r\n",
        b"RAFT 1 1\r\n",
    ],
)
def test_garbage_costs_the_connection_and_nothing_else(kind: str, shared_cluster: Cluster, garbage: bytes) -> None:
    server = shared_cluster[0]
    with RawRoute(cluster_port(server)) as route:
        route.ask(garbage)
        assert route.is_closed
    with RawRoute(cluster_port(server), {}, server_id=f"R{hash(garbage)}") as route:
        route.ask()
        route.ask(garbage)
        assert route.is_closed
    with Peer(shared_cluster[0]) as a, Peer(shared_cluster[1]) as b:
        a.subscribe("x")
        wait_wanted(shared_cluster[1], "x")
        b.publish("x", b"1")
        assert a.message().payload == b"1"


@pytest.fixture(scope="module")
def shared_cluster(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with ExitStack() as stack:
        yield start_cluster(stack, tmp_path_factory.mktemp("shared"), (kind, kind))


# The protocol, line by line


def test_a_server_is_told_what_is_wanted_in_lines_of_routes(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    server = start(stack, tmp_path, kind, "A")
    with Peer(server) as client, RawRoute(cluster_port(server), {}) as route:
        route.ask()
        client.subscribe("foo.*", "1")
        client.subscribe("foo.*", "2")
        client.subscribe("work", "3", "q")
        client.subscribe("work", "4", "q")
        assert route.ask() == [b"RS+ $G foo.*\r\n", b"RS+ $G work q 1\r\n", b"RS+ $G work q 2\r\n"]
        client.ask(b"UNSUB 1\r\nUNSUB 3\r\n")
        assert route.ask() == [b"RS+ $G work q 1\r\n"]
        client.ask(b"UNSUB 2\r\nUNSUB 4\r\n")
        assert route.ask() == [b"RS- $G foo.*\r\n", b"RS- $G work q\r\n"]


def test_a_server_is_sent_messages_in_lines_of_routes(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    server = start(stack, tmp_path, kind, "A")
    with Peer(server) as client, RawRoute(cluster_port(server), {}) as route:
        route.ask(b"RS+ $G a.*\r\nRS+ $G w q 3\r\nRS+ $G both\r\nRS+ $G both q 1\r\nRS+ $G both p 1\r\n")
        client.ask(b"PUB a.1 2\r\nhi\r\nPUB a.2 rep 2\r\nho\r\nHPUB a.3 rep 12 14\r\nNATS/1.0\r\n\r\nhe\r\n")
        assert route.ask() == [
            b"RMSG $G a.1 2\r\nhi\r\n",
            b"RMSG $G a.2 rep 2\r\nho\r\n",
            b"HMSG $G a.3 rep 12 14\r\nNATS/1.0\r\n\r\nhe\r\n",
        ]
        client.ask(b"PUB w 1\r\n1\r\nPUB w rep 1\r\n2\r\n")
        assert route.ask() == [b"RMSG $G w | q 1\r\n1\r\n", b"RMSG $G w + rep q 1\r\n2\r\n"]
        client.ask(b"PUB both rep 1\r\n3\r\n")
        (both,) = route.ask()
        assert sorted(both.split()) == sorted(b"RMSG $G both + rep q p 1 3".split())


def test_a_message_of_a_server_reaches_the_queue_groups_that_it_names(
    kind: str, stack: ExitStack, tmp_path: Path
) -> None:
    server = start(stack, tmp_path, kind, "A")
    with Peer(server) as client, RawRoute(cluster_port(server), {}) as route:
        route.ask(b"RS+ $G w\r\nRS+ $G w q 1\r\n")
        for sid, queue in ("1", "q"), ("2", "p"), ("3", ""):
            client.subscribe("w", sid, queue)
        route.ask(b"RMSG $G w 1\r\na\r\nRMSG $G w | q 1\r\nb\r\nRMSG $G w + rep q p 1\r\nc\r\n")
        assert sorted(client.ask()) == sorted(
            [
                b"MSG w 3 1\r\na\r\n",
                b"MSG w 3 1\r\nb\r\n",
                b"MSG w 1 1\r\nb\r\n",
                b"MSG w 3 rep 1\r\nc\r\n",
                b"MSG w 1 rep 1\r\nc\r\n",
                b"MSG w 2 rep 1\r\nc\r\n",
            ]
        )
        assert route.ask(b"RMSG $G nobody rep 1\r\nx\r\n") == [], "who asks says that nobody is there"


def test_what_came_from_a_server_goes_to_no_other(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    server = start(stack, tmp_path, kind, "A")
    with (
        RawRoute(cluster_port(server), {}) as one,
        RawRoute(cluster_port(server), {"name": "TWO"}, server_id="TWO", server_name="TWO") as two,
    ):
        one.ask(b"RS+ $G x\r\n")
        two.ask(b"RS+ $G x\r\nRS+ $G y\r\n")
        two.ask(b"RMSG $G x 1\r\n1\r\n")
        said = [line for line in one.ask() if not line.startswith(b"INFO")]
        assert said == [], "neither interest nor messages of the other one"


def test_deliveries_of_a_consumer_show_the_subject_they_were_stored_with(
    kind: str, stack: ExitStack, tmp_path: Path
) -> None:
    server = start(stack, tmp_path, kind, "A")
    ack = b"$JS.ACK.S.D.1.1.1.1794901191701661312.0"
    with Peer(server) as client, RawRoute(cluster_port(server), {}) as route:
        client.subscribe("in.box")
        route.ask(b"RMSG $G in.box %s@s.one 5\r\nhello\r\n" % ack)
        assert client.ask() == [b"MSG s.one 1 %s 5\r\nhello\r\n" % ack]


def test_a_new_server_is_told_of_to_others(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    server = start(stack, tmp_path, kind, "A")
    port = cluster_port(server)
    with RawRoute(port, {}) as one:
        one.ask()
        with RawRoute(port, {"name": "TWO"}, server_id="TWO", server_name="TWO", port=7103) as two:
            two.ask()
            (line,) = one.ask()
            told = json.loads(line[5:])
            assert (told["server_id"], told["server_name"]) == ("TWO", "TWO")
            assert (told["ip"], told.get("gossip_mode")) == (f"nats-route://{LOOPBACK}:7103/", 1)
            assert "nonce" not in told


def test_the_first_of_two_connections_of_one_server_stays(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    server = start(stack, tmp_path, kind, "A")
    port = cluster_port(server)
    with RawRoute(port, {}) as one:
        one.ask()
        with RawRoute(port, {}) as two:
            assert two.ask() == [] and two.is_closed
        assert one.ask() == [] and remotes(server) == {"RAW"}


# Parting


@on_pairs
def test_lame_duck_mode_is_told_to_servers_and_clients(
    kinds: tuple[str, str], stack: ExitStack, tmp_path: Path
) -> None:
    rest = "lame_duck_duration: '30s', lame_duck_grace_period: '1s'"
    cluster = start_cluster(stack, tmp_path, kinds, rest=rest)
    leaving, staying = cluster[0], cluster[1]
    other = f"{LOOPBACK}:{staying.port}"
    with Peer(leaving) as client, Peer(staying) as far:
        client.ask()
        far.ask()
        leaving.signal(signal.SIGUSR2)
        while not client.info.get("ldm"):
            client.frame()
        assert client.info["connect_urls"] == [other]
        while f"{LOOPBACK}:{leaving.port}" in far.info.get("connect_urls", [f"{LOOPBACK}:{leaving.port}"]):
            far.frame()
        assert far.info["connect_urls"] == [other] and "ldm" not in far.info
        client.rest()
        assert client.is_closed
    leaving.wait()


@on_pairs
def test_a_server_that_does_not_answer_is_given_up(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    cluster = start_cluster(stack, tmp_path, kinds, 'ping_interval: "200ms", ping_max: 2')
    cluster[0].signal(signal.SIGSTOP)
    try:
        wait_until(lambda: remotes(cluster[1]) == set(), "the route to be given up")
        assert "Stale Connection" in cluster[1].log()
    finally:
        cluster[0].signal(signal.SIGCONT)
    cluster.wait()


# TLS


@on_pairs
def test_routes_are_secure(kinds: tuple[str, str], stack: ExitStack, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = certificates.block(f'ca_file: "{certificates.path("ca", "crt")}"')
    cluster = start_cluster(stack, tmp_path, kinds, tls)
    with Peer(cluster[0]) as a, Peer(cluster[1]) as b:
        a.subscribe("x")
        wait_wanted(cluster[1], "x")
        b.publish("x", b"secret")
        assert a.message().payload == b"secret"
    assert cluster[0].get("/varz")["cluster"]["tls_required"] is True


def test_a_server_in_clear_is_refused_where_routes_are_secure(kind: str, stack: ExitStack, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = certificates.block(f'ca_file: "{certificates.path("ca", "crt")}", timeout: 1')
    secure = start(stack, tmp_path, kind, "A", (), tls)
    plain = start(stack, tmp_path, kind, "B", [cluster_port(secure)])
    time.sleep(0.5)
    assert remotes(secure) == remotes(plain) == set()
