"""Core messaging: subscriptions, wildcards, queue groups, order, and every line that is wrong."""

from __future__ import annotations

import pytest

from tests.compat.peer import Peer, parse_msg
from tests.compat.servers import Server

MATCHES = [
    ("a", "a", True), ("a", "b", False), ("a.b", "a.b", True), ("a.*", "a.b", True), ("a.*", "a", False),
    ("a.*", "a.b.c", False), ("a.>", "a.b", True), ("a.>", "a.b.c", True), ("a.>", "a", False), ("*.b", "a.b", True),
    ("*.*", "a.b", True), ("*.*", "a", False), ("a.*.c", "a.b.c", True), ("a.*.c", "a.b.d", False),
    ("a.b*", "a.b*", True), ("a.b*", "a.bc", False), ("a.>b", "a.>b", True), ("A", "a", False),
    ("a.*.>", "a.b.c.d", True),
    ("a.*.>", "a.b", False), ("a.*", "a.*", True), ("a.b", "a.*", False), ("a.>", "a.>", True), ("$a", "$a", True),
    ("a.é", "a.é", True),
]  # fmt: skip


@pytest.mark.parametrize(("filter_", "subject", "matches"), MATCHES)
def test_wildcards(server: Server, peer: Peer, name: str, filter_: str, subject: str, matches: bool) -> None:
    peer.subscribe(f"{name}.{filter_}")
    answer = peer.ask(f"PUB {name}.{subject} 0\r\n\r\n".encode())
    assert answer == ([f"MSG {name}.{subject} 1 0\r\n\r\n".encode()] if matches else [])


@pytest.mark.parametrize("subject", ["a..b", ".a", "a.", "a.>.b", ".", "..", ">.a", "a.>.>"])
def test_subjects_that_cannot_be_subscribed_to(server: Server, peer: Peer, subject: str) -> None:
    assert peer.ask(f"SUB {subject} 1\r\n".encode()) == [b"-ERR 'Invalid Subject'\r\n"]
    assert not peer.is_closed


@pytest.mark.parametrize("queue", ["a..b", "a.*", ".", ">", "q*"])
def test_odd_queue_names(server: Server, peer: Peer, name: str, queue: str) -> None:
    """What nats-server says of them is in the test's parameters by position: the same for all but empty tokens."""
    answer = peer.ask(f"SUB {name} {queue} 1\r\nPUB {name} 0\r\n\r\n".encode())
    assert answer in (
        [f"MSG {name} 1 0\r\n\r\n".encode()],
        [b"-ERR 'Invalid Subject'\r\n"],
        [b"-ERR 'Invalid Queue Name'\r\n"],
    )


@pytest.mark.parametrize(
    "line", [b"FOO\r\n", b"\r\n", b" PING\r\n", b"MSG a 1 0\r\n", b"PUBx a 1\r\n", b"GET / HTTP/1.1\r\n", b"+KO\r\n"]
)
def test_unknown_operations_close(server: Server, peer: Peer, line: bytes) -> None:
    assert peer.ask(line) == [b"-ERR 'Unknown Protocol Operation'\r\n"] and peer.is_closed


@pytest.mark.parametrize(
    "line",
    [b"PUB a x\r\n", b"PUB a -1\r\n", b"PUB a\r\n", b"PUB\r\n", b"PUB a b c 1\r\nx\r\n", b"SUB a\r\n",
    b"SUB a b c d\r\n", b"SUB\r\n",
     b"UNSUB\r\n", b"UNSUB 1 2 3\r\n", b"HPUB a 5 3\r\nabc\r\n", b"HPUB a 5\r\n", b"HPUB a x 3\r\n", b"CONNECT {\r\n"],
)  # fmt: skip
def test_wrong_arguments_close_without_a_word(server: Server, peer: Peer, line: bytes) -> None:
    said = peer.ask(line)
    assert peer.is_closed and said in ([], [b"-ERR 'Unknown Protocol Operation'\r\n"])
    closed_silently = not line.startswith((b"PUB\r", b"SUB\r", b"UNSUB\r"))
    assert (said == []) == closed_silently


def test_a_payload_of_another_length_closes(server: Server, peer: Peer) -> None:
    assert peer.ask(b"PUB a 2\r\nabc\r\n") == [b"-ERR 'Unknown Protocol Operation'\r\n"] and peer.is_closed


