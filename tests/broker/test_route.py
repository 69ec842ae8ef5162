"""Routes without sockets: what crosses, and what does not."""

from __future__ import annotations

import pytest

from jetlake.broker.account import Account
from jetlake.broker.broker import Broker
from jetlake.broker.recipients import Capture
from tests.broker.leafs import Host as LeafHost
from tests.broker.leafs import Wire as LeafWire
from tests.broker.routes import Host, Mesh, Wire, hear
from tests.broker.sessions import FakeConnection, make_broker

ACCOUNTS = """
accounts {
  X { users: [{user: x, password: x}], exports: [{stream: "news.>"}, {service: "svc.*"}] }
  Y { users: [{user: y, password: y}], imports: [
      {stream: {account: X, subject: "news.>"}}, {service: {account: X, subject: "svc.*"}}] }
}"""


def login(mesh: Mesh, place: int, user: str) -> FakeConnection:
    return mesh.connect(place, b'CONNECT {"verbose":false,"user":"%s","pass":"%s"}\r\n' % (2 * (user.encode(),)))


def test_both_sides_say_who_they_are_and_are_open() -> None:
    mesh = Mesh("", "")
    (wire,) = mesh.wires.values()
    assert all(end.is_open for end in wire.ends)
    assert [end.server_name for end in wire.ends] == ["S1", "S0"]
    assert mesh.sent(1, 0).startswith(b"CONNECT {") and mesh.sent(0, 1).startswith(b"INFO {")


def test_nothing_is_taken_before_the_other_side_was_let_in() -> None:
    for line in (b"INFO {}\r\n", b"RS+ $G a\r\n", b"RMSG $G a 0\r\n\r\n", b"RAFT 1 1\r\n"):
        wire = Wire(Host(make_broker(), "A"), Host(make_broker(), "B"))
        hear(wire.ends[0], line)
        assert wire.ends[0].is_closed


def test_a_message_and_its_interest_cross_once() -> None:
    mesh = Mesh("", "", "")
    clients = [mesh.connect(place) for place in range(3)]
    for client in clients:
        client.say(b"SUB a.* 1\r\n")
    mesh.settle()
    clients[0].say(b"PUB a.1 r 2\r\nhi\r\n")
    mesh.settle()
    assert [client.heard() for client in clients[1:]] == [b"MSG a.1 1 r 2\r\nhi\r\n"] * 2
    assert mesh.sent(0, 1).endswith(b"RS+ $G a.*\r\nRMSG $G a.1 r 2\r\nhi\r\n")
    assert b"RMSG" not in mesh.sent(1, 2) + mesh.sent(2, 1)


def test_a_run_of_messages_is_one_batch_for_each_account() -> None:
    mesh = Mesh("", "")
    a, b = mesh.connect(0), mesh.connect(1)
    b.say(b"SUB > 1\r\n")
    mesh.settle()
    a.say(b"PUB a 1\r\n1\r\nPUB b 1\r\n2\r\n" * 100)
    mesh.settle()
    assert b.heard() == b"MSG a 1 1\r\n1\r\nMSG b 1 1\r\n2\r\n" * 100


def test_queue_members_have_the_same_chance_at_all_servers_and_keep_the_order() -> None:
    mesh = Mesh("", "", "")
    clients = [mesh.connect(place) for place in range(3)]
    clients[0].say(b"SUB w q 1\r\n")
    clients[1].say(b"SUB w q 1\r\nSUB w q 2\r\n")
    clients[2].say(b"SUB w q 1\r\n" + b"SUB w q 2\r\n")
    mesh.settle()
    sent = b"".join(b"PUB w 4\r\n%04d\r\n" % number for number in range(2000))
    got = [clients[0].say(sent)]
    mesh.settle()
    got += [client.heard() for client in clients[1:]]
    counts = [text.count(b"MSG w") for text in got]
    assert sum(counts) == 2000 and 300 < counts[0] < 500 and 650 < counts[1] < 950
    near = [part for part in got[0].split(b"\r\n") if part.isdigit()]
    assert near == sorted(near)


