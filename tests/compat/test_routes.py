"""Core NATS over routes: two servers of each kind, and one of each."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.compat.peer import Msg, Peer, header_block
from tests.compat.routes import NO_POOL, PAIRS, POOL, TRIOS, Cluster, start_cluster, wait_wanted, wanted
from tests.compat.servers import wait_until

ACCOUNTS = """
accounts {
  X { users: [{user: x, password: x}], exports: [{stream: "news.>"}, {service: "svc.*"}] }
  Y { users: [{user: y, password: y}], imports: [
      {stream: {account: X, subject: "news.>"}, prefix: from}, {service: {account: X, subject: "svc.*"}, to: "ask.*"}] }
  Z { users: [{user: z, password: z}] }
  SYS { users: [{user: s, password: s}] }
}
system_account: SYS
"""
_names = itertools.count(1)


@pytest.fixture(scope="module", params=[*PAIRS, "nats-pool-jetlake", "jetlake-nats-pool"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two servers with accounts."""
    name = request.param
    with ExitStack() as stack:
        kinds = PAIRS[name.replace("-pool", "")]
        pool = POOL if "pool" in name else NO_POOL
        yield start_cluster(stack, tmp_path_factory.mktemp("pair"), kinds, rest=ACCOUNTS, pool=pool)


