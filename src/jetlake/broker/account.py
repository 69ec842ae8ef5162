"""An account: a world of subjects of its own, with the subscriptions and streams in it.

A publish takes a route: everybody it reaches. Routes are made when a subject is first seen, shared by subjects that
reach the same, and forgotten together when a subscription or a stream comes or goes (`RouteTable` finds them for whole
batches). A stream takes part as a Capture, which gets a run of publishes as the bytes that were received. Subjects that
begin with a prefix of the server's own (acks to a consumer) share a route that is found by the prefix alone.

`watch` tells when interest in a subject may have changed: what a push consumer waits for.

Accounts meet where one imports what another exports (`use_imports`; see `jetlake.broker.imports`).
"""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from jetlake.broker.imports import ServiceImport, Shadow, StreamImport, as_stored
from jetlake.broker.routes import FIRST_ROUTE, NOBODY, UNKNOWN, RouteTable, deal
from jetlake.broker.sublist import Match, Sublist
from jetlake.broker.subscription import BatchHandler, Buffer, Handler, Msg, Subscription, read_msg
from jetlake.ops import OP_WORDS
from jetlake.subjects import decode_subject
from jetlake.wire.headers import status_block

if TYPE_CHECKING:
    from jetlake.broker.client import Client

PATTERNS_MAX = 256  # more patterns than these are not looked through for each new subject: the index is faster
REPLY_PREFIXES_MAX = 4096


class Capture(Protocol):
    """What stores messages: a stream."""

    @property
    def patterns(self) -> tuple[bytes, ...]: ...
    def ingest(self, client: Client | None, data: Buffer, ops: array[int], first: int, stop: int) -> None: ...
    def ingest_msg(self, msg: Msg) -> None: ...


class ReplyRoute:
    """Where replies with a common beginning go: to one subscription of one client, and to nobody else."""

    __slots__ = ("client", "may_have_dots", "prefix", "sid")

    def __init__(self, client: Client, sid: bytes, prefix: bytes, may_have_dots: bool) -> None:
        self.client, self.sid, self.prefix, self.may_have_dots = client, sid, prefix, may_have_dots


class Route:
    """Everybody whom a publish reaches."""

    __slots__ = ("capture", "is_uneven", "plain", "queues")

    def __init__(self, capture: Capture | None, found: Match[Subscription]) -> None:
        self.capture, self.plain, self.queues = capture, found.plain, found.queues
        # Of two messages to the server or another account, one may reach somebody there and the other one nobody.
        self.is_uneven = any(sub.client is None and sub.batch_handler is None for sub in found.plain)

    def carry(self, origin: Client | None, data: Buffer, ops: array[int], first: int, stop: int) -> bool:
        """Deliver a run of publishes; False when they reached nobody."""
        taken = False
        if self.capture is not None:
            self.capture.ingest(origin, data, ops, first, stop)
            taken = True
        for sub in self.plain:
            taken |= sub.deliver_run(origin, data, ops, first, stop)
        for group in self.queues:
            if len(group) == 1:
                taken |= group[0].deliver_run(origin, data, ops, first, stop)
            elif stop - first >= len(group) and all(sub.takes_all(origin) for sub in group):
                _deal_out(group, origin, data, ops, first, stop)
                taken = True
            else:
                for number in range(first, stop):
                    taken |= any(sub.deliver_run(origin, data, ops, number, number + 1) for sub in shuffled(group))
        return taken


Failed = Callable[[str, BaseException], None]


def raise_it(what: str, error: BaseException) -> None:
    """Let nobody's errors be hidden: what a server replaces."""
    raise error


class Watch:
    """Somebody who wants to know when interest in a subject changes."""

    __slots__ = ("changed", "subject")
    queue = None

    def __init__(self, subject: bytes, changed: Callable[[], None]) -> None:
        self.subject, self.changed = subject, changed


