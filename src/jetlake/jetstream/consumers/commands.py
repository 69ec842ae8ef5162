"""Commands: everything that can happen to what a consumer remembers of its deliveries, as data.

`Ledger.apply` carries them out. Times are in the command, so the same commands make the same ledger wherever they
are applied. Commands are small but for the runs of a batch, which are arrays.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from jetlake.jetstream.consumers.config import ConsumerConfig

EXPIRED_COUNT_MAX = 4096  # messages that become due before others have their turn


class Deliver(NamedTuple):
    """Messages were delivered for the first time; the search for new ones goes on at `next_seq`."""

    seqs: array[int]
    next_seq: int
    now_ns: int


class Redeliver(NamedTuple):
    """A message that waited for it was delivered again."""

    seq: int
    now_ns: int


class Advance(NamedTuple):
    """The search for new messages goes on at a sequence, unless it is further already."""

    next_seq: int


class Ack(NamedTuple):
    """A message is acknowledged, or terminated."""

    seq: int


class AckMany(NamedTuple):
    """The first `seq_count` messages are acknowledged; applied, those that were pending stand in front."""

    seqs: array[int]
    seq_count: int


class AckAll(NamedTuple):
    """A message and all before it are acknowledged."""

    consumer_seq: int
    seq: int


class Nak(NamedTuple):
    """A message is to be delivered again, now or after a delay."""

    seq: int
    delay_ns: int | None
    now_ns: int


class Progress(NamedTuple):
    """A client works on a message: its wait starts anew."""

    seq: int
    now_ns: int


class Expire(NamedTuple):
    """What was not acknowledged in time is to be delivered again, about so many."""

    now_ns: int
    count_max: int = EXPIRED_COUNT_MAX


class Requeue(NamedTuple):
    """Pending messages are to be delivered again."""

    seqs: Sequence[int]


class GiveUp(NamedTuple):
    """A message was delivered as often as it may be."""

    seq: int


class Drop(NamedTuple):
    """Messages are gone from the stream."""

    seqs: array[int]


class ForgetCounts(NamedTuple):
    """How often these were delivered need not be known: they are gone, and were not pending."""

    seqs: Sequence[int]


class SkipTo(NamedTuple):
    """Everything below a sequence is gone for this consumer."""

    seq: int


class Reset(NamedTuple):
    """The consumer starts anew at a sequence."""

    next_seq: int


class Configure(NamedTuple):
    """Other waits and bounds."""

    config: ConsumerConfig


Command = (
    Deliver
    | Redeliver
    | Advance
    | Ack
    | AckMany
    | AckAll
    | Nak
    | Progress
    | Expire
    | Requeue
    | GiveUp
    | Drop
    | ForgetCounts
    | SkipTo
    | Reset
    | Configure
)
