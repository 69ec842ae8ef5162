"""Times as Go writes and reads them in JSON: RFC 3339 in UTC, with as many fractional digits as there are.

A time is nanoseconds since the Unix epoch; ZERO_NS is Go's zero time, the beginning of the year 1.
"""

from __future__ import annotations

import re
import time
from datetime import date
from functools import lru_cache

from jetlake.clock import SECOND_NS

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_EPOCH_DAY = date(1970, 1, 1).toordinal()
ZERO_NS = (1 - _EPOCH_DAY) * 86_400 * SECOND_NS
ZERO_TIME = "0001-01-01T00:00:00Z"

# The parts of a time in order: what Go's layout calls each, and what it may look like.
_PARTS = [
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d{2}"),
    ("-", "-"),
    ("02", r"\d{2}"),
    ("T", "T"),
    ("15", r"\d{2}"),
    (":", ":"),
    ("04", r"\d{2}"),
    (":", ":"),
    ("05", r"\d{2}(?:\.\d+)?"),
    ("Z07:00", r"Z|[+-]\d{2}:\d{2}"),
]
_PATTERNS = [(layout, re.compile(pattern, re.ASCII)) for layout, pattern in _PARTS]
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class BadTime(ValueError):
    """A text that is not a time, in Go's words."""


def format_time(time_ns: int) -> str:
    """A time in UTC: 2026-11-15T23:41:16.2487744Z. Years outside 1..9999 are not for JSON."""
    seconds, rest_ns = divmod(time_ns, SECOND_NS)
    return f"{_second(seconds)}.{rest_ns:09d}".rstrip("0") + "Z" if rest_ns else _second(seconds) + "Z"


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """A whole second; messages that are read together were often stored in the same one."""
    if 0 <= seconds < 1 << 32:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    days, rest = divmod(seconds, 86_400)
    day = date.fromordinal(days + _EPOCH_DAY)
    return f"{day.year:04d}-{day.month:02d}-{day.day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def parse_time(text: str) -> int:
    """The time that a text says; raises BadTime."""
    year, month, day, hour, minute, second, zone = _split(text)
    whole, _, fraction = second.partition(".")
    _check_range(text, int(year), int(month), int(day), int(hour), int(minute), int(whole))
    if int(year):
        days = date(int(year), int(month), int(day)).toordinal()
    else:  # which Python does not have; the calendar repeats itself after 400 years
        days = date(400, int(month), int(day)).toordinal() - 146_097
    seconds = (days - _EPOCH_DAY) * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(whole)
    return (seconds - _offset_s(text, zone)) * SECOND_NS + int(fraction[:9].ljust(9, "0"))


def _split(text: str) -> list[str]:
    """The seven values of a time, as text."""
    found, offset = [], 0
    for layout, pattern in _PATTERNS:
        match = pattern.match(text, offset)
        if match is None:
            problem = f'cannot parse "{text[offset:]}" as "{layout}"'
            raise BadTime(f'parsing time "{text}" as "{_LAYOUT}": {problem}')
        if len(layout) > 1:
            found.append(match[0])
        offset = match.end()
    if offset < len(text):
        raise BadTime(f'parsing time "{text}": extra text: "{text[offset:]}"')
    return found


def _check_range(text: str, year: int, month: int, day: int, hour: int, minute: int, second: int) -> None:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    days = 29 if month == 2 and is_leap else _DAYS[month - 1] if 1 <= month <= 12 else 0
    for name, is_wrong in (
        ("month", not 1 <= month <= 12),
        ("hour", hour > 23),
        ("minute", minute > 59),
        ("second", second > 59),
        ("day", not 1 <= day <= days),
    ):
        if is_wrong:
            raise BadTime(f'parsing time "{text}": {name} out of range')


def _offset_s(text: str, zone: str) -> int:
    if zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        name = "hour" if hours > 23 else "minute"
        raise BadTime(f'parsing time "{text}": time zone offset {name} out of range')
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
