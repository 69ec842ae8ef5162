"""What a request must look like, as data, and how it is read: strictly, as Go's decoder does for nats-server.

    _PURGE = Struct("JSApiStreamPurgeRequest", {"seq": UINT64, "filter": STRING, "keep": UINT64})
    read_request(payload, _PURGE)        # {"seq": 12}

The result of a struct is a dict of the fields that were given, by their JSON names. A null counts as not given. Names
match whatever their case. Whatever does not fit raises ApiError 10025 with Go's text for the first thing that is wrong.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from jetlake.jetstream.errors import INVALID_JSON
from jetlake.jetstream.json.syntax import BadJson, Node, parse_value, parse_values
from jetlake.wire.go_time import BadTime, parse_time


class BadShape(ValueError):
    """JSON that is not what was asked for, in Go's words."""


class Place:
    """Where in a request a value stands: the name of its root type, and the fields and indexes that lead to it."""

    __slots__ = ("is_index", "path")

    def __init__(self, path: str, is_index: bool = False) -> None:
        self.path, self.is_index = path, is_index

    def field(self, name: str) -> Place:
        return Place(f"{self.path}.{name}")

    def index(self, index: int) -> Place:
        return Place(f"{self.path}.{index}", is_index=True)

    def mismatch(self, found: str, go_type: str) -> BadShape:
        """A value of another kind than the type takes."""
        if "." not in self.path:
            into = f"Go value of type {go_type}"
        else:
            into = f"{'' if self.is_index else 'Go struct field '}{self.path} of type {go_type}"
        return BadShape(f"json: cannot unmarshal {found} into {into}")


class Shape(ABC):
    """A type that JSON is read into. `zero` is what a null in an array becomes."""

    go_type: str
    zero: object = None
    takes_null = False  # Go hands a null to types that read themselves

    @abstractmethod
    def read(self, node: Node, place: Place, strict: bool) -> Any:
        """The value; raises BadShape."""


class _Plain(Shape):
    """A string or bool, which reads as it is."""

    def __init__(self, go_type: str, zero: object) -> None:
        self.go_type, self.zero = go_type, zero

    def read(self, node: Node, place: Place, strict: bool) -> Any:
        if node.kind != self.go_type:
            raise place.mismatch(node.kind, self.go_type)
        return node.value


class Integer(Shape):
    """A whole number within bounds."""

    zero = 0

    def __init__(self, go_type: str, bits: int, signed: bool = True) -> None:
        self.go_type = go_type
        self._min = -(1 << bits - 1) if signed else 0
        self._max = (1 << bits - signed) - 1

    def read(self, node: Node, place: Place, strict: bool) -> int:
        if node.kind != "number":
            raise place.mismatch(node.kind, self.go_type)
        if not node.text.lstrip("-").isdigit() or len(node.text) > 20:  # a fraction, an exponent, or far too long
            raise place.mismatch(f"number {node.text}", self.go_type)
        number = int(node.text)
        if not self._min <= number <= self._max:
            raise place.mismatch(f"number {node.text}", self.go_type)
        return number


class Enum(Shape):
    """One of some words, each of which stands for a value. Its error is Go's for enums, or the one given."""

    takes_null = True

    def __init__(self, values: Mapping[str, object], *, any_case: bool = False, problem: str = "") -> None:
        self.go_type, self._values, self._any_case, self._problem = "string", values, any_case, problem
        self.zero = next(iter(values.values()))

    def read(self, node: Node, place: Place, strict: bool) -> Any:
        word = node.value if node.kind == "string" else None
        if isinstance(word, str):
            word = word.lower() if self._any_case else word
            if word in self._values:
                return self._values[word]
        elif self._problem:
            raise BadShape(f"json: cannot unmarshal {node.kind} into Go value of type string")
        raise BadShape(self._problem or f"can not unmarshal {json.dumps(node.text, ensure_ascii=False)}")


