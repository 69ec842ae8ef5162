"""A consumer: one reader's position in a stream, and the delivery of messages to it.

The rules are elsewhere, without I/O: `ledger` (what was delivered and acknowledged), `pull_queue` and
`priority_groups` (who waits), `flow_control`, `pause`, `consumer_activity`. This connects them with the store, the
account, timers and the file that keeps them. Whatever happens ends in `_deliver`: deliver what can be delivered, then
sleep until the earliest of all deadlines. One timer serves them all; it may fire early, and then finds nothing to do.

What a stream does for its consumers
    stream.consumers        by name
    stream.signals          tells consumers that can deliver at once of new messages
    stored(first, last)     messages were committed
    lost()                  messages left while too many are pending
    purged(filter)          messages left: a purge of a filter, or (None) by age or limits
    removed(seq)            one message was deleted
    stream_reopened()       the store is another object, and may end earlier
    stop(), delete()        through `registry`, which also makes and recovers consumers
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from jetlake.broker.subscription import Buffer, Msg, Subscription
from jetlake.clock import SECOND_NS
from jetlake.jetstream.advisories import new_id
from jetlake.jetstream.consumers import acks as consumer_acks
from jetlake.jetstream.consumers import requests as consumer_requests
from jetlake.jetstream.consumers.ack_words import account_hash
from jetlake.jetstream.consumers.activity import Activity
from jetlake.jetstream.consumers.commands import Advance, Command, Configure, Expire, Requeue, Reset
from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig
from jetlake.jetstream.consumers.delivery import BUSY_NS, Deliverer, Stop
from jetlake.jetstream.consumers.events import ConsumerEvents
from jetlake.jetstream.consumers.info import consumer_info
from jetlake.jetstream.consumers.ledger import Dropped, Ledger
from jetlake.jetstream.consumers.losses import Losses
from jetlake.jetstream.consumers.num_pending import NumPending
from jetlake.jetstream.consumers.pause import Pause
from jetlake.jetstream.consumers.priority_groups import PriorityGroups
from jetlake.jetstream.consumers.pull_queue import NEVER_NS, PullQueue
from jetlake.jetstream.consumers.pull_request import PullRequest, Status
from jetlake.jetstream.consumers.push import Push
from jetlake.jetstream.consumers.start import choose_start
from jetlake.jetstream.consumers.state_files import Keeper, Snapshot, encode_meta
from jetlake.jetstream.host import Timer
from jetlake.jetstream.streams.config import Retention
from jetlake.jetstream.streams.interest import Removals
from jetlake.store.consumer_state import ConsumerState
from jetlake.subjects import encode_subject, is_subset
from jetlake.wire.headers import status_block

if TYPE_CHECKING:
    from jetlake.broker.peer import Peer
    from jetlake.jetstream.streams.stream import Stream


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
        self.chance = chance
        self.events = ConsumerEvents(self)
        start = choose_start(config, stream.store, stream.config.max_msgs_per_subject)
        self.ledger = Ledger(config, start.next_seq)
        self.start_seq = config.opt_start_seq  # where it was told to start, which may be beyond the end of the stream
        self.pending = NumPending(config.filters)
        self.pending.use_list(start.last_seqs, start.resume_seq)
        self.requests = PullQueue(config.max_waiting, is_prioritized=config.priority_policy == "prioritized")
        self.groups = PriorityGroups(config, new_id)
        self.push = Push(self, config) if config.is_push else None
        self.pause = Pause(None)
        self.pause.set(config.paused_until, self.host.clock())
        self.activity = Activity(config, self.host.clock(), chance())
        self.keeper: Keeper | None = None
        self.delivery = Deliverer(self)
        self.losses = Losses(self)
        self.removals = Removals()
        self.may_hold_others = False  # whether what is pending may be of subjects that it does not have now
        self.ack_prefix = encode_subject(f"$JS.ACK.{stream.name}.{name}.")
        self.delivered_ns = self.acked_ns = 0  # when there was one last
        self._signals = stream.signals
        self._subs: list[Subscription] = []
        self._timer: Timer | None = None
        self._timer_ns = NEVER_NS
        self._is_held = True  # until whoever made it was told
        self._is_delivering = self._must_deliver_again = self._is_scheduled = False
        self.is_closed = False

    def restore(self, state: ConsumerState) -> None:
        """Go on from what was stored."""
        self.ledger.restore(state, max(self.stream.last_seq, self.start_seq - 1))
        self.pending.use_list((), 0)
        self.may_hold_others = True
        self.losses.look(anyway=True)
        self.submit(Advance(self.stream.store.catalog.first_seq))

    def submit(self, command: Command) -> Any:
        """Change the ledger; what the command gives."""
        return self.ledger.apply(command)

    # Life

    def open(self, keeper: Keeper | None) -> None:
        """Listen to acks and requests. Nothing is delivered before `release`."""
        self.keeper = keeper
        self._signals.add(self)
        stream, name, account = self.stream.name, self.name, self.account
        domain, hash = self.host.options.jetstream.domain or "_", account_hash(account.name)
        self._subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", self._take_request)
        if self.config.ack_policy not in (AckPolicy.NONE, AckPolicy.FLOW_CONTROL):
            ack_sub = account.subscribe(self.ack_prefix + b">", self._take_ack)
            self._subs.append(ack_sub)
            account.add_prefix(self.ack_prefix, ack_sub, self._take_acks)
            self._subscribe(f"$JS.ACK.{domain}.{hash}.{stream}.{name}.>", self._take_ack)
        if self.config.flow_control:
            self._subscribe(f"$JS.FC.{stream}.{name}.>", self._take_flow_answer)
            self._subscribe(f"$JS.FC.{domain}.{hash}.{stream}.{name}.>", self._take_flow_answer)
        if self.push is not None:
            self.push.watch(self._listeners_changed)
        self._expect_deletion()
        self.delivery.start()

    def release(self) -> None:
        """Deliver from now on."""
        self._is_held = False
        if self.push is not None:
            self.push.rest(self.host.clock())
        self._deliver()

    def close(self, code: int, text: str, *, shows_pending: bool = False) -> None:
        """Deliver nothing more; who waits is told why."""
        if not self.is_closed:
            self.is_closed = True
            self.leave(code, text, shows_pending=shows_pending)

    def leave(self, code: int, text: str, *, shows_pending: bool = False) -> None:
        """Tell who waits, and listen to nobody any more. It `is_closed`, perhaps for a while: what came was ignored."""
        self.send_statuses(self.requests.close(code, text, shows_pending=shows_pending))
        for sub in self._subs:
            self.account.unsubscribe(sub)
        self.account.remove_prefix(self.ack_prefix)
        if self.push is not None:
            self.push.unwatch()
        if self._timer is not None:
            self._timer.cancel()
        self._signals.remove(self)

    def _subscribe(self, subject: str, handler: Callable[[Msg], bool | None]) -> None:
        self._subs.append(self.account.subscribe(encode_subject(subject), handler))

    # What the stream says

    def stored(self, first_seq: int, last_seq: int) -> None:
        """Messages were committed."""
        self._deliver()

    def lost(self) -> None:
        """Messages left the stream while too many are pending: see, but not all the time, if they were among them."""
        if self.delivery.wake_ns == NEVER_NS:
            self.delivery.wake_ns = max(self.losses.looked_ns + BUSY_NS, self.host.clock())
            self._arm()

    def purged(self, filter: str | None = None) -> None:
        """Messages left the stream: all that match a filter up to some sequence, or (None) by age or limits."""
        self.losses.purged(filter)
        self.changed()
        self._deliver()

    def removed(self, seq: int) -> None:
        """A message was deleted."""
        if self.losses.removed(seq):
            self._deliver()

    def stream_reopened(self) -> None:
        """The stream's files were read anew, and may end before what was delivered."""
        self.restore(self.ledger.state())
        self._deliver()

    # What clients say

    def _take_ack(self, msg: Msg) -> bool:
        if self.is_closed:
            return False
        self.activity.touch(self.host.clock())
        consumer_acks.take(self, msg)
        self._acted()
        return True

    def _take_acks(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        if self.is_closed:
            return
        self.activity.touch(self.host.clock())
        consumer_acks.take_batch(self, origin, data, ops, first, stop)
        self._acted()

    def _acted(self) -> None:
        """Acks were acted on: go on, if anybody waits for messages."""
        if self.push is None and not len(self.requests):
            self._arm()
        else:
            self._deliver()

    def _take_request(self, msg: Msg) -> bool:
        if self.is_closed:
            return False
        consumer_requests.take(self, msg)
        if self.config.priority_groups:
            self._deliver_soon()  # of requests that arrive together, not the first but the best is served first
        else:
            self._deliver()
        return True

    def take_next(self, reply: bytes, payload: bytes) -> None:
        """An ack that asks for the next message."""
        consumer_requests.take_body(self, reply, payload)

    def _take_flow_answer(self, msg: Msg) -> None:
        if not self.is_closed and self.push is not None and self.push.takes_answer(msg):
            if self.config.ack_policy is AckPolicy.FLOW_CONTROL:
                consumer_acks.take_flow_answer(self, msg.headers)
            self._deliver()

    def _listeners_changed(self) -> None:
        if self.is_closed:
            return
        assert self.push is not None
        self.push.look()
        self._expect_deletion()
        self._deliver()

    def _expect_deletion(self) -> None:
        self.activity.expect(self.host.clock(), is_heard=self.push is not None and self.push.is_active)

    def _is_over(self, now_ns: int) -> bool:
        """Whether nobody used it for so long that it is to be deleted."""
        if self.activity.delete_at_ns > now_ns:
            return False
        self.requests.drop_unheard(self.account.has_interest)
        is_used = self.push.is_active if self.push is not None else len(self.requests) > 0
        waits = (time_ns + self.ledger.wait_ns(seq) for seq, _, time_ns in self.ledger.pending.entries())
        return self.activity.is_over(now_ns, is_used=is_used, busy_until_ns=max(waits, default=0))

    # Delivering

    def may_deliver(self, now_ns: int) -> bool:
        """Whether anything may be delivered at all."""
        if self.is_closed or self._is_held or self.pause.is_on(now_ns):
            return False
        return self.push.may_deliver if self.push is not None else len(self.requests) > 0

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
        self.delivered_ns = self.activity.active_ns = now_ns
        if self.push is not None:
            self.push.rest(now_ns)
        self.changed()

    def done_with(self, seqs: Sequence[int], *, are_late: bool = False) -> None:
        """The consumer needs some messages no longer; late ones were not pending."""
        if self.stream.interest is not None:
            self.stream.interest.acked(self, seqs, are_late=are_late)

    def is_sampled(self) -> bool:
        """Whether this ack is one to report."""
        return self.chance() * 100 < self.config.sample_percent

    def send_statuses(self, statuses: Iterable[Status]) -> None:
        """Tell clients how their requests stand."""
        for status in statuses:
            self.account.send(status.reply, headers=status.block)

    def send_heartbeat(self, subject: bytes) -> None:
        """Tell a client how far it is."""
        pairs = [
            (b"Nats-Last-Consumer", b"%d" % self.ledger.delivered_consumer_seq),
            (b"Nats-Last-Stream", b"%d" % (self.ledger.next_seq - 1)),
        ]
        if self.push is not None and self.push.asked:
            pairs.append((b"Nats-Consumer-Stalled", self.push.asked))
        self.account.send(subject, headers=status_block(100, "Idle Heartbeat", pairs))

    def _deliver(self) -> None:
        """Deliver what can be delivered, and see when to look again."""
        if self._is_delivering:  # what is sent may close a connection, which comes back here
            self._must_deliver_again = True
            return
        if self.is_closed:
            return
        self._is_delivering = True
        try:
            stop = self.delivery.pump()
            while self._must_deliver_again:
                self._must_deliver_again = False
                stop = self.delivery.pump()
        except Exception as error:  # whoever asked, published or subscribed just now is not to blame
            stop = self._failed(error)
        finally:
            self._is_delivering = False
        self._after_pump(stop)

    def _failed(self, error: Exception) -> Stop:
        """Something went wrong that nobody foresaw: it is told, and tried again a little later."""
        self.host.failed(f"delivery stream={self.stream.name} consumer={self.name}", error)
        self.delivery.wake_ns = self.host.clock() + SECOND_NS
        return Stop.LATER

    def _after_pump(self, stop: Stop) -> None:
        if self.is_closed:
            return
        if stop in (Stop.END, Stop.CLOSED) and not self._is_held:
            self.send_statuses(self.requests.end_of_stream())
        if stop is Stop.CHUNK:
            self._deliver_soon()
        if stop is Stop.FULL:
            self._signals.set_full(self)
            self._look()
        self._signals.set_waiting(self, stop is Stop.END)
        self._arm()

    def _look(self) -> None:
        """Drop what is pending and gone, and go on if it was too much until now."""
        was_full = self.ledger.is_full
        self.losses.look()
        if was_full and not self.ledger.is_full:
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.host.call_soon(self._deliver_now)

    def _deliver_now(self) -> None:
        self._is_scheduled = False
        self._deliver()

    # Time

    def _arm(self) -> None:
        """Wake up at the earliest deadline; a timer that fires before it does no harm."""
        due_ns = min(
            self.ledger.deadlines.next_ns or NEVER_NS,
            self.requests.next_deadline_ns,
            self.groups.pin_deadline_ns,
            self.pause.deadline_ns,
            self.delivery.wake_ns,
            self.push.heartbeat_at_ns if self.push is not None else NEVER_NS,
            self.activity.delete_at_ns,
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
        try:
            self._do_what_is_due(self.host.clock())
        except Exception as error:
            self._failed(error)
            self._arm()

    def _do_what_is_due(self, now_ns: int) -> None:
        if self._is_over(now_ns):
            self._delete()
            return
        self.give_up(self.submit(Expire(now_ns)), now_ns)
        statuses, beats = self.requests.tick(now_ns)
        self.send_statuses(statuses)
        for reply in beats:
            self.send_heartbeat(reply)
        if self.groups.pin_deadline_ns <= now_ns:
            self.unpin(self.groups.pinned_group, "timeout")
        if self.pause.ends(now_ns):
            self.events.paused(self.pause.until_ns, False)
        if self.push is not None:
            self.push.tick(now_ns)
        if (self.ledger.deadlines.next_ns or NEVER_NS) <= now_ns:  # more is to be delivered again before what is new
            self._arm()
        else:
            self._deliver()

    def _delete(self) -> None:
        """Nobody used it for long enough."""
        from jetlake.jetstream.consumers.registry import delete_consumer  # it knows this class

        delete_consumer(self, lambda: None)

    def give_up(self, dropped: list[Dropped], now_ns: int) -> None:
        """Messages were delivered as often as they may be."""
        if not dropped:
            return
        self.delivered_ns = now_ns
        self.events.max_deliveries(dropped)
        self.changed()

    def unpin(self, group: str, reason: str) -> None:
        """Let another client have its turn."""
        self.groups.unpin()
        self.events.unpinned(group, reason)

    # Keeping

    def snapshot(self) -> Snapshot:
        """What the file is to say."""
        meta = encode_meta(self.name, self.created_ns, self.config, self.start_seq, self.removals.seqs())
        return Snapshot(*self.ledger.snapshot(), meta)

    def changed(self) -> None:
        """Something changed that is to be kept."""
        if self.keeper is not None:
            self.keeper.changed()

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything up to now is kept; at once where nothing is."""
        if self.keeper is None:
            callback()
        else:
            self.keeper.when_durable(callback)

    # What the API asks

    def info(self, *, with_server: bool = True) -> dict[str, Any]:
        """The consumer in numbers."""
        self._look()
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
        now_ns = self.host.clock()
        self.submit(Configure(config))
        self.groups.configure(config)
        self.activity.configure(config, self.chance())
        if config.paused_until != self.pause.until_ns:
            self.pause.set(config.paused_until, now_ns)
            self.events.paused(config.paused_until, self.pause.is_on(now_ns))
        if self.push is not None:
            self._move_outlet(self.push, old)
        if set(config.filters) != set(old.filters):
            self.may_hold_others = True
            self.pending.use_filters(config.filters, self.stream.store)
            if not self.pending.has_list:
                self.submit(Advance(self.pending.resume_seq))
            self._signals.add(self)
            if self.stream.interest is not None:
                self.stream.interest.filters_changed(self)
        if config.inactive_threshold != old.inactive_threshold:
            self.activity.restart(now_ns)
        self._expect_deletion()
        self.changed()
        self._deliver()

    def _move_outlet(self, push: Push, old: ConsumerConfig) -> None:
        """Deliver to another subject, if it is another: what is pending goes there, too."""
        push.configure(self.config)
        if self.config.deliver_subject != old.deliver_subject:
            pending = [seq for seq, _, _ in self.ledger.pending.entries()]
            self.give_up(self.submit(Requeue(pending)), self.host.clock())
        push.watch(self._listeners_changed)

    def reset(self, next_seq: int) -> None:
        """Start anew at a sequence."""
        self.submit(Reset(next_seq))
        self.start_seq = next_seq
        self.pending.use_list((), 0)
        self.delivered_ns = self.acked_ns = 0
        if self.stream.interest is not None and self.stream.config.retention is Retention.INTEREST:
            self.stream.interest.check()
        self.changed()

    def resume(self) -> None:
        """Something changed that may let it deliver."""
        self._deliver()
