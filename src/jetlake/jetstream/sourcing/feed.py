"""Feed: the deliveries of one origin, for as long as a stream copies it.

A feed asks the origin's server for a consumer, listens to what that delivers and hands it on in runs (`Taker`). It
makes a new consumer, from where the copies end, when a delivery is missing, when nothing is heard for ten seconds, or
when a message could not be stored. Requests are at least two seconds apart; after failures they become rarer.

The origin is in this server, behind a link (`external.api` with an imported or mapped prefix), or on a remote: a server
that the feed has a client connection to (`remotes.py`). Of a remote's streams only those whose messages stay when they
are read are copied by a consumer of our own: nothing is to change there.

Flow control is answered when the copies are durable, so an origin never runs ahead of the disk, and a work queue lets
go of nothing that could still be lost here.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from jetlake.broker.account import Account
from jetlake.broker.peer import Peer
from jetlake.broker.subscription import Buffer, FrameSubscription, InternalSubscription, Msg, read_msg
from jetlake.clock import SECOND_NS
from jetlake.jetstream.host import Timer
from jetlake.jetstream.sourcing.consumer_request import Start, create_request
from jetlake.jetstream.sourcing.deliveries import read_delivery, read_frames
from jetlake.jetstream.sourcing.names import IDENTITY_HEADER, random8
from jetlake.jetstream.sourcing.remote_client import RemoteClient, RemoteSubscription
from jetlake.jetstream.sourcing.remotes import remote_name
from jetlake.jetstream.sourcing.watch import SILENT_NS, Watch
from jetlake.jetstream.streams.config import StreamSource
from jetlake.ops import OP_WORDS, append_op
from jetlake.subjects import encode_subject
from jetlake.wire.headers import append_headers, header_value

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

FIRST_WAIT_NS = 20_000_000
RETRY_NS = 2 * SECOND_NS
PENALTY_NS, PENALTY_MAX_NS = 10 * SECOND_NS, 120 * SECOND_NS
ANSWER_WAIT_NS = 30 * SECOND_NS
STALL_NS = 10 * SECOND_NS
_MIRROR_LEVEL, _SOURCE_LEVEL = b"4", b"5"
_IDENTITY_MISMATCH = 10225
_OLDER_SERVER = (10185, 10025)
_API = "$JS.API"
_STATUS = b"NATS/1.0 100"


class Taker(Protocol):
    """The stream's side of a feed."""

    def start(self) -> Start: ...
    @property
    def identity(self) -> str: ...  # of the origin whose messages are here; empty when not known
    def accept(self, identity: str, delivered_seq: int) -> str: ...  # begin with this origin; why not, if not
    def take(self, data: Buffer, ops: array[int], first: int, stop: int) -> int: ...  # where it stopped


