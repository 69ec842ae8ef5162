"""What a consumer tells about itself: advisories, and metrics of sampled acks. Built only when somebody listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jetlake.jetstream.advisories import ADVISORY_PREFIX, encode_event, is_heard, send_advisory
from jetlake.jetstream.consumers.ledger import Dropped
from jetlake.subjects import encode_subject
from jetlake.wire.go_time import ZERO_TIME, format_time

if TYPE_CHECKING:
    from jetlake.jetstream.consumers.consumer import Consumer

DELETED_REASON = "Unacknowledged message was deleted"
_AT_ONCE = 100  # events that are sent before others have their turn


class ConsumerEvents:
    """The events of one consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def action(self, action: str) -> None:
        """It was made or deleted: `action` is create or delete."""
        event = {"create": "CREATED", "delete": "DELETED"}[action]
        self._send(event, "consumer_action", action=action)

    def paused(self, pause_until_ns: int | None, is_paused: bool) -> None:
        """It was paused, or goes on."""
        until = format_time(pause_until_ns) if pause_until_ns is not None else ZERO_TIME
        self._send("PAUSE", "consumer_pause", paused=is_paused, pause_until=until)

    def max_deliveries(self, dropped: list[Dropped]) -> None:
        """Messages were delivered as often as they may be."""
        self._send_many("MAX_DELIVERIES", dropped, self._max_deliveries)

    def _max_deliveries(self, dropped: Dropped) -> None:
        self._send("MAX_DELIVERIES", "max_deliver", stream_seq=dropped.seq, deliveries=dropped.deliveries)

    @property
    def are_deletions_heard(self) -> bool:
        """Whether it is of use to know which messages `deleted` is about."""
        return self._is_heard("MSG_TERMINATED")

    def deleted(self, dropped: list[Dropped]) -> None:
        """Messages that were pending left the stream."""
        self._send_many("MSG_TERMINATED", dropped, self._deleted)

    def _deleted(self, dropped: Dropped) -> None:
        self.terminated(dropped.seq, dropped.consumer_seq, dropped.deliveries, DELETED_REASON)

    def naked(self, seq: int, consumer_seq: int, deliveries: int) -> None:
        """A client refused a message."""
        self._send("MSG_NAKED", "nak", consumer_seq=consumer_seq, stream_seq=seq, deliveries=deliveries)

    def terminated(self, seq: int, consumer_seq: int, deliveries: int, reason: str) -> None:
        """A message will not be delivered again."""
        fields = {"consumer_seq": consumer_seq, "stream_seq": seq, "deliveries": deliveries}
        self._send("MSG_TERMINATED", "terminated", **fields, **({"reason": reason} if reason else {}))

    def pinned(self, group: str, pin_id: str) -> None:
        """A client was chosen."""
        self._send_group("PINNED", "consumer_group_pinned", group, pinned_id=pin_id)

    def unpinned(self, group: str, reason: str) -> None:
        """A client lost its place: `reason` is timeout or admin."""
        self._send_group("UNPINNED", "consumer_group_unpinned", group, reason=reason)

    def acked(self, seq: int, consumer_seq: int, deliveries: int, ack_time_ns: int) -> None:
        """A sampled ack."""
        consumer = self._consumer
        subject = encode_subject(f"$JS.EVENT.METRIC.CONSUMER.ACK.{consumer.stream.name}.{consumer.name}")
        if not is_heard(consumer.account, subject):
            return
        fields = {
            **self._names(),
            "consumer_seq": consumer_seq,
            "stream_seq": seq,
            "ack_time": ack_time_ns,
            "deliveries": deliveries,
        }
        event = encode_event(consumer.host, "io.nats.jetstream.metric.v1.consumer_ack", fields)
        consumer.account.send(subject, event)

    def _names(self) -> dict[str, Any]:
        return {"stream": self._consumer.stream.name, "consumer": self._consumer.name}

    def _send(self, event: str, type: str, **fields: Any) -> None:
        consumer = self._consumer
        send_advisory(consumer.account, consumer.host, self._subject(event), type, {**self._names(), **fields})

    def _send_many(self, event: str, dropped: list[Dropped], send: Callable[[Dropped], None]) -> None:
        """Tell of many messages, if anybody listens: of some of them now, of others after others had their turn."""
        if not self._is_heard(event):
            return
        for each in dropped[:_AT_ONCE]:
            send(each)
        if len(dropped) > _AT_ONCE:
            self._consumer.host.call_soon(lambda: self._send_many(event, dropped[_AT_ONCE:], send))

    def _is_heard(self, event: str) -> bool:
        return is_heard(self._consumer.account, encode_subject(ADVISORY_PREFIX + self._subject(event)))

    def _subject(self, event: str) -> str:
        return f"CONSUMER.{event}.{self._consumer.stream.name}.{self._consumer.name}"

    def _send_group(self, event: str, type: str, group: str, **fields: Any) -> None:
        consumer = self._consumer
        names = {"account": consumer.account.name, **self._names(), "group": group}
        send_advisory(consumer.account, consumer.host, self._subject(event), type, {**names, **fields})
