"""Imports: what they cost, what they forget, and what follows them when they change."""

from __future__ import annotations

import pytest

from jetlake.broker import imports
from jetlake.broker.broker import Broker
from jetlake.clock import SECOND_NS
from jetlake.config import load_text
from jetlake.testing.clock import FakeClock
from tests.broker.sessions import FakeConnection, connect, make_broker
from tests.broker.test_account import Tape

CONFIG = """
accounts {
  A { users: [{user: a, password: p}]
      exports: [{stream: "ev.>"}, {service: once}, {service: often, response_type: stream}] }
  B { users: [{user: b, password: p}]
      imports: [{stream: {account: A, subject: "ev.>"}, to: "far.>"}
                {service: {account: A, subject: once}}, {service: {account: A, subject: often}}] }
}
"""


def login(broker: Broker, user: str) -> FakeConnection:
    options = f'{{"verbose":false,"headers":true,"no_responders":true,"user":"{user}","pass":"p"}}'
    return connect(broker, f"CONNECT {options}\r\n".encode())


def both(broker: Broker) -> tuple[FakeConnection, FakeConnection]:
    return login(broker, "a"), login(broker, "b")


def reply_of(frame: bytes) -> bytes:
    return frame.split(b" ")[3]


def open_count(broker: Broker) -> int:
    maps = [sub for sub in broker.account("A").sublist if isinstance(sub, imports.ReplyMap)]
    return sum(len(found._open) for found in maps)


def test_replies_are_forgotten_when_answered_or_unheard() -> None:
    broker = make_broker(CONFIG)
    a, b = both(broker)
    b.say(b"SUB in 1\r\nPUB once in 0\r\n\r\n")
    assert open_count(broker) == 0, "nobody was there to answer"
    a.say(b"SUB once 1\r\nSUB often 2\r\n")
    b.say(b"PUB once in 0\r\n\r\nPUB often in 0\r\n\r\n")
    once, often = (reply_of(frame) for frame in a.heard().split(b"HMSG")[1:])
    a.say(b"PUB %s 1\r\nx\r\nPUB %s 1\r\nx\r\n" % (once, often))
    assert b.heard() == b"MSG in 1 1\r\nx\r\n" * 2 and open_count(broker) == 1
    b.say(b"UNSUB 1\r\n")
    a.say(b"PUB %s 1\r\nx\r\n" % often)
    assert open_count(broker) == 0


def test_replies_that_never_come_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "OPEN_MAX", 100)
    broker = make_broker(CONFIG)
    a, b = both(broker)
    a.say(b"SUB often 1\r\n")
    b.say(b"SUB in 1\r\n" + b"PUB often in 0\r\n\r\n")
    lively = reply_of(a.heard())
    for _ in range(300):
        b.say(b"PUB often in 0\r\n\r\n")
        a.say(b"PUB %s 1\r\nx\r\n" % lively)
        assert b.heard() == b"MSG in 1 1\r\nx\r\n", "who speaks is not forgotten"
    assert open_count(broker) == 100


def test_singletons_are_forgotten_in_time() -> None:
    broker = make_broker(CONFIG)
    clock = broker.clock
    assert isinstance(clock, FakeClock)
    a, b = both(broker)
    a.say(b"SUB once 1\r\n")
    b.say(b"SUB in 1\r\n" + b"PUB once in 0\r\n\r\n" * 10)
    late = reply_of(a.heard())
    clock.advance(121 * SECOND_NS)
    a.say(b"PUB %s 1\r\nx\r\n" % late)
    assert b.heard() == b""
    b.say(b"PUB once in 0\r\n\r\n")
    assert open_count(broker) == 1, "the others go when a new one comes"


def test_hidden_subscriptions_come_and_go_with_their_subscriptions() -> None:
    broker = make_broker(CONFIG)
    account = broker.account("A")
    b = login(broker, "b")
    before = account.sublist.count
    b.say(b"SUB far.> 1\r\nSUB far.x 2\r\nSUB near 3\r\nSUB > 4\r\n")
    assert account.sublist.count == before + 3 and account.has_interest(b"ev.x") and not account.has_interest(b"x")
    b.say(b"UNSUB 1\r\n")
    b.client.close("gone")
    assert account.sublist.count == before and not account.has_interest(b"ev.x")
    assert not broker.account("B")._hidden


def test_a_stream_of_the_importer_keeps_what_it_imports() -> None:
    broker = make_broker(CONFIG)
    a, _ = both(broker)
    tape = Tape(b"far.*")
    broker.account("B").add_capture(tape)
    a.say(b"PUB ev.x 1\r\n1\r\nPUB ev.x.y 0\r\n\r\n")
    broker.account("B").remove_capture(tape)
    a.say(b"PUB ev.x 1\r\n2\r\n")
    assert [(msg.subject, msg.payload) for msg in tape.messages] == [(b"far.x", b"1")]


def test_subscriptions_and_streams_follow_new_imports() -> None:
    broker = make_broker(CONFIG)
    a, b = both(broker)
    tape = Tape(b"new.*")
    broker.account("B").add_capture(tape)
    b.say(b"SUB far.x 1\r\nSUB new.x 2\r\n")
    broker.use_options(load_text(CONFIG.replace("far.>", "new.>")))
    a.say(b"PUB ev.x 0\r\n\r\n")
    assert b.heard() == b"MSG new.x 2 0\r\n\r\n" and tape.subjects() == [b"new.x"]
    broker.use_options(load_text("accounts { A { users: [{user: a, password: p}] } }"))
    a.say(b"PUB ev.x 0\r\n\r\nPUB once 0\r\n\r\n")
    assert b.heard() == b"" and tape.subjects() == [b"new.x"] and open_count(broker) == 0


def test_a_subscription_ends_with_its_last_message_wherever_that_came_from() -> None:
    broker = make_broker(CONFIG)
    a, b = both(broker)
    b.say(b"SUB far.x 1\r\nUNSUB 1 3\r\n")
    a.say(b"PUB ev.x 0\r\n\r\n")
    b.say(b"PUB far.x 0\r\n\r\n")
    a.say(b"PUB ev.x 0\r\n\r\n" * 3)
    assert b.heard().count(b"MSG") == 1 and not broker.account("A").has_interest(b"ev.x")
