"""A connection to a peer, a client or another server: the asyncio face of what `broker` has without I/O.

Everything that is received goes through one buffer which all connections share: a chunk is acted on before the next one
is read, and what is left over of it (the beginning of a message) is kept aside by its connection. A message that is
larger than what is left of the shared buffer gets a buffer of its own: one that was used before, or a new one, which
grows as the message arrives. What a peer promises to send costs nothing.

Reading stops while the peer is held: by a stream that cannot write as fast as it is published to, by a subscriber that
cannot take what this peer publishes, while a password is checked, or while what was read takes its time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from jetlake.broker.client import Client
from jetlake.broker.link import Link
from jetlake.broker.peer import Peer
from jetlake.clock import SECOND_NS
from jetlake.wire import writer

if TYPE_CHECKING:
    from jetlake.server.server import Server

CHUNK_SIZE = 256 * 1024
OWN_SIZE_MIN = 16 * 1024
SPARE_SIZE_MAX = 4 * 1024 * 1024
WRITE_HIGH = 1024 * 1024  # bytes that wait for a socket when the write deadline starts to run
WRITE_LOOKS = 8  # within a write deadline, at whether the peer takes anything
FIRST_PING_S = 2.0  # soon after the login, to learn the round-trip time
STALL_S = 0.005
STALLS_MAX = 4  # of a publisher in a row, for a subscriber that takes nothing at all


class SharedBuffer:
    """Where all connections receive."""

    def __init__(self, size: int = CHUNK_SIZE) -> None:
        self.data = bytearray(size)
        self.view = memoryview(self.data)


class SpareBuffers:
    """Buffers of large messages that are over, for the next ones: to make one costs as much as to copy the message."""

    def __init__(self, size_max: int = SPARE_SIZE_MAX) -> None:
        self._buffers: list[bytearray] = []
        self._size_left = size_max

    def take(self, size: int) -> bytearray | None:
        """A buffer with room for so many bytes; None when there is none."""
        for place, buffer in enumerate(self._buffers):
            if len(buffer) >= size:
                self._size_left += len(buffer)
                return self._buffers.pop(place)
        return None

    def give(self, buffer: bytearray) -> None:
        """Keep a buffer that nobody uses any more, if there are not too many."""
        if len(buffer) <= self._size_left:
            self._size_left -= len(buffer)
            self._buffers.append(buffer)


class PeerConnection(asyncio.BufferedProtocol):
    """One peer's socket."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._rest = b""  # the beginning of a message
        self._own: bytearray | None = None
        self._own_size = 0  # that it needs in the end
        self._used = 0  # bytes of the buffer in use that were received before
        self._holds = 0
        self._written_size = 0  # bytes that were handed to the socket
        self._taken_size, self._taken_s = 0, 0.0  # how many of them it has let go, and when it was seen to
        self._end_reason = ""  # why the socket is gone
        self._has_more = False  # of what was received, some is yet to be acted on: `_rest`
        self.is_closing = self._is_stalled = False
        self.is_greeted = self.is_tls_first = self._was_pinged = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.peer: Client | Link | None = None

    # The socket's events

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._own is not None:
            return memoryview(self._own)[self._used : self._own_size]
        shared = self._server.buffer
        self._used = len(self._rest)
        if not self._used:
            return shared.view
        shared.data[: self._used] = self._rest
        return shared.view[self._used :]

    def buffer_updated(self, nbytes: int) -> None:
        server = self._server
        try:
            with server.commits:
                if self._own is None:
                    self._act(server.buffer.data, self._used + nbytes)
                else:
                    self._take_own(self._own, self._used + nbytes)
        except Exception as error:  # how far it got is not known, so this client cannot go on; all others can
            self._failed("input", error)
        server.flush()
        server.vigil.begin()

    def _take_own(self, own: bytearray, end: int) -> None:
        """More of a large message came."""
        self._used = end
        if end == self._own_size:
            self._own = None
            self._act(own, end)
            self._server.spare_buffers.give(own)
        elif end == len(own):
            self._grow(own)

    def _failed(self, what: str, error: Exception) -> None:
        """Something went wrong that nobody foresaw: it costs this connection, and nothing else."""
        self._server.failed(f"{what} cid={self.peer.cid if self.peer is not None else 0}", error)
        if self.peer is not None:
            self.peer.close("Internal Error")
        self.abort()

    def _go_on(self) -> None:
        """Act on what there was no time for."""
        self._has_more = False
        rest, self._rest = bytearray(self._rest), b""
        try:
            with self._server.commits:
                self._act(rest, len(rest))
        except Exception as error:
            self._failed("input", error)
        self._server.flush()
        self.release()
        if self._end_reason and not self._has_more:
            self._end()

    def _act(self, data: bytearray, end: int) -> None:
        peer = self.peer
        assert peer is not None
        offset = peer.receive(data, 0, end)
        if offset == end or peer.is_closed:
            self._rest = b""
            return
        needed, rest = peer.needed, memoryview(data)[offset:end]
        if needed > len(rest) and needed > CHUNK_SIZE // 2 and not peer.has_more:
            self._own_size, self._used, self._rest = needed, len(rest), b""
            self._begin_own(rest)
            return
        self._rest = bytes(rest)
        if peer.has_more:
            self._has_more = True
            self.hold()
            self._server.loop.call_soon(self._go_on)

    def _begin_own(self, received: memoryview) -> None:
        """Receive a large message into a buffer of this connection's own."""
        self._own = self._server.spare_buffers.take(self._own_size)
        if self._own is None:
            self._grow(received)
        else:
            self._own[: len(received)] = received

    def _grow(self, received: memoryview | bytearray) -> None:
        """Make a buffer of this connection's own, with room for as much again as it received."""
        size = len(received)
        self._own = bytearray(min(max(2 * size, OWN_SIZE_MIN), self._own_size))
        self._own[:size] = received

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._end_reason = "Client Closed" if exc is None else "Read Error"
        if not self._has_more:  # else what was received before is acted on first
            self._end()

    def _end(self) -> None:
        """Nothing comes any more, and everything that came was acted on."""
        self._own, self._rest = None, b""
        if self.peer is not None:
            self.peer.close(self._end_reason)
        self._server.disconnected(self)

    def pause_writing(self) -> None:
        self._taken_size, self._taken_s = self._written_size - self.pending_size(), self._server.loop.time()
        self._watch_writing()

    def resume_writing(self) -> None:
        self._cancel_timer("write")

    def _watch_writing(self) -> None:
        """Look now and then whether the peer takes anything: one that reads steadily may take as long as it needs."""
        self._set_timer("write", self._server.options.write_deadline_s / WRITE_LOOKS, self._look_at_writing)

    def _look_at_writing(self) -> None:
        now_s, taken_size = self._server.loop.time(), self._written_size - self.pending_size()
        if taken_size > self._taken_size:
            self._taken_size, self._taken_s = taken_size, now_s
        if now_s - self._taken_s < self._server.options.write_deadline_s:
            self._watch_writing()
            return
        if self.peer is not None:
            self.peer.close_slow("Slow Consumer (Write Deadline)")
        self.abort()

    def _set_timer(self, name: str, delay_s: float, callback: Callable[[], None]) -> None:
        self._cancel_timer(name)
        self._timers[name] = self._server.loop.call_later(delay_s, callback)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    # What the peer asks

    def pending_size(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        self.is_closing = True
        self._server.flush_soon()

    def hold(self) -> None:
        self._holds += 1
        if self._holds == 1 and self._transport is not None:
            self._transport.pause_reading()

    def release(self) -> None:
        self._holds -= 1
        if self._holds == 0 and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def stall(self, slow: Peer) -> None:
        if not self._is_stalled:
            self._is_stalled = True
            self._server.broker.stalls += 1
            self.hold()
            self._server.loop.call_later(STALL_S, self._end_stall, slow, 1)

    def _end_stall(self, slow: Peer, times: int) -> None:
        if slow.is_closed or slow.room() > 0 or times >= STALLS_MAX or self._transport is None:
            self._is_stalled = False
            self.release()
        else:
            self._server.loop.call_later(STALL_S, self._end_stall, slow, times + 1)

    # What the server asks

    def _start_pings(self) -> None:
        delay_s = min(FIRST_PING_S, self._ping_interval_s())
        self._set_timer("ping", delay_s * random.uniform(1.0, 1.2), self._ping)  # not for all peers at once

    def _ping_interval_s(self) -> float:
        return self._server.options.ping_interval_s

    def _ping_max(self) -> int:
        return self._server.options.ping_max

    def _use_transport(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH)

    def flush(self) -> None:
        """Hand what is queued to the socket."""
        peer, transport = self.peer, self._transport
        if peer is None or transport is None:
            return
        try:
            output = peer.take_output()
            if output and not transport.is_closing():
                self._written_size += len(output)
                transport.write(output)
            if self.is_closing and not transport.is_closing():
                transport.close()
                self._cancel_timer("ping")
                self._set_timer("close", self._server.options.write_deadline_s, self.abort)  # if nothing is taken
        except Exception as error:  # others wait for their output too
            self._failed("output", error)

    def abort(self) -> None:
        """Drop the socket at once."""
        if self._transport is not None:
            self._transport.abort()

    def _ping(self) -> None:
        peer, server = self.peer, self._server
        if peer is None or peer.is_closed:
            return
        now_ns = server.clock()
        interval_s = self._ping_interval_s()
        is_idle = now_ns - peer.active_ns >= interval_s * SECOND_NS
        if is_idle or (peer.is_connected and not self._was_pinged):
            if peer.pings_out >= self._ping_max():
                server.broker.stale_connections += 1
                peer.refuse("Stale Connection")
            else:
                self.ping()
        self._set_timer("ping", interval_s, self._ping)
        server.flush()

    def ping(self) -> None:
        """Ask the peer whether it is there."""
        peer = self.peer
        if peer is not None:
            self._was_pinged = True
            peer.pings_out += 1
            peer.ping_sent_ns = self._server.clock()
            peer.send(writer.PING)

    def reschedule(self) -> None:
        """Other options hold: the next PING may have to come sooner."""
        self._set_timer("ping", self._ping_interval_s(), self._ping)

    # What an observer asks

    @property
    def end_reason(self) -> str:
        """Why the peer was closed."""
        return self.peer.close_reason if self.peer is not None else ""

    @property
    def label(self) -> str:
        """How log lines name the peer."""
        peer = self.peer
        return peer.label if isinstance(peer, Link) else self._server.broker.label(peer) if peer is not None else "-"

    def tls_details(self) -> dict[str, Any]:
        """The version and cipher of a secure connection."""
        cipher = self._transport.get_extra_info("cipher") if self._transport is not None else None
        if cipher is None:
            return {}
        details = {"tls_version": cipher[1].removeprefix("TLSv"), "tls_cipher_suite": cipher[0]}
        return details | ({"tls_first": True} if self.is_tls_first else {})
