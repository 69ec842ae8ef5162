"""The delivery of a consumer's messages: from the store to whoever asked for them.

`pump` delivers as much as it may, in runs: one kernel call turns many messages into frames for one connection. It stops
when there is nothing to deliver or nobody to deliver to, and after a chunk's worth of bytes it lets others have their
turn. It never reads ahead of what a client can take.

Redeliveries come first, one by one. A message that several subscriptions get goes the long way, through the account.
"""

from __future__ import annotations

from array import array
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.subscription import FrameTarget
from jetlake.errors import MessageNotFound
from jetlake.jetstream.consumers._deliver_py import ack_reply
from jetlake.jetstream.consumers.commands import Advance, Deliver, GiveUp, Redeliver
from jetlake.jetstream.consumers.config import AckPolicy, PriorityPolicy, ReplayPolicy
from jetlake.jetstream.consumers.deliver import END, NO_LIMIT, SIZE, Run, frame_one, frames
from jetlake.jetstream.consumers.pull_queue import NEVER_NS, Verdict
from jetlake.jetstream.consumers.pull_request import PullRequest
from jetlake.store.api import StoredMsg
from jetlake.subjects import encode_subject
from jetlake.wire.headers import Pair, append_headers

if TYPE_CHECKING:
    from jetlake.jetstream.consumers.consumer import Consumer

CHUNK_SIZE = 256 * 1024
CHUNK_COUNT = 4096  # more small messages than a chunk holds
BUSY_NS = 5_000_000  # how long to wait for a client whose connection is full
# Requests that wait side by side get one message each in turn, or so many when they want many.
TURN_COUNT = 64
MANY_WANTED = 512
_SINGLE_COUNT_MAX = 1000  # messages that go the long way before others have their turn


class Stop(Enum):
    """Why the pump stopped."""

    CLOSED = auto()  # nothing may be delivered at all: paused, no interest, no request, flow control
    END = auto()  # nothing more to deliver, or nobody who may have it
    FULL = auto()  # too many messages are unacknowledged
    LATER = auto()  # at `wake_ns`
    CHUNK = auto()  # others have their turn first


class Outlet(NamedTuple):
    """Where the next messages go, and how many of them."""

    subject: bytes
    request: PullRequest | None
    sub: FrameTarget | None  # the only one to get them, if there is one that needs no rules
    count_max: int
    size_max: int


