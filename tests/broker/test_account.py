"""Accounts: routes, captures, replies and watches."""

from __future__ import annotations

from array import array

from jetlake.broker.account import Account
from jetlake.broker.peer import Peer
from jetlake.broker.subscription import Buffer, Msg, read_msg
from tests.broker.sessions import FakeConnection, connect, make_broker


class Tape:
    """A capture that keeps everything."""

    def __init__(self, *patterns: bytes) -> None:
        self.patterns = patterns
        self.messages: list[Msg] = []
        self.runs: list[int] = []

    def ingest(self, client: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        self.runs.append(stop - first)
        self.messages += [read_msg(data, ops, number, client) for number in range(first, stop)]

    def ingest_msg(self, msg: Msg) -> None:
        self.messages.append(msg)

    def subjects(self) -> list[bytes]:
        return [msg.subject for msg in self.messages]


def setup() -> tuple[Account, FakeConnection]:
    broker = make_broker()
    return broker.default_account, connect(broker)


def test_a_stream_gets_publishes_in_runs() -> None:
    account, client = setup()
    tape = Tape(b"a.*")
    account.add_capture(tape)
    client.say(b"PUB a.1 0\r\n\r\nPUB a.2 0\r\n\r\nPUB b 0\r\n\r\nPUB a.3 0\r\n\r\n")
    assert tape.subjects() == [b"a.1", b"a.2", b"a.3"] and tape.runs == [2, 1]


def test_a_subscriber_and_a_stream_both_get_a_message() -> None:
    account, client = setup()
    tape = Tape(b"a.*")
    account.add_capture(tape)
    assert client.say(b"SUB a.1 1\r\nPUB a.1 0\r\n\r\nPUB a.2 0\r\n\r\n") == b"MSG a.1 1 0\r\n\r\n"
    assert tape.subjects() == [b"a.1", b"a.2"]


def test_routes_follow_what_comes_and_goes() -> None:
    account, client = setup()
    tape = Tape(b"a")
    client.say(b"PUB a 0\r\n\r\n")
    account.add_capture(tape)
    client.say(b"PUB a 0\r\n\r\n")
    assert client.say(b"SUB a 1\r\nPUB a 0\r\n\r\n") == b"MSG a 1 0\r\n\r\n"
    account.remove_capture(tape)
    assert client.say(b"UNSUB 1\r\nPUB a 0\r\n\r\n") == b""
    assert len(tape.messages) == 2


def test_a_handler_may_change_routes_in_the_middle_of_a_batch() -> None:
    account, client = setup()
    tape = Tape(b"a")
    account.subscribe(b"start", lambda msg: account.add_capture(tape))
    client.say(b"PUB a 0\r\n\r\nPUB start 0\r\n\r\nPUB a 0\r\n\r\n")
    assert len(tape.messages) == 1


def test_send_reaches_subscribers_and_streams() -> None:
    account, client = setup()
    tape = Tape(b"a")
    account.add_capture(tape)
    client.say(b"SUB a 1\r\nSUB other 2\r\n")
    assert account.send(b"a", b"x", reply=b"r")
    assert client.heard() == b"MSG a 1 r 1\r\nx\r\n" and len(tape.messages) == 1
    assert account.send(b"a", b"x", via=b"other")
    assert client.heard() == b"MSG a 2 1\r\nx\r\n" and len(tape.messages) == 1
    assert not account.send(b"nobody")


def test_replies_below_an_inbox_have_one_target() -> None:
    account, client = setup()
    client.say(b"SUB in.x.* 3\r\n")
    target = account.reply_target(b"in.x.1")
    assert target is not None and (target.prefix, target.may_have_dots, target.sid) == (b"in.x.", False, b"3")


def test_a_reply_that_others_may_hear_has_no_route() -> None:
    account, client = setup()
    client.say(b"SUB in.x.* 3\r\nSUB in.x.7 4\r\n")
    assert account.reply_target(b"in.x.1") is None
    client.say(b"UNSUB 4\r\n")
    assert account.reply_target(b"in.x.1") is not None
    account.add_capture(Tape(b"in.>"))
    assert account.reply_target(b"in.x.1") is None


def test_a_reply_target_ends_with_its_subscription() -> None:
    account, client = setup()
    client.say(b"SUB in.x.* 3\r\n")
    assert account.last_reply is None
    assert account.reply_target(b"in.x.1") is account.last_reply is not None
    client.say(b"UNSUB 3 10\r\n")
    assert account.last_reply is None and account.reply_target(b"in.x.1") is None
    client.say(b"SUB in.y.* 4\r\n")
    assert account.reply_target(b"in.y.1") is account.last_reply is not None
    account.add_capture(Tape(b"in.>"))
    assert account.last_reply is None


def test_a_watch_is_called_when_its_subject_is_touched() -> None:
    account, client = setup()
    calls: list[bool] = []
    watch = account.watch(b"d.1", lambda: calls.append(account.has_interest(b"d.1")))
    client.say(b"SUB d.* 1\r\nSUB e 2\r\nSUB d.2 3\r\n")
    assert calls == [True]
    client.client.close("gone")
    assert calls == [True, False]
    account.unwatch(watch)
    account.subscribe(b"d.1", lambda msg: None)
    assert len(calls) == 2


def test_the_target_of_a_delivery_is_a_single_subscription() -> None:
    account, client = setup()
    client.say(b"SUB d 1\r\n")
    target = account.target(b"d")
    assert target is not None and target.sid == b"1"
    client.say(b"SUB d 2\r\n")
    assert account.target(b"d") is None
    client.say(b"SUB e g 3\r\n")
    target = account.target(b"e", b"g")
    assert target is not None and target.sid == b"3" and account.target(b"e") is None


def test_acks_reach_the_consumer_they_name() -> None:
    account, client = setup()
    heard: list[bytes] = []
    account.subscribe(b"$JS.ACK.S.C.>", lambda msg: heard.append(msg.subject))
    client.say(b"SUB in 1\r\n")
    answer = client.say(b"PUB $JS.ACK.S.C.1 0\r\n\r\nPUB $JS.ACK.S.C.2 0\r\n\r\nPUB $JS.ACK.S.D.3 in 0\r\n\r\n")
    assert heard == [b"$JS.ACK.S.C.1", b"$JS.ACK.S.C.2"] and answer.startswith(b"HMSG in 1")


def test_many_subscriptions_still_route_right() -> None:
    account, client = setup()
    tape = Tape(b"s.*")
    account.add_capture(tape)
    client.say(b"".join(b"SUB x.%d %d\r\n" % (number, number) for number in range(400)))
    assert client.say(b"PUB x.7 0\r\n\r\nPUB s.1 0\r\n\r\nPUB y 0\r\n\r\n") == b"MSG x.7 7 0\r\n\r\n"
    assert tape.subjects() == [b"s.1"]


class Torn(Tape):
    """A capture that fails at every other run."""

    def ingest(self, client: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        super().ingest(client, data, ops, first, stop)
        if len(self.runs) % 2:
            raise OverflowError("torn")


def test_what_the_servers_own_code_raises_ends_with_the_message_it_came_with() -> None:
    broker = make_broker()
    account, client = broker.default_account, connect(broker)
    failures: list[str] = []
    broker.failed = lambda what, error: failures.append(f"{what}: {error}")
    tape, heard = Torn(b"a.*"), list[bytes]()
    account.add_capture(tape)
    account.subscribe(b"bad", lambda msg: bool(1 // 0))
    account.subscribe(b"$JS.ACK.S.C.>", lambda msg: heard.append(msg.subject))
    account.subscribe(b"$JS.ACK.S.B.>", lambda msg: bool(1 // 0))
    client.say(b"SUB in 1\r\nSUB a.* 2\r\n")
    said = client.say(
        b"PUB a.1 0\r\n\r\nPUB bad in 0\r\n\r\nPUB a.2 0\r\n\r\n"
        b"PUB $JS.ACK.S.B.1 0\r\n\r\nPUB $JS.ACK.S.C.1 0\r\n\r\nPING\r\n"
    )
    assert said.startswith(b"HMSG in 1 38 38\r\nNATS/1.0 500 Internal Server Error\r\n")
    assert said.endswith(b"MSG a.2 2 0\r\n\r\nPONG\r\n") and not client.is_closed
    assert tape.subjects() == [b"a.1", b"a.2"] and heard == [b"$JS.ACK.S.C.1"]
    assert failures == [
        "publish subject=a.1 count=1: torn",
        "message subject=bad: integer division or modulo by zero",
        "message subject=$JS.ACK.S.B.1: integer division or modulo by zero",
    ]


def test_each_stream_gets_its_publishes_of_a_batch_at_once_and_in_order() -> None:
    account, client = setup()
    tapes = [Tape(b"a.*"), Tape(b"b.*")]
    for tape in tapes:
        account.add_capture(tape)
    client.say(b"PUB a.1 0\r\n\r\nPUB b.1 0\r\n\r\nPUB a.2 0\r\n\r\nPUB b.2 0\r\n\r\nPUB a.3 0\r\n\r\n")
    assert [tape.subjects() for tape in tapes] == [[b"a.1", b"a.2", b"a.3"], [b"b.1", b"b.2"]]
    assert [tape.runs for tape in tapes] == [[3], [2]]


def test_what_a_subscriber_gets_is_not_overtaken_by_what_goes_to_streams() -> None:
    account, client = setup()
    tapes, seen = [Tape(b"a.*"), Tape(b"b.*")], list[list[bytes]]()
    for tape in tapes:
        account.add_capture(tape)
    account.subscribe(b"look", lambda msg: seen.append([subject for tape in tapes for subject in tape.subjects()]))
    client.say(b"PUB a.1 0\r\n\r\nPUB b.1 0\r\n\r\nPUB look 0\r\n\r\nPUB b.2 0\r\n\r\nPUB a.2 0\r\n\r\n")
    assert seen == [[b"a.1", b"b.1"]]
    assert [tape.subjects() for tape in tapes] == [[b"a.1", b"a.2"], [b"b.1", b"b.2"]]


def test_subscriptions_of_a_client_get_messages_in_the_order_of_their_publishes() -> None:
    account, client = setup()
    account.add_capture(Tape(b"a.*"))
    account.add_capture(Tape(b"b.*"))
    frames = client.say(
        b"SUB a.seen 1\r\nSUB b.seen 2\r\n"
        b"PUB b.seen 1\r\n1\r\nPUB a.1 0\r\n\r\nPUB b.1 0\r\n\r\nPUB a.seen 1\r\n2\r\nPUB b.seen 1\r\n3\r\n"
    )
    assert frames == b"MSG b.seen 2 1\r\n1\r\nMSG a.seen 1 1\r\n2\r\nMSG b.seen 2 1\r\n3\r\n"
