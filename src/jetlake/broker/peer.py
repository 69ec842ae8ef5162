"""Who publishes and subscribes: a client, something inside the server, a link to another server.

A peer has a kind, an account, a way to take messages (its subscriptions, see `jetlake.broker.subscription`), and a
bound on the bytes that wait for it. The broker asks three things of it, and nothing else:

    wants_interest_of(other)   is it told what another peer subscribes to?
    takes_from(origin)         may it get what another peer published? (nothing goes in circles)
    kind.is_local              in a queue group local members come before those behind leaf nodes
"""

from __future__ import annotations

import sys
from array import array
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetlake.broker.account import Account


class Kind(Enum):
    """What a peer is, by the name that events have for it."""

    CLIENT = "Client"
    INTERNAL = "System"
    LEAF = "Leafnode"
    ROUTE = "Router"

    @property
    def is_local(self) -> bool:
        """True when the peer itself takes a message: there is no other server behind it."""
        return self not in (Kind.LEAF, Kind.ROUTE)


class Peer:
    """Somebody who publishes and subscribes in an account."""

    kind: Kind
    account: Account
    is_closed: bool = False

    def wants_interest_of(self, other: Peer) -> bool:
        """True when this peer is told of the subscriptions of another one."""
        return False

    def takes_from(self, origin: Peer) -> bool:
        """True when this peer may get messages of another one, or its own."""
        return True

    def room(self) -> int:
        """How many bytes of deliveries may be queued before they should pause."""
        raise NotImplementedError

    def unheard(self, data: bytes | bytearray, ops: array[int], first: int, stop: int) -> None:
        """Nobody took a run of publishes of this peer."""

    def hold(self) -> None:
        """Publish no more until `release`: a stream cannot write as fast."""

    def release(self) -> None:
        """Go on, once for each `hold`."""

    def hold_back(self, slow: Peer) -> None:
        """Publish no more for a moment: another peer cannot take it as fast."""

    def describe(self) -> dict[str, Any]:
        """What a service of another account is told of who asks it."""
        return {"acc": self.account.name}


class Internal(Peer):
    """The server itself, in one account: streams, consumers, services."""

    kind = Kind.INTERNAL

    def __init__(self, account: Account) -> None:
        self.account = account

    def room(self) -> int:
        """No bound: what the server takes itself is acted on at once."""
        return sys.maxsize
