"""Message traces: what becomes of a message, told to a subject that its headers name.

    Nats-Trace-Dest: <subject>      where to tell it
    Nats-Trace-Only: true           find out whom the message would reach, and deliver it to nobody
    traceparent: 00-…-01            another system traces the message; told where the account's `msg_trace` says

Each server that a message comes to tells one event, with what it did: `in` (where it came from), `sm` (the subject it
was mapped to), `se` and `si` (it went to another account), `js` (a stream took it) and `eg` (it was delivered, or why
not). Over a link it goes with the number of the hop, so that the events of servers can be put together.

A traced message takes a way of its own (`Trace.carry`), so that all others are not slowed down.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from jetlake.broker.account_link import AccountLink, LinkSubscription
from jetlake.broker.imports import HiddenSubscription, ReplyMap, ServiceImport
from jetlake.broker.link_recipients import ALL_QUEUES, LinkRecipients, Names
from jetlake.broker.peer import Kind, Peer
from jetlake.broker.permissions import publish_violation
from jetlake.broker.recipients import Capture, shuffled
from jetlake.broker.subscription import ClientSubscription, Msg, Subscription
from jetlake.errors import BadSubject
from jetlake.subjects import check_subject, decode_subject
from jetlake.wire.go_time import format_time
from jetlake.wire.headers import iter_headers, set_header

if TYPE_CHECKING:
    from jetlake.broker.account import Account
    from jetlake.broker.broker import Broker
    from jetlake.broker.client import Client

DEST, ONLY, HOP, PARENT = b"Nats-Trace-Dest", b"Nats-Trace-Only", b"Nats-Trace-Hop", b"traceparent"
ORIGIN_ACCOUNT = b"Nats-Trace-Origin-Account"
DISABLED = b"trace disabled"  # no subject, so that nobody can ask for it
KINDS = {"Client": 0, "Router": 1, "Gateway": 2, "System": 3, "Leafnode": 4}
_SYSTEM_PREFIXES = (b"$JS.API.", b"$SYS.REQ.")
_OWN_PREFIXES = (b"$JS.API.DIRECT.GET.", b"$JS.API.CONSUMER.MSG.NEXT.")  # answered by the account itself
_RESERVED = (b"_GR_.", b"$GR.", b"$NRG.")
_YES = (b"1", b"true", b"on")

NO_ECHO = "Not delivered because of no echo"
SUB_DENIED = "Not delivered because subscription denies this subject"
SUB_ENDED = "Not delivered because auto-unsubscribe exceeded"
CLIENT_CLOSED = "Not delivered because client is closed"
ONLY_UNKNOWN = "Not delivered because remote does not support message tracing"
UNKNOWN = "Message delivered but remote does not support message tracing so no trace event generated from there"

Event = dict[str, Any]


class Begun(NamedTuple):
    """A message whose headers were looked at: as it goes on, its trace if it has one; or that it goes nowhere."""

    msg: Msg
    trace: Trace | None = None
    is_dropped: bool = False


def begin(broker: Broker, peer: Client | AccountLink, msg: Msg) -> Begun:
    """Look at the headers of a message from a client or over a link."""
    pairs = [(name, text) for name, value in iter_headers(msg.headers) if (text := value.strip(b" \t")) and name]
    found = dict(reversed(pairs))  # the first of several counts
    dest = found.get(DEST, b"")
    is_external = not dest
    if dest == DISABLED or (is_external and not any(_is_sampled(*pair) for pair in pairs)):
        return Begun(msg)
    is_only = not is_external and found.get(ONLY, b"").lower() in _YES
    if ORIGIN_ACCOUNT in found:
        value = found[ORIGIN_ACCOUNT].decode("utf-8", "replace")
        broker.log("error", f'Message tracing disabled because of header "{ORIGIN_ACCOUNT.decode()}" with {value=!s}')
        return Begun(_disabled(msg), None, is_only)
    if is_external:
        options = peer.account.options
        if options is None or not options.trace_dest:
            return Begun(msg)
        if peer.kind is Kind.CLIENT and not _draw(options.trace_sampling):
            return Begun(_disabled(msg))
        dest = options.trace_dest.encode()
    if not _is_literal(dest):
        broker.log("error", f'Destination "{decode_subject(dest)}" is not valid, won\'t be able to trace events')
        return Begun(msg, None, is_only)
    if dest.startswith(_RESERVED) or not peer.may_trace_to(dest):
        peer.violation(publish_violation(dest))
        return Begun(msg, None, True)
    return Begun(msg, Trace(broker, peer, msg, dest, pairs, is_only))


def _is_sampled(name: bytes, value: bytes) -> bool:
    """Does another system trace this message?"""
    parts = value.split(b"-")
    if name.lower() != PARENT or len(parts) != 4 or len(parts[3]) != 2:
        return False
    try:
        flags = int(parts[3], 16)
    except ValueError:
        return False
    return -128 <= flags < 128 and bool(flags & 1)  # a number of eight bits for nats-server, with a sign


def _draw(percent: int) -> bool:
    return not 0 < percent < 100 or random.randrange(100) <= percent


def _is_literal(subject: bytes) -> bool:
    try:
        check_subject(decode_subject(subject))
    except BadSubject:
        return False
    return True


def _disabled(msg: Msg) -> Msg:
    """A message that no other server traces."""
    return msg._replace(headers=set_header(msg.headers, DEST, DISABLED))


class Trace:
    """What becomes of one message on this server."""

    def __init__(
        self,
        broker: Broker,
        peer: Client | AccountLink,
        msg: Msg,
        dest: bytes,
        pairs: list[tuple[bytes, bytes]],
        is_only: bool,
    ) -> None:
        self._broker, self._account, self._dest, self._is_only = broker, peer.account, dest, is_only
        headers: dict[str, list[str]] = {}
        for name, value in pairs:
            headers.setdefault(name.decode("utf-8", "replace"), []).append(value.decode("utf-8", "replace"))
        self._request = {"header": dict(sorted(headers.items())), "msgsize": len(msg.headers) + len(msg.payload)}
        self._encoding = dict(reversed(pairs)).get(b"Accept-Encoding", b"")
        hop = dict(reversed(pairs)).get(HOP, b"") if peer.kind is not Kind.CLIENT else b""
        self._hop_prefix = hop.decode("utf-8", "replace") + "." if hop else ""
        self._hops = 0
        self._events: list[Event] = []
        self._waiting = 1  # until all is known: one for the way of the message, one for each stream that stores it
        self._ingress = self._add("in", **_connection(peer), acc=peer.account.name, subj=decode_subject(msg.subject))

    def _add(self, type: str, **fields: Any) -> Event:
        event = {"type": type, "ts": format_time(self._broker.clock()), **fields}
        self._events.append(event)
        return event

    def mapped(self, subject: bytes) -> None:
        """A mapping gave the message another subject."""
        self._add("sm", to=decode_subject(subject))

    def refused(self, problem: str) -> None:
        """The message may not be published."""
        self._ingress["error"] = problem

    def finish(self) -> None:
        """One of those that are waited for is done; after the last one the event is sent."""
        self._waiting -= 1
        if not self._waiting:
            hops = {"hops": self._hops} if self._hops else {}
            event = {"request": self._request, **hops, "events": self._events}
            self._broker.send_trace(self._account, self._dest, event, self._encoding)

    # The way of the message

    def carry(
        self, account: Account, msg: Msg, queues: Names | None = ALL_QUEUES, *, is_imported: bool = False
    ) -> bool:
        """Deliver the message to everybody it reaches in an account; False when that is nobody."""
        found = account.recipients_of(msg.subject)
        if found.capture is not None:
            self._store(found.capture, msg)
        taken = found.capture is not None
        for sub in found.plain:
            taken |= self._deliver(sub, msg, is_imported)
        served = []
        for group in found.queues:
            is_asked = queues is ALL_QUEUES or group[0].queue in queues
            if is_asked and any(self._deliver(sub, msg, is_imported) for sub in shuffled(group)):
                served.append(group[0].queue)
        if found.links is not None:
            taken |= self._send_over(found.links, msg, served, queues)
        return taken or bool(served)

    def _store(self, capture: Capture, msg: Msg) -> None:
        event = self._add("js", stream=capture.name)
        self._waiting += 1

        def stored(subject: str, no_interest: bool, problem: str) -> None:
            event["ts"] = format_time(self._broker.clock())
            event.update({"error": problem} if problem else {"subject": subject})
            if no_interest and not problem:
                event["nointerest"] = True
            self.finish()

        capture.ingest_traced(msg, self._is_only, stored)

    def _deliver(self, sub: Subscription, msg: Msg, is_imported: bool) -> bool:
        match sub:
            case ClientSubscription():
                return self._to_client(sub, msg, sub.subject)
            case LinkSubscription():
                return self._to_link(sub.link, msg, sub.queue or b"")
            case HiddenSubscription():
                return not is_imported and self._to_importer(sub, msg)
            case ServiceImport():
                return self._to_service(sub, msg)
            case ReplyMap():
                self._service(sub.asker, msg.subject, sub.reply_of(msg.subject))
                return not self._is_only and sub.deliver(_disabled(msg))
            case _:
                return self._to_server(sub, msg)

    def _to_client(self, sub: ClientSubscription, msg: Msg, subject: bytes) -> bool:
        problem = _problem(sub, msg)
        if not problem and not self._is_only:
            sub.deliver(msg)
        self._egress(sub.client, problem, sub=decode_subject(subject), queue=decode_subject(sub.queue or b""))
        return not problem

    def _egress(self, peer: Peer, problem: str, hop: str = "", sub: str = "", queue: str = "") -> None:
        other = peer.account.name if peer.account is not self._account else ""
        more = {"hop": hop, "acc": other, "sub": sub, "queue": queue, "error": problem}
        self._add("eg", **_connection(peer), **{name: value for name, value in more.items() if value})

    def _send_over(
        self, links: LinkRecipients, msg: Msg, served: Collection[bytes | None], queues: Names | None
    ) -> bool:
        targets = links.targets(msg.origin, served, queues)
        sent = [self._to_link(link, msg, b" ".join(names)) for link, names in targets.items()]
        return any(sent)

    def _to_link(self, link: AccountLink, msg: Msg, queues: bytes) -> bool:
        """Send it over, also if it is to be traced only: the other server tells what it would do."""
        if self._is_only and not link.takes_traces:
            self._egress(link, ONLY_UNKNOWN)
            return False
        self._hops += 1
        hop = f"{self._hop_prefix}{self._hops}"
        link.send_msg(msg._replace(headers=set_header(msg.headers, HOP, hop.encode())), None, queues)
        self._egress(link, "" if link.takes_traces else UNKNOWN, hop)
        return True

    # Other accounts

    def _to_importer(self, sub: HiddenSubscription, msg: Msg) -> bool:
        shown = sub.shown(msg)
        self._add("se", acc=sub.peer.account.name, to=decode_subject(shown.subject))
        if sub.allows_trace and isinstance(sub.target, ClientSubscription):
            return self._to_client(sub.target, shown, sub.subject)
        if sub.allows_trace and isinstance(sub.target, LinkSubscription):
            return self._to_link(sub.target.link, shown, sub.queue or b"")
        return self._is_only or sub.deliver(msg)

    def _service(self, account: Account, subject: bytes, to: bytes | None) -> None:
        if to is not None:
            self._add("si", acc=account.name, **{"from": decode_subject(subject), "to": decode_subject(to)})

    def _to_service(self, sub: ServiceImport, msg: Msg) -> bool:
        if not sub.allows_trace:
            self._service(sub.exporter, msg.subject, sub.subject_for(msg.subject))
            return not self._is_only and sub.deliver(_disabled(msg))
        passed = sub.passed_on(msg)
        if passed is None:
            return False
        self._service(sub.exporter, msg.subject, passed.subject)
        hops, dest = self._hops, sub.traces.add(self._dest)
        passed = passed._replace(headers=set_header(passed.headers, DEST, dest))
        is_taken = self.carry(sub.exporter, passed, is_imported=True)
        if self._hops == hops:  # no other server will tell of it
            sub.traces.remove(dest)
        sub.settle(msg, passed, is_taken and not self._is_only)
        return is_taken

    def _to_server(self, sub: Subscription, msg: Msg) -> bool:
        """The server itself answers; for an account its answers come from the system account."""
        system, subject = self._broker.system_account, msg.subject
        if (
            sub.peer.account is not system
            and subject.startswith(_SYSTEM_PREFIXES)
            and not subject.startswith(_OWN_PREFIXES)
        ):
            self._service(system, subject, _system_subject(subject, sub.peer.account.name))
            if self._is_only:
                return False
        return sub.deliver(msg)


def _connection(peer: Peer) -> Event:
    """Who sends or gets a message."""
    if isinstance(peer, AccountLink):
        cid, name = peer.identity
    else:
        cid, name = getattr(peer, "cid", 0), getattr(peer, "name", "")
    return {"kind": KINDS[peer.kind.value], "cid": cid, **({"name": name} if name else {})}


def _problem(sub: ClientSubscription, msg: Msg) -> str:
    """Why a client does not get a message; empty when it does."""
    client = sub.client
    if client is msg.origin and not client.options.echo:
        return NO_ECHO
    if client.is_closed:
        return CLIENT_CLOSED
    if sub.is_filtered and not client.may_receive(msg.subject, sub.queue):
        return SUB_DENIED
    return SUB_ENDED if sub.max_msgs and sub.delivered >= sub.max_msgs else ""


def _system_subject(subject: bytes, account: str) -> bytes:
    """What a request of an account is called in the system account."""
    if subject == b"$SYS.REQ.USER.INFO":
        return b"$SYS.REQ.USER.%s.INFO" % account.encode()
    if subject.startswith(b"$SYS.REQ."):
        return b"$SYS.REQ.ACCOUNT.%s.%s" % (account.encode(), subject.rpartition(b".")[2])
    return subject
