"""Times as Go writes and reads them in JSON: RFC 3339, with as many fractional digits as there are.

A time is nanoseconds since the Unix epoch, any number of them; ZERO_NS is Go's zero time, the beginning of the year 1.
One that was read with an offset from UTC is a ZonedTime, and is written with it again.

Every time can be written. Go writes only the years 0 to 9999 as JSON (`json_problem`); a time that was read is in
them by its own clock, but in UTC it may be in the year before or after.
"""

from __future__ import annotations

import re
import time
from datetime import date
from functools import lru_cache

from jetlake.clock import SECOND_NS

_LAYOUT = "2006-01-02T15:04:05Z07:00"
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_CYCLE_DAYS = 146_097
ZERO_NS = (1 - _EPOCH_DAY) * 86_400 * SECOND_NS
_YEAR_0_NS = ZERO_NS - 366 * 86_400 * SECOND_NS
_YEAR_10000_NS = (date(9999, 12, 31).toordinal() + 1 - _EPOCH_DAY) * 86_400 * SECOND_NS
ZERO_TIME = "0001-01-01T00:00:00Z"

# The parts of a time in order: what Go's layout calls each, and what it may look like.
_PARTS = [
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d{2}"),
    ("-", "-"),
    ("02", r"\d{2}"),
    ("T", "T"),
    ("15", r"\d{1,2}"),
    (":", ":"),
    ("04", r"\d{2}"),
    (":", ":"),
    ("05", r"\d{2}(?:[.,]\d+)?"),
    ("Z07:00", r"Z|[+-]\d{2}:\d{2}"),
]
_PATTERNS = [(layout, re.compile(pattern, re.ASCII)) for layout, pattern in _PARTS]
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class BadTime(ValueError):
    """A text that is not a time, in Go's words."""


class ZonedTime(int):
    """A time that was told by a clock which is not that of UTC. It is equal to the same time by any other clock."""

    offset_s: int

    @classmethod
    def at(cls, time_ns: int, offset_s: int) -> ZonedTime:
        time = cls(time_ns)
        time.offset_s = offset_s
        return time


def plain_time(part: object) -> int:
    """What a file keeps of a time: its nanoseconds. An `enc_hook` of msgspec, which knows no kind of int but one."""
    if isinstance(part, ZonedTime):
        return int(part)
    raise TypeError(f"{type(part).__name__} has no JSON form")


def format_time(time_ns: int) -> str:
    """A time in UTC, or by its own clock: 2026-11-15T23:41:16.2487744Z, 2026-11-16T01:41:16.2487744+02:00."""
    zone = "Z"
    if isinstance(time_ns, ZonedTime):
        sign, minutes = "-" if time_ns.offset_s < 0 else "+", abs(time_ns.offset_s) // 60
        zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
        time_ns = int(time_ns) + time_ns.offset_s * SECOND_NS
    seconds, rest_ns = divmod(time_ns, SECOND_NS)
    return f"{_second(seconds)}.{rest_ns:09d}".rstrip("0") + zone if rest_ns else _second(seconds) + zone


def json_problem(time_ns: int) -> str:
    """Why Go would not write a time as JSON; empty when it would."""
    offset_s = time_ns.offset_s if isinstance(time_ns, ZonedTime) else 0
    if not _YEAR_0_NS <= time_ns + offset_s * SECOND_NS < _YEAR_10000_NS:
        return "year outside of range [0,9999]"
    return "timezone hour outside of range [0,23]" if abs(offset_s) >= 86_400 else ""


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    """A whole second; messages that are read together were often stored in the same one."""
    if 0 <= seconds < 1 << 32:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    days, rest = divmod(seconds, 86_400)
    # Python has the years 1 to 9999; the calendar repeats itself after 400 of them.
    cycles, day_of_cycle = divmod(days + _EPOCH_DAY - 1, _CYCLE_DAYS)
    day = date.fromordinal(day_of_cycle + 1)
    year = day.year + 400 * cycles
    sign = "-" if year < 0 else ""
    day_text = f"{sign}{abs(year):04d}-{day.month:02d}-{day.day:02d}"
    return f"{day_text}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def parse_time(text: str) -> int:
    """The time that a text says; raises BadTime."""
    year, month, day, hour, minute, second, zone = _split(text)
    whole, _, fraction = second.replace(",", ".").partition(".")
    _check_range(text, int(year), int(month), int(day), int(hour), int(minute), int(whole))
    if int(year):
        days = date(int(year), int(month), int(day)).toordinal()
    else:
        days = date(400, int(month), int(day)).toordinal() - _CYCLE_DAYS
    seconds = (days - _EPOCH_DAY) * 86_400 + int(hour) * 3600 + int(minute) * 60 + int(whole)
    offset_s = _offset_s(text, zone)
    time_ns = (seconds - offset_s) * SECOND_NS + int(fraction[:9].ljust(9, "0"))
    return ZonedTime.at(time_ns, offset_s) if offset_s else time_ns


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
    if hours > 24 or minutes > 60:
        name = "hour" if hours > 24 else "minute"
        raise BadTime(f'parsing time "{text}": time zone offset {name} out of range')
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
