"""An account: a world of subjects of its own, with the subscriptions and streams in it.

Everybody whom a publish reaches is a `Recipients`. They are found when a subject is first seen, shared by subjects that
reach the same, and forgotten together when a subscription or a stream comes or goes (`RecipientTable` finds them for
whole batches). A stream takes part as a Capture, which gets a run of publishes as received bytes. Subjects
that begin with a prefix of the server's own (acks to a consumer) share recipients, found by the prefix alone.

`watch` tells when interest in a subject may have changed: what a push consumer waits for.

Accounts meet where one imports what another exports (`use_imports`; see `jetlake.broker.imports`).
"""

from __future__ import annotations

import secrets
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from jetlake.broker.imports import HiddenSubscription, ServiceImport, StreamImport, as_stored
from jetlake.broker.link_interest import Wanted
from jetlake.broker.link_recipients import Names, split
from jetlake.broker.peer import Internal, Kind, Peer
from jetlake.broker.recipient_table import FIRST_RECIPIENTS, NOBODY, UNKNOWN, RecipientTable
from jetlake.broker.recipients import Capture, Recipients
from jetlake.broker.sublist import Match, Sublist
from jetlake.broker.subscription import (
    BatchHandler,
    Buffer,
    ClientSubscription,
    FrameSubscription,
    FrameTarget,
    Handler,
    InternalSubscription,
    Msg,
    Subscription,
    read_subject,
)
from jetlake.subjects import decode_subject, encode_subject
from jetlake.wire.headers import status_block

if TYPE_CHECKING:
    from jetlake.broker.account_link import AccountLink, LinkSubscription
    from jetlake.broker.client import Client
    from jetlake.broker.mappings import Mappings
    from jetlake.config import AccountOptions

PATTERNS_MAX = 256  # more patterns than these are not looked through for each new subject: the index is faster
REPLY_PREFIXES_MAX = 4096


