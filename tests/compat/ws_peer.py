"""A NATS client of bare lines over WebSocket: frames as the test wants them, and everything that comes is kept."""

from __future__ import annotations

import base64
import itertools
import json
import socket
import ssl
import zlib
from typing import Any, NamedTuple

from tests.compat.peer import ANSWER_S_MAX, DEFAULTS, Closed, Peer
from tests.compat.servers import LOOPBACK

FINAL, COMPRESSED = 0x80, 0x40
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = bytes.fromhex("37fa213d")
KEY = base64.b64encode(b"0123456789abcdef").decode()
OFFER = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"


class Frame(NamedTuple):
    """A frame that was received."""

    first: int
    payload: bytes

    @property
    def opcode(self) -> int:
        return self.first & 0x0F


def request(path: str = "/", **fields: str | None) -> bytes:
    """The request of a handshake; fields replace the usual ones, None leaves one out: `Sec_WebSocket_Key=None`."""
    usual: dict[str, str | None] = {
        "Host": f"{LOOPBACK}:80",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
    }
    usual |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"{name}: {value}" for name, value in usual.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def masked(payload: bytes, first: int = FINAL | BINARY, *, size: int | None = None, is_masked: bool = True) -> bytes:
    """A client's frame; `size` is what its header says, if that is to be wrong."""
    count, mask = len(payload) if size is None else size, 0x80 if is_masked else 0
    if count <= 125:
        head = bytes((first, mask | count))
    elif count < 1 << 16:
        head = bytes((first, mask | 126)) + count.to_bytes(2, "big")
    else:
        head = bytes((first, mask | 127)) + count.to_bytes(8, "big")
    if not is_masked:
        return head + payload
    keys = int.from_bytes((MASK * (len(payload) // 4 + 1))[: len(payload)], "big")
    return head + MASK + (int.from_bytes(payload, "big") ^ keys).to_bytes(len(payload), "big")


def deflated(payload: bytes) -> bytes:
    """What a compressed message carries."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(b"\x00\x00\xff\xff")


class WebSocket:
    """A socket that speaks WebSocket, with the few methods that a `Peer` uses."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, path: str = "/", **fields: str | None) -> None:
        self.socket: socket.socket = socket.create_connection((LOOPBACK, port), timeout=ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._received = b""
        self.frames: list[Frame] = []
        self.is_compressing = False
        self.socket.sendall(request(path, **fields))
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        self.status, *lines = head.decode().split("\r\n")
        self.fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def close(self) -> None:
        self.socket.close()

    def sendall(self, data: bytes) -> None:
        if self.is_compressing:
            self.socket.sendall(masked(deflated(data), FINAL | COMPRESSED | BINARY))
        else:
            self.socket.sendall(masked(data))

    def recv(self, size: int) -> bytes:
        """What the next frame with data carries; nothing at the end."""
        message, is_compressed = b"", False
        while True:
            frame = self.frame()
            if frame is None or frame.opcode == CLOSE:
                return b""
            if frame.opcode > BINARY:
                continue
            is_compressed |= frame.first & COMPRESSED != 0
            message += frame.payload
            if frame.first & FINAL:
                return zlib.decompressobj(-15).decompress(message) if is_compressed else message

    def frame(self) -> Frame | None:
        """The next frame; None when the server hung up."""
        try:
            head = self._take(2)
            size = head[1]
            if size >= 126:
                size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
            frame = Frame(head[0], self._take(size))
        except (Closed, ConnectionError):
            return None
        self.frames.append(frame)
        return frame

    def close_frame(self) -> bytes | None:
        """What the close frame carries with which the server leaves; None when it just hangs up."""
        while (frame := self.frame()) is not None:
            if frame.opcode == CLOSE:
                return frame.payload
        return None

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._more()
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _more(self) -> None:
        chunk = self.socket.recv(1 << 16)
        if not chunk:
            raise Closed(self._received)
        self._received += chunk


class WsPeer(Peer):
    """One connection over WebSocket. `connect=None` leaves CONNECT to the test."""

    socket: Any

    def __init__(
        self,
        port: int,
        connect: dict[str, Any] | None = DEFAULTS,
        *,
        tls: ssl.SSLContext | None = None,
        path: str = "/",
        fields: dict[str, str | None] | None = None,
        **options: Any,
    ) -> None:
        self.socket = WebSocket(port, tls, path, **(fields or {}))
        self._received = bytearray()
        self._inboxes = itertools.count(1)
        self.infos: list[dict[str, Any]] = []
        self.is_closed = False
        assert self.socket.status == "HTTP/1.1 101 Switching Protocols", self.socket.status
        assert self.frame().startswith(b"INFO ")
        if connect is not None:
            self.send(b"CONNECT " + json.dumps({**connect, **options}).encode() + b"\r\n")
