"""What an account has from others: the messages of their streams, the answers of their services.

A stream of subjects is imported subscription by subscription: each one of the importer that covers some of it adds a
`HiddenSubscription` in the exporter's account, where messages find it as any other. So interest, queue groups and push
consumers see it; and importing what is imported leads nowhere.

A service is imported as one subscription, a `ServiceImport`: a request to it goes on in the exporter's account. Where
the request wants an answer, that subject means nothing there; a `ReplyMap` gives it another one, `_R_.<map>.<n>`,
and passes on what comes to it. An answer may ask in turn: then another map leads back.

A singleton is answered once, within its threshold. Other answers go on until an empty one, or until nobody wants them.
A map keeps at most OPEN_MAX replies open; the one that was silent for longest goes first.
"""

from __future__ import annotations

import itertools
import secrets
from array import array
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.peer import Kind, Peer
from jetlake.broker.subscription import Buffer, Msg, Subscription
from jetlake.clock import SECOND_NS, Clock
from jetlake.config import Import, SubjectMapping
from jetlake.subjects import encode_subject
from jetlake.wire.headers import append_headers, without_header
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.account import Account

OPEN_MAX = 65_536
SINGLETON = "singleton"
REQUEST_INFO = b"Nats-Request-Info"


class ImportedMsg(Msg):
    """A message that came through an imported service. It is not passed on to the importers of a stream."""


def as_stored(msg: Msg) -> Msg:
    """A message as a stream keeps it: without what was said to introduce who sent it."""
    return msg._replace(headers=without_header(msg.headers, REQUEST_INFO)) if isinstance(msg, ImportedMsg) else msg


class StreamImport(NamedTuple):
    """Subjects whose messages an account has from another."""

    exporter: Account
    mapping: SubjectMapping

    def hidden(self, sub: Subscription) -> HiddenSubscription | None:
        """What a subscription of the importer is for the exporter; None when they have nothing in common."""
        subject = self.mapping.outward(sub.subject)
        return HiddenSubscription(sub, subject, self) if subject is not None else None


