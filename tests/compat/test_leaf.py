"""Leaf nodes: JetLake as hub and as leaf of a nats-server, beside two of each kind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.compat.leafs import ROLES, Linked, hub_config, leaf_config, link, wait_wanted, wanted
from tests.compat.peer import Msg, Peer, header_block
from tests.compat.servers import wait_until

JS_HUB, JS_LEAF = "jetstream { domain: hub }", "jetstream { domain: edge }"
_names = itertools.count(1)


@pytest.fixture(scope="module", params=ROLES, ids=["-".join(roles) for roles in ROLES])
def linked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    """A hub and a leaf, both with JetStream, for all tests."""
    hub, leaf = request.param
    directory = tmp_path_factory.mktemp("leaf")
    found = link(hub, leaf, directory, hub_config(rest=JS_HUB), lambda port: leaf_config(port, rest=JS_LEAF))
    try:
        yield found.wait()
    finally:
        found.leaf.kill()
        found.hub.kill()


@pytest.fixture
def name() -> str:
    return f"L{next(_names)}"


def request(peer: Peer, subject: str, payload: bytes = b"", headers: bytes = b"") -> Msg:
    return peer.request(subject, payload, headers)


def test_messages_go_both_ways_with_headers_and_replies(linked: Linked, name: str) -> None:
    headers = header_block(A="b")
    with Peer(linked.hub) as hub, Peer(linked.leaf) as leaf:
        hub.subscribe(f"{name}.up.*")
        leaf.subscribe(f"{name}.down")
        wait_wanted(linked.leaf, f"{name}.up.*")
        wait_wanted(linked.hub, f"{name}.down")
        leaf.publish(f"{name}.up.1", b"hi", headers, "reply.to")
        hub.publish(f"{name}.down", b"ho")
        assert hub.message() == Msg(f"{name}.up.1", "1", "reply.to", headers, b"hi")
        assert leaf.message() == Msg(f"{name}.down", "1", "", b"", b"ho")


def test_interest_goes_when_the_last_subscription_does(linked: Linked, name: str) -> None:
    with Peer(linked.hub) as hub:
        hub.subscribe(name, "1")
        hub.subscribe(name, "2")
        wait_wanted(linked.leaf, name)
        hub.ask(b"UNSUB 1\r\n")
        hub.subscribe(f"{name}.mark", "3")
        wait_wanted(linked.leaf, f"{name}.mark")
        assert name in wanted(linked.leaf)
    wait_until(lambda: name not in wanted(linked.leaf), "interest to be gone")


def test_members_of_a_queue_group_on_the_near_side_get_everything(linked: Linked, name: str) -> None:
    with Peer(linked.hub) as hub, Peer(linked.leaf) as leaf:
        hub.subscribe(name, "1", "q")
        leaf.subscribe(name, "1", "q")
        wait_wanted(linked.leaf, name)
        leaf.send(b"PUB %s 0\r\n\r\n" % name.encode() * 50)
        assert len(leaf.ask()) == 50
        leaf.ask(b"UNSUB 1\r\n")
        leaf.publish(name, b"over")
        assert hub.message().payload == b"over"


def test_of_a_queue_group_on_the_far_side_one_member_gets_each_message(linked: Linked, name: str) -> None:
    with Peer(linked.hub) as hub, Peer(linked.leaf) as leaf:
        hub.subscribe(name, "1", "q")
        hub.subscribe(name, "2", "q")
        hub.subscribe(name, "3", "p")
        hub.subscribe(name, "4")
        hub.subscribe(f"{name}.last", "5")
        wait_wanted(linked.leaf, name, f"{name}.last")
        leaf.send(b"PUB %s 0\r\n\r\n" % name.encode() * 40)
        sids = [hub.message().sid for _ in range(120)]
        assert (sids.count("3"), sids.count("4"), sids.count("1") + sids.count("2")) == (40, 40, 40)
        assert sids.count("1") and sids.count("2") and hub.ask() == []


def test_requests_are_answered_from_the_other_side(linked: Linked, name: str) -> None:
    with Peer(linked.hub) as hub, Peer(linked.leaf) as leaf:
        hub.subscribe(name)
        wait_wanted(linked.leaf, name)
        leaf.send(f"SUB _INBOX.{name} 9\r\nPUB {name} _INBOX.{name} 1\r\n?\r\n".encode())
        asked = hub.message()
        hub.publish(asked.reply, b"!")
        assert leaf.message().payload == b"!"


def test_nobody_answers_where_nobody_listens_on_either_side(linked: Linked, name: str) -> None:
    for server in (linked.hub, linked.leaf):
        with Peer(server) as peer:
            assert peer.request(name).status == "503"


def test_each_side_answers_its_own_jetstream_requests_once(linked: Linked) -> None:
    for server, domain in ((linked.hub, "hub"), (linked.leaf, "edge")):
        with Peer(server) as peer:
            assert peer.api("INFO")["domain"] == domain and peer.ask() == []


def test_the_other_domain_is_asked_by_its_name(linked: Linked) -> None:
    for server, domain in ((linked.leaf, "hub"), (linked.hub, "edge")):
        wait_wanted(server, *(subject for subject in wanted(server) if subject.startswith(f"$JS.{domain}.API.")))
        with Peer(server) as peer:
            assert request(peer, f"$JS.{domain}.API.INFO").json["domain"] == domain


@pytest.mark.parametrize("side", ["hub", "leaf"])
def test_a_stream_of_the_other_side_is_used_as_ones_own(linked: Linked, name: str, side: str) -> None:
    near, far = (linked.leaf, linked.hub) if side == "hub" else (linked.hub, linked.leaf)
    api = f"$JS.{'hub' if side == 'hub' else 'edge'}.API"
    with Peer(near) as peer:
        config = {"name": name, "subjects": [f"{name}.>"], "storage": "memory", "allow_direct": True}
        assert "error" not in request(peer, f"{api}.STREAM.CREATE.{name}", _json(config)).json
        wait_wanted(near, f"{name}.>")
        assert request(peer, f"{name}.1", b"one").json["seq"] == 1
        assert request(peer, f"{api}.DIRECT.GET.{name}.{name}.1").payload == b"one"
        consumer = {"stream_name": name, "config": {"durable_name": "C", "ack_policy": "explicit"}}
        assert "error" not in request(peer, f"{api}.CONSUMER.DURABLE.CREATE.{name}.C", _json(consumer)).json
        inbox = f"_INBOX.{name}.pull"
        peer.send(f"SUB {inbox} 7\r\nPUB {api}.CONSUMER.MSG.NEXT.{name}.C {inbox} 1\r\n1\r\n".encode())
        msg = peer.message()
        assert (msg.subject, msg.payload) == (f"{name}.1", b"one") and "@" not in msg.reply
        assert peer.request(msg.reply, b"+ACK").payload == b""
        assert request(peer, f"{api}.CONSUMER.INFO.{name}.C").json["ack_floor"]["stream_seq"] == 1
        peer.send(f"SUB push.{name} 8\r\n".encode())
        wait_wanted(far, f"push.{name}")
        push = {"stream_name": name, "config": {"deliver_subject": f"push.{name}", "ack_policy": "none"}}
        peer.send(f"SUB _INBOX.x.{name} 9\r\n".encode())
        peer.publish(f"{api}.CONSUMER.CREATE.{name}", _json(push), reply=f"_INBOX.x.{name}")
        got = {peer.message().subject for _ in range(2)}
        assert got == {f"{name}.1", f"_INBOX.x.{name}"}


def test_keys_are_written_through_the_domain(linked: Linked, name: str) -> None:
    with Peer(linked.leaf) as leaf:
        config = {"name": f"KV_{name}", "subjects": [f"$KV.{name}.>"], "storage": "memory", "max_msgs_per_subject": 1}
        assert "error" not in request(leaf, f"$JS.hub.API.STREAM.CREATE.KV_{name}", _json(config)).json
        assert request(leaf, f"$KV.{name}.k", b"v").status == "503"
        assert request(leaf, f"$JS.hub.API.$KV.{name}.k", b"v").json["seq"] == 1


def test_the_pages_show_the_link(linked: Linked) -> None:
    hub, leaf = linked.hub.get("/leafz")["leafs"][0], linked.leaf.get("/leafz")["leafs"][0]
    assert (hub["name"], hub["is_spoke"], hub["account"]) == ("LEAF", False, "$G")
    assert (leaf["name"], leaf["is_spoke"], leaf["account"]) == ("HUB", True, "$G")
    assert linked.hub.get("/varz")["leafnodes"] == 1
    assert linked.leaf.get("/varz")["leaf"]["remotes"][0]["urls"] == [
        f"127.0.0.1:{linked.hub.get('/varz')['leaf']['port']}"
    ]
    assert linked.hub.get("/accountz?acc=$G")["account_detail"]["leafnode_connections"] == 1


def test_a_link_that_is_cut_heals_and_interest_converges(linked: Linked, name: str) -> None:
    with Peer(linked.leaf) as leaf:
        leaf.subscribe(f"{name}.before")
        wait_wanted(linked.hub, f"{name}.before")
        linked.hub.kill()
        leaf.subscribe(f"{name}.during", "2")
        assert leaf.request(f"{name}.up").status == "503"
        _restart_hub(linked)
        wait_wanted(linked.hub, f"{name}.before", f"{name}.during")
        with Peer(linked.hub) as hub:
            hub.subscribe(f"{name}.up")
            wait_wanted(linked.leaf, f"{name}.up")
            leaf.publish(f"{name}.up", b"1")
            hub.publish(f"{name}.before", b"2")
            assert hub.message().payload == b"1" and leaf.message().payload == b"2"


def _restart_hub(linked: Linked) -> None:
    """Start a hub that was killed again, on the ports it had."""
    hub, port = linked.hub, linked.leaf.get("/varz")["leaf"]["remotes"][0]["urls"][0]
    hub.process = None
    hub.config = hub.config.replace('listen: "127.0.0.1:-1"', f'listen: "{port}"')
    hub.start()


def _json(value: object) -> bytes:
    import json

    return json.dumps(value).encode()
