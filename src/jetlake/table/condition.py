"""A condition in SQL, applied to record batches: the option `where` of readers without Spark.

    seq > 5 AND region = 'eu'         subject LIKE 'orders.%' OR size >= 1000        NOT (amount < 2.5)
    time >= '2026-03-01'              id IN (1, 2, 3)          price BETWEEN 1 AND 2          name IS NOT NULL

Columns are compared with numbers, strings, TRUE and FALSE, and times and dates in quotes, which are UTC unless they say
otherwise. Anything else is an error that says so: DuckDB, Polars and Spark have the rest of SQL. NULL is as in SQL: a
comparison with it is neither true nor false, and a row is kept where the whole condition is true.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jetlake.table.errors import BadOption
from jetlake.table.options import parse_time_ns

Mask = Callable[[pa.RecordBatch], pa.Array]
_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?!\w)"
    r"|(?P<name>[A-Za-z_]\w*|`[^`]+`)|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,)|(?P<other>\S))"
)
_SIGNS = {
    "=": pc.equal,
    "==": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WORDS = {"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "TIMESTAMP", "DATE"}
_END = ""


class Condition:
    """A parsed condition."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        """BadOption for what is not understood; `schema` has all columns there are."""
        self.text = text
        parser = _Parser(text, schema)
        self._mask = parser.whole()
        self.columns: list[str] = list(parser.columns)

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which the condition is true."""
        return batch.filter(self._mask(batch))


class _Parser:
    """Recursive descent: OR of ANDs of NOTs of comparisons."""

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text, self._fields = text, {field.name.lower(): field for field in schema}
        self._left = [*_tokens(text), ("end", _END)][::-1]
        self.columns: dict[str, None] = {}

    def whole(self) -> Mask:
        mask = self._either()
        if self._left[-1][0] != "end":
            raise self._unexpected("AND or OR")
        return mask

    def _either(self) -> Mask:
        mask = self._both()
        while self._take("OR"):
            mask = _joined(pc.or_kleene, mask, self._both())
        return mask

    def _both(self) -> Mask:
        mask = self._not()
        while self._take("AND"):
            mask = _joined(pc.and_kleene, mask, self._not())
        return mask

    def _not(self) -> Mask:
        if self._take("NOT"):
            return _inverted(self._not())
        if self._take("("):
            mask = self._either()
            self._need(")")
            return mask
        return self._comparison()

    def _comparison(self) -> Mask:
        field, word = self._column(), self._left[-1][1].upper()
        if word in _SIGNS:
            self._left.pop()
            value, compare = self._literal(field), _SIGNS[word]
            return lambda batch: compare(batch.column(field.name), value)
        if self._take("IS"):
            is_inverted = self._take("NOT")
            self._need("NULL")
            test = pc.is_valid if is_inverted else pc.is_null
            return lambda batch: test(batch.column(field.name))
        is_inverted = self._take("NOT")
        mask = self._in_between_or_like(field)
        if mask is not None:
            return _inverted(mask) if is_inverted else mask
        if is_inverted or not pa.types.is_boolean(field.type):
            raise self._unexpected("a comparison")
        return lambda batch: batch.column(field.name)

    def _in_between_or_like(self, field: pa.Field) -> Mask | None:
        name = field.name
        if self._take("BETWEEN"):
            low = self._literal(field)
            self._need("AND")
            high = self._literal(field)
            above: Mask = lambda batch: pc.greater_equal(batch.column(name), low)  # noqa: E731
            return _joined(pc.and_kleene, above, lambda batch: pc.less_equal(batch.column(name), high))
        if self._take("LIKE"):
            pattern = self._string("a pattern")
            if not pa.types.is_string(field.type):
                raise BadOption(f"where {self._text!r}: LIKE is for text, and {name} is {field.type}")
            return lambda batch: pc.match_like(batch.column(name), pattern)
        if not self._take("IN"):
            return None
        self._need("(")
        masks = [self._equal(field)]
        while self._take(","):
            masks.append(self._equal(field))
        self._need(")")
        mask = masks[0]
        for other in masks[1:]:
            mask = _joined(pc.or_kleene, mask, other)
        return mask

    def _equal(self, field: pa.Field) -> Mask:
        value = self._literal(field)
        return lambda batch: pc.equal(batch.column(field.name), value)

    def _column(self) -> pa.Field:
        kind, text = self._left[-1]
        if kind != "name" or text.upper() in _WORDS:
            raise self._unexpected("a column")
        field = self._fields.get(text.strip("`").lower())
        if field is None:
            names = ", ".join(field.name for field in self._fields.values())
            raise BadOption(f"where {self._text!r}: there is no column {text}; there are {names}")
        self._left.pop()
        self.columns[field.name] = None
        return field

    def _literal(self, field: pa.Field) -> pa.Scalar:
        """A value of the type that a column is compared as."""
        is_time = self._take("TIMESTAMP") or self._take("DATE")
        kind, text = self._left[-1]
        if kind == "name" and text.upper() in ("TRUE", "FALSE", "NULL") and not is_time:
            self._left.pop()
            value: Any = {"TRUE": True, "FALSE": False, "NULL": None}[text.upper()]
        elif kind == "string":
            value = self._string("a value")
        elif kind == "number" and not is_time:
            self._left.pop()
            value = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        else:
            raise self._unexpected("a value")
        return self._fitted(field, value)

    def _fitted(self, field: pa.Field, value: Any) -> pa.Scalar:
        kind = field.type
        if value is None:
            return pa.scalar(None, kind)
        is_text, is_number = isinstance(value, str), isinstance(value, int | float) and not isinstance(value, bool)
        if pa.types.is_timestamp(kind) and is_text:
            return pa.scalar(parse_time_ns(value) // 1000, pa.int64()).cast(pa.timestamp("us")).cast(kind)
        if pa.types.is_date(kind) and is_text:
            return pa.scalar(parse_time_ns(value) // 1000, pa.int64()).cast(pa.timestamp("us")).cast(kind, safe=False)
        if pa.types.is_string(kind) and is_text:
            return pa.scalar(value)
        if pa.types.is_binary(kind) and is_text:
            return pa.scalar(value.encode())
        if pa.types.is_boolean(kind) and isinstance(value, bool):
            return pa.scalar(value)
        if (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)) and is_number:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise BadOption(f"where {self._text!r}: {value} is out of range")
            return pa.scalar(value)
        raise BadOption(f"where {self._text!r}: column {field.name} is {kind}, and cannot be compared with {value!r}")

    def _string(self, what: str) -> str:
        kind, text = self._left[-1]
        if kind != "string":
            raise self._unexpected(what)
        self._left.pop()
        return text[1:-1].replace("''", "'")

    def _take(self, word: str) -> bool:
        kind, text = self._left[-1]
        if kind not in ("name", "sign") or text.upper() != word:
            return False
        self._left.pop()
        return True

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self._unexpected(word)

    def _unexpected(self, wanted: str) -> BadOption:
        found = self._left[-1][1] or "the end"
        return BadOption(
            f"where {self._text!r}: {wanted} is expected, not {found}; it understands comparisons of columns with "
            "values, AND, OR, NOT, IN, BETWEEN, LIKE and IS NULL"
        )


def _tokens(text: str) -> list[tuple[str, str]]:
    return [(str(match.lastgroup), match[str(match.lastgroup)]) for match in _TOKEN.finditer(text)]


def _joined(join: Callable[[pa.Array, pa.Array], pa.Array], left: Mask, right: Mask) -> Mask:
    return lambda batch: join(left(batch), right(batch))


def _inverted(mask: Mask) -> Mask:
    return lambda batch: pc.invert(mask(batch))
