"""A request for messages of a pull consumer: what a client may ask for, and what it hears instead of messages."""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

import msgspec

from jetlake.jetstream.json.shape import BOOL, DURATION, INT, INT64, STRING, BadShape, Place, Struct
from jetlake.jetstream.json.syntax import BadJson, parse_value
from jetlake.wire.headers import status_block

_INTEGER = re.compile(rb"[+-]?[0-9]{1,19}")
_INT_MAX = 2**63 - 1
_Int = Annotated[int, msgspec.Meta(ge=-_INT_MAX - 1, le=_INT_MAX)]


class BadPullRequest(ValueError):
    """A request that says what no request can."""


class NextRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request, in JSON."""

    expires: _Int = 0
    batch: _Int = 0
    max_bytes: _Int = 0
    no_wait: bool = False
    idle_heartbeat: _Int = 0
    group: str = ""
    min_pending: _Int = 0
    min_ack_pending: _Int = 0
    id: str = ""
    priority: _Int = 0


_decode = msgspec.json.Decoder(NextRequest).decode
_SHAPE = Struct(
    "",
    {
        "expires": DURATION,
        "batch": INT,
        "max_bytes": INT,
        "no_wait": BOOL,
        "idle_heartbeat": DURATION,
        "group": STRING,
        "min_pending": INT64,
        "min_ack_pending": INT64,
        "id": STRING,
        "priority": INT,
    },
)


def read_next(payload: bytes) -> tuple[NextRequest, bool]:
    """What a payload asks for, and whether it says so in JSON; raises BadPullRequest."""
    text = payload.strip()
    if not text.startswith(b"{"):
        batch = int(text) if _INTEGER.fullmatch(text) else 1
        return NextRequest(batch=batch if abs(batch) <= _INT_MAX else 1), False
    request = _read_json(text)
    if request.idle_heartbeat > 0 and request.idle_heartbeat * 2 > request.expires:
        raise BadPullRequest("heartbeat value too large")
    return request, True


def _read_json(text: bytes) -> NextRequest:
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # what Go reads otherwise, and what it says when it cannot, is the slower reader's business
    try:
        fields: dict[str, Any] = _SHAPE.read(parse_value(text), Place(_SHAPE.go_name), False)
    except (BadJson, BadShape) as error:
        raise BadPullRequest(str(error)) from None
    return NextRequest(**fields)


class Status(NamedTuple):
    """A message without a payload that tells a client how its request stands."""

    reply: bytes
    block: bytes


class PullRequest:
    """A request that waits for messages."""

    __slots__ = (
        "batch",
        "bytes_left",
        "delivered",
        "expires_ns",
        "group",
        "heartbeat_at_ns",
        "heartbeat_ns",
        "id",
        "is_json",
        "min_ack_pending",
        "min_pending",
        "no_wait",
        "priority",
        "received_ns",
        "reply",
    )

    def __init__(self, reply: bytes, body: NextRequest, is_json: bool, now_ns: int) -> None:
        self.reply, self.received_ns, self.is_json = reply, now_ns, is_json
        self.batch, self.delivered, self.bytes_left = body.batch, 0, max(body.max_bytes, 0)
        self.no_wait = body.no_wait
        self.expires_ns = max(now_ns + body.expires, 1) if body.expires else 0  # 0: it has no end
        self.heartbeat_ns = max(body.idle_heartbeat, 0)
        self.heartbeat_at_ns = now_ns + self.heartbeat_ns if self.heartbeat_ns else 0
        self.group, self.id, self.priority = body.group, body.id, body.priority
        self.min_pending, self.min_ack_pending = body.min_pending, body.min_ack_pending

    @property
    def wanted(self) -> int:
        """How many more messages it gets; one that asks for none gets one."""
        return max(self.batch, 1)

    @property
    def is_plain(self) -> bool:
        """Whether it asks for so many messages and nothing else, so that it can be served together with others."""
        return not (self.bytes_left or self.no_wait or self.min_pending or self.min_ack_pending or self.group)

    def status(self, code: int, text: str, *, shows_pending: bool = False) -> Status:
        """Tell the client something; with what its request is still owed."""
        pairs = ((b"Nats-Pending-Messages", b"%d" % self.batch), (b"Nats-Pending-Bytes", b"%d" % self.bytes_left))
        return Status(self.reply, status_block(code, text, pairs if shows_pending else ()))