def test_verbs_in_any_case_and_spacing(server: Server, peer: Peer, name: str) -> None:
    subject = name.encode()
    peer.ask(b"sub\t%s \t 1 \r\n" % subject)
    assert peer.ask(b"pUb  %s \t 2\r\nhi\r\n" % subject) == [b"MSG %s 1 2\r\nhi\r\n" % subject]


def test_a_message_in_many_small_pieces(server: Server, peer: Peer, name: str) -> None:
    peer.subscribe(name)
    for byte in f"PUB {name} reply 5\r\nhello\r\n".encode():
        peer.send(bytes([byte]))
    assert peer.ask() == [f"MSG {name} 1 reply 5\r\nhello\r\n".encode()]


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 65535, 65536, 300_000, 1_048_576])
def test_payloads_of_any_size(server: Server, peer: Peer, name: str, size: int) -> None:
    peer.subscribe(name)
    payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    peer.publish(name, payload)
    assert peer.message().payload == payload


def test_headers_arrive_as_they_were_sent(server: Server, peer: Peer, name: str) -> None:
    block = b"NATS/1.0 777 Odd\r\nb:  2 \r\nB: 1\r\nb: 3\r\nnothing\r\n\r\n"
    peer.subscribe(name)
    peer.publish(name, b"body", block, "reply.to")
    answer = peer.message()
    assert (answer.headers, answer.payload, answer.reply) == (block, b"body", "reply.to")


def test_a_repeated_sid_is_ignored(server: Server, peer: Peer, name: str) -> None:
    answer = peer.ask(f"SUB {name}.a 1\r\nSUB {name}.b 1\r\nPUB {name}.a 0\r\n\r\nPUB {name}.b 0\r\n\r\n".encode())
    assert answer == [f"MSG {name}.a 1 0\r\n\r\n".encode()]


def test_unsub_of_an_unknown_sid(server: Server, peer: Peer) -> None:
    assert peer.ask(b"UNSUB 77\r\nUNSUB 78 5\r\n") == []


def test_auto_unsubscribe_counts_from_the_beginning(server: Server, peer: Peer, name: str) -> None:
    publish = f"PUB {name} 0\r\n\r\n".encode()
    got = f"MSG {name} 1 0\r\n\r\n".encode()
    assert peer.ask(f"SUB {name} 1\r\n".encode() + publish * 2) == [got] * 2
    assert peer.ask(b"UNSUB 1 3\r\n" + publish * 4) == [got]
    assert peer.ask(publish) == []


def test_auto_unsubscribe_that_is_already_reached(server: Server, peer: Peer, name: str) -> None:
    publish = f"PUB {name} 0\r\n\r\n".encode()
    assert len(peer.ask(f"SUB {name} 1\r\n".encode() + publish * 3)) == 3
    assert peer.ask(b"UNSUB 1 2\r\n" + publish) == []


def test_auto_unsubscribe_can_be_raised(server: Server, peer: Peer, name: str) -> None:
    publish = f"PUB {name} 0\r\n\r\n".encode()
    peer.ask(f"SUB {name} 1\r\nUNSUB 1 1\r\nUNSUB 1 3\r\n".encode())
    assert len(peer.ask(publish * 5)) == 3


def test_a_sid_can_be_used_again(server: Server, peer: Peer, name: str) -> None:
    peer.ask(f"SUB {name}.a 1\r\nUNSUB 1\r\nSUB {name}.b 1\r\n".encode())
    assert peer.ask(f"PUB {name}.a 0\r\n\r\nPUB {name}.b 0\r\n\r\n".encode()) == [f"MSG {name}.b 1 0\r\n\r\n".encode()]


def test_sids_are_any_text(server: Server, peer: Peer, name: str) -> None:
    assert peer.ask(f"SUB {name} a-b:c/é\r\nPUB {name} 0\r\n\r\n".encode()) == [
        f"MSG {name} a-b:c/é 0\r\n\r\n".encode()
    ]


def test_each_matching_subscription_gets_the_message(server: Server, peer: Peer, name: str) -> None:
    peer.ask(f"SUB {name}.a 1\r\nSUB {name}.* 2\r\nSUB {name}.> 3\r\nSUB {name}.a 4\r\n".encode())
    answer = peer.ask(f"PUB {name}.a 0\r\n\r\n".encode())
    assert sorted(parse_msg(frame).sid for frame in answer) == ["1", "2", "3", "4"]


