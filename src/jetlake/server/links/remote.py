"""A hub that this server is a leaf of: connecting, staying connected, and what CONNECT says.

URLs are tried in turn, those that the hub tells of included. After a lost link the next try comes in `reconnect`; after
one that failed some more, at random, so that a hub that comes back is not stormed; and after an error that will not go
away soon, in half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from jetlake.broker.broker import GLOBAL_ACCOUNT
from jetlake.broker.leaf import Leaf, Rules
from jetlake.config import LeafRemote
from jetlake.errors import JetLakeError
from jetlake.server.links.connection import LeafConnection
from jetlake.server.links.credentials import credentials_for
from jetlake.server.links.dial import BadHub, client_context, connected_socket, first_line, verified_name
from jetlake.server.links.leafs import PROTOCOL
from jetlake.wire.links import Info, LinkInfo, parse_link_line

if TYPE_CHECKING:
    from jetlake.server.server import Server

CONNECT_TIMEOUT_S = 2.0  # for the hub to let this server in
DISCOVERED_MAX = 1024
_SECURE = ("tls",)
WEBSOCKET_SCHEMES = ("ws", "wss")


def remote_key(options: LeafRemote) -> object:
    """What makes a remote this one: where it connects to, and as whom."""
    return options.urls, options.account, options.credentials, options.nkey_seed


class Remote:
    """One hub."""

    def __init__(self, server: Server, options: LeafRemote) -> None:
        self._server, self.options = server, options
        self.urls = [urlsplit(url) for url in options.urls]
        if not options.no_randomize:
            random.shuffle(self.urls)
        self._discovered: list[SplitResult] = []
        self._turn = 0
        self.url = self.urls[0]
        self.connection: LeafConnection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def key(self) -> object:
        """The same for a remote whose other options were changed."""
        return remote_key(self.options)

    @property
    def account(self) -> str:
        return self.options.account or GLOBAL_ACCOUNT

    def start(self) -> None:
        """Connect, and stay connected."""
        self._task = self._server.loop.create_task(self._run())

    def stop(self) -> None:
        """Connect no more. A link that is there ends."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            wait_s = self._server.leafs.options.reconnect_s
            urls = [*self.urls, *self._discovered]
            self.url = urls[self._turn % len(urls)]
            self._turn += 1
            try:
                await self._stay_connected()
                leaf = self.connection.leaf if self.connection is not None else None
                if leaf is not None and leaf.reconnect_wait_s:
                    wait_s = leaf.reconnect_wait_s
            except (OSError, TimeoutError, JetLakeError, asyncio.IncompleteReadError) as error:
                host = f"{self.url.hostname}:{self.url.port}"
                text = str(error) or "timeout"
                self._server.log("error", f"Error trying to connect as leafnode to remote server {host}: {text}")
                wait_s += random.uniform(0, wait_s)
            except Exception as error:
                self._server.failed("leafnode remote", error)
            await asyncio.sleep(wait_s)

    async def _stay_connected(self) -> None:
        self.connection = connection = await self._dial(self.url)
        try:
            await connection.ended.wait()
        finally:
            if connection.leaf is not None:
                connection.leaf.close("Server Shutdown")

    # Connecting

    async def _dial(self, url: SplitResult) -> LeafConnection:
        options = self.options
        sock = await asyncio.wait_for(connected_socket(self._server.loop, url), options.dial_timeout_s)
        try:
            return await self._begin(url, sock)
        except BaseException:
            sock.close()
            raise

    async def _begin(self, url: SplitResult, sock: socket.socket) -> LeafConnection:
        loop, tls = self._server.loop, self.options.tls
        if url.scheme in WEBSOCKET_SCHEMES:
            return await self._begin_websocket(url, sock)
        first, is_secure = b"", tls is not None and tls.handshake_first
        if not is_secure:
            first = await asyncio.wait_for(first_line(loop, sock), self.options.first_info_timeout_s)
            event = parse_link_line(first)
            if not isinstance(event, Info):
                raise BadHub("expected INFO")
            is_secure = event.fields.tls_required or url.scheme in _SECURE
        connection = LeafConnection(self._server, self._make_leaf, CONNECT_TIMEOUT_S, first)
        self.connection = connection
        if not is_secure:
            await loop.create_connection(lambda: connection, sock=sock)
            return connection
        timeout_s = tls.timeout_s if tls is not None else CONNECT_TIMEOUT_S
        await loop.create_connection(
            lambda: connection,
            sock=sock,
            ssl=client_context(tls, "leafnode remote"),
            server_hostname=verified_name(url, self.urls),
            ssl_handshake_timeout=timeout_s,
        )
        return connection

    async def _begin_websocket(self, url: SplitResult, sock: socket.socket) -> LeafConnection:
        """Shake hands over TLS if the URL says so, then for the WebSocket; INFO comes over that."""
        from jetlake.server.links.websocket_client import WebSocketClient  # few hubs are reached so

        server, is_secure = self._server, url.scheme == "wss" or self.options.tls is not None
        self.connection = connection = LeafConnection(server, self._make_leaf, CONNECT_TIMEOUT_S)
        protocol = WebSocketClient(server, connection, url)
        await server.loop.create_connection(
            lambda: protocol,
            sock=sock,
            ssl=client_context(self.options.tls, "leafnode remote") if is_secure else None,
            server_hostname=verified_name(url, self.urls) if is_secure else None,
        )
        try:
            await asyncio.wait_for(protocol.opened, self.options.first_info_timeout_s)
        except BaseException:
            protocol.abort()
            raise
        return connection

    def _make_leaf(self, connection: LeafConnection, address: tuple[str, int]) -> Leaf:
        options, broker = self.options, self._server.broker
        return Leaf(
            broker,
            self._server.leafs,
            connection,
            broker.next_cid(),
            address,
            broker.account(self.account),
            denials=Rules(options.deny_exports, options.deny_imports),
            is_spoke=not options.is_hub,
            is_isolated=options.isolates,
            is_websocket=self.url.scheme in WEBSOCKET_SCHEMES,
        )

    # What the hub is told, and tells

    def connect_fields(self, info: LinkInfo) -> dict[str, Any]:
        """CONNECT. Raises BadCredentials."""
        self.discover(info)
        server, options = self._server, self.options
        features = {
            name: server.broker.features[name] for name in ("domain", "jetstream") if name in server.broker.features
        }
        fields: dict[str, Any] = {
            "version": server.broker.version,
            "server_id": server.server_id,
            "name": server.server_name,
            "cluster": server.leafs.cluster_name,
            "headers": not server.options.no_header_support,
            "compress_mode": "not supported",
            "remote_account": self.account,
            "protocol": PROTOCOL,
        } | features
        if options.is_hub:
            fields["is_hub"] = True
        if options.asks_isolation:
            fields["isolate"] = True
        if options.deny_imports:
            fields["deny_pub"] = options.deny_imports
        return fields | credentials_for(options, self.url, info.nonce)

    def discover(self, info: LinkInfo) -> None:
        """Other servers of the hub's cluster, for the next try."""
        if self.options.ignore_discovered or self.url.scheme in WEBSOCKET_SCHEMES:
            return
        known = {(url.hostname, url.port) for url in self.urls}
        user = self.url.netloc.rpartition("@")[0]
        found = []
        for text in (info.leafnode_urls or ())[:DISCOVERED_MAX]:
            with contextlib.suppress(ValueError):
                url = urlsplit(f"{self.url.scheme}://{user}{'@' if user else ''}{text}")
                if url.hostname and url.port and (url.hostname, url.port) not in known:
                    found.append(url)
        self._discovered = found
