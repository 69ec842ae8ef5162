"""WebSocket: a protocol between a socket and a connection that knows nothing of it.

To the connection (a `ClientConnection`; a leaf's would do as well) it is a transport, as TLS is. What arrives is taken
apart in the connection's own buffer, and what the connection writes goes out as one message, so that a batch of
deliveries costs one header. The socket's events, before and after the handshake:

    handshake       the request is gathered, checked and answered; too slow or too long a one is hung up on
    open            frames go in and out
    leaving         a close frame is sent, and the socket is closed behind it

With compression, what was received is inflated one buffer at a time, between which all others have their turn; what is
sent is compressed COMPRESS_AT_ONCE bytes at a time for the same reason. Reading pauses while anything is kept here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from jetlake.broker.endpoint import WEBSOCKET, Endpoint
from jetlake.config import WebSocketOptions
from jetlake.server.address import peer_of
from jetlake.server.connection import ClientConnection
from jetlake.server.links.connection import LeafConnection
from jetlake.server.peer_connection import PeerConnection
from jetlake.wire import websocket
from jetlake.wire.websocket import Close, FrameReader
from jetlake.wire.websocket_format import BINARY, CLOSE, FINAL, PONG, RSV1
from jetlake.wire.websocket_handshake import LEAF_PATH, Refused, Rules, Upgrade, upgrade

if TYPE_CHECKING:
    from jetlake.server.server import Server

REQUEST_SIZE_MAX = 16 * 1024
COMPRESS_AT_ONCE = 256 * 1024
_END = b"\r\n\r\n"
_CODES = {
    "Client Closed": websocket.NORMAL,
    "Authentication Timeout": websocket.POLICY_VIOLATION,
    "Authentication Failure": websocket.POLICY_VIOLATION,
    "Authentication Expired": websocket.POLICY_VIOLATION,
    "Credentials Revoked": websocket.POLICY_VIOLATION,
    "Slow Consumer (Pending Bytes)": websocket.POLICY_VIOLATION,
    "Slow Consumer (Write Deadline)": websocket.POLICY_VIOLATION,
    "Maximum Account Connections Exceeded": websocket.POLICY_VIOLATION,
    "Maximum Connections Exceeded": websocket.POLICY_VIOLATION,
    "Maximum Control Line Exceeded": websocket.POLICY_VIOLATION,
    "Protocol Violation": websocket.PROTOCOL_ERROR,
    "Bad Client Protocol Version": websocket.PROTOCOL_ERROR,
    "Maximum Message Payload Exceeded": websocket.TOO_BIG,
    "Read Error": websocket.GOING_AWAY,
    "Write Error": websocket.GOING_AWAY,
    "Stale Connection": websocket.GOING_AWAY,
    "Server Shutdown": websocket.GOING_AWAY,
}

Accept = Callable[["WebSocketProtocol", Upgrade], "asyncio.BufferedProtocol | None"]


def rules(options: WebSocketOptions) -> Rules:
    """What a handshake has to keep to."""
    return Rules(
        options.tls is not None, options.same_origin, options.allowed_origins, options.compression, options.headers
    )


def accept(protocol: WebSocketProtocol, request: Upgrade) -> asyncio.BufferedProtocol | None:
    """The connection for a request, by its path; None when nobody is served there."""
    server = protocol.server
    options = server.options.websocket
    assert options is not None
    if request.path.endswith(LEAF_PATH):
        return _accept_leaf(server)
    named = {"jwt": options.jwt_cookie, "user": options.user_cookie}
    named |= {"password": options.pass_cookie, "auth_token": options.token_cookie}
    cookies = {field: request.cookies[name] for field, name in named.items() if name and name in request.cookies}
    host, port = peer_of(protocol.get_extra_info("peername"))
    return ClientConnection(server, Endpoint(host, port, WEBSOCKET, cookies, request.forwarded_for))


def _accept_leaf(server: Server) -> asyncio.BufferedProtocol | None:
    leafs = server.leafs
    if leafs.listener is None:
        server.log("error", "Not configured to accept leaf node connections")
        return None
    return LeafConnection(server, partial(leafs.accepted, is_websocket=True), leafs.options.auth_timeout_s)


class WebSocketProtocol(asyncio.BufferedProtocol, asyncio.Transport):
    """One socket: the protocol of its transport, and the transport of its connection."""

    def __init__(self, server: Server, accept: Accept = accept) -> None:
        super().__init__()
        self.server, self._accept = server, accept
        self._transport: asyncio.Transport
        self._request, self._buffer = b"", bytearray(REQUEST_SIZE_MAX)
        self._view = memoryview(b"")
        self._connection: asyncio.BufferedProtocol | None = None
        self._reader = FrameReader()
        self._timer: asyncio.TimerHandle | None = None
        self._is_compressed = self._is_fragmented = self._is_safari = False
        self._is_paused = self._is_leaving = self._is_lost = self._has_input = False
        self._error: Exception | None = None
        self._output: deque[memoryview] = deque()  # what waits to be compressed
        self._output_size = 0

    # The socket's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        options = self.server.options.websocket
        assert options is not None
        self._timer = self.server.loop.call_later(options.handshake_timeout_s, self._transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._connection is None:
            return memoryview(self._buffer)
        self._view = cast(memoryview, self._connection.get_buffer(sizehint))
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_leaving:
            return  # nothing counts after a close frame
        if self._connection is None:
            self._take_request(bytes(memoryview(self._buffer)[:nbytes]))
        elif self._reader.has_compression:
            self._reader.add(self._view, nbytes)
            self._has_input = True
            self._transport.pause_reading()
            self._pump()
        else:
            self._deliver(self._reader.receive(self._view, nbytes))
            self._after_input()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost, self._error = True, exc
        if self._timer is not None:
            self._timer.cancel()
        self._output.clear()
        self._output_size = 0
        if not self._has_input:  # else what was received before is delivered first
            self._lose()

    def _lose(self) -> None:
        if self._connection is not None:
            self._connection.connection_lost(self._error)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    # The handshake

    def _take_request(self, piece: bytes) -> None:
        self._request += piece
        end = self._request.find(_END) + len(_END)
        if end < len(_END):
            if len(self._request) > REQUEST_SIZE_MAX:
                self._transport.abort()
            return
        options = self.server.options.websocket
        assert options is not None
        try:
            request = upgrade(self._request[:end], rules(options))
        except Refused as error:
            self._log("error", str(error))
            self._transport.write(error.answer())
            self._leave()
            return
        if end < len(self._request):  # frames before the answer, which a proxy might have taken for another request
            self._log("error", "websocket handshake error: client sent data before handshake is complete")
            self._leave()
            return
        self._open(request)

    def _open(self, request: Upgrade) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._request, self._buffer = b"", bytearray()
        inflated_max = self.server.options.max_payload if request.is_compressed else None
        self._reader = FrameReader(is_masked=request.is_masked, inflated_max=inflated_max)
        self._is_compressed, self._is_fragmented = request.is_compressed, request.is_browser
        self._is_safari = request.is_safari
        self._transport.write(request.answer)
        self._connection = self._accept(self, request)
        if self._connection is None:
            self._leave()
        else:
            self._connection.connection_made(self)

    def _log(self, level: str, text: str) -> None:
        host, port = peer_of(self.get_extra_info("peername"))
        self.server.log(level, f"{host}:{port} - {text}")

    # What arrives

    def _deliver(self, size: int) -> None:
        if size:
            assert self._connection is not None
            self._connection.buffer_updated(size)

    def _pump(self) -> None:
        """Inflate as much as the connection has a buffer for; then others have their turn."""
        if self._is_paused or not self._has_input or self._connection is None:
            return
        size = self._reader.read_into(cast(memoryview, self._connection.get_buffer(-1)))
        if size:
            self._deliver(size)
            self.server.loop.call_soon(self._pump)
            return
        self._has_input = False
        self._after_input()
        if self._is_lost:
            self._lose()
        elif not self._is_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def _after_input(self) -> None:
        """Answer control frames."""
        reader = self._reader
        if self._is_lost or not (reader.pongs or reader.close is not None):
            return
        if not self._is_leaving:
            pongs, reader.pongs = reader.pongs, []
            self._transport.write(b"".join(self._frame(payload, FINAL | PONG) for payload in pongs))
        if reader.close is not None and not self._is_paused:
            self._close(reader.close)

    def _close(self, close: Close) -> None:
        """The peer leaves, or has to."""
        if self._is_leaving:
            return
        connection = self._connection
        if close.problem and isinstance(connection, PeerConnection) and connection.peer is not None:
            self.server.log("error", f"{connection.label} - read error: {close.problem}")
            connection.peer.close("Read Error")
        self._send_out()
        self._transport.write(self._frame(websocket.close_payload(close.code, close.text), FINAL | CLOSE))
        self._leave()

    def _frame(self, payload: bytes, first: int = FINAL | BINARY) -> bytes:
        return websocket.frame(payload, first)

    # What the connection asks of its transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_leaving:
            return
        if not self._is_compressed:
            encode = websocket.small_frames if self._is_fragmented else self._frame
            self._transport.write(encode(bytes(data)))
            return
        view = memoryview(data)
        self._output += (view[at : at + COMPRESS_AT_ONCE] for at in range(0, len(view), COMPRESS_AT_ONCE))
        self._output_size += len(view)
        if len(self._output) == 1:
            self._compress_one()
        else:
            self.server.loop.call_soon(self._compress_more)

    def _compress_more(self) -> None:
        """Compress one piece of what waits."""
        if self._output and not self._is_lost:
            self._compress_one()
            if self._output:
                self.server.loop.call_soon(self._compress_more)

    def _compress_one(self) -> None:
        piece = bytes(self._output.popleft())
        self._output_size -= len(piece)
        if len(piece) < websocket.COMPRESS_SIZE_MIN:
            self._transport.write(websocket.frame(piece))
            return
        payload = websocket.deflate(piece)
        if self._is_fragmented and not self._is_safari:
            self._transport.write(websocket.small_frames(payload, is_compressed=True))
        else:
            self._transport.write(websocket.frame(payload, FINAL | BINARY | RSV1))

    def _send_out(self) -> None:
        """Send what waits to be compressed as it is: there is no time left."""
        while self._output:
            self._transport.write(websocket.frame(bytes(self._output.popleft())))
        self._output_size = 0

    def close(self) -> None:
        if not self._is_leaving:
            reason = self._connection.end_reason if isinstance(self._connection, PeerConnection) else ""
            self._send_out()
            code = _CODES.get(reason, websocket.INTERNAL_ERROR)
            self._transport.write(self._frame(websocket.close_payload(code, reason), FINAL | CLOSE))
            self._leave()

    def _leave(self) -> None:
        self._is_leaving = True
        self._transport.close()

    def abort(self) -> None:
        self._is_leaving = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._is_leaving or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        if not self._is_lost:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._has_input:
            self.server.loop.call_soon(self._pump)
        else:
            self._after_input()
            if not self.is_closing() and not self._is_lost:
                self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._output_size

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
