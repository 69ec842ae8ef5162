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
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.latency import BAD_REQUEST, REQUESTER_GONE, TIMEOUT, UNAVAILABLE, Measurement, should_measure
from jetlake.broker.peer import Kind, Peer
from jetlake.broker.subscription import Buffer, Msg, Subscription
from jetlake.clock import SECOND_NS, Clock
from jetlake.config import Import, SubjectMapping
from jetlake.subjects import encode_subject
from jetlake.wire.headers import append_headers, without_header
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.account import Account

CallAt = Callable[[int, Callable[[], None]], object]
OPEN_MAX = 65_536
SINGLETON, STREAMED = "singleton", "streamed"
REQUEST_INFO = b"Nats-Request-Info"


def never(time_ns: int, callback: Callable[[], None]) -> None:
    """Call nobody back: what a server replaces."""


class ImportedMsg(Msg):
    """A message that came through an imported service. It is not passed on to the importers of a stream."""


def as_stored(msg: Msg) -> Msg:
    """A message as a stream keeps it: without what was said to introduce who sent it."""
    return msg._replace(headers=without_header(msg.headers, REQUEST_INFO)) if isinstance(msg, ImportedMsg) else msg


class StreamImport(NamedTuple):
    """Subjects whose messages an account has from another."""

    exporter: Account
    mapping: SubjectMapping
    allows_trace: bool = False

    def hidden(self, sub: Subscription) -> HiddenSubscription | None:
        """What a subscription of the importer is for the exporter; None when they have nothing in common."""
        subject = self.mapping.outward(sub.subject)
        return HiddenSubscription(sub, subject, self) if subject is not None else None


class HiddenSubscription(Subscription):
    """A subscription, in the account that its messages are imported from."""

    __slots__ = ("_mapping", "_sub", "allows_trace", "exporter", "is_uneven", "repeats")

    def __init__(self, sub: Subscription, subject: bytes, source: StreamImport) -> None:
        super().__init__(sub.peer, subject, sub.queue)
        self.exporter, self._mapping, self._sub = source.exporter, source.mapping, sub
        self.is_uneven, self.allows_trace = sub.is_uneven, source.allows_trace
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
            return self._sub.deliver(self.shown(msg))
        return self.peer.kind is not Kind.INTERNAL and self._sub.deliver(msg, self._mapping.inward(via))

    @property
    def target(self) -> Subscription:
        """The importer's own subscription."""
        return self._sub

    def shown(self, msg: Msg) -> Msg:
        """A message as the importer sees it."""
        return msg._replace(subject=self._mapping.inward(msg.subject))

    def hears(self, subject: bytes) -> bool:
        """True when the subscriber is there to get a message."""
        return self._sub.hears(subject)


class ServiceImport(Subscription):
    """Subjects whose requests another account answers."""

    __slots__ = ("_latency", "_mapping", "_share", "_traces", "account", "allows_trace", "exporter", "replies")
    is_uneven = True
    is_service = True

    def __init__(
        self, account: Account, exporter: Account, options: Import, clock: Clock, call_at: CallAt = never
    ) -> None:
        self._mapping = SubjectMapping(options.subject, options.local)
        super().__init__(account.internal, encode_subject(self._mapping.local))
        self.account, self.exporter, self._share = account, exporter, options.share
        self.allows_trace, self._latency = options.allow_trace, options.latency
        self._traces: ReplyMap | None = None
        threshold_ns = int(options.response_threshold_s * SECOND_NS)
        self.replies = ReplyMap(exporter, account, options.response_type, threshold_ns, clock, call_at)

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Pass on a request; False when nobody took it. One of another server of the cluster was passed on there."""
        if msg.origin.kind is Kind.ROUTE:
            return False
        subject = self.subject_for(via or msg.subject)
        if subject is None:
            return False
        passed = self._passed_on(msg, msg.subject if via else subject)
        is_taken = self.exporter.deliver(passed, subject if via else None)
        self.settle(msg, passed, is_taken)
        return is_taken

    def subject_for(self, subject: bytes) -> bytes | None:
        """What a request to this subject is called in the exporter's account; None when it goes nowhere."""
        found = self._mapping.outward(subject)
        if found is not None and self.exporter.mappings is not None:
            found = self.exporter.mappings.map(found) or None
        return found

    def passed_on(self, msg: Msg) -> ImportedMsg | None:
        """A request as the exporter's account gets it; `settle` has to follow."""
        subject = self.subject_for(msg.subject)
        return self._passed_on(msg, subject) if subject is not None else None

    def _passed_on(self, msg: Msg, subject: bytes) -> ImportedMsg:
        measurement = self._measure(msg) if self._latency is not None else None
        reply = self.replies.add(msg.reply, measurement) if msg.reply and not msg.is_internal else msg.reply
        headers = msg.headers if msg.is_internal else self._introduce(msg.origin, msg.headers)
        return ImportedMsg(subject, reply, headers, msg.payload, msg.origin)

    def settle(self, msg: Msg, passed: Msg, is_taken: bool) -> None:
        """A request was passed on: where nobody took it, no answer is waited for."""
        if passed.reply and not is_taken:
            self.replies.remove(passed.reply, UNAVAILABLE)

    def _measure(self, msg: Msg) -> Measurement | None:
        """What measures this request, if something is to."""
        assert self._latency is not None
        is_measured, headers = should_measure(self._latency, msg.headers)
        if not is_measured or msg.is_internal:
            return None
        measurement = Measurement(self.exporter, self._latency, self.replies.clock, msg.origin, self._share, headers)
        if not msg.reply:
            measurement.failed(BAD_REQUEST)
        return measurement

    @property
    def traces(self) -> ReplyMap:
        """What leads events of message traces back, as many as there are servers on the way."""
        if self._traces is None:
            self._traces = ReplyMap(self.exporter, self.account, STREAMED, 0, self.replies.clock)
            self.exporter.insert(self._traces)
        return self._traces

    def close(self) -> None:
        """Leave the exporter's account."""
        self.replies.close()
        if self._traces is not None:
            self._traces.close()

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
    measurement: Measurement | None = None


