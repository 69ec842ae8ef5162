"""Connections to servers whose streams are copied, as their client: made, and made again when they are lost.

URLs are tried in turn. After a failed try the next one comes a little later each time, up to half a minute; after a
connection that was logged in the wait is short again.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from jetlake import __version__
from jetlake.config import RemoteOptions
from jetlake.errors import JetLakeError
from jetlake.jetstream.host import Dialed
from jetlake.server.links.credentials import client_credentials
from jetlake.server.links.dial import BadHub, client_context, connected_socket, first_line

if TYPE_CHECKING:
    from jetlake.server.server import Server

DIAL_S = 5.0
WAIT_S, WAIT_S_MAX = 0.5, 30.0
_LINE_SIZE_MAX = 1024 * 1024


class RemoteLine:
    """One connection, for as long as it is wanted."""

    def __init__(self, server: Server, options: RemoteOptions, client: Dialed) -> None:
        self._server, self._options, self._client = server, options, client
        self._urls = [urlsplit(url) for url in options.urls]
        random.shuffle(self._urls)
        self._connection: _Connection | None = None
        self._task = server.loop.create_task(self._run())

    def write(self, data: bytes) -> None:
        """Send something; nothing is sent while there is no connection."""
        if self._connection is not None:
            self._connection.write(data)

    def reconnect(self) -> None:
        """Begin with another connection."""
        if self._connection is not None:
            self._connection.end("nothing was heard of it")

    def close(self) -> None:
        """Hang up, for good."""
        self._task.cancel()
        self.reconnect()

    async def _run(self) -> None:
        turn, wait_s = 0, WAIT_S
        while True:
            url = self._urls[turn % len(self._urls)]
            turn += 1
            where = f"remote {self._options.name} at {url.hostname}:{url.port}"
            try:
                connection = await self._login(url)
                wait_s = WAIT_S
                problem = await connection.ended
            except (OSError, JetLakeError, asyncio.IncompleteReadError, ValueError) as error:
                problem = str(error) or "no answer in time"
            except Exception as error:
                self._server.failed(where, error)
                problem = "internal error"
            self._connection = None
            self._server.call_soon(lambda: self._client.lost(f"{where}: {problem}"))  # noqa: B023
            await asyncio.sleep(wait_s * random.uniform(0.75, 1.25))
            wait_s = min(2 * wait_s, WAIT_S_MAX)

    async def _login(self, url: SplitResult) -> _Connection:
        connection = await asyncio.wait_for(self._dial(url), DIAL_S)
        try:
            fields = await asyncio.wait_for(connection.info, DIAL_S)
            connection.log_in(self._connect_fields(url, str(fields.get("nonce", ""))))
            await asyncio.wait_for(connection.logged_in, DIAL_S)
        except BaseException:
            connection.end("")
            raise
        self._connection = connection
        self._server.call_soon(self._client.connected)
        self._server.call_soon(connection.hand_over)
        return connection

    async def _dial(self, url: SplitResult) -> _Connection:
        loop, tls = self._server.loop, self._options.tls
        sock = await connected_socket(loop, url)
        first, is_secure = b"", tls is not None and tls.handshake_first
        try:
            if not is_secure:
                first = await first_line(loop, sock)
                is_secure = tls is not None or url.scheme == "tls" or bool(_info(first).get("tls_required"))
            connection = _Connection(self._server, self._client, first)
            context = client_context(tls, f"remote {self._options.name}", self._options.ca_pem) if is_secure else None
            host, timeout_s = (url.hostname, DIAL_S) if is_secure else (None, None)
            await loop.create_connection(
                lambda: connection, sock=sock, ssl=context, server_hostname=host, ssl_handshake_timeout=timeout_s
            )
        except BaseException:
            sock.close()
            raise
        return connection

    def _connect_fields(self, url: SplitResult, nonce: str) -> bytes:
        fields = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "echo": False,
            "lang": "python-jetlake",
            "version": __version__,
            "name": f"jetlake {self._server.server_name}",
            **client_credentials(self._options, url, nonce),
        }
        return json.dumps(fields).encode()


def _info(line: bytes) -> dict[str, object]:
    verb, _, rest = line.partition(b" ")
    if verb != b"INFO":
        raise BadHub("it does not greet as a NATS server does")
    return dict(json.loads(rest))


class _Connection(asyncio.Protocol):
    """One socket: it logs in, and then hands over what is received."""

    def __init__(self, server: Server, client: Dialed, first: bytes) -> None:
        """`first` was received already."""
        self._server, self._client, self._received = server, client, first
        self.info: asyncio.Future[dict[str, object]] = server.loop.create_future()
        self.logged_in: asyncio.Future[None] = server.loop.create_future()
        self.ended: asyncio.Future[str] = server.loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._is_handed_over = False
        self._problem = "the connection was closed"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        self._read_lines()

    def data_received(self, data: bytes) -> None:
        if not self._is_handed_over:
            self._received += data
            self._read_lines()
            return
        server = self._server
        try:
            with server.commits:
                self._client.received(data)
        except Exception as error:
            server.failed("remote input", error)
            self.end("internal error")
        server.flush()
        server.vigil.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        problem = str(exc) if exc is not None else self._problem
        for future in (self.info, self.logged_in):
            if not future.done():
                future.set_exception(BadHub(problem))
                future.exception()  # it may be that nobody waits for it
        if not self.ended.done():
            self.ended.set_result(problem)

    def _read_lines(self) -> None:
        """What comes before the login is done."""
        while not self.logged_in.done() and b"\r\n" in self._received:
            line, _, self._received = self._received.partition(b"\r\n")
            if line.startswith(b"-ERR"):
                text = line.removeprefix(b"-ERR").strip(b"' ").decode("utf-8", "replace")
                self.end(f"refused the login: {text}")
            elif not self.info.done():
                try:
                    self.info.set_result(_info(line))
                except (BadHub, ValueError) as error:
                    self.end(str(error))
            elif line == b"PONG":
                self.logged_in.set_result(None)
        if len(self._received) > _LINE_SIZE_MAX and not self.logged_in.done():
            self.end("a line without an end")

    def log_in(self, fields: bytes) -> None:
        """Say who this is."""
        self.write(b"CONNECT %s\r\nPING\r\n" % fields)

    def hand_over(self) -> None:
        """From now on somebody else acts on what is received."""
        self._is_handed_over = True
        received, self._received = self._received, b""
        if received:
            self.data_received(received)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def end(self, problem: str) -> None:
        """Close the socket."""
        self._problem = problem or self._problem
        if self._transport is not None:
            self._transport.abort()
