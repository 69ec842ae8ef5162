"""RemoteClient: a client of another server, without I/O, for a feed whose origin is there.

It offers what a feed asks of an account (`send`, `subscribe`, `subscribe_frames`, `unsubscribe`). Deliveries are read
by a kernel from the bytes as they came, in runs; all else, a line at a time. Subscriptions end with the connection.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from jetlake.broker.peer import Peer
from jetlake.broker.subscription import Buffer, Msg
from jetlake.config.options import RemoteOptions
from jetlake.jetstream.host import Host
from jetlake.jetstream.sourcing.deliveries import read_stream
from jetlake.ops import OP_WORDS

FRAME_SIZE_MAX = 128 * 1024 * 1024
LINE_SIZE_MAX = 1024 * 1024
Handler = Callable[[Msg], bool | None]
BatchHandler = Callable[[Peer, Buffer, "array[int]", int, int], None]


@dataclass
class RemoteSubscription:
    """Something that is heard of the other server."""

    sid: bytes
    handler: Handler
    batch_handler: BatchHandler | None = None  # of the one that gets deliveries
    is_open: bool = True


class RemoteClient:
    """One connection's worth of talk."""

    def __init__(
        self,
        host: Host,
        options: RemoteOptions,
        internal: Peer,
        connected: Callable[[], None],
        lost: Callable[[str], None],
    ) -> None:
        """`connected` and `lost` are called as that happens, `lost` also when a try to connect failed."""
        self.options, self._internal = options, internal
        self._on_connected, self._on_lost = connected, lost
        self.is_connected = False
        self.problem = "not connected yet"
        self._subs: dict[bytes, RemoteSubscription] = {}
        self._deliveries: RemoteSubscription | None = None
        self._last_sid = self._needed = 0
        self._rest = bytearray()
        self._line = host.dial(options, self)

    def close(self) -> None:
        """Hang up."""
        self.is_connected = False
        self._on_connected, self._on_lost = _nothing, _ignore
        self._line.close()

    def reconnect(self) -> None:
        """Nothing is heard any more: begin with another connection."""
        self._line.reconnect()

    # What a feed does

    def inbox(self) -> str:
        """A subject that nobody else has."""
        return f"{self.options.inbox_prefix}.{secrets.token_hex(11)}"

    def send(self, subject: bytes, payload: bytes = b"", *, reply: bytes = b"", headers: bytes = b"") -> bool:
        """Publish; False when there is no connection."""
        if not self.is_connected:
            return False
        target = b"%s %s" % (subject, reply) if reply else subject
        if headers:
            size = len(headers)
            self._line.write(b"HPUB %s %d %d\r\n%s%s\r\n" % (target, size, size + len(payload), headers, payload))
        else:
            self._line.write(b"PUB %s %d\r\n%s\r\n" % (target, len(payload), payload))
        return True

    def subscribe(self, subject: bytes, handler: Handler) -> RemoteSubscription:
        """Hear messages one by one."""
        return self._subscribe(subject, handler, None)

    def subscribe_frames(
        self, subject: bytes, handler: Handler, batch_handler: BatchHandler, take: Callable[[bytes], None]
    ) -> RemoteSubscription:
        """Hear deliveries in runs."""
        self._deliveries = self._subscribe(subject, handler, batch_handler)
        return self._deliveries

    def _subscribe(self, subject: bytes, handler: Handler, batch_handler: BatchHandler | None) -> RemoteSubscription:
        self._last_sid += 1
        sub = RemoteSubscription(b"%d" % self._last_sid, handler, batch_handler)
        self._subs[sub.sid] = sub
        if self.is_connected:
            self._line.write(b"SUB %s %s\r\n" % (subject, sub.sid))
        return sub

    def unsubscribe(self, sub: RemoteSubscription) -> None:
        """Hear it no more."""
        if self._subs.pop(sub.sid, None) is not None and self.is_connected:
            self._line.write(b"UNSUB %s\r\n" % sub.sid)
        if self._deliveries is sub:
            self._deliveries = None

    # What the line does

    def connected(self) -> None:
        self._rest, self._needed = bytearray(), 0
        self._subs.clear()
        self._deliveries = None
        self.is_connected, self.problem = True, ""
        self._on_connected()

    def lost(self, problem: str) -> None:
        self.is_connected, self.problem = False, problem
        self._on_lost(problem)

    def received(self, data: bytes) -> None:
        """Act on what came, and keep what is not whole."""
        rest = self._rest
        rest += data
        if len(rest) >= self._needed:
            at = self._read(rest)
            del rest[:at]
            self._needed = max(self._needed - at, 0)
        if len(rest) > FRAME_SIZE_MAX:
            self._line.reconnect()

    def _read(self, data: bytearray) -> int:
        """Act on all that is whole; where it ends."""
        at, end = 0, len(data)
        self._needed = 0
        while at < end:
            deliveries = self._deliveries
            if deliveries is not None and deliveries.batch_handler is not None:
                ops, at = read_stream(data, at, end, deliveries.sid)
                if ops:
                    deliveries.batch_handler(self._internal, data, ops, 0, len(ops) // OP_WORDS)
                    continue
            stop = self._read_other(data, at)
            if stop > end:
                self._needed = stop
                return at
            at = stop
        return at

    def _read_other(self, data: bytearray, at: int) -> int:
        """Act on a line, or a message that is no delivery; where it ends, which may be further than what came."""
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            if len(data) - at > LINE_SIZE_MAX:
                self._line.reconnect()
            return len(data) + 1
        words = bytes(data[at:line_end]).split(b" ")
        if words[0] not in (b"MSG", b"HMSG"):
            self._control(words)
            return line_end + 2
        if len(words) < 4 or not all(word.isdigit() for word in words[-1 - (words[0] == b"HMSG") :]):
            self._line.reconnect()
            return len(data)
        body, total = line_end + 2, int(words[-1])
        if body + total + 2 <= len(data):
            self._message(words, bytes(data[body : body + total]))
        return body + total + 2

    def _message(self, words: list[bytes], body: bytes) -> None:
        sub, with_headers = self._subs.get(words[2]), words[0] == b"HMSG"
        cut = int(words[-2]) if with_headers else 0
        reply = words[3] if len(words) == 5 + with_headers else b""
        if sub is not None and sub.is_open:
            sub.handler(Msg(words[1], reply, body[:cut], body[cut:], self._internal))

    def _control(self, words: list[bytes]) -> None:
        if words[0] == b"PING":
            self._line.write(b"PONG\r\n")
        elif words[0] == b"-ERR":
            self.problem = b" ".join(words[1:]).strip(b"' ").decode("utf-8", "replace")
            self._on_lost(self.problem)


def _nothing() -> None:
    """Nobody listens any more."""


def _ignore(problem: str) -> None:
    """Nobody listens any more."""
