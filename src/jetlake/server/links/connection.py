"""The connection of a leaf, in both roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from jetlake.broker.auth import Credentials
from jetlake.broker.leaf import Leaf
from jetlake.server.address import peer_of
from jetlake.server.peer_connection import PeerConnection

if TYPE_CHECKING:
    from jetlake.server.server import Server

MakeLeaf = Callable[["LeafConnection", tuple[str, int]], Leaf]


class LeafConnection(PeerConnection):
    """One leaf's socket."""

    def __init__(self, server: Server, make: MakeLeaf, login_timeout_s: float, first: bytes = b"") -> None:
        """`first` was received already."""
        super().__init__(server)
        self._make, self._login_timeout_s, self._first = make, login_timeout_s, first
        self.leaf: Leaf | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._use_transport(transport)
        self._server.connected(self)
        if self.leaf is None:
            self.peer = self.leaf = self._make(self, peer_of(transport.get_extra_info("peername")))
        if not self.leaf.is_solicited and not self.is_greeted:
            self.leaf.greet()
        self._set_timer("login", self._login_timeout_s, self._not_in_time)
        self._start_pings()
        if self._first:
            first, self._first = bytearray(self._first), b""
            self._act(first, len(first))
        self._server.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.set()

    def _not_in_time(self) -> None:
        leaf = self.leaf
        if leaf is not None and not leaf.is_open and not leaf.is_closed:
            leaf.refuse("Stale Leaf Node Connection - Closing" if leaf.is_solicited else "Authentication Timeout")
            self._server.flush()

    def check_login(self, credentials: Credentials) -> None:
        """Find out who this is, and read nothing meanwhile."""
        self.hold()
        self._server.spawn(self._check_login(credentials))

    async def _check_login(self, credentials: Credentials) -> None:
        leaf = self.leaf
        assert leaf is not None
        try:
            user = await self._server.leafs.check(leaf, credentials)
            self._server.leafs.finish_login(leaf, user)
            rest, self._rest = bytearray(self._rest), b""
            with self._server.commits:
                self._act(rest, len(rest))
        except Exception as error:
            self._failed("login", error)
        self._server.flush()
        self.release()