def test_queue_members_elsewhere_stand_in_where_there_are_none_here() -> None:
    mesh = Mesh("", "", "")
    clients = [mesh.connect(place) for place in range(3)]
    clients[1].say(b"SUB w q 1\r\n")
    clients[2].say(b"SUB w q 1\r\nSUB w q 2\r\nSUB w q 3\r\n")
    mesh.settle()
    clients[0].say(b"PUB w 0\r\n\r\n" * 1000)
    mesh.settle()
    one, two = (client.heard().count(b"MSG") for client in clients[1:])
    assert one + two == 1000 and 170 < one < 340


def test_a_message_with_a_plain_subscriber_too_crosses_once() -> None:
    mesh = Mesh("", "")
    a, b = mesh.connect(0), mesh.connect(1)
    a.say(b"SUB w q 1\r\n")
    b.say(b"SUB w q 1\r\nSUB w 2\r\n")
    mesh.settle()
    mesh.sent(0, 1)
    near = a.say(b"PUB w 0\r\n\r\n" * 400).count(b"MSG")
    mesh.settle()
    far = b.heard()
    assert (far.count(b"MSG w 2"), far.count(b"MSG w 1") + near) == (400, 400) and 130 < near < 270
    assert mesh.sent(0, 1).count(b"RMSG") == 400


def test_nobody_is_there_when_no_server_has_anybody() -> None:
    mesh = Mesh("", "")
    a, b = mesh.connect(0), mesh.connect(1)
    b.say(b"SUB x 1\r\n")
    mesh.settle()
    assert a.say(b"SUB r 1\r\nPUB x r 0\r\n\r\n") == b""
    b.say(b"UNSUB 1\r\n")
    mesh.settle()
    assert b"503" in a.say(b"PUB x r 0\r\n\r\n")


def test_a_lost_route_takes_its_interest_along() -> None:
    mesh = Mesh("", "")
    a, b = mesh.connect(0), mesh.connect(1)
    b.say(b"SUB x 1\r\n")
    mesh.settle()
    (wire,) = mesh.wires.values()
    wire.ends[0].close("Client Closed")
    assert b"503" in a.say(b"SUB r 1\r\nPUB x r 0\r\n\r\n")
    broker = mesh.hosts[0].broker
    assert not broker.routes and not any(account.links for account in broker.accounts.values())
    assert mesh.hosts[0].closed == [wire.ends[0]]


def test_a_new_account_takes_part() -> None:
    mesh = Mesh("", "")
    for host in mesh.hosts:
        host.broker.account("NEW")
    mesh.hosts[1].broker.account("NEW").subscribe(b"x", lambda msg: heard.append(msg.payload))
    heard: list[bytes] = []
    mesh.settle()
    assert b"RS+ NEW x\r\n" in mesh.sent(1, 0)
    assert mesh.hosts[0].broker.account("NEW").send(b"x", b"1")
    mesh.settle()
    assert heard == [b"1"]


def test_an_account_that_only_the_other_server_knows_is_made() -> None:
    mesh = Mesh("", "")
    mesh.hosts[1].broker.account("FAR").subscribe(b"x", lambda msg: None)
    mesh.settle()
    assert mesh.hosts[0].broker.account("FAR").has_interest(b"x")


def test_imports_are_each_servers_own_business() -> None:
    mesh = Mesh(ACCOUNTS, ACCOUNTS)
    importer, exporter = login(mesh, 0, "y"), login(mesh, 1, "x")
    importer.say(b"SUB news.1 1\r\nSUB inbox 2\r\n")
    exporter.say(b"SUB svc.* 1\r\n")
    mesh.settle()
    told = mesh.sent(0, 1)
    assert b"RS+ X news.1\r\n" in told and b"RS+ Y news.1\r\n" in told
    assert b"RS+ Y svc" not in told, "requests are passed on where they are made"
    exporter.say(b"PUB news.1 1\r\n1\r\n")
    importer.say(b"PUB svc.a inbox 1\r\n?\r\n")
    mesh.settle()
    assert importer.heard() == b"MSG news.1 1 1\r\n1\r\n"
    reply = exporter.heard().split()[3]
    exporter.say(b"PUB %s 1\r\n!\r\n" % reply)
    mesh.settle()
    assert reply.startswith(b"_R_.") and importer.heard() == b"MSG inbox 2 1\r\n!\r\n"


