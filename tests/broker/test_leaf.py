"""How two servers agree to be linked, and what may cross."""

from __future__ import annotations

import pytest

from jetlake.broker.leaf import Rules
from tests.broker.leafs import Host, Pair, Wire
from tests.broker.sessions import connect, make_broker

USERS = """authorization { users: [
  {user: up, password: pw, permissions: {publish: "up.>", subscribe: {allow: "down.>", deny: "down.no"}}}
  {user: all, password: pw}
] }"""
AS_UP = {"user": "up", "pass": "pw"}


def test_both_sides_are_open_after_the_handshake() -> None:
    pair = Pair()
    assert pair.wire.hub.is_open and pair.wire.leaf.is_open
    assert pair.wire.hub.name == "LEAF" and pair.wire.leaf.name == "HUB"
    assert b"LS+ $LDS." in pair.wire.seen["up"] and b"LS+ $LDS." in pair.wire.seen["down"]


def test_wrong_credentials_are_refused() -> None:
    pair = Pair(USERS, said={"user": "up", "pass": "wrong"})
    assert pair.wire.seen["down"].endswith(b"-ERR 'Authorization Violation'\r\n")
    assert pair.wire.hub.is_closed and pair.wire.leaf.is_closed


def test_messages_before_the_login_are_refused() -> None:
    pair = Pair()
    hub = Wire(pair.hub_host, Host(make_broker(), "X")).hub
    hub.is_open = False
    hub.receive(bytearray(b"LMSG a 0\r\n\r\n"), 0, 12)
    assert hub.is_closed and hub.close_reason == "Authorization Violation"


def test_a_client_on_the_port_for_leafs_is_told_so() -> None:
    pair = Pair(said={"lang": "go"})
    assert pair.wire.seen["down"].endswith(b"-ERR 'no clients here'\r\n")


def test_something_without_a_client_id_is_no_hub() -> None:
    pair = Pair()
    leaf = Wire(pair.hub_host, pair.leaf_host).leaf
    leaf.is_open = leaf._has_said_hello = False
    leaf.receive(bytearray(b"INFO {}\r\n"), 0, 9)
    assert leaf.close_reason == "Wrong Port"


def test_subjects_of_the_rules_are_neither_told_nor_sent() -> None:
    pair = Pair()
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    hub.say(b"SUB $JS.API.X 1\r\nSUB > 2\r\n")
    pair.wire.pump()
    assert b"LS+ $JS.API" not in pair.wire.seen["down"] and b"LS+ >\r\n" in pair.wire.seen["down"]
    leaf.say(b"PUB $JS.API.X 0\r\n\r\nPUB y 0\r\n\r\n")
    pair.wire.pump()
    assert hub.heard() == b"MSG y 2 0\r\n\r\n"


def test_a_loop_ends_the_link_for_a_while() -> None:
    pair = Pair()
    back = Wire(pair.leaf_host, pair.hub_host)
    assert b"-ERR 'Loop detected for leafnode account=" in back.seen["down"] + back.seen["up"]
    assert back.leaf.is_closed and back.leaf.reconnect_wait_s == 30
    assert pair.wire.leaf.is_open


def test_a_leaf_keeps_to_what_its_user_may() -> None:
    pair = Pair(USERS, said=AS_UP)
    hub_config = b'CONNECT {"verbose":false,"user":"all","pass":"pw","headers":true}\r\n'
    hub, leaf = connect(pair.hub_host.broker, hub_config), pair.connect_leaf()
    hub.say(b"SUB > 1\r\n")
    leaf.say(b"SUB down.> 2\r\nSUB down.no 3\r\nSUB other 4\r\n")
    pair.wire.pump()
    assert b"LS+ down.>\r\n" in pair.wire.seen["up"] and b"LS+ other" not in pair.wire.seen["up"]
    leaf.say(b"PUB up.1 0\r\n\r\nPUB else 0\r\n\r\n")
    hub.say(b"PUB down.1 0\r\n\r\nPUB down.no 0\r\n\r\nPUB other 0\r\n\r\n")
    pair.wire.pump()
    assert pair.wire.hub.is_open and b"LMSG up.1" in pair.wire.seen["up"] and b"LMSG else" not in pair.wire.seen["up"]
    assert b"LMSG down.1" in pair.wire.seen["down"] and b"LMSG down.no" not in pair.wire.seen["down"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"LS+ down.no\r\n", b'Permissions Violation for Subscription to "down.no"'),
        (b"LS+ other\r\n", b'Permissions Violation for Subscription to "other"'),
        (b"LMSG other 0\r\n\r\n", b'Permissions Violation for Publish to "other"'),
    ],
)
def test_a_leaf_that_does_not_keep_to_it_is_closed(line: bytes, text: bytes) -> None:
    pair = Pair(USERS, said=AS_UP)
    pair.wire.hub.receive(bytearray(line), 0, len(line))
    assert pair.wire.hub.is_closed and pair.wire.hub.take_output() == b"-ERR '%s'\r\n" % text


@pytest.mark.parametrize(
    "line", [b"LS+ >\r\n", b"LS+ $LDS.x\r\n", b"LMSG _R_.x 0\r\n\r\n", b"LMSG $JS.ACK.x 0\r\n\r\n"]
)
def test_some_things_are_exempt_from_permissions(line: bytes) -> None:
    pair = Pair(USERS, said=AS_UP)
    pair.wire.hub.receive(bytearray(line), 0, len(line))
    assert pair.wire.hub.is_open and not pair.wire.hub.is_closed


