"""The subscription index against a plain list of subscriptions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from jetlake.broker.sublist import Match, Sublist
from jetlake.errors import BadSubject
from jetlake.subjects import matches, overlaps
from tests.broker.real_server import Client, real_server


@dataclass
class Sub:
    """A subscription that is neither hashable nor unlike another with the same fields."""

    subject: bytes
    queue: bytes | None = None


@st.composite
def patterns(draw: st.DrawFn) -> str:
    tokens = draw(st.lists(st.sampled_from(["a", "b", "*"]), max_size=3))
    if not tokens or draw(st.booleans()):
        tokens = [*tokens[:2], draw(st.sampled_from([">", "a"]))]
    return ".".join(tokens)


SUBJECTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)
QUEUES = st.sampled_from([None, None, b"q", b"r"])
WIDE = ["a", "a.b", "a.*", "a.>", ">", "*", "*.*", "*.>", "a*.b", "a.*.c", "*.b.>", "a.b.c"]
PUBLISHED = ["a", "a.b", "a.*", "a.>", ">", "*", "a.*.c", "a.>.c", "a*.b", "a..b", ".a", "a.", "a.b.c", "*.b.c", "b.b"]
SUBS = st.builds(lambda subject, queue: Sub(subject.encode(), queue), patterns(), QUEUES)


def ids(subs: object) -> Counter[int]:
    return Counter(map(id, subs))  # type: ignore[call-overload]


def check(match: Match[Sub], subs: list[Sub], subject: str) -> None:
    """A match names what a walk over all subscriptions finds."""
    expected = [sub for sub in subs if matches(sub.subject.decode(), subject)]
    assert ids(match.plain) == ids(sub for sub in expected if sub.queue is None)
    groups = {group[0].queue: ids(group) for group in match.queues}
    assert len(groups) == len(match.queues), "a group is named once"
    names = {sub.queue for sub in expected} - {None}
    assert groups == {name: ids(sub for sub in expected if sub.queue == name) for name in names}


def filled(*subjects: str) -> Sublist[Sub]:
    index: Sublist[Sub] = Sublist()
    for subject in subjects:
        index.insert(Sub(subject.encode()))
    return index


def found(index: Sublist[Sub], subject: str) -> list[str]:
    return sorted(sub.subject.decode() for sub in index.match(subject.encode()).plain)


@given(st.lists(SUBS, max_size=8), st.integers(0, 8), SUBJECTS)
def test_what_is_removed_together_is_found_no_more(subs: list[Sub], kept: int, subject: str) -> None:
    index: Sublist[Sub] = Sublist()
    for sub in subs:
        index.insert(sub)
    index.match(subject.encode())  # it is remembered
    index.remove_all(subs[kept:])
    check(index.match(subject.encode()), subs[:kept], subject)
    for sub in subs[kept:]:
        assert index.insert(sub)
    check(index.match(subject.encode()), subs, subject)


@given(st.lists(SUBS), SUBJECTS)
def test_match_finds_what_a_walk_finds(subs: list[Sub], subject: str) -> None:
    index: Sublist[Sub] = Sublist()
    for sub in subs:
        assert index.insert(sub)
    check(index.match(subject.encode()), subs, subject)
    assert index.count == len(index) == len(subs)
    assert ids(index) == ids(subs)


@given(st.lists(SUBS), patterns())
def test_overlapping_finds_what_a_walk_finds(subs: list[Sub], pattern: str) -> None:
    index: Sublist[Sub] = Sublist()
    for sub in subs:
        index.insert(sub)
    expected = [sub for sub in subs if overlaps(sub.subject.decode(), pattern)]
    assert ids(index.overlapping(pattern.encode())) == ids(expected)


class Life(RuleBasedStateMachine):
    """Inserts, removes and matches in any order, with a cache so small that it overflows."""

    subs = Bundle("subs")

    def __init__(self) -> None:
        super().__init__()
        self.index: Sublist[Sub] = Sublist(cache_count_max=5, cache_weight_max=12)
        self.model: list[Sub] = []
        self.kept: dict[str, tuple[int, Match[Sub]]] = {}

    @rule(target=subs, sub=SUBS)
    def insert(self, sub: Sub) -> Sub:
        assert self.index.insert(sub)
        self.model.append(sub)
        return sub

    @rule(sub=subs)
    def insert_again(self, sub: Sub) -> None:
        held = any(other is sub for other in self.model)
        assert self.index.insert(sub) is not held
        if not held:
            self.model.append(sub)

    @rule(sub=subs)
    def remove(self, sub: Sub) -> None:
        held = any(other is sub for other in self.model)
        assert self.index.remove(sub) is held
        self.model = [other for other in self.model if other is not sub]

    @rule(subject=SUBJECTS)
    def match(self, subject: str) -> None:
        for _ in range(2):
            check(self.index.match(subject.encode()), self.model, subject)
        self.kept[subject] = self.index.generation, self.index.match(subject.encode())

    @rule(subject=SUBJECTS)
    def ask_for_interest(self, subject: str) -> None:
        expected = [sub for sub in self.model if matches(sub.subject.decode(), subject)]
        assert self.index.has_interest(subject.encode()) is bool(expected)

    @invariant()
    def cached_results_are_current_and_bounded(self) -> None:
        cache, under = self.index._cache, self.index._cached_under
        for subject, match in cache.items():
            check(match, self.model, subject.decode())
        assert len(cache) <= 5 and self.index._cached_weight <= 12
        assert {subject for subjects in under.values() for subject in subjects} == set(cache)
        assert sum(sum(weights.values()) for weights in under.values()) == self.index._cached_weight

    @invariant()
    def a_result_holds_while_the_generation_stays(self) -> None:
        for subject, (generation, match) in self.kept.items():
            if generation == self.index.generation:
                check(match, self.model, subject)

    @invariant()
    def an_empty_index_holds_nothing(self) -> None:
        assert self.index.count == len(self.model)
        if not self.model:
            assert not self.index._root and not list(self.index)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_subject_is_literal_text() -> None:
    index = filled("a.b", "a.*", "a.>", "*.*", "a")
    assert found(index, "a.*") == ["*.*", "a.*", "a.>"]
    assert found(index, "a.>") == ["*.*", "a.*", "a.>"]
    assert found(index, "a.b*") == ["*.*", "a.*", "a.>"]


@pytest.mark.parametrize("subject", [b"", b".", b"a.", b".a", b"a..b"])
def test_a_subject_with_an_empty_token_reaches_nobody(subject: bytes) -> None:
    index = filled(">", "a.*", "*.*", "a.>")
    assert not index.has_interest(subject)
    assert index.match(subject) == ((), ())
    assert not index.has_interest(subject), "neither from the cache"


@pytest.mark.parametrize("subject", [b"", b"a..b", b".a", b"a.", b">.a", b"a.>.b"])
def test_a_bad_subject_cannot_be_subscribed_to(subject: bytes) -> None:
    index: Sublist[Sub] = Sublist()
    with pytest.raises(BadSubject):
        index.insert(Sub(subject))
    assert not index.remove(Sub(subject)) and index.count == 0


def test_a_queue_group_spans_patterns() -> None:
    index: Sublist[Sub] = Sublist()
    wide, narrow, other = Sub(b"a.>", b"q"), Sub(b"a.b", b"q"), Sub(b"a.*", b"r")
    for sub in (wide, narrow, other):
        index.insert(sub)
    groups = {group[0].queue: group for group in index.match(b"a.b").queues}
    assert ids(groups[b"q"]) == ids([wide, narrow]) and ids(groups[b"r"]) == ids([other])


def test_two_equal_subscriptions_are_two() -> None:
    index: Sublist[Sub] = Sublist()
    one, two = Sub(b"a"), Sub(b"a")
    assert index.insert(one) and index.insert(two) and not index.insert(one)
    assert index.remove(one) and not index.remove(one)
    assert index.match(b"a").plain[0] is two


def test_order_within_a_subject_is_the_order_of_insertion() -> None:
    index: Sublist[Sub] = Sublist()
    subs = [Sub(b"a") for _ in range(20)]
    for sub in subs:
        index.insert(sub)
    assert [id(sub) for sub in index.match(b"a").plain] == [id(sub) for sub in subs]


@pytest.mark.parametrize("pattern", ["a.b", "a.*", "*.b", "a.>", ">", "*.*", "*.>"])
def test_a_cached_result_sees_the_next_change(pattern: str) -> None:
    index, sub = filled("a.b", "other"), Sub(pattern.encode())
    before, generation = index.match(b"a.b"), index.generation
    index.insert(sub)
    assert index.generation > generation and ids(index.match(b"a.b").plain) == ids([*before.plain, sub])
    index.remove(sub)
    assert ids(index.match(b"a.b").plain) == ids(before.plain)


@pytest.mark.parametrize(("pattern", "kept"), [("a.x", True), ("b.>", True), ("a.x.>", False), ("*.x.y", False)])
def test_a_change_keeps_what_it_cannot_have_changed(pattern: str, kept: bool) -> None:
    index = filled("a.b")
    before = index.match(b"a.b")
    index.insert(Sub(pattern.encode()))
    assert (index.match(b"a.b") is before) is kept


def test_inboxes_that_come_and_go_cost_other_subjects_nothing() -> None:
    index = filled("orders.*")
    kept = index.match(b"orders.eu")
    for number in range(20_000):
        inbox = Sub(b"_INBOX.%d.*" % number if number % 2 else b"_INBOX.%d" % number)
        index.insert(inbox)
        assert index.match(b"_INBOX.%d" % number + b".x" * (number % 2)).plain
        index.remove(inbox)
    assert index.match(b"orders.eu") is kept
    assert len(index._cache) < 20_000 and len(index._cached_under) <= 2


def test_a_large_result_is_not_cached() -> None:
    index: Sublist[Sub] = Sublist(cache_weight_max=10)
    for _ in range(20):
        index.insert(Sub(b"a"))
    assert len(index.match(b"a").plain) == 20 and not index._cache


def test_iteration_survives_changes() -> None:
    index = filled("a", "a.*", "b.>")
    for sub in index:
        index.remove(sub)
    assert index.count == 0


def test_a_subject_may_have_thousands_of_tokens() -> None:
    subject = b".".join([b"a"] * 5000)
    index: Sublist[Sub] = Sublist()
    subs = [Sub(subject), Sub(b".".join([b"*"] * 5000)), Sub(b"a.>")]
    for sub in subs:
        index.insert(sub)
    assert ids(index.match(subject).plain) == ids(subs)
    assert ids(index.overlapping(b">")) == ids(subs)
    for sub in subs:
        assert index.remove(sub)
    assert not index._root


def test_nats_server_delivers_to_the_same_subscriptions() -> None:
    subs = [Sub(subject.encode()) for subject in WIDE]
    index: Sublist[Sub] = Sublist()
    for sub in subs:
        index.insert(sub)
    with real_server("") as port, Client(port) as client:
        client.ask(*(f"SUB {sub.subject.decode()} {sid}" for sid, sub in enumerate(subs)))
        for subject in PUBLISHED:
            received = [line.split()[2] for line in client.ask(f"PUB {subject} 0", "") if line]
            expected = ids(index.match(subject.encode()).plain)
            assert Counter(id(subs[int(sid)]) for sid in received) == expected, subject
