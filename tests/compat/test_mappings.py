"""Subject mappings: where messages go, and what else the new subject counts for."""

from __future__ import annotations

import pytest

from tests.compat.conftest import Start
from tests.compat.peer import Peer


def deliveries(peer: Peer, sent: bytes) -> list[bytes]:
    return [frame.split()[1] for frame in peer.ask(sent) if frame.startswith(b"MSG")]


def publishes(*subjects: str) -> bytes:
    return b"".join(f"PUB {subject} 1\r\nx\r\n".encode() for subject in subjects)


def test_subscribers_see_the_new_subject(start: Start) -> None:
    server = start('mappings { old: new, "a.*.*": "b.$2.$1", "deep.>": "sea.>" }')
    with Peer(server) as peer:
        peer.subscribe(">")
        assert deliveries(peer, publishes("old", "a.1.2", "a.1", "deep.1.2", "other")) == [
            b"new",
            b"b.2.1",
            b"a.1",
            b"sea.1.2",
            b"other",
        ]
        assert peer.ask(b"PUB old r.e 1\r\nx\r\n") == [b"MSG new 1 r.e 1\r\nx\r\n"]


@pytest.mark.parametrize(
    ("destination", "subject", "mapped"),
    [
        ("d.{{wildcard(1)}}", "s.x", "d.x"),
        ("d.{{partition(10,1)}}", "s.x", "d.5"),
        ("d.{{split(1,-)}}", "s.a-b-c", "d.a.b.c"),
        ("d.{{splitfromleft(1,2)}}", "s.12345", "d.12.345"),
        ("d.{{splitfromright(1,2)}}", "s.12345", "d.123.45"),
        ("d.{{slicefromleft(1,3)}}", "s.1234567", "d.123.456.7"),
        ("d.{{slicefromright(1,3)}}", "s.1234567", "d.1.234.567"),
        ("d.{{left(1,2)}}", "s.12345", "d.12"),
        ("d.{{right(1,2)}}", "s.12345", "d.45"),
    ],
)
def test_functions(start: Start, destination: str, subject: str, mapped: str) -> None:
    with Peer(start(f'mappings {{ "s.*": "{destination}" }}')) as peer:
        peer.subscribe(">")
        (found,) = deliveries(peer, publishes(subject))
        assert found.decode() == mapped


def test_weights(start: Start) -> None:
    server = start("""mappings {
        half: {destination: other, weight: 50%}
        lossy: [{destination: lossy, weight: 30%}, {destination: kept, weight: "30%"}]
        elsewhere: [{destination: far, weight: 100, cluster: far}]
    }""")
    with Peer(server) as peer:
        peer.subscribe(">")
        half = deliveries(peer, publishes("half") * 1000)
        assert len(half) == 1000 and 350 < half.count(b"other") < 650
        lossy = deliveries(peer, publishes("lossy") * 1000)
        assert 450 < len(lossy) < 750 and {b"lossy", b"kept"} == set(lossy)
        assert deliveries(peer, publishes("elsewhere")) == [b"elsewhere"]


def test_a_request_that_is_dropped_has_no_responders(start: Start) -> None:
    server = start("mappings { lost: [{destination: lost, weight: 0}, {destination: x, weight: 0}] }")
    with Peer(server) as peer:
        peer.subscribe("lost")
        assert peer.request("lost").status == "503"


def test_permissions_are_for_the_new_subject(start: Start) -> None:
    server = start("""
        accounts { A { mappings { old: new }, users: [
          {user: before, password: p, permissions: {publish: old}}
          {user: after, password: p, permissions: {publish: new}}
        ] } }
    """)
    with Peer(server, user="before", **{"pass": "p"}) as peer:
        peer.ask()  # nats-server maps from the read on that follows the login
        assert peer.ask(publishes("old")) == [b"-ERR 'Permissions Violation for Publish to \"new\"'\r\n"]
    with Peer(server, user="after", **{"pass": "p"}) as peer:
        peer.subscribe("new")
        assert deliveries(peer, publishes("old")) == [b"new"]


def test_accounts_have_their_own_and_services_are_mapped(start: Start) -> None:
    server = start("""
        mappings { svc: never }
        accounts {
          A { users: [{user: a, password: p}], exports: [{service: svc}], mappings { svc: svc2 } }
          B { users: [{user: b, password: p}], imports: [{service: {account: A, subject: svc}}] }
        }
    """)
    with Peer(server, user="a", **{"pass": "p"}) as a, Peer(server, user="b", **{"pass": "p"}) as b:
        a.subscribe("svc2")
        b.publish("svc", b"hi", reply="inbox")
        assert b.ask() == []
        assert a.message().subject == "svc2"


def test_streams_store_the_new_subject(start: Start) -> None:
    with Peer(start('mappings { "in.*": "out.$1" }', "-js")) as peer:
        peer.api("STREAM.CREATE.S", {"name": "S", "subjects": ["out.*"]})
        assert peer.request("in.1", b"x").json == {"stream": "S", "seq": 1}
        assert peer.api("STREAM.MSG.GET.S", {"seq": 1})["message"]["subject"] == "out.1"


def test_a_reload_changes_them(start: Start) -> None:
    server = start("mappings { a: b }")
    with Peer(server) as peer:
        peer.subscribe(">")
        assert deliveries(peer, publishes("a")) == [b"b"]
        server.reload("mappings { a: c }")
        assert deliveries(peer, publishes("a")) == [b"c"]


def test_pages_show_them(start: Start) -> None:
    server = start('mappings { a: b, "c.*": {destination: "d.$1", weight: 40} }')
    assert server.get("/accountz?acc=$G")["account_detail"]["mappings"] == {
        "a": [{"subject": "b", "weight": 100}],
        "c.*": [{"subject": "d.$1", "weight": 40}, {"subject": "c.$1", "weight": 100}],
    }


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        ('"a.*": "b.$2"', "wildcard index out of range"),
        ('"a.*": "b.{{foo(1)}}"', "unknown function"),
        ("a: {destination: b, weight: 101}", "Invalid weight 101"),
        ("a: [{destination: b, weight: 60}, {destination: c, weight: 60}]", "total weight needs to be"),
    ],
)
def test_wrong_ones_stop_the_start(start: Start, mapping: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        start(f"mappings {{ {mapping} }}")