def test_each_server_answers_for_its_own_clients() -> None:
    mesh = Mesh("", "")
    system = mesh.hosts[0].broker.system_account
    for account in (mesh.hosts[0].broker.default_account, system):
        account.subscribe(b"$SYS.REQ.USER.INFO", lambda msg: None)
        account.subscribe(b"$JS.API.>", lambda msg: None)
    mesh.settle()
    told = mesh.sent(0, 1)
    assert b"RS+ $G $JS.API.>" in told and b"RS+ $G $SYS.REQ" not in told
    assert b"RS+ $SYS $SYS.REQ.USER.INFO" in told and b"RS+ $SYS $JS.API" not in told


def test_jetstream_requests_stay_where_there_are_streams() -> None:
    mesh = Mesh("", "")
    mesh.hosts[1].broker.default_account.subscribe(b"$JS.API.>", lambda msg: None)
    account = mesh.hosts[0].broker.default_account
    mesh.settle()
    assert account.has_interest(b"$JS.API.INFO")
    account.jetstream = object()
    assert not account.has_interest(b"$JS.API.INFO") and account.send(b"$JS.API.INFO", b"") is False


def test_a_delivery_shows_the_subject_it_was_stored_with() -> None:
    mesh = Mesh("", "")
    client = mesh.connect(1)
    client.say(b"SUB in.box 1\r\n")
    mesh.settle()
    ack = b"$JS.ACK.S.C.1.1.1.17.0"
    mesh.hosts[0].broker.default_account.send(b"ord.1", b"x", reply=ack, via=b"in.box")
    mesh.settle()
    assert mesh.sent(0, 1).endswith(b"RMSG $G in.box %s@ord.1 1\r\nx\r\n" % ack)
    assert client.heard() == b"MSG ord.1 1 %s 1\r\nx\r\n" % ack


def test_a_stream_of_another_server_stores_what_is_published_here() -> None:
    mesh = Mesh("", "")
    capture = _Capture()
    mesh.hosts[1].broker.default_account.add_capture(capture)
    mesh.settle()
    mesh.connect(0).say(b"PUB s.1 0\r\n\r\nPUB s.2 0\r\n\r\n")
    mesh.settle()
    assert capture.subjects == [b"s.1", b"s.2"]


class _Capture(Capture):
    patterns = (b"s.>",)

    def __init__(self) -> None:
        self.subjects: list[bytes] = []

    def ingest(self, origin, data, ops, first, stop) -> None:  # type: ignore[no-untyped-def]
        for number in range(first, stop):
            start, size = ops[number * 12], ops[number * 12 + 1]
            self.subjects.append(bytes(data[start : start + size]))


def test_a_connection_becomes_something_else_after_the_login() -> None:
    host = Host(make_broker(), "A")
    route = Wire(host, Host(make_broker(), "B")).ends[0]
    said = b'CONNECT {"name":"B"}\r\nRAFT 7 3\r\n\x00\x01\x02'
    assert hear(route, said) == len(said) - 3, "what follows is not of this protocol"
    assert (host.switched[0].kind, host.switched[0].args) == ("RAFT", b"7 3") and not route.is_closed


def test_a_switch_that_nobody_wants_is_refused() -> None:
    host = Host(make_broker(), "A")
    host.takes_switches = False
    route = Wire(host, Host(make_broker(), "B")).ends[0]
    hear(route, b'CONNECT {"name":"B"}\r\nCOPY {}\r\n')
    assert route.is_closed and route.close_reason == "Unknown Protocol Operation"


