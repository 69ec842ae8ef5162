"""Everybody whom a publish reaches: a stream, plain subscriptions, and one member of each queue group."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable
from typing import Protocol

from jetlake.broker.link_recipients import LinkRecipients, Names
from jetlake.broker.peer import Peer
from jetlake.broker.recipient_table import deal
from jetlake.broker.sublist import Match
from jetlake.broker.subscription import Buffer, Msg, Subscription
from jetlake.ops import OP_WORDS

Group = tuple[Subscription, ...]


class Capture(Protocol):
    """What stores messages: a stream."""

    @property
    def patterns(self) -> tuple[bytes, ...]: ...
    def ingest(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None: ...
    def ingest_msg(self, msg: Msg) -> None: ...


class Recipients:
    """Everybody whom a publish reaches."""

    __slots__ = ("capture", "is_uneven", "links", "plain", "queues")

    def __init__(
        self, capture: Capture | None, found: Match[Subscription], links: LinkRecipients | None = None
    ) -> None:
        """`found` is without links, if there are any."""
        self.capture, self.plain, self.queues, self.links = capture, found.plain, found.queues, links
        # Of two messages to the server or another account, one may reach somebody there and the other one nobody.
        self.is_uneven = any(sub.is_uneven for sub in found.plain)

    @property
    def is_stream(self) -> bool:
        """Whether a stream gets the messages, and nobody else."""
        return self.capture is not None and not self.plain and not self.queues and self.links is None

    @property
    def key(self) -> tuple[int, ...]:
        """The same for all that reach the same."""
        groups = [mark for group in self.queues for mark in (*map(id, group), 0)]
        capture = id(self.capture) if self.capture is not None else 0
        links = self.links.key if self.links is not None else ()
        return (capture, *map(id, self.plain), *([0, *groups] if groups else []), *links)

    def carry(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> bool:
        """Deliver a run of publishes; False when they reached nobody."""
        taken = False
        if self.capture is not None:
            self.capture.ingest(origin, data, ops, first, stop)
            taken = True
        for sub in self.plain:
            taken |= sub.deliver_run(origin, data, ops, first, stop)
        served = []
        for group in self.queues:
            if _carry_to_one(group, origin, data, ops, first, stop):
                served.append(group[0].queue)
        if self.links is not None:
            taken |= self.links.carry(origin, data, ops, first, stop, served)
        return taken or bool(served)

    def carry_from_link(
        self, origin: Peer, data: Buffer, ops: array[int], shown: array[int], first: int, stop: int, queues: Names
    ) -> None:
        """Deliver what came over a link: of queue groups to those that the other side chose.

        Subscribers see the operations `shown`; streams and other links get them as they came.
        """
        if self.capture is not None:
            self.capture.ingest(origin, data, ops, first, stop)
        for sub in self.plain:
            sub.deliver_run(origin, data, shown, first, stop)
        served = []
        for group in self.queues:
            queue = group[0].queue
            if queue in queues and _carry_to_one(group, origin, data, shown, first, stop):
                served.append(queue)
        if self.links is not None:
            self.links.carry(origin, data, ops, first, stop, served, queues)

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Deliver one message, into no stream; False when nobody took it. `via`: the subject that it was sent to."""
        taken = False
        for sub in self.plain:
            taken |= sub.deliver(msg, via)
        served = []
        for group in self.queues:
            if any(sub.deliver(msg, via) for sub in shuffled(group)):
                served.append(group[0].queue)
        if self.links is not None:
            taken |= self.links.deliver(msg, via, served)
        return taken or bool(served)


def _carry_to_one(group: Group, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> bool:
    """Give each of a run of publishes to one member of a queue group; False when nobody took any."""
    if len(group) == 1:
        return group[0].deliver_run(origin, data, ops, first, stop)
    if stop - first >= len(group) and all(sub.takes_all(origin) for sub in group):
        for sub, own in zip(group, deal(ops, first, stop, len(group), random.getrandbits(64)), strict=True):
            if own:
                sub.deliver_run(origin, data, own, 0, len(own) // OP_WORDS)
        return True
    taken = False
    for number in range(first, stop):
        taken |= any(sub.deliver_run(origin, data, ops, number, number + 1) for sub in shuffled(group))
    return taken


def shuffled(group: Group) -> Iterable[Subscription]:
    """The members of a queue group, a random one first: whoever follows stands in if it cannot take the message."""
    start = int(random.random() * len(group))
    return group[start:] + group[:start]