class Feed:
    """What one mirror or source hears of its origin."""

    def __init__(self, stream: Stream, source: StreamSource, consumer: str, taker: Taker, *, is_mirror: bool) -> None:
        """`consumer`: the name that the origin's consumer gets."""
        self._stream, self._host, self._account = stream, stream.host, stream.account
        self.source, self._name, self._taker, self._is_mirror = source, consumer, taker, is_mirror
        self.consumer = b""  # of the origin, as it was named there
        self.consumer_seq = 0  # of the last delivery
        self.stored_seq = 0  # of the last delivery that is stored: what flow control is told
        self.lag = 0
        self.heard_ns = 0  # when the origin was last heard; 0: never
        self._begun_ns = stream.host.clock()
        self._watch = Watch(stream.host, stream.account, stream.name, source.name, self)
        self.error: dict[str, Any] | None = None
        self._asked_ns = self._failure_count = 0
        self._is_plain_request = False  # for a server that does not know consumers for sourcing
        self._timer: Timer | None = None
        self._remote = remote_name(source.external.api) if source.external is not None else ""
        self._client: RemoteClient | None = None  # of the remote
        self._is_checked = False  # that the remote's stream may be copied
        self._answers: InternalSubscription | RemoteSubscription | None = None
        self._deliveries: FrameSubscription | RemoteSubscription | None = None
        self._is_stopped = False

    # Life

    def begin(self) -> None:
        """Listen to the origin soon."""
        self._call_in(FIRST_WAIT_NS, self._request)
        self._watch.begin()

    def stop(self) -> None:
        """Listen no more."""
        self._is_stopped = True
        self._watch.stop()
        self._unlisten()
        self._cancel()
        if self._client is not None:
            self._client.close()
            self._client = None

    def delete_consumer(self) -> None:
        """The origin need not keep anything for this stream any more."""
        if self.source.consumer is None and not self._remote:
            self._account.send(encode_subject(f"{self._api}.CONSUMER.DELETE.{self.source.name}.{self._name}"))

    def restart(self) -> None:
        """Make a new consumer, from where the copies end."""
        self._unlisten()
        self._again()

    def refused(self, error: dict[str, Any]) -> None:
        """A message could not be stored: try again from there, and say so."""
        self.restart()
        self.error = error

    @property
    def silent_ns(self) -> int:
        """How long nothing was heard of the origin, which says something every second."""
        return self._host.clock() - (self.heard_ns or self._begun_ns)

    @property
    def is_silent(self) -> bool:
        """Whether that is so long that somebody should look."""
        return self.silent_ns > SILENT_NS

    def info(self) -> dict[str, Any]:
        """What stream info says of it, but for what only a source has."""
        active_ns = self._host.clock() - self.heard_ns if self.heard_ns else -1
        return {"lag": self.lag, "active": active_ns, **({"error": self.error} if self.error else {})}

    # A remote

    def remotes_changed(self) -> None:
        """The account has other remotes than before."""
        if self._remote and not self._is_stopped:
            remote = self._stream.js.remotes.find(self._remote)
            if self._client is None or self._client.options != remote:
                self._unlisten()
                self._call_in(0, self._request)

    def _has_line(self) -> bool:
        """Whether the remote can be asked; else the request is made when it can."""
        remote = self._stream.js.remotes.find(self._remote)
        if self._client is not None and self._client.options != remote:
            self._client.close()
            self._client = None
        if remote is None:
            self.error = {"code": 404, "description": f"remote {self._remote} is not known"}
            self._call_in(RETRY_NS, self._request)
            return False
        if self._client is None:
            client = RemoteClient(self._host, remote, self._account.internal, self._connected, self._disconnected)
            self._client = client
        if not self._client.is_connected:
            self.error = {"code": 503, "description": self._client.problem}
            self._call_in(SILENT_NS, self._request)
        return self._client.is_connected

    def _connected(self) -> None:
        self._is_checked = False
        self._call_in(0, self._request)

    def _disconnected(self, problem: str) -> None:
        self._unlisten()
        self._fail({"code": 503, "description": problem}, is_counted=False)

    def _check_remote(self) -> None:
        """Ask what kind of stream the origin is: to copy a work queue would take messages from it."""
        client = self._client
        assert client is not None
        inbox = encode_subject(client.inbox())
        self._answers = client.subscribe(inbox, self._remote_told)
        client.send(encode_subject(f"{self._api}.STREAM.INFO.{self.source.name}"), reply=inbox)
        self._call_in(ANSWER_WAIT_NS // 3, self._unanswered)

    def _remote_told(self, msg: Msg) -> None:
        self._unlisten_answers()
        answer = _read_answer(msg)
        if "config" not in answer:
            self._fail(answer.get("error") or {"code": 503, "description": "no answer: is JetStream enabled there?"})
        elif answer["config"].get("retention", "limits") != "limits":
            kind = answer["config"]["retention"]
            problem = f"to copy a stream with {kind} retention would take its messages: name a consumer of it"
            self._fail({"code": 400, "description": problem})
        else:
            self._is_checked = True
            self._ask()

    # Asking for a consumer

    @property
    def _line(self) -> Account | RemoteClient:
        return self._client if self._client is not None else self._account

    @property
    def _api(self) -> str:
        if self._client is not None:
            domain = self._client.options.domain
            return f"$JS.{domain}.API" if domain else _API
        return self.source.external.api if self.source.external is not None else _API

    def _request(self) -> None:
        if self._remote and not self._has_line():
            return
        self._asked_ns = self._host.clock()
        self.error = None
        if self._remote and not self._is_checked and self.source.consumer is None:
            self._check_remote()
        else:
            self._ask()

    def _ask(self) -> None:
        inbox = encode_subject(self._client.inbox() if self._client is not None else f"$JSC.R.{random8()}")
        self._answers = self._line.subscribe(inbox, self._answered)
        subject, body = self._create() if self.source.consumer is None else self._reset()
        is_heard = self._line.send(encode_subject(subject), body, reply=inbox, headers=self._headers())
        if not self._is_stopped and self._answers is not None:
            self._call_in(ANSWER_WAIT_NS if is_heard else RETRY_NS, self._unanswered)

    def _reset(self) -> tuple[str, bytes]:
        assert self.source.consumer is not None
        return f"{self._api}.CONSUMER.RESET.{self.source.name}.{self.source.consumer.name}", b""

    def _create(self) -> tuple[str, bytes]:
        is_plain = self._is_plain_request
        name = f"{self._name}_{random8()}" if is_plain else self._name
        start, deliver = self._taker.start(), self._deliver_subject()
        subject, body = create_request(self.source, name, start, deliver, self._metadata(), is_plain=is_plain)
        return f"{self._api}.{subject}", body

    def _deliver_subject(self) -> str:
        kind, external = "M" if self._is_mirror else "S", self.source.external
        if self._client is not None and external is not None and not external.deliver:
            return self._client.inbox()
        prefix = external.deliver if external is not None and external.deliver else "$JS"
        return f"{prefix}.{kind}.{random8()}"

    def _metadata(self) -> dict[str, str]:
        kind, domain = "mirror" if self._is_mirror else "src", self._host.options.jetstream.domain
        fields = {f"_nats.{kind}.acc": self._account.name, f"_nats.{kind}.stream": self._stream.name}
        return fields | ({f"_nats.{kind}.domain": domain} if domain else {})

    def _headers(self) -> bytes:
        if self._is_plain_request or (self._is_mirror and self.source.consumer is not None):
            return b""
        level = _MIRROR_LEVEL if self._is_mirror else _SOURCE_LEVEL
        pairs = [(b"Nats-Required-Api-Level", level)]
        if not self._is_mirror:
            pairs.append((IDENTITY_HEADER, self._taker.identity.encode()))
        return append_headers(b"", pairs)

    def _answered(self, msg: Msg) -> None:
        self._unlisten_answers()
        answer = _read_answer(msg)
        if "config" not in answer:
            self._refused_by_origin(answer.get("error"))
            return
        name, deliver = answer["name"], answer["config"].get("deliver_subject", "")
        identity = (header_value(msg.headers, IDENTITY_HEADER) or b"").decode("utf-8", "replace")
        problem = self._taker.accept(identity, answer.get("delivered", {}).get("stream_seq", 0))
        if problem or not deliver:
            self._fail({"code": 400, "err_code": _IDENTITY_MISMATCH, "description": problem or "no deliver subject"})
            return
        self.consumer, self.consumer_seq, self._failure_count = name.encode(), 0, 0
        self.heard_ns, self.lag = self._host.clock(), answer.get("num_pending", 0)
        subject = encode_subject(deliver)
        self._deliveries = self._line.subscribe_frames(subject, self._take_msg, self._take_batch, self._take_frames)
        self._call_in(STALL_NS, self._check)

    def _refused_by_origin(self, error: dict[str, Any] | None) -> None:
        code = (error or {}).get("err_code")
        if code == _IDENTITY_MISMATCH and not self._is_mirror:
            self._taker.accept("", 0)  # another stream of that name: all of it is new
            self._again()
        elif code in _OLDER_SERVER and not self._is_plain_request:
            self._is_plain_request = True
            self._again()
        else:
            self._fail(error or {"code": 503, "description": "no answer from the origin"})

    def _unanswered(self) -> None:
        self._unlisten_answers()
        self._fail(None)

    def _fail(self, error: dict[str, Any] | None, *, is_counted: bool = True) -> None:
        self._failure_count += is_counted
        self._again(min(PENALTY_NS * self._failure_count, PENALTY_MAX_NS))
        self.error = error

    def _again(self, penalty_ns: int = 0) -> None:
        """Ask once more, not too soon after the last time."""
        if not self._is_stopped:
            pause_ns = RETRY_NS + random.randrange(100_000_000)
            self._call_in(max(self._asked_ns + pause_ns - self._host.clock(), 0) + penalty_ns, self._request)

    # Listening

    def _take_frames(self, frames: bytes) -> None:
        ops = read_frames(frames)
        self._take(frames, ops, 0, len(ops) // OP_WORDS)

    def _take_batch(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        self._take(data, ops, first, stop)

    def _take_msg(self, msg: Msg) -> None:
        data, ops = bytearray(), array("I")
        append_op(ops, data, msg.subject, msg.payload, msg.headers, msg.reply)
        self._take(data, ops, 0, 1)

    def _take(self, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        self.heard_ns, heard = self._host.clock(), self._deliveries
        while first < stop and self._deliveries is heard is not None:
            first = self._taker.take(data, ops, first, stop)
            if first < stop and self._deliveries is heard:
                self._take_other(read_msg(data, ops, first, self._account.internal))
                first += 1

    def _take_other(self, msg: Msg) -> None:
        """Something that is not the next message: a status, or a delivery that does not follow."""
        if msg.headers.startswith(_STATUS) and not msg.payload:
            self._take_status(msg)
            return
        delivery = read_delivery(msg.reply)
        if delivery is not None and delivery.consumer == self.consumer:
            self.restart()

    def _take_status(self, msg: Msg) -> None:
        if msg.reply:
            self._stream.log.when_durable(lambda: self._answer_flow(msg.reply))
            return
        stalled = header_value(msg.headers, b"Nats-Consumer-Stalled")
        if stalled:
            self._stream.log.when_durable(lambda: self._answer_flow(stalled))
        last = header_value(msg.headers, b"Nats-Last-Consumer") or b"0"
        if last.isdigit() and int(last) > 0 and int(last) != self.consumer_seq:
            self.restart()

    def _answer_flow(self, reply: bytes) -> None:
        pairs = [(b"Nats-Last-Consumer", b"%d" % self.consumer_seq), (b"Nats-Last-Stream", b"%d" % self.stored_seq)]
        self._line.send(reply, headers=append_headers(b"", pairs))

    def _check(self) -> None:
        if self.silent_ns > STALL_NS and self._client is not None:
            self._client.reconnect()
        elif self.silent_ns > STALL_NS:
            self.restart()
        else:
            self._call_in(STALL_NS, self._check)

    # How

    def _call_in(self, wait_ns: int, callback: Callable[[], None]) -> None:
        self._cancel()
        if not self._is_stopped:
            self._timer = self._host.call_at(self._host.clock() + wait_ns, callback)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unlisten(self) -> None:
        self._unlisten_answers()
        if self._deliveries is not None:
            self._deliveries.is_open = False
            self._unsubscribe(self._deliveries)
            self._deliveries = None

    def _unlisten_answers(self) -> None:
        if self._answers is not None:
            self._unsubscribe(self._answers)
            self._answers = None

    def _unsubscribe(self, sub: InternalSubscription | FrameSubscription | RemoteSubscription) -> None:
        if not isinstance(sub, RemoteSubscription):
            self._account.unsubscribe(sub)
        elif self._client is not None:
            self._client.unsubscribe(sub)


def _read_answer(msg: Msg) -> dict[str, Any]:
    try:
        answer = json.loads(msg.payload) if msg.payload else {}
    except ValueError:
        answer = {}
    return answer if isinstance(answer, dict) else {}
