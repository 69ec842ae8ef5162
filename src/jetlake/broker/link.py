"""A link to another server: one connection, one account on each side, without I/O.

The other server tells what is wanted behind it (its subscriptions here are `LinkSubscription`s), and is told what is
wanted here (`LinkInterest`). Messages go over in both directions, in batches: a run of publishes becomes one buffer of
frames, and what is received is tokenised by a kernel and carried on as a client's publishes are.

How two servers find together and what they may tell each other is the business of the kinds of links: `Leaf`.

Reading is held while the other side is told what is there: so no message goes to a server before its answer could come
back. Output is bounded as a client's is.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING, Protocol

from jetlake.broker.frames import link_frames, msgs_size
from jetlake.broker.link_interest import LinkInterest
from jetlake.broker.peer import Peer
from jetlake.broker.subscription import Buffer, Msg, Subscription, read_subject
from jetlake.errors import BadSubject
from jetlake.ops import append_op
from jetlake.subjects import check_filter, decode_subject
from jetlake.wire import writer
from jetlake.wire.link_tokenize import restore_subjects, tokenize_link
from jetlake.wire.links import LINE_SIZE_MAX, Event, Interest, NoInterest, parse_link_line
from jetlake.wire.protocol import FULL, NEED_MORE, OTHER, ProtocolError, stop_error
from jetlake.wire.verbs import Ping, Pong

if TYPE_CHECKING:
    from jetlake.broker.account import Account
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


class LinkSubscription(Subscription):
    """What the other server wants. As a member of a queue group it stands for all that are behind the link."""

    __slots__ = ("link", "weight")
    link: Link

    def __init__(self, link: Link, subject: bytes, queue: bytes | None, weight: int) -> None:
        super().__init__(link, subject, queue)
        self.link, self.weight = link, weight

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Send one message over; False when that may not be."""
        link = self.link
        if link.is_closed or not link.takes_from(msg.origin) or not link.may_send(via or msg.subject):
            return False
        link.send_msg(msg, via, self.queue or b"")
        return True

    def hears(self, subject: bytes) -> bool:
        """True when a message to this subject would be sent over."""
        return not self.link.is_closed and self.link.may_send(subject)


