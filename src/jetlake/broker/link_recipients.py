"""The links that a publish goes to, and for which queue groups.

A link gets a message once, whatever it is interested in, with the names of the queue groups of which a member behind it
is to get it. The sending side chooses one member of each group, as nats-server does: those here and those at other
servers of the cluster have the same chance; those behind leaf nodes come last, in proportion to their weights.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.peer import Kind, Peer
from jetlake.broker.sublist import Match
from jetlake.broker.subscription import Buffer, Msg, Subscription
from jetlake.ops import OP_WORDS

if TYPE_CHECKING:
    from jetlake.broker.account_link import AccountLink

Names = tuple[bytes, ...]
ALL_QUEUES = None  # for a message that came from no link: whatever queue groups there are


class _Group(NamedTuple):
    """A queue group, and the links with members of it."""

    queue: bytes
    weights: dict[AccountLink, int]


class LinkRecipients:
    """The links that a publish goes to."""

    __slots__ = ("groups", "plain")

    def __init__(self, plain: tuple[AccountLink, ...], groups: tuple[_Group, ...]) -> None:
        self.plain, self.groups = plain, groups

    @property
    def key(self) -> tuple[int, ...]:
        """The same for all that reach the same."""
        groups = [mark for group in self.groups for mark in (hash(group.queue), *map(id, group.weights), 0)]
        return (-1, *map(id, self.plain), 0, *groups)

    def shares(self, queues: tuple[tuple[Subscription, ...], ...]) -> bool:
        """True when one of these groups has members at other servers of the cluster, too."""
        routed = {group.queue for group in self.groups if any(link.kind is Kind.ROUTE for link in group.weights)}
        return any(group[0].queue in routed for group in queues)

    def takes_over(self, group: tuple[Subscription, ...], origin: Peer) -> bool:
        """Whether a message for a group goes to a member at another server of the cluster: each time anew."""
        far = sum(self.routes_of(group, origin).values())
        return far > 0 and random.random() * (far + len(group)) < far

    def routes_of(self, group: tuple[Subscription, ...], origin: Peer) -> dict[AccountLink, int]:
        """The other servers of the cluster with members of a group, and how many."""
        weights = next((found.weights for found in self.groups if found.queue == group[0].queue), {})
        return {link: weight for link, weight in weights.items() if link.kind is Kind.ROUTE and link.takes_from(origin)}

    @property
    def is_one_group(self) -> bool:
        """True when there is one queue group, and nothing else."""
        return len(self.groups) == 1 and not self.plain

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
            if len(groups) == 1 and not plain and stop - first > 1:
                (queue, weights), *_ = groups
                for link, own in zip(weights, spread(ops, first, stop, list(weights.values())), strict=True):
                    if own:
                        link.send_run(origin, data, own, 0, len(own) // OP_WORDS, queue)
                return True
            sent = [
                _send(plain, _choose(groups), origin, data, ops, number, number + 1) for number in range(first, stop)
            ]
            return any(sent)
        return _send(plain, _choose(groups), origin, data, ops, first, stop)

    def deliver(self, msg: Msg, via: bytes | None, served: Collection[bytes | None]) -> bool:
        """Send one message; False when there was no link to send it to."""
        targets = self.targets(msg.origin, served)
        for link, names in targets.items():
            link.send_msg(msg, via, b" ".join(names))
        return bool(targets)

    def targets(
        self, origin: Peer, served: Collection[bytes | None], queues: Names | None = ALL_QUEUES
    ) -> dict[AccountLink, list[bytes]]:
        """The links that one message goes to, and for which queue groups."""
        targets = _choose(self._groups(origin, served, queues))
        for link in self.plain:
            if link.takes_from(origin):
                targets.setdefault(link, [])
        return targets

    def _groups(self, origin: Peer, served: Collection[bytes | None], queues: Names | None) -> list[_Group]:
        groups = []
        for queue, weights in self.groups:
            if queue not in served and (queues is None or queue in queues):
                able = {link: weight for link, weight in weights.items() if link.takes_from(origin)}
                near = {link: weight for link, weight in able.items() if link.kind is Kind.ROUTE}
                if able:
                    groups.append(_Group(queue, near or able))
        return groups


def split(found: Match[Subscription], subject: bytes) -> tuple[Match[Subscription], LinkRecipients | None]:
    """What a subject matches, without links, and the links. None when there are no links."""
    plain: dict[AccountLink, None] = {}
    local: dict[object, Subscription] = {}
    for sub in found.plain:
        link = sub.link
        if link is None:
            local.setdefault(id(sub) if sub.repeats is None else sub.repeats, sub)
        elif link.may_send(subject):
            plain[link] = None
    queues, groups = [], []
    for members in found.queues:
        weights: dict[AccountLink, int] = {}
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


def spread(ops: array[int], first: int, stop: int, weights: list[int]) -> list[array[int]]:
    """Operations for several takers, each drawn in proportion to its weight, and kept in order."""
    parts = [array("I") for _ in weights]
    at = first * OP_WORDS
    for place in random.choices(range(len(weights)), weights, k=stop - first):
        parts[place].extend(ops[at : at + OP_WORDS])
        at += OP_WORDS
    return parts


def _choose(groups: list[_Group]) -> dict[AccountLink, list[bytes]]:
    """One link for each queue group."""
    chosen: dict[AccountLink, list[bytes]] = {}
    for queue, weights in groups:
        links = list(weights)
        link = links[0] if len(links) == 1 else random.choices(links, list(weights.values()))[0]
        chosen.setdefault(link, []).append(queue)
    return chosen


def _send(
    plain: list[AccountLink],
    chosen: dict[AccountLink, list[bytes]],
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
