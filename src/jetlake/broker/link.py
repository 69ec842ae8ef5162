"""A link to another server: one connection, without I/O.

The other server tells what is wanted behind it, and is told what is wanted here: `AccountLink`, for each account that
takes part. Messages go over in both directions, in batches: a run of publishes becomes one buffer of frames, and what
is received is tokenised by a kernel and carried on as a client's publishes are.

How two servers find together and what they may tell each other is the business of the kinds of links: a `Leaf` has one
account, a `Route` has all of them.

Reading is held while the other side is told what is there: so no message goes to a server before its answer could come
back. Output is bounded as a client's is.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Any, Protocol

from jetlake.broker.frames import msgs_size
from jetlake.broker.peer import Peer
from jetlake.wire import writer
from jetlake.wire.link_tokenize import restore_subjects, tokenize_link
from jetlake.wire.links import LINE_SIZE_MAX, Interest, NoInterest
from jetlake.wire.protocol import FULL, NEED_MORE, OTHER, ProtocolError, stop_error
from jetlake.wire.verbs import Ping, Pong

if TYPE_CHECKING:
    from jetlake.broker.account_link import AccountLink
    from jetlake.broker.broker import Broker

TURN_NS = 8_000_000  # for what was received over one link, before others have their turn
ROOM_MAX = 8 * 1024 * 1024  # deliveries from streams pause when this much waits for the socket


class LinkConnection(Protocol):
    """What a link needs of its connection."""

    def pending_size(self) -> int: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def stall(self, slow: Peer) -> None: ...


class Link(Peer):
    """One side of a link."""

    is_route = False  # whether its lines name an account

    def __init__(self, broker: Broker, connection: LinkConnection, cid: int) -> None:
        self.broker, self.connection, self.cid = broker, connection, cid
        self.is_open = self.is_closed = False
        self.is_checking = False  # whether the other side may be here: nothing is read meanwhile
        self.close_reason = ""
        self.max_payload = broker.options.max_payload
        self.needed, self.has_more = 0, False  # as a client has them
        self.start_ns = self.active_ns = broker.clock()
        self.rtt_ns = self.stop_ns = 0
        self.pings_out = 0
        self.ping_sent_ns = 0
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self._output: list[bytes] = []
        self._output_size = 0
        self._untold: list[AccountLink] = []  # accounts of which the other side is yet to be told

    @property
    def is_connected(self) -> bool:
        """True when both sides agreed."""
        return self.is_open

    @property
    def label(self) -> str:
        """How log lines name the link."""
        raise NotImplementedError

    # What kinds of links decide

    def parse_line(self, line: bytes) -> Any:
        """The event of a line that is no message. Raises ProtocolError."""
        raise NotImplementedError

    def take_event(self, event: Any) -> None:
        """Act on a line that is about the link itself."""
        raise NotImplementedError

    def account_of(self, name: bytes) -> AccountLink | None:
        """The account that a line is about; None when it is not to be had."""
        raise NotImplementedError

    def account_links(self) -> list[AccountLink]:
        """All accounts that take part."""
        raise NotImplementedError

    # Opening

    def open(self) -> None:
        """Both sides agreed: tell the other one what is wanted here, then take what it says."""
        self.is_open = True
        self._untold = self.account_links()
        self.connection.hold()
        self._tell_more()

    def _tell_more(self) -> None:
        """Tell some more of what is wanted here, account by account, for as long as one turn may take."""
        stop_ns = time.monotonic_ns() + TURN_NS
        while self._untold and not self.is_closed:
            found = self._untold[-1]
            if not found.is_joined:
                found.join()
            if not found.interest.go_on():
                self._untold.pop()
            if time.monotonic_ns() > stop_ns:
                self.broker.call_soon(self._tell_more)
                return
        self._untold = []
        self.connection.release()

    # Receiving

    def receive(self, data: bytearray, start: int, end: int) -> int:
        """Act on what was received; the offset of the first byte that has to be shown again. See `Client.receive`."""
        broker, ops = self.broker, self.broker.ops
        self.needed, self.has_more = 0, False
        self.active_ns = broker.clock()
        offset, stop_ns = start, time.monotonic_ns() + TURN_NS
        while offset < end and not self.is_closed and not self.is_checking:
            if time.monotonic_ns() > stop_ns:
                self.has_more = True
                break
            count, offset, reason, needed, queues_start, queues_size, is_mapped, name_start, name_size = tokenize_link(
                data, offset, end, ops, broker.ops_max, self.max_payload, LINE_SIZE_MAX, self.is_route
            )
            if count:
                queues = bytes(data[queues_start : queues_start + queues_size]).split() if queues_size else []
                account = bytes(data[name_start : name_start + name_size])
                self._publish(account, data, ops, count, tuple(queues), is_mapped)
            if reason == NEED_MORE:
                self.needed = needed
                break
            if reason == OTHER:
                self._take_line(bytes(memoryview(data)[offset : offset + needed]))
                offset += needed
            elif reason != FULL:
                self._protocol_error(stop_error(reason))
        return offset

    def _publish(
        self, account: bytes, data: bytearray, ops: array[int], count: int, queues: tuple[bytes, ...], is_mapped: bool
    ) -> None:
        if not self.is_open:
            self.not_open()
            return
        size = msgs_size(ops, 0, count)
        self.in_msgs += count
        self.in_bytes += size
        broker = self.broker
        broker.in_msgs += count
        broker.in_bytes += size
        broker.link_in_msgs += count
        broker.link_in_bytes += size
        found = self.account_of(account)
        if found is not None:
            found.publish(data, ops, restore_subjects(data, ops, count) if is_mapped else ops, count, queues)

    def not_open(self) -> None:
        """The other side sends messages before it may."""
        self.refuse("Authorization Violation")

    def _take_line(self, line: bytes) -> None:
        try:
            event = self.parse_line(line)
        except ProtocolError as error:
            self._protocol_error(error)
            return
        match event:
            case Interest() | NoInterest():
                self._take_interest(event)
            case Ping():
                self.send(writer.PONG)
            case Pong():
                self.pings_out = 0
                if self.ping_sent_ns:
                    self.rtt_ns, self.ping_sent_ns = self.broker.clock() - self.ping_sent_ns, 0
            case _:
                self.take_event(event)

    def _protocol_error(self, error: ProtocolError) -> None:
        if error.text is None:
            self.close("Protocol Violation")
        else:
            self.refuse(error.text)

    def _take_interest(self, event: Interest | NoInterest) -> None:
        if not self.is_open:
            self.not_open()
        elif (found := self.account_of(event.account)) is not None:
            if isinstance(event, Interest):
                found.want(event)
            else:
                found.unwant(event)

    # Sending

    def send(self, frames: bytes) -> None:
        """Queue bytes for the socket."""
        if self.is_closed:
            return
        if not self._output:
            self.broker.has_output(self)
        self._output.append(frames)
        self._output_size += len(frames)

    def send_msgs(self, frames: bytes, count: int, origin: Peer, size: int) -> None:
        """Queue messages of somebody, who may have to wait if there are too many."""
        self.out_msgs += count
        self.out_bytes += size
        broker = self.broker
        broker.out_msgs += count
        broker.out_bytes += size
        broker.link_out_msgs += count
        broker.link_out_bytes += size
        self.send(frames)
        pending = self.connection.pending_size() + self._output_size
        if pending > self.broker.options.max_pending:
            self.close_slow("Slow Consumer (Pending Bytes)")
        elif pending > self.broker.options.max_pending // 2:
            origin.hold_back(self)

    def room(self) -> int:
        """How many bytes of deliveries may be queued before they should pause."""
        return min(ROOM_MAX, self.broker.options.max_pending // 2) - self.connection.pending_size() - self._output_size

    def take_output(self) -> bytes:
        """What is to be sent, which counts as the socket's from now on."""
        output = self._output[0] if len(self._output) == 1 else b"".join(self._output)
        self._output.clear()
        self._output_size = 0
        return output

    def hold(self) -> None:
        """Read no more until `release`."""
        self.connection.hold()

    def release(self) -> None:
        """Go on reading, once for each `hold`."""
        self.connection.release()

    def hold_back(self, slow: Peer) -> None:
        """Read nothing for a moment: a subscriber cannot take what comes over."""
        self.connection.stall(slow)

    # Leaving

    def refuse(self, text: str) -> None:
        """Close with an -ERR."""
        self.send(writer.err(text))
        self.close(text)

    def close_slow(self, reason: str) -> None:
        """Close a link whose other side does not take what is sent to it."""
        if not self.is_closed:
            self.broker.slow_consumers += 1
            self._output.clear()
            self._output_size = 0
            self.close(reason)

    def close(self, reason: str) -> None:
        """Leave the account and let the connection go, once what is queued was sent."""
        if self.is_closed:
            return
        self.is_closed, self.close_reason, self.stop_ns = True, reason, self.broker.clock()
        if self.is_open:
            for found in self.account_links():
                found.leave()
        self.connection.close()
