"""The connections of links: leaf nodes and routes, in both roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from jetlake.broker.auth import Credentials
from jetlake.broker.leaf import Leaf
from jetlake.broker.link import Link
from jetlake.broker.route import Route
from jetlake.config.cluster import PING_INTERVAL_S_MAX
from jetlake.server.address import peer_of
from jetlake.server.peer_connection import PeerConnection

if TYPE_CHECKING:
    from jetlake.server.server import Server

MakeLeaf = Callable[["LeafConnection", tuple[str, int]], Leaf]
MakeRoute = Callable[["RouteConnection", tuple[str, int]], Route]


class LinkConnection(PeerConnection):
    """One link's socket."""

    def check(self, link: Link, work: Coroutine[Any, Any, None]) -> None:
        """Find out who this is, and act on nothing meanwhile."""
        link.is_checking = True
        self.hold()
        self._server.spawn(self._check(link, work))

    async def _check(self, link: Link, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            link.is_checking = False
            rest, self._rest = bytearray(self._rest), b""
            with self._server.commits:
                self._act(rest, len(rest))
        except Exception as error:
            self._failed("login", error)
        self._server.flush()
        self.release()


class LeafConnection(LinkConnection):
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
        """Find out who this is, where that takes a while."""
        assert self.leaf is not None
        self.check(self.leaf, self._check_login(self.leaf, credentials))

    async def _check_login(self, leaf: Leaf, credentials: Credentials) -> None:
        user = await self._server.leafs.check(leaf, credentials)
        self._server.leafs.finish_login(leaf, user)


class RouteConnection(LinkConnection):
    """One route's socket."""

    def __init__(self, server: Server, make: MakeRoute, login_timeout_s: float) -> None:
        super().__init__(server)
        self._make, self._login_timeout_s = make, login_timeout_s
        self.route: Route | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._use_transport(transport)
        self._server.connected(self)
        self.peer = self.route = self._make(self, peer_of(transport.get_extra_info("peername")))
        self.route.greet()
        self._set_timer("login", self._login_timeout_s, self._not_in_time)
        self._start_pings()
        self._server.flush()

    def _not_in_time(self) -> None:
        route = self.route
        if route is not None and not (route.is_open or route.is_closed or route.is_switched):
            route.refuse("Authentication Timeout" if not route.is_admitted else "Stale Connection")
            self._server.flush()

    def _ping_interval_s(self) -> float:
        options = self._server.routes.options
        return min(options.ping_interval_s or self._server.options.ping_interval_s, PING_INTERVAL_S_MAX)

    def _ping_max(self) -> int:
        return self._server.routes.options.ping_max or super()._ping_max()

    def take_over(self, protocol: asyncio.BaseProtocol) -> tuple[asyncio.Transport, bytes]:
        """Let the connection be for something else from now on; its transport, and what was received already.

        Reading goes on when the caller says so: `transport.resume_reading()`.
        """
        transport, rest = self._transport, self._rest
        assert transport is not None and self.route is not None and self.route.is_switched
        for name in list(self._timers):
            self._cancel_timer(name)
        self._rest, self._transport = b"", None
        self._server.disconnected(self)
        transport.set_protocol(protocol)
        return transport, rest