class Account:
    """Subscriptions, streams and clients that can reach each other."""

    def __init__(self, name: str, failed: Failed = raise_it) -> None:
        """`failed` hears of what the server's own code raises when it takes a message: nobody else may suffer it."""
        self.name, self._failed = name, failed
        self.sublist: Sublist[Subscription] = Sublist()
        self.clients: dict[int, Client] = {}
        self.jetstream: object | None = None
        self._captures: Sublist[_CaptureEntry] = Sublist()
        self._capture_entries: dict[int, dict[bytes, _CaptureEntry]] = {}
        self._watches: Sublist[Watch] = Sublist()
        self._table = RouteTable()
        self._prefixes: dict[bytes, tuple[Subscription, Subscription]] = {}  # whose it is, and who takes runs of it
        self._shared_prefixes: set[bytes] = set()  # those which others subscribed to as well
        self._routes: list[Route] = []
        self._numbers: dict[tuple[int, ...], int] = {}
        self._stream_imports: Sequence[StreamImport] = ()
        self._services: Sequence[ServiceImport] = ()
        self._shadows: dict[int, list[Shadow]] = {}
        self._replies: dict[bytes, ReplyRoute] = {}
        self.last_reply: ReplyRoute | None = None  # the route that was asked for last, most likely the next one too
        self._is_stale = True

    # Subscriptions

    def insert(self, sub: Subscription) -> None:
        """Add a subscription. Raises BadSubject."""
        if self.sublist.insert(sub):
            self._interest_changed(sub.subject)
            if self._stream_imports and sub.client is not None and not isinstance(sub, Shadow):
                self._cast_shadows(sub)

    def remove(self, sub: Subscription) -> None:
        """Take a subscription out."""
        if self.sublist.remove(sub):
            self._interest_changed(sub.subject)
            self._drop_shadows(sub)

    def subscribe(
        self, subject: bytes, handler: Handler, queue: bytes | None = None, batch_handler: BatchHandler | None = None
    ) -> Subscription:
        """Add a subscription of the server's own."""
        sub = Subscription(subject, queue, handler=self._guarded(handler), batch_handler=batch_handler)
        self.insert(sub)
        return sub

    def _guarded(self, handler: Handler) -> Handler:
        """A handler whose errors end with the message that they came with: who asked hears of it."""

        def handle(msg: Msg) -> bool | None:
            try:
                return handler(msg)
            except Exception as error:
                self._failed(f"message subject={decode_subject(msg.subject)}", error)
                if msg.reply:
                    self.send(msg.reply, headers=status_block(500, "Internal Server Error"))
                return True

        return handle

    def unsubscribe(self, sub: Subscription) -> None:
        """Take a subscription of the server's own out."""
        self.remove(sub)

    def add_prefix(self, prefix: bytes, owner: Subscription, batch_handler: BatchHandler) -> None:
        """Have runs of publishes whose subjects begin like this handled at once, where nobody but `owner` has them."""
        assert owner.handler is not None, "prefixes are for subscriptions of the server's own"
        taker = Subscription(prefix + b">", handler=owner.handler, batch_handler=batch_handler)
        self._table.add_prefix(prefix)
        self._prefixes[prefix] = (owner, taker)

    def remove_prefix(self, prefix: bytes) -> None:
        """Have them handled like all others, if they were not."""
        if self._prefixes.pop(prefix, None) is not None:
            self._table.remove_prefix(prefix)

    def has_interest(self, subject: bytes) -> bool:
        """True when a client would receive a message on this subject."""
        return any(sub.hears(subject) for sub in _everybody(self.sublist.match(subject)))

    def target(self, subject: bytes, queue: bytes | None = None) -> Subscription | None:
        """The one subscription of a client that a message to this subject reaches; None when none or several do."""
        found = self.sublist.match(subject)
        if queue is None:
            subs: tuple[Subscription, ...] = found.plain if not found.queues else ()
        else:
            subs = next((group for group in found.queues if group[0].queue == queue), ()) if not found.plain else ()
        if len(subs) != 1 or (sub := subs[0]).client is None or sub.client.is_closed:
            return None
        return sub if not sub.is_filtered and not sub.max_msgs else None

    def watch(self, subject: bytes, changed: Callable[[], None]) -> Watch:
        """Call back whenever a subscription that covers this subject comes or goes."""
        watch = Watch(subject, changed)
        self._watches.insert(watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Stop calling back."""
        self._watches.remove(watch)

    def limits_changed(self) -> None:
        """A subscription got an end: what was remembered of replies to it no longer holds."""
        self._forget_replies()

    def client_closed(self) -> None:
        """Nobody hears by the subscriptions of a client any more, before they are taken out."""
        self._is_stale = True
        self._forget_replies()
        for watch in self._watches:
            self._tell(watch)

    def _interest_changed(self, subject: bytes) -> None:
        self._is_stale = True
        self._forget_replies()
        if self._watches.count:
            for watch in self._watches.overlapping(subject):
                self._tell(watch)

    def _tell(self, watch: Watch) -> None:
        try:
            watch.changed()
        except Exception as error:  # not the fault of who came or left
            self._failed(f"interest subject={decode_subject(watch.subject)}", error)

    # Streams

    def add_capture(self, capture: Capture) -> None:
        """Let a stream have the messages of its subjects; if it had others before, of these from now on."""
        for _ in self.add_capture_in_steps(capture, sys.maxsize):
            pass

    def add_capture_in_steps(self, capture: Capture, count_max: int) -> Iterator[None]:
        """The same, so many subjects at a time. What it no longer wants goes first, at once.

        Whoever starts again, or removes the capture, drops the rest of these steps.
        """
        before, wanted = self._capture_entries.get(id(capture), {}), dict.fromkeys(capture.patterns)
        entries: dict[bytes, _CaptureEntry] = {}
        self._capture_entries[id(capture)] = entries
        for subject, entry in before.items():
            if subject in wanted:
                entries[subject] = entry
            else:
                self._remove_entry(entry)
        added = [subject for subject in wanted if subject not in entries]
        self._captures_changed()
        for first in range(0, len(added), count_max):
            if first:
                yield
            for subject in added[first : first + count_max]:
                entries[subject] = entry = _CaptureEntry(subject, capture)
                self._captures.insert(entry)
                if self._stream_imports:
                    self._cast_shadows(entry.listener)
            self._captures_changed()

    def remove_capture(self, capture: Capture) -> None:
        """A stream no longer wants messages."""
        for entry in self._capture_entries.pop(id(capture), {}).values():
            self._remove_entry(entry)
        self._captures_changed()

    def _remove_entry(self, entry: _CaptureEntry) -> None:
        self._captures.remove(entry)
        if self._shadows:
            self._drop_shadows(entry.listener)

    def _captures_changed(self) -> None:
        self._is_stale = True
        self._forget_replies()

    def capture_of(self, subject: bytes) -> Capture | None:
        """The stream that stores messages of a subject; there is at most one."""
        found = self._captures.match(subject).plain
        return found[0].capture if found else None

    # Other accounts

    def use_imports(self, streams: Sequence[StreamImport], services: Sequence[ServiceImport]) -> None:
        """Have these from other accounts, and nothing else."""
        listeners = [sub for sub in self.sublist if sub.client is not None and not isinstance(sub, Shadow)]
        listeners += [entry.listener for entries in self._capture_entries.values() for entry in entries.values()]
        for service in self._services:
            self.remove(service)
            service.door.shut()
        for listener in listeners:
            self._drop_shadows(listener)
        self._stream_imports, self._services = streams, services
        for service in services:
            service.exporter.insert(service.door)
            self.insert(service)
        for listener in listeners:
            self._cast_shadows(listener)

    def imports_service(self, subject: bytes) -> bool:
        """True when requests to this subject are for another account."""
        plain = self.sublist.match(subject).plain if self._services else ()
        return any(isinstance(sub, ServiceImport) for sub in plain)

    def _cast_shadows(self, sub: Subscription) -> None:
        shadows = [shadow for source in self._stream_imports if (shadow := source.shadow(sub)) is not None]
        if shadows:
            self._shadows[id(sub)] = shadows
        for shadow in shadows:
            shadow.exporter.insert(shadow)

    def _drop_shadows(self, sub: Subscription) -> None:
        for shadow in self._shadows.pop(id(sub), ()):
            shadow.exporter.remove(shadow)

    # Publishing

    def publish(self, origin: Client, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        """Carry a batch of publishes to everybody they reach, in order."""
        while first < stop:
            if self._is_stale:
                self._learn()
            end, number = self._table.run(data, ops, first, stop)
            if number == UNKNOWN:
                end, route = first + 1, self._route(read_msg(data, ops, first, None).subject)
            else:
                route = self._routes[number]
                if route.is_uneven:
                    end = first + 1
            try:
                if not route.carry(origin, data, ops, first, end):
                    _tell_unheard(origin, data, ops, first, end)
            except Exception as error:
                self._carry_failed(data, ops, first, end, error)
            first = end

    def _carry_failed(self, data: Buffer, ops: array[int], first: int, stop: int, error: Exception) -> None:
        """The server's own code could not take a run of publishes; those that follow it are carried all the same."""
        subject = decode_subject(read_msg(data, ops, first, None).subject)
        self._failed(f"publish {subject=!s} count={stop - first}", error)

    def send(
        self,
        subject: bytes,
        payload: bytes = b"",
        *,
        reply: bytes = b"",
        headers: bytes = b"",
        via: bytes | None = None,
    ) -> bool:
        """Publish from the server; True when somebody got it.

        `via` sends it to the subscribers of another subject than the one it shows, and into no stream.
        """
        return self.deliver(Msg(subject, reply, headers, payload, None), via)

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Carry one message to everybody it reaches; True when that is somebody."""
        found = self.sublist.match(via or msg.subject)
        taken = False
        if via is None and (capture := self.capture_of(msg.subject)) is not None:
            capture.ingest_msg(msg if msg.client is None else as_stored(msg))
            taken = True
        for sub in found.plain:
            taken |= sub.deliver(msg, via)
        for group in found.queues:
            taken |= any(sub.deliver(msg, via) for sub in shuffled(group))
        return taken

    def reply_route(self, reply: bytes) -> ReplyRoute | None:
        """Where this reply goes, and those that begin as it does; None when that is not one plain subscription."""
        prefix = reply[: reply.rfind(b".") + 1]
        route = self._replies.get(prefix)
        if route is None or not reply.startswith(route.prefix):
            route = self._find_reply_route(reply)
            if route is None:
                return None
            if len(self._replies) >= REPLY_PREFIXES_MAX:
                self._forget_replies()
            self._replies[prefix] = route
        self.last_reply = route
        return route

    def _forget_replies(self) -> None:
        self._replies.clear()
        self.last_reply = None

    def _find_reply_route(self, reply: bytes) -> ReplyRoute | None:
        found = self.sublist.match(reply)
        if len(found.plain) != 1 or found.queues:
            return None
        sub = found.plain[0]
        head, _, last = sub.subject.rpartition(b".")
        if (
            sub.client is None
            or sub.client.is_closed
            or sub.is_filtered
            or sub.max_msgs
            or last not in (b"*", b">")
            or b"*" in head.split(b".")
        ):
            return None
        if len(self.sublist.overlapping(sub.subject)) != 1 or self._captures.overlapping(sub.subject):
            return None
        return ReplyRoute(sub.client, sub.sid, head + b"." if head else b"", last == b">")

    def _learn(self) -> None:
        """Forget all routes, and tell the table what there is to match."""
        self._is_stale = False
        self._shared_prefixes.clear()
        self._routes = [Route(None, Match((), ()))] * FIRST_ROUTE
        self._numbers = {(0,): NOBODY}
        if self.sublist.count + self._captures.count > PATTERNS_MAX:
            self._table.clear([], None)
            return
        captures = []
        for entries in self._capture_entries.values():
            if entries:
                route = Route(next(iter(entries.values())).capture, Match((), ()))
                captures.append((list(entries), self._number(route)))
        self._table.clear(captures, list({sub.subject for sub in self.sublist}))

    def _route(self, subject: bytes) -> Route:
        prefix = self._table.prefix_of(subject)
        if prefix is not None and prefix not in self._shared_prefixes:
            owner, taker = self._prefixes[prefix]
            everything = prefix + b">"
            if self.sublist.overlapping(everything) == (owner,) and not self._captures.overlapping(everything):
                route = Route(None, Match((taker,), ()))
                self._table.put_prefix(prefix, self._number(route))
                return route
            self._shared_prefixes.add(prefix)
        route = Route(self.capture_of(subject), self.sublist.match(subject))
        if prefix is None:
            self._table.put(subject, self._number(route))
        return route

    def _number(self, route: Route) -> int:
        """The number of a route: the same for all that reach the same."""
        groups = [id(sub) for group in route.queues for sub in (*group, route)]  # the route stands between groups
        groups = [0 if mark == id(route) else mark for mark in groups]
        key = (
            id(route.capture) if route.capture is not None else 0,
            *map(id, route.plain),
            *([0, *groups] if groups else []),
        )
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._routes)
            self._routes.append(route)
        return number


class _CaptureEntry:
    """One subject of a stream."""

    __slots__ = ("_listener", "capture", "subject")
    queue = None

    def __init__(self, subject: bytes, capture: Capture) -> None:
        self.subject, self.capture = subject, capture
        self._listener: Subscription | None = None

    @property
    def listener(self) -> Subscription:
        """Who takes what is imported; made if anything is."""
        if self._listener is None:
            self._listener = Subscription(self.subject, handler=self.capture.ingest_msg)
        return self._listener


def shuffled(group: tuple[Subscription, ...]) -> Iterable[Subscription]:
    """The members of a queue group, a random one first: whoever follows stands in if it cannot take the message."""
    start = int(random.random() * len(group))
    return group[start:] + group[:start]


def _deal_out(
    group: tuple[Subscription, ...], origin: Client | None, data: Buffer, ops: array[int], first: int, stop: int
) -> None:
    """Give each of a run of publishes to a random member of a queue group, all of which take whatever they get."""
    for sub, own in zip(group, deal(ops, first, stop, len(group), random.getrandbits(64)), strict=True):
        if own:
            sub.deliver_run(origin, data, own, 0, len(own) // OP_WORDS)


def _everybody(found: Match[Subscription]) -> Iterable[Subscription]:
    yield from found.plain
    for group in found.queues:
        yield from group


def _tell_unheard(origin: Client, data: Buffer, ops: array[int], first: int, stop: int) -> None:
    """Tell a client that nobody listens to what it asked, if it wants to know."""
    if origin.options.no_responders:
        reply_sizes = ops[first * OP_WORDS + 3 : stop * OP_WORDS : OP_WORDS]
        for number, size in enumerate(reply_sizes, first):
            if size:
                origin.no_responders(read_msg(data, ops, number, origin))