class ReplyMap(Subscription):
    """Subjects in one account that stand for replies in another."""

    __slots__ = (
        "_back", "_call_at", "_is_single", "_is_timed", "_numbers", "_open", "_prefix", "_threshold_ns", "account",
        "asker", "clock",
    )  # fmt: skip
    is_uneven = True

    def __init__(
        self,
        account: Account,
        asker: Account,
        response_type: str,
        threshold_ns: int,
        clock: Clock,
        call_at: CallAt = never,
    ) -> None:
        self._prefix = b"_R_.%s." % secrets.token_hex(4).encode()
        super().__init__(account.internal, self._prefix + b"*")
        self.account, self.asker, self.clock = account, asker, clock
        self._is_single, self._threshold_ns = response_type == SINGLETON, threshold_ns
        self._open: dict[bytes, _Open] = {}  # the one that was silent for longest comes first
        self._numbers = itertools.count(1)
        self._back: ReplyMap | None = None
        self._call_at, self._is_timed = call_at, False

    def add(self, reply: bytes, measurement: Measurement | None = None) -> bytes:
        """The subject that stands for a reply."""
        now_ns = self.clock()
        self._drop_stale(now_ns)
        subject = b"%s%s%d" % (self._prefix, secrets.token_hex(4).encode(), next(self._numbers))
        if not self._is_single:
            measurement = None
        self._open[subject] = _Open(reply, now_ns, measurement)
        if measurement is not None:
            measurement.watch = self.asker.watch(reply, partial(self._interest_changed, subject))
            self._start_timer(now_ns)
        return subject

    def remove(self, subject: bytes, status: int = 0) -> None:
        """Nothing more is expected there; a measurement says why, by its status."""
        found = self._open.pop(subject, None)
        if found is not None and found.measurement is not None:
            self._end(found.measurement)
            if status:
                found.measurement.failed(status)

    def _end(self, measurement: Measurement) -> None:
        if measurement.watch is not None:
            self.asker.unwatch(measurement.watch)
            measurement.watch = None

    def _interest_changed(self, subject: bytes) -> None:
        found = self._open.get(subject)
        if found is not None and not self.asker.has_interest(found.reply):
            self.remove(subject, REQUESTER_GONE)

    def _drop_stale(self, now_ns: int) -> None:
        while self._open and self._is_stale(next(iter(self._open.values())), now_ns):
            self.remove(next(iter(self._open)), TIMEOUT)

    def _start_timer(self, now_ns: int) -> None:
        """See that measured requests are told of that nobody answers in time."""
        if not self._is_timed and self._open:
            self._is_timed = True
            self._call_at(next(iter(self._open.values())).since_ns + self._threshold_ns + 1, self._time_is_up)

    def _time_is_up(self) -> None:
        self._is_timed = False
        now_ns = self.clock()
        self._drop_stale(now_ns)
        self._start_timer(now_ns)

    def close(self) -> None:
        """Leave both accounts: nothing is expected any more."""
        self.account.remove(self)
        for subject in list(self._open):
            self.remove(subject)
        if self._back is not None:
            self._back.close()

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Pass on an answer; False when nobody took it."""
        subject = via or msg.subject
        found = self._open.pop(subject, None)
        if found is None:
            return False
        if found.measurement is not None:
            self._end(found.measurement)
        if self._is_single and self.clock() - found.since_ns > self._threshold_ns:
            if found.measurement is not None:
                found.measurement.failed(TIMEOUT)
            return False
        if found.measurement is not None:
            found.measurement.answered(msg.origin)
        reply = self._way_back().add(msg.reply) if msg.reply and not msg.is_internal else msg.reply
        answer = ImportedMsg(msg.subject if via else found.reply, reply, msg.headers, msg.payload, msg.origin)
        is_taken = self.asker.deliver(answer, found.reply if via else None)
        if is_taken and not self._is_single and (msg.payload or msg.headers):
            self._open[subject] = found
        return is_taken

    def reply_of(self, subject: bytes) -> bytes | None:
        """The reply that a subject stands for."""
        found = self._open.get(subject)
        return found.reply if found is not None else None

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
            self._back = ReplyMap(self.asker, self.account, SINGLETON, self._threshold_ns, self.clock)
            self.asker.insert(self._back)
        return self._back
