"""Columns from Spark's DDL: `id BIGINT, place STRUCT<x: DOUBLE, y: DOUBLE>`.

Spark's own parser lives in the JVM, and the processes that plan and run a Python data source have none. Here every type
is one that JSON is read as, and all is nullable: NOT NULL is understood and dropped, for any field may be missing.
"""

from __future__ import annotations

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from jetlake.spark.errors import BadOption

_TYPES: dict[str, DataType] = {
    "BOOLEAN": BooleanType(),
    "TINYINT": ByteType(),
    "SMALLINT": ShortType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
}
_SAME = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT"}
_SAME |= {"DEC": "DECIMAL", "NUMERIC": "DECIMAL", "TIMESTAMP_LTZ": "TIMESTAMP"}
_READABLE = (DecimalType, *map(type, _TYPES.values()))
_PRECISION_MAX = 38
_END = ""
_TOKEN = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<string>'(?:[^'\\]|\\.|'')*')|(?P<word>[^\s`'<>(),:]+)|(?P<sign>\S))"
)


def parse_ddl(text: str) -> StructType:
    """The columns of a schema; BadOption says what is wrong with it."""
    return StructType(_Parser(text).fields("", _END))


def check_readable(name: str, kind: DataType) -> None:
    """BadOption unless JSON can be read as a type, and all inside of it may be missing."""
    if isinstance(kind, StructType):
        for field in kind:
            check_nullable(f"column {name}.{field.name}", field.nullable)
            check_readable(f"{name}.{field.name}", field.dataType)
    elif isinstance(kind, ArrayType):
        check_nullable(f"an element of column {name}", kind.containsNull)
        check_readable(name, kind.elementType)
    elif not isinstance(kind, _READABLE):
        raise _unreadable(f"column {name}", kind.simpleString().upper())


def check_nullable(what: str, is_nullable: bool) -> None:
    """BadOption where a schema says NOT NULL of what may be missing: Spark would make 0 of it."""
    if not is_nullable:
        raise BadOption(f"{what} may be NULL, so the schema must not say NOT NULL")


def _unreadable(what: str, kind: str) -> BadOption:
    return BadOption(f"{what}: JSON is not read as {kind}; there are {', '.join(_TYPES)}, DECIMAL, ARRAY and STRUCT")


class _Parser:
    """Reads one token after the other: a name, a type, a string or a sign. `path` is where it is, for what is wrong."""

    def __init__(self, text: str) -> None:
        found = [(str(match.lastgroup), match[str(match.lastgroup)]) for match in _TOKEN.finditer(text)]
        self._left = [*found, ("sign", _END)][::-1]

    def fields(self, path: str, end: str) -> list[StructField]:
        """The fields up to a sign."""
        found = list[StructField]()
        while not self._take(end):
            if found:
                self._need(",")
            field = self._field(path)
            if field.name in (other.name for other in found):
                raise BadOption(f"payloadSchema: column {path}{field.name} is there twice")
            found.append(field)
        return found

    def _field(self, path: str) -> StructField:
        kind, name = self._next()
        if kind not in ("quoted", "word"):
            raise _unexpected("a name", name)
        name = name.replace("``", "`") if kind == "quoted" else name
        self._take(":")
        data_type = self._type(f"{path}{name}")
        if self._take("NOT"):
            self._need("NULL")
        comment = self._next()[1] if self._take("COMMENT") else ""
        return StructField(name, data_type, True, {"comment": comment[1:-1]} if comment else None)

    def _type(self, path: str) -> DataType:
        kind, text = self._next()
        word = _SAME.get(text.upper(), text.upper())
        if kind != "word":
            raise _unexpected(f"a type for column {path}", text)
        if word == "ARRAY":
            self._need("<")
            element = self._type(path)
            self._need(">")
            return ArrayType(element)
        if word == "STRUCT":
            self._need("<")
            return StructType(self.fields(f"{path}.", ">"))
        if word == "DECIMAL":
            return self._decimal(path)
        if word not in _TYPES:
            raise _unreadable(f"payloadSchema: column {path}", word)
        return _TYPES[word]

    def _decimal(self, path: str) -> DecimalType:
        numbers = ["10"]
        if self._take("("):
            numbers = [self._next()[1]]
            if self._take(","):
                numbers.append(self._next()[1])
            self._need(")")
        if not all(map(str.isdecimal, numbers)) or not int(numbers[-1]) <= int(numbers[0]) <= _PRECISION_MAX:
            raise BadOption(
                f"payloadSchema: column {path}: DECIMAL({','.join(numbers)}) has no precision and scale up to 38"
            )
        return DecimalType(*map(int, numbers))

    def _next(self) -> tuple[str, str]:
        return self._left.pop() if len(self._left) > 1 else self._left[0]

    def _take(self, text: str) -> bool:
        """Whether a word or sign comes next; it is passed over then."""
        kind, found = self._left[-1]
        if kind not in ("word", "sign") or found.upper() != text:
            return False
        self._next()
        return True

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise _unexpected(text, self._left[-1][1])


def _unexpected(expected: str, found: str) -> BadOption:
    return BadOption(f"payloadSchema: {expected} is expected, not {found or 'the end'}")
