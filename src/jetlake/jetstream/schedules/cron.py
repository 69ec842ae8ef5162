"""Cron patterns of six fields: second, minute, hour, day of month, month, day of week.

A field is a list of `*`, `?`, `n`, `n-m`, each with an optional `/step`; `n/step` goes on to the end. Months and days
of the week have names. A day matches by both of its fields if one of them is `*`, else by either.

`next_after` finds the first whole second after a time whose local clock matches. Within a stretch of time in which the
zone's offset from UTC does not change, local time is a straight line, so the search is plain arithmetic; the stretches
are walked one after the other. A local time that is skipped when clocks go forward does not match on that day, and one
that happens twice matches twice.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import date, datetime, tzinfo
from typing import NamedTuple

from jetlake.clock import SECOND_NS

YEARS_MAX = 5  # that are searched
_DAY_S = 86_400
_STRETCH_S = 14 * _DAY_S  # no zone changes its offset there and back in so short a time
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_NUMBER = re.compile(r"\+?[0-9]{1,9}")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMED = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}


class BadCron(ValueError):
    """A text that is not a cron pattern."""


class _Field(NamedTuple):
    first: int
    last: int
    names: dict[str, int]


_FIELDS = (
    _Field(0, 59, {}),
    _Field(0, 59, {}),
    _Field(0, 23, {}),
    _Field(1, 31, {}),
    _Field(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field(0, 6, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


class Cron(NamedTuple):
    """The values that match, in order."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    is_either_day: bool  # whether one of the two fields for days is enough

    def matches_day(self, day: date) -> bool:
        """Whether this is one of its days."""
        by_date, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (by_date or by_week if self.is_either_day else by_date and by_week)


def parse_cron(text: str) -> Cron:
    """A pattern or one of its names (`@daily`); raises BadCron."""
    parts = _NAMED.get(text, text).split()
    if len(parts) != len(_FIELDS):
        raise BadCron(f"{len(parts)} fields, not {len(_FIELDS)}")
    found = [_parse_field(part, field) for part, field in zip(parts, _FIELDS, strict=True)]
    (seconds, _), (minutes, _), (hours, _), (days, is_any_day), (months, _), (weekdays, is_any_weekday) = found
    return Cron(seconds, minutes, hours, days, months, weekdays, not (is_any_day or is_any_weekday))


def _parse_field(text: str, field: _Field) -> tuple[tuple[int, ...], bool]:
    """The values that match, and whether it is a star."""
    found, is_star = set[int](), False
    for part in filter(None, text.split(",")):
        values, is_all = _parse_range(part, field)
        found.update(values)
        is_star |= is_all
    if not found:
        raise BadCron(f"{text!r} has no value")
    return tuple(sorted(found)), is_star


def _parse_range(text: str, field: _Field) -> tuple[range, bool]:
    bounds, *steps = text.split("/")
    low, *highs = bounds.split("-")
    step = _number(steps[0]) if len(steps) == 1 else 1
    is_star = low in ("*", "?")
    if len(steps) > 1 or (len(highs) > 1 and not is_star) or not step:
        raise BadCron(f"{text!r} is no range")
    if is_star:
        return range(field.first, field.last + 1, step), step == 1
    first = _value(low, field)
    last = _value(highs[0], field) if highs else field.last if steps else first
    if not field.first <= first <= last <= field.last:
        raise BadCron(f"{text!r} is not within {field.first}-{field.last}")
    return range(first, last + 1, step), False


def _value(text: str, field: _Field) -> int:
    value = field.names.get(text.lower())
    return _number(text) if value is None else value


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise BadCron(f"{text!r} is no number")
    return int(text)


def next_after(cron: Cron, time_ns: int, zone: tzinfo | None) -> int:
    """The next time that matches; 0 when there is none in the next years."""
    start_s = time_ns // SECOND_NS + 1
    end_year = _date(start_s + offset_s(zone, start_s)).year + YEARS_MAX
    for first_s, stop_s, offset in _stretches(zone, start_s):
        found = _search(cron, first_s + offset, stop_s + offset)
        if found is not None:
            return 0 if _date(found).year > end_year else (found - offset) * SECOND_NS
        if _date(stop_s + offset).year > end_year:
            return 0
    raise AssertionError("stretches do not end")


def offset_s(zone: tzinfo | None, time_s: int) -> int:
    """How far a zone's clocks are ahead of UTC."""
    if zone is None:
        return 0
    offset = datetime.fromtimestamp(time_s, zone).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


def _stretches(zone: tzinfo | None, first_s: int) -> Iterator[tuple[int, int, int]]:
    """All time from a second on, cut where the offset changes."""
    while True:
        offset, stop_s = offset_s(zone, first_s), first_s + _STRETCH_S
        if offset_s(zone, stop_s) != offset:
            same_s = first_s
            while stop_s - same_s > 1:
                middle_s = (same_s + stop_s) // 2
                if offset_s(zone, middle_s) == offset:
                    same_s = middle_s
                else:
                    stop_s = middle_s
        yield first_s, stop_s, offset
        first_s = stop_s


def _search(cron: Cron, first_s: int, stop_s: int) -> int | None:
    """The first second of a clock without changes, between two of them, that matches."""
    for day_s in range(first_s - first_s % _DAY_S, stop_s, _DAY_S):
        if cron.matches_day(_date(day_s)):
            found = _time_of_day(cron, max(first_s - day_s, 0))
            if found is not None and day_s + found < stop_s:
                return day_s + found
    return None


def _time_of_day(cron: Cron, from_s: int) -> int | None:
    """The first match of a day at or after a second of it."""
    hour, minute, second = from_s // 3600, from_s // 60 % 60, from_s % 60
    for each in cron.hours[bisect_left(cron.hours, hour) :]:
        if each > hour:
            return each * 3600 + cron.minutes[0] * 60 + cron.seconds[0]
        for other in cron.minutes[bisect_left(cron.minutes, minute) :]:
            if other > minute:
                return each * 3600 + other * 60 + cron.seconds[0]
            place = bisect_left(cron.seconds, second)
            if place < len(cron.seconds):
                return each * 3600 + other * 60 + cron.seconds[place]
    return None


def _date(time_s: int) -> date:
    return date.fromordinal(_EPOCH_DAY + time_s // _DAY_S)
