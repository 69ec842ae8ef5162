"""What acks do to a consumer.

An ack that wants an answer gets it when the consumer's state, with the ack in it, is as durable as configured. Plain
acks that arrived together are read and applied by one kernel call each.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from jetlake.broker.subscription import Buffer, Msg, read_msg
from jetlake.jetstream.consumers.ack_pending import parse_acks
from jetlake.jetstream.consumers.ack_words import (
    AckKind,
    Delivery,
    is_ack_subject,
    nak_delay_ns,
    parse_payload,
    parse_subject,
)
from jetlake.jetstream.consumers.commands import Ack, AckAll, AckMany, Nak, Progress
from jetlake.jetstream.consumers.config import AckPolicy
from jetlake.jetstream.streams.answers import no_responders
from jetlake.wire.headers import header_value

if TYPE_CHECKING:
    from jetlake.broker.peer import Peer
    from jetlake.jetstream.consumers.consumer import Consumer


def take(consumer: Consumer, msg: Msg) -> None:
    """Act on one ack, of any kind."""
    delivery = parse_subject(msg.subject)
    if delivery is None:
        if not is_ack_subject(msg.subject):
            no_responders(msg)
        return
    kind, argument = parse_payload(msg.payload)
    is_known = True
    if kind in (AckKind.ACK, AckKind.NEXT):
        is_known = ack(consumer, delivery, is_sampled=True)
    elif kind is AckKind.TERM:
        is_known = ack(consumer, delivery, is_sampled=False)
        reason = argument.strip().decode("utf-8", "replace")
        consumer.events.terminated(delivery.seq, delivery.consumer_seq, delivery.deliveries, reason)
    elif kind is AckKind.NAK:
        nak(consumer, delivery, argument)
    elif kind is AckKind.PROGRESS:
        progress(consumer, delivery)
    if kind is AckKind.NEXT:
        consumer.take_next(msg.reply, argument)
    elif msg.reply and is_known:
        _answer(consumer, msg.reply)


def _answer(consumer: Consumer, reply: bytes) -> None:
    def answer() -> None:
        consumer.account.send(reply)

    consumer.when_durable(answer)


def take_batch(consumer: Consumer, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
    """Act on acks that arrived together."""
    if consumer.config.sample_percent:
        for number in range(first, stop):
            take(consumer, read_msg(data, ops, number, origin))
        return
    seqs, consumer_seqs = array("Q", bytes(8 * (stop - first))), array("Q", bytes(8 * (stop - first)))
    while first < stop:
        end = parse_acks(data, ops, first, stop, consumer.ack_prefix, seqs, consumer_seqs)
        if end > first:
            _ack_run(consumer, seqs, consumer_seqs, end - first)
        if end < stop:
            take(consumer, read_msg(data, ops, end, origin))
            end += 1
        first = end


def _ack_run(consumer: Consumer, seqs: array[int], consumer_seqs: array[int], count: int) -> None:
    ledger = consumer.ledger
    if consumer.config.ack_policy is AckPolicy.ALL:
        for place in range(count):
            ack(consumer, Delivery(1, seqs[place], consumer_seqs[place]), is_sampled=False)
        return
    removed: int = consumer.submit(AckMany(seqs, count))
    if consumer.stream.interest is not None:
        consumer.done_with(seqs[:removed])
        if removed < count:
            consumer.done_with([seq for seq in seqs[removed:count] if seq < ledger.next_seq], are_late=True)
    consumer.acked_ns = consumer.host.clock()
    consumer.changed()


def ack(consumer: Consumer, delivery: Delivery, *, is_sampled: bool) -> bool:
    """A message is acknowledged; False when it was never delivered."""
    ledger = consumer.ledger
    if delivery.seq >= ledger.next_seq and not consumer.config.flow_control:
        return False
    if consumer.config.ack_policy is AckPolicy.EXPLICIT:
        if is_sampled:
            _sample(consumer, delivery)
        was_pending: bool = consumer.submit(Ack(delivery.seq))
        consumer.done_with((delivery.seq,), are_late=not was_pending)
    else:
        consumer.done_with(consumer.submit(AckAll(delivery.consumer_seq, delivery.seq)))
    consumer.acked_ns = consumer.host.clock()
    consumer.changed()
    return True


def nak(consumer: Consumer, delivery: Delivery, argument: bytes) -> None:
    """A client refuses a message: it is to be delivered again."""
    ledger = consumer.ledger
    if not ledger.pending.consumer_seq(delivery.seq) or delivery.consumer_seq > ledger.delivered_consumer_seq:
        return
    consumer.events.naked(delivery.seq, delivery.consumer_seq, delivery.deliveries)
    delay_ns = nak_delay_ns(argument)
    if argument.strip() and delay_ns is None:
        consumer.host.log("warning", f"bad NAK delay stream={consumer.stream.name} consumer={consumer.name}")
    consumer.submit(Nak(delivery.seq, delay_ns, consumer.host.clock()))
    consumer.changed()


def progress(consumer: Consumer, delivery: Delivery) -> None:
    """A client is at work on a message."""
    now_ns = consumer.host.clock()
    if consumer.submit(Progress(delivery.seq, now_ns)):
        consumer.delivered_ns = now_ns
        consumer.changed()


def take_flow_answer(consumer: Consumer, headers: bytes) -> None:
    """An answer to flow control that says how far a client has come."""
    seq = _number(header_value(headers, b"Nats-Last-Stream"))
    if seq > 0:
        ack(consumer, Delivery(1, seq, _number(header_value(headers, b"Nats-Last-Consumer"))), is_sampled=False)


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else 0


def _sample(consumer: Consumer, delivery: Delivery) -> None:
    time_ns = consumer.ledger.pending.time_ns(delivery.seq)
    if time_ns and consumer.is_sampled():
        ack_time_ns = consumer.host.clock() - time_ns
        consumer.events.acked(delivery.seq, delivery.consumer_seq, delivery.deliveries, ack_time_ns)
