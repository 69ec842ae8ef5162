"""Permissions: by themselves, and beside those of the real nats-server."""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.broker.permissions import (
    Permissions,
    ReplyPermits,
    ResponsePermission,
    publish_violation,
    reply_violation,
    subscribe_violation,
)
from jetlake.clock import SECOND_NS
from jetlake.errors import BadSubject
from jetlake.ops import OP_WORDS
from jetlake.subjects import is_subset, matches
from tests.broker.real_server import Client, real_server

USERS = {
    "lists": Permissions(
        publish_allow=["a.*", "b.>", "c", "*.pub"],
        publish_deny=["b.no", "b.x.*"],
        subscribe_allow=["foo.*", "bar.>", "q.> workers", "w.x v1.*", "w.y v2.>", "p", "p other", "_INBOX.>"],
        subscribe_deny=["foo.bar", "foo.q dq", "bar.*.no"],
    ),
    "denied": Permissions(subscribe_deny=["x.*", "z.b", "y.a dq", "h.> v.*", "k.>"], publish_deny=["no.>"]),
    "all": Permissions(publish_allow=[">"], subscribe_allow=[">"]),
    "none": Permissions(),
    "empty": Permissions(responses=ResponsePermission()),
    "answers": Permissions(publish_allow=["only"], responses=ResponsePermission(2, SECOND_NS // 2)),
    "answers_denied": Permissions(publish_deny=["zz"], responses=ResponsePermission(1)),
    "answers_always": Permissions(publish_deny=["zz"], responses=ResponsePermission(-1, -1)),
}

PUBLISHED = ["a.b", "a.*", "a.>", "a.b.c", "a", "b.no", "b.yes", "b.>", "b.x.y", "b.x.y.z", "b.x.>", "c", "c.pub"]
PUBLISHED += ["*.pub", "no.x", "no", "_INBOX.x", "a..b", "..", "b.é", "only", "zz", "other"]

SUBSCRIBED = ["foo.a", "foo.*", "foo.bar", "foo.*.x", "foo", ">", "*", "*.a", "*.>", "q.a", "q.>", "q.*", "q", "w.x"]
SUBSCRIBED += ["w.y", "p", "foo.>", "foo.q", "bar.a", "bar.>", "bar.*.no", "bar.a.no", "bar.*.*", "_INBOX.x.*", "x.*"]
SUBSCRIBED += ["x.>", "x.a", "x.a.b", "x", "*.b", "z.*", "z.b", "z.>", "y.a", "y.*", "h.>", "h.a", "h.*", "k", "k.>"]
SUBSCRIBED += ["k.a", "k.*.b"]
QUEUES = [None, "workers", "v1.2", "v1.*", "v2.2.3", "other", "dq", "v.1", ">"]


def config() -> str:
    """The users above, as nats-server's configuration (JSON is such a configuration)."""
    users = [{"user": "free", "password": "p"}]
    for name, rules in USERS.items():
        permissions: dict[str, object] = {
            "publish": {"allow": rules.publish_allow, "deny": rules.publish_deny},
            "subscribe": {"allow": rules.subscribe_allow, "deny": rules.subscribe_deny},
        }
        if rules.responses is not None:
            expires = f"{rules.responses.expires_ns}ns"
            permissions["allow_responses"] = {"max": rules.responses.max, "expires": expires}
        users.append({"user": name, "password": "p", "permissions": permissions})  # type: ignore[dict-item]
    return f"authorization: {json.dumps({'users': users})}"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with real_server(config()) as port:
        yield port


def client(port: int, name: str) -> Client:
    return Client(port, user=name, **{"pass": "p"})


def encoded(queue: str | None) -> bytes | None:
    return None if queue is None else queue.encode()


def errors(*texts: str) -> list[str]:
    return [f"-ERR '{text}'" for text in texts]


@pytest.mark.parametrize("name", USERS)
def test_nats_server_lets_the_same_be_published(port: int, name: str) -> None:
    with client(port, name) as connection:
        for subject in PUBLISHED:
            allowed = USERS[name].may_publish(subject.encode())
            expected = [] if allowed else errors(publish_violation(subject.encode()))
            assert connection.ask(f"PUB {subject} 0", "") == expected, subject


@pytest.mark.parametrize("name", USERS)
def test_nats_server_lets_the_same_be_subscribed_to(port: int, name: str) -> None:
    with client(port, name) as connection:
        for subject, queue in itertools.product(SUBSCRIBED, QUEUES):
            allowed = USERS[name].may_subscribe(subject.encode(), encoded(queue))
            expected = [] if allowed else errors(subscribe_violation(subject.encode(), encoded(queue)))
            found = connection.ask(f"SUB {subject} {queue or ''} 1", "UNSUB 1")
            # The one difference: nats-server takes `foo.>` for covered by `foo.*`.
            if name == "lists" and subject == "foo.>":
                continue
            assert found == expected, (subject, queue)


def test_nats_server_lets_more_than_was_allowed_be_received_where_we_do_not(port: int) -> None:
    with client(port, "lists") as connection, client(port, "free") as publisher:
        assert connection.ask("SUB foo.> 1") == [], "if this fails, nats-server was mended: compare all above"
        publisher.ask("PUB foo.a.b 0", "")
        assert connection.ask() == ["MSG foo.a.b 1 0", ""]
    assert not USERS["lists"].may_subscribe(b"foo.>")


@pytest.mark.parametrize(
    ("subject", "queue"), [(">", None), ("*.*", None), ("y.*", "dq"), ("y.*", "r"), ("*.a", "v.1")]
)
def test_nats_server_filters_the_same_deliveries(port: int, subject: str, queue: str | None) -> None:
    rules, published = USERS["denied"], ["x.a", "x.a.b", "z.b", "z.c", "y.a", "y.b", "h.a", "k.a", "free"]
    with client(port, "denied") as connection, client(port, "free") as publisher:
        assert connection.ask(f"SUB {subject} {queue or ''} 1") == []
        publisher.ask(*(line for name in published for line in (f"PUB {name} 0", "")))
        received = [line.split()[1] for line in connection.ask() if line]
    expected = [name for name in published if matches(subject, name)]
    assert received == [name for name in expected if rules.may_deliver(name.encode(), encoded(queue))]
    assert rules.filters(subject.encode())


# Which requests arrive (r: with reply `reply`, z: with reply `zz`, which some deny) and answers go out (R, Z).
@pytest.mark.parametrize("script", ["R", "rRRRR", "rrRRRR", "rrrRRRR", "rRrRRRR", "zZZZ", "zrZRZR", "rRRRrRRR"])
@pytest.mark.parametrize("name", ["empty", "answers", "answers_denied", "answers_always"])
def test_nats_server_lets_the_same_be_answered(port: int, name: str, script: str) -> None:
    permits = ReplyPermits(USERS[name])
    with client(port, name) as connection, client(port, "free") as publisher:
        connection.ask("SUB svc 1")
        for step, letter in enumerate(script):
            reply = {"r": "reply", "z": "zz"}[letter.lower()]
            if letter.islower():
                publisher.ask(f"PUB svc {reply} 0", "")
                connection.ask()
                permits.delivered(reply.encode(), 0)
                continue
            allowed = permits.may_publish(reply.encode(), 0)
            expected = [] if allowed else errors(publish_violation(reply.encode()))
            assert connection.ask(f"PUB {reply} 0", "") == expected, step


@pytest.mark.parametrize("subject", ['a"b', "a\\b", "a\x01\x7f\x0b", "é\u200b\U000e0001\u00a0", "日本"])
def test_nats_server_quotes_the_same(port: int, subject: str) -> None:
    with client(port, "answers") as connection:
        found = connection.ask(f"PUB {subject} 0", "", f"PUB only _R_.{subject} 0", "")
    with client(port, "lists") as connection:
        found += connection.ask(f"SUB {subject} q{subject} 1")
    raw = subject.encode()
    expected = [publish_violation(raw), reply_violation(b"_R_." + raw), subscribe_violation(raw, b"q" + raw)]
    assert found == errors(*expected)


def test_texts_quote_bytes_that_are_not_utf8() -> None:
    assert publish_violation(b"a\xff") == 'Permissions Violation for Publish to "a\\xff"'


def test_a_permit_ends() -> None:
    permits = ReplyPermits(Permissions(responses=ResponsePermission(max=5, expires_ns=100)))
    permits.delivered(b"r", 1000)
    assert permits.may_publish(b"r", 1100)
    assert not permits.may_publish(b"r", 1101)
    assert len(permits) == 0


def test_old_permits_make_room() -> None:
    permits = ReplyPermits(Permissions(responses=ResponsePermission(max=-1, expires_ns=-1)), count_max=10)
    for number in range(100):
        permits.delivered(b"r%d" % number, number)
    assert len(permits) == 10
    assert permits.may_publish(b"r99", 200) and not permits.may_publish(b"r89", 200)


def test_expired_permits_are_dropped_as_new_ones_come() -> None:
    permits = ReplyPermits(Permissions(responses=ResponsePermission(max=1, expires_ns=10)))
    for number in range(1000):
        permits.delivered(b"r%d" % number, number * 2)
    assert len(permits) <= 6


def test_no_permit_is_kept_for_what_is_allowed_anyway() -> None:
    permits = ReplyPermits(Permissions(publish_allow=["_INBOX.>"], responses=ResponsePermission()))
    permits.delivered(b"_INBOX.x", 0)
    assert len(permits) == 0 and permits.may_publish(b"_INBOX.x", 0)
    without = ReplyPermits(Permissions(publish_allow=["a"]))
    without.delivered(b"r", 0)
    assert len(without) == 0 and not without.may_publish(b"r", 0)


@pytest.mark.parametrize("entry", ["", " ", "a..b", "a b c", ">.a", "a >.b", "a.> b..c"])
def test_a_bad_subscribe_entry_is_refused(entry: str) -> None:
    with pytest.raises(BadSubject):
        Permissions(subscribe_allow=[entry])


@pytest.mark.parametrize("entry", ["", "a..b", "a b", ">.a"])
def test_a_bad_publish_entry_is_refused(entry: str) -> None:
    with pytest.raises(BadSubject):
        Permissions(publish_deny=[entry])


PATTERNS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"])])
)
SUBJECTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)


