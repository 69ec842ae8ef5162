"""Where other servers come in: leafs, and servers of the same cluster."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

from msgspec.structs import replace

from jetlake.config import ClusterOptions, LeafOptions
from jetlake.server import tls
from jetlake.server.address import listen, peer_of, port_of
from jetlake.server.links.connection import LeafConnection, RouteConnection
from jetlake.wire import writer

if TYPE_CHECKING:
    from jetlake.server.server import Server

_PAUSE_S = 0.1  # after an accept that failed: too many open files, most likely
_HANDSHAKES_MAX = 256  # under way at a time


class _Listener:
    """Accepts connections, one by one."""

    what = ""

    def __init__(self, server: Server, host: str, port: int) -> None:
        self._server, self._host, self._wanted_port = server, host, port
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        """Take the port, and accept connections. Raises ListenFailed."""
        self._socket = listen(self._host, self._wanted_port)
        self.port = port_of(self._socket)
        self._accepting = self._server.loop.create_task(self._accept(self._socket))

    def close(self) -> None:
        """Accept nobody any more."""
        if self._accepting is not None:
            self._accepting.cancel()
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, sock: socket.socket) -> None:
        server = self._server
        while True:
            try:
                peer, _ = await server.loop.sock_accept(sock)
            except OSError as error:
                server.log("error", f"Temporary {self.what} Accept Error({error}), sleeping {int(_PAUSE_S * 1000)}ms")
                await asyncio.sleep(_PAUSE_S)
                continue
            if len(self._handshakes) >= _HANDSHAKES_MAX:
                server.log("warning", f"{self.what} connection refused: too many handshakes under way")
                peer.close()
                continue
            task = server.loop.create_task(self._welcome(peer))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _welcome(self, sock: socket.socket) -> None:
        raise NotImplementedError

    async def _expect_tls(self, sock: socket.socket, timeout_s: float) -> None:
        """Wait for a TLS handshake to begin. Raises TimeoutError or HandshakeFailed."""
        if not await tls.is_readable(self._server.loop, sock, timeout_s):
            raise TimeoutError
        if sock.recv(1, socket.MSG_PEEK) != tls.HANDSHAKE:
            raise tls.HandshakeFailed("first record does not look like a TLS handshake")

    def _handshake_failed(self, error: Exception) -> None:
        if not isinstance(error, OSError | tls.HandshakeFailed | TimeoutError):
            self._server.failed(f"{self.what.lower()} handshake", error)
        else:
            self._server.log("debug", f"{self.what} TLS handshake error: {str(error) or 'timeout'}")


class LeafListener(_Listener):
    """Accepts leafs."""

    what = "Leafnode"

    def __init__(self, server: Server, options: LeafOptions) -> None:
        """Raises BadCertificate."""
        super().__init__(server, options.host, options.port)
        self.use(options)

    def use(self, options: LeafOptions) -> None:
        """Have other certificates from now on. Raises BadCertificate."""
        self._context = tls.make_context(options.tls) if options.tls is not None else None
        self._options = options

    async def _welcome(self, sock: socket.socket) -> None:
        server, options = self._server, self._options
        connection = LeafConnection(server, server.leafs.accepted, options.auth_timeout_s)
        try:
            if self._context is None or options.tls is None:
                await server.loop.connect_accepted_socket(lambda: connection, sock)
            else:
                await self._welcome_securely(connection, sock, self._context)
        except Exception as error:
            self._handshake_failed(error)
            if connection.leaf is not None:
                connection.leaf.close("TLS Handshake Failure")
            sock.close()

    async def _welcome_securely(self, connection: LeafConnection, sock: socket.socket, context: ssl.SSLContext) -> None:
        server, options = self._server, self._options.tls
        assert options is not None
        leaf = connection.peer = connection.leaf = server.leafs.accepted(connection, peer_of(sock.getpeername()))
        is_first, fallback_s = options.handshake_first, options.handshake_first_fallback_s
        if is_first and fallback_s is not None:
            is_first = await tls.is_readable(server.loop, sock, fallback_s)
        if not is_first:
            await server.loop.sock_sendall(sock, writer.info(server.leafs.leaf_info(leaf, connect_info=False)))
            connection.is_greeted = True
        await self._expect_tls(sock, options.timeout_s)
        await tls.shake_hands(server.loop, connection, sock, context, options.timeout_s)
        connection.is_tls_first = is_first


class RouteListener(_Listener):
    """Accepts servers of the same cluster. With TLS nothing is said in clear, and they show their certificates too."""

    what = "Route"

    def __init__(self, server: Server, options: ClusterOptions) -> None:
        """Raises BadCertificate."""
        super().__init__(server, options.host, options.port)
        self._options = options
        self._context = tls.make_context(replace(options.tls, verify=True)) if options.tls is not None else None

    async def _welcome(self, sock: socket.socket) -> None:
        server, options = self._server, self._options
        connection = RouteConnection(server, server.routes.accepted, server.routes.login_timeout_s)
        try:
            if self._context is None or options.tls is None:
                await server.loop.connect_accepted_socket(lambda: connection, sock)
            else:
                await self._expect_tls(sock, options.tls.timeout_s)
                await tls.shake_hands(server.loop, connection, sock, self._context, options.tls.timeout_s)
        except Exception as error:
            self._handshake_failed(error)
            sock.close()
