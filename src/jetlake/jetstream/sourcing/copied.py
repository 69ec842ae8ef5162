"""What a message of another stream becomes here: its subject, its headers, and what these say.

A copy passes none of the rules of a publish. Headers that only meant something where it was published are dropped; a
time to live and a roll-up act where the stream allows them, and are kept as they are where it does not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.transform import SubjectTransform
from jetlake.jetstream import errors
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.commands import Put, Skip
from jetlake.jetstream.streams.config import StreamSource
from jetlake.jetstream.streams.durations import parse_ttl
from jetlake.store.format import NEVER_NS
from jetlake.subjects import decode_subject
from jetlake.wire.headers import header_value

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

_DROPPED = re.compile(rb"\r\nNats-(?:Expected-|Batch-)[^\r]*")
_EMPTY = b"NATS/1.0\r\n\r\n"
ROLLUP, TTL, MSG_ID = b"Nats-Rollup", b"Nats-TTL", b"Nats-Msg-Id"


class Copied(NamedTuple):
    """A message as it is to be stored."""

    subject: bytes
    headers: bytes
    payload: bytes


def kept_headers(headers: bytes) -> bytes:
    """The headers of a copy."""
    if b"\r\nNats-" not in headers:
        return headers
    kept = _DROPPED.sub(b"", headers)
    return b"" if kept == _EMPTY else kept


def may_act(stream: Stream, headers: bytes) -> bool:
    """Whether something in the headers acts in this stream, so that the message cannot be stored as one of a batch."""
    config = stream.config
    return (config.allow_msg_ttl and TTL in headers) or (config.allow_rollup_hdrs and ROLLUP in headers)


class Transforms:
    """Where the messages of one origin go."""

    def __init__(self, source: StreamSource) -> None:
        pairs = [(each.src or ">", each.dest or ">") for each in source.subject_transforms]
        self._transforms = [SubjectTransform(src, dest) for src, dest in pairs if dest != ">"]

    def __bool__(self) -> bool:
        return bool(self._transforms)

    def apply(self, subject: bytes) -> bytes:
        """The subject of a copy."""
        for transform in self._transforms:
            found = transform.apply_bytes(subject)
            if found is not None:
                return found
        return subject


def put_copy(stream: Stream, copied: Copied, seq: int, time_ns: int, *, takes_id: bool) -> None:
    """Store one copy; raises ApiError when the stream cannot take it now."""
    config, headers = stream.config, copied.headers
    size = len(headers) + len(copied.payload)
    if 0 <= config.max_msg_size < size:
        raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
    if config.sealed:
        raise errors.STREAM_SEALED()
    stream.js.check_room(config.storage, size)
    msg_id = (header_value(headers, MSG_ID) or b"") if takes_id else b""
    if stream.interest is not None and not stream.interest.wants(copied.subject):
        stream.log.submit(Skip(seq, stream.log.next_time_ns(time_ns), msg_id))
        return
    subject = decode_subject(copied.subject)
    replaces = _replaced(subject, headers) if config.allow_rollup_hdrs and ROLLUP in headers else ""
    ttl_ns = _ttl_ns(headers) if config.allow_msg_ttl and TTL in headers else 0
    expires_ns = min(time_ns + ttl_ns, NEVER_NS) if ttl_ns else 0
    stream.put(Put(seq, time_ns, subject, headers, copied.payload, expires_ns, msg_id, replaces))


def _replaced(subject: str, headers: bytes) -> str:
    value = (header_value(headers, ROLLUP) or b"").lower()
    return {b"sub": subject, b"all": ">"}.get(value, "")


def _ttl_ns(headers: bytes) -> int:
    return parse_ttl((header_value(headers, TTL) or b"").decode("utf-8", "replace")) or 0


def error_fields(error: ApiError) -> dict[str, object]:
    """An error as stream info shows it."""
    return dict(error.as_dict())
