"""The ledger of a consumer: deliveries, acks and redeliveries with a clock of the test's own."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig
from jetlake.jetstream.consumers.ledger import Dropped, Ledger
from jetlake.store.consumer_state import check_state, decode_state, encode_state

S = 10**9
CONFIG = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=10 * S, max_deliver=-1, max_ack_pending=1000)


def ledger(**changes: object) -> Ledger:
    return Ledger(replace(CONFIG, **changes))


def deliver(ledger: Ledger, *seqs: int, now_ns: int = 0) -> None:
    ledger.deliver_run(array("Q", seqs), seqs[-1] + 1, now_ns)


def floor(ledger: Ledger) -> tuple[int, int]:
    return ledger.floor_consumer_seq, ledger.floor_stream_seq


def delivered(ledger: Ledger) -> tuple[int, int]:
    return ledger.delivered_consumer_seq, ledger.delivered_stream_seq


def test_a_run_is_delivered_and_pending() -> None:
    book = ledger()
    deliver(book, 3, 4, 7)
    assert delivered(book) == (3, 7) and floor(book) == (0, 0)
    assert len(book.pending) == 3 and book.next_seq == 8


def test_an_empty_run_moves_the_position_alone() -> None:
    book = ledger()
    book.deliver_run(array("Q"), 50, 0)
    assert book.next_seq == 50 and delivered(book) == (0, 0)


def test_the_floor_waits_for_the_smallest_pending_message() -> None:
    book = ledger()
    deliver(book, 5, 6, 9)
    assert book.ack(6) and floor(book) == (0, 0)
    assert book.ack(5) and floor(book) == (2, 8)
    assert book.ack(9) and floor(book) == (3, 9)
    assert not book.ack(9)


def test_acks_in_bulk_leave_the_same_behind_as_one_by_one() -> None:
    single, bulk = ledger(), ledger()
    for book in (single, bulk):
        deliver(book, *range(1, 21))
    acked = [3, 1, 2, 7, 25, 6, 3]
    for seq in acked:
        single.ack(seq)
    assert bulk.ack_many(array("Q", acked), len(acked)) == 5
    assert floor(single) == floor(bulk) == (3, 3)
    assert single.state() == bulk.state()


def test_without_acks_the_floor_follows_what_is_delivered() -> None:
    book = ledger(ack_policy=AckPolicy.NONE)
    deliver(book, 3, 4)
    assert floor(book) == delivered(book) == (2, 4) and len(book.pending) == 0


def test_an_ack_of_all_takes_everything_before_it() -> None:
    book = ledger(ack_policy=AckPolicy.ALL)
    deliver(book, 1, 2, 5, 6)
    assert book.ack_all(3, 5).tolist() == [1, 2, 5] and floor(book) == (3, 5)
    assert book.ack_all(2, 2).tolist() == [] and floor(book) == (3, 5)
    assert book.ack_all(4, 6).tolist() == [6] and floor(book) == (4, 6)


def test_what_is_not_acknowledged_in_time_is_queued_in_order() -> None:
    book = ledger()
    deliver(book, 2, 3, now_ns=0)
    deliver(book, 4, now_ns=5 * S)
    book.ack(3)
    assert book.expire(9 * S) == [] and len(book.queue) == 0
    book.expire(10 * S)
    assert list(book.queue) == [2]
    assert book.deadlines.next_ns == 15 * S
    book.expire(15 * S)
    assert list(book.queue) == [2, 4]


def test_a_redelivery_takes_a_new_consumer_sequence_and_waits_anew() -> None:
    book = ledger()
    deliver(book, 2)
    book.expire(10 * S)
    assert book.redeliver(2, 11 * S) == 2
    assert delivered(book) == (2, 2) and book.deliveries(2) == 2 and len(book.queue) == 0
    book.expire(20 * S)
    assert len(book.queue) == 0
    book.expire(21 * S)
    assert list(book.queue) == [2]


def test_progress_starts_the_wait_anew() -> None:
    book = ledger()
    deliver(book, 1, 2)
    assert book.progress(1, 8 * S) and not book.progress(5, 8 * S)
    book.expire(10 * S)
    assert list(book.queue) == [2]
    book.expire(18 * S)
    assert list(book.queue) == [2, 1]


def test_backoff_is_indexed_by_deliveries_and_its_last_value_stays() -> None:
    book = ledger(backoff=(1 * S, 3 * S), ack_wait=1 * S)
    deliver(book, 1, 2, now_ns=0)
    book.ack(2)
    times = []
    for tenth in range(1, 120):
        now_ns = tenth * S // 10
        book.expire(now_ns)
        if book.queue:
            times.append(tenth)
            book.redeliver(1, now_ns)
    assert times == [10, 40, 70, 100]


def test_backoff_may_become_shorter() -> None:
    book = ledger(backoff=(5 * S, 1 * S), ack_wait=5 * S)
    deliver(book, 1, 2, now_ns=0)
    book.expire(5 * S)
    book.redeliver(1, 5 * S)
    book.expire(6 * S)
    assert list(book.queue) == [2, 1]


def test_a_nak_queues_at_once_or_after_its_delay() -> None:
    book = ledger()
    deliver(book, 1, 2, 3)
    book.nak(2, None, S)
    book.nak(2, None, S)
    assert list(book.queue) == [2]
    book.nak(1, 2 * S, S)
    book.nak(3, 20 * S, S)
    book.expire(3 * S)
    assert list(book.queue) == [2, 1]
    book.expire(20 * S)
    assert list(book.queue) == [2, 1]
    book.expire(21 * S)
    assert list(book.queue) == [2, 1, 3]


def test_a_delay_beyond_the_end_of_time_lasts_until_then() -> None:
    book = ledger()
    deliver(book, 1, 2)
    book.nak(1, 2**63 - 1, 10**18)
    book.nak(2, -(2**63), 10**18)
    book.expire(2**63 - 2)
    assert list(book.queue) == [2]
    book.expire(2**63 - 1)
    assert list(book.queue) == [2, 1]


def test_a_delay_takes_a_message_off_the_queue() -> None:
    book = ledger()
    deliver(book, 1)
    book.nak(1, None, 0)
    book.nak(1, 5 * S, 0)
    assert len(book.queue) == 0
    book.expire(5 * S)
    assert list(book.queue) == [1]


def test_an_ack_takes_a_message_off_the_queue() -> None:
    book = ledger()
    deliver(book, 1, 2)
    book.expire(10 * S)
    book.ack(1)
    assert list(book.queue) == [2]
    book.ack_many(array("Q", (2,)), 1)
    assert len(book.queue) == 0


def test_after_max_deliver_a_message_is_given_up_once() -> None:
    book = ledger(max_deliver=2)
    deliver(book, 1, 2)
    assert book.expire(10 * S) == []
    book.redeliver(1, 10 * S)
    book.redeliver(2, 10 * S)
    assert book.expire(20 * S) == [] and all(map(book.is_exhausted, book.queue))
    assert [book.give_up(seq) for seq in (1, 2)] == [Dropped(1, 1, 2), Dropped(2, 2, 2)]
    assert len(book.pending) == 0 and len(book.queue) == 0 and book.redelivered == {1: 2, 2: 2}
    assert floor(book) == (0, 0)
    assert book.expire(40 * S) == []


def test_the_floor_does_not_pass_a_message_that_was_given_up_until_nothing_is_pending() -> None:
    book = ledger(max_deliver=1)
    deliver(book, 1, 2, 3)
    book.ack(3)
    book.progress(2, 5 * S)
    assert book.expire(10 * S) == [Dropped(1, 1, 1)]
    assert floor(book) == (0, 0)
    deliver(book, 4, now_ns=10 * S)
    book.ack(2)
    assert floor(book) == (0, 0)
    book.ack(4)
    assert floor(book) == (4, 4)


def test_a_message_whose_last_delivery_was_refused_is_pending_until_its_turn() -> None:
    book = ledger(max_deliver=1)
    deliver(book, 1)
    book.nak(1, None, 0)
    assert list(book.queue) == [1] and book.is_exhausted(1) and book.pending.consumer_seq(1)


def test_a_late_ack_of_a_message_that_was_given_up_forgets_its_count() -> None:
    book = ledger(max_deliver=1)
    deliver(book, 1)
    book.expire(10 * S)
    assert not book.ack(1) and book.redelivered == {}


def test_max_ack_pending_leaves_room_for_so_many() -> None:
    book = ledger(max_ack_pending=3)
    deliver(book, 1, 2)
    assert book.room == 1 and not book.is_full
    deliver(book, 3)
    assert book.room == 0 and book.is_full
    book.ack(2)
    assert book.room == 1
    assert ledger(max_ack_pending=-1).room == -1


def test_a_message_that_left_the_stream_is_dropped() -> None:
    book = ledger()
    deliver(book, 1, 2)
    assert book.pending_among([1, 7]) == [Dropped(1, 1, 1)]
    assert book.drop(array("Q", [1, 7]))
    assert floor(book) == (1, 1) and not book.drop(array("Q", [1]))


def test_many_messages_that_left_move_the_floor_as_one_after_the_other_does() -> None:
    book, other = ledger(), ledger()
    for each in (book, other):
        deliver(each, 1, 2, 3, 5, 8)
        each.nak(2, None, 0)
        each.redeliver(2, 0)
    book.drop(array("Q", [1, 2, 5]))
    for seq in (1, 2, 5):
        other.drop(array("Q", [seq]))
    assert book.state() == other.state()
    assert floor(book) == (2, 2) and list(book.pending_seqs) == [3, 8] and book.redelivered == {}


def test_a_message_whose_deadline_was_noted_twice_is_due_once() -> None:
    book = ledger()
    deliver(book, 1, 2, 3)
    book.deadlines.add(10 * S, 1, 3)
    book.deadlines.add(10 * S, 2, 2)
    book.expire(10 * S)
    assert list(book.queue) == [1, 2, 3] and len(book.deadlines) == 0


def test_what_is_due_beyond_a_bound_stays_due() -> None:
    book = ledger()
    deliver(book, *range(1, 8))
    deliver(book, 8, 9, now_ns=3 * S)
    book.expire(10 * S, 3)
    assert list(book.queue) == [1, 2, 3] and book.deadlines.next_ns == 10 * S
    book.expire(10 * S, 3)
    book.expire(10 * S, 3)
    assert list(book.queue) == [*range(1, 8)] and book.deadlines.next_ns == 13 * S
    book.expire(13 * S, 3)
    assert list(book.queue) == [*range(1, 10)] and book.deadlines.next_ns is None


def test_what_is_given_up_beyond_a_bound_waits_for_the_next_time() -> None:
    book = ledger(max_deliver=1)
    deliver(book, *range(1, 6))
    assert [each.seq for each in book.expire(10 * S, 3)] == [1, 2, 3]
    assert [each.seq for each in book.expire(10 * S, 3)] == [4, 5]
    assert book.expire(10 * S, 3) == [] and not book.pending


def test_skipping_ahead_forgets_what_lies_before() -> None:
    book = ledger()
    deliver(book, 1, 2, 3, 4)
    book.nak(2, None, 0)
    book.redeliver(2, 0)
    book.nak(3, None, 0)
    book.skip_to(4)
    assert floor(book) == (3, 3) and [seq for seq, _, _ in book.pending.entries()] == [4]
    assert book.redelivered == {} and len(book.queue) == 0
    book.skip_to(10)
    assert delivered(book) == (5, 9) and floor(book) == (5, 9) and book.next_seq == 10


def test_a_reset_starts_anew() -> None:
    book = ledger()
    deliver(book, 1, 2)
    book.reset(2)
    assert delivered(book) == floor(book) == (0, 1) and book.next_seq == 2 and len(book.pending) == 0
    deliver(book, 2)
    assert delivered(book) == (1, 2)


def test_another_ack_wait_holds_for_what_is_pending() -> None:
    book = ledger()
    deliver(book, 1)
    book.configure(replace(CONFIG, ack_wait=2 * S))
    book.expire(2 * S)
    assert list(book.queue) == [1]


def test_work_on_a_message_that_was_put_off_for_longer_starts_its_wait_anew() -> None:
    book = ledger()
    deliver(book, 1)
    book.nak(1, 600 * S, 0)
    book.expire(10 * S)  # the entry of its delivery is gone
    assert book.progress(1, 11 * S)
    book.expire(20 * S)
    assert list(book.queue) == []
    book.expire(21 * S)
    assert list(book.queue) == [1]


def test_deadlines_do_not_pile_up() -> None:
    book = ledger()
    deliver(book, 1, 2)
    for _ in range(10_000):
        book.nak(1, None, 0)
        book.redeliver(1, 0)
    assert len(book.deadlines) < 2000
    book.expire(10 * S)
    assert list(book.queue) == [1, 2]


# Keeping


def test_what_is_kept_is_restored() -> None:
    book = ledger()
    deliver(book, 1, 2, 3, 4)
    book.ack(1)
    book.ack(3)
    book.nak(2, None, 0)
    book.redeliver(2, S)
    again = ledger()
    again.restore(decode_state(encode_state(book.state()))[0], last_seq=10)
    assert again.state() == book.state() and again.next_seq == 5
    again.expire(11 * S)
    assert list(again.queue) == [2, 4]


def test_a_stream_that_lost_its_end_is_delivered_anew() -> None:
    book = ledger()
    deliver(book, 1, 2, 3, 4, 5)
    book.ack(1)
    book.ack(5)
    again = ledger()
    again.restore(book.state(), last_seq=3)
    assert [seq for seq, _, _ in again.pending.entries()] == [2, 3]
    assert again.next_seq == 4 and delivered(again) == (5, 3)
    check_state(again.state())
    deliver(again, 4)
    assert again.pending.consumer_seq(4) == 6


def test_a_stream_that_lost_what_was_acknowledged_goes_on_at_its_end() -> None:
    book = ledger()
    deliver(book, 1, 2, 3)
    book.ack_many(array("Q", (1, 2, 3)), 3)
    again = ledger()
    again.restore(book.state(), last_seq=1)
    assert again.next_seq == 2 and delivered(again) == (3, 1) and floor(again) == (3, 1)
    check_state(again.state())


class Model(RuleBasedStateMachine):
    """Random deliveries, acks and time against plain dicts."""

    WAIT_NS, DELIVER_MAX = 10, 3

    def __init__(self) -> None:
        super().__init__()
        self.book = ledger(ack_wait=self.WAIT_NS, max_deliver=self.DELIVER_MAX)
        self.now_ns = 0
        self.next_seq = 1
        self.due_ns: dict[int, int] = {}  # pending messages and when they are due
        self.count: dict[int, int] = {}  # deliveries of each message
        self.queued: set[int] = set()

    @rule(steps=st.lists(st.integers(1, 3), min_size=1, max_size=5))
    def deliver(self, steps: list[int]) -> None:
        seqs = array("Q")
        for step in steps:
            self.next_seq += step
            seqs.append(self.next_seq)
        self.book.deliver_run(seqs, self.next_seq + 1, self.now_ns)
        for seq in seqs:
            self.due_ns[seq], self.count[seq] = self.now_ns + self.WAIT_NS, 1

    @rule(seq=st.integers(1, 60))
    def ack(self, seq: int) -> None:
        assert self.book.ack(seq) == (seq in self.due_ns)
        self._forget(seq)

    @rule(seqs=st.lists(st.integers(1, 60), max_size=8))
    def ack_many(self, seqs: list[int]) -> None:
        assert self.book.ack_many(array("Q", seqs), len(seqs)) == len(set(seqs) & set(self.due_ns))
        for seq in seqs:
            self._forget(seq)

    def _forget(self, seq: int) -> None:
        self.due_ns.pop(seq, None)
        self.queued.discard(seq)

    @precondition(lambda self: self.due_ns)
    @rule(data=st.data(), delay_ns=st.none() | st.integers(0, 20))
    def nak(self, data: st.DataObject, delay_ns: int | None) -> None:
        seq = data.draw(st.sampled_from(sorted(self.due_ns)))
        self.book.nak(seq, delay_ns, self.now_ns)
        if delay_ns is not None:
            self.queued.discard(seq)
            self.due_ns[seq] = self.now_ns + delay_ns
        else:
            self.queued.add(seq)

    @precondition(lambda self: self.due_ns)
    @rule(data=st.data())
    def progress(self, data: st.DataObject) -> None:
        seq = data.draw(st.sampled_from(sorted(self.due_ns)))
        self.book.progress(seq, self.now_ns)
        self.due_ns[seq] = self.now_ns + self.WAIT_NS

    @rule(step_ns=st.integers(1, 15))
    def pass_time(self, step_ns: int) -> None:
        self.now_ns += step_ns
        due = {seq for seq, due_ns in self.due_ns.items() if due_ns <= self.now_ns and seq not in self.queued}
        assert self.book.expire(self.now_ns) == []
        self.queued |= due

    @precondition(lambda self: self.queued)
    @rule()
    def redeliver(self) -> None:
        seq = self.book.queue.peek()
        assert self.book.is_exhausted(seq) == (self.count[seq] >= self.DELIVER_MAX)
        if self.book.is_exhausted(seq):
            assert self.book.give_up(seq).deliveries == self.count[seq]
            self._forget(seq)
            return
        self.book.redeliver(seq, self.now_ns)
        self.queued.discard(seq)
        self.count[seq] += 1
        self.due_ns[seq] = self.now_ns + self.WAIT_NS
        assert self.book.deliveries(seq) == self.count[seq]

    @rule()
    def restart(self) -> None:
        kept = self.book.state()
        self.book = ledger(ack_wait=self.WAIT_NS, max_deliver=self.DELIVER_MAX)
        self.book.restore(kept, last_seq=10**6)
        self.queued.clear()  # what was queued waits for its time again

    @invariant()
    def agree(self) -> None:
        assert [seq for seq, _, _ in self.book.pending.entries()] == sorted(self.due_ns)
        assert set(self.book.queue) == self.queued
        check_state(self.book.state())
        waiting = [due_ns for seq, due_ns in self.due_ns.items() if seq not in self.queued]
        if waiting:
            assert self.book.deadlines.next_ns is not None
            assert self.book.deadlines.next_ns <= max(min(waiting), self.now_ns)


Model.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase


@pytest.mark.parametrize("policy", list(AckPolicy))
def test_a_state_is_sound_under_every_policy(policy: AckPolicy) -> None:
    book = ledger(ack_policy=policy)
    deliver(book, 2, 3, 9)
    check_state(book.state())
