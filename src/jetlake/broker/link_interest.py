"""What a link is told of the subscriptions in its account.

Each subject is told once, however many subscriptions there are to it; of a queue group the total of its members, again
whenever that changes. Who it is that subscribes decides whether the link is told (`Peer.wants_interest_of`), and some
subjects are never told (`AccountLink.hides`).

A link that comes up is told of everything that is there, some subscriptions at a time. What comes meanwhile is told at
once, and what goes before its turn is not told at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jetlake.broker.account_link import AccountLink
    from jetlake.broker.peer import Peer

AT_ONCE = 1000  # subscriptions, before others have their turn


class Wanted(Protocol):
    """Interest of somebody in a subject."""

    @property
    def subject(self) -> bytes: ...
    @property
    def queue(self) -> bytes | None: ...
    @property
    def peer(self) -> Peer: ...
    @property
    def weight(self) -> int: ...
    @property
    def is_service(self) -> bool: ...


class LinkInterest:
    """What a link was told."""

    def __init__(self, link: AccountLink) -> None:
        self._link = link
        self._weights: dict[tuple[bytes, bytes | None], int] = {}
        self._waiting: dict[int, Wanted] = {}  # what is yet to be told, by identity

    def __len__(self) -> int:
        return len(self._weights)

    def begin(self, wanted: Iterable[Wanted]) -> None:
        """Tell what is there, by calls of `go_on`."""
        self._waiting = {id(found): found for found in wanted}

    def go_on(self) -> bool:
        """Tell some more; False when everything was told."""
        for _ in range(min(AT_ONCE, len(self._waiting))):
            _, found = self._waiting.popitem()
            self._change(found, found.weight)
        return bool(self._waiting)

    def added(self, found: Wanted) -> None:
        """Somebody subscribes."""
        self._change(found, found.weight)

    def removed(self, found: Wanted) -> None:
        """Somebody does no longer."""
        if self._waiting.pop(id(found), None) is None:
            self._change(found, -found.weight)

    def reweighed(self, found: Wanted, by: int) -> None:
        """The members behind a link became more, or fewer."""
        if id(found) not in self._waiting:
            self._change(found, by)

    def _change(self, found: Wanted, by: int) -> None:
        link, key = self._link, (found.subject, found.queue)
        if not link.wants_interest_of(found.peer) or link.hides(found.subject):
            return
        if found.is_service and not link.tells_services:
            return
        before = self._weights.get(key, 0)
        weight = max(before + by, 0)
        if weight:
            self._weights[key] = weight
            if found.queue is not None or not before:
                link.send(link.interest_line(found.subject, found.queue, weight))
        elif before:
            del self._weights[key]
            link.send(link.no_interest_line(found.subject, found.queue))
