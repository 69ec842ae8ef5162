"""A snapshot on its way to a client: chunks on a subject, so many at a time as the client's window allows.

The archive is read in a thread, a few MiB ahead of what was sent. It begins when somebody listens, or after two
seconds. A client that stops to acknowledge ends it, and so does one that stops to listen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.clock import SECOND_NS
from jetlake.jetstream.advisories import new_id, send_advisory
from jetlake.jetstream.host import Timer
from jetlake.jetstream.snapshots.archive_source import ArchiveSource
from jetlake.jetstream.snapshots.work import Work
from jetlake.subjects import encode_subject
from jetlake.wire.go_time import format_time
from jetlake.wire.headers import status_block

if TYPE_CHECKING:
    from jetlake.broker.subscription import Msg
    from jetlake.jetstream.streams.stream import Stream

CHUNK_SIZE_DEFAULT, CHUNK_SIZE_MIN, CHUNK_SIZE_MAX = 128 * 1024, 1024, 1024 * 1024
WINDOW_SIZE_DEFAULT, WINDOW_SIZE_MIN, WINDOW_SIZE_MAX = 8 * 1024 * 1024, 1024, 32 * 1024 * 1024
_READ_SIZE = 4 * 1024 * 1024
_AHEAD_SIZE = 8 * 1024 * 1024
_TURN_SIZE = 1024 * 1024  # sent before others have their turn
_INTEREST_NS, _FLOW_NS = 2 * SECOND_NS, 5 * SECOND_NS
_NO_FLOW, _NO_INTEREST = "No Flow Response", "No Interest"


class Sending:
    """One snapshot."""

    def __init__(
        self, stream: Stream, source: ArchiveSource, deliver: str, chunk_size: int, window_size: int, client: Any
    ) -> None:
        """`client` is what advisories tell of who asked."""
        self._stream, self._source, self._client = stream, source, client
        self._host, self._account = stream.host, stream.account
        self._deliver = encode_subject(deliver)
        self._chunk_size = min(max(chunk_size or CHUNK_SIZE_DEFAULT, CHUNK_SIZE_MIN), CHUNK_SIZE_MAX)
        window_size = min(max(window_size or WINDOW_SIZE_DEFAULT, WINDOW_SIZE_MIN), WINDOW_SIZE_MAX)
        self._slots = max(window_size // self._chunk_size, 1)
        self._acks = f"$JS.SNAPSHOT.ACK.{stream.name}.{new_id()}"
        self._buffer, self._at = bytearray(), 0  # what was read, and how much of it is sent
        self._sent = 0
        self._is_reading = self._is_sending = self._is_over = self._is_heard = False
        self._timer: Timer | None = None
        self._start_ns = self._host.clock()

    def begin(self, state: dict[str, Any]) -> None:
        """Tell that it begins, and wait for somebody to listen."""
        self._tell("CREATE", "snapshot_create", {"state": state})
        self._sub = self._account.subscribe(encode_subject(f"{self._acks}.>"), self._acknowledged)
        self._read()
        if self._account.has_interest(self._deliver):
            self._start()
            return
        self._watch = self._account.watch(self._deliver, self._heard)
        self._timer = self._host.call_at(self._host.clock() + _INTEREST_NS, self._start_unheard)

    def _heard(self) -> None:
        if not self._is_sending and self._account.has_interest(self._deliver):
            self._account.unwatch(self._watch)
            self._start()

    def _start_unheard(self) -> None:
        if not self._is_sending:
            self._account.unwatch(self._watch)
            self._start()

    def _start(self) -> None:
        self._cancel_timer()
        self._is_sending, self._is_heard = True, self._account.has_interest(self._deliver)
        self._host.call_soon(self._send)

    def _acknowledged(self, msg: Msg) -> None:
        self._slots += 1
        self._cancel_timer()
        self._send()

    def _read(self) -> None:
        """Read on, unless enough is there."""
        left = len(self._buffer) - self._at
        if self._is_reading or self._is_over or self._source.is_done or left > _AHEAD_SIZE:
            return
        self._is_reading = True
        Work(self._host, lambda: self._source.read(_READ_SIZE), self._was_read, self._failed)

    def _was_read(self, data: bytes) -> None:
        self._is_reading = False
        if self._at > len(self._buffer) // 2:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data
        self._read()
        if self._is_sending:
            self._send()

    def _failed(self, error: BaseException) -> None:
        self._is_reading = False
        self._host.log("error", f"snapshot failed stream={self._stream.name} error={error}")
        self._end(500, "snapshot failed", "snapshot failed")

    def _send(self) -> None:
        """Send what the window allows."""
        size = 0
        while not self._is_over and self._is_sending and self._slots and self._has_chunk():
            if size >= _TURN_SIZE:
                self._host.call_soon(self._send)
                return
            size += self._chunk_size
            self._send_chunk()
        self._read()
        if self._is_over or not self._is_sending:
            return
        if not self._slots and self._timer is None:
            self._timer = self._host.call_at(self._host.clock() + _FLOW_NS, self._no_flow)
        if self._source.is_done and not self._is_reading and not self._has_chunk():
            self._finish()

    def _has_chunk(self) -> bool:
        return len(self._buffer) - self._at >= self._chunk_size

    def _send_chunk(self) -> None:
        chunk = bytes(memoryview(self._buffer)[self._at : self._at + self._chunk_size])
        self._at += self._chunk_size
        self._slots -= 1
        self._sent += 1
        reply = encode_subject(f"{self._acks}.{self._chunk_size}.{self._sent}")
        if not self._account.send(self._deliver, chunk, reply=reply) and self._is_heard:
            self._end(408, _NO_INTEREST, "no interest")

    def _finish(self) -> None:
        rest = bytes(self._buffer[self._at :])
        if rest:
            self._account.send(self._deliver, rest)
        self._end(204 if self._sent else 0)

    def _no_flow(self) -> None:
        self._timer = None
        if not self._slots:
            self._end(408, _NO_FLOW, "no flow response")

    def _end(self, code: int, text: str = "", error: str = "") -> None:
        if self._is_over:
            return
        self._is_over = True
        self._cancel_timer()
        self._account.unsubscribe(self._sub)
        self._account.send(self._deliver, headers=status_block(code, text) if code else b"")
        times = {"start": format_time(self._start_ns), "end": format_time(self._host.clock())}
        self._tell("COMPLETE", "snapshot_complete", times | ({"error": error} if error else {}))
        self._buffer = bytearray()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self, event: str, type: str, fields: dict[str, Any]) -> None:
        name = self._stream.name
        fields = {"stream": name, **fields, "client": self._client}
        send_advisory(self._account, self._host, f"STREAM.SNAPSHOT_{event}.{name}", type, fields)
