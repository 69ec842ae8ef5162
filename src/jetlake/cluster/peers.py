"""Which peers are there: one judgement per pair of nodes, for all the groups that they share.

    peers = Peers(clock, up, down)
    peers.connected(2, epoch=7) · heard(2) · lost(2) · refused(2)     as the links see it
    peers.tick()                                                      every 100 ms

A peer is down when nothing was heard of it for 600 ms, when a connection was lost and not there again within 250 ms,
or at once when it refuses a connection: then its process is gone. Whoever is down is up again with the next
connection, or with the next word. Every node sends a ping to all its peers with each tick, so that silence means
something.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from jetlake.clock import Clock

SILENCE_NS = 600_000_000
RECONNECT_NS = 250_000_000
# A frame that only says "here": size, group, kind (`engine/src/lib.rs`).
PING = struct.pack("<IQB", 9, 0, 34)


@dataclass
class _Peer:
    heard_ns: int
    epoch: int = 0
    lost_ns: int | None = None
    is_up: bool = False


class Peers:
    """The judgement of one node about the others."""

    def __init__(self, clock: Clock, up: Callable[[int, int], None], down: Callable[[int], None]) -> None:
        self._clock, self._up, self._down = clock, up, down
        self._peers: dict[int, _Peer] = {}

    @property
    def up(self) -> list[int]:
        """The nodes that are there."""
        return [node for node, peer in self._peers.items() if peer.is_up]

    def silent_ns(self, node: int) -> int:
        """How long nothing was heard of a node; 0 if it never was."""
        peer = self._peers.get(node)
        return max(self._clock() - peer.heard_ns, 1) if peer is not None else 0

    def connected(self, node: int, epoch: int) -> None:
        """A connection is there. A later one has a higher epoch, and replaces it."""
        peer = self._peers.setdefault(node, _Peer(self._clock()))
        if epoch < peer.epoch:
            return
        peer.epoch, peer.heard_ns, peer.lost_ns, peer.is_up = epoch, self._clock(), None, True
        self._up(node, epoch)

    def heard(self, node: int, epoch: int) -> bool:
        """Something came from a peer; whether it is to be listened to."""
        peer = self._peers.get(node)
        if peer is None or epoch < peer.epoch:
            return False
        peer.heard_ns = self._clock()
        if not peer.is_up:
            peer.is_up, peer.lost_ns = True, None
            self._up(node, epoch)
        return True

    def lost(self, node: int, epoch: int) -> None:
        """A connection ended. Another one may follow."""
        peer = self._peers.get(node)
        if peer is not None and epoch == peer.epoch and peer.is_up and peer.lost_ns is None:
            peer.lost_ns = self._clock()

    def refused(self, node: int) -> None:
        """Nobody listens where the peer was: its process is gone."""
        peer = self._peers.setdefault(node, _Peer(self._clock(), is_up=True))
        self._is_down(node, peer)

    def removed(self, node: int) -> None:
        """It is no peer any more."""
        self._peers.pop(node, None)

    def tick(self) -> None:
        """Look who has been silent for too long."""
        now = self._clock()
        for node, peer in list(self._peers.items()):
            is_silent = now - peer.heard_ns > SILENCE_NS
            is_lost = peer.lost_ns is not None and now - peer.lost_ns > RECONNECT_NS
            if is_silent or is_lost:
                self._is_down(node, peer)

    def _is_down(self, node: int, peer: _Peer) -> None:
        if peer.is_up:
            peer.is_up, peer.lost_ns = False, None
            self._down(node)
