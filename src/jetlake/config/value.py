"""A parsed configuration value, where it stands, and the errors that point at it.

Every `Value` remembers its file, line and column, so that an error about its meaning can name the place long after
the text is gone. Errors tell types, never contents: a wrong value may be a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

from jetlake.errors import JetLakeError

Data: TypeAlias = "str | bool | int | float | datetime | list[Value] | dict[str, Value]"

_TYPE_NAMES: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    datetime: "a date",
    list: "an array",
    dict: "a map",
}


class Position(NamedTuple):
    """Where something stands: lines and columns count from 1."""

    file: str
    line: int
    column: int


class ConfigError(JetLakeError):
    """A configuration file or command line that cannot be used. Without a position, the command line is meant."""

    def __init__(self, problem: str, where: Position | None = None) -> None:
        super().__init__(f"{where.file}:{where.line}:{where.column}: {problem}" if where else problem)
        self.problem, self.where = problem, where
        self.file = where.file if where else None
        self.line = where.line if where else None


@dataclass(slots=True, eq=False)
class Value:
    """One value of the file. `key_where` is the place of its key, if it has one."""

    data: Data
    where: Position
    key_where: Position | None = None
    has_unit: bool = False  # an integer written with a unit: 2m is two million
    used_as_variable: bool = False  # such a key may have any name

    @property
    def type_name(self) -> str:
        """`a string`, `an integer`, `a map`, …"""
        return _TYPE_NAMES[type(self.data)]

    def plain(self) -> object:
        """The bare Python value, without positions."""
        if isinstance(self.data, dict):
            return {key: value.plain() for key, value in self.data.items()}
        if isinstance(self.data, list):
            return [value.plain() for value in self.data]
        return self.data

    def error(self, problem: str) -> ConfigError:
        """An error at the place of this value."""
        return ConfigError(problem, self.where)

    def expected(self, what: str) -> ConfigError:
        """An error that says what was expected here, and the type that was found."""
        return self.error(f"expected {what}, found {self.type_name}")


_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION_TEXT_MAX = 64
_INT64_MAX = (1 << 63) - 1


def parse_duration_ns(text: str) -> int:
    """A duration as Go writes it ("1m30s", "1.5ms", "-2h", "0"). Raises ValueError for anything else."""
    negative, rest = text.startswith("-"), text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    offset, total_ns = 0, 0
    while len(text) <= _DURATION_TEXT_MAX and (part := _DURATION_PART.match(rest, offset)):
        whole, _, fraction = part[1].partition(".")
        unit_ns = _UNITS_NS[part[2]]
        total_ns += int(whole or 0) * unit_ns + int(fraction or 0) * unit_ns // 10 ** len(fraction)
        offset = part.end()
    if not rest or offset != len(rest) or total_ns > _INT64_MAX:
        raise ValueError(text)
    return -total_ns if negative else total_ns
