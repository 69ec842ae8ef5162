"""A hub over WebSocket: the soliciting side of the handshake, and frames that are masked.

The request goes to `/leafnode` behind the path of the URL. Compression is not asked for.
"""

from __future__ import annotations

import asyncio
import base64
import os
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult

from jetlake.errors import JetLakeError
from jetlake.server.links.connection import LeafConnection
from jetlake.server.websocket import WebSocketProtocol
from jetlake.wire import websocket
from jetlake.wire.http_head import read_fields
from jetlake.wire.websocket import FrameReader
from jetlake.wire.websocket_format import BINARY, FINAL
from jetlake.wire.websocket_handshake import LEAF_PATH, accept_key

if TYPE_CHECKING:
    from jetlake.server.server import Server

ANSWER_SIZE_MAX = 16 * 1024
_END = b"\r\n\r\n"


class BadHandshake(JetLakeError):
    """What was connected to speaks no WebSocket, or not for leafs."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"websocket handshake: {problem}")


class WebSocketClient(WebSocketProtocol):
    """The socket of a leaf that connects to a hub over WebSocket."""

    def __init__(self, server: Server, connection: LeafConnection, url: SplitResult) -> None:
        super().__init__(server)
        self._leaf, self._url = connection, url
        self._key = base64.b64encode(os.urandom(16)).decode()
        self.opened: asyncio.Future[None] = server.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(request(self._url, self._key))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection ended")
        super().connection_lost(exc)

    def _fail(self, problem: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(BadHandshake(problem))

    def _take_request(self, piece: bytes) -> None:
        """Take the answer to the request."""
        self._request += piece
        end = self._request.find(_END) + len(_END)
        if end < len(_END):
            if len(self._request) > ANSWER_SIZE_MAX:
                self._refuse("the answer is too long")
            return
        problem = answer_problem(self._request[:end], self._key)
        if problem:
            self._refuse(problem)
            return
        rest, self._request, self._buffer = self._request[end:], b"", bytearray()
        self._reader = FrameReader(is_masked=False)
        self._connection = self._leaf
        self._leaf.connection_made(self)
        if not self.opened.done():
            self.opened.set_result(None)
        while rest and not self._is_leaving:
            view = self.get_buffer(-1)
            size = min(len(rest), len(view))
            view[:size], rest = rest[:size], rest[size:]
            self.buffer_updated(size)

    def _refuse(self, problem: str) -> None:
        self._fail(problem)
        self.abort()

    def _frame(self, payload: bytes, first: int = FINAL | BINARY) -> bytes:
        return websocket.masked_frame(payload, os.urandom(4), first)


def request(url: SplitResult, key: str) -> bytes:
    """What asks a hub to speak WebSocket to a leaf."""
    host = url.netloc.rpartition("@")[2]
    lines = [f"GET {url.path.rstrip('/')}{LEAF_PATH} HTTP/1.1", f"Host: {host}", "Upgrade: websocket"]
    lines += ["Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
    return "\r\n".join(lines).encode("utf-8", "replace")


def answer_problem(answer: bytes, key: str) -> str:
    """Why an answer does not begin a WebSocket; empty when it does."""
    lines = answer.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    version, _, status = lines[0].partition(" ")
    if version != "HTTP/1.1":
        return "the answer is not one of HTTP"
    if status.split(" ")[0] != "101":
        return f"the answer is {status[:80]!r}"
    fields = read_fields(lines[1:])
    for name, value in (("upgrade", "websocket"), ("connection", "upgrade")):
        if fields.get(name, [""])[0].lower() != value:
            return f"the answer has no {value!r} in {name!r}"
    if fields.get("sec-websocket-accept", [""])[0] != accept_key(key):
        return "the answer has the wrong 'sec-websocket-accept'"
    return ""
