"""The rules that a message must pass before a stream stores it, by its headers.

The order of the checks is nats-server's, and clients see it: an identical retry that also expects a sequence is told of
the wrong sequence, not that it is a duplicate. Header names are compared exactly.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from jetlake.clock import SECOND_NS
from jetlake.errors import BadSubject
from jetlake.jetstream import errors
from jetlake.jetstream.streams.counters import check_disabled, check_increment, count
from jetlake.jetstream.streams.msg_ids import HEADERS_SIZE_MAX
from jetlake.store.format import NEVER_NS
from jetlake.subjects import check_subject, decode_subject
from jetlake.wire.headers import header_value, strip_status

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

_NUMBER = re.compile(rb"[0-9]{1,20}")
# Possessive, since what was read as digits is never anything else: to try all ways to share them takes quadratic time.
_DURATION = re.compile(r"([0-9]*+)(?:\.([0-9]*+))?(h|ms|m|s|us|µs|μs|ns)")
_DURATION_SIZE_MAX = 1024
_INT64_DIGITS = 19
_FRACTION_DIGITS_MAX = 18  # of those that follow, none makes a nanosecond
_WRAP_DIGITS = 64  # a power of ten beyond these is a multiple of 2**64
_UNITS_NS = {
    "h": 3600 * SECOND_NS,
    "m": 60 * SECOND_NS,
    "s": SECOND_NS,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ns": 1,
}
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
    _check_batch(headers)
    _check_expected_stream(stream, headers)
    ttl_ns = _check_ttl(stream, headers)
    _check_expected_seqs(stream, subject, headers)
    if b"Nats-Schedule" in headers:
        _check_schedule(subject, headers)
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
    return Ready(headers, payload, ttl_ns, msg_id, rollup)


def _check_size(stream: Stream, headers: bytes, payload: bytes) -> int:
    """The size of a message, which may be too large for its stream."""
    size = len(headers) + len(payload)
    if 0 <= stream.config.max_msg_size < size:
        raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
    if len(headers) > HEADERS_SIZE_MAX:
        raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM()
    return size


def _check_batch(headers: bytes) -> None:
    if _value(headers, b"Nats-Batch-Id") is not None:
        raise errors.ATOMIC_PUBLISH_DISABLED()


def _check_schedule(subject: bytes, headers: bytes) -> None:
    zone = header_value(headers, b"Nats-Schedule-Time-Zone")
    if _value(headers, b"Nats-Schedule") is not None or (zone is not None and not _is_time_zone(zone)):
        raise errors.MESSAGE_SCHEDULES_DISABLED()
    following, scheduler = _value(headers, b"Nats-Schedule-Next"), _value(headers, b"Nats-Scheduler")
    if following is None and scheduler is None:
        return
    if following != b"purge" or scheduler in (None, subject) or not _is_subject(scheduler or b""):
        raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
    raise errors.MESSAGE_SCHEDULES_DISABLED()


def _is_subject(text: bytes) -> bool:
    try:
        check_subject(decode_subject(text))
    except BadSubject:
        return False
    return True


def _is_time_zone(name: bytes) -> bool:
    from zoneinfo import ZoneInfo  # hardly any server needs it, and all wait for what is imported

    try:
        ZoneInfo(name.decode("utf-8", "replace"))
    except (KeyError, ValueError, OSError):
        return name == b"Local"
    return True


def _check_expected_stream(stream: Stream, headers: bytes) -> None:
    name = _value(headers, b"Nats-Expected-Stream")
    if name and name.decode("utf-8", "replace") != stream.config.name:
        raise errors.EXPECTED_STREAM_MISMATCH()


def _check_expected_seqs(stream: Stream, subject: bytes, headers: bytes) -> None:
    wanted = _value(headers, b"Nats-Expected-Last-Subject-Sequence")
    filter = _value(headers, b"Nats-Expected-Last-Subject-Sequence-Subject")
    if wanted is not None:
        found = stream.last_seq_of(decode_subject(filter or subject))
        if found != _number(wanted):
            raise errors.WRONG_LAST_SEQUENCE(found)
    elif filter is not None:
        raise errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID()
    wanted = _value(headers, b"Nats-Expected-Last-Sequence")
    if wanted is not None and stream.last_seq != _number(wanted):
        raise errors.WRONG_LAST_SEQUENCE(stream.last_seq)


def _check_expected_msg_id(stream: Stream, headers: bytes) -> None:
    wanted = _value(headers, b"Nats-Expected-Last-Msg-Id")
    if wanted:
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


def parse_ttl(text: str) -> int | None:
    """A time to live in nanoseconds: Go's duration, whole seconds, or `never`; None when it is not one, 0 for none."""
    if text.lower() == "never":
        return NEVER_NS
    if text.isascii() and text.isdigit() and text != "0":
        seconds = int(text[-_WRAP_DIGITS:]) % 2**64  # too large a number wraps around, as in nats-server
        return min(seconds * SECOND_NS, NEVER_NS) if seconds < 2**63 else None
    found = parse_duration(text)
    return found if found is not None and found >= SECOND_NS else None


def parse_duration(text: str) -> int | None:
    """Go's duration, 1h30m or 2.5s, in nanoseconds; None when it is none, negative, too long or beyond 64 bits."""
    if len(text) > _DURATION_SIZE_MAX:
        return None
    total, at, text = 0, 0, text.removeprefix("+")
    while at < len(text):
        part = _DURATION.match(text, at)
        if part is None or not (part[1] or part[2]) or len(part[1].lstrip("0")) > _INT64_DIGITS:
            return None
        unit_ns, fraction = _UNITS_NS[part[3]], (part[2] or "0")[:_FRACTION_DIGITS_MAX]
        total += int(part[1][-_INT64_DIGITS:] or 0) * unit_ns + int(int(fraction) * (unit_ns / 10 ** len(fraction)))
        if total > NEVER_NS:
            return None
        at = part.end()
    return total if text else None


def _value(headers: bytes, name: bytes) -> bytes | None:
    """The value of a header; one that is empty is not there."""
    return header_value(headers, name) or None


def _without_status(headers: bytes) -> bytes:
    """The headers to store: a status goes, and with it a block that has nothing else."""
    stripped = strip_status(headers)
    return b"" if stripped is not headers and stripped == _EMPTY_BLOCK else stripped


def _number(text: bytes) -> int:
    return int(text) if _NUMBER.fullmatch(text) else _HUGE
