"""A subscription: interest of a peer in a subject, and how the peer takes messages.

Each kind of peer has a kind of subscription: a client's makes frames for a connection, one of the server's own calls a
handler. Those that lead to other accounts are in `jetlake.broker.imports`.

Subscriptions of a client that is closed may stay in the index for a moment (see `Broker.forget`). Nobody hears by them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.frames import msg_frames
from jetlake.broker.peer import Kind, Peer
from jetlake.ops import OP_WORDS, append_op
from jetlake.wire.headers import header_flags

if TYPE_CHECKING:
    from jetlake.broker.account_link import AccountLink
    from jetlake.broker.client import Client

Buffer = bytes | bytearray


class Msg(NamedTuple):
    """A message as a handler of the server gets it."""

    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    origin: Peer  # who published it

    @property
    def client(self) -> Client | None:
        """The client who published it; None when that was another peer."""
        return self.origin if self.origin.kind is Kind.CLIENT else None  # type: ignore[return-value]

    @property
    def is_internal(self) -> bool:
        """True when the server itself published it."""
        return self.origin.kind is Kind.INTERNAL


Handler = Callable[[Msg], bool | None]  # False: there is nobody here to take it
BatchHandler = Callable[[Peer, Buffer, "array[int]", int, int], None]  # operations first..stop-1


class Subscription:
    """Interest in a subject, perhaps as a member of a queue group."""

    __slots__ = ("peer", "queue", "subject")
    is_filtered = False  # some messages may be denied: each has to be looked at
    is_uneven = False  # of two messages, one may be taken and the other one not
    link: AccountLink | None = None  # that leads to the subscriber
    weight = 1  # in a queue group: how many members there are behind it
    is_service = False  # whether requests go on to another account
    repeats: object = None  # of several subscriptions with the same one, a message is for the first

    def __init__(self, peer: Peer, subject: bytes, queue: bytes | None = None) -> None:
        self.peer, self.subject, self.queue = peer, subject, queue

    def deliver_run(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> bool:
        """Deliver a run of publishes; False when nobody took them."""
        taken = [self.deliver(read_msg(data, ops, number, origin)) for number in range(first, stop)]
        return any(taken)

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Deliver one message; False when nobody took it. `via`: the subject it was sent to, if that is another."""
        raise NotImplementedError

    def takes_all(self, origin: Peer) -> bool:
        """True when every message of this publisher would be taken, without a look at it."""
        return False

    def hears(self, subject: bytes) -> bool:
        """True when somebody outside the server would get a message to this subject, which the subscription matches."""
        return False