class HiddenSubscription(Subscription):
    """A subscription, in the account that its messages are imported from."""

    __slots__ = ("_mapping", "_sub", "exporter", "is_uneven", "repeats")

    def __init__(self, sub: Subscription, subject: bytes, source: StreamImport) -> None:
        super().__init__(sub.peer, subject, sub.queue)
        self.exporter, self._mapping, self._sub = source.exporter, source.mapping, sub
        self.is_uneven = sub.is_uneven
        # A link gets each message once: which of its subscriptions it came by is decided on its other side.
        self.repeats = (sub.link, source) if sub.link is not None else None

    def deliver_run(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> bool:
        """Deliver a run of publishes; False when nobody took them."""
        if self._mapping.is_identity:
            return self._sub.deliver_run(origin, data, ops, first, stop)
        return super().deliver_run(origin, data, ops, first, stop)

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Deliver one message; False when nobody took it."""
        if isinstance(msg, ImportedMsg):
            return False
        if via is None:
            return self._sub.deliver(msg._replace(subject=self._mapping.inward(msg.subject)))
        return self.peer.kind is not Kind.INTERNAL and self._sub.deliver(msg, self._mapping.inward(via))

    def hears(self, subject: bytes) -> bool:
        """True when the subscriber is there to get a message."""
        return self._sub.hears(subject)


class ServiceImport(Subscription):
    """Subjects whose requests another account answers."""

    __slots__ = ("_mapping", "_share", "account", "exporter", "replies")
    is_uneven = True

    def __init__(self, account: Account, exporter: Account, options: Import, clock: Clock) -> None:
        self._mapping = SubjectMapping(options.subject, options.local)
        super().__init__(account.internal, encode_subject(self._mapping.local))
        self.account, self.exporter, self._share = account, exporter, options.share
        threshold_ns = int(options.response_threshold_s * SECOND_NS)
        self.replies = ReplyMap(exporter, account, options.response_type, threshold_ns, clock)

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Pass on a request; False when nobody took it."""
        subject = self._mapping.outward(via or msg.subject)
        if subject is not None and self.exporter.mappings is not None:
            subject = self.exporter.mappings.map(subject) or None
        if subject is None:
            return False
        reply = self.replies.add(msg.reply) if msg.reply and not msg.is_internal else msg.reply
        headers = msg.headers if msg.is_internal else self._introduce(msg.origin, msg.headers)
        shown = msg.subject if via else subject
        is_taken = self.exporter.deliver(
            ImportedMsg(shown, reply, headers, msg.payload, msg.origin), subject if via else None
        )
        if reply and not is_taken:
            self.replies.remove(reply)
        return is_taken

    def hears(self, subject: bytes) -> bool:
        """True when somebody would take a request to this subject."""
        found, exporter = self._mapping.outward(subject), self.exporter
        return found is not None and (exporter.has_interest(found) or exporter.capture_of(found) is not None)

    def _introduce(self, origin: Peer, headers: bytes) -> bytes:
        """The headers, with who asks: the account, and on `share` all that events say of a client."""
        info = origin.describe()
        if not self._share:
            info = {name: info[name] for name in ("acc", "rtt") if name in info}
        if origin.account is not self.account:
            info["svc"] = self.account.name
        line = (REQUEST_INFO, encode_json(info))
        return append_headers(without_header(headers, REQUEST_INFO), [line])


class _Open(NamedTuple):
    """A reply that is waited for."""

    reply: bytes
    since_ns: int


class ReplyMap(Subscription):
    """Subjects in one account that stand for replies in another."""

    __slots__ = ("_back", "_clock", "_is_single", "_numbers", "_open", "_prefix", "_threshold_ns", "account", "asker")
    is_uneven = True

    def __init__(self, account: Account, asker: Account, response_type: str, threshold_ns: int, clock: Clock) -> None:
        self._prefix = b"_R_.%s." % secrets.token_hex(4).encode()
        super().__init__(account.internal, self._prefix + b"*")
        self.account, self.asker, self._clock = account, asker, clock
        self._is_single, self._threshold_ns = response_type == SINGLETON, threshold_ns
        self._open: dict[bytes, _Open] = {}  # the one that was silent for longest comes first
        self._numbers = itertools.count(1)
        self._back: ReplyMap | None = None

    def add(self, reply: bytes) -> bytes:
        """The subject that stands for a reply."""
        now_ns = self._clock()
        while self._open and self._is_stale(next(iter(self._open.values())), now_ns):
            del self._open[next(iter(self._open))]
        subject = b"%s%s%d" % (self._prefix, secrets.token_hex(4).encode(), next(self._numbers))
        self._open[subject] = _Open(reply, now_ns)
        return subject

    def remove(self, subject: bytes) -> None:
        """Nothing more is expected there."""
        self._open.pop(subject, None)

    def close(self) -> None:
        """Leave both accounts: nothing is expected any more."""
        self.account.remove(self)
        if self._back is not None:
            self._back.close()

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Pass on an answer; False when nobody took it."""
        subject = via or msg.subject
        found = self._open.pop(subject, None)
        if found is None or (self._is_single and self._clock() - found.since_ns > self._threshold_ns):
            return False
        reply = self._way_back().add(msg.reply) if msg.reply and not msg.is_internal else msg.reply
        answer = ImportedMsg(msg.subject if via else found.reply, reply, msg.headers, msg.payload, msg.origin)
        is_taken = self.asker.deliver(answer, found.reply if via else None)
        if is_taken and not self._is_single and (msg.payload or msg.headers):
            self._open[subject] = found
        return is_taken

    def hears(self, subject: bytes) -> bool:
        """True when somebody waits for this answer."""
        found = self._open.get(subject)
        return found is not None and self.asker.has_interest(found.reply)

    def _is_stale(self, oldest: _Open, now_ns: int) -> bool:
        has_timed_out = self._is_single and now_ns - oldest.since_ns > self._threshold_ns
        return has_timed_out or len(self._open) >= OPEN_MAX

    def _way_back(self) -> ReplyMap:
        """For answers that want an answer themselves."""
        if self._back is None:
            self._back = ReplyMap(self.asker, self.account, SINGLETON, self._threshold_ns, self._clock)
            self.asker.insert(self._back)
        return self._back
