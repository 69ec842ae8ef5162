"""What every store promises, asked of MemStore and of FileStore in every envelope."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jetlake.errors import (
    BadRequest,
    BadSubject,
    LimitExceeded,
    MessageNotFound,
    MessageTooLarge,
    StoreClosed,
    TooManyResults,
)
from jetlake.ops import OP_ADMITTED, OP_EXPECTS, OP_MSG_ID, OP_SPECIAL, OP_WORDS, append_op
from jetlake.store import (
    NEVER_NS,
    Discard,
    FileStore,
    MemStore,
    Pending,
    SimpleState,
    StoredMsg,
    StreamLimits,
)
from jetlake.store.format import MSG_ID, PAYLOAD_SIZE_MAX, SEQ_MAX
from jetlake.store.records.record import decode
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.crash.workload import ENVELOPES

SECOND = 1_000_000_000
Store = MemStore | FileStore
Make = Callable[..., Store]


@pytest.fixture(params=["memory", *ENVELOPES])
def make(request: pytest.FixtureRequest) -> Make:
    """Make a store with limits and small blocks on a clock that `store.clock` is."""

    def make(limits: StreamLimits | None = None, **options: Any) -> Store:
        clock = options.pop("clock", None) or FakeClock()
        limits = limits or StreamLimits()
        if request.param == "memory":
            return MemStore(limits, clock=clock, block_size_max=350, **options)
        return FileStore("s", limits, ENVELOPES[request.param], files=MemFiles(), clock=clock, **options)

    return make


@pytest.fixture
def store(make: Make) -> Store:
    return make()


def fill(store: Store, *subjects: str) -> None:
    for number, subject in enumerate(subjects, 1):
        store.append(subject, b"payload %d" % number)


def batch(*messages: tuple[bytes, bytes], flags: int = 0) -> tuple[bytes, array[int]]:
    data, ops = bytearray(), array("I")
    for subject, payload in messages:
        append_op(ops, data, subject, payload, flags=flags)
    return bytes(data), ops


# Storing


def test_a_message_comes_back_as_it_was_stored(store: Store) -> None:
    headers = b"NATS/1.0\r\nA: b\r\n\r\n"
    assert store.append("orders.eu", b"\x00\xff", headers) == 1
    assert store.load(1) == StoredMsg(1, "orders.eu", headers, b"\x00\xff", store.clock())


def test_stored_records_are_those_of_the_sequences_in_any_order_up_to_a_size(store: Store) -> None:
    fill(store, *["a", "b"] * 20)
    wanted = [40, 1, 17, 2, 39]
    records, seeds = store.stored_records(wanted, 10**6)
    found = [decode(record, 0, len(record), seed)[0] for record, seed in zip(records, seeds, strict=True)]
    assert [(record.seq, record.payload) for record in found] == [(seq, b"payload %d" % seq) for seq in wanted]
    assert len(store.stored_records(wanted, len(records[0]) + 1)[0]) == 2


def test_any_utf8_subject_is_kept(store: Store) -> None:
    store.append("größe.日本.🙂", b"x")
    assert store.load_last("größe.*.🙂").payload == b"x"  # type: ignore[union-attr]


def test_a_wildcard_in_a_subject_is_text(store: Store) -> None:
    for subject in ("a.*", "a.>", "a.b"):
        store.append(subject, b"")
    assert [message.subject for message in store.messages(1, "a.*")] == ["a.*", "a.>", "a.b"]
    assert [message.subject for message in store.messages(1, "a.b")] == ["a.b"]


@pytest.mark.parametrize("subject", ["", ".", "a.", "a b", "a\r\n"])
def test_what_is_not_a_subject_is_refused(store: Store, subject: str) -> None:
    with pytest.raises(BadSubject):
        store.append(subject, b"")
    assert store.state().msgs == 0


def test_a_payload_of_64_mib_is_kept(store: Store) -> None:
    payload = bytes(range(256)) * (64 * 4096)
    store.append("big", payload)
    assert store.load(1).payload == payload


def test_a_payload_that_no_record_holds_is_refused(store: Store) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return PAYLOAD_SIZE_MAX + 1

    with pytest.raises(MessageTooLarge):
        store.append("a", Huge())


def test_time_never_runs_backwards(store: Store) -> None:
    store.append("a", b"")
    store.clock.advance(-5)  # type: ignore[attr-defined]
    store.append("a", b"")
    assert store.load(2).time_ns == store.load(1).time_ns


def test_a_given_sequence_and_time_are_kept_and_those_between_are_skipped(store: Store) -> None:
    store.append_at(5, 17, "a", b"five")
    assert store.load(5) == StoredMsg(5, "a", b"", b"five", 17)
    assert (store.state().first_seq, store.state().last_seq) == (5, 5)
    assert store.append("a", b"") == 6


@pytest.mark.parametrize("seq", [0, 3, SEQ_MAX + 1])
def test_a_sequence_that_does_not_follow_is_refused(store: Store, seq: int) -> None:
    fill(store, "a", "a", "a")
    with pytest.raises(BadRequest):
        store.append_at(seq, 0, "a", b"")


def test_sequences_reach_to_the_end_of_64_bits(store: Store) -> None:
    store.append_at(SEQ_MAX, 0, "a", b"last")
    assert store.load(SEQ_MAX).payload == b"last"
    assert store.state().num_deleted == 0


def test_the_first_sequence_can_be_chosen(make: Make) -> None:
    store = make(first_seq=10)
    assert (store.state().first_seq, store.state().last_seq) == (10, 9)
    assert store.append("a", b"") == 10


def test_skipped_sequences_hold_nothing(store: Store) -> None:
    fill(store, "a")
    assert store.skip(3) == 4
    fill(store, "a")
    assert list(store.state().deleted) == [2, 3, 4]
    with pytest.raises(MessageNotFound):
        store.load(3)


def test_a_batch_is_stored_in_order(store: Store) -> None:
    data, ops = batch(*((b"s.%d" % (number % 3), b"%d" % number) for number in range(40)))
    assert store.append_batch(data, ops) == (1, 40)
    assert [store.load(seq).payload for seq in (1, 20, 40)] == [b"0", b"19", b"39"]
    assert store.subjects_totals() == {"s.0": 14, "s.1": 13, "s.2": 13}


def test_a_batch_stops_in_front_of_a_special_operation(store: Store) -> None:
    data, ops = batch((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    ops[OP_WORDS + 9] = OP_SPECIAL
    assert store.append_batch(data, ops) == (1, 1)
    assert store.append_batch(data, ops, 2) == (2, 3)
    assert store.load(2).payload == b"3"
    ops[OP_WORDS + 9] |= OP_ADMITTED
    assert store.append_batch(data, ops) == (3, 3)


def test_a_batch_stops_in_front_of_one_that_expects_another_last_sequence(make: Make) -> None:
    store = make(StreamLimits(max_msgs_per_subject=1))
    data, ops = batch(*((b"k.%d" % (number % 2), b"%d" % number) for number in range(6)))
    for number, expected in enumerate([0, 0, 1, 2, 3, 3]):
        ops[number * OP_WORDS + 9] = OP_EXPECTS
        ops[number * OP_WORDS + 10] = expected
    assert store.append_batch(data, ops) == (1, 5)
    assert store.append_batch(data, ops, 5) == (6, 5)
    ops[5 * OP_WORDS + 10] = 4
    assert store.append_batch(data, ops, 5) == (6, 6)
    store.remove(6)
    ops[5 * OP_WORDS + 10] = 0
    assert store.append_batch(data, ops, 5) == (7, 6)


def test_a_batch_stops_in_front_of_what_discard_new_refuses(make: Make) -> None:
    store = make(StreamLimits(max_msgs=2, discard=Discard.NEW))
    data, ops = batch((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    assert store.append_batch(data, ops) == (1, 2)
    with pytest.raises(LimitExceeded):
        store.append_batch(data, ops, 2)


def test_messages_that_carry_an_id_are_marked_for_recovery(store: Store) -> None:
    store.append_batch(*batch((b"a", b"1"), flags=OP_MSG_ID))
    store.append("a", b"2", msg_id=True)
    store.append("a", b"3")
    assert [bool(store.catalog.record(seq).flags & MSG_ID) for seq in (1, 2, 3)] == [True, True, False]


# Sizes as JetStream counts them


def test_sizes_are_counted_as_jetstream_counts_them(store: Store) -> None:
    store.append("abc", b"12345")
    store.append("abc", b"12345", b"NATS/1.0\r\n\r\n")
    if isinstance(store, MemStore):
        assert store.state().bytes == (16 + 3 + 5) + (16 + 3 + 5 + 12)
    else:
        assert store.state().bytes == (30 + 3 + 5) + (30 + 3 + 5 + 4 + 12)


# Limits


def test_the_oldest_leave_when_there_are_too_many(make: Make) -> None:
    store = make(StreamLimits(max_msgs=3))
    fill(store, *"abcde")
    assert (store.state().first_seq, store.state().msgs) == (3, 3)


def test_the_oldest_leave_when_there_are_too_many_bytes(make: Make) -> None:
    store = make(StreamLimits(max_bytes=120))
    fill(store, *"abcdef")
    assert store.state().bytes <= 120
    assert store.state().last_seq == 6


def test_a_message_larger_than_all_that_may_be_takes_everything_with_it(make: Make) -> None:
    store = make(StreamLimits(max_bytes=100))
    fill(store, "a", "b")
    assert store.append("c", bytes(200)) == 3
    assert (store.state().msgs, store.state().first_seq) == (0, 4)


def test_the_oldest_of_a_subject_leaves(make: Make) -> None:
    store = make(StreamLimits(max_msgs_per_subject=2))
    fill(store, "a", "b", "a", "a")
    assert store.subjects_state() == {"a": SimpleState(2, 3, 4), "b": SimpleState(1, 2, 2)}


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (StreamLimits(max_msgs=2, discard=Discard.NEW), "maximum messages exceeded"),
        (StreamLimits(max_bytes=80, discard=Discard.NEW), "maximum bytes exceeded"),
        (
            StreamLimits(max_msgs_per_subject=1, discard=Discard.NEW, discard_new_per_subject=True),
            "maximum messages per subject exceeded",
        ),
    ],
)
def test_discard_new_refuses_what_does_not_fit(make: Make, limits: StreamLimits, text: str) -> None:
    store = make(limits)
    store.append("a", b"1")
    if not limits.discard_new_per_subject:
        store.append("b", b"2")
    with pytest.raises(LimitExceeded, match=text):
        store.append("a", bytes(60))
    assert store.state().last_seq == (1 if limits.discard_new_per_subject else 2)


def test_discard_new_replaces_at_the_subject_limit(make: Make) -> None:
    store = make(StreamLimits(max_msgs=1, max_msgs_per_subject=1, discard=Discard.NEW))
    store.append("a", b"old")
    assert store.append("a", b"new") == 2
    assert store.load_last("a").payload == b"new"  # type: ignore[union-attr]
    with pytest.raises(LimitExceeded):
        store.append("b", b"")


def test_discard_new_at_the_byte_limit_replaces_what_is_as_large(make: Make) -> None:
    store = make()
    store.append("a", bytes(20))
    limits = StreamLimits(max_bytes=store.state().bytes + 10, max_msgs_per_subject=1, discard=Discard.NEW)
    store.update(limits)
    with pytest.raises(LimitExceeded):
        store.append("a", bytes(25))  # which would fit once the first is gone
    assert store.append("a", bytes(20)) == 2


@pytest.mark.parametrize("limits", [StreamLimits(max_msgs=2), StreamLimits(max_bytes=60)])
def test_lowered_limits_with_discard_new_remove_nothing(store: Store, limits: StreamLimits) -> None:
    fill(store, "a", "b", "a", "b", "a")
    store.update(replace(limits, discard=Discard.NEW))
    assert store.state().msgs == 5
    with pytest.raises(LimitExceeded):
        store.append("a", b"")
    store.update(limits)
    assert store.state().msgs < 3


def test_lowered_limits_are_enforced_at_once(store: Store) -> None:
    fill(store, "a", "b", "a", "b", "a")
    store.update(StreamLimits(max_msgs_per_subject=1))
    assert store.all_last_seqs() == [4, 5]
    store.update(StreamLimits(max_msgs=1))
    assert store.state().first_seq == 5


# Age and TTL


def test_what_is_too_old_expires(make: Make) -> None:
    store = make(StreamLimits(max_age_ns=10 * SECOND))
    store.append("a", b"")
    store.clock.advance(6)  # type: ignore[attr-defined]
    store.append("a", b"")
    assert store.next_expiry_ns() == store.load(1).time_ns + 10 * SECOND
    store.clock.advance(5)  # type: ignore[attr-defined]
    assert store.expire() == 1
    assert store.state().first_seq == 2


def test_a_ttl_ends_a_message_and_never_keeps_one(make: Make) -> None:
    store = make(StreamLimits(max_age_ns=10 * SECOND))
    store.append("never", b"", ttl_ns=NEVER_NS)
    store.append("short", b"", ttl_ns=2 * SECOND)
    store.append("plain", b"")
    store.clock.advance(3)  # type: ignore[attr-defined]
    assert store.expire() == 1
    store.clock.advance(20)  # type: ignore[attr-defined]
    assert store.expire() == 1
    assert store.subjects_totals() == {"never": 1}
    assert store.next_expiry_ns() is None


def test_the_last_message_of_a_subject_leaves_a_delete_marker(make: Make) -> None:
    store = make(StreamLimits(max_age_ns=10 * SECOND, subject_delete_marker_ttl_ns=60 * SECOND))
    fill(store, "a", "a", "b")
    store.clock.advance(11)  # type: ignore[attr-defined]
    assert store.expire() == 3
    marker = store.load_last("a")
    assert marker is not None
    assert marker.headers == b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1m0s\r\nNats-Rollup: sub\r\n\r\n"
    assert (marker.payload, marker.expires_ns) == (b"", store.clock() + 60 * SECOND)
    assert store.subjects_totals() == {"a": 1, "b": 1}


def test_a_delete_marker_leaves_none(make: Make) -> None:
    store = make(StreamLimits(max_age_ns=10 * SECOND, subject_delete_marker_ttl_ns=5 * SECOND))
    fill(store, "a")
    store.clock.advance(11)  # type: ignore[attr-defined]
    store.expire()
    store.clock.advance(6)  # type: ignore[attr-defined]
    assert store.expire() == 1
    assert store.state().msgs == 0


# Removing


def test_removing_twice_says_so(store: Store) -> None:
    fill(store, "a", "b", "c")
    assert store.remove(2)
    assert not store.remove(2)
    assert not store.remove(99)
    assert list(store.state().deleted) == [2]


def test_many_are_removed_at_once_wherever_they_lie(store: Store) -> None:
    fill(store, "a", "b", "a", "c", "a", "b", "a")
    assert store.remove_many([6, 1, 3, 3, 2, 99]) == 4
    assert (store.state().first_seq, list(store.state().deleted)) == (4, [6])
    assert store.subjects_totals() == {"a": 2, "c": 1}
    assert store.remove_many([5]) == 1
    assert store.remove_many([1, 2, 3, 5]) == store.remove_many([]) == 0
    assert store.subjects_state("a") == {"a": SimpleState(1, 7, 7)}


def test_erasing_takes_a_message_away(store: Store) -> None:
    fill(store, "a", "b", "c")
    assert store.erase(2)
    assert not store.erase(2)
    with pytest.raises(MessageNotFound):
        store.load(2)
    assert store.load(3).payload == b"payload 3"


def test_purging_everything_keeps_counting(store: Store) -> None:
    fill(store, *"abc")
    assert store.purge() == 3
    state = store.state()
    assert (state.msgs, state.bytes, state.first_seq, state.last_seq, state.num_subjects) == (0, 0, 4, 3, 0)
    assert store.append("a", b"") == 4


def test_purging_takes_a_filter_a_sequence_or_a_number_to_keep(store: Store) -> None:
    fill(store, "a.1", "b", "a.2", "a.1", "b", "a.2")
    assert store.purge("a.*", seq=4) == 2
    assert store.purge("a.*", keep=1) == 1
    assert store.purge("b", keep=5) == 0
    assert store.subjects_totals() == {"a.2": 1, "b": 2}
    assert store.purge(keep=1) == 2
    with pytest.raises(BadRequest):
        store.purge(seq=1, keep=1)


def test_compacting_beyond_the_end_moves_the_next_sequence(store: Store) -> None:
    fill(store, *"abcdef")
    assert store.compact(100) == 6
    assert (store.state().first_seq, store.state().last_seq) == (100, 99)
    assert store.append("a", b"") == 100


def test_truncating_takes_back_what_came_after(store: Store) -> None:
    fill(store, *"abcdefgh")
    store.remove(2)
    store.truncate(5)
    assert (store.state().last_seq, store.state().msgs) == (5, 4)
    assert store.append("z", b"new") == 6
    assert store.load(6).payload == b"new"


# Queries


def test_searches_honour_filters(store: Store) -> None:
    fill(store, "a.1", "b.1", "a.2", "b.2")
    assert store.load_next(2, "a.*").seq == 3  # type: ignore[union-attr]
    assert store.load_next(1, ["b.2", "x.>"]).seq == 4  # type: ignore[union-attr]
    assert store.load_prev(2, "a.>").seq == 1  # type: ignore[union-attr]
    assert store.load_next(5) is None
    assert store.load_last("c") is None


def test_messages_are_walked_in_order_whatever_leaves_meanwhile(store: Store) -> None:
    fill(store, "a", "b", "a", "a", "b", "a")
    walked = []
    for message in store.messages(2, "a"):
        walked.append(message.seq)
        store.remove(4)
    assert walked == [3, 6]


def test_pending_is_counted_from_anywhere(store: Store) -> None:
    fill(store, *(f"s.{number % 4}" for number in range(40)))
    assert store.num_pending(1, "s.1") == Pending(10, 40)
    assert store.num_pending(21, "s.1") == Pending(5, 40)
    assert store.num_pending(1, ["s.1", "s.2"]) == Pending(20, 40)
    assert store.num_pending(39, ">", last_per_subject=True) == Pending(2, 40)


def test_last_sequences_are_bounded(store: Store) -> None:
    fill(store, "a", "b", "a", "c")
    assert store.multi_last_seqs(["a", "c"]) == [3, 4]
    assert store.multi_last_seqs(["*"], max_seq=2) == [1, 2]
    with pytest.raises(TooManyResults):
        store.multi_last_seqs([">"], count_max=2)


def test_a_time_finds_its_sequence(store: Store) -> None:
    for _ in range(20):
        store.clock.advance(1)  # type: ignore[attr-defined]
        store.append("a", b"")
    assert store.seq_from_time(store.load(7).time_ns) == 7
    assert store.seq_from_time(store.load(7).time_ns + 1) == 8
    assert store.seq_from_time(0) == 1
    assert store.seq_from_time(store.clock() + 1) == 21


def test_a_filter_that_is_none_is_refused(store: Store) -> None:
    with pytest.raises(BadSubject):
        store.num_pending(1, "a..b")


# The end


def test_a_stopped_store_refuses_writes(store: Store) -> None:
    fill(store, "a")
    store.stop()
    for write in (lambda: store.append("a", b""), lambda: store.remove(1), store.purge, store.skip):
        with pytest.raises(StoreClosed):
            write()


def test_utilisation_tells_what_live_messages_account_for(store: Store) -> None:
    fill(store, *"abcdef")
    total, live = store.utilisation()
    assert live == store.state().bytes
    store.remove(3)
    assert store.utilisation()[0] >= total
    assert store.utilisation()[1] < live


@pytest.mark.parametrize("ttl_ns", [-1, -5, -(2**70)])
def test_a_time_to_live_below_zero_is_refused(make: Make, ttl_ns: int) -> None:
    store = make()
    with pytest.raises(BadRequest):
        store.append("a", b"", ttl_ns=ttl_ns)
    assert store.state().last_seq == 0


@pytest.mark.parametrize("expires_ns", [-1, 2**63])
def test_an_expiry_that_is_no_time_is_refused(make: Make, expires_ns: int) -> None:
    store = make()
    with pytest.raises(BadRequest):
        store.append_at(5, 0, "a", b"", expires_ns=expires_ns)
    assert store.state().last_seq == 0


def test_what_expired_may_leave_a_few_at_a_time(make: Make) -> None:
    store = make(StreamLimits(max_age_ns=10))
    for number in range(5):
        store.append("a", b"", ttl_ns=number + 1)
    store.append("b", b"", ttl_ns=NEVER_NS)
    now_ns = store.clock() + 5
    assert [store.expire(now_ns, count_max=2) for _ in range(4)] == [2, 2, 1, 0]
    assert store.state().msgs == 1


def test_the_limit_of_a_subject_that_looks_like_a_pattern_takes_no_other_message(make: Make) -> None:
    store = make(StreamLimits(max_msgs_per_subject=2))
    fill(store, "z", "a.*", "a.b", "a.*", "a.*", "a.*", "a.*")  # from the second that goes, the first is looked for
    assert [store.load(seq).subject for seq in (1, 3, 6, 7)] == ["z", "a.b", "a.*", "a.*"]
    assert store.state().msgs == 4
