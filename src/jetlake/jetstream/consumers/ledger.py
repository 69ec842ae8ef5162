"""What a consumer delivered, what of it is acknowledged, and what must be delivered again. No I/O and no clock.

`apply` carries out commands (`commands.py`), and nothing else changes a consumer's ledger.

Sequences come in pairs: a stream sequence says which message, a consumer sequence counts deliveries. `next_seq` is
where the search for new messages goes on; it runs ahead of what was delivered where a filter skips messages.

Always true
    floor <= delivered, in both kinds of sequence; next_seq is above the delivered stream sequence
    a pending message lies above the floor and not above delivered
    what waits in the queue is pending
    every pending message that is not in the queue is covered by an entry of the deadlines, no later than its own
The ack floor moves as in nats-server: when the message right above it is acknowledged, to just below the smallest
pending one; and to what was delivered when an ack leaves nothing pending. A message that reached max_deliver is no
longer pending, but it does not move the floor, and its redelivery count stays for as long as the message does. That is
decided when it is its turn in the queue; with a max_deliver of 1, when its time has come.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from jetlake.jetstream.consumers import commands
from jetlake.jetstream.consumers.ack_pending import TIME_MAX_NS, AckPending
from jetlake.jetstream.consumers.commands import EXPIRED_COUNT_MAX
from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig
from jetlake.jetstream.consumers.redelivery import Deadlines, RedeliveryQueue
from jetlake.store.consumer_state import ConsumerState, PackedPending, Pending
from jetlake.store.format import SEQ_MAX

# Runs of deliveries share a deadline if they are no further apart than this part of the wait.
_SLACK_PART = 16
_DEADLINES_MIN = 1024


class Dropped(NamedTuple):
    """A message that will not be delivered again."""

    seq: int
    consumer_seq: int
    deliveries: int


class Ledger:
    """The sequences of one consumer."""

    def __init__(self, config: ConsumerConfig, next_seq: int = 1) -> None:
        self.pending = AckPending()
        self.redelivered: dict[int, int] = {}  # how often, the first delivery not counted
        self.queue = RedeliveryQueue()
        self.deadlines = Deadlines()
        self.configure(config)
        self.reset(next_seq)

    def apply(self, command: commands.Command) -> Any:
        """Carry out a command; its result is that of the method for its kind."""
        return _APPLY[type(command)](self, *command)

    def configure(self, config: ConsumerConfig) -> None:
        """Take the waits and bounds of a configuration."""
        self.ack_policy = config.ack_policy
        self.max_deliver = max(config.max_deliver, 0)
        self.max_pending = config.max_ack_pending
        self._ack_wait_ns, self._backoff_ns = config.ack_wait, config.backoff
        self._cover_all()

    def reset(self, next_seq: int) -> None:
        """Start anew at a stream sequence."""
        self.next_seq = next_seq
        self.delivered_consumer_seq, self.delivered_stream_seq = 0, next_seq - 1
        self.floor_consumer_seq, self.floor_stream_seq = 0, next_seq - 1
        self._forget()

    def _forget(self) -> None:
        self.pending.clear()
        self.redelivered.clear()
        self.queue.clear()
        self.deadlines.clear()

    @property
    def is_full(self) -> bool:
        """Whether no new message may be delivered until one is acknowledged."""
        return 0 < self.max_pending <= len(self.pending)

    @property
    def room(self) -> int:
        """How many new messages may be delivered; negative when there is no bound."""
        return max(self.max_pending - len(self.pending), 0) if self.max_pending > 0 else -1

    # Delivering

    def deliver_run(self, seqs: array[int], next_seq: int, now_ns: int) -> None:
        """Note the first delivery of some messages, in order."""
        self.next_seq = max(next_seq, self.next_seq)
        if not seqs:
            return
        first = self.delivered_consumer_seq + 1
        self.delivered_consumer_seq += len(seqs)
        self.delivered_stream_seq = seqs[-1]
        if self.ack_policy is AckPolicy.NONE:
            self.floor_consumer_seq, self.floor_stream_seq = self.delivered_consumer_seq, seqs[-1]
            return
        self.pending.add_run(seqs, first, now_ns)
        if self._ack_wait_ns:
            self.deadlines.add_run(now_ns + self._ack_wait_ns, seqs[0], seqs[-1], self._ack_wait_ns // _SLACK_PART)

    def advance(self, next_seq: int) -> None:
        """Search for new messages at a sequence, unless the search is further already."""
        self.next_seq = max(self.next_seq, next_seq)

    def redeliver(self, seq: int, now_ns: int) -> int:
        """Note that a message from the queue was delivered again; its consumer sequence."""
        self.queue.discard(seq)
        self.redelivered[seq] = self.redelivered.get(seq, 0) + 1
        self.delivered_consumer_seq += 1
        self.pending.touch(seq, now_ns)
        self._expect(seq, now_ns + self.wait_ns(seq))
        return self.delivered_consumer_seq

    def deliveries(self, seq: int) -> int:
        """How often a message was delivered."""
        return self.redelivered.get(seq, 0) + 1

    def wait_ns(self, seq: int) -> int:
        """How long the ack of a message may take after its last delivery."""
        if not self._backoff_ns:
            return self._ack_wait_ns
        return self._backoff_ns[min(self.redelivered.get(seq, 0), len(self._backoff_ns) - 1)]

    def expire(self, now_ns: int, count_max: int = EXPIRED_COUNT_MAX) -> list[Dropped]:
        """Queue what is due for redelivery, about so many: the rest stays due. What is given up at once is returned."""
        expired: set[int] = set()
        seen: set[tuple[int, int]] = set()
        while len(expired) < count_max and (found := self.deadlines.pop_due(now_ns)) is not None:
            first, last = found
            if first == last:
                expired.update(self._expired_one(first, now_ns))
            elif found not in seen:
                seen.add(found)
                expired.update(self._expired_run(first, last, now_ns, count_max - len(expired)))
        return self.queue_again(sorted(expired))

    def _expired_one(self, seq: int, now_ns: int) -> list[int]:
        if not self.pending.consumer_seq(seq) or seq in self.queue:
            return []
        due_ns = self.pending.time_ns(seq) + self.wait_ns(seq)
        if due_ns <= now_ns:
            return [seq]
        self.deadlines.add(due_ns, seq, seq)
        return []

    def _expired_run(self, first: int, last: int, now_ns: int, count_max: int) -> list[int]:
        overdue, earliest_ns = self.pending.overdue(first, last, now_ns - self._ack_wait_ns)
        if len(overdue) > count_max:
            self.deadlines.add(now_ns, overdue[count_max], last)
            overdue = overdue[:count_max]
        if earliest_ns < TIME_MAX_NS:
            self.deadlines.add(earliest_ns + self._ack_wait_ns, first, last)
        if not self.redelivered and not self.queue:
            return overdue.tolist()
        found: list[int] = []
        for seq in overdue:
            # One that was delivered again has a wait of its own.
            found += self._expired_one(seq, now_ns) if seq in self.redelivered else [] if seq in self.queue else [seq]
        return found

    def queue_again(self, seqs: Iterable[int]) -> list[Dropped]:
        """Queue pending messages; those that were delivered once, and may be no more than once, are given up."""
        if not self.max_deliver:
            self.queue.add(seqs)
            return []
        dropped = []
        for seq in seqs:
            if max(self.redelivered.get(seq, 0), 1) < self.max_deliver:
                self.queue.add((seq,))
            else:
                dropped.append(self.give_up(seq))
        return dropped

    def is_exhausted(self, seq: int) -> bool:
        """Whether a message was delivered as often as it may be."""
        return 0 < self.max_deliver <= self.deliveries(seq)

    def give_up(self, seq: int) -> Dropped:
        """A message reached max_deliver: it is no longer pending, and its count says so."""
        deliveries = self.deliveries(seq)
        self.redelivered[seq] = deliveries
        self.queue.discard(seq)
        return Dropped(seq, self.pending.remove(seq), deliveries)

    # Acknowledging

    def ack(self, seq: int) -> bool:
        """A message is acknowledged, or need not be; False when it was not pending."""
        is_next = self._is_next_pending()
        found = self.pending.remove(seq)
        if found:
            self._move_floor(is_next)
        self._forget_redeliveries((seq,))
        return found > 0

    def ack_many(self, seqs: array[int], count: int) -> int:
        """The first `count` messages are acknowledged; those that were pending, so many, move to the front."""
        if self.redelivered or self.queue:
            self._forget_redeliveries(seqs[:count])
        is_next = self._is_next_pending()
        removed = self.pending.remove_many(seqs, count)
        if removed:
            self._move_floor(is_next)
        return removed

    def ack_all(self, consumer_seq: int, seq: int) -> array[int]:
        """A message and all before it are acknowledged; those that were pending."""
        if consumer_seq <= self.floor_consumer_seq or seq <= self.floor_stream_seq:
            return array("Q")
        removed = self.pending.remove_through(seq)
        self._forget_redeliveries(removed)
        if self.pending:
            # The sequence acknowledged may be that of a redelivery, above those of messages still pending.
            consumer_seq = min(consumer_seq, self.pending.first()[1] - 1)
            self.floor_consumer_seq, self.floor_stream_seq = consumer_seq, seq
        else:
            self.floor_consumer_seq = min(consumer_seq, self.delivered_consumer_seq)
            self.floor_stream_seq = min(seq, self.delivered_stream_seq)
        return removed

    def nak(self, seq: int, delay_ns: int | None, now_ns: int) -> None:
        """A message is to be delivered again, now or after a delay."""
        if delay_ns is None:
            self.queue.add((seq,))
            return
        due_ns = min(now_ns + max(delay_ns, 0), TIME_MAX_NS)
        self.queue.discard(seq)
        self.pending.touch(seq, due_ns - self.wait_ns(seq))
        self._expect(seq, due_ns)

    def progress(self, seq: int, now_ns: int) -> bool:
        """A client works on a message: its wait starts anew. False when it is not pending."""
        was_put_off = self.pending.time_ns(seq) > now_ns  # by a delay longer than the wait that starts now
        if not self.pending.touch(seq, now_ns):
            return False
        if was_put_off:
            self._expect(seq, now_ns + self.wait_ns(seq))
        return True

    def _is_next_pending(self) -> bool:
        """Whether the smallest pending message is the one right above the floor."""
        return self.pending.first()[1] == self.floor_consumer_seq + 1

    def _move_floor(self, was_next_pending: bool) -> None:
        if not self.pending:
            self._floor_to_delivered()
        elif was_next_pending:
            seq, consumer_seq = self.pending.first()
            if consumer_seq > self.floor_consumer_seq + 1:
                self.floor_consumer_seq, self.floor_stream_seq = consumer_seq - 1, seq - 1

    def _floor_to_delivered(self) -> None:
        self.floor_consumer_seq = self.delivered_consumer_seq
        self.floor_stream_seq = self.delivered_stream_seq

    def _forget_redeliveries(self, seqs: Iterable[int]) -> None:
        if self.redelivered or self.queue:
            for seq in seqs:
                self.redelivered.pop(seq, None)
                self.queue.discard(seq)

    # What the stream lost

    @property
    def pending_seqs(self) -> array[int]:
        """The stream sequences of all that is pending, ascending."""
        return self.pending.overdue(0, SEQ_MAX, TIME_MAX_NS)[0]

    def pending_among(self, seqs: Iterable[int]) -> list[Dropped]:
        """What is known of those messages that are pending."""
        found = (Dropped(seq, self.pending.consumer_seq(seq), self.deliveries(seq)) for seq in seqs)
        return [each for each in found if each.consumer_seq]

    def drop(self, seqs: array[int]) -> bool:
        """Messages are gone from the stream; whether some were pending."""
        return self.ack_many(array("Q", seqs), len(seqs)) > 0

    def forget_counts(self, seqs: Iterable[int]) -> None:
        """Forget how often messages were delivered that are gone and were not pending."""
        for seq in seqs:
            self.redelivered.pop(seq, None)

    def skip_to(self, seq: int) -> None:
        """Everything below a sequence is gone for this consumer: go on there, and expect no acks from before."""
        self.next_seq = max(self.next_seq, seq)
        self.delivered_stream_seq = max(self.delivered_stream_seq, seq - 1)
        if self.floor_stream_seq < seq - 1:
            is_next = self._is_next_pending()
            if self.pending.remove_through(seq - 1):
                self._move_floor(is_next)
            self.floor_stream_seq = max(self.floor_stream_seq, seq - 1)
        if not self.pending:
            self._floor_to_delivered()
        for gone in [other for other in self.redelivered if other < seq]:
            del self.redelivered[gone]
        for gone in [other for other in self.queue if other < seq]:
            self.queue.discard(gone)

    # Keeping it

    def snapshot(self) -> tuple[ConsumerState, PackedPending]:
        """All of it as it is now, to be stored: what is pending, which may be very much, is packed by a kernel."""
        state = ConsumerState(
            self.delivered_consumer_seq,
            self.delivered_stream_seq,
            self.floor_consumer_seq,
            self.floor_stream_seq,
            redelivered=dict(self.redelivered),
        )
        packed = self.pending.pack(
            self.floor_stream_seq, self.floor_consumer_seq, self.delivered_stream_seq, self.delivered_consumer_seq
        )
        return state, PackedPending(*packed)

    def state(self) -> ConsumerState:
        """All of it."""
        state, _ = self.snapshot()
        state.pending = {seq: Pending(own_seq, time_ns) for seq, own_seq, time_ns in self.pending.entries()}
        return state

    def restore(self, state: ConsumerState, last_seq: int) -> None:
        """Take what was stored; what lies beyond the end of the stream is forgotten."""
        self._forget()
        self.delivered_consumer_seq = state.delivered_consumer_seq
        self.delivered_stream_seq = min(state.delivered_stream_seq, max(last_seq, state.ack_floor_stream_seq))
        self.floor_consumer_seq, self.floor_stream_seq = state.ack_floor_consumer_seq, state.ack_floor_stream_seq
        for seq in sorted(state.pending):
            if seq <= last_seq:
                self.pending.add_run(array("Q", (seq,)), state.pending[seq].seq, state.pending[seq].time_ns)
        self.redelivered = {seq: count for seq, count in state.redelivered.items() if seq <= last_seq}
        if state.delivered_stream_seq > last_seq:
            self._step_back(last_seq)
        self.next_seq = self.delivered_stream_seq + 1
        self._cover_all()

    def _step_back(self, last_seq: int) -> None:
        """The stream ends before what was delivered: its end was lost, and will be written anew."""
        if self.floor_stream_seq > last_seq:
            self.floor_stream_seq, self.floor_consumer_seq = last_seq, self.delivered_consumer_seq
        if self.pending:
            self.delivered_stream_seq = max(seq for seq, _, _ in self.pending.entries())
        else:
            self.delivered_stream_seq = self.floor_stream_seq
            self.floor_consumer_seq = self.delivered_consumer_seq

    def _expect(self, seq: int, time_ns: int) -> None:
        """Look at one message at a time; entries that no longer matter are cleared out before they pile up."""
        if len(self.deadlines) > 2 * len(self.pending) + _DEADLINES_MIN:
            self._cover_all()
        self.deadlines.add(time_ns, seq, seq)

    def _cover_all(self) -> None:
        """Deadlines for all that is pending, whatever they were before."""
        self.deadlines.clear()
        if not self._ack_wait_ns:
            return
        slack_ns = self._ack_wait_ns // _SLACK_PART
        for seq, _, time_ns in self.pending.entries():
            if seq in self.queue:
                continue
            if seq in self.redelivered:
                self.deadlines.add(time_ns + self.wait_ns(seq), seq, seq)
            else:
                self.deadlines.add_run(time_ns + self._ack_wait_ns, seq, seq, slack_ns)


_APPLY: dict[type, Callable[..., Any]] = {
    commands.Deliver: Ledger.deliver_run,
    commands.Redeliver: Ledger.redeliver,
    commands.Advance: Ledger.advance,
    commands.Ack: Ledger.ack,
    commands.AckMany: Ledger.ack_many,
    commands.AckAll: Ledger.ack_all,
    commands.Nak: Ledger.nak,
    commands.Progress: Ledger.progress,
    commands.Expire: Ledger.expire,
    commands.Requeue: Ledger.queue_again,
    commands.GiveUp: Ledger.give_up,
    commands.Drop: Ledger.drop,
    commands.ForgetCounts: Ledger.forget_counts,
    commands.SkipTo: Ledger.skip_to,
    commands.Reset: Ledger.reset,
    commands.Configure: Ledger.configure,
}
