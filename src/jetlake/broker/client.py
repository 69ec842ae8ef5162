"""A client: one connection's side of the conversation, without I/O.

The connection feeds in what it received with `receive`, and takes out what is to be sent with `take_output`. A client
is in one of three states: waiting for a login it has to give, waiting for its password to be checked (bcrypt takes its
time, so the connection does that in a thread), or open. Closing is final: what comes after is not looked at.

Input is acted on for a few milliseconds at a time (`has_more`), so that nobody else waits for a chunk full of costly
requests.

Output is bounded: beyond `max_pending` bytes that the socket did not take, the client is closed as a slow consumer.
Before that, at half of it, whoever publishes to the client is held back for a moment.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from jetlake.broker.auth import AUTHORIZATION_VIOLATION, Credentials, User
from jetlake.broker.client_info import client_info
from jetlake.broker.endpoint import Endpoint
from jetlake.broker.frames import find_traced, msgs_size
from jetlake.broker.peer import Kind, Peer
from jetlake.broker.permissions import (
    Permissions,
    ReplyPermits,
    go_quoted,
    publish_violation,
    subscribe_violation,
)
from jetlake.broker.subscription import Buffer, ClientSubscription, Msg, as_batch, read_msg
from jetlake.errors import BadSubject
from jetlake.ops import OP_WORDS
from jetlake.subjects import check_filter, decode_subject
from jetlake.wire import writer
from jetlake.wire.headers import no_responders_block
from jetlake.wire.protocol import FULL, NEED_MORE, OTHER, ProtocolError, stop_error
from jetlake.wire.tokenize import tokenize
from jetlake.wire.verbs import Connect, ConnectOptions, Ping, Pong, Sub, Unsub, parse_line

if TYPE_CHECKING:
    from jetlake.broker.account import Account
    from jetlake.broker.broker import Broker

ROOM_MAX = 8 * 1024 * 1024  # deliveries from streams pause when this much waits for the socket
TURN_NS = 8_000_000  # for what was received from one client, before others have their turn
OPS_FIRST_MAX = 16  # messages that are taken at once, until it is known how long they take
SUBS_AT_ONCE = 1000  # that are taken out before others have their turn
MAX_SUBSCRIPTIONS = "maximum subscriptions exceeded"
_BEFORE_CONNECT = ConnectOptions()


class Connection(Protocol):
    """What a client needs of its connection."""

    def pending_size(self) -> int: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
    def check_login(self, credentials: Credentials) -> None: ...
    def hold(self) -> None: ...
    def release(self) -> None: ...
    def stall(self, slow: Peer) -> None: ...


class Cancellable(Protocol):
    """A timer."""

    def cancel(self) -> None: ...


class Client(Peer):
    """One connection's side of the conversation."""

    kind = Kind.CLIENT

    def __init__(self, broker: Broker, connection: Connection, cid: int, endpoint: Endpoint, nonce: bytes) -> None:
        self.broker, self.connection = broker, connection
        self.cid, self.endpoint, self.host, self.port, self.nonce = cid, endpoint, endpoint.host, endpoint.port, nonce
        self.start_ns = self.active_ns = broker.clock()
        self.rtt_ns = self.stop_ns = 0
        self.options = _BEFORE_CONNECT
        self.user: User | None = None
        self.account: Account = broker.default_account
        self.permissions: Permissions | None = None
        self.permits: ReplyPermits | None = None
        self.subs: dict[bytes, ClientSubscription] = {}
        self.is_connected = self.is_checking = self.is_closed = False
        self.is_greeted = False  # the second INFO was sent
        self.close_reason = ""
        self.max_payload, self.max_subscriptions = broker.limits(None)
        self.certificate = b""  # of the client, where it says who it is
        self.proxy = ""  # the key of the trusted proxy that the client came through
        self.expiry: Cancellable | None = None  # the timer that ends the connection of a user whose time is up
        self.needed = 0  # how large the message is whose beginning was received; 0: not known
        self.has_more = False  # what was received last goes on, but others have their turn first
        self._ops_max = OPS_FIRST_MAX
        self.in_msgs = self.in_bytes = self.out_msgs = self.out_bytes = 0
        self.pings_out = 0
        self.ping_sent_ns = 0
        self._output: list[bytes] = []
        self._output_size = 0

    def move_to(self, host: str, port: int) -> None:
        """The client is behind a proxy, which says where it comes from."""
        self.endpoint = self.endpoint._replace(host=host, port=port)
        self.host, self.port = host, port

    # What an observer asks

    @property
    def user_name(self) -> str:
        return self.user.name if self.user is not None else ""

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def type(self) -> str:
        """What it speaks, as pages and events call it."""
        return "websocket" if self.endpoint.is_websocket else "nats"

    @property
    def lang(self) -> str:
        return self.options.lang

    @property
    def version(self) -> str:
        return self.options.version

    @property
    def credentials(self) -> Credentials:
        """What the client said to be let in."""
        said, endpoint = self.options, self.endpoint
        return Credentials(
            said.user, said.password, said.auth_token, said.nkey, said.sig, said.jwt, self.host, endpoint.type,
            self.certificate, self.proxy,
        )  # fmt: skip

    # Receiving

    def receive(self, data: bytearray, start: int, end: int) -> int:
        """Act on what was received; the offset of the first byte that has to be shown again.

        That is the beginning of a message, to be shown with more behind it; or, when `has_more` is set, something that
        there was no time for: others have their turn first.
        """
        broker, ops = self.broker, self.broker.ops
        self.needed, self.has_more = 0, False
        self.active_ns = broker.clock()
        offset, now_ns = start, time.monotonic_ns()
        stop_ns = now_ns + TURN_NS // 2  # what is taken then may take a whole turn more
        while offset < end and not (self.is_closed or self.is_checking):
            if now_ns > stop_ns:
                self.has_more = True
                break
            if not self.is_connected and data[offset] not in b"Cc" and not self._log_in_unasked():
                break
            count, offset, reason, needed = tokenize(
                data, offset, end, ops, min(self._ops_max, broker.ops_max), self.max_payload,
                broker.options.max_control_line, self.options.headers,
            )  # fmt: skip
            began_ns = now_ns
            if count:
                self._publish(data, ops, count)
                now_ns = time.monotonic_ns()
                self._choose_ops_max(count, now_ns - began_ns)
            if reason == NEED_MORE:
                self.needed = needed
                break
            if reason == OTHER:
                self._take_line(bytes(memoryview(data)[offset : offset + needed]))
                offset += needed
                now_ns = time.monotonic_ns()
            elif reason != FULL:
                self._protocol_error(stop_error(reason))
        return offset

    def _choose_ops_max(self, count: int, took_ns: int) -> None:
        """How many messages to take at once: as many as can be carried in a turn.

        One slow moment must not keep it low: where messages go to many streams, few at once cost as much as many.
        """
        if count >= self._ops_max or took_ns > TURN_NS:
            self._ops_max = max(min(count * TURN_NS // max(took_ns, 1), 4 * count), 1)

    def _take_line(self, line: bytes) -> None:
        try:
            event = parse_line(line, self.options if self.is_connected else None)
        except ProtocolError as error:
            self._protocol_error(error)
            return
        if self.broker.trace is not None:
            self.broker.trace(self, "<<-", line)
        match event:
            case Sub():
                self._subscribe(event)
            case Unsub():
                self._unsubscribe(event)
            case Ping():
                self._ping()
            case Pong():
                self.pings_out = 0
                if self.ping_sent_ns:
                    self.rtt_ns, self.ping_sent_ns = self.broker.clock() - self.ping_sent_ns, 0
            case Connect(options):
                self._connect(options)

    def _protocol_error(self, error: ProtocolError) -> None:
        if error.text is None:
            self.close("Protocol Violation")
        else:
            self.refuse(error.text)

    # Logging in

    def _connect(self, options: ConnectOptions) -> None:
        self.options = options = self.endpoint.complete(options)
        if self.is_connected:
            self._log_out()
        self.proxy = self.broker.proxy_of(options.proxy_sig, self.nonce) if options.proxy_sig else ""
        if options.proxy_sig and not self.proxy:
            self._log_in(None)
            return
        credentials = self.credentials
        authenticator = self.broker.authenticator_of(self)
        if self.subs or authenticator.is_slow(credentials):
            self.is_checking = True
            self.connection.check_login(credentials)
        else:
            self.finish_login(authenticator.check(credentials, self.nonce))

    def _log_out(self) -> None:
        """Another CONNECT begins anew, perhaps as another user; subscriptions are forgotten, as in nats-server."""
        self.is_connected = False
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None
        self.forget_some()
        self.account.clients.pop(self.cid, None)

    def forget_some(self) -> bool:
        """Take some subscriptions out; False when there are no more."""
        for sub in list(islice(self.subs.values(), SUBS_AT_ONCE)):
            self.remove_subscription(sub)
        return bool(self.subs)

    def finish_login(self, user: User | None) -> None:
        """The credentials were checked: let the client in, or not."""
        self.is_checking = False
        if not self.is_closed and self._log_in(user):
            self._accept_options()

    def _log_in_unasked(self) -> bool:
        """A client begins without a CONNECT: is it let in?"""
        authenticator = self.broker.authenticator_of(self)
        return not authenticator.required or self._log_in(authenticator.no_auth_user)

    def _log_in(self, user: User | None) -> bool:
        """Let the client in as this user; False when it was refused."""
        if user is None or self.options.account or self.options.new_account:
            self.broker.login_failed(self)
            self.refuse(AUTHORIZATION_VIOLATION)
            return False
        self.set_user(user)
        self.rtt_ns = self.broker.clock() - self.start_ns  # a first guess, until a PING is answered
        problem = self.broker.admit(self)
        if problem is not None:
            self.refuse(problem)
            return False
        self.is_connected = True
        return True

    def set_user(self, user: User) -> None:
        """Who the client is, and what it may do."""
        self.user, self.permissions = user, user.permissions
        has_responses = user.permissions is not None and user.permissions.responses is not None
        self.permits = ReplyPermits(user.permissions) if user.permissions is not None and has_responses else None

    def recheck_subscriptions(self) -> Iterator[None]:
        """The client may do other things than before: take out the subscriptions that it may not have any more.

        Others may have their turn after each of them, the client itself too.
        """
        for sub in list(self.subs.values()):
            permissions = self.permissions
            if self.subs.get(sub.sid) is not sub:
                continue
            if permissions is not None and not permissions.may_subscribe(sub.subject, sub.queue):
                self.remove_subscription(sub)
                self.violation(f"{subscribe_violation(sub.subject, sub.queue)} (sid {go_quoted(sub.sid)})")
            else:
                sub.is_filtered = permissions is not None and permissions.filters(sub.subject)
            yield
        self.account.limits_changed()

    def _accept_options(self) -> None:
        problem = self.options.problem()
        if problem is not None:
            self.refuse(problem)
        elif self.options.verbose:
            self.send(writer.OK)

    def _ping(self) -> None:
        self.send(writer.PONG)
        if self.is_connected and not self.is_greeted and self.options.protocol >= 1:
            self.is_greeted = True
            self.send(writer.info(self.broker.info(self, connect_info=True)))

    # Subscribing

    def _subscribe(self, event: Sub) -> None:
        subject, queue = event.subject, event.queue
        if event.sid not in self.subs:
            try:
                check_filter(decode_subject(subject))
            except BadSubject:
                self.send(writer.err("Invalid Subject"))
                return
            permissions, tokens_max = self.permissions, self.broker.options.max_sub_tokens
            if permissions is not None and not permissions.may_subscribe(subject, queue):
                self.violation(subscribe_violation(subject, queue))
                return
            if 0 < tokens_max <= subject.count(b"."):
                self.violation(f"{subscribe_violation(subject)}, too many tokens")
                return
            if 0 <= self.max_subscriptions <= len(self.subs):
                self.send(writer.err(MAX_SUBSCRIPTIONS))
                return
            is_filtered = permissions is not None and permissions.filters(subject)
            sub = ClientSubscription(self, subject, queue, event.sid, is_filtered=is_filtered)
            self.subs[event.sid] = sub
            self.account.insert(sub)
        if self.options.verbose:
            self.send(writer.OK)

    def _unsubscribe(self, event: Unsub) -> None:
        sub = self.subs.get(event.sid)
        if sub is not None:
            sub.max_msgs = event.max_msgs
            if sub.delivered >= event.max_msgs:
                self.remove_subscription(sub)
            else:
                self.account.limits_changed()
        if self.options.verbose:
            self.send(writer.OK)

    def remove_subscription(self, sub: ClientSubscription) -> None:
        """Take a subscription out."""
        if self.subs.get(sub.sid) is sub:
            del self.subs[sub.sid]
            self.account.remove(sub)

    # Publishing

    def _publish(self, data: bytearray, ops: array[int], count: int) -> None:
        self.in_msgs += count
        size = msgs_size(ops, 0, count)
        self.in_bytes += size
        self.broker.in_msgs += count
        self.broker.in_bytes += size
        if self.broker.trace is not None:
            self._trace_publishes(data, ops, count)
        first = 0
        while first < count:
            stop = find_traced(data, ops, first, count, self.account.is_traced)
            if first < stop:
                self._publish_run(data, ops, first, stop)
            if stop < count:
                self._publish_traced(read_msg(data, ops, stop, self))
            first = stop + 1

    def _publish_run(self, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        mapped: Buffer = data
        has_gaps = False
        if self.account.mappings is not None:
            mapped, dropped = self.account.mappings.apply(data, ops, first, stop)
            has_gaps = dropped > 0
        if self.options.verbose or self.options.pedantic or has_gaps:
            for number in range(first, stop):
                self._publish_one(mapped, ops, number)
        elif self.permissions is not None:
            self._publish_permitted(self.permissions, mapped, ops, first, stop)
        else:
            self.account.publish(self, mapped, ops, first, stop)

    def _publish_permitted(self, permissions: Permissions, data: Buffer, ops: array[int], first: int, end: int) -> None:
        """Carry what the lists allow in runs; all else may be a response, or is a violation."""
        while first < end:
            stop, may = permissions.publish_run(data, ops, first, end)
            if may:
                self.account.publish(self, data, ops, first, stop)
            else:
                for number in range(first, stop):
                    self._publish_one(data, ops, number)
            first = stop

    def _publish_traced(self, msg: Msg) -> None:
        """Publish a message whose headers ask for a trace."""
        from jetlake.broker import msg_trace  # few messages do

        msg, trace, is_dropped = msg_trace.begin(self.broker, self, msg)
        if is_dropped:
            return
        if trace is None:
            self._publish_run(*as_batch(msg), 0, 1)
            return
        mapped = self.account.mappings.map(msg.subject) if self.account.mappings is not None else msg.subject
        if mapped != msg.subject:
            trace.mapped(mapped)
        msg = msg._replace(subject=mapped)
        problem = self._refusal(msg)
        if problem:
            trace.refused(problem)
        elif not (problem is None and trace.carry(self.account, msg)):
            self.unheard(*as_batch(msg), 0, 1)
        trace.finish()

    def may_trace_to(self, subject: bytes) -> bool:
        """True when traces of this client's messages may go to a subject."""
        return self.permissions is None or self.permissions.may_publish(subject)

    def _trace_publishes(self, data: bytearray, ops: array[int], count: int) -> None:
        assert self.broker.trace is not None
        for number in range(count):
            msg = read_msg(data, ops, number, self)
            parts = [b"PUB", msg.subject, msg.reply, b"%d" % len(msg.payload)]
            self.broker.trace(self, "<<-", b" ".join(filter(None, parts)))

    def _publish_one(self, data: Buffer, ops: array[int], number: int) -> None:
        problem = self._refusal(read_msg(data, ops, number, self))
        if problem is None:
            self.account.publish(self, data, ops, number, number + 1)
        elif not problem:
            self.unheard(data, ops, number, number + 1)

    def _refusal(self, msg: Msg) -> str | None:
        """What the client hears that may not publish this, empty if a mapping drops it; None when it goes on."""
        if not msg.subject:  # dropped by a mapping
            if self.options.verbose:
                self.send(writer.OK)
            return ""
        if self.permissions is not None and not self._may_publish(msg.subject):
            problem = publish_violation(msg.subject)
            self.violation(problem)
            return problem
        if self.options.pedantic and {b"", b"*", b">"} & set(msg.subject.split(b".")):
            self.send(writer.err("Invalid Publish Subject"))
        if self.options.verbose:
            self.send(writer.OK)
        return None

    def _may_publish(self, subject: bytes) -> bool:
        assert self.permissions is not None
        if self.permits is not None:
            return self.permits.may_publish(subject, self.broker.clock())
        return self.permissions.may_publish(subject)

    def may_receive(self, subject: bytes, queue: bytes | None) -> bool:
        """True when a message on this subject may be delivered to this client."""
        return self.permissions is None or self.permissions.may_deliver(subject, queue)

    def violation(self, text: str) -> None:
        """Tell the client what it may not do."""
        self.broker.violation(self, text)
        self.send(writer.err(text))

    def no_responders(self, msg: Msg) -> None:
        """Nobody listens to a request: tell the client, on its own subscription to the reply."""
        for sub in self.account.sublist.match(msg.reply).plain:
            if isinstance(sub, ClientSubscription) and sub.client is self:
                # It does not count among the messages after which the subscription ends.
                answer = Msg(msg.reply, b"", no_responders_block(msg.subject), b"", self.account.internal)
                self.send_msg(sub.sid, answer)
                return

    def unheard(self, data: bytes | bytearray, ops: array[int], first: int, stop: int) -> None:
        """Tell the client that nobody listens to what it asked, if it wants to know."""
        if self.options.no_responders:
            reply_sizes = ops[first * OP_WORDS + 3 : stop * OP_WORDS : OP_WORDS]
            for number, size in enumerate(reply_sizes, first):
                if size:
                    self.no_responders(read_msg(data, ops, number, self))

    def takes_from(self, origin: Peer) -> bool:
        """True unless the messages are its own, and it wants no echo."""
        return origin is not self or self.options.echo

    def hold(self) -> None:
        """Read no more until `release`."""
        self.connection.hold()

    def release(self) -> None:
        """Go on reading, once for each `hold`."""
        self.connection.release()

    def hold_back(self, slow: Peer) -> None:
        """Read nothing for a moment: a subscriber cannot take what this client publishes."""
        self.connection.stall(slow)

    def describe(self) -> dict[str, Any]:
        """All that events say of a client."""
        return {**client_info(self), "server": self.broker.server_name}

    # Sending

    def send(self, frames: bytes) -> None:
        """Queue bytes for the socket."""
        if self.is_closed:
            return
        if not self._output:
            self.broker.has_output(self)
        self._output.append(frames)
        self._output_size += len(frames)

    def send_msgs(self, frames: bytes, count: int, origin: Peer | None = None, size: int | None = None) -> None:
        """Queue deliveries for the socket, from a peer that is held back when they pile up.

        `size` is what their headers and payloads come to; without it the frames are counted.
        """
        size = len(frames) if size is None else size
        self.out_msgs += count
        self.out_bytes += size
        self.broker.out_msgs += count
        self.broker.out_bytes += size
        self.send(frames)
        pending = self.connection.pending_size() + self._output_size
        if pending > self.broker.options.max_pending:
            self.close_slow("Slow Consumer (Pending Bytes)")
        elif origin is not None and pending > self.broker.options.max_pending // 2:
            origin.hold_back(self)

    def send_msg(self, sid: bytes, msg: Msg) -> None:
        """Queue one delivery."""
        headers = msg.headers if self.options.headers else b""
        if self.permits is not None and msg.reply:
            self.permits.delivered(msg.reply, self.broker.clock())
        frame = writer.msg(msg.subject, sid, msg.payload, msg.reply, headers)
        self.send_msgs(frame, 1, msg.origin, len(headers) + len(msg.payload))

    def room(self) -> int:
        """How many bytes of deliveries may be queued before they should pause."""
        return min(ROOM_MAX, self.broker.options.max_pending // 2) - self.connection.pending_size() - self._output_size

    def take_output(self) -> bytes:
        """What is to be sent, which counts as the socket's from now on."""
        output = self._output[0] if len(self._output) == 1 else b"".join(self._output)
        self._output.clear()
        self._output_size = 0
        return output

    # Leaving

    def refuse(self, text: str) -> None:
        """Close with an -ERR."""
        self.send(writer.err(text))
        self.close(_REASONS.get(text, text))

    def close_slow(self, reason: str) -> None:
        """Close a client that does not take what is sent to it."""
        if not self.is_closed:
            self.broker.slow_consumer(self, reason)
            self._output.clear()
            self._output_size = 0
            self.close(reason)

    def close(self, reason: str) -> None:
        """Leave the account and let the connection go, once what is queued was sent."""
        if self.is_closed:
            return
        self.is_closed, self.close_reason, self.stop_ns = True, reason, self.broker.clock()
        self.broker.forget(self)
        self.broker.left(self)
        self.connection.close()


_REASONS = {
    AUTHORIZATION_VIOLATION: "Authentication Failure",
    "Authentication Timeout": "Authentication Timeout",
    "Stale Connection": "Stale Connection",
    "Unknown Protocol Operation": "Protocol Violation",
    "Maximum Payload Violation": "Maximum Message Payload Exceeded",
    "maximum control line exceeded": "Maximum Control Line Exceeded",
    "maximum connections exceeded": "Maximum Connections Exceeded",
    "maximum account active connections exceeded": "Maximum Account Connections Exceeded",
    MAX_SUBSCRIPTIONS: "Maximum Subscriptions Exceeded",
    "User Authentication Expired": "Authentication Expired",
    "Account Authentication Expired": "Authentication Expired",
    "User Authentication Revoked": "Credentials Revoked",
    "invalid client protocol": "Bad Client Protocol Version",
    "no responders requires headers support": "No Responders Requires Headers",
}
