"""What DuckDB and Polars push down, as a condition that `where.pruning` understands.

Only comparisons that are joined by AND at the top are taken over. What is not understood is left out, which rules out
less: whoever pushed a predicate down gets rows to which it was applied in full, by Arrow or by Polars.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?Z)'
    r"|(?P<number>-?\d+)(?![\w.:-])"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<sign><=|>=|==|<|>|[()])|(?P<other>\S))"
)
_MEMBERS = re.compile(
    r"if_else\(is_valid\((?P<name>\w+)\), is_in\((?P=name), \{value_set=(?:large_)?string:\[(?P<members>[^\]]*)\], "
    r"null_matching_behavior=\w+\}\), null\[bool\]\)"
)
_MEMBER = re.compile(r'"[^"\\]*"')
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_UNSAFE = re.compile(r"""['"\\$`]|--|/\*""")
_SIGNS = {"==": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_POLARS_SIGNS = {"Eq": "=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_UNITS = {"Milliseconds": 1_000, "Microseconds": 1, "Nanoseconds": 0.001}


def of_arrow(expression: Any, names: list[str]) -> str:
    """The condition of a pyarrow expression, which has no other form to be read in than its text.

    A column whose name is not a plain word could look like a part of that text: then nothing is understood.
    """
    if expression is None or not all(map(_NAME.match, names)):
        return ""
    text = _MEMBERS.sub(_as_in, str(expression))
    try:
        return " AND ".join(_Reader(text).parts())
    except _NotUnderstood:
        return ""


def _as_in(found: re.Match[str]) -> str:
    """A test for membership as one word, of which the reader makes IN."""
    members = _MEMBER.findall(found["members"])
    is_whole = re.sub(r"[\s,]", "", _MEMBER.sub("", found["members"])) == ""
    if not is_whole or not members or any(_UNSAFE.search(member[1:-1]) for member in members):
        return found[0]
    listed = ",".join(f"'{member[1:-1]}'" for member in members)
    return f'({found["name"]} == "IN({_hex(listed)})")'


def _hex(text: str) -> str:
    return text.encode().hex()


class _NotUnderstood(Exception):
    """The text is not one that this module knows."""


class _Reader:
    """Reads the text of an expression: (a and b), (column < value), and anything else as one thing without meaning."""

    def __init__(self, text: str) -> None:
        self._left = [(str(match.lastgroup), match[str(match.lastgroup)]) for match in _TOKEN.finditer(text)][::-1]

    def parts(self) -> list[str]:
        found = self._expression()
        if self._left:
            raise _NotUnderstood
        return found if isinstance(found, list) else []

    def _next(self) -> tuple[str, str]:
        if not self._left:
            raise _NotUnderstood
        return self._left.pop()

    def _expression(self) -> list[str] | tuple[str, str]:
        """Conditions, or a column or value."""
        kind, text = self._next()
        if text != "(" or kind != "sign":
            if kind == "name" and self._left and self._left[-1] == ("sign", "("):
                self._skip()
                return []
            return kind, text
        left = self._expression()
        _, sign = self._next()
        right = self._expression()
        if self._next() != ("sign", ")"):
            raise _NotUnderstood
        if sign == "and":
            return [part for side in (left, right) if isinstance(side, list) for part in side]
        if isinstance(left, tuple) and isinstance(right, tuple) and sign in _SIGNS:
            return list(_comparison(left, _SIGNS[sign], right))
        return []

    def _skip(self) -> None:
        depth = 0
        while True:
            _, text = self._next()
            depth += (text == "(") - (text == ")")
            if not depth:
                return


def _comparison(left: tuple[str, str], sign: str, right: tuple[str, str]) -> Iterator[str]:
    if right[0] == "name":
        left, sign, right = right, _FLIPPED[sign], left
    kind, text = right
    if left[0] != "name" or kind not in ("string", "number", "time"):
        return
    if kind == "string" and text.startswith('"IN('):
        yield f"{left[1]} IN ({bytes.fromhex(text[4:-2]).decode()})"
    elif kind == "string" and not _UNSAFE.search(text[1:-1]):
        yield f"{left[1]} {sign} '{text[1:-1]}'"
    elif kind == "number":
        yield f"{left[1]} {sign} {text}"
    elif kind == "time":
        yield f"{left[1]} {sign} '{text.replace(' ', 'T')}'"


def of_polars(serialized: str) -> str:
    """The condition of a Polars expression that was serialized as JSON."""
    try:
        return " AND ".join(_walk(json.loads(serialized)))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return ""


def _walk(node: dict[str, Any]) -> Iterator[str]:
    """The comparisons of a tree; forms that are not known yield nothing."""
    if "BinaryExpr" in node:
        left, sign, right = (node["BinaryExpr"][part] for part in ("left", "op", "right"))
        if sign in ("And", "LogicalAnd"):
            yield from _walk(left)
            yield from _walk(right)
        elif sign in _POLARS_SIGNS:
            column, value, word = _column(left), _value(right), _POLARS_SIGNS[sign]
            if column is None:
                column, value, word = _column(right), _value(left), _FLIPPED[word]
            if column is not None and value is not None:
                yield f"{column} {word} {value}"
    elif "Function" in node:
        yield from _function(node["Function"]["input"], node["Function"]["function"])


def _function(inputs: list[dict[str, Any]], function: Any) -> Iterator[str]:
    column = _column(inputs[0])
    values = [_value(node) for node in inputs[1:]]
    if column is None or None in values or not isinstance(function, dict):
        return
    boolean = function.get("Boolean")
    if function.get("StringExpr") == "StartsWith" and str(values[0]).startswith("'"):
        prefix = str(values[0])[1:-1]
        if "%" not in prefix and "_" not in prefix:
            yield f"{column} LIKE '{prefix}%'"
    elif isinstance(boolean, dict) and boolean.get("IsBetween", {}).get("closed") == "Both":
        yield f"{column} BETWEEN {values[0]} AND {values[1]}"


def _column(node: dict[str, Any]) -> str | None:
    name = node.get("Column")
    return name if isinstance(name, str) and _NAME.match(name) else None


def _value(node: dict[str, Any]) -> str | None:
    """A literal as SQL has it; None for one that it cannot have."""
    literal = node.get("Literal", {})
    value = literal.get("Scalar", literal.get("Dyn"))
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, content),) = value.items()
    if kind in ("Int64", "Int32", "Int", "UInt64", "UInt32"):
        return str(int(content))
    if kind in ("String", "Str") and not _UNSAFE.search(content):
        return f"'{content}'"
    if kind == "Datetime" and content[2] in (None, "UTC"):
        seconds, rest = divmod(int(content[0] * _UNITS[content[1]]), 1_000_000)
        return f"'{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z'"
    return None