def test_one_member_of_a_queue_group_gets_the_message(server: Server, peer: Peer, name: str) -> None:
    peer.ask(
        f"SUB {name}.a q 1\r\nSUB {name}.* q 2\r\nSUB {name}.a q 3\r\n"
        f"SUB {name}.a other 4\r\nSUB {name}.a 5\r\n".encode()
    )
    answer = peer.ask(f"PUB {name}.a 0\r\n\r\n".encode() * 300)
    sids = [parse_msg(frame).sid for frame in answer]
    assert len(sids) == 900 and sids.count("4") == 300 and sids.count("5") == 300
    assert all(sids.count(sid) > 30 for sid in "123")


def test_a_queue_group_spreads_over_connections(server: Server, name: str) -> None:
    with Peer(server) as publisher, Peer(server) as one, Peer(server) as two:
        one.subscribe(name, queue="q")
        two.subscribe(name, queue="q")
        publisher.ask(f"PUB {name} 0\r\n\r\n".encode() * 400)
        counts = [len(member.ask()) for member in (one, two)]
        assert sum(counts) == 400 and min(counts) > 50
        two.ask(b"UNSUB 1\r\n")
        publisher.ask(f"PUB {name} 0\r\n\r\n".encode() * 10)
        assert len(one.ask()) == 10


def test_messages_of_one_publisher_stay_in_order(server: Server, name: str) -> None:
    with Peer(server) as publisher, Peer(server) as listener:
        listener.subscribe(f"{name}.*")
        publisher.send(b"".join(f"PUB {name}.{n % 7} {len(str(n))}\r\n{n}\r\n".encode() for n in range(5000)))
        assert [int(listener.message().payload) for _ in range(5000)] == list(range(5000))


def test_pong_is_a_barrier(server: Server, name: str) -> None:
    with Peer(server) as listener, Peer(server) as publisher:
        listener.subscribe(name)
        publisher.ask(f"PUB {name} 2\r\nhi\r\n".encode())
        assert listener.ask() == [f"MSG {name} 1 2\r\nhi\r\n".encode()]


def test_a_publish_to_wildcards_is_literal_text(server: Server, peer: Peer, name: str) -> None:
    peer.ask(f"SUB {name}.* 1\r\nSUB {name}.a 2\r\n".encode())
    assert peer.ask(f"PUB {name}.* 0\r\n\r\n".encode()) == [f"MSG {name}.* 1 0\r\n\r\n".encode()]


def test_a_request_across_connections(server: Server, peer: Peer, name: str) -> None:
    with Peer(server) as responder:
        responder.subscribe(f"{name}.service")
        peer.subscribe("_INBOX.across.*", "in")
        peer.publish(f"{name}.service", b"question", reply="_INBOX.across.1")
        asked = responder.message()
        responder.publish(asked.reply, b"answer to " + asked.payload)
        assert peer.message() == ("_INBOX.across.1", "in", "", b"", b"answer to question")


def test_a_thousand_idle_connections_disturb_nobody(server: Server, peer: Peer, name: str) -> None:
    idle = [Peer(server) for _ in range(1000)]
    try:
        peer.subscribe(name)
        assert len(peer.ask(f"PUB {name} 0\r\n\r\n".encode() * 100)) == 100
        assert all(client.ask() == [] for client in idle[::100])
    finally:
        for client in idle:
            client.socket.close()


def test_connections_that_send_half_a_message_disturb_nobody(server: Server, peer: Peer, name: str) -> None:
    halves = [Peer(server) for _ in range(50)]
    for half in halves:
        half.send(f"PUB {name} 1000000\r\n".encode() + b"x" * 1000)
    peer.subscribe(name)
    for half in halves:
        half.socket.close()
    assert peer.ask(f"PUB {name} 2\r\nhi\r\n".encode()) == [f"MSG {name} 1 2\r\nhi\r\n".encode()]


def test_user_info(server: Server, peer: Peer) -> None:
    answer = peer.request("$SYS.REQ.USER.INFO").json
    assert answer["server"]["name"] == "compat" and answer["server"]["id"] == peer.info["server_id"]
    assert answer["data"]["account"] == "$G"
