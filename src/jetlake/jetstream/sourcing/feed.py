"""Feed: the deliveries of one origin, for as long as a stream copies it.

A feed asks the origin's server for a consumer, listens to what that delivers and hands it on in runs (`Taker`). It
makes a new consumer, from where the copies end, when a delivery is missing, when nothing is heard for ten seconds, or
when a message could not be stored. Requests are at least two seconds apart; after failures they become rarer.

Flow control is answered when the copies are durable, so an origin never runs ahead of the disk, and a work queue lets
go of nothing that could still be lost here.
"""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jetlake.broker.peer import Peer
from jetlake.broker.subscription import Buffer, FrameSubscription, InternalSubscription, Msg, read_msg
from jetlake.clock import SECOND_NS
from jetlake.jetstream.host import Timer
from jetlake.jetstream.sourcing.deliveries import read_delivery, read_frames
from jetlake.jetstream.sourcing.names import IDENTITY_HEADER, filters, random8
from jetlake.jetstream.streams.config import StreamSource
from jetlake.ops import OP_WORDS, append_op
from jetlake.subjects import encode_subject
from jetlake.wire.go_time import format_time
from jetlake.wire.headers import append_headers, header_value
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

FIRST_WAIT_NS = 20_000_000
RETRY_NS = 2 * SECOND_NS
PENALTY_NS, PENALTY_MAX_NS = 10 * SECOND_NS, 120 * SECOND_NS
ANSWER_WAIT_NS = 30 * SECOND_NS
STALL_NS = 10 * SECOND_NS
SILENT_NS = 5 * SECOND_NS  # after which health checks and the log say so
HEARTBEAT_NS = SECOND_NS
ACK_WAIT_NS = 22 * 3600 * SECOND_NS
INACTIVE_NS = 10 * SECOND_NS
_MIRROR_LEVEL, _SOURCE_LEVEL = b"4", b"5"
_IDENTITY_MISMATCH = 10225
_OLDER_SERVER = (10185, 10025)
_API = "$JS.API"
_STATUS = b"NATS/1.0 100"


class Start(NamedTuple):
    """Where an origin is to begin; everything when neither is given."""

    seq: int = 0
    time_ns: int | None = None


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
        self._is_told = False  # that the origin is silent
        self.error: dict[str, Any] | None = None
        self._asked_ns = self._failure_count = 0
        self._is_plain_request = False  # for a server that does not know consumers for sourcing
        self._timer: Timer | None = None
        self._answers: InternalSubscription | None = None
        self._deliveries: FrameSubscription | None = None
        self._is_stopped = False

    # Life

    def begin(self) -> None:
        """Listen to the origin soon."""
        self._call_in(FIRST_WAIT_NS, self._request)

    def stop(self) -> None:
        """Listen no more."""
        self._is_stopped = True
        self._unlisten()
        self._cancel()

    def delete_consumer(self) -> None:
        """The origin need not keep anything for this stream any more."""
        if self.source.consumer is None:
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

    # Asking for a consumer

    @property
    def _api(self) -> str:
        return self.source.external.api if self.source.external is not None else _API

    def _request(self) -> None:
        self._tell_silence()
        self._asked_ns = self._host.clock()
        self.error = None
        inbox = encode_subject(f"$JSC.R.{random8()}")
        self._answers = self._account.subscribe(inbox, self._answered)
        subject, body = self._create() if self.source.consumer is None else self._reset()
        is_heard = self._account.send(encode_subject(subject), body, reply=inbox, headers=self._headers())
        if not self._is_stopped and self._answers is not None:
            self._call_in(ANSWER_WAIT_NS if is_heard else RETRY_NS, self._unanswered)

    def _reset(self) -> tuple[str, bytes]:
        assert self.source.consumer is not None
        return f"{self._api}.CONSUMER.RESET.{self.source.name}.{self.source.consumer.name}", b""

    def _create(self) -> tuple[str, bytes]:
        wanted, start = filters(self.source), self._taker.start()
        subject, name = f"{self._api}.CONSUMER.CREATE.{self.source.name}", self._name
        if self._is_plain_request:
            name = f"{name}_{random8()}"
        if len(wanted) == 1:
            subject += f".{name}.{wanted[0]}"
        config = {"name": name, **_start_fields(start), **_FIXED, "deliver_subject": self._deliver_subject()}
        config |= {"filter_subject": wanted[0]} if len(wanted) == 1 else {"filter_subjects": wanted} if wanted else {}
        config |= {} if self._is_plain_request else {"sourcing": True}
        config["metadata"] = self._metadata()
        return subject, encode_json({"stream_name": self.source.name, "config": config, "action": ""})

    def _deliver_subject(self) -> str:
        kind, external = "M" if self._is_mirror else "S", self.source.external
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
        try:
            answer = json.loads(msg.payload) if msg.payload else {}
        except ValueError:
            answer = {}
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
        self._tell_silence()
        subject = encode_subject(deliver)
        self._deliveries = self._account.subscribe_frames(subject, self._take_msg, self._take_batch, self._take_frames)
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

    def _fail(self, error: dict[str, Any] | None) -> None:
        self._failure_count += 1
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
        self._account.send(reply, headers=append_headers(b"", pairs))

    def _check(self) -> None:
        if self.silent_ns > STALL_NS:
            self.restart()
        else:
            self._call_in(STALL_NS, self._check)

    def _tell_silence(self) -> None:
        """Say once that the origin is silent, and once that it is heard again."""
        if self.is_silent is not self._is_told:
            self._is_told = not self._is_told
            facts = f"account={self._account.name} stream={self._stream.name} origin={self.source.name}"
            if self._is_told:
                self._host.log(
                    "warning", f"origin is silent {facts} seconds={self.silent_ns // SECOND_NS} lag={self.lag}"
                )
            else:
                self._host.log("info", f"origin is heard again {facts} lag={self.lag}")

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
            self._account.unsubscribe(self._deliveries)
            self._deliveries = None

    def _unlisten_answers(self) -> None:
        if self._answers is not None:
            self._account.unsubscribe(self._answers)
            self._answers = None


_FIXED = {
    "ack_policy": "none",
    "ack_wait": ACK_WAIT_NS,
    "max_deliver": 1,
    "replay_policy": "instant",
    "flow_control": True,
    "idle_heartbeat": HEARTBEAT_NS,
    "inactive_threshold": INACTIVE_NS,
    "num_replicas": 0,
    "direct": True,
}


def _start_fields(start: Start) -> dict[str, Any]:
    if start.seq:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": start.seq}
    if start.time_ns is not None:
        return {"deliver_policy": "by_start_time", "opt_start_time": format_time(start.time_ns)}
    return {"deliver_policy": "all"}