class Deliverer:
    """What delivers for one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.wake_ns = NEVER_NS  # when to go on, after LATER
        self._replay_last_seq = 0  # replay keeps the original pace up to here
        self._replayed_ns = self._replayed_at_ns = 0

    def start(self) -> None:
        """Take note of where the stream ends now."""
        if self._consumer.config.replay_policy is ReplayPolicy.ORIGINAL:
            self._replay_last_seq = self._consumer.stream.last_seq

    def pump(self) -> Stop:
        """Deliver what can be delivered; why it stopped."""
        consumer, budget, self.wake_ns = self._consumer, CHUNK_SIZE, NEVER_NS
        while budget > 0:
            now_ns = consumer.host.clock()
            if not consumer.may_deliver(now_ns):
                return Stop.CLOSED
            if consumer.ledger.is_full and not consumer.ledger.queue:
                return Stop.FULL
            if (stop := self._must_wait(now_ns)) is not None:
                return stop
            if consumer.groups.is_pinning and not self._has_next():
                return Stop.END  # nobody is pinned, or told of a wrong pin, before there is a message
            outlet = self._outlet(now_ns, budget)
            if outlet is None:
                return Stop.END
            if outlet.sub is not None and outlet.sub.room() <= 0:
                self.wake_ns = now_ns + BUSY_NS
                return Stop.LATER
            size = self._redeliver(outlet, now_ns) if consumer.ledger.queue else self._deliver(outlet, now_ns)
            if size < 0:
                return Stop.END
            budget -= size
        return Stop.CHUNK

    # Whether, where, how much

    def _must_wait(self, now_ns: int) -> Stop | None:
        """Is it too early for the next message, by a rate limit or the pace of the original?"""
        consumer = self._consumer
        rate = consumer.push.rate if consumer.push is not None else None
        if rate is not None and (wait_ns := rate.wait_ns(now_ns)):
            self.wake_ns = now_ns + wait_ns
            return Stop.LATER
        if self._is_replaying and self._replayed_ns and not consumer.ledger.queue:
            message = self._next_message()
            if message is not None:
                due_ns = self._replayed_at_ns + message.time_ns - self._replayed_ns
                if due_ns > now_ns + 1_000_000:
                    self.wake_ns = due_ns
                    return Stop.LATER
        return None

    @property
    def _is_replaying(self) -> bool:
        return self._consumer.ledger.next_seq <= self._replay_last_seq

    def _next_message(self) -> StoredMsg | None:
        consumer = self._consumer
        if not consumer.pending.has_list:
            return consumer.stream.store.load_next(consumer.ledger.next_seq, consumer.pending.filters)
        with suppress(MessageNotFound):
            return consumer.stream.store.load(consumer.pending.first_listed)
        return None

    def _next_seq(self) -> int | None:
        pending, queries = self._consumer.pending, self._consumer.stream.store.queries
        if pending.has_list:
            return pending.first_listed
        return queries.next_seq(queries.filter(pending.filters), self._consumer.ledger.next_seq)

    def _has_next(self) -> bool:
        """Whether there is something to deliver."""
        if self._consumer.ledger.queue:
            return True
        seq = self._next_seq()
        return seq is not None and seq <= self._consumer.stream.log.committed_seq

    def _outlet(self, now_ns: int, budget: int) -> Outlet | None:
        consumer = self._consumer
        room = consumer.ledger.room
        count_max = 1 if self._is_replaying else NO_LIMIT if room < 0 else max(room, 1)
        push = consumer.push
        if push is not None:
            sub = consumer.account.target(push.subject, push.group)
            return Outlet(push.subject, None, sub, count_max, push.room(now_ns, budget))
        request = self._next_request(now_ns)
        if request is None:
            return None
        count_max = min(count_max, self._turn(request, now_ns))
        sub = consumer.account.target(request.reply)
        return Outlet(request.reply, request, sub, count_max, min(budget, request.bytes_left or budget))

    def _next_request(self, now_ns: int) -> PullRequest | None:
        consumer = self._consumer
        groups, ledger = consumer.groups, consumer.ledger
        num_pending = consumer.num_pending() if groups.policy is PriorityPolicy.OVERFLOW else 0

        def admits(request: PullRequest) -> Verdict:
            return groups.admits(request, num_pending, len(ledger.pending))

        request, statuses = consumer.requests.next(now_ns, admits, consumer.account.has_interest)
        consumer.send_statuses(statuses)
        return request

    def _turn(self, request: PullRequest, now_ns: int) -> int:
        """How many messages a request gets before the next one has its turn, with those that are served as one."""
        requests = self._consumer.requests
        if request.min_pending > 0 or request.min_ack_pending > 0:
            return 1  # each message is weighed anew
        if len(requests) == 1:
            return request.wanted
        together, wanted = requests.together(now_ns, CHUNK_COUNT)
        if together == len(requests):
            return wanted
        return min(wanted, TURN_COUNT if requests.batch_sum > MANY_WANTED else together)

    # New messages

    def _deliver(self, outlet: Outlet, now_ns: int) -> int:
        """Deliver new messages; their size, -1 when there are none."""
        consumer = self._consumer
        is_pinned = outlet.request is not None and consumer.groups.pin(outlet.request, now_ns)
        if outlet.sub is None:
            size, count = self._deliver_long_way(outlet, now_ns)
        else:
            size, count = self._deliver_run(outlet, outlet.sub, now_ns)
        if is_pinned:
            if count:
                consumer.events.pinned(consumer.groups.pinned_group, consumer.groups.pin_id)
            else:
                consumer.groups.unpin(outlet.request)
        return size

    def _deliver_run(self, outlet: Outlet, sub: FrameTarget, now_ns: int) -> tuple[int, int]:
        """Deliver by the kernel; size (-1 at the end) and count."""
        consumer, is_listed = self._consumer, self._consumer.pending.has_list
        start_seq = consumer.pending.first_listed if is_listed else consumer.ledger.next_seq
        last_seq = consumer.stream.log.committed_seq
        if start_seq > last_seq:
            return -1, 0
        run = self._frames(outlet, sub, start_seq, start_seq if is_listed else last_seq)
        if run is None:
            consumer.send_statuses(consumer.requests.refuse_head())
            return 0, 0
        if run.count:
            sub.take_frames(bytes(run.data), run.count)
        # The kernel knows where the next match is. Should the filter change, what lies before it counts again, unless
        # somebody waits for more than there is.
        is_at_end = not run.count or (run.reason == END and run.count < outlet.count_max)
        next_seq = run.next_seq if is_at_end else max(run.seqs[-1], *run.damaged, 0) + 1
        self._note_run(outlet, run.seqs, len(run.damaged), next_seq, run.size, now_ns)
        if run.count or run.damaged or is_listed:
            return max(run.size, 1), run.count
        return -1, 0

    def _frames(self, outlet: Outlet, sub: FrameTarget, start_seq: int, last_seq: int) -> Run | None:
        """Frames of the next messages; None when the first does not fit into what its request allows."""
        run = self._frame(outlet, sub, start_seq, last_seq, outlet.count_max, outlet.size_max)
        if run.count or run.reason != SIZE:
            return run
        # A message that is larger than a chunk goes alone.
        allowed = outlet.request.bytes_left if outlet.request is not None else 0
        run = self._frame(outlet, sub, start_seq, last_seq, 1, allowed or NO_LIMIT)
        return run if run.count or run.reason != SIZE else None

    def _frame(
        self, outlet: Outlet, sub: FrameTarget, start_seq: int, last_seq: int, count_max: int, size_max: int
    ) -> Run:
        consumer, store = self._consumer, self._consumer.stream.store
        return frames(
            store,
            start_seq,
            last_seq,
            store.queries.filter(consumer.pending.filters),
            count_max,
            size_max,
            sub.sid,
            consumer.ack_prefix,
            consumer.ledger.delivered_consumer_seq + 1,
            consumer.num_pending(),
            consumer.config.headers_only,
            consumer.extra_headers(outlet.request),
        )

    def _note_run(
        self, outlet: Outlet, seqs: array[int], damaged_count: int, next_seq: int, size: int, now_ns: int
    ) -> None:
        """Take note of what was delivered."""
        consumer = self._consumer
        is_listed = consumer.pending.has_list
        consumer.pending.taken(len(seqs) + damaged_count, next_seq)
        if is_listed:
            next_seq = consumer.pending.first_listed if consumer.pending.has_list else consumer.pending.resume_seq
        consumer.submit(Deliver(seqs, next_seq, now_ns))
        if not seqs:
            return
        if self._is_replaying or self._replayed_ns:
            self._note_pace(seqs[-1], now_ns)
        if consumer.config.ack_policy is AckPolicy.NONE:
            consumer.done_with(seqs)
        self._delivered(outlet, len(seqs), size, now_ns)

    def _note_pace(self, seq: int, now_ns: int) -> None:
        try:
            self._replayed_ns, self._replayed_at_ns = self._consumer.stream.store.load(seq).time_ns, now_ns
        except MessageNotFound:
            self._replayed_ns = 0

    def _delivered(self, outlet: Outlet, count: int, size: int, now_ns: int) -> None:
        consumer = self._consumer
        consumer.delivered(now_ns)
        if outlet.request is not None:
            consumer.send_statuses(consumer.requests.served(count, size, now_ns))
        if consumer.push is not None:
            consumer.push.sent(size)

    # One by one

    def _deliver_long_way(self, outlet: Outlet, now_ns: int) -> tuple[int, int]:
        """Deliver the next message to everybody who gets it; size (-1 at the end) and count."""
        consumer = self._consumer
        pending, ledger = consumer.pending, consumer.ledger
        message = self._next_message()
        if pending.has_list and message is None:
            self._note_run(outlet, array("Q"), 0, 0, 0, now_ns)
            return 1, 0
        if message is None or message.seq > consumer.stream.log.committed_seq:
            consumer.submit(Advance(consumer.stream.log.committed_seq + 1))
            return -1, 0
        num_pending = consumer.num_pending() - 1
        size = self._send(outlet, message, 1, ledger.delivered_consumer_seq + 1, max(num_pending, 0))
        if size < 0:
            return 0, 0
        self._note_run(outlet, array("Q", (message.seq,)), 0, message.seq + 1, size, now_ns)
        return max(size, CHUNK_SIZE // _SINGLE_COUNT_MAX), 1

    def _redeliver(self, outlet: Outlet, now_ns: int) -> int:
        """Deliver the first message of the queue again; its size, 0 when it could not be, or not any more."""
        consumer = self._consumer
        ledger, seq = consumer.ledger, consumer.ledger.queue.peek()
        if ledger.is_exhausted(seq):
            consumer.give_up([consumer.submit(GiveUp(seq))], now_ns)
            return 0
        try:
            message = consumer.stream.store.load(seq)
        except MessageNotFound:
            consumer.removed(seq)
            return 0
        deliveries = ledger.deliveries(seq) + 1
        is_pinned = outlet.request is not None and consumer.groups.pin(outlet.request, now_ns)
        size = self._send(outlet, message, deliveries, ledger.delivered_consumer_seq + 1, consumer.num_pending())
        if size < 0:
            if is_pinned:
                consumer.groups.unpin(outlet.request)
            return 0
        if is_pinned:
            consumer.events.pinned(consumer.groups.pinned_group, consumer.groups.pin_id)
        consumer.submit(Redeliver(seq, now_ns))
        self._delivered(outlet, 1, size, now_ns)
        return max(size, 1)

    def _send(self, outlet: Outlet, message: StoredMsg, deliveries: int, consumer_seq: int, num_pending: int) -> int:
        """Send one message; its size, -1 when it does not fit into what the request allows."""
        consumer = self._consumer
        headers_only, extra = consumer.config.headers_only, consumer.extra_headers(outlet.request)
        if outlet.sub is not None:
            frame, size = frame_one(
                message,
                outlet.sub.sid,
                consumer.ack_prefix,
                deliveries,
                consumer_seq,
                num_pending,
                headers_only,
                extra,
            )
            if not self._fits(outlet, size):
                return -1
            outlet.sub.take_frames(frame, 1)
            return size
        reply = ack_reply(consumer.ack_prefix, deliveries, message.seq, consumer_seq, message.time_ns, num_pending)
        subject, headers, payload = encode_subject(message.subject), message.headers, message.payload
        if headers_only:
            headers, payload = append_headers(headers, [(b"Nats-Msg-Size", b"%d" % len(payload))]), b""
        size = len(subject) + len(reply) + len(headers) + len(payload)
        if not self._fits(outlet, size):
            return -1
        if extra:
            headers = append_headers(headers, [_pair(extra)])
        consumer.account.send(subject, payload, reply=reply, headers=headers, via=outlet.subject)
        return size

    def _fits(self, outlet: Outlet, size: int) -> bool:
        """Whether a message fits into its request, which ends here if it does not."""
        request = outlet.request
        if request is None or not request.bytes_left or size <= request.bytes_left:
            return True
        self._consumer.send_statuses(self._consumer.requests.refuse_head())
        return False


def _pair(line: bytes) -> Pair:
    name, _, value = line.removesuffix(b"\r\n").partition(b": ")
    return name, value