def test_what_a_remote_denies_does_not_cross() -> None:
    pair = Pair(said={"deny_pub": ["in.no"]}, denials=Rules(("out.no",), ("in.no",)))
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    leaf.say(b"SUB in.no 1\r\nSUB in.> 2\r\n")
    hub.say(b"SUB out.> 1\r\n")
    pair.wire.pump()
    assert b"LS+ in.no" not in pair.wire.seen["up"]
    hub.say(b"PUB in.no 0\r\n\r\nPUB in.yes 0\r\n\r\n")
    leaf.say(b"PUB out.no 0\r\n\r\nPUB out.yes 0\r\n\r\n")
    leaf.heard()
    pair.wire.pump()
    assert hub.heard() == b"MSG out.yes 1 0\r\n\r\n" and leaf.heard() == b"MSG in.yes 2 0\r\n\r\n"


def test_a_hub_tells_one_leaf_what_another_wants() -> None:
    pair = Pair()
    other_host = Host(make_broker(), "OTHER")
    other = Wire(pair.hub_host, other_host)
    client, far = pair.connect_leaf(), connect(other_host.broker)
    client.say(b"SUB a 1\r\n")
    pair.wire.pump()
    other.pump()
    assert b"LS+ a\r\n" in other.seen["down"]
    far.say(b"PUB a 2\r\nhi\r\n")
    other.pump()
    pair.wire.pump()
    assert client.heard() == b"MSG a 1 2\r\nhi\r\n"


def test_an_isolated_leaf_is_not_told_but_heard() -> None:
    pair = Pair()
    other_host = Host(make_broker(), "OTHER")
    other_host.said = {"isolate": True}
    other = Wire(pair.hub_host, other_host)
    near, far = pair.connect_leaf(), connect(other_host.broker)
    near.say(b"SUB a 1\r\n")
    far.say(b"SUB b 1\r\n")
    for _ in range(2):
        pair.wire.pump()
        other.pump()
    assert b"LS+ a\r\n" not in other.seen["down"] and b"LS+ b\r\n" in pair.wire.seen["down"]


def test_leafs_of_one_cluster_do_not_hear_each_other_through_the_hub() -> None:
    pair = Pair(said={"cluster": "C"})
    other_host = Host(make_broker(), "OTHER")
    other_host.said = {"cluster": "C"}
    other = Wire(pair.hub_host, other_host)
    near, far, hub = pair.connect_leaf(), connect(other_host.broker), pair.connect_hub()
    near.say(b"SUB a 1\r\n")
    far.say(b"SUB a 1\r\n")
    pair.wire.pump()
    other.pump()
    assert b"LS+ a\r\n" not in other.seen["down"]
    hub.say(b"PUB a 0\r\n\r\n")
    other.hub.receive(bytearray(b"LMSG a 1\r\nx\r\n"), 0, 13)
    pair.wire.pump()
    other.pump()
    assert near.heard() == far.heard() == b"MSG a 1 0\r\n\r\n"


def test_a_spoke_does_not_tell_one_hub_what_another_wants() -> None:
    pair = Pair()
    second_host = Host(make_broker(), "HUB2")
    second = Wire(second_host, pair.leaf_host)
    hub = pair.connect_hub()
    hub.say(b"SUB a 1\r\n")
    pair.wire.pump()
    second.pump()
    assert b"LS+ a\r\n" not in second.seen["up"]


def test_a_spoke_in_the_middle_passes_interest_both_ways() -> None:
    pair = Pair()
    low_host = Host(make_broker(), "LOW")
    low = Wire(pair.leaf_host, low_host)
    hub, client = pair.connect_hub(), connect(low_host.broker)
    hub.say(b"SUB up 1\r\n")
    client.say(b"SUB down 1\r\n")
    for _ in range(2):
        pair.wire.pump()
        low.pump()
    client.say(b"PUB up 0\r\n\r\n")
    hub.say(b"PUB down 0\r\n\r\n")
    for _ in range(2):
        pair.wire.pump()
        low.pump()
    assert hub.heard() == b"MSG up 1 0\r\n\r\n" and client.heard() == b"MSG down 1 0\r\n\r\n"


def test_a_soliciting_hub_swaps_the_roles() -> None:
    pair = Pair(said={"is_hub": True}, is_spoke=False)
    assert pair.wire.hub.is_spoke and not pair.wire.leaf.is_spoke


def test_a_link_belongs_to_one_account() -> None:
    config = "accounts { A { users: [{user: a, password: p}] }, B { users: [{user: b, password: p}] } }"
    pair = Pair(config, said={"user": "a", "pass": "p"})
    a = connect(pair.hub_host.broker, b'CONNECT {"verbose":false,"user":"a","pass":"p"}\r\n')
    b = connect(pair.hub_host.broker, b'CONNECT {"verbose":false,"user":"b","pass":"p"}\r\n')
    for client in (a, b):
        client.say(b"SUB x 1\r\n")
    pair.wire.pump()
    leaf = pair.connect_leaf()
    leaf.say(b"PUB x 0\r\n\r\n")
    pair.wire.pump()
    assert a.heard() == b"MSG x 1 0\r\n\r\n" and b.heard() == b""