@pytest.fixture(scope="module", params=TRIOS)
def trio(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three servers, of which each knew only the one before it."""
    with ExitStack() as stack:
        yield start_cluster(stack, tmp_path_factory.mktemp("trio"), TRIOS[request.param])


@pytest.fixture
def name() -> str:
    return f"R{next(_names)}"


def user(cluster: Cluster, place: int, name: str = "z") -> Peer:
    return Peer(cluster[place], user=name, **{"pass": name})


def test_messages_go_both_ways_with_headers_and_replies(pair: Cluster, name: str) -> None:
    headers = header_block(A="b")
    with user(pair, 0) as a, user(pair, 1) as b:
        a.subscribe(f"{name}.a.*")
        b.subscribe(f"{name}.b")
        wait_wanted(pair[1], f"{name}.a.*")
        wait_wanted(pair[0], f"{name}.b")
        b.publish(f"{name}.a.1", b"hi", headers, "reply.to")
        a.publish(f"{name}.b", b"ho")
        assert a.message() == Msg(f"{name}.a.1", "1", "reply.to", headers, b"hi")
        assert b.message() == Msg(f"{name}.b", "1", "", b"", b"ho")


def test_the_order_of_messages_is_kept_whatever_their_sizes(pair: Cluster, name: str) -> None:
    sizes = [(number * 7919) % 5000 for number in range(400)] + [1 << 20, 0, 300_000]
    with user(pair, 0) as a, user(pair, 1) as b:
        a.subscribe(name)
        wait_wanted(pair[1], name)
        for number, size in enumerate(sizes):
            b.publish(name, b"%d " % number + b"x" * (size - 10 if size >= 10 else 0))
        assert [int(a.message().payload.split()[0]) for _ in sizes] == list(range(len(sizes)))


def test_interest_goes_when_the_last_subscription_does(pair: Cluster, name: str) -> None:
    with user(pair, 0) as a:
        a.subscribe(name, "1")
        a.subscribe(name, "2")
        wait_wanted(pair[1], name)
        a.ask(b"UNSUB 1\r\n")
        a.subscribe(f"{name}.mark", "3")
        wait_wanted(pair[1], f"{name}.mark")
        assert name in wanted(pair[1])
    wait_until(lambda: name not in wanted(pair[1]), "interest to be gone")


def test_members_of_a_queue_group_have_the_same_chance_wherever_they_are(pair: Cluster, name: str) -> None:
    with user(pair, 0) as a, user(pair, 1) as b:
        a.subscribe(name, "1", "q")
        b.subscribe(name, "1", "q")
        b.subscribe(name, "2", "q")
        wait_wanted(pair[0], name)
        wait_wanted(pair[1], name)
        b.send(b"PUB %s 0\r\n\r\n" % name.encode() * 300)
        near = len(b.ask())
        assert 140 <= near <= 260, near
        assert [a.message().subject for _ in range(300 - near)] == [name] * (300 - near)
        b.ask(b"UNSUB 1\r\nUNSUB 2\r\n")
        b.publish(name, b"over")
        assert a.message().payload == b"over" and a.ask() == []


def test_of_a_queue_group_on_the_far_side_one_member_gets_each_message(pair: Cluster, name: str) -> None:
    with user(pair, 0) as a, user(pair, 1) as b:
        for sid, queue in ("1", "q"), ("2", "q"), ("3", "p"), ("4", ""):
            a.subscribe(name, sid, queue)
        wait_wanted(pair[1], name, by=3)
        b.send(b"PUB %s 0\r\n\r\n" % name.encode() * 40)
        sids = [a.message().sid for _ in range(120)]
        assert (sids.count("3"), sids.count("4"), sids.count("1") + sids.count("2")) == (40, 40, 40)
        assert sids.count("1") and sids.count("2") and a.ask() == []


def test_a_request_is_answered_by_the_other_server(pair: Cluster, name: str) -> None:
    for near, far in ((0, 1), (1, 0)):
        subject = f"{name}.{near}"
        with user(pair, near) as asker, user(pair, far) as answerer:
            answerer.subscribe(subject)
            wait_wanted(pair[near], subject)
            asker.send(f"SUB _INBOX.{subject} 9\r\nPUB {subject} _INBOX.{subject} 1\r\n?\r\n".encode())
            answerer.publish(answerer.message().reply, b"!")
            assert asker.message().payload == b"!"


def test_nobody_answers_where_nobody_listens_at_any_server(pair: Cluster, name: str) -> None:
    with user(pair, 0) as a, user(pair, 1) as b:
        a.subscribe(name)
        wait_wanted(pair[1], name)
        a.ask(b"UNSUB 1\r\n")
        wait_until(lambda: name not in wanted(pair[1]), "interest to be gone")
        assert b.request(name).status == "503" and a.request(name).status == "503"


def test_accounts_do_not_hear_each_other(pair: Cluster, name: str) -> None:
    with user(pair, 0, "x") as x, user(pair, 0, "z") as z, user(pair, 1, "z") as far:
        x.subscribe(f"{name}.>")
        z.subscribe(f"{name}.*")
        wait_wanted(pair[1], f"{name}.>", f"{name}.*")
        far.publish(f"{name}.1", b"for z")
        assert z.message().payload == b"for z" and x.ask() == []


def test_a_stream_is_imported_from_an_exporter_at_another_server(pair: Cluster, name: str) -> None:
    with user(pair, 0, "y") as importer, user(pair, 1, "x") as exporter, user(pair, 1, "y") as other:
        importer.subscribe(f"from.news.{name}")
        other.subscribe(f"from.news.{name}")
        wait_wanted(pair[1], f"news.{name}")
        exporter.publish(f"news.{name}", b"1")
        assert importer.message() == other.message() == Msg(f"from.news.{name}", "1", "", b"", b"1")
        assert importer.ask() == other.ask() == []


@pytest.mark.parametrize("place", [0, 1])
def test_a_service_is_answered_by_an_exporter_at_another_server(pair: Cluster, name: str, place: int) -> None:
    with user(pair, place, "y") as importer, user(pair, 1 - place, "x") as exporter:
        assert importer.request(f"ask.{name}").status == "503"
        exporter.subscribe(f"svc.{name}")
        wait_wanted(pair[place], f"svc.{name}")
        importer.send(f"SUB _INBOX.{name} 9\r\nPUB ask.{name} _INBOX.{name} 1\r\n?\r\n".encode())
        asked = exporter.message()
        assert asked.subject == f"svc.{name}" and asked.reply.startswith("_R_.") and asked.payload == b"?"
        exporter.publish(asked.reply, b"!")
        assert importer.message() == Msg(f"_INBOX.{name}", "9", "", b"", b"!") and exporter.ask() == []


def test_a_request_is_passed_on_once_where_others_listen_too(pair: Cluster, name: str) -> None:
    """Somebody in the importing account listens at the other server, too: that server does not ask a second time."""
    with user(pair, 0, "y") as importer, user(pair, 1, "y") as listener, user(pair, 1, "x") as exporter:
        listener.subscribe(f"ask.{name}")
        exporter.subscribe(f"svc.{name}")
        wait_wanted(pair[0], f"ask.{name}", f"svc.{name}")
        importer.publish(f"ask.{name}", b"?", b"", "no.answer")
        assert exporter.message().payload == b"?" and listener.message().payload == b"?"
        assert exporter.ask() == listener.ask() == []


def test_all_servers_answer_the_system_account(pair: Cluster) -> None:
    for place in (0, 1):
        with user(pair, place, "s") as system:
            inbox = f"_INBOX.sys.{place}"
            for subject in ("$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.SERVER.PING.IDZ"):
                system.send(f"SUB {inbox} 1\r\nPUB {subject} {inbox} 0\r\n\r\n".encode())
                answers = [json.loads(system.message().payload) for _ in range(2)]
                servers = [answer.get("server", answer) for answer in answers]
                assert {server["name"] for server in servers} == {"A", "B"}, subject
                assert subject.endswith("IDZ") or {server["cluster"] for server in servers} == {"C"}


def test_a_client_hears_of_its_account_at_all_servers(pair: Cluster, name: str) -> None:
    with user(pair, 0) as near, user(pair, 1) as far:
        far.ask()
        subjects = ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.STATZ", "$SYS.REQ.SERVER.PING.CONNZ")
        for number, subject in enumerate(subjects):
            inbox = f"_INBOX.{name}.{number}"
            near.send(f"SUB {inbox} {number}\r\nPUB {subject} {inbox} 0\r\n\r\n".encode())
            answers = [near.message().json for _ in range(2)]
            assert {answer["server"]["name"] for answer in answers} == {"A", "B"}, subject
            if subject.endswith("CONNZ"):
                assert [answer["data"]["num_connections"] for answer in answers] == [1, 1]


def test_one_server_is_asked_through_another(pair: Cluster) -> None:
    far = pair[1].get("/varz")["server_id"]
    with user(pair, 0, "s") as system:
        wait_wanted(pair[0], *(subject for subject in wanted(pair[0]) if far in subject))
        found = system.request(f"$SYS.REQ.SERVER.{far}.ROUTEZ").json["data"]
        assert {route["remote_name"] for route in found["routes"]} == {"A"}


def test_events_of_clients_are_heard_at_another_server(pair: Cluster) -> None:
    with user(pair, 0, "s") as system:
        system.subscribe("$SYS.ACCOUNT.Z.CONNECT")
        wait_wanted(pair[1], "$SYS.ACCOUNT.Z.CONNECT")
        with user(pair, 1, "z") as client:
            client.ask()
            event = system.message().json
        assert (event["server"]["name"], event["client"]["acc"]) == ("B", "Z")


def test_a_client_asks_about_itself_where_it_is(pair: Cluster) -> None:
    with user(pair, 0, "z") as client:
        assert client.request("$SYS.REQ.USER.INFO").json["data"]["account"] == "Z" and client.ask() == []


def test_pages_show_the_routes(pair: Cluster) -> None:
    for place, other in ((0, "B"), (1, "A")):
        server = pair[place]
        varz, routez = server.get("/varz"), server.get("/routez?subs=detail")
        assert varz["cluster"]["name"] == "C" and varz["cluster"]["cluster_port"] > 0 and varz["remotes"] == 1
        assert varz["routes"] == routez["num_routes"] == len(routez["routes"])
        assert {route["remote_name"] for route in routez["routes"]} == {other}
        route = max(routez["routes"], key=lambda found: found["subscriptions"])
        assert (route["did_solicit"], route["is_configured"]) == (place == 1, place == 1)
        detail = route["subscriptions_list_detail"][0]
        assert {"subject", "sid", "msgs", "cid"} <= set(detail)


def test_messages_of_routes_are_not_counted_as_those_of_clients(pair: Cluster, name: str) -> None:
    with user(pair, 0) as a, user(pair, 1) as b:
        a.subscribe(name)
        wait_wanted(pair[1], name)
        near, far = pair[1].get("/varz"), pair[0].get("/varz")
        b.send(b"PUB %s 2\r\nhi\r\n" % name.encode() * 1000)
        for _ in range(1000):
            a.message()
        near_after, far_after = pair[1].get("/varz"), pair[0].get("/varz")

    def by(before: dict[str, int], after: dict[str, int], field: str) -> int:
        return after[field] - before[field]

    assert by(near, near_after, "in_client_msgs") == by(far, far_after, "out_client_msgs") == 1000
    assert by(near, near_after, "out_client_msgs") < 100 and by(far, far_after, "in_client_msgs") < 100
    assert by(near, near_after, "out_msgs") >= 1000 and by(far, far_after, "in_msgs") >= 1000


def test_clients_are_told_of_all_servers(pair: Cluster) -> None:
    urls = {f"127.0.0.1:{server.port}" for server in pair.servers}
    for place in (0, 1):
        with Peer(pair[place], None) as peer:
            assert set(peer.info["connect_urls"]) == urls and peer.info["cluster"] == "C"


# Three servers


def test_a_server_that_was_told_of_is_connected_to(trio: Cluster) -> None:
    """A and C did not know each other: B told of one to the other."""
    routes = {route["remote_name"]: route for route in trio[2].get("/routez")["routes"]}
    assert set(routes) == {"A", "B"}
    assert routes["B"]["is_configured"] and not routes["A"]["is_configured"]


def test_a_message_reaches_each_server_once(trio: Cluster, name: str) -> None:
    with Peer(trio[0]) as a, Peer(trio[1]) as b, Peer(trio[2]) as c:
        for peer in (a, b, c):
            peer.subscribe(name)
        for server in trio.servers:
            wait_wanted(server, name, by=2)
        for peer in (a, b, c):
            peer.publish(name, b"x")
        for peer in (a, b, c):
            assert [peer.message().payload for _ in range(3)] == [b"x"] * 3
        assert a.ask() == b.ask() == c.ask() == []


def test_a_queue_group_gets_each_message_once_by_the_weights(trio: Cluster, name: str) -> None:
    with Peer(trio[0]) as a, Peer(trio[1]) as b, Peer(trio[2]) as c:
        b.subscribe(name, "1", "q")
        for sid in "12345":
            c.subscribe(name, sid, "q")
        wait_wanted(trio[0], name, by=2)
        c.subscribe(f"{name}.done", "9")  # which comes after the last weight
        wait_wanted(trio[0], f"{name}.done")
        a.send(b"PUB %s 0\r\n\r\n" % name.encode() * 600)
        a.ask()
        counts = Counter[str]()

        def received() -> int:
            counts["b"] += len(b.ask())
            counts["c"] += len(c.ask())
            return counts.total()

        wait_until(lambda: received() >= 600, "all messages to come")
        assert received() == 600 and 50 <= counts["b"] <= 170, counts


def test_all_three_are_told_to_clients(trio: Cluster) -> None:
    urls = {f"127.0.0.1:{server.port}" for server in trio.servers}
    for server in trio.servers:
        with Peer(server, None) as peer:
            assert set(peer.info["connect_urls"]) == urls