class Link(Peer):
    """One side of a link."""

    verb, headers_verb = b"LMSG", b"HMSG"

    def __init__(self, broker: Broker, connection: LinkConnection, account: Account, cid: int) -> None:
        self.broker, self.connection, self.account, self.cid = broker, connection, account, cid
        self.is_open = self.is_closed = False
        self.close_reason = ""
        self.takes_headers = True
        self.subs: dict[tuple[bytes, bytes | None], LinkSubscription] = {}
        self.interest = LinkInterest(self)
        self.max_payload = broker.options.max_payload
        self.needed, self.has_more = 0, False  # as a client has them
        self.start_ns = self.active_ns = broker.clock()
        self.rtt_ns = self.stop_ns = 0
        self.pings_out = 0
        self.ping_sent_ns = 0
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self._output: list[bytes] = []
        self._output_size = 0

    @property
    def is_connected(self) -> bool:
        """True when both sides agreed."""
        return self.is_open

    @property
    def label(self) -> str:
        """How log lines name the link."""
        raise NotImplementedError

    # What kinds of links decide

    def may_send(self, subject: bytes) -> bool:
        """True when messages to this subject may go over."""
        raise NotImplementedError

    def may_receive(self, subject: bytes) -> bool:
        """True when messages to this subject may come over."""
        raise NotImplementedError

    def hides(self, subject: bytes) -> bool:
        """True when the other side is not told that somebody here wants this."""
        raise NotImplementedError

    def accepts(self, event: Interest) -> bool:
        """True when the other side may want this; if it closes the link, that is done."""
        raise NotImplementedError

    def take_event(self, event: Event) -> None:
        """Act on a line that is about the link itself."""
        raise NotImplementedError

    # Opening

    def open(self) -> None:
        """Both sides agreed: tell the other one what is wanted here, then take what it says."""
        self.is_open = True
        self.account.add_link(self)
        self.interest.begin(self.account.wanted())
        self.connection.hold()
        self._tell_more()

    def _tell_more(self) -> None:
        if not self.is_closed and self.interest.go_on():
            self.broker.call_soon(self._tell_more)
        else:
            self.connection.release()

    # Receiving

    def receive(self, data: bytearray, start: int, end: int) -> int:
        """Act on what was received; the offset of the first byte that has to be shown again. See `Client.receive`."""
        broker, ops = self.broker, self.broker.ops
        self.needed, self.has_more = 0, False
        self.active_ns = broker.clock()
        offset, stop_ns = start, time.monotonic_ns() + TURN_NS
        while offset < end and not self.is_closed:
            if time.monotonic_ns() > stop_ns:
                self.has_more = True
                break
            count, offset, reason, needed, queues_start, queues_size, is_mapped = tokenize_link(
                data, offset, end, ops, broker.ops_max, self.max_payload, LINE_SIZE_MAX
            )
            if count:
                queues = bytes(data[queues_start : queues_start + queues_size]).split() if queues_size else []
                self._publish(data, ops, count, tuple(queues), is_mapped)
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
        self, data: bytearray, ops: array[int], count: int, queues: tuple[bytes, ...], is_mapped: bool
    ) -> None:
        if not self.is_open:
            self.not_open()
            return
        size = msgs_size(ops, 0, count)
        self.in_msgs += count
        self.in_bytes += size
        self.broker.in_msgs += count
        self.broker.in_bytes += size
        shown = restore_subjects(data, ops, count) if is_mapped else ops
        if not self.is_limited:
            self.account.publish_from_link(self, data, ops, shown, 0, count, queues)
            return
        for number in range(count):
            if self.may_receive(read_subject(data, ops, number)):
                self.account.publish_from_link(self, data, ops, shown, number, number + 1, queues)

    is_limited = False  # some messages may not come over: each has to be looked at

    def not_open(self) -> None:
        """The other side sends messages before it may."""
        self.refuse("Authorization Violation")

    def _take_line(self, line: bytes) -> None:
        try:
            event = parse_link_line(line)
        except ProtocolError as error:
            self._protocol_error(error)
            return
        match event:
            case Interest():
                self._interest(event)
            case NoInterest():
                self._no_interest(event)
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

    def _interest(self, event: Interest) -> None:
        if not self.is_open:
            self.not_open()
            return
        key = (event.subject, event.queue)
        sub = self.subs.get(key)
        if sub is not None:
            self.account.reweigh(sub, event.weight)
            return
        try:
            check_filter(decode_subject(event.subject))
        except BadSubject:
            self.send(writer.err("Invalid Subscription"))
            return
        if self.accepts(event):
            self.subs[key] = sub = LinkSubscription(self, event.subject, event.queue, event.weight)
            self.account.insert(sub)

    def _no_interest(self, event: NoInterest) -> None:
        sub = self.subs.pop((event.subject, event.queue), None)
        if sub is not None:
            self.account.remove(sub)

    # Sending

    def send_run(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int, queues: bytes) -> None:
        """Send a run of publishes over."""
        frames, size = link_frames(data, ops, first, stop, self.verb, self.headers_verb, queues, self.takes_headers)
        self._send_msgs(frames, stop - first, origin, size)

    def send_msg(self, msg: Msg, via: bytes | None, queues: bytes) -> None:
        """Send one message over. One from a consumer has the subject that it was stored with behind its reply."""
        subject, reply = via or msg.subject, msg.reply
        if via is not None and reply and via != msg.subject:
            reply = b"%s@%s" % (reply, msg.subject)
        data, ops = bytearray(), array("I")
        append_op(ops, data, subject, msg.payload, msg.headers, reply)
        self.send_run(msg.origin, data, ops, 0, 1, queues)

    def send(self, frames: bytes) -> None:
        """Queue bytes for the socket."""
        if self.is_closed:
            return
        if not self._output:
            self.broker.has_output(self)
        self._output.append(frames)
        self._output_size += len(frames)

    def _send_msgs(self, frames: bytes, count: int, origin: Peer, size: int) -> None:
        self.out_msgs += count
        self.out_bytes += size
        self.broker.out_msgs += count
        self.broker.out_bytes += size
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
            self.account.remove_link(self)
            self.broker.forget_subscriptions(self.account, list(self.subs.values()))
        self.connection.close()
