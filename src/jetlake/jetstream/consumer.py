"""A consumer: one reader's position in a stream, and the delivery of messages to it.

The rules are elsewhere, without I/O: `consumer_ledger` (what was delivered and acknowledged), `pull_queue` and
`priority_groups` (who waits), `flow_control`, `pause`. This connects them with the store, the account, timers and the
file that keeps them. Whatever happens ends in `_settle`: deliver what can be delivered, then sleep until the earliest
of all deadlines. One timer serves them all; it may fire early, and then finds nothing to do.

What a stream does for its consumers
    stream.consumers        by name
    stream.waiting          whom to tell of new messages: a Signals, which tells those that can deliver them at once
    stored(first, last)     messages were committed
    purged(filter)          messages left: a purge of a filter, or (None) by age or limits
    removed(seq)            one message was deleted
    stream_reopened()       the store is another object, and may end earlier
    stop(), delete()        through `consumer_registry`, which also makes and recovers consumers
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from jetlake.broker.account import Watch
from jetlake.broker.subscription import Buffer, Msg, Subscription
from jetlake.clock import SECOND_NS
from jetlake.jetstream import consumer_acks, consumer_requests
from jetlake.jetstream.acks import account_hash
from jetlake.jetstream.advisories import new_id
from jetlake.jetstream.consumer_config import AckPolicy, ConsumerConfig
from jetlake.jetstream.consumer_delivery import Delivery, Stop
from jetlake.jetstream.consumer_events import DELETED_REASON, ConsumerEvents
from jetlake.jetstream.consumer_info import consumer_info
from jetlake.jetstream.consumer_keeper import Keeper, Snapshot, encode_meta
from jetlake.jetstream.consumer_ledger import Dropped, Ledger
from jetlake.jetstream.consumer_pending import NumPending
from jetlake.jetstream.consumer_rules import INACTIVE_DEFAULT_NS
from jetlake.jetstream.consumer_signals import signals_of
from jetlake.jetstream.consumer_start import choose_start
from jetlake.jetstream.flow_control import FlowControl, RateLimit
from jetlake.jetstream.host import Timer
from jetlake.jetstream.pause import Pause
from jetlake.jetstream.priority_groups import PriorityGroups
from jetlake.jetstream.pull_queue import NEVER_NS, PullQueue
from jetlake.jetstream.pull_request import PullRequest, Status
from jetlake.jetstream.stream_config import Retention
from jetlake.store.consumer_store import ConsumerState
from jetlake.subjects import encode_subject, is_subset
from jetlake.wire.headers import status_block

if TYPE_CHECKING:
    from jetlake.broker.client import Client
    from jetlake.jetstream.stream import Stream

_JITTER_MIN_NS, _JITTER_NS = SECOND_NS // 10, 9 * SECOND_NS // 10
_FLOW_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Consumer:
    """One consumer of a stream."""

    def __init__(
        self,
        stream: Stream,
        name: str,
        config: ConsumerConfig,
        created_ns: int,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """A consumer at its start; `restore` takes it where it was."""
        self.stream, self.host, self.account = stream, stream.host, stream.account
        self.name, self.config, self.created_ns = name, config, created_ns
        self._chance = chance
        self.events = ConsumerEvents(self)
        start = choose_start(config, stream.store, stream.config.max_msgs_per_subject)
        self.ledger = Ledger(config, start.next_seq)
        self.pending = NumPending(config.filters)
        self.pending.use_list(start.last_seqs, start.resume_seq)
        self.requests = PullQueue(config.max_waiting, is_prioritized=config.priority_policy == "prioritized")
        self.groups = PriorityGroups(config, new_id)
        self.flow = FlowControl() if config.flow_control else None
        self.rate: RateLimit | None = None
        self.pause = Pause(None)
        self.keeper: Keeper | None = None
        self.delivery = Delivery(self)
        self.ack_prefix = encode_subject(f"$JS.ACK.{stream.name}.{name}.")
        self.is_active = False  # a push consumer that somebody listens to
        self.delivered_ns = self.acked_ns = 0  # when there was one last
        self.active_ns = self.host.clock()  # of a pull consumer: when somebody wanted something from it
        self._delete_at_ns = NEVER_NS
        self._heartbeat_at_ns = NEVER_NS
        self._signals = signals_of(stream)
        self._subs: list[Subscription] = []
        self._watch: Watch | None = None
        self._timer: Timer | None = None
        self._timer_ns = NEVER_NS
        self._gaps = self._count_gaps()
        self._is_held = True  # until whoever made it was told
        self._is_settling = self._must_settle = self._is_scheduled = False
        self.is_closed = False
        self._use(config)

    def restore(self, state: ConsumerState) -> None:
        """Go on from what was stored."""
        self.ledger.restore(state, self.stream.last_seq)
        self.pending.use_list((), 0)
        first_seq = self.stream.store.catalog.first_seq
        if self.ledger.next_seq < first_seq:
            self.ledger.skip_to(first_seq)
        self._gaps = -1  # whatever left the stream meanwhile
        self._sweep()

    def _use(self, config: ConsumerConfig) -> None:
        """Derive from the configuration what is asked of it often."""
        now_ns = self.host.clock()
        self.deliver_subject = encode_subject(config.deliver_subject)
        self.deliver_group = encode_subject(config.deliver_group) if config.deliver_group else None
        self.pause.set(config.pause_until, now_ns)
        burst_size = self.stream.config.max_msg_size if self.stream.config.max_msg_size > 0 else 0
        burst_size = burst_size or self.host.options.max_payload
        self.rate = RateLimit(config.rate_limit_bps, burst_size, now_ns) if config.rate_limit_bps else None
        jitter_ns = _JITTER_MIN_NS + int(self._chance() * _JITTER_NS)
        has_jitter = not config.is_push or (not config.is_durable and config.inactive_threshold == INACTIVE_DEFAULT_NS)
        self._threshold_ns = config.inactive_threshold + jitter_ns * has_jitter if config.inactive_threshold else 0

    # Life

    def open(self, keeper: Keeper | None) -> None:
        """Listen to acks and requests. Nothing is delivered before `release`."""
        self.keeper = keeper
        self._signals.add(self)
        stream, name, account = self.stream.name, self.name, self.account
        domain, hash = self.host.options.jetstream.domain or "_", account_hash(account.name)
        self._subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", self._take_request)
        if self.config.ack_policy not in (AckPolicy.NONE, AckPolicy.FLOW_CONTROL):
            ack_sub = account.subscribe(self.ack_prefix + b">", self._take_ack, batch_handler=self._take_acks)
            self._subs.append(ack_sub)
            self._subscribe(f"$JS.ACK.{domain}.{hash}.{stream}.{name}.>", self._take_ack)
        if self.config.flow_control:
            self._subscribe(f"$JS.FC.{stream}.{name}.>", self._take_flow_answer)
            self._subscribe(f"$JS.FC.{domain}.{hash}.{stream}.{name}.>", self._take_flow_answer)
        if self.config.is_push:
            self._watch = account.watch(self.deliver_subject, self._interest_changed)
            self.is_active = self._has_listener()
        self._expect_deletion(self.host.clock())
        self.delivery.start()

    def release(self) -> None:
        """Deliver from now on."""
        self._is_held = False
        if self.config.idle_heartbeat and self.config.is_push:
            self._heartbeat_at_ns = self.host.clock() + self.config.idle_heartbeat
        self._settle()

    def close(self, code: int, text: str, *, shows_pending: bool = False) -> None:
        """Deliver nothing more; who waits is told why."""
        if self.is_closed:
            return
        self.is_closed = True
        if not self.config.is_push:
            self.send_statuses(self.requests.close(code, text, shows_pending=shows_pending))
        for sub in self._subs:
            self.account.unsubscribe(sub)
        if self._watch is not None:
            self.account.unwatch(self._watch)
        if self._timer is not None:
            self._timer.cancel()
        self._signals.remove(self)

    def _subscribe(self, subject: str, handler: Callable[[Msg], None]) -> None:
        self._subs.append(self.account.subscribe(encode_subject(subject), handler))

    # What the stream says

    def stored(self, first_seq: int, last_seq: int) -> None:
        """Messages were committed."""
        self._settle()

    def purged(self, filter: str | None = None) -> None:
        """Messages left the stream: all that match a filter up to some sequence, or (None) by age or limits."""
        store, ledger = self.stream.store, self.ledger
        first_seq = store.catalog.first_seq
        if filter is not None and filter != ">":
            mine = self.config.filters
            if mine and all(is_subset(own, filter) for own in mine):
                # All that it wants was purged: it goes on at the first that is left, or after the end.
                first_seq = store.queries.next_seq(store.queries.filter(filter), 0) or store.catalog.last_seq + 1
        pending_count = len(ledger.pending)
        if filter is not None or ledger.next_seq < first_seq or ledger.floor_stream_seq < first_seq - 1:
            ledger.skip_to(first_seq)
        self._sweep()
        if len(ledger.pending) < pending_count:
            self.acked_ns = self.host.clock()
        self._changed()
        self._settle()

    def removed(self, seq: int) -> None:
        """A message was deleted."""
        dropped = self.ledger.drop(seq)
        if dropped is not None:
            self._gone(dropped)
            self._settle()

    def stream_reopened(self) -> None:
        """The stream's files were read anew, and may end before what was delivered."""
        self.restore(self.ledger.state())
        self._settle()

    def damaged(self, seq: int) -> None:
        """A message cannot be read."""
        self.host.log("warning", f"message damaged stream={self.stream.name} consumer={self.name} seq={seq}")

    def _count_gaps(self) -> int:
        """How many messages left the stream other than by the acks of its consumers."""
        catalog = self.stream.store.catalog
        acked = self.stream.interest.removed_count if self.stream.interest is not None else 0
        return catalog.last_seq - catalog.table.total - acked

    def _sweep(self) -> None:
        """Drop what is pending and no longer in the stream, if anything left it since the last time."""
        gaps = self._count_gaps()
        if gaps == self._gaps:
            return
        self._gaps = gaps
        is_live = self.stream.store.catalog.is_live
        for seq in [seq for seq, _, _ in self.ledger.pending.entries() if not is_live(seq)]:
            dropped = self.ledger.drop(seq)
            if dropped is not None:
                self._gone(dropped)
        for seq in [seq for seq in self.ledger.redelivered if not is_live(seq)]:
            del self.ledger.redelivered[seq]

    def _gone(self, dropped: Dropped) -> None:
        self.acked_ns = self.host.clock()
        self.events.terminated(dropped.seq, dropped.consumer_seq, dropped.deliveries, DELETED_REASON)
        self._changed()

    # What clients say

    def _take_ack(self, msg: Msg) -> None:
        self._touch()
        consumer_acks.take(self, msg)
        self._settle()

    def _take_acks(self, client: Client | None, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        self._touch()
        consumer_acks.take_batch(self, client, data, ops, first, stop)
        self._settle()

    def _take_request(self, msg: Msg) -> None:
        consumer_requests.take(self, msg)
        if self.config.priority_groups:
            self._settle_soon()  # of requests that arrive together, not the first but the best is served first
        else:
            self._settle()

    def take_next(self, reply: bytes, payload: bytes) -> None:
        """An ack that asks for the next message."""
        consumer_requests.take_body(self, reply, payload)

    def _take_flow_answer(self, msg: Msg) -> None:
        if self.flow is not None and self.flow.answer(msg.subject):
            if self.config.ack_policy is AckPolicy.FLOW_CONTROL:
                consumer_acks.take_flow_answer(self, msg.headers)
            self._settle()

    def _touch(self) -> None:
        """Somebody uses the consumer: it is not deleted for now."""
        now_ns = self.host.clock()
        self.active_ns = now_ns
        if self.config.is_push and self._delete_at_ns != NEVER_NS:
            self._delete_at_ns = now_ns + self._threshold_ns

    # Interest

    def _has_listener(self) -> bool:
        """Whether somebody subscribed to just the deliver subject, in the group if there is one."""
        found = self.account.sublist.match(self.deliver_subject)
        if self.deliver_group is None:
            subs: Iterable[Subscription] = found.plain
        else:
            subs = next((group for group in found.queues if group[0].queue == self.deliver_group), ())
        return any(sub.client is not None and sub.subject == self.deliver_subject for sub in subs)

    def _interest_changed(self) -> None:
        self.is_active = self._has_listener()
        self._expect_deletion(self.host.clock())
        self._settle()

    def _expect_deletion(self, now_ns: int) -> None:
        """A consumer that nobody uses is deleted after a while, if it is configured so."""
        if not self._threshold_ns or (self.config.is_push and self.is_active):
            self._delete_at_ns = NEVER_NS
        elif self._delete_at_ns == NEVER_NS:
            self._delete_at_ns = now_ns + self._threshold_ns

    def _is_unused(self, now_ns: int) -> bool:
        """Whether its time has come; if not, when to look again."""
        if self.config.is_push:
            return not self.is_active
        self.requests.drop_unheard(self.account.has_interest)
        if now_ns < self.active_ns + self._threshold_ns:
            self._delete_at_ns = self.active_ns + self._threshold_ns
            return False
        if len(self.requests):
            self._delete_at_ns = now_ns + self._threshold_ns
            return False
        # Whoever got the messages may still be at work.
        waits = (time_ns + self.ledger.wait_ns(seq) for seq, _, time_ns in self.ledger.pending.entries())
        self._delete_at_ns = max(waits, default=0) + self._threshold_ns
        return self._delete_at_ns <= now_ns

    # Delivering

    def may_deliver(self, now_ns: int) -> bool:
        """Whether anything may be delivered at all."""
        if self.is_closed or self._is_held or self.pause.is_on(now_ns):
            return False
        if self.config.is_push:
            return self.is_active and not (self.flow is not None and self.flow.is_stalled)
        return len(self.requests) > 0

    def num_pending(self) -> int:
        """How many messages are yet to be delivered for the first time."""
        return self.pending.value(self.stream.store, self.ledger.next_seq)

    def extra_headers(self, request: PullRequest | None) -> bytes:
        """Header lines that every message gets."""
        if request is None or not self.groups.is_pinning:
            return b""
        return b"Nats-Pin-Id: %s\r\n" % self.groups.pin_id.encode()

    def delivered(self, now_ns: int) -> None:
        """Something was delivered."""
        self.delivered_ns = self.active_ns = now_ns
        if self._heartbeat_at_ns != NEVER_NS:
            self._heartbeat_at_ns = now_ns + self.config.idle_heartbeat
        self._changed()

    def done_with(self, seqs: Sequence[int]) -> None:
        """The consumer needs some messages no longer."""
        if self.stream.interest is not None:
            self.stream.interest.acked(self, seqs)

    def is_sampled(self) -> bool:
        """Whether this ack is one to report."""
        return self._chance() * 100 < self.config.sample_percent

    @property
    def must_ask_acks(self) -> bool:
        """Whether acks come only by flow control, and enough of them are missing to ask."""
        return self.config.ack_policy is AckPolicy.FLOW_CONTROL and self.ledger.is_full and not self._asked

    @property
    def _asked(self) -> bytes:
        return self.flow.asked if self.flow is not None else b""

    def ask_flow_control(self) -> None:
        """Ask the client to confirm what it got."""
        assert self.flow is not None
        token = "".join(_FLOW_ALPHABET[int(self._chance() * len(_FLOW_ALPHABET))] for _ in range(4))
        reply = encode_subject(f"$JS.FC.{self.stream.name}.{self.name}.{token}")
        self.flow.ask(reply)
        self.account.send(self.deliver_subject, reply=reply, headers=status_block(100, "FlowControl Request"))

    def send_statuses(self, statuses: Iterable[Status]) -> None:
        """Tell clients how their requests stand."""
        for status in statuses:
            self.account.send(status.reply, headers=status.block)

    def _send_heartbeat(self, subject: bytes) -> None:
        pairs = [
            (b"Nats-Last-Consumer", b"%d" % self.ledger.delivered_consumer_seq),
            (b"Nats-Last-Stream", b"%d" % (self.ledger.next_seq - 1)),
        ]
        if self._asked:
            pairs.append((b"Nats-Consumer-Stalled", self._asked))
        self.account.send(subject, headers=status_block(100, "Idle Heartbeat", pairs))

    def _settle(self) -> None:
        """Deliver what can be delivered, and see when to look again."""
        if self._is_settling:  # what is sent may close a connection, which comes back here
            self._must_settle = True
            return
        if self.is_closed:
            return
        self._is_settling = True
        try:
            stop = self.delivery.pump()
            while self._must_settle:
                self._must_settle = False
                stop = self.delivery.pump()
        finally:
            self._is_settling = False
        self._after_pump(stop)

    def _after_pump(self, stop: Stop) -> None:
        if self.is_closed:
            return
        if stop in (Stop.END, Stop.CLOSED) and not self._is_held:
            self.send_statuses(self.requests.end_of_stream())
        if stop is Stop.CHUNK:
            self._settle_soon()
        if stop is Stop.FULL:
            self._sweep()
            if not self.ledger.is_full:
                self._settle_soon()
        self._signals.set_waiting(self, stop is Stop.END)
        self._arm()

    def _settle_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.host.call_soon(self._settle_now)

    def _settle_now(self) -> None:
        self._is_scheduled = False
        self._settle()

    # Time

    def _arm(self) -> None:
        """Wake up at the earliest deadline; a timer that fires before it does no harm."""
        due_ns = min(
            self.ledger.deadlines.next_ns or NEVER_NS,
            self.requests.next_deadline_ns,
            self.groups.pin_deadline_ns,
            self.pause.deadline_ns,
            self.delivery.wake_ns,
            self._heartbeat_at_ns,
            self._delete_at_ns,
        )
        if due_ns < self._timer_ns:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_ns = due_ns
            self._timer = self.host.call_at(due_ns, self._tick)

    def _tick(self) -> None:
        """Something may be due."""
        self._timer, self._timer_ns = None, NEVER_NS
        if self.is_closed:
            return
        now_ns = self.host.clock()
        if self._delete_at_ns <= now_ns and self._is_unused(now_ns):
            self._delete()
            return
        self.give_up(self.ledger.expire(now_ns), now_ns)
        statuses, beats = self.requests.tick(now_ns)
        self.send_statuses(statuses)
        for reply in beats:
            self._send_heartbeat(reply)
        self._tick_rest(now_ns)
        self._settle()

    def _tick_rest(self, now_ns: int) -> None:
        if self.groups.pin_deadline_ns <= now_ns:
            self.unpin("timeout")
        if self.pause.ends(now_ns):
            self.events.paused(self.pause.until_ns, False)
        if self._heartbeat_at_ns <= now_ns:
            self._heartbeat_at_ns = now_ns + self.config.idle_heartbeat
            if self.is_active:
                self._send_heartbeat(self.deliver_subject)
                if self.config.ack_policy is AckPolicy.FLOW_CONTROL and self.ledger.pending and not self._asked:
                    self.ask_flow_control()

    def _delete(self) -> None:
        """Nobody used it for long enough."""
        from jetlake.jetstream.consumer_registry import delete_consumer  # it knows this class

        delete_consumer(self, lambda: None)

    def give_up(self, dropped: list[Dropped], now_ns: int) -> None:
        """Messages were delivered as often as they may be."""
        if not dropped:
            return
        self.delivered_ns = now_ns
        for each in dropped:
            self.events.max_deliveries(each)
        self._changed()

    def unpin(self, reason: str) -> None:
        """Let another client have its turn."""
        group = self.groups.pinned_group
        self.groups.unpin()
        self.events.unpinned(group, reason)

    # Keeping

    def snapshot(self) -> Snapshot:
        """What the file is to say."""
        meta = encode_meta(self.name, self.created_ns, self.config)
        return Snapshot(self.ledger.snapshot(), meta, len(self.ledger.pending))

    def _changed(self) -> None:
        if self.keeper is not None:
            self.keeper.changed()

    def changed(self) -> None:
        """Something changed that is to be kept."""
        self._changed()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything up to now is kept; at once where nothing is."""
        if self.keeper is None:
            callback()
        else:
            self.keeper.when_durable(callback)

    # What the API asks

    def info(self, *, with_server: bool = True) -> dict[str, Any]:
        """The consumer in numbers."""
        self._sweep()
        self.requests.drop_unheard(self.account.has_interest)
        return consumer_info(self, self.host.clock(), with_server=with_server)

    def needs(self, seq: int, subject: str) -> bool:
        """Whether a message must stay in an interest stream for this consumer."""
        ledger, filters = self.ledger, self.config.filters
        if filters and not any(is_subset(subject, filter) for filter in filters):
            return False
        if seq in ledger.redelivered:
            return True
        if seq <= ledger.floor_stream_seq:
            return False
        if self.config.ack_policy is not AckPolicy.EXPLICIT or seq >= ledger.next_seq:
            return True
        return ledger.pending.consumer_seq(seq) > 0

    def update(self, config: ConsumerConfig) -> None:
        """Take another configuration, which was checked."""
        old, self.config = self.config, config
        self.ledger.configure(config)
        self.groups.configure(config)
        now_ns = self.host.clock()
        was_paused_until = self.pause.until_ns
        self._use(config)
        if config.pause_until != was_paused_until:
            self.events.paused(config.pause_until, self.pause.is_on(now_ns))
        if config.deliver_subject != old.deliver_subject or config.deliver_group != old.deliver_group:
            self._move_outlet(old)
        if set(config.filters) != set(old.filters):
            self.pending.use_filters(config.filters)
            self._signals.add(self)
            if self.stream.interest is not None:
                self.stream.interest.filters_changed(self)
        if config.inactive_threshold != old.inactive_threshold:
            self._delete_at_ns = NEVER_NS
            self.active_ns = now_ns
            self._expect_deletion(now_ns)
        self._changed()
        self._settle()

    def _move_outlet(self, old: ConsumerConfig) -> None:
        """Deliver to another subject: what is pending goes there, too."""
        if self._watch is not None:
            self.account.unwatch(self._watch)
        if self.config.deliver_subject != old.deliver_subject:
            pending = [seq for seq, _, _ in self.ledger.pending.entries()]
            self.give_up(self.ledger.queue_again(pending), self.host.clock())
        self._watch = self.account.watch(self.deliver_subject, self._interest_changed)
        self.is_active = self._has_listener()
        self._expect_deletion(self.host.clock())

    def reset(self, next_seq: int) -> None:
        """Start anew at a sequence."""
        self.ledger.reset(next_seq)
        self.pending.use_list((), 0)
        self.delivered_ns = self.acked_ns = 0
        if self.stream.interest is not None and self.stream.config.retention is Retention.INTEREST:
            self.stream.interest.check()
        self._changed()

    def resume(self) -> None:
        """Something changed that may let it deliver."""
        self._settle()
