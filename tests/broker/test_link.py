"""Messages and interest over a link."""

from __future__ import annotations

import pytest

from tests.broker.leafs import Pair, Wire


def test_messages_go_where_somebody_wants_them() -> None:
    pair = Pair()
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    hub.say(b"SUB a.* 1\r\n")
    pair.wire.pump()
    leaf.say(b"PUB a.1 r 2\r\nhi\r\nHPUB a.2 12 13\r\nNATS/1.0\r\n\r\nx\r\nPUB b 0\r\n\r\n")
    pair.wire.pump()
    assert hub.heard() == b"MSG a.1 1 r 2\r\nhi\r\nHMSG a.2 1 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    assert b"LMSG b" not in pair.wire.seen["up"]


def test_messages_do_not_come_back() -> None:
    pair = Pair()
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    hub.say(b"SUB a 1\r\n")
    leaf.say(b"SUB a 1\r\n")
    pair.wire.pump()
    leaf.say(b"PUB a 0\r\n\r\n")
    pair.wire.pump()
    assert pair.wire.seen["up"].count(b"LMSG a 0") == 1 and b"LMSG" not in pair.wire.seen["down"]


def test_a_link_gets_a_message_once_with_all_queue_groups() -> None:
    pair = Pair()
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    leaf.say(b"SUB z 1\r\nSUB z q1 2\r\nSUB z q2 3\r\nSUB z q2 4\r\n")
    pair.wire.pump()
    hub.say(b"PUB z rep 1\r\nx\r\n")
    pair.wire.pump()
    assert b"LMSG z + rep q1 q2 1\r\n" in pair.wire.seen["down"]
    heard = leaf.heard()
    assert heard.count(b"MSG z") == 3 and heard.count(b"MSG z 1 ") == heard.count(b"MSG z 2 ") == 1


def test_queue_members_get_nothing_unless_their_group_is_named() -> None:
    pair = Pair()
    leaf = pair.connect_leaf()
    leaf.say(b"SUB z q1 1\r\n")
    pair.wire.leaf.receive(bytearray(b"LMSG z 0\r\n\r\nLMSG z | q2 0\r\n\r\n"), 0, 29)
    assert leaf.heard() == b""


def test_members_of_a_queue_group_here_come_first() -> None:
    pair = Pair()
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    leaf.say(b"SUB z q 1\r\n")
    hub.say(b"SUB z q 1\r\n")
    pair.wire.pump()
    assert hub.say(b"PUB z 0\r\n\r\n" * 50).count(b"MSG z") == 50
    hub.say(b"UNSUB 1\r\nPUB z 0\r\n\r\n")
    pair.wire.pump()
    assert leaf.heard() == b"MSG z 1 0\r\n\r\n"


def test_weights_are_told_whenever_they_change() -> None:
    pair = Pair()
    leaf = pair.connect_leaf()
    pair.wire.seen["up"] = b""
    for line in (b"SUB a w 1\r\n", b"SUB a w 2\r\n", b"SUB a 3\r\n", b"SUB a 4\r\n", b"UNSUB 1\r\n", b"UNSUB 2\r\n"):
        leaf.say(line)
    leaf.say(b"UNSUB 3\r\nUNSUB 4\r\n")
    pair.wire.pump()
    assert pair.wire.seen["up"] == b"LS+ a w 1\r\nLS+ a w 2\r\nLS+ a\r\nLS+ a w 1\r\nLS- a w\r\nLS- a\r\n"
    assert not pair.hub_host.broker.default_account.has_interest(b"a")


def test_a_request_is_answered_over_the_link() -> None:
    pair = Pair()
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    hub.say(b"SUB svc 1\r\n")
    pair.wire.pump()
    leaf.say(b"SUB in.1 9\r\nPUB svc in.1 1\r\n?\r\n")
    pair.wire.pump()
    assert hub.heard() == b"MSG svc 1 in.1 1\r\n?\r\n"
    hub.say(b"PUB in.1 1\r\n!\r\n")
    pair.wire.pump()
    assert leaf.heard() == b"MSG in.1 9 1\r\n!\r\n"


def test_no_responders_are_known_where_the_client_is() -> None:
    pair = Pair()
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    leaf.say(b"SUB in.1 9\r\n")
    assert b"503" in leaf.say(b"PUB svc in.1 0\r\n\r\n")
    hub.say(b"SUB svc 1\r\n")
    pair.wire.pump()
    assert b"503" not in leaf.say(b"PUB svc in.1 0\r\n\r\n")


def test_what_was_there_before_the_link_is_told() -> None:
    pair = Pair()
    pair.wire.cut()
    hub = pair.connect_hub()
    hub.say(b"".join(b"SUB a.%d %d\r\n" % (number, number) for number in range(2500)))

    wire = Wire(pair.hub_host, pair.leaf_host)
    assert len(wire.leaf.subs) == 2501 and len(wire.hub.interest) == 2500


def test_interest_is_gone_with_the_link() -> None:
    pair = Pair()
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    hub.say(b"SUB a 1\r\n")
    pair.wire.pump()
    account = pair.leaf_host.broker.default_account
    assert account.has_interest(b"a")
    pair.wire.cut()
    assert not account.has_interest(b"a") and not account.links and not account.sublist.match(b"a").plain
    leaf.say(b"SUB in 1\r\n")
    assert b"503" in leaf.say(b"PUB a in 0\r\n\r\n")


def test_deliveries_of_consumers_carry_their_subject() -> None:
    pair = Pair()
    leaf = pair.connect_leaf()
    leaf.say(b"SUB in.1 1\r\n")
    pair.wire.pump()
    reply = b"$JS.ACK.S.C.1.1.1.17.0"
    pair.hub_host.broker.default_account.send(b"ord.1", b"x", reply=reply, via=b"in.1")
    pair.wire.pump()
    assert b"LMSG in.1 %s@ord.1 1\r\n" % reply in pair.wire.seen["down"]
    assert leaf.heard() == b"MSG ord.1 1 %s 1\r\nx\r\n" % reply


def test_a_slow_link_is_closed() -> None:
    pair = Pair("max_payload: 800, max_pending: 1000")
    hub, leaf = pair.connect_hub(), pair.connect_leaf()
    leaf.say(b"SUB a 1\r\n")
    pair.wire.pump()
    hub.say(b"PUB a 600\r\n" + b"x" * 600 + b"\r\n")
    assert hub.stalls == 1
    hub.say(b"PUB a 600\r\n" + b"x" * 600 + b"\r\n")
    assert pair.wire.hub.close_reason == "Slow Consumer (Pending Bytes)"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"SUB a 1\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
        (b"LS+\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
        (b"LS+ a b\r\n", b""),
        (b"LMSG s * r 0\r\n\r\n", b""),
        (b"LMSG a 99999999\r\n", b"-ERR 'Maximum Payload Violation'\r\n"),
        (b"LMSG a 9223372036854775808\r\n", b""),
        (b"\x16\x03\x01", b"-ERR 'Unknown Protocol Operation'\r\n"),
    ],
)
def test_bad_input_ends_the_link(data: bytes, text: bytes) -> None:
    link = Pair().wire.hub
    link.receive(bytearray(data), 0, len(data))
    assert link.is_closed and link.take_output() == text


def test_a_bad_subject_is_refused_and_the_link_stays() -> None:
    link = Pair().wire.hub
    link.receive(bytearray(b"LS+ a..b\r\nLS- unknown\r\n"), 0, 23)
    assert not link.is_closed and link.take_output() == b"-ERR 'Invalid Subscription'\r\n"
