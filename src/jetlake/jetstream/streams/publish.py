"""The rules that a message must pass before a stream stores it, by its headers.

The order of the checks is nats-server's, and clients see it: an identical retry that also expects a sequence is told of
the wrong sequence, not that it is a duplicate. Header names are compared exactly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from jetlake.clock import SECOND_NS
from jetlake.jetstream import errors
from jetlake.jetstream.schedules.rules import SCHEDULING, check_schedule
from jetlake.jetstream.streams.commands import Timing
from jetlake.jetstream.streams.counters import check_disabled, check_increment, count
from jetlake.jetstream.streams.durations import parse_ttl
from jetlake.jetstream.streams.msg_ids import HEADERS_SIZE_MAX
from jetlake.subjects import decode_subject
from jetlake.wire.headers import header_value, strip_status

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

_NUMBER = re.compile(rb"[0-9]{1,20}")
_HUGE = 2**64 - 1  # what a number that is none counts as
_RESERVED = b"\r\nNats-"
_EMPTY_BLOCK = b"NATS/1.0\r\n\r\n"


class Ready(NamedTuple):
    """A message that may be stored."""

    headers: bytes
    payload: bytes
    ttl_ns: int = 0
    msg_id: bytes = b""
    rollup: str = ""  # or "sub", or "all"
    value: str = ""  # of a counter
    timing: Timing | None = None  # what it does to schedules


class Duplicate(Exception):
    """The message was stored before: its sequence then."""

    def __init__(self, seq: int) -> None:
        self.seq = seq


def check(stream: Stream, subject: bytes, headers: bytes, payload: bytes, now_ns: int) -> Ready:
    """What to store; raises ApiError or Duplicate."""
    if stream.config.sealed:
        raise errors.STREAM_SEALED()
    headers = _without_status(headers)
    size = _check_size(stream, headers, payload)
    if _RESERVED not in headers:
        stream.js.check_room(stream.config.storage, size)
        if stream.config.allow_msg_counter:
            raise errors.MESSAGE_INCR_MISSING()
        return Ready(headers, payload)
    if stream.config.allow_msg_counter:
        check_increment(headers, payload)
    else:
        check_disabled(headers)
    _check_expected_stream(stream, headers)
    ttl_ns = _check_ttl(stream, headers)
    _check_expected_seqs(stream, subject, headers)
    timing = None
    if SCHEDULING in headers:
        headers, timing = check_schedule(stream, subject, headers, now_ns)
        _check_size(stream, headers, payload)
    if _value(headers, b"Nats-Stream-Source") is not None:
        raise errors.MESSAGE_SOURCE_HDR_NOT_ALLOWED()
    msg_id = _value(headers, b"Nats-Msg-Id") or b""
    if msg_id and (seq := stream.machine.find_msg_id(msg_id, now_ns)):
        raise Duplicate(seq)
    _check_expected_msg_id(stream, headers)
    rollup = _check_rollup(stream, headers)
    stream.js.check_room(stream.config.storage, size)
    if ttl_ns is None:
        raise errors.MESSAGE_TTL_INVALID()
    if ttl_ns:
        headers, ttl_ns = _raise_ttl(stream, headers, ttl_ns)
    if stream.config.allow_msg_counter:
        counted = count(stream, subject, headers, payload)
        _check_size(stream, counted.headers, counted.payload)
        return Ready(counted.headers, counted.payload, ttl_ns, msg_id, rollup, counted.value)
    return Ready(headers, payload, ttl_ns, msg_id, rollup, timing=timing)


def check_produced(stream: Stream, ready: Ready) -> Ready:
    """A message that the stream itself makes, as it is to be stored; raises ApiError."""
    size = _check_size(stream, ready.headers, ready.payload)
    stream.js.check_room(stream.config.storage, size)
    if not ready.ttl_ns:
        return ready
    headers, ttl_ns = _raise_ttl(stream, ready.headers, ready.ttl_ns)
    return ready._replace(headers=headers, ttl_ns=ttl_ns)


def _check_size(stream: Stream, headers: bytes, payload: bytes) -> int:
    """The size of a message, which may be too large for its stream."""
    size = len(headers) + len(payload)
    if 0 <= stream.config.max_msg_size < size:
        raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
    if len(headers) > HEADERS_SIZE_MAX:
        raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM()
    return size


def _check_expected_stream(stream: Stream, headers: bytes) -> None:
    name = _value(headers, b"Nats-Expected-Stream")
    if name and name.decode("utf-8", "replace") != stream.config.name:
        raise errors.EXPECTED_STREAM_MISMATCH()


def _check_expected_seqs(stream: Stream, subject: bytes, headers: bytes) -> None:
    wanted = _value(headers, b"Nats-Expected-Last-Subject-Sequence")
    filter = _value(headers, b"Nats-Expected-Last-Subject-Sequence-Subject")
    if wanted is not None:
        found = stream.log.last_seq_of(decode_subject(filter or subject))
        if found != _number(wanted):
            raise errors.WRONG_LAST_SEQUENCE(found)
    elif filter is not None:
        raise errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID()
    wanted = _value(headers, b"Nats-Expected-Last-Sequence")
    if wanted is not None and (last_seq := stream.log.next_seq - 1) != _number(wanted):
        raise errors.WRONG_LAST_SEQUENCE(last_seq)


def _check_expected_msg_id(stream: Stream, headers: bytes) -> None:
    wanted = _value(headers, b"Nats-Expected-Last-Msg-Id")
    if wanted:
        stream.log.check_settled()
        found = stream.machine.last_msg_id()
        if found != wanted:
            raise errors.WRONG_LAST_MSG_ID(found.decode("utf-8", "replace"))


def _check_rollup(stream: Stream, headers: bytes) -> str:
    value = _value(headers, b"Nats-Rollup")
    if value is None:
        return ""
    if not stream.config.allow_rollup_hdrs or stream.config.deny_purge:
        raise errors.STREAM_ROLLUP_FAILED("rollup not permitted")
    rollup = value.decode("utf-8", "replace").lower()
    if rollup not in ("sub", "all"):
        raise errors.STREAM_ROLLUP_FAILED(f'rollup value invalid: "{value.decode("utf-8", "replace")}"')
    return rollup


def _check_ttl(stream: Stream, headers: bytes) -> int | None:
    """How long a message wants to stay; 0 when it does not say, None when it is not said well."""
    value = _value(headers, b"Nats-TTL")
    if value is None:
        return 0
    ttl_ns = parse_ttl(value.decode("utf-8", "replace"))
    if ttl_ns is not None and not stream.config.allow_msg_ttl:
        raise errors.MESSAGE_TTL_DISABLED()
    return ttl_ns


def _raise_ttl(stream: Stream, headers: bytes, ttl_ns: int) -> tuple[bytes, int]:
    """A message stays at least as long as the marker that follows it, unless each one replaces the last."""
    least_ns = stream.config.subject_delete_marker_ttl
    if ttl_ns >= least_ns or stream.config.max_msgs_per_subject == 1:
        return headers, ttl_ns
    return replace_header(headers, b"Nats-TTL", b"%d" % (least_ns // SECOND_NS)), least_ns


def replace_header(headers: bytes, name: bytes, value: bytes) -> bytes:
    """The block with another value in place of the first one under a name."""
    assert header_value(headers, name) is not None
    at = headers.find(b"\r\n" + name + b":") + len(name) + 3
    end = headers.find(b"\r\n", at)
    return headers[:at] + b" " + value + headers[end if end >= 0 else len(headers) :]


def _value(headers: bytes, name: bytes) -> bytes | None:
    """The value of a header; one that is empty is not there."""
    return header_value(headers, name) or None


def _without_status(headers: bytes) -> bytes:
    """The headers to store: a status goes, and with it a block that has nothing else."""
    stripped = strip_status(headers)
    return b"" if stripped is not headers and stripped == _EMPTY_BLOCK else stripped


def _number(text: bytes) -> int:
    return int(text) if _NUMBER.fullmatch(text) else _HUGE
