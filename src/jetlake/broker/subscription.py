"""A subscription: of a client, or of the server itself, which has a handler instead of a connection.

Subscriptions of a client that is closed may stay in the index for a moment (see `Broker.forget`). Nobody hears by them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.frames import msg_frames
from jetlake.ops import OP_WORDS

if TYPE_CHECKING:
    from jetlake.broker.client import Client

Buffer = bytes | bytearray


class Msg(NamedTuple):
    """A message as a handler of the server gets it."""

    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    client: Client | None  # who published it; None: the server


Handler = Callable[[Msg], bool | None]  # False: there is nobody here to take it
BatchHandler = Callable[["Client | None", Buffer, "array[int]", int, int], None]  # operations first..stop-1


class Subscription:
    """Interest in a subject, perhaps as a member of a queue group."""

    __slots__ = (
        "batch_handler",
        "client",
        "delivered",
        "handler",
        "is_filtered",
        "max_msgs",
        "queue",
        "sid",
        "subject",
    )

    def __init__(
        self,
        subject: bytes,
        queue: bytes | None = None,
        sid: bytes = b"",
        *,
        client: Client | None = None,
        handler: Handler | None = None,
        batch_handler: BatchHandler | None = None,
        is_filtered: bool = False,
    ) -> None:
        assert client is not None or handler is not None
        self.subject, self.queue, self.sid = subject, queue, sid
        self.client, self.handler, self.batch_handler = client, handler, batch_handler
        self.is_filtered = is_filtered  # some messages may be denied: ask the client's permissions for each
        self.max_msgs = 0  # in total; 0: no end
        self.delivered = 0

    def deliver_run(self, origin: Client | None, data: Buffer, ops: array[int], first: int, stop: int) -> bool:
        """Deliver a run of publishes; False when nobody took them."""
        client = self.client
        if client is None:
            if self.batch_handler is not None:
                self.batch_handler(origin, data, ops, first, stop)
            else:
                taken = [self.deliver(read_msg(data, ops, number, origin)) for number in range(first, stop)]
                return any(taken)
            return True
        if client.is_closed or (client is origin and not client.options.echo):
            return False
        if self.is_filtered or client.permits is not None:
            taken = [self.deliver(read_msg(data, ops, number, origin)) for number in range(first, stop)]
            return any(taken)
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
        if client is None:
            assert self.handler is not None
            return self.handler(msg) is not False
        if client.is_closed or (client is msg.client and not client.options.echo):
            return False
        if self.max_msgs and self.delivered >= self.max_msgs:
            return False
        if self.is_filtered and not client.may_receive(via or msg.subject, self.queue):
            return False
        client.send_msg(self.sid, msg)
        self._count(1)
        return True

    def takes_all(self, origin: Client | None) -> bool:
        """True when every message of this publisher would be taken, without a look at it."""
        client = self.client
        if client is None:
            return self.batch_handler is not None
        is_own = client is origin and not client.options.echo
        return not (client.is_closed or is_own or self.is_filtered or self.max_msgs or client.permits is not None)

    def hears(self, subject: bytes) -> bool:
        """True when a client would get a message to this subject, which the subscription matches."""
        return self.client is not None and not self.client.is_closed

    def _count(self, count: int) -> None:
        self.delivered += count
        if self.max_msgs and self.delivered >= self.max_msgs:
            assert self.client is not None
            self.client.remove_subscription(self)


def read_msg(data: Buffer, ops: array[int], number: int, origin: Client | None) -> Msg:
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
