"""What only a push consumer has: a subject that it delivers to, listeners, heartbeats, flow control and a rate limit.

It delivers while somebody is subscribed to just that subject, in its group if there is one; a wildcard does not count,
as for nats-server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from jetlake.broker.account import Watch
from jetlake.broker.subscription import Msg, Subscription
from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig
from jetlake.jetstream.consumers.flow_control import FlowControl, RateLimit
from jetlake.jetstream.consumers.pull_queue import NEVER_NS
from jetlake.subjects import encode_subject
from jetlake.wire.headers import status_block

if TYPE_CHECKING:
    from jetlake.jetstream.consumers.consumer import Consumer

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TOKEN_SIZE = 4


class Push:
    """The outlet of one push consumer."""

    def __init__(self, consumer: Consumer, config: ConsumerConfig) -> None:
        self._consumer = consumer
        self.is_active = False  # somebody listens
        self.flow = FlowControl() if config.flow_control else None
        self.rate: RateLimit | None = None
        self.heartbeat_at_ns = NEVER_NS
        self._watch: Watch | None = None
        self.configure(config)

    def configure(self, config: ConsumerConfig) -> None:
        """Take the subjects and rates of a configuration."""
        stream, host = self._consumer.stream, self._consumer.host
        self.subject = encode_subject(config.deliver_subject)
        self.group = encode_subject(config.deliver_group) if config.deliver_group else None
        self._heartbeat_ns = config.idle_heartbeat
        burst_size = stream.config.max_msg_size if stream.config.max_msg_size > 0 else host.options.max_payload
        self.rate = RateLimit(config.rate_limit_bps, burst_size, host.clock()) if config.rate_limit_bps else None

    def watch(self, changed: Callable[[], None]) -> None:
        """Look at who listens, from now on."""
        self.unwatch()
        self._watch = self._consumer.account.watch(self.subject, changed)
        self.look()

    def unwatch(self) -> None:
        if self._watch is not None:
            self._consumer.account.unwatch(self._watch)

    def look(self) -> None:
        """See whether somebody listens."""
        found = self._consumer.account.sublist.match(self.subject)
        subs: Iterable[Subscription] = found.plain
        if self.group is not None:
            subs = next((group for group in found.queues if group[0].queue == self.group), ())
        self.is_active = any(sub.subject == self.subject and sub.hears(self.subject) for sub in subs)

    @property
    def may_deliver(self) -> bool:
        return self.is_active and not (self.flow is not None and self.flow.is_stalled)

    def room(self, now_ns: int, size: int) -> int:
        """How many of some bytes may be sent before flow control or the rate limit are asked again."""
        if self.flow is not None:
            size = min(size, self.flow.room)
        if self.rate is not None:
            size = min(size, self.rate.room(now_ns))
        return size

    def sent(self, size: int) -> None:
        """Messages were sent."""
        if self.rate is not None:
            self.rate.sent(size)
        if self.flow is not None and (self.flow.sent(size) or self._must_ask_acks(is_full=True)):
            self._ask()

    # Flow control

    @property
    def asked(self) -> bytes:
        """Where the client is to answer; empty when it was not asked."""
        return self.flow.asked if self.flow is not None else b""

    def takes_answer(self, msg: Msg) -> bool:
        """Whether a message answers what was asked last."""
        return self.flow is not None and self.flow.answer(msg.subject)

    def _must_ask_acks(self, *, is_full: bool) -> bool:
        """Whether acks come by flow control alone, and some are missing; all that may be, if `is_full`."""
        ledger = self._consumer.ledger
        if ledger.ack_policy is not AckPolicy.FLOW_CONTROL or self.asked:
            return False
        return ledger.is_full if is_full else len(ledger.pending) > 0

    def _ask(self) -> None:
        """Ask the client to confirm what it got."""
        assert self.flow is not None
        consumer = self._consumer
        token = "".join(_ALPHABET[int(consumer.chance() * len(_ALPHABET))] for _ in range(_TOKEN_SIZE))
        reply = encode_subject(f"$JS.FC.{consumer.stream.name}.{consumer.name}.{token}")
        self.flow.ask(reply)
        consumer.account.send(self.subject, reply=reply, headers=status_block(100, "FlowControl Request"))

    # Heartbeats

    def rest(self, now_ns: int) -> None:
        """Something was sent, or it starts: the silence begins now."""
        if self._heartbeat_ns:
            self.heartbeat_at_ns = now_ns + self._heartbeat_ns

    def tick(self, now_ns: int) -> None:
        """Break the silence, if it lasted long enough."""
        if self.heartbeat_at_ns > now_ns:
            return
        self.rest(now_ns)
        if self.is_active:
            self._consumer.send_heartbeat(self.subject)
            if self._must_ask_acks(is_full=False):
                self._ask()
