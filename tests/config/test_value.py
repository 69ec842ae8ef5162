"""config/value.py: places, errors, durations."""

from __future__ import annotations

import pytest

from jetlake.config.value import ConfigError, Position, Value, parse_duration_ns
from jetlake.errors import JetLakeError


def test_an_error_carries_its_place() -> None:
    error = Value(1, Position("f.conf", 2, 3)).expected("a string")
    assert str(error) == "f.conf:2:3: expected a string, found an integer"
    assert (error.file, error.line, error.problem) == ("f.conf", 2, "expected a string, found an integer")
    assert isinstance(error, JetLakeError)
    assert (ConfigError("x").file, ConfigError("x").line) == (None, None)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("100ms", 100_000_000),
        ("2m", 120_000_000_000),
        ("1m30s", 90_000_000_000),
        ("1.5h", 5_400_000_000_000),
        (".5s", 500_000_000),
        ("-2s", -2_000_000_000),
        ("3us", 3000),
        ("3µs", 3000),
        ("7ns", 7),
    ],
)
def test_durations_are_spelled_as_in_go(text: str, duration_ns: int) -> None:
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize("text", ["", "-", "5", "s", "1 s", "1d", "1s2", "1e3s", "9" * 60 + "h", "1" * 5000 + "s"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration_ns(text)
