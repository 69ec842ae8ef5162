"""A connection: the asyncio face of a `broker.Client`.

Everything that is received goes through one buffer which all connections share: a chunk is acted on before the next one
is read, and what is left over of it (the beginning of a message) is kept aside by its connection. A message that is
larger than what is left of the shared buffer gets a buffer of its own, which grows as the message arrives: what a peer
promises to send costs nothing.

Reading stops while the client is held: by a stream that cannot write as fast as it is published to, by a subscriber
that cannot take what this client publishes, while a password is checked, or while what was read takes its time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from jetlake.broker.auth import Credentials
from jetlake.broker.client import Client
from jetlake.clock import SECOND_NS
from jetlake.server.address import peer_of
from jetlake.server.turns import Turns
from jetlake.wire import writer

if TYPE_CHECKING:
    from jetlake.server.server import Server

CHUNK_SIZE = 256 * 1024
OWN_SIZE_MIN = 16 * 1024
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


class ClientConnection(asyncio.BufferedProtocol):
    """One client's socket."""

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
        self.client: Client | None = None

    # The socket's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH)
        if self.client is None:
            self.client = self._server.accept(self, *peer_of(transport.get_extra_info("peername")))
        if not self.is_greeted:  # a TLS listener greets before there is a transport
            self.client.send(writer.info(self._server.broker.info(self.client)))
        self._start()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._own is not None:
            return memoryview(self._own)[self._used :]
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
        elif end == len(own):
            self._grow(own)

    def _failed(self, what: str, error: Exception) -> None:
        """Something went wrong that nobody foresaw: it costs this connection, and nothing else."""
        self._server.failed(f"{what} cid={self.client.cid if self.client is not None else 0}", error)
        if self.client is not None:
            self.client.close("Internal Error")
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
        client = self.client
        assert client is not None
        offset = client.receive(data, 0, end)
        if offset == end or client.is_closed:
            self._rest = b""
            return
        self._rest = bytes(memoryview(data)[offset:end])
        if client.has_more:
            self._has_more = True
            self.hold()
            self._server.loop.call_soon(self._go_on)
            return
        needed = client.needed
        if needed > len(self._rest) and needed > CHUNK_SIZE // 2:
            self._own_size, self._used = needed, len(self._rest)
            self._grow(self._rest)
            self._rest = b""

    def _grow(self, received: bytes | bytearray) -> None:
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
        if self.client is not None:
            self.client.close(self._end_reason)
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
        if self.client is not None:
            self.client.close_slow("Slow Consumer (Write Deadline)")
        self.abort()

    def _set_timer(self, name: str, delay_s: float, callback: Callable[[], None]) -> None:
        self._cancel_timer(name)
        self._timers[name] = self._server.loop.call_later(delay_s, callback)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    # What the client asks

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

    def stall(self, slow: Client) -> None:
        if not self._is_stalled:
            self._is_stalled = True
            self._server.broker.stalls += 1
            self.hold()
            self._server.loop.call_later(STALL_S, self._end_stall, slow, 1)

    def _end_stall(self, slow: Client, times: int) -> None:
        if slow.is_closed or slow.room() > 0 or times >= STALLS_MAX or self._transport is None:
            self._is_stalled = False
            self.release()
        else:
            self._server.loop.call_later(STALL_S, self._end_stall, slow, times + 1)

    def check_login(self, credentials: Credentials) -> None:
        self.hold()
        self._server.spawn(self._check_login(credentials))

    async def _check_login(self, credentials: Credentials) -> None:
        client = self.client
        assert client is not None
        turns = Turns()
        try:
            while client.forget_some():  # which it had as who it was before
                await turns.pause()
            client.finish_login(await self._server.check(credentials, client.nonce))
            rest, self._rest = bytearray(self._rest), b""
            with self._server.commits:
                self._act(rest, len(rest))
        except Exception as error:
            self._failed("login", error)
        self._server.flush()
        self.release()

    # What the server asks

    def _start(self) -> None:
        """See to it that the client logs in and stays alive."""
        client, server = self.client, self._server
        assert client is not None
        if server.broker.is_full():
            client.refuse("maximum connections exceeded")
        elif server.broker.auth_required:
            self._set_timer("login", server.options.auth_timeout_s, self._auth_timeout)
        delay_s = min(FIRST_PING_S, server.options.ping_interval_s)
        self._set_timer("ping", delay_s * random.uniform(1.0, 1.2), self._ping)  # not for all clients at once
        server.flush()

    def flush(self) -> None:
        """Hand what is queued to the socket."""
        client, transport = self.client, self._transport
        if client is None or transport is None:
            return
        try:
            output = client.take_output()
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

    def _auth_timeout(self) -> None:
        if self.client is not None and not self.client.is_connected and not self.client.is_closed:
            self.client.refuse("Authentication Timeout")
            self._server.flush()

    def _ping(self) -> None:
        client, server = self.client, self._server
        if client is None or client.is_closed:
            return
        options, now_ns = server.options, server.clock()
        is_idle = now_ns - client.active_ns >= options.ping_interval_s * SECOND_NS
        if is_idle or (client.is_connected and not self._was_pinged):
            if client.pings_out >= options.ping_max:
                server.broker.stale_connections += 1
                client.refuse("Stale Connection")
            else:
                self.ping()
        self._set_timer("ping", options.ping_interval_s, self._ping)
        server.flush()

    def ping(self) -> None:
        """Ask the client whether it is there."""
        client = self.client
        if client is not None:
            self._was_pinged = True
            client.pings_out += 1
            client.ping_sent_ns = self._server.clock()
            client.send(writer.PING)

    def reschedule(self) -> None:
        """Other options hold: the next PING may have to come sooner."""
        self._set_timer("ping", self._server.options.ping_interval_s, self._ping)

    # What an observer asks

    def tls_details(self) -> dict[str, Any]:
        """The version and cipher of a secure connection."""
        cipher = self._transport.get_extra_info("cipher") if self._transport is not None else None
        if cipher is None:
            return {}
        details = {"tls_version": cipher[1].removeprefix("TLSv"), "tls_cipher_suite": cipher[0]}
        return details | ({"tls_first": True} if self.is_tls_first else {})
