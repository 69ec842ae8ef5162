"""What a message must be to schedule others, to come from a schedule or to end one.

The order of the checks is nats-server's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.errors import BadSubject
from jetlake.jetstream import errors
from jetlake.jetstream.schedules.pattern import BadPattern, BadZone, Pattern, find_zone, parse_pattern
from jetlake.jetstream.streams.commands import Timing
from jetlake.jetstream.streams.durations import parse_ttl
from jetlake.subjects import check_subject, decode_subject, is_subset
from jetlake.wire.go_time import BadTime, parse_time
from jetlake.wire.headers import append_headers, header_value

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

SCHEDULING = b"\r\nNats-Schedul"  # how the line of every header begins that has to do with schedules
SCHEDULE = b"Nats-Schedule"
ZONE = b"Nats-Schedule-Time-Zone"
TARGET = b"Nats-Schedule-Target"
SOURCE = b"Nats-Schedule-Source"
TTL = b"Nats-Schedule-TTL"
ROLLUP = b"Nats-Schedule-Rollup"
NEXT = b"Nats-Schedule-Next"
SCHEDULER = b"Nats-Scheduler"
PURGE = b"purge"


def check_schedule(stream: Stream, subject: bytes, headers: bytes, now_ns: int) -> tuple[bytes, Timing | None]:
    """The headers to store, and what the message does to schedules; raises ApiError."""
    if not stream.config.allow_msg_schedules:
        _check_disabled(subject, headers)
        return headers, None
    pattern = _pattern(headers)
    if pattern is None:
        return headers, _check_cancel(stream, subject, headers)
    due_ns = pattern.first_ns(now_ns)
    if pattern.cron is not None and not due_ns:
        raise errors.MESSAGE_SCHEDULES_PATTERN_INVALID()
    _check_parts(stream, decode_subject(subject), headers)
    rollup = header_value(headers, b"Nats-Rollup")
    if rollup and rollup.lower() != b"sub":
        raise errors.MESSAGE_SCHEDULES_ROLLUP_INVALID()
    if not rollup:
        headers = append_headers(headers, [(b"Nats-Rollup", b"sub")])
    return headers, Timing(due_ns, _ended(headers))


def _check_disabled(subject: bytes, headers: bytes) -> None:
    zone = header_value(headers, ZONE)
    if header_value(headers, SCHEDULE) or (zone is not None and not _is_zone(zone)):
        raise errors.MESSAGE_SCHEDULES_DISABLED()
    following, scheduler = header_value(headers, NEXT), header_value(headers, SCHEDULER)
    if not following and not scheduler:
        return
    if following != PURGE or not scheduler or scheduler == subject or not _is_subject(scheduler):
        raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
    raise errors.MESSAGE_SCHEDULES_DISABLED()


def _pattern(headers: bytes) -> Pattern | None:
    """When a message is due that may be a schedule; raises ApiError."""
    text, zone = header_value(headers, SCHEDULE), header_value(headers, ZONE)
    if zone is not None and not _is_zone(zone):
        raise errors.MESSAGE_SCHEDULES_TIME_ZONE_INVALID()
    if not text:
        return None
    try:
        return parse_pattern(_text(text), None if zone is None else _text(zone))
    except BadPattern:
        raise errors.MESSAGE_SCHEDULES_PATTERN_INVALID() from None


def _check_parts(stream: Stream, subject: str, headers: bytes) -> None:
    """What a schedule says beside when it is due; raises ApiError."""
    ttl, rollup = header_value(headers, TTL), header_value(headers, ROLLUP)
    if ttl and parse_ttl(_text(ttl)) is None:
        raise errors.MESSAGE_SCHEDULES_TTL_INVALID()
    if rollup and rollup != b"sub":
        raise errors.MESSAGE_SCHEDULES_ROLLUP_INVALID()
    if ttl and not stream.config.allow_msg_ttl:
        raise errors.MESSAGE_TTL_DISABLED()
    target, source = (decode_subject(header_value(headers, name) or b"") for name in (TARGET, SOURCE))
    if target == subject or not _is_of(stream, target):
        raise errors.MESSAGE_SCHEDULES_TARGET_INVALID()
    if source and (source in (target, subject) or not _is_of(stream, source)):
        raise errors.MESSAGE_SCHEDULES_SOURCE_INVALID()


def _check_cancel(stream: Stream, subject: bytes, headers: bytes) -> Timing | None:
    """What a message that is no schedule says of one; raises ApiError."""
    following, scheduler = header_value(headers, NEXT), header_value(headers, SCHEDULER)
    if not following and not scheduler:
        return None
    if following != PURGE or not scheduler or scheduler == subject or not _is_subject(scheduler):
        raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
    last = stream.store.load_last(decode_subject(scheduler))
    if last is not None and not header_value(last.headers, SCHEDULE):
        raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID()
    return Timing(scheduler=decode_subject(scheduler))


def _ended(headers: bytes) -> str:
    """The schedule that a message ends which is stored with these headers."""
    scheduler = header_value(headers, SCHEDULER) or b""
    return decode_subject(scheduler) if header_value(headers, NEXT) == PURGE and _is_subject(scheduler) else ""


def stored_timing(headers: bytes, time_ns: int) -> Timing | None:
    """What a stored message does to schedules."""
    pattern = stored_pattern(headers)
    if pattern is not None:
        return Timing(pattern.first_ns(time_ns), _ended(headers))
    following, scheduler = header_value(headers, NEXT), header_value(headers, SCHEDULER)
    if not following or not scheduler:
        return None
    try:
        return Timing(0, decode_subject(scheduler), 0 if following == PURGE else int(parse_time(_text(following))))
    except BadTime:
        return None


def stored_pattern(headers: bytes) -> Pattern | None:
    """When a stored message is due; None when it is no schedule."""
    text, zone = header_value(headers, SCHEDULE), header_value(headers, ZONE)
    try:
        return parse_pattern(_text(text), None if zone is None else _text(zone)) if text else None
    except (BadPattern, BadZone):  # perhaps another server knew more time zones
        return None


def _is_of(stream: Stream, subject: str) -> bool:
    return _is_subject(subject.encode("utf-8", "surrogateescape")) and any(
        is_subset(subject, pattern) for pattern in stream.config.subjects
    )


def _is_subject(text: bytes) -> bool:
    try:
        check_subject(decode_subject(text))
    except BadSubject:
        return False
    return True


def _is_zone(name: bytes) -> bool:
    try:
        find_zone(_text(name))
    except BadZone:
        return False
    return True


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
