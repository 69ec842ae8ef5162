"""When a schedule is due: what `Nats-Schedule` and `Nats-Schedule-Time-Zone` say.

@at <RFC 3339>        once
@every <duration>     again and again, at least a second apart
six fields, @daily …  by the clock of a time zone: see `cron.py`
"""

from __future__ import annotations

import os
from datetime import tzinfo
from functools import lru_cache
from typing import NamedTuple

from jetlake.clock import SECOND_NS
from jetlake.jetstream.schedules.cron import BadCron, Cron, next_after, offset_s, parse_cron
from jetlake.jetstream.streams.durations import parse_duration
from jetlake.store.format import NEVER_NS
from jetlake.wire.go_time import BadTime, ZonedTime, format_time, parse_time

_LOCAL_FILE = "/etc/localtime"


class BadPattern(ValueError):
    """A text that does not say when."""


class BadZone(ValueError):
    """A name that is no time zone's."""


class Pattern(NamedTuple):
    """When a schedule is due: at a time, every so often, or by a clock."""

    at_ns: int | None = None
    every_ns: int = 0
    cron: Cron | None = None
    zone: tzinfo | None = None

    def first_ns(self, time_ns: int) -> int:
        """When a schedule is due that was stored at a time; 0 for never."""
        if self.at_ns is not None:
            return max(self.at_ns, 1)
        if self.cron is not None:
            return next_after(self.cron, time_ns, self.zone)
        return min(_rounded(time_ns) + self.every_ns, NEVER_NS)

    def next_ns(self, due_ns: int, now_ns: int) -> int:
        """When it is due again; 0 for never. What was missed is not made up for."""
        if self.at_ns is not None:
            return 0
        if self.cron is not None:
            return next_after(self.cron, max(due_ns, now_ns), self.zone)
        next_ns = self.first_ns(due_ns)
        return next_ns if next_ns > now_ns else self.first_ns(now_ns)

    def shown(self, time_ns: int) -> str:
        """A time by the schedule's own clock."""
        offset = offset_s(self.zone, time_ns // SECOND_NS)
        return format_time(ZonedTime.at(time_ns, offset) if offset else time_ns)


def _rounded(time_ns: int) -> int:
    return (time_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS


@lru_cache(maxsize=1024)
def parse_pattern(text: str, zone_name: str | None) -> Pattern:
    """What the two headers say; raises BadZone or BadPattern."""
    zone = find_zone(zone_name) if zone_name is not None else None
    kind, _, rest = text.partition(" ")
    if kind in ("@at", "@every"):
        if zone_name is not None:
            raise BadPattern(f"{kind} has no time zone")
        return _parse_at(rest) if kind == "@at" else _parse_every(rest)
    try:
        return Pattern(cron=parse_cron(text), zone=zone)
    except BadCron as error:
        raise BadPattern(str(error)) from None


def _parse_at(text: str) -> Pattern:
    try:
        return Pattern(at_ns=min(int(parse_time(text)), NEVER_NS))
    except BadTime as error:
        raise BadPattern(str(error)) from None


def _parse_every(text: str) -> Pattern:
    every_ns = parse_duration(text)
    if every_ns is None or every_ns < SECOND_NS:
        raise BadPattern(f"{text!r} is not a second or more")
    return Pattern(every_ns=every_ns)


@lru_cache(maxsize=1024)
def find_zone(name: str) -> tzinfo | None:
    """A time zone by its name, None for UTC; raises BadZone."""
    from zoneinfo import ZoneInfo  # hardly any server needs it, and all wait for what is imported

    if name == "UTC":
        return None
    try:
        if name == "Local":
            return _local_zone()
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise BadZone(str(error)) from None


def _local_zone() -> tzinfo | None:
    from zoneinfo import ZoneInfo

    name = os.environ.get("TZ")
    if name:
        return ZoneInfo(name.removeprefix(":"))
    if name == "" or not os.path.exists(_LOCAL_FILE):
        return None
    with open(_LOCAL_FILE, "rb") as file:
        return ZoneInfo.from_file(file, "Local")
