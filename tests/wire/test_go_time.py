"""Times as Go writes and reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.wire.go_time import ZERO_NS, ZERO_TIME, BadTime, ZonedTime, format_time, json_problem, parse_time

YEAR_0_NS = parse_time("0000-01-01T00:00:00Z")
YEAR_9999_NS = parse_time("9999-12-31T23:59:59.999999999Z")


@given(st.integers(YEAR_0_NS, YEAR_9999_NS))
def test_what_is_written_is_read(time_ns: int) -> None:
    assert parse_time(format_time(time_ns)) == time_ns and not json_problem(time_ns)


@given(st.integers(YEAR_0_NS, YEAR_9999_NS), st.integers(-1499, 1499).filter(bool))
def test_an_offset_is_kept(local_ns: int, minutes: int) -> None:
    text = format_time(ZonedTime.at(local_ns - minutes * 60 * 10**9, minutes * 60))
    assert format_time(parse_time(text)) == text


@given(st.integers())
def test_any_time_can_be_written(time_ns: int) -> None:
    assert format_time(time_ns).endswith("Z")


@pytest.mark.parametrize(
    ("text", "in_utc", "problem"),
    [
        ("0000-01-01T00:00:00+00:01", "-0001-12-31T23:59:00Z", "year outside of range [0,9999]"),
        ("9999-12-31T23:59:59-00:01", "10000-01-01T00:00:59Z", "year outside of range [0,9999]"),
        ("0001-01-01T00:00:00+12:00", "0000-12-31T12:00:00Z", ""),
    ],
)
def test_a_time_may_be_in_another_year_in_utc(text: str, in_utc: str, problem: str) -> None:
    time = parse_time(text)
    assert format_time(time) == text and json_problem(time) == ""
    assert format_time(int(time)) == in_utc and json_problem(int(time)) == problem


def test_an_offset_of_a_day_can_be_read_but_not_written() -> None:
    assert json_problem(parse_time("2030-01-01T00:00:00+23:60")) == "timezone hour outside of range [0,23]"


def test_what_go_takes_is_taken() -> None:
    assert parse_time("1970-01-01T0:00:01,5Z") == 1_500_000_000


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000_000, "1970-01-01T00:00:01.5Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (1_794_786_076_248_774_400, "2026-11-15T23:41:16.2487744Z"),
        (ZERO_NS, ZERO_TIME),
    ],
)
def test_trailing_zeros_are_not_written(time_ns: int, text: str) -> None:
    assert format_time(time_ns) == text


def test_a_time_zone_counts() -> None:
    assert parse_time("2024-02-29T10:00:00+02:00") == parse_time("2024-02-29T08:00:00Z")
    assert parse_time("2024-02-29T10:00:00-00:30") == parse_time("2024-02-29T10:30:00Z")


def test_digits_beyond_nanoseconds_are_dropped() -> None:
    assert parse_time("1970-01-01T00:00:00.1234567899Z") == 123_456_789


def test_there_is_a_year_0() -> None:
    assert parse_time("0000-12-31T00:00:00Z") == ZERO_NS - 86_400 * 10**9


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("2026", 'parsing time "2026" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "-"'),
        ("2026-13-01T00:00:00Z", 'parsing time "2026-13-01T00:00:00Z": month out of range'),
        ("2023-02-29T00:00:00Z", 'parsing time "2023-02-29T00:00:00Z": day out of range'),
        ("2023-02-20T24:00:00Z", 'parsing time "2023-02-20T24:00:00Z": hour out of range'),
        ("2023-02-20T00:00:00Zx", 'parsing time "2023-02-20T00:00:00Zx": extra text: "x"'),
        ("2023-02-20T00:00:00+25:00", 'parsing time "2023-02-20T00:00:00+25:00": time zone offset hour out of range'),
    ],
)
def test_other_texts_are_refused_in_gos_words(text: str, problem: str) -> None:
    with pytest.raises(BadTime) as caught:
        parse_time(text)
    assert str(caught.value) == problem
