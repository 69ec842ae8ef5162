"""A client's side of the conversation, without sockets. What nats-server says too is in tests/compat."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jetlake.broker.client import SUBS_AT_ONCE
from jetlake.broker.endpoint import Endpoint
from tests.broker.sessions import QUIET, FakeConnection, connect, make_broker

PLAIN = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


def test_a_message_reaches_whoever_subscribed() -> None:
    broker = make_broker()
    ann, bob = connect(broker), connect(broker)
    ann.say(b"SUB a.* 1\r\n")
    assert bob.say(b"PUB a.b 2\r\nhi\r\nPUB b 1\r\nx\r\n") == b""
    assert ann.heard() == b"MSG a.b 1 2\r\nhi\r\n"


def test_headers_reach_only_clients_that_take_them() -> None:
    broker = make_broker()
    ann, bob = connect(broker), connect(broker, PLAIN)
    for client in (ann, bob):
        client.say(b"SUB a 1\r\n")
    ann.say(b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert bob.heard() == b"MSG a 1 2\r\nhi\r\n"


def test_verbose_is_told_before_its_own_message_comes() -> None:
    client = connect(make_broker(), b'CONNECT {"pedantic":false}\r\n')
    assert client.say(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"+OK\r\n+OK\r\nMSG a 1 1\r\nx\r\n"


def test_without_echo_a_client_does_not_hear_itself() -> None:
    broker = make_broker()
    client = connect(broker, b'CONNECT {"verbose":false,"pedantic":false,"echo":false}\r\n')
    other = connect(broker)
    other.say(b"SUB a 1\r\n")
    assert client.say(b"SUB a 1\r\nPUB a 0\r\n\r\n") == b""
    assert other.heard() == b"MSG a 1 0\r\n\r\n"


def test_one_of_a_queue_group_gets_a_message() -> None:
    broker = make_broker()
    workers = [connect(broker) for _ in range(3)]
    for worker in workers:
        worker.say(b"SUB work pool 1\r\n")
    boss = connect(broker)
    boss.say(b"PUB work 0\r\n\r\n" * 300)
    counts = [worker.heard().count(b"MSG") for worker in workers]
    assert sum(counts) == 300 and min(counts) > 40


def test_a_subscription_ends_after_its_messages() -> None:
    broker = make_broker()
    client = connect(broker)
    client.say(b"SUB a 1\r\nUNSUB 1 3\r\n")
    assert client.say(b"PUB a 0\r\n\r\n" * 5).count(b"MSG") == 3
    assert not client.client.subs and not broker.default_account.sublist.count


def test_unsub_counts_what_was_delivered_before() -> None:
    client = connect(make_broker())
    client.say(b"SUB a 1\r\n")
    client.say(b"PUB a 0\r\n\r\n" * 2)
    assert client.say(b"UNSUB 1 2\r\nPUB a 0\r\n\r\n") == b""


def test_a_request_that_nobody_hears_is_answered_with_503() -> None:
    client = connect(make_broker())
    answer = client.say(b"SUB in.* 4\r\nPUB ask in.1 0\r\n\r\nPUB ask 0\r\n\r\n")
    assert answer == b"HMSG in.1 4 35 35\r\nNATS/1.0 503\r\nNats-Subject: ask\r\n\r\n\r\n"


def test_a_client_that_leaves_takes_its_subscriptions_along() -> None:
    broker = make_broker()
    ann, bob = connect(broker), connect(broker)
    ann.say(b"SUB a 1\r\n")
    ann.client.close("gone")
    bob.say(b"PUB a 0\r\n\r\n")
    assert ann.heard() == b"" and not broker.default_account.sublist.count
    assert list(broker.clients) == [bob.client.cid]


def subscribe_many(client: FakeConnection) -> None:
    client.say(b"".join(b"SUB many.%d %d\r\n" % (number, number) for number in range(3 * SUBS_AT_ONCE)))


def test_nobody_hears_by_subscriptions_of_a_closed_client_that_are_still_in_the_index() -> None:
    broker, later = make_broker(), list[Callable[[], None]]()
    broker.call_soon = later.append
    ann, bob, eve = connect(broker), connect(broker), connect(broker)
    subscribe_many(ann)
    ann.say(b"SUB work pool a\r\nSUB alone b\r\n")
    bob.say(b"SUB work pool 1\r\nSUB in.* 2\r\n")
    account, seen = broker.default_account, list[bool]()
    account.watch(b"alone", lambda: seen.append(account.has_interest(b"alone")))
    ann.client.close("gone")
    assert seen == [False] and account.target(b"alone") is None and account.sublist.count > SUBS_AT_ONCE
    eve.say(b"PUB work 0\r\n\r\n" * 50 + b"PUB work 0\r\n\r\n")
    assert bob.heard().count(b"MSG work") == 51
    assert b"503" in bob.say(b"PUB alone in.1 0\r\n\r\n")
    while later:
        later.pop(0)()
    assert account.sublist.count == 2 and list(bob.client.subs) == [b"1", b"2"]


def test_a_second_login_forgets_many_subscriptions_before_it_goes_on() -> None:
    broker = make_broker()
    client = connect(broker)
    subscribe_many(client)
    client.say(QUIET + b"PING\r\n")
    assert client.client.is_checking and client.login is not None
    while client.client.forget_some():
        pass
    assert not broker.default_account.sublist.count


def test_a_message_may_come_byte_by_byte() -> None:
    broker = make_broker()
    client = connect(broker)
    client.say(b"SUB a 1\r\n")
    text, rest = b"PUB a 5\r\nhello\r\nPING\r\n", bytearray()
    for byte in text:
        rest.append(byte)
        del rest[: client.client.receive(rest, 0, len(rest))]
    assert client.heard() == b"MSG a 1 5\r\nhello\r\nPONG\r\n"


def test_a_client_that_takes_nothing_is_cut_off() -> None:
    broker = make_broker("max_pending: 1000, max_payload: 100")
    slow, fast = connect(broker), connect(broker)
    slow.say(b"SUB a 1\r\n")
    slow.pending = 600
    fast.say(b"PUB a 10\r\n0123456789\r\n")
    assert fast.stalls == 1 and not slow.is_closed
    slow.pending = 1000
    fast.say(b"PUB a 10\r\n0123456789\r\n")
    assert slow.is_closed and broker.slow_consumers == 1
    assert slow.client.cid not in broker.clients


def test_publishing_needs_permission() -> None:
    client = connect(
        make_broker('authorization { users: [{user: u, password: p, permissions: {publish: "a.>", subscribe: "b"}}] }'),
        b'CONNECT {"verbose":false,"pedantic":false,"user":"u","pass":"p"}\r\n',
    )
    assert client.say(b"PUB a.1 0\r\n\r\n") == b""
    assert client.say(b"PUB c 0\r\n\r\n") == b"-ERR 'Permissions Violation for Publish to \"c\"'\r\n"
    assert client.say(b"SUB c 1\r\n") == b"-ERR 'Permissions Violation for Subscription to \"c\"'\r\n"
    assert not client.is_closed


def test_a_wrong_password_closes() -> None:
    broker = make_broker("authorization { user: u, password: p }")
    client = FakeConnection()
    client.client = broker.connect(client, Endpoint("127.0.0.1", 1))
    assert client.say(b'CONNECT {"user":"u","pass":"x"}\r\n') == b"-ERR 'Authorization Violation'\r\n"
    assert client.is_closed and broker.auth_errors == 1


def test_before_the_login_nothing_else_is_heard() -> None:
    broker = make_broker("authorization { user: u, password: p }")
    client = FakeConnection()
    client.client = broker.connect(client, Endpoint("127.0.0.1", 1))
    assert client.say(b"PUB a 0\r\n\r\n") == b"-ERR 'Authorization Violation'\r\n"
    assert client.is_closed


def test_a_slow_password_is_checked_elsewhere() -> None:
    secret = "$2a$04$FG0PWqYxOB7XDmOdcYGd0e6qMdwvRk9RDhcdfsG5lnClUHc3A9WHi"
    broker = make_broker(f'authorization {{ user: u, password: "{secret}" }}')
    client = connect(broker, b'CONNECT {"user":"u","pass":"x"}\r\nPING\r\n')
    assert client.login is not None and client.client.is_checking
    client.client.finish_login(None)
    assert client.heard() == b"-ERR 'Authorization Violation'\r\n" and client.is_closed


def test_accounts_do_not_hear_each_other() -> None:
    broker = make_broker("accounts { A { users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }")
    ann, bob = (
        connect(broker, b'CONNECT {"verbose":false,"pedantic":false,"user":"%s","pass":"%s"}\r\n' % (name, name))
        for name in (b"a", b"b")
    )
    ann.say(b"SUB > 1\r\n")
    bob.say(b"PUB x 0\r\n\r\n")
    assert ann.heard() == b""
    assert ann.client.account.name == "A" and bob.client.account.name == "B"


@pytest.mark.parametrize("protocol", [0, 1])
def test_the_second_info_comes_with_the_first_ping(protocol: int) -> None:
    client = connect(make_broker(), b'CONNECT {"verbose":false,"protocol":%d}\r\n' % protocol)
    first, second = client.say(b"PING\r\n"), client.say(b"PING\r\n")
    assert first.startswith(b"PONG\r\n") and (b'"connect_info":true' in first) == bool(protocol)
    assert second == b"PONG\r\n"


def test_connect_is_quiet_when_told_so() -> None:
    broker = make_broker()
    client = FakeConnection()
    client.client = broker.connect(client, Endpoint("127.0.0.1", 1))
    assert client.say(QUIET) == b""