class _Time(Shape):
    """A time in RFC 3339, as nanoseconds since the epoch."""

    go_type = "time.Time"

    def read(self, node: Node, place: Place, strict: bool) -> int:
        if not isinstance(node.value, str) or node.kind != "string":
            raise place.mismatch(node.kind, self.go_type)
        try:
            return parse_time(node.value)
        except BadTime as error:
            raise BadShape(str(error)) from None


class List(Shape):
    """An array of one shape, as a tuple."""

    zero = ()

    def __init__(self, item: Shape, *, of_pointers: bool = False) -> None:
        self.go_type, self._item = f"[]{'*' if of_pointers else ''}{item.go_type}", item

    def read(self, node: Node, place: Place, strict: bool) -> tuple[Any, ...]:
        if node.kind != "array":
            raise place.mismatch(node.kind, self.go_type)
        if self._item is STRING and (strings := node.strings()) is not None:  # there may be thousands
            return tuple(strings)
        found = []
        for index, item in enumerate(node.items()):
            is_absent = item.kind == "null" and not self._item.takes_null
            found.append(self._item.zero if is_absent else self._item.read(item, place.index(index), strict))
        return tuple(found)


class Map(Shape):
    """An object with any keys and values of one shape."""

    def __init__(self, item: Shape) -> None:
        self.go_type, self._item = f"map[string]{item.go_type}", item

    def read(self, node: Node, place: Place, strict: bool) -> dict[str, Any]:
        if node.kind != "object":
            raise place.mismatch(node.kind, self.go_type)
        return {
            key: self._item.zero if item.kind == "null" else self._item.read(item, place.field(key), strict)
            for key, item in node.pairs()
        }


class Struct(Shape):
    """An object with known fields; `build` makes something else of the dict."""

    def __init__(
        self,
        go_name: str,
        fields: Mapping[str, Shape],
        build: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        self.go_name, self.go_type, self._build = go_name, f"server.{go_name}", build
        self._fields = {name: (name, shape) for name, shape in fields.items()}
        self._fields_any_case = {name.lower(): pair for name, pair in self._fields.items()}

    def read(self, node: Node, place: Place, strict: bool) -> Any:
        if node.kind != "object":
            raise place.mismatch(node.kind, self.go_type)
        found: dict[str, Any] = {}
        for key, item in node.pairs():
            name, shape = self._fields.get(key) or self._fields_any_case.get(key.lower()) or (key, None)
            if shape is None:
                if strict:
                    raise BadShape(f"json: unknown field {json.dumps(key, ensure_ascii=False)}")
            elif item.kind != "null" or shape.takes_null:
                found[name] = shape.read(item, place.field(name), strict)
        return found if self._build is None else self._build(found)


STRING = _Plain("string", "")
BOOL = _Plain("bool", False)
INT = Integer("int", 64)
INT32 = Integer("int32", 32)
INT64 = Integer("int64", 64)
UINT64 = Integer("uint64", 64, signed=False)
DURATION = Integer("time.Duration", 64)
TIME = _Time()
STRINGS = List(STRING)
STRING_MAP = Map(STRING)


def read_request(payload: bytes, shape: Struct, *, strict: bool = True) -> dict[str, Any]:
    """The fields that a request gives; none of them when it is blank. Raises ApiError 10025."""
    found: dict[str, Any] = {}
    try:
        nodes = parse_values(payload) if strict or not payload.strip() else [parse_value(payload)]
        for node in nodes:
            if node.kind != "null":
                found |= shape.read(node, Place(shape.go_name), strict)
    except (BadJson, BadShape) as error:
        raise INVALID_JSON(error) from None
    return found


def is_json(payload: bytes) -> bool:
    """Whether an optional payload is there to be read: it begins like an object or array."""
    return payload.lstrip(b" \t\r\n")[:1] in (b"{", b"[")


def is_empty_request(payload: bytes) -> bool:
    """Whether a payload is nothing, or an object with nothing in it."""
    if not payload or payload == b"{}":
        return True
    try:
        nodes = parse_values(payload)
    except BadJson:
        return False
    return len(nodes) == 1 and nodes[0].kind == "object" and next(nodes[0].pairs(), None) is None
