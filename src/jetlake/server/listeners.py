"""Listeners: where clients come in, and ports that are held open without being served."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from jetlake.server import tls
from jetlake.server.address import BACKLOG, listen, port_of
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
        if server.tls is not None:
            self._accepting = server.loop.create_task(self._accept(sock))
        else:  # which closes the socket that it is given, but that one is needed when a reload brings TLS
            self._plain = await server.loop.create_server(
                lambda: ClientConnection(server), sock=sock.dup(), backlog=BACKLOG
            )

    @property
    def is_secure(self) -> bool | None:
        """Whether those who are accepted speak TLS; None while nobody is."""
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


class IdleListener:
    """Holds a port open; whoever connects is hung up on."""

    def __init__(self) -> None:
        self._listener: asyncio.Server | None = None

    async def start(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> int:
        """Take the port, which is returned. Raises ListenFailed."""
        sock = listen(host, port)
        number = port_of(sock)
        self._listener = await loop.create_server(_HangUp, sock=sock)
        return number

    def close(self) -> None:
        """Let the port go."""
        if self._listener is not None:
            self._listener.close()


class _HangUp(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
