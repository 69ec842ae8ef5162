"""From parsed values to typed ones: a reader per type, and sections, which are tables of keys.

A reader takes a value and a list to which it may add warnings, and returns what the options hold; or it raises a
ConfigError that says what was expected. A section names for each key its field and reader, the keys of nats-server
that are refused because JetLake does not do what they ask, and those that may be ignored with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jetlake.config.options import RANDOM_PORT
from jetlake.config.value import ConfigError, Value, parse_duration_ns

Reader = Callable[[Value, list[str]], Any]

MERGE = ""  # the field of a reader that returns several fields, as a dict
INT32_MAX = (1 << 31) - 1
SECOND_NS = 1_000_000_000
_SIZE_TEXT = re.compile(r"([0-9]{1,15})([KMGT])")
_SIZE_SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, slots=True)
class Section:
    """The keys of one map. `keys` has an entry for each spelling: key -> (field, reader)."""

    name: str  # as in "in jetstream"; empty for the top level
    keys: dict[str, tuple[str, Reader]]
    refused: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()

    def read(self, value: Value, warnings: list[str]) -> dict[str, Any]:
        """The fields that a map gives; of two spellings of one field the last counts."""
        fields: dict[str, Any] = {}
        for key, entry in as_map(value).items():
            name = key.lower()
            if name in self.keys:
                field, reader = self.keys[name]
                read = self._named(key, reader, entry, warnings)
                fields.update(read if field == MERGE else {field: read})
            elif name in self.refused:
                raise ConfigError(f"{key!r}{self._within()} is not supported yet", entry.key_where)
            elif name in self.ignored:
                warnings.append(warning(entry, f"{key!r}{self._within()} is not supported yet and has no effect"))
            elif not entry.used_as_variable:
                raise ConfigError(f"unknown key {key!r}{self._within()}{self._nearest(name)}", entry.key_where)
        return fields

    def _named(self, key: str, reader: Reader, entry: Value, warnings: list[str]) -> Any:
        try:
            return reader(entry, warnings)
        except ConfigError as error:
            if error.where is entry.where:  # about this value itself, not something inside it
                raise ConfigError(f"{key}: {error.problem}", error.where) from None
            raise

    def _within(self) -> str:
        return f" in {self.name}" if self.name else ""

    def _nearest(self, name: str) -> str:
        return did_you_mean(name, self.keys) or did_you_mean(name, self.refused | self.ignored)


def did_you_mean(name: str, candidates: Iterable[str], prefix: str = "") -> str:
    """`; did you mean 'x'?` for the nearest name, or nothing."""
    import difflib  # only for who made a mistake

    nearest = difflib.get_close_matches(name, sorted(candidates), n=3)
    nearest.sort(key=lambda found: sorted(found) != sorted(name))  # letters in the wrong order, first of all
    return f"; did you mean {prefix + nearest[0]!r}?" if nearest else ""


def keys(**readers: tuple[str, Reader]) -> dict[str, tuple[str, Reader]]:
    """The table of a section: field="spelling other_spelling", reader. Without spellings, the field's own name."""
    return {key: (field, reader) for field, (names, reader) in readers.items() for key in (names or field).split()}


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def warning(value: Value, text: str) -> str:
    """A warning with the place that it is about."""
    where = value.key_where or value.where
    return f"{where.file}:{where.line}:{where.column}: {text}"


# ---------------------------------------------------------------------------------------------- readers


def as_map(value: Value, what: str = "a map") -> dict[str, Value]:
    if not isinstance(value.data, dict):
        raise value.expected(what)
    return value.data


def as_list(value: Value, what: str = "an array") -> list[Value]:
    if not isinstance(value.data, list):
        raise value.expected(what)
    return value.data


def string(value: Value, warnings: list[str]) -> str:
    if not isinstance(value.data, str):
        raise value.expected("a string") if type(value.data) in (dict, list) else value.expected("a string in quotes")
    return value.data


def boolean(value: Value, warnings: list[str]) -> bool:
    if not isinstance(value.data, bool):
        raise value.expected("a boolean (true or false)")
    return value.data