@given(st.lists(PATTERNS, min_size=1), st.lists(PATTERNS), PATTERNS, SUBJECTS)
def test_what_is_delivered_was_allowed_and_not_denied(
    allow: list[str], deny: list[str], sub: str, subject: str
) -> None:
    rules = Permissions(subscribe_allow=allow, subscribe_deny=deny)
    stands = rules.may_subscribe(sub.encode())
    assert not stands or any(is_subset(sub, entry) for entry in allow)
    assert not any(is_subset(sub, entry) for entry in deny) or not stands
    if stands and matches(sub, subject) and rules.may_deliver(subject.encode()):
        assert any(matches(entry, subject) for entry in allow)
        assert not any(matches(entry, subject) for entry in deny)
    if stands and matches(sub, subject) and not rules.may_deliver(subject.encode()):
        assert rules.filters(sub.encode())


@pytest.mark.parametrize("user", USERS)
@given(subjects=st.lists(st.sampled_from(["a.x", "b.no", "b.x.y", "c", "x.pub", "no.1", "only", "zz", "a.*", ">", ""])))
def test_a_batch_is_allowed_as_its_publishes_are(user: str, subjects: list[str]) -> None:
    permissions, data, ops = USERS[user], bytearray(), array("I")
    for subject in subjects:
        ops.extend([len(data), len(subject), *[0] * (OP_WORDS - 2)])
        data += subject.encode()
    found: list[bool] = []
    while len(found) < len(subjects):
        stop, may = permissions.publish_run(data, ops, len(found), len(subjects))
        found += [may] * (stop - len(found))
    assert found == [permissions.may_publish(subject.encode()) for subject in subjects]


def test_a_long_list_allows_the_same() -> None:
    permissions, ops = (
        Permissions([f"s{number}.>" for number in range(1000)]),
        array("I", [0, 4, *[0] * (OP_WORDS - 2)]),
    )
    assert permissions.publish_run(bytearray(b"s7.x"), ops, 0, 1) == (1, True)
    assert permissions.publish_run(bytearray(b"t7.x"), ops, 0, 1) == (1, False)
