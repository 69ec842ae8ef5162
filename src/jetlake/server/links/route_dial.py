"""Connecting to other servers of the cluster.

A route of the configuration is tried for ever, one that another server told of `connect_retries` times. The next try
comes in a second, and a little more at random, so that two servers do not keep meeting each other half-way; with
`connect_backoff` the time doubles, up to half a minute.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from jetlake.broker.route import Route
from jetlake.errors import JetLakeError
from jetlake.server.links.connection import RouteConnection
from jetlake.server.links.dial import client_context, connected_socket, verified_name
from jetlake.wire.routes import GOSSIP_USUAL

if TYPE_CHECKING:
    from jetlake.server.links.routes import Routes
    from jetlake.server.server import Server

DIAL_S_MAX = 1.0
WAIT_S, WAIT_S_MAX, JITTER_S = 1.0, 30.0, 0.1
TASKS_MAX = 256  # servers that are being connected to


class Dialer:
    """Connects to servers, each of them once at a time."""

    def __init__(self, server: Server, routes: Routes) -> None:
        self._server, self._routes = server, routes
        self._tasks: dict[tuple[str | None, int | None], asyncio.Task[None]] = {}

    def dial(
        self,
        url: str,
        *,
        is_explicit: bool,
        gossip_mode: int = GOSSIP_USUAL,
        is_again: bool = False,
    ) -> None:
        """Connect to a server; later, if the connection to it was lost just now."""
        key = _key(url)
        if key not in self._tasks and len(self._tasks) < TASKS_MAX:
            self._tasks[key] = task = self._server.loop.create_task(self._run(url, is_explicit, gossip_mode, is_again))
            task.add_done_callback(lambda done: self._tasks.pop(key, None) if self._tasks.get(key) is done else None)

    def stop(self) -> None:
        """Connect to nobody any more."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def _run(self, url: str, is_explicit: bool, gossip_mode: int, is_again: bool) -> None:
        attempts, wait_s = 0, WAIT_S
        if is_again:
            await asyncio.sleep(random.uniform(0, JITTER_S) + (WAIT_S if is_explicit else 0))
        while not is_explicit or url in self._routes.options.routes:
            try:
                await self._connect(url, is_explicit, gossip_mode)
                return
            except (OSError, TimeoutError, JetLakeError) as error:
                attempts += 1
                level = "error" if attempts == 1 else "debug"
                text = str(error) or "timeout"
                self._server.log(level, f"Error trying to connect to route (attempt {attempts}): {where(url)}: {text}")
            except Exception as error:
                self._server.failed("route", error)
                attempts += 1
            options = self._routes.options
            if not is_explicit and attempts > options.connect_retries:
                return
            await asyncio.sleep(wait_s + random.uniform(0, JITTER_S))
            if options.connect_backoff:
                wait_s = min(2 * wait_s, WAIT_S_MAX)

    async def _connect(self, url: str, is_explicit: bool, gossip_mode: int) -> None:
        found, loop, tls = urlsplit(url), self._server.loop, self._routes.options.tls
        sock = await asyncio.wait_for(connected_socket(loop, found), DIAL_S_MAX)

        def make(connection: RouteConnection, address: tuple[str, int]) -> Route:
            broker = self._server.broker
            self._tasks.pop(_key(url), None)  # it may be lost, and be tried again, before this task is over
            return Route(
                broker,
                self._routes,
                connection,
                broker.next_cid(),
                address,
                url=url,
                is_explicit=is_explicit,
                gossip_mode=gossip_mode,
            )

        connection = RouteConnection(self._server, make, self._routes.info_timeout_s)
        try:
            if tls is None:
                await loop.create_connection(lambda: connection, sock=sock)
                return
            await loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=client_context(tls, "cluster"),
                server_hostname=verified_name(found, self._configured()),
                ssl_handshake_timeout=tls.timeout_s,
            )
        except BaseException:
            sock.close()
            raise

    def _configured(self) -> list[SplitResult]:
        return [urlsplit(url) for url in self._routes.options.routes]


def _key(url: str) -> tuple[str | None, int | None]:
    found = urlsplit(url)
    return found.hostname, found.port


def where(url: str) -> str:
    """A URL without a password."""
    return urlsplit(url).netloc.rpartition("@")[2]
