"""The options of a request for a page, with nats-server's words for those that make no sense."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from jetlake.errors import BadRequest

LIMIT_DEFAULT = 1024
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
T = TypeVar("T")


class BadQuery(BadRequest):
    """A request for a page that cannot be answered."""


class Query:
    """Options by name. From a URL they are texts; from a JSON request, values of their own types."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values = values or {}

    def replace(self, **values: Any) -> Query:
        """The same options, but for these."""
        return Query({**self._values, **values})

    def text(self, name: str) -> str:
        value = self._values.get(name, "")
        return value if isinstance(value, str) else str(value)

    def texts(self, name: str) -> list[str]:
        """A list of texts, which only a JSON request can have."""
        value = self._values.get(name)
        return [str(item) for item in value] if isinstance(value, list | tuple) else []

    def flag(self, name: str) -> bool:
        value = self._values.get(name)
        if value is None or value == "":
            return False
        if isinstance(value, bool):
            return value
        if value not in _TRUE | _FALSE:
            problem = f"strconv.ParseBool: parsing {_quoted(value)}: invalid syntax"
            raise BadQuery(f"Error decoding boolean for '{name}': {problem}")
        return value in _TRUE

    def number(self, name: str) -> int:
        return self._number(name, "int", "Atoi")

    def id(self, name: str) -> int:
        """A number that is not negative."""
        return self._number(name, "uint64", "ParseUint")

    def _number(self, name: str, kind: str, go_function: str) -> int:
        value = self._values.get(name)
        if value is None or value == "":
            return 0
        if _INTEGER.fullmatch(str(value)) and (kind == "int" or int(value) >= 0):
            return int(value)
        problem = f"strconv.{go_function}: parsing {_quoted(value)}: invalid syntax"
        raise BadQuery(f"Error decoding {kind} for '{name}': {problem}")

    def check(self, flags: Sequence[str] = (), numbers: Sequence[str] = ()) -> None:
        """Look at options that may not be needed. Raises BadQuery."""
        for name in flags:
            self.flag(name)
        for name in numbers:
            self.number(name)

    @property
    def offset(self) -> int:
        return max(self.number("offset"), 0)

    @property
    def limit(self) -> int:
        limit = self.number("limit")
        return limit if limit > 0 else LIMIT_DEFAULT

    def page(self, items: Sequence[T]) -> list[T]:
        """The items that were asked for."""
        return list(items[self.offset : self.offset + self.limit])


def _quoted(value: object) -> str:
    return f'"{value}"'
