"""The links that a publish goes to, and for which queue groups.

A link gets a message once, whatever it is interested in, with the names of the queue groups of which a member behind it
is to get it. The sending side chooses: members of a group that are here come first; if there are none, one of the links
that have some, in proportion to their weights.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.peer import Peer
from jetlake.broker.sublist import Match
from jetlake.broker.subscription import Buffer, Msg, Subscription

if TYPE_CHECKING:
    from jetlake.broker.link import Link

Names = tuple[bytes, ...]
ALL_QUEUES = None  # for a message that came from no link: whatever queue groups there are


class _Group(NamedTuple):
    """A queue group, and the links with members of it."""

    queue: bytes
    weights: dict[Link, int]


class LinkRecipients:
    """The links that a publish goes to."""

    __slots__ = ("groups", "plain")

    def __init__(self, plain: tuple[Link, ...], groups: tuple[_Group, ...]) -> None:
        self.plain, self.groups = plain, groups

    @property
    def key(self) -> tuple[int, ...]:
        """The same for all that reach the same."""
        groups = [mark for group in self.groups for mark in (hash(group.queue), *map(id, group.weights), 0)]
        return (-1, *map(id, self.plain), 0, *groups)

    def carry(
        self,
        origin: Peer,
        data: Buffer,
        ops: array[int],
        first: int,
        stop: int,
        served: Collection[bytes | None] = (),
        queues: Names | None = ALL_QUEUES,
    ) -> bool:
        """Send a run of publishes; False when there was no link to send them to.

        `served` are queue groups of which a member here got them, `queues` those that are asked for at all.
        """
        plain = [link for link in self.plain if link.takes_from(origin)]
        groups = self._groups(origin, served, queues)
        if any(len(group.weights) > 1 for group in groups):
            sent = [
                _send(plain, _choose(groups), origin, data, ops, number, number + 1) for number in range(first, stop)
            ]
            return any(sent)
        return _send(plain, _choose(groups), origin, data, ops, first, stop)

    def deliver(self, msg: Msg, via: bytes | None, served: Collection[bytes | None]) -> bool:
        """Send one message; False when there was no link to send it to."""
        targets = _choose(self._groups(msg.origin, served, ALL_QUEUES))
        for link in self.plain:
            if link.takes_from(msg.origin):
                targets.setdefault(link, [])
        for link, names in targets.items():
            link.send_msg(msg, via, b" ".join(names))
        return bool(targets)

    def _groups(self, origin: Peer, served: Collection[bytes | None], queues: Names | None) -> list[_Group]:
        groups = []
        for queue, weights in self.groups:
            if queue not in served and (queues is None or queue in queues):
                able = {link: weight for link, weight in weights.items() if link.takes_from(origin)}
                if able:
                    groups.append(_Group(queue, able))
        return groups


def split(found: Match[Subscription], subject: bytes) -> tuple[Match[Subscription], LinkRecipients | None]:
    """What a subject matches, without links, and the links. None when there are no links."""
    plain: dict[Link, None] = {}
    local: dict[object, Subscription] = {}
    for sub in found.plain:
        link = sub.link
        if link is None:
            local.setdefault(id(sub) if sub.repeats is None else sub.repeats, sub)
        elif link.may_send(subject):
            plain[link] = None
    queues, groups = [], []
    for members in found.queues:
        weights: dict[Link, int] = {}
        for sub in members:
            link = sub.link
            if link is not None and link.may_send(subject):
                weights[link] = weights.get(link, 0) + sub.weight
        if weights:
            assert members[0].queue is not None
            groups.append(_Group(members[0].queue, weights))
        if here := tuple(sub for sub in members if sub.link is None):
            queues.append(here)
    links = LinkRecipients(tuple(plain), tuple(groups)) if plain or groups else None
    return Match(tuple(local.values()), tuple(queues)), links


def _choose(groups: list[_Group]) -> dict[Link, list[bytes]]:
    """One link for each queue group."""
    chosen: dict[Link, list[bytes]] = {}
    for queue, weights in groups:
        links = list(weights)
        link = links[0] if len(links) == 1 else random.choices(links, list(weights.values()))[0]
        chosen.setdefault(link, []).append(queue)
    return chosen


def _send(
    plain: list[Link],
    chosen: dict[Link, list[bytes]],
    origin: Peer,
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
) -> bool:
    for link in plain:
        chosen.setdefault(link, [])
    for link, names in chosen.items():
        link.send_run(origin, data, ops, first, stop, b" ".join(names))
    return bool(chosen)
