"""Where consumers start, how much is pending for them, who is told of new messages, and when they go."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.consumers.activity import Activity
from jetlake.jetstream.consumers.config import ConsumerConfig, DeliverPolicy
from jetlake.jetstream.consumers.num_pending import NumPending
from jetlake.jetstream.consumers.pull_queue import NEVER_NS
from jetlake.jetstream.consumers.signals import subjects_between
from jetlake.jetstream.consumers.start import Start, choose_start
from jetlake.store import FileStore, MemStore
from jetlake.store.api import StreamLimits
from jetlake.testing.clock import FakeClock

S = 10**9


def filled(*subjects: str) -> MemStore:
    store = MemStore(clock=FakeClock())
    for subject in subjects:
        store.append(subject, b"x")
    return store


# Starting


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ConsumerConfig(), Start(1)),
        (ConsumerConfig(deliver_policy=DeliverPolicy.NEW), Start(5)),
        (ConsumerConfig(deliver_policy=DeliverPolicy.LAST), Start(4)),
        (ConsumerConfig(deliver_policy=DeliverPolicy.LAST, filter_subject="b"), Start(2)),
        (ConsumerConfig(deliver_policy=DeliverPolicy.LAST, filter_subject="z"), Start(1)),
        (ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=9), Start(9)),
        (
            ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject=">"),
            Start(2, array("Q", [2, 4]), 5),
        ),
        (ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject="z"), Start(4, array("Q"), 5)),
    ],
    ids=repr,
)
def test_the_start_follows_the_policy(config: ConsumerConfig, expected: Start) -> None:
    assert choose_start(config, filled("a", "b", "a", "a"), -1) == expected


def test_an_unused_stream_starts_at_its_beginning() -> None:
    for policy in (DeliverPolicy.ALL, DeliverPolicy.NEW, DeliverPolicy.LAST):
        assert choose_start(ConsumerConfig(deliver_policy=policy), filled(), -1) == Start(1)


def test_what_is_gone_is_not_a_start() -> None:
    store = filled("a", "a", "a")
    store.compact(3)
    assert choose_start(ConsumerConfig(), store, -1) == Start(3)
    by_seq = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=1)
    assert choose_start(by_seq, store, -1) == Start(3)


def test_one_message_per_subject_needs_no_list() -> None:
    config = ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT, filter_subject=">")
    assert choose_start(config, filled("a", "b"), 1) == Start(1)


# Num pending


class Counting:
    """A store that counts how often it is asked to count."""

    def __init__(self, store: MemStore) -> None:
        self.calls = 0
        self._count = store.num_pending
        store.num_pending = self.num_pending  # type: ignore[method-assign,assignment]

    def num_pending(self, start: int, filters: object = ">") -> object:
        self.calls += 1
        return self._count(start, filters)  # type: ignore[arg-type]


def test_counting_again_costs_nothing_when_nothing_changed() -> None:
    store = filled("a", "b", "a")
    counting, pending = Counting(store), NumPending(("a",))
    assert [pending.value(store, 1) for _ in range(3)] == [2, 2, 2] and counting.calls == 1
    pending.taken(1, 2)
    assert pending.value(store, 2) == 1 and counting.calls == 1


def test_only_what_is_new_is_counted() -> None:
    store = filled("a")
    pending = NumPending(())
    assert pending.value(store, 1) == 1
    store.append("b", b"")
    starts: list[int] = []
    count = store.num_pending
    store.num_pending = lambda start, filters: starts.append(start) or count(start, filters)  # type: ignore
    assert pending.value(store, 1) == 2 and starts == [2]


Operation = tuple[str, int]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", "remove", "purge", "take", "ask", "skip"]), st.integers(1, 20)),
        max_size=60,
    ),
    st.sampled_from([(), ("a",), ("a", "b")]),
)
def test_the_count_is_that_of_the_store_whatever_happens(operations: list[Operation], filters: tuple[str, ...]) -> None:
    store = MemStore(StreamLimits(max_msgs_per_subject=4), clock=FakeClock())
    pending, next_seq = NumPending(filters), 1
    for name, number in operations:
        if name in "abc":
            store.append(name, b"")
        elif name == "remove":
            store.remove(number)
        elif name == "purge":
            store.purge(seq=number)
        elif name == "skip":
            store.skip()
        elif name == "take" and (message := store.load_next(next_seq, filters or ">")) is not None:
            pending.value(store, next_seq)
            next_seq = message.seq + 1
            pending.taken(1, next_seq)
        elif name == "ask":
            assert pending.value(store, next_seq) == store.num_pending(next_seq, filters or ">").msgs
    assert pending.value(store, next_seq) == store.num_pending(next_seq, filters or ">").msgs


@given(
    st.lists(st.tuples(st.sampled_from(["append", "remove", "purge", "take", "ask"]), st.integers(1, 12)), max_size=40)
)
def test_the_list_counts_what_is_left_of_it(operations: list[Operation]) -> None:
    store = filled(*"abcdefgh")
    pending = NumPending(())
    pending.use_list(range(1, 9), 9)
    left = list(range(1, 9))
    for name, number in operations:
        if name == "append":
            store.append("a", b"")
        elif name == "remove":
            store.remove(number)
        elif name == "purge":
            store.purge(seq=number)
        elif name == "take" and pending.has_list:
            pending.value(store, 0)
            assert pending.first_listed == left[0]
            pending.taken(int(store.catalog.is_live(left.pop(0))), 0)
        elif name == "ask":
            live = sum(map(store.catalog.is_live, left))
            assert pending.value(store, 9) == live + store.num_pending(9).msgs


# Signals


@pytest.mark.parametrize("make", [lambda path: MemStore(block_size_max=400), lambda path: _small_file_store(path)])
def test_the_subjects_of_a_range_are_found_across_blocks(tmp_path: Path, make: Callable[[Path], MemStore]) -> None:
    store = make(tmp_path)
    for number in range(60):
        store.append(f"s.{number % 7}", b"x" * 20)
    assert subjects_between(store, 58, 60) == {b"s.1", b"s.2", b"s.3"}
    assert subjects_between(store, 1, 60) == {b"s.%d" % number for number in range(7)}
    assert subjects_between(store, 61, 70) == set()
    store.stop()


def _small_file_store(path: Path) -> FileStore:
    from jetlake.store import FileOptions

    return FileStore(path / "store", options=FileOptions(block_size_max=400, sync="never"))


def test_a_subject_that_is_gone_already_is_no_matter() -> None:
    store = filled("a", "b")
    store.remove(2)
    assert b"a" in subjects_between(store, 1, 2)


# Going


def test_a_push_consumer_goes_when_nobody_listens() -> None:
    activity = Activity(ConsumerConfig(deliver_subject="d", inactive_threshold=2 * S), 0, 0.5)
    activity.expect(0, is_heard=True)
    assert activity.delete_at_ns == NEVER_NS
    activity.expect(10 * S, is_heard=False)
    assert activity.delete_at_ns == 12 * S
    activity.touch(11 * S)
    assert activity.delete_at_ns == 13 * S
    assert not activity.is_over(12 * S, is_used=False, busy_until_ns=0)
    assert activity.is_over(13 * S, is_used=False, busy_until_ns=0)
    activity.expect(13 * S, is_heard=True)
    assert activity.delete_at_ns == NEVER_NS


def test_a_pull_consumer_goes_when_it_is_idle_and_nothing_is_worked_on() -> None:
    activity = Activity(ConsumerConfig(inactive_threshold=2 * S), 0, 0.0)
    activity.expect(0, is_heard=False)
    due_ns = activity.delete_at_ns
    assert due_ns == 2 * S + S // 10
    activity.touch(S)
    assert not activity.is_over(due_ns, is_used=False, busy_until_ns=0) and activity.delete_at_ns == due_ns + S
    assert not activity.is_over(due_ns + S, is_used=True, busy_until_ns=0)
    assert not activity.is_over(100 * S, is_used=False, busy_until_ns=150 * S)
    assert activity.is_over(152 * S + S // 10, is_used=False, busy_until_ns=150 * S)


def test_a_durable_without_a_threshold_stays() -> None:
    activity = Activity(ConsumerConfig(durable_name="d"), 0, 0.5)
    activity.expect(0, is_heard=False)
    assert activity.delete_at_ns == NEVER_NS