def enabled(value: Value) -> bool:
    """true, enabled, disabled, …: what stands where a block could."""
    words = {"enabled": True, "enable": True, "disabled": False, "disable": False}
    if isinstance(value.data, bool):
        return value.data
    if not isinstance(value.data, str):
        raise value.expected("a boolean, 'enabled', 'disabled' or a map")
    if value.data.lower() not in words:
        raise value.error(f"expected 'enabled' or 'disabled', found {value.data!r}")
    return words[value.data.lower()]


def strings(value: Value, warnings: list[str]) -> tuple[str, ...]:
    """One string or an array of them."""
    if isinstance(value.data, str):
        return (value.data,)
    return tuple(string(item, warnings) for item in as_list(value, "a string or an array of strings"))


def string_map(value: Value, warnings: list[str]) -> dict[str, str]:
    return {key: string(item, warnings) for key, item in as_map(value).items()}


def integer(minimum: int = -(1 << 63), maximum: int = (1 << 63) - 1, zero_is: int = 0) -> Reader:
    """A reader of integers in a range; some keys take 0 for another number."""

    def read(value: Value, warnings: list[str]) -> int:
        if type(value.data) is not int:
            raise value.expected("an integer")
        if not minimum <= value.data <= maximum:
            raise value.error(f"expected an integer from {minimum} to {maximum}, found {value.data}")
        return value.data or zero_is

    return read


def port(default: int = 0) -> Reader:
    """A reader of ports: -1 is a random one, 0 the default."""
    return integer(RANDOM_PORT, 65535, zero_is=default)


def size(value: Value, warnings: list[str]) -> int:
    """Bytes: an integer, perhaps with a unit, or a string such as "10G"; -1 is no limit."""
    if isinstance(value.data, str):
        if not (found := _SIZE_TEXT.fullmatch(value.data)):
            raise value.error('expected a size such as 1GB or "1G" (K, M, G or T)')
        return int(found[1]) << _SIZE_SHIFTS[found[2]]
    if type(value.data) is not int:
        raise value.expected("a size such as 1GB")
    return value.data


def duration_ns(value: Value, warnings: list[str]) -> int:
    """A duration in Go's spelling, only."""
    if not isinstance(value.data, str):
        raise value.expected('a duration in quotes such as "2m" or "100ms"')
    try:
        return parse_duration_ns(value.data)
    except ValueError:
        raise value.error('expected a duration such as "2m", "1m30s" or "100ms"') from None


def duration_s(value: Value, warnings: list[str]) -> float:
    """A duration; a plain number is seconds, with a warning, as in nats-server."""
    if type(value.data) is not int:
        return duration_ns(value, warnings) / SECOND_NS
    _no_unit(value)
    warnings.append(warning(value, f'should be a duration: "{value.data}s"'))
    return float(value.data)


def timeout_s(value: Value, warnings: list[str]) -> float:
    """Seconds as a number, or a duration."""
    if type(value.data) not in (int, float):
        return duration_ns(value, warnings) / SECOND_NS
    _no_unit(value)
    assert isinstance(value.data, int | float)
    return float(value.data)


def _no_unit(value: Value) -> None:
    if value.has_unit:
        raise value.error('expected a duration in quotes such as "2m"; without quotes, m is a million')


def positive_or(default: float, reader: Reader) -> Reader:
    """A reader of a time that takes 0 for its default, and nothing below."""

    def read(value: Value, warnings: list[str]) -> float:
        time_s: float = reader(value, warnings)
        if time_s < 0:
            raise value.error("expected a duration that is not negative")
        return time_s or default

    return read


def host_port(value: Value, warnings: list[str]) -> tuple[str | None, int]:
    """A port, or "host:port" where the host may be empty or an IPv6 address in brackets."""
    if type(value.data) is int:
        number: int = port()(value, warnings)
        return None, number
    if not isinstance(value.data, str):
        raise value.expected('a port or "host:port"')
    found = re.fullmatch(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):(-?[0-9]{1,5})", value.data)
    if not found or not RANDOM_PORT <= int(found[3]) <= 65535:
        raise value.error(f'expected a port or "host:port", found {value.data!r}')
    return found[1] or found[2] or None, int(found[3])