def test_a_later_info_is_for_the_server() -> None:
    mesh = Mesh("", "")
    (wire,) = mesh.wires.values()
    hear(wire.ends[0], b'INFO {"server_id":"S1","ldm":true,"jetlake":{"node":"x"}}\r\n')
    (info,) = mesh.hosts[0].told
    assert info.fields.ldm and info.fields.jetlake == {"node": "x"}


@pytest.mark.parametrize("text", [b"Authorization Violation", b"Not possible to have a dedicated route for account"])
def test_an_error_of_the_other_side_ends_the_route(text: bytes) -> None:
    mesh = Mesh("", "")
    (wire,) = mesh.wires.values()
    hear(wire.ends[0], b"-ERR '%s'\r\n" % text)
    assert wire.ends[0].is_closed


# Leaf nodes of a cluster


def pump(mesh: Mesh, leaf: LeafWire) -> None:
    for _ in range(4):
        leaf.pump()
        mesh.settle()


def account_of(broker: Broker) -> Account:
    return broker.default_account


def test_a_leaf_of_one_server_hears_clients_of_the_others() -> None:
    mesh = Mesh("", "")
    leaf = LeafWire(LeafHost(mesh.hosts[0].broker, "HUB"), LeafHost(make_broker(), "LEAF"))
    heard: list[bytes] = []
    account_of(leaf.leaf.broker).subscribe(b"down", lambda msg: heard.append(msg.payload))
    client = mesh.connect(1)
    client.say(b"SUB up 1\r\n")
    pump(mesh, leaf)
    client.say(b"PUB down 1\r\n1\r\n")
    account_of(leaf.leaf.broker).send(b"up", b"2")
    pump(mesh, leaf)
    assert heard == [b"1"] and client.heard() == b"MSG up 1 1\r\n2\r\n"


def test_what_comes_from_a_hub_stays_at_the_server_that_it_came_to() -> None:
    """The other servers of the cluster are leafs of the hub themselves."""
    mesh = Mesh("", "")
    hub = LeafWire(LeafHost(make_broker(), "HUB"), LeafHost(mesh.hosts[0].broker, "LEAF"))
    near, far = mesh.connect(0), mesh.connect(1)
    near.say(b"SUB down 1\r\n")
    far.say(b"SUB down 1\r\nSUB only.far 2\r\n")
    pump(mesh, hub)
    assert b"LS+ down" in hub.seen["up"] and b"LS+ only.far" not in hub.seen["up"]
    account_of(hub.hub.broker).send(b"down", b"1")
    pump(mesh, hub)
    assert near.heard() == b"MSG down 1 1\r\n1\r\n" and far.heard() == b""


def test_a_server_with_many_accounts_is_told_in_turns() -> None:
    hosts = [Host(make_broker(), "A"), Host(make_broker(), "B")]
    for number in range(3000):
        hosts[0].broker.account(f"N{number}").subscribe(b"x", lambda msg: None)
    later: list[object] = []
    hosts[0].broker.call_soon = later.append
    wire = Wire(*hosts)
    while wire.move() or later:
        for callback in [later.pop(0) for _ in range(len(later))]:
            callback()  # type: ignore[operator]
    assert wire.seen[0].count(b"RS+ N") == 3000 and wire.ends[0].connection.holds == 0  # type: ignore[attr-defined]
    wire.ends[0].close("Client Closed")
    assert not any(account.links for account in hosts[0].broker.accounts.values())


def test_a_route_that_is_lost_while_it_is_told_leaves_nothing_behind() -> None:
    hosts = [Host(make_broker(), "A"), Host(make_broker(), "B")]
    for number in range(3000):
        hosts[0].broker.account(f"N{number}").subscribe(b"x", lambda msg: None)
    later: list[object] = []
    hosts[0].broker.call_soon = later.append
    wire = Wire(*hosts)
    wire.move()
    wire.ends[0].close("Client Closed")
    for callback in later:
        callback()  # type: ignore[operator]
    assert not any(account.links for account in hosts[0].broker.accounts.values())
    assert wire.ends[0].connection.holds == 0  # type: ignore[attr-defined]
