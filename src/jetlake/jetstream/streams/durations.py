"""Durations in headers, as nats-server reads them: Go's, and times to live."""

from __future__ import annotations

import re

from jetlake.clock import SECOND_NS
from jetlake.store.format import NEVER_NS

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
