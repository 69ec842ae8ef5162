"""Cron patterns: what they match, across changes of clocks, leap days and years without a match."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetlake.clock import SECOND_NS
from jetlake.jetstream.schedules.cron import BadCron, next_after, parse_cron

NEW_YORK, LORD_HOWE, BEIRUT = "America/New_York", "Australia/Lord_Howe", "Asia/Beirut"


def following(pattern: str, start: str, zone: str | None = None, count: int = 1) -> list[str]:
    """The next matches after a time of UTC, by UTC."""
    time_ns, found = int(datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp()) * SECOND_NS, []
    for _ in range(count):
        time_ns = next_after(parse_cron(pattern), time_ns, ZoneInfo(zone) if zone else None)
        found.append(datetime.fromtimestamp(time_ns // SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%S") if time_ns else "")
    return found


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("* * * * * *", "2026-11-18 08:00:01"),
        ("*/7 * * * * *", "2026-11-18 08:00:07"),
        ("5/20 * * * * *", "2026-11-18 08:00:05"),
        ("0 0 8 * * *", "2026-11-19 08:00:00"),
        ("30 59 23 31 dec ?", "2026-12-31 23:59:30"),
        ("0 0 0 ? * MON", "2026-11-23 00:00:00"),
        ("0 0 0 13 * fri", "2026-11-20 00:00:00"),  # either of them
        ("0 0 0 */2 * fri", "2026-11-19 00:00:00"),  # every other day counts as a choice, too
        ("1,,3 * * * * *", "2026-11-18 08:00:01"),
        ("@hourly", "2026-11-18 09:00:00"),
        ("@weekly", "2026-11-22 00:00:00"),
        ("@yearly", "2027-01-01 00:00:00"),
    ],
)
def test_next_match_by_utc(pattern: str, expected: str) -> None:
    assert following(pattern, "2026-11-18 08:00:00") == [expected]


@pytest.mark.parametrize(
    "pattern",
    [", * * * * *", ",,, * * * * *", "", "* * * * *", "60 * * * * *", "5-1 * * * * *", "*/0 * * * * *", "1/ * * * * *",
     "0 0 0 0 * *", "0 0 0 * 13 *", "0 0 0 * * 7", "1_0 * * * * *", "-1 * * * * *", "1/2/3 * * * * *", "@reboot"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadCron):
        parse_cron(pattern)


def test_leap_days_are_found_and_other_days_that_never_come_are_not() -> None:
    assert following("0 0 0 29 2 *", "2026-11-18 08:00:00", count=2) == ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]
    assert following("0 0 0 30 2 *", "2026-11-18 08:00:00") == [""]


def test_a_time_that_clocks_skip_does_not_match_that_day() -> None:
    found = following("0 30 2 * * *", "2027-03-13 12:00:00", NEW_YORK, 2)
    assert found == ["2027-03-15 06:30:00", "2027-03-16 06:30:00"]  # the 14th has no half past two


def test_a_time_that_happens_twice_matches_twice() -> None:
    found = following("0 30 1 * * *", "2026-11-01 04:00:00", NEW_YORK, 3)
    assert found == ["2026-11-01 05:30:00", "2026-11-01 06:30:00", "2026-11-02 06:30:00"]


def test_half_an_hour_of_daylight_saving_time() -> None:
    found = following("0 0 2 * * *", "2027-04-02 00:00:00", LORD_HOWE, 3)
    assert found == ["2027-04-02 15:00:00", "2027-04-03 15:30:00", "2027-04-04 15:30:00"]


def test_a_day_without_midnight() -> None:
    assert following("0 0 0 * * *", "2026-03-27 23:00:00", BEIRUT, 2) == ["2026-03-29 21:00:00", "2026-03-30 21:00:00"]


@settings(max_examples=40, deadline=None)
@given(
    start=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    zone=st.sampled_from([NEW_YORK, LORD_HOWE, BEIRUT, "Africa/Casablanca", "Asia/Kolkata", "UTC"]),
    hour=st.integers(0, 23),
    minutes=st.sampled_from(["0", "*/30", "15"]),
)
def test_nothing_between_a_time_and_the_next_match_matches(start: datetime, zone: str, hour: int, minutes: str) -> None:
    text = start.replace(second=0, microsecond=0).isoformat(" ")
    found = datetime.fromisoformat(following(f"0 {minutes} {hour} * * *", text, zone)[0]).replace(tzinfo=UTC)
    cron, here = parse_cron(f"0 {minutes} {hour} * * *"), ZoneInfo(zone)
    time = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(minutes=1)
    while time < found:
        local = time.astimezone(here)
        assert not (local.hour in cron.hours and local.minute in cron.minutes), local
        time += timedelta(minutes=1)
    local = found.astimezone(here)
    assert local.hour in cron.hours and local.minute in cron.minutes
