"""Listeners: where clients come in."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from jetlake.config import WebSocketOptions
from jetlake.server import tls
from jetlake.server.address import BACKLOG, join, listen, port_of
from jetlake.server.connection import ClientConnection

if TYPE_CHECKING:
    from jetlake.server.server import Server

_PAUSE_S = 0.1  # after an accept that failed: too many open files, most likely


class ClientListener:
    """Accepts clients: in the loop's own way, or, where there is TLS, one by one."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._socket: socket.socket | None = None
        self._plain: asyncio.Server | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    def bind(self, host: str, port: int) -> int:
        """Take the port, which is returned: peers can connect from now on, and wait. Raises ListenFailed."""
        self._socket = listen(host, port)
        return port_of(self._socket)

    async def start(self) -> None:
        """Accept clients."""
        server, sock = self._server, self._socket
        assert sock is not None
        if server.tls is not None or server.options.proxy_protocol:
            self._accepting = server.loop.create_task(self._accept(sock))
        else:  # which closes the socket that it is given, but that one is needed when a reload brings TLS
            self._plain = await server.loop.create_server(
                lambda: ClientConnection(server), sock=sock.dup(), backlog=BACKLOG
            )

    @property
    def is_secure(self) -> bool | None:
        """Whether those who are accepted one by one, as TLS needs it; None while nobody is."""
        return True if self._accepting is not None else False if self._plain is not None else None

    async def restart(self) -> None:
        """Accept in the way that is now the right one."""
        self._pause()
        await self.start()

    def close(self) -> None:
        """Accept nobody any more. Handshakes that are under way come to their end."""
        self._pause()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _pause(self) -> None:
        if self._plain is not None:
            self._plain.close()
            self._plain = None
        if self._accepting is not None:
            self._accepting.cancel()
            self._accepting = None

    async def _accept(self, sock: socket.socket) -> None:
        server = self._server
        while True:
            try:
                peer, _ = await server.loop.sock_accept(sock)
            except OSError as error:
                server.log("error", f"Temporary Client Accept Error({error}), sleeping {int(_PAUSE_S * 1000)}ms")
                await asyncio.sleep(_PAUSE_S)
                continue
            task = server.loop.create_task(tls.welcome(server, peer))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)


class WebSocketListener:
    """Accepts clients that speak WebSocket."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._socket: socket.socket | None = None
        self._listener: asyncio.Server | None = None
        self.port = 0

    async def start(self, options: WebSocketOptions) -> None:
        """Take the port and accept clients. Raises ListenFailed or BadCertificate."""
        server, scheme = self._server, "ws" if options.tls is None else "wss"
        self._socket = listen(options.host, options.port)
        self.port = port_of(self._socket)
        await self.restart(options)
        server.log("info", f"Listening for websocket clients on {scheme}://{join(options.host, self.port)}")
        if options.tls is None:
            server.log("warning", "Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")

    async def restart(self, options: WebSocketOptions) -> None:
        """Accept clients with these certificates from now on. Raises BadCertificate."""
        from jetlake.server.websocket import WebSocketProtocol  # few servers have such clients

        assert self._socket is not None
        context = tls.make_context(options.tls) if options.tls is not None else None
        if self._listener is not None:
            self._listener.close()
        self._listener = await self._server.loop.create_server(
            lambda: WebSocketProtocol(self._server),
            sock=self._socket.dup(),
            backlog=BACKLOG,
            ssl=context,
            ssl_handshake_timeout=options.tls.timeout_s if options.tls is not None else None,
        )

    def close(self) -> None:
        """Accept nobody any more."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