class ReplyTarget:
    """Where replies with a common beginning go: to one subscription of one client, and to nobody else."""

    __slots__ = ("client", "may_have_dots", "prefix", "sid")

    def __init__(self, client: Client, sid: bytes, prefix: bytes, may_have_dots: bool) -> None:
        self.client, self.sid, self.prefix, self.may_have_dots = client, sid, prefix, may_have_dots


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
        self.options: AccountOptions | None = None  # None: nothing is configured for it
        self.sublist: Sublist[Subscription] = Sublist()
        self.internal = Internal(self)
        self.clients: dict[int, Client] = {}
        self.links: list[AccountLink] = []
        self.leafs = 0  # leaf node connections
        self.loop_subject = b"$LDS." + secrets.token_hex(11).encode()  # a link over which it comes back closes a loop
        self._has_repeats = False
        self.jetstream: object | None = None
        self.mappings: Mappings | None = None
        self._mapped: list[_MappedSource] = []
        self._captures: Sublist[_CaptureEntry] = Sublist()
        self._capture_entries: dict[int, dict[bytes, _CaptureEntry]] = {}
        self._watches: Sublist[Watch] = Sublist()
        self._table = RecipientTable()
        self._prefixes: dict[bytes, tuple[Subscription, Subscription]] = {}  # whose it is, and who takes runs of it
        self._shared_prefixes: set[bytes] = set()  # those which others subscribed to as well
        self._recipients: list[Recipients] = []
        self._apart = bytearray()  # of each number: 1 when only a stream gets these messages
        self._numbers: dict[tuple[int, ...], int] = {}
        self._stream_imports: Sequence[StreamImport] = ()
        self._services: Sequence[ServiceImport] = ()
        self._hidden: dict[int, list[HiddenSubscription]] = {}
        self._replies: dict[bytes, ReplyTarget] = {}
        self.last_reply: ReplyTarget | None = None  # the one that was asked for last, most likely the next one too
        self._is_stale = True

    @property
    def name_tag(self) -> str:
        """What people call it: the name in its token, if it has one."""
        return (self.options.name_tag if self.options is not None else "") or self.name

    @property
    def is_traced(self) -> bool:
        """Whether messages are traced that another system traces."""
        return self.options is not None and bool(self.options.trace_dest)

    # Subscriptions

    def insert(self, sub: Subscription) -> None:
        """Add a subscription. Raises BadSubject."""
        if self.sublist.insert(sub):
            self._interest_changed(sub.subject)
            self._has_repeats |= sub.repeats is not None
            for link in self.links:
                link.interest.added(sub)
            if self._stream_imports and _may_import(sub):
                self._add_hidden(sub)

    def remove(self, sub: Subscription) -> None:
        """Take a subscription out."""
        if self.sublist.remove(sub):
            self._interest_changed(sub.subject)
            for link in self.links:
                link.interest.removed(sub)
            self._remove_hidden(sub)

    def subscribe(
        self, subject: bytes, handler: Handler, queue: bytes | None = None, batch_handler: BatchHandler | None = None
    ) -> InternalSubscription:
        """Add a subscription of the server's own."""
        sub = InternalSubscription(self.internal, subject, self._guarded(handler), queue, batch_handler)
        self.insert(sub)
        return sub

    def subscribe_frames(
        self, subject: bytes, handler: Handler, batch_handler: BatchHandler, take: Callable[[bytes], None]
    ) -> FrameSubscription:
        """Add a subscription of the server's own that takes whole frames where they are made for it alone."""
        sub = FrameSubscription(self.internal, subject, self._guarded(handler), batch_handler, take)
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

    def add_prefix(self, prefix: bytes, owner: InternalSubscription, batch_handler: BatchHandler) -> None:
        """Have runs of publishes whose subjects begin like this handled at once, where nobody but `owner` has them."""
        taker = InternalSubscription(self.internal, prefix + b">", owner.handler, batch_handler=batch_handler)
        self._table.add_prefix(prefix)
        self._prefixes[prefix] = (owner, taker)

    def remove_prefix(self, prefix: bytes) -> None:
        """Have them handled like all others, if they were not."""
        if self._prefixes.pop(prefix, None) is not None:
            self._table.remove_prefix(prefix)

    def has_interest(self, subject: bytes) -> bool:
        """True when a client would receive a message on this subject."""
        return any(sub.hears(subject) for sub in _everybody(self.sublist.match(subject)))

    def target(self, subject: bytes, queue: bytes | None = None) -> FrameTarget | None:
        """The one subscription that takes frames of a message to this subject; None when none or several do."""
        found = self.sublist.match(subject)
        if queue is None:
            subs: tuple[Subscription, ...] = found.plain if not found.queues else ()
        else:
            subs = next((group for group in found.queues if group[0].queue == queue), ()) if not found.plain else ()
        if len(subs) != 1 or not isinstance(sub := subs[0], FrameTarget) or not sub.is_plain:
            return None
        return sub

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
                entries[subject] = entry = _CaptureEntry(self.internal, subject, capture)
                self._captures.insert(entry)
                for link in self.links:
                    link.interest.added(entry)
                if self._stream_imports:
                    self._add_hidden(entry.listener)
            self._captures_changed()

    def remove_capture(self, capture: Capture) -> None:
        """A stream no longer wants messages."""
        entries = list(self._capture_entries.pop(id(capture), {}).values())
        self._captures.remove_all(entries)
        for entry in entries if self._hidden else ():
            self._remove_hidden(entry.listener)
        self._captures_changed()

    def _remove_entry(self, entry: _CaptureEntry) -> None:
        self._captures.remove(entry)
        for link in self.links:
            link.interest.removed(entry)
        if self._hidden:
            self._remove_hidden(entry.listener)

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
        listeners = [sub for sub in self.sublist if _may_import(sub)]
        listeners += [entry.listener for entries in self._capture_entries.values() for entry in entries.values()]
        for service in self._services:
            self.remove(service)
            service.close()
        for listener in listeners:
            self._remove_hidden(listener)
        self._stream_imports, self._services = streams, services
        for service in services:
            service.exporter.insert(service.replies)
            self.insert(service)
        for listener in listeners:
            self._add_hidden(listener)

    def imports_service(self, subject: bytes) -> bool:
        """True when requests to this subject are for another account."""
        plain = self.sublist.match(subject).plain if self._services else ()
        return any(isinstance(sub, ServiceImport) for sub in plain)

    def _add_hidden(self, sub: Subscription) -> None:
        hidden = [found for source in self._stream_imports if (found := source.hidden(sub)) is not None]
        if hidden:
            self._hidden[id(sub)] = hidden
        for found in hidden:
            found.exporter.insert(found)

    def _remove_hidden(self, sub: Subscription) -> None:
        for found in self._hidden.pop(id(sub), ()):
            found.exporter.remove(found)

    def use_mappings(self, found: Mappings | None) -> None:
        """Have these mappings, and tell leaf nodes that what is mapped is wanted here."""
        self.mappings = found
        sources = [encode_subject(options.source) for options in found.options] if found is not None else []
        if sources == [entry.subject for entry in self._mapped]:
            return
        before, self._mapped = self._mapped, [_MappedSource(self.internal, source) for source in sources]
        for link in self.links:
            for entry in self._mapped:
                link.interest.added(entry)
            for entry in before:
                link.interest.removed(entry)

    # Links to other servers

    def add_link(self, link: AccountLink) -> None:
        """Tell a link of interest that comes and goes, from now on."""
        self.links.append(link)

    def remove_link(self, link: AccountLink) -> None:
        """Tell it no more. Nobody hears by its subscriptions, before they are taken out."""
        self.links.remove(link)
        self.client_closed()

    def wanted(self) -> list[Wanted]:
        """Everything that somebody in the account wants."""
        entries = [entry for entries in self._capture_entries.values() for entry in entries.values()]
        return [*self.sublist, *entries, *self._mapped]

    def reweigh(self, sub: LinkSubscription, weight: int) -> None:
        """A queue group has more or fewer members behind a link."""
        by, sub.weight = weight - sub.weight, weight
        if by:
            self._is_stale = True
            for link in self.links:
                link.interest.reweighed(sub, by)

    def publish_from_link(
        self,
        origin: AccountLink,
        data: Buffer,
        ops: array[int],
        shown: array[int],
        first: int,
        stop: int,
        queues: Names,
    ) -> None:
        """Carry messages of another server to everybody they reach here, and of queue groups to those named.

        `shown` are the operations as subscribers see them.
        """
        while first < stop:
            if self._is_stale:
                self._learn()
            end, recipients = self._next_run(data, ops, first, stop)
            try:
                recipients.carry_from_link(origin, data, ops, shown, first, end, queues)
            except Exception as error:
                self._carry_failed(data, ops, first, end, error)
            first = end

    # Publishing

    def publish(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        """Carry a batch of publishes to everybody they reach, in order."""
        while first < stop:
            if self._is_stale:
                self._learn()
            end, number = self._table.run(data, ops, first, stop)
            if number == UNKNOWN:
                end, recipients = first + 1, self._find_recipients(read_subject(data, ops, first))
            elif end < stop and self._apart[number]:
                first = self._publish_by_stream(origin, data, ops, first, stop)
                continue
            else:
                recipients = self._recipients[number]
                if recipients.is_uneven:
                    end = first + 1
            self._carry(recipients, origin, data, ops, first, end)
            first = end

    def _publish_by_stream(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Carry publishes as long as only streams get them, those of each stream at once; where that ends.

        Nobody is promised an order between streams, but each of them gets its messages in order.
        """
        recipients = self._recipients
        end, own, runs = self._table.groups(data, ops, first, stop, self._apart)
        for number, begin, finish in runs:
            self._carry(recipients[number], origin, data, own, begin, finish)
        return end

    def _carry(
        self, recipients: Recipients, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int
    ) -> None:
        try:
            if not recipients.carry(origin, data, ops, first, stop):
                origin.unheard(data, ops, first, stop)
        except Exception as error:
            self._carry_failed(data, ops, first, stop, error)

    def _next_run(self, data: Buffer, ops: array[int], first: int, stop: int) -> tuple[int, Recipients]:
        """Where a run of publishes with the same recipients ends, and who they are."""
        end, number = self._table.run(data, ops, first, stop)
        if number == UNKNOWN:
            return first + 1, self._find_recipients(read_subject(data, ops, first))
        recipients = self._recipients[number]
        return first + 1 if recipients.is_uneven else end, recipients

    def _carry_failed(self, data: Buffer, ops: array[int], first: int, stop: int, error: Exception) -> None:
        """The server's own code could not take a run of publishes; those that follow it are carried all the same."""
        subject = decode_subject(read_subject(data, ops, first))
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
        return self.deliver(Msg(subject, reply, headers, payload, self.internal), via)

    def deliver(self, msg: Msg, via: bytes | None = None) -> bool:
        """Carry one message to everybody it reaches; True when that is somebody."""
        taken = False
        if via is None and (capture := self.capture_of(msg.subject)) is not None:
            capture.ingest_msg(msg if msg.is_internal else as_stored(msg))
            taken = True
        return self._recipients_of(None, via or msg.subject).deliver(msg, via) or taken

    def reply_target(self, reply: bytes) -> ReplyTarget | None:
        """Where this reply goes, and those that begin as it does; None when that is not one plain subscription."""
        prefix = reply[: reply.rfind(b".") + 1]
        target = self._replies.get(prefix)
        if target is None or not reply.startswith(target.prefix):
            target = self._find_reply_target(reply)
            if target is None:
                return None
            if len(self._replies) >= REPLY_PREFIXES_MAX:
                self._forget_replies()
            self._replies[prefix] = target
        self.last_reply = target
        return target

    def _forget_replies(self) -> None:
        self._replies.clear()
        self.last_reply = None

    def _find_reply_target(self, reply: bytes) -> ReplyTarget | None:
        found = self.sublist.match(reply)
        if len(found.plain) != 1 or found.queues:
            return None
        sub = found.plain[0]
        head, _, last = sub.subject.rpartition(b".")
        if (
            not isinstance(sub, ClientSubscription)
            or sub.client.is_closed
            or sub.is_filtered
            or sub.max_msgs
            or last not in (b"*", b">")
            or b"*" in head.split(b".")
        ):
            return None
        if len(self.sublist.overlapping(sub.subject)) != 1 or self._captures.overlapping(sub.subject):
            return None
        return ReplyTarget(sub.client, sub.sid, head + b"." if head else b"", last == b">")

    def _learn(self) -> None:
        """Forget whom subjects reach, and tell the table what there is to match."""
        self._is_stale = False
        self._shared_prefixes.clear()
        self._recipients = [Recipients(None, Match((), ()))] * FIRST_RECIPIENTS
        self._apart = bytearray(FIRST_RECIPIENTS)
        self._numbers = {(0,): NOBODY}
        if self.sublist.count + self._captures.count > PATTERNS_MAX:
            self._table.clear([], None)
            return
        captures = []
        for entries in self._capture_entries.values():
            if entries:
                recipients = Recipients(next(iter(entries.values())).capture, Match((), ()))
                captures.append((list(entries), self._number(recipients)))
        self._table.clear(captures, list({sub.subject for sub in self.sublist}))

    def _find_recipients(self, subject: bytes) -> Recipients:
        prefix = self._table.prefix_of(subject)
        if prefix is not None and prefix not in self._shared_prefixes:
            owner, taker = self._prefixes[prefix]
            everything = prefix + b">"
            if self.sublist.overlapping(everything) == (owner,) and not self._captures.overlapping(everything):
                recipients = Recipients(None, Match((taker,), ()))
                self._table.put_prefix(prefix, self._number(recipients))
                return recipients
            self._shared_prefixes.add(prefix)
        recipients = self._recipients_of(self.capture_of(subject), subject)
        if prefix is None:
            self._table.put(subject, self._number(recipients))
        return recipients

    def recipients_of(self, subject: bytes) -> Recipients:
        """Everybody whom one message reaches."""
        return self._recipients_of(self.capture_of(subject), subject)

    def _recipients_of(self, capture: Capture | None, subject: bytes) -> Recipients:
        found = self.sublist.match(subject)
        if self.links or self._has_repeats:
            return Recipients(capture, *split(found, subject))
        return Recipients(capture, found)

    def _number(self, recipients: Recipients) -> int:
        """Their number: the same for all that are the same."""
        key = recipients.key
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._recipients)
            self._recipients.append(recipients)
            self._apart.append(recipients.is_stream)
        return number


class _MappedSource:
    """The source of a mapping, as a leaf node is told of it; servers of a cluster map for themselves."""

    __slots__ = ("peer", "subject")
    queue = None
    weight = 1
    is_service = True

    def __init__(self, peer: Peer, subject: bytes) -> None:
        self.peer, self.subject = peer, subject


class _CaptureEntry:
    """One subject of a stream."""

    __slots__ = ("_listener", "capture", "peer", "subject")
    queue = None
    weight = 1
    is_service = False

    def __init__(self, peer: Peer, subject: bytes, capture: Capture) -> None:
        self.peer, self.subject, self.capture = peer, subject, capture
        self._listener: Subscription | None = None

    @property
    def listener(self) -> Subscription:
        """Who takes what is imported; made if anything is."""
        if self._listener is None:
            self._listener = InternalSubscription(self.peer, self.subject, self.capture.ingest_msg)
        return self._listener


def _everybody(found: Match[Subscription]) -> Iterable[Subscription]:
    yield from found.plain
    for group in found.queues:
        yield from group


def _may_import(sub: Subscription) -> bool:
    """True for those who have messages of other accounts by what their own account imports.

    Other servers of the cluster import for their clients themselves.
    """
    return sub.peer.kind not in (Kind.INTERNAL, Kind.ROUTE) and not isinstance(sub, HiddenSubscription)
