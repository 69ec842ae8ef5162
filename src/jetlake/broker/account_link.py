"""A link as one account has it: what the other server wants there, and what it is told.

The other server's subscriptions are `LinkSubscription`s here, and it is told what is wanted here by a `LinkInterest`.
To the account it is a peer like any other, who subscribes and publishes.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from jetlake.broker.frames import find_traced, link_frames
from jetlake.broker.link_interest import LinkInterest
from jetlake.broker.peer import Peer
from jetlake.broker.subscription import Buffer, Msg, Subscription, as_batch, read_msg, read_subject
from jetlake.errors import BadSubject
from jetlake.ops import OP_WORDS
from jetlake.subjects import check_filter, decode_subject
from jetlake.wire import writer
from jetlake.wire.links import Interest, NoInterest

if TYPE_CHECKING:
    from jetlake.broker.account import Account
    from jetlake.broker.broker import Broker
    from jetlake.broker.mappings import Mappings


class LinkSubscription(Subscription):
    """What the other server wants. As a member of a queue group it stands for all that are behind the link."""

    __slots__ = ("link", "weight")
    link: AccountLink

    def __init__(self, link: AccountLink, subject: bytes, queue: bytes | None, weight: int) -> None:
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


class AccountLink(Peer):
    """One account of a link."""

    verb, headers_verb = b"", b""
    takes_headers = True
    takes_traces = False  # the other side traces messages, too
    maps = False  # whether the account's mappings hold for what comes over
    is_limited = False  # some messages may not come over: each has to be looked at
    is_joined = False  # the account tells the link what is wanted in it
    tells_services = True  # whether the other side is told of services that are imported from another account
    broker: Broker

    def begin(self, account: Account) -> None:
        """Take part in an account, of which nothing was told yet."""
        self.account = account
        self.subs: dict[tuple[bytes, bytes | None], LinkSubscription] = {}
        self.interest = LinkInterest(self)

    # What kinds of links decide

    @property
    def identity(self) -> tuple[int, str]:
        """The number of the connection, and the name of the other server."""
        raise NotImplementedError

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

    def interest_line(self, subject: bytes, queue: bytes | None, weight: int) -> bytes:
        """How the other side is told that somebody here wants this."""
        raise NotImplementedError

    def no_interest_line(self, subject: bytes, queue: bytes | None) -> bytes:
        """How the other side is told that nobody does any more."""
        raise NotImplementedError

    def send(self, frames: bytes) -> None:
        """Queue bytes for the socket."""
        raise NotImplementedError

    def send_msgs(self, frames: bytes, count: int, origin: Peer, size: int) -> None:
        """Queue messages of somebody, who may have to wait if there are too many."""
        raise NotImplementedError

    # Coming and going

    def join(self) -> None:
        """Tell the other side what is wanted, from now on, and by steps of `interest` what is already."""
        self.is_joined = True
        self.account.add_link(self)
        self.interest.begin(self.account.wanted())

    def leave(self) -> None:
        """The link is closed."""
        if not self.is_joined:
            return
        self.is_joined = False
        self.account.remove_link(self)
        self.broker.forget_subscriptions(self.account, list(self.subs.values()))

    # What the other side says

    def want(self, event: Interest) -> None:
        """It wants messages, or has more or fewer members of a queue group than before."""
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

    def unwant(self, event: NoInterest) -> None:
        """It wants them no longer."""
        sub = self.subs.pop((event.subject, event.queue), None)
        if sub is not None:
            self.account.remove(sub)

    def publish(
        self, data: bytearray, ops: array[int], shown: array[int], count: int, queues: tuple[bytes, ...]
    ) -> None:
        """Carry its messages to everybody they reach here. `shown` are the operations as subscribers see them."""
        first = 0
        while first < count:
            stop = find_traced(data, ops, first, count, self.account.is_traced)
            if first < stop:
                self._publish_run(data, ops, shown, first, stop, queues)
            if stop < count:
                self._publish_traced(read_msg(data, ops, stop, self), queues)
            first = stop + 1

    def _publish_run(
        self, data: Buffer, ops: array[int], shown: array[int], first: int, stop: int, queues: tuple[bytes, ...]
    ) -> None:
        if self.maps and self.account.mappings is not None and shown is ops:
            before = ops[first * OP_WORDS : stop * OP_WORDS]
            mapped, dropped = self.account.mappings.apply(data, ops, first, stop)
            if mapped is not data or dropped:
                ops[first * OP_WORDS : stop * OP_WORDS] = before
                for number in range(first, stop):
                    self._publish_mapped(self.account.mappings, read_msg(data, ops, number, self), queues)
                return
        if not self.is_limited:
            self.account.publish_from_link(self, data, ops, shown, first, stop, queues)
            return
        for number in range(first, stop):
            if self.may_receive(read_subject(data, ops, number)):
                self.account.publish_from_link(self, data, ops, shown, number, number + 1, queues)

    def _publish_mapped(self, mappings: Mappings, msg: Msg, queues: tuple[bytes, ...]) -> None:
        """Carry on one message that a mapping may give another subject: then any member of a queue group may get it."""
        if self.is_limited and not self.may_receive(msg.subject):
            return
        subject = mappings.map(msg.subject)
        data, ops = as_batch(msg._replace(subject=subject))
        if subject and (subject == msg.subject or queues):
            self.account.publish_from_link(self, data, ops, ops, 0, 1, queues)
        elif subject:
            self.account.publish(self, data, ops, 0, 1)

    def _publish_traced(self, msg: Msg, queues: tuple[bytes, ...]) -> None:
        """Carry on a message whose headers ask for a trace."""
        from jetlake.broker import msg_trace  # few messages do

        msg, trace, is_dropped = msg_trace.begin(self.broker, self, msg)
        if is_dropped or (self.is_limited and not self.may_receive(msg.subject)):
            return
        if trace is None:
            data, ops = as_batch(msg)
            self._publish_run(data, ops, ops, 0, 1, queues)
            return
        mappings = self.account.mappings if self.maps else None
        subject = mappings.map(msg.subject) if mappings is not None else msg.subject
        if subject != msg.subject:
            trace.mapped(subject)
        if subject:
            is_any = subject != msg.subject and not queues
            trace.carry(self.account, msg._replace(subject=subject), None if is_any else queues)
        trace.finish()

    def may_trace_to(self, subject: bytes) -> bool:
        """True when traces of what comes over may go to a subject."""
        return True

    def violation(self, text: str) -> None:
        """Tell the other side what it may not do."""
        self.send(writer.err(text))

    # What it is sent

    def send_run(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int, queues: bytes) -> None:
        """Send a run of publishes over."""
        frames, size = link_frames(data, ops, first, stop, self.verb, self.headers_verb, queues, self.takes_headers)
        self.send_msgs(frames, stop - first, origin, size)

    def send_msg(self, msg: Msg, via: bytes | None, queues: bytes) -> None:
        """Send one message over. One from a consumer has the subject that it was stored with behind its reply."""
        subject, reply = via or msg.subject, msg.reply
        if via is not None and reply and via != msg.subject:
            reply = b"%s@%s" % (reply, msg.subject)
        data, ops = as_batch(msg._replace(subject=subject, reply=reply))
        self.send_run(msg.origin, data, ops, 0, 1, queues)