class ClientSubscription(Subscription):
    """A subscription of a client."""

    __slots__ = ("client", "delivered", "is_filtered", "max_msgs", "sid")

    def __init__(
        self, client: Client, subject: bytes, queue: bytes | None, sid: bytes, *, is_filtered: bool = False
    ) -> None:
        super().__init__(client, subject, queue)
        self.client, self.sid = client, sid
        self.is_filtered = is_filtered
        self.max_msgs = 0  # in total; 0: no end
        self.delivered = 0

    def deliver_run(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> bool:
        """Deliver a run of publishes; False when nobody took them."""
        client = self.client
        if client.is_closed or (client is origin and not client.options.echo):
            return False
        if self.is_filtered or client.permits is not None:
            return super().deliver_run(origin, data, ops, first, stop)
        if self.max_msgs:
            stop = min(stop, first + self.max_msgs - self.delivered)
            if stop <= first:
                return False
        frames, size = msg_frames(data, ops, first, stop, self.sid, client.options.headers)
        client.send_msgs(frames, stop - first, origin, size)
        self._count(stop - first)
        return True

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Deliver one message; False when nobody took it. `via`: the subject it was sent to, if that is another."""
        client = self.client
        if client.is_closed or (client is msg.origin and not client.options.echo):
            return False
        if self.max_msgs and self.delivered >= self.max_msgs:
            return False
        if self.is_filtered and not client.may_receive(via or msg.subject, self.queue):
            return False
        client.send_msg(self.sid, msg)
        self._count(1)
        return True

    def takes_all(self, origin: Peer) -> bool:
        """True when every message of this publisher would be taken, without a look at it."""
        client = self.client
        is_own = client is origin and not client.options.echo
        return not (client.is_closed or is_own or self.is_filtered or self.max_msgs or client.permits is not None)

    def hears(self, subject: bytes) -> bool:
        """True when the client is there to get a message."""
        return not self.client.is_closed

    @property
    def is_plain(self) -> bool:
        """True when frames that were made for it may be sent without a look at each."""
        client = self.client
        is_bound = client.is_closed or client.permits is not None or not client.options.headers
        return not (is_bound or self.is_filtered or self.max_msgs)

    def room(self) -> int:
        """How many bytes of deliveries may be queued before they should pause."""
        return self.client.room()

    def take_frames(self, frames: bytes, count: int) -> None:
        """Send messages that were made into frames."""
        self.client.send_msgs(frames, count)
        self.delivered += count

    def _count(self, count: int) -> None:
        self.delivered += count
        if self.max_msgs and self.delivered >= self.max_msgs:
            self.client.remove_subscription(self)


class InternalSubscription(Subscription):
    """A subscription of the server's own, which has a handler instead of a connection."""

    __slots__ = ("batch_handler", "handler", "is_uneven")

    def __init__(
        self,
        peer: Peer,
        subject: bytes,
        handler: Handler,
        queue: bytes | None = None,
        batch_handler: BatchHandler | None = None,
    ) -> None:
        super().__init__(peer, subject, queue)
        self.handler, self.batch_handler = handler, batch_handler
        self.is_uneven = batch_handler is None

    def deliver_run(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> bool:
        """Have a run of publishes handled; False when nobody took them."""
        if self.batch_handler is None:
            return super().deliver_run(origin, data, ops, first, stop)
        self.batch_handler(origin, data, ops, first, stop)
        return True

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Have one message handled; False when nobody took it."""
        return self.handler(msg) is not False

    def takes_all(self, origin: Peer) -> bool:
        """True when runs are taken."""
        return self.batch_handler is not None


class FrameSubscription(InternalSubscription):
    """A subscription of the server's own that takes messages as frames, as a client does."""

    __slots__ = ("_take", "is_open")
    sid = b"1"

    def __init__(
        self,
        peer: Peer,
        subject: bytes,
        handler: Handler,
        batch_handler: BatchHandler,
        take: Callable[[bytes], None],
    ) -> None:
        super().__init__(peer, subject, handler, batch_handler=batch_handler)
        self._take, self.is_open = take, True

    def hears(self, subject: bytes) -> bool:
        """True: what listens here is as good as a client."""
        return self.is_open

    @property
    def is_plain(self) -> bool:
        """True while somebody listens."""
        return self.is_open

    def room(self) -> int:
        """No bound here: who takes deliveries asks for flow control."""
        return self.peer.room()

    def take_frames(self, frames: bytes, count: int) -> None:
        """Take messages that were made into frames."""
        self._take(frames)


FrameTarget = ClientSubscription | FrameSubscription


def read_msg(data: Buffer, ops: array[int], number: int, origin: Peer) -> Msg:
    """One publish of a batch as an object."""
    at = number * OP_WORDS
    subject, subject_size, reply, reply_size, headers, headers_size, payload, payload_size = ops[at : at + 8]
    view = memoryview(data)
    return Msg(
        bytes(view[subject : subject + subject_size]),
        bytes(view[reply : reply + reply_size]),
        bytes(view[headers : headers + headers_size]),
        bytes(view[payload : payload + payload_size]),
        origin,
    )


def as_batch(msg: Msg) -> tuple[bytearray, array[int]]:
    """One message as a batch of publishes."""
    data, ops = bytearray(), array("I")
    append_op(ops, data, msg.subject, msg.payload, msg.headers, msg.reply, header_flags(msg.headers))
    return data, ops


def read_subject(data: Buffer, ops: array[int], number: int) -> bytes:
    """The subject of one publish of a batch."""
    start, size = ops[number * OP_WORDS : number * OP_WORDS + 2]
    return bytes(memoryview(data)[start : start + size])
