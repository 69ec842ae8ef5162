"""Counters: streams whose messages are sums. A publish says how much to add (`Nats-Incr`); what is stored is the total.

The total so far is the last message of the subject, and nothing else is kept: removing the messages of a subject resets
its counter. Totals are JSON, `{"val":"5"}`, of any size.

A stream that sources counters adds up those of several origins. `Nats-Counter-Sources` remembers the total that each of
them had, so that what is added is the difference; every later message of the subject carries it on.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from jetlake.jetstream import errors
from jetlake.subjects import decode_subject
from jetlake.wire.headers import append_headers, header_value, without_header

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

INCREMENT = b"Nats-Incr"
SOURCES = b"Nats-Counter-Sources"
_NUMBER = re.compile(rb"[+-]?[0-9]+")
_DIGITS_MAX = 4096  # more would take a while to add
_EXCLUDED = (b"Nats-Rollup", b"Nats-Expected-")


class Total(NamedTuple):
    """A counter, and what it has of which origin."""

    value: int
    sources: dict[str, dict[str, str]]


class Counted(NamedTuple):
    """A message as a counter stores it."""

    headers: bytes
    payload: bytes
    value: str


def check_disabled(headers: bytes) -> None:
    """Raise ApiError when a message is meant for a counter, where there are none."""
    value = header_value(headers, INCREMENT)
    if value:
        raise errors.MESSAGE_INCR_DISABLED() if _NUMBER.fullmatch(value) else errors.MESSAGE_INCR_INVALID()


def check_increment(headers: bytes, payload: bytes) -> int:
    """How much a message adds; raises ApiError."""
    text = header_value(headers, INCREMENT)
    if not text:
        raise errors.MESSAGE_INCR_MISSING()
    if payload:
        raise errors.MESSAGE_INCR_PAYLOAD()
    if not _NUMBER.fullmatch(text) or len(text) > _DIGITS_MAX:
        raise errors.MESSAGE_INCR_INVALID()
    if any(b"\r\n" + name in headers for name in _EXCLUDED):
        raise errors.MESSAGE_INCR_INVALID()
    return int(text)


def count(stream: Stream, subject: bytes, headers: bytes, payload: bytes) -> Counted:
    """The message that a publish becomes; raises ApiError."""
    increment = check_increment(headers, payload)
    return _add(last_total(stream, subject), increment, headers)


def count_on(total: Total, headers: bytes, payload: bytes) -> Counted:
    """The message that a publish becomes when a subject counts this much; raises ApiError."""
    return _add(total, check_increment(headers, payload), headers)


def _add(total: Total, increment: int, headers: bytes) -> Counted:
    if total.sources:
        headers = append_headers(without_header(headers, SOURCES), [(SOURCES, _encode(total.sources))])
    return _counted(headers, total.value + increment)


def count_copy(stream: Stream, subject: bytes, headers: bytes, payload: bytes, origin: str, shown: bytes) -> Counted:
    """The message that a copy of a counter becomes: what its origin counted since; raises ApiError."""
    if not header_value(headers, INCREMENT):
        raise errors.MESSAGE_INCR_MISSING()
    theirs, total, name = _value(payload), last_total(stream, subject), decode_subject(shown)
    sources = {key: dict(value) for key, value in total.sources.items()}
    delta = theirs - int(sources.get(origin, {}).get(name, "0"))
    sources.setdefault(origin, {})[name] = str(theirs)
    headers = _with_increment(headers, delta)
    headers = append_headers(without_header(headers, SOURCES), [(SOURCES, _encode(sources))])
    return _counted(headers, total.value + delta)


def last_total(stream: Stream, subject: bytes) -> Total:
    """What a subject counts now; raises ApiError when its last message does not say."""
    stream.log.check_settled()
    message = stream.store.load_last(decode_subject(subject))
    if message is None:
        return Total(0, {})
    return Total(_value(message.payload), _decode(header_value(message.headers, SOURCES)))


def _counted(headers: bytes, value: int) -> Counted:
    text = str(value)
    return Counted(headers, b'{"val":"%s"}' % text.encode(), text)


def _with_increment(headers: bytes, delta: int) -> bytes:
    at = headers.find(b"\r\n" + INCREMENT + b":") + len(INCREMENT) + 3
    return headers[:at] + b" %d" % delta + headers[headers.find(b"\r\n", at) :]


def _value(payload: bytes) -> int:
    try:
        text = json.loads(payload)["val"].encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        text = b""
    if not _NUMBER.fullmatch(text) or len(text) > _DIGITS_MAX:
        raise errors.MESSAGE_COUNTER_BROKEN()
    return int(text)


def _encode(sources: dict[str, dict[str, str]]) -> bytes:
    return json.dumps(sources, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode(
        "utf-8", "surrogateescape"
    )


def _decode(text: bytes | None) -> dict[str, dict[str, str]]:
    try:
        found: Any = json.loads(text) if text else {}
    except ValueError:
        raise errors.MESSAGE_COUNTER_BROKEN() from None
    return found if isinstance(found, dict) else {}
