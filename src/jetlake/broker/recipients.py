"""Everybody whom a publish reaches: a stream, plain subscriptions, and one member of each queue group."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable
from typing import Protocol

from jetlake.broker.link_recipients import ALL_QUEUES, LinkRecipients, Names, spread
from jetlake.broker.peer import Peer
from jetlake.broker.recipient_table import deal
from jetlake.broker.sublist import Match
from jetlake.broker.subscription import Buffer, Msg, Subscription
from jetlake.ops import OP_WORDS

Group = tuple[Subscription, ...]
Stored = Callable[[str, bool, str], None]  # under which subject, whether nobody wants it, or why it was not stored


class Capture(Protocol):
    """What stores messages: a stream."""

    @property
    def name(self) -> str: ...
    @property
    def patterns(self) -> tuple[bytes, ...]: ...
    def ingest(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None: ...
    def ingest_msg(self, msg: Msg) -> None: ...
    def ingest_traced(self, msg: Msg, is_only: bool, done: Stored) -> None: ...


class Recipients:
    """Everybody whom a publish reaches."""

    __slots__ = ("capture", "is_shared", "is_uneven", "links", "plain", "queues")

    def __init__(
        self, capture: Capture | None, found: Match[Subscription], links: LinkRecipients | None = None
    ) -> None:
        """`found` is without links, if there are any."""
        self.capture, self.plain, self.queues, self.links = capture, found.plain, found.queues, links
        # Of two messages to the server or another account, one may reach somebody there and the other one nobody.
        self.is_uneven = any(sub.is_uneven for sub in found.plain)
        # Some members of a queue group are here, and some at other servers of the cluster: one is drawn each time.
        self.is_shared = links is not None and links.shares(found.queues)

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
        if not self.queues and self.links is None:
            return taken
        return self._carry_on(origin, data, ops, ops, first, stop, ALL_QUEUES) or taken

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
        self._carry_on(origin, data, ops, shown, first, stop, queues)

    def _carry_on(
        self,
        origin: Peer,
        data: Buffer,
        ops: array[int],
        shown: array[int],
        first: int,
        stop: int,
        queues: Names | None,
    ) -> bool:
        """Deliver to queue groups and links; False when nobody took anything."""
        if self.is_shared and stop - first > 1:
            if ops is shown and self._spread(origin, data, ops, first, stop, queues):
                return True
            runs = [
                self._carry_on(origin, data, ops, shown, number, number + 1, queues) for number in range(first, stop)
            ]
            return any(runs)
        links, served = self.links, []
        for group in self.queues:
            queue = group[0].queue
            if queues is not None and queue not in queues:
                continue
            if self.is_shared and links is not None and links.takes_over(group, origin):
                continue
            if _carry_to_one(group, origin, data, shown, first, stop):
                served.append(queue)
        sent = links is not None and links.carry(origin, data, ops, first, stop, served, queues)
        return sent or bool(served)

    def _spread(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int, queues: Names | None) -> bool:
        """Draw the members of the only queue group for a whole run; False when each message has to be looked at."""
        links, group = self.links, self.queues[0]
        assert links is not None
        is_named = queues is None or group[0].queue in queues
        if not (is_named and links.is_one_group and len(self.queues) == 1):
            return False
        if not all(sub.takes_all(origin) for sub in group):
            return False
        far = links.routes_of(group, origin)
        parts = spread(ops, first, stop, [*[1] * len(group), *far.values()])
        for sub, own in zip(group, parts, strict=False):
            if own:
                sub.deliver_run(origin, data, own, 0, len(own) // OP_WORDS)
        for link, own in zip(far, parts[len(group) :], strict=True):
            if own:
                link.send_run(origin, data, own, 0, len(own) // OP_WORDS, group[0].queue or b"")
        return True

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Deliver one message, into no stream; False when nobody took it. `via`: the subject that it was sent to."""
        taken = False
        for sub in self.plain:
            taken |= sub.deliver(msg, via)
        served = []
        for group in self.queues:
            if self.is_shared and self.links is not None and self.links.takes_over(group, msg.origin):
                continue
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
