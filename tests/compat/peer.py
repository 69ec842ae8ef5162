"""A NATS client of bare lines: what a test sends is what goes out, and what comes in is shown as it came."""

from __future__ import annotations

import itertools
import json
import socket
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from tests.compat.servers import LOOPBACK, Server

ANSWER_S_MAX = 10.0
DEFAULTS = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1}


class Msg(NamedTuple):
    """A delivered message."""

    subject: str
    sid: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def status(self) -> str:
        """The inline status of the header block: `503`, `408 Bad Request`, or nothing."""
        return self.headers.partition(b"\r\n")[0].removeprefix(b"NATS/1.0").strip().decode()


class Closed(Exception):
    """The server hung up. Carries what it said before."""


class Peer:
    """One connection. `connect=None` leaves CONNECT to the test."""

    def __init__(
        self,
        server: Server | int,
        connect: dict[str, Any] | None = DEFAULTS,
        *,
        sign: Callable[[bytes], str] | None = None,
        tls: ssl.SSLContext | None = None,
        tls_first: bool = False,
        **options: Any,
    ) -> None:
        """Connect with these CONNECT options; `sign` makes the signature over the server's nonce."""
        port = server if isinstance(server, int) else server.port
        self.socket: socket.socket = socket.create_connection((LOOPBACK, port), timeout=ANSWER_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()
        self._inboxes = itertools.count(1)
        self.infos: list[dict[str, Any]] = []
        self.is_closed = False
        if tls is not None and tls_first:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        assert self.frame().startswith(b"INFO ")
        if tls is not None and not tls_first:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        if sign is not None:
            options["sig"] = sign(self.info["nonce"].encode())
        if connect is not None:
            self.send(b"CONNECT " + json.dumps({**connect, **options}).encode() + b"\r\n")

    @property
    def info(self) -> dict[str, Any]:
        """What the last INFO said."""
        return self.infos[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> bytes:
        """The next thing the server says, whole: a line, or a message with its payload. Closed when it hung up."""
        line_end = self._find_line_end()
        line = bytes(self._received[:line_end])
        size = line_end
        if line[:4] == b"MSG " or line[:5] == b"HMSG ":
            size += int(line.split()[-1]) + 2
            while len(self._received) < size:
                self._receive()
        frame = bytes(self._received[:size])
        del self._received[:size]
        if frame.startswith(b"INFO "):
            self.infos.append(json.loads(frame[5:]))
        return frame

    def has_frame(self) -> bool:
        """True when the next frame is here already, so that `frame` will not wait."""
        line_end = self._received.find(b"\r\n")
        if line_end < 0 or not self._received.startswith((b"MSG ", b"HMSG ")):
            return line_end >= 0
        return len(self._received) >= line_end + 4 + int(self._received[:line_end].split()[-1])

    def ask(self, data: bytes = b"") -> list[bytes]:
        """Send, then PING: everything that comes before the PONG or the end, except INFO and the server's PINGs."""
        frames: list[bytes] = []
        try:
            self.send(data + b"PING\r\n")
        except OSError:
            self.is_closed = True  # what it said before it hung up can still be read
        try:
            while (frame := self.frame()) != b"PONG\r\n":
                if not frame.startswith(b"INFO ") and frame != b"PING\r\n":
                    frames.append(frame)
        except Closed:
            self.is_closed = True
        return frames

    def rest(self) -> list[bytes]:
        """What the server says from now until it hangs up."""
        frames = []
        try:
            while True:
                frames.append(self.frame())
        except Closed:
            self.is_closed = True
        return frames

    def message(self) -> Msg:
        """The next message; other lines than messages, INFO and PING are a failure."""
        while (frame := self.frame()).startswith((b"INFO ", b"PING", b"PONG")):
            pass
        return parse_msg(frame)

    def subscribe(self, subject: str, sid: str = "1", queue: str = "") -> None:
        """Subscribe, and return when the server knows it."""
        assert self.ask(f"SUB {subject} {queue} {sid}\r\n".encode()) == []

    def publish(self, subject: str, payload: bytes = b"", headers: bytes = b"", reply: str = "") -> None:
        self.send(publication(subject, payload, headers, reply))

    def request(self, subject: str, payload: bytes = b"", headers: bytes = b"") -> Msg:
        """A request and its one answer."""
        return self.requests(subject, payload, headers, 1)[0]

    def requests(self, subject: str, payload: bytes, headers: bytes, count: int) -> list[Msg]:
        """A request and its answers: so many, or (when negative) all until one with a status comes."""
        number = next(self._inboxes)
        inbox, sid = f"_INBOX.compat.{number}", f"r{number}"
        self.send(f"SUB {inbox} {sid}\r\n".encode() + publication(subject, payload, headers, inbox))
        answers = [self.message()]
        while len(answers) < count or (count < 0 and not answers[-1].status):
            answers.append(self.message())
        self.send(f"UNSUB {sid}\r\n".encode())
        return [answer._replace(subject=answer.subject.replace(inbox, "INBOX"), sid="") for answer in answers]

    def api(self, subject: str, body: object = None, headers: bytes = b"") -> Any:
        """A JetStream API request (None is an empty payload, bytes go as they are) and its JSON answer."""
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request(f"$JS.API.{subject}", payload, headers).json

    def _find_line_end(self) -> int:
        while (at := self._received.find(b"\r\n")) < 0:
            self._receive()
        return at + 2

    def _receive(self) -> None:
        try:
            chunk = self.socket.recv(1 << 16)
        except (ConnectionResetError, BrokenPipeError):
            chunk = b""
        if not chunk:
            raise Closed(bytes(self._received))
        self._received += chunk


def publication(subject: str, payload: bytes = b"", headers: bytes = b"", reply: str = "") -> bytes:
    """The PUB or HPUB of a message."""
    if headers:
        line = f"HPUB {subject} {reply} {len(headers)} {len(headers) + len(payload)}\r\n"
    else:
        line = f"PUB {subject} {reply} {len(payload)}\r\n"
    return line.encode() + headers + payload + b"\r\n"


def header_block(status: str = "", /, **fields: object) -> bytes:
    """A header block: `header_block(Nats_Msg_Id="1")`."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"NATS/1.0{status}\r\n{lines}\r\n".encode()


def parse_msg(frame: bytes) -> Msg:
    """A MSG or HMSG frame in its parts."""
    line, _, body = frame.partition(b"\r\n")
    verb, subject, sid, *rest = line.decode().split(" ")
    body = body[:-2]
    if verb == "MSG":
        return Msg(subject, sid, rest[0] if len(rest) == 2 else "", b"", body)
    assert verb == "HMSG", frame
    headers_size = int(rest[-2])
    return Msg(subject, sid, rest[0] if len(rest) == 3 else "", body[:headers_size], body[headers_size:])
