"""Columns from Spark's DDL: `id BIGINT, place STRUCT<x: DOUBLE, y: DOUBLE>`.

Spark's own parser lives in the JVM, and most readers have none. Here every type is one that JSON is read as, and all is
nullable: NOT NULL is understood and dropped, for any field may be missing.
"""

from __future__ import annotations

import re

import pyarrow as pa

from jetlake.table.errors import BadOption

TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_NAMES = {kind: name.lower() for name, kind in TYPES.items()}
_SAME = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT"}
_SAME |= {"DEC": "DECIMAL", "NUMERIC": "DECIMAL", "TIMESTAMP_LTZ": "TIMESTAMP"}
_PRECISION_MAX = 38
_END = ""
_TOKEN = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)*)`|(?P<string>'(?:[^'\\]|\\.|'')*')|(?P<word>[^\s`'<>(),:]+)|(?P<sign>\S))"
)


def parse_ddl(text: str) -> pa.Schema:
    """The columns of a schema; BadOption says what is wrong with it."""
    return pa.schema(_Parser(text).fields("", _END))


def list_of(element: pa.DataType, nullable: bool = True) -> pa.DataType:
    """A list as Spark has it."""
    return pa.list_(pa.field("element", element, nullable))


def type_name(kind: pa.DataType) -> str:
    """A type in the words of DDL."""
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES.get(kind, str(kind))


def check_readable(name: str, kind: pa.DataType) -> None:
    """BadOption unless JSON can be read as a type, and all inside of it may be missing."""
    if pa.types.is_struct(kind):
        for field in kind:
            check_nullable(f"column {name}.{field.name}", field.nullable)
            check_readable(f"{name}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        check_nullable(f"an element of column {name}", kind.value_field.nullable)
        check_readable(name, kind.value_type)
    elif kind not in _NAMES and not pa.types.is_decimal(kind):
        raise unreadable(f"column {name}", type_name(kind).upper())


def check_nullable(what: str, is_nullable: bool) -> None:
    """BadOption where a schema says NOT NULL of what may be missing: Spark would make 0 of it."""
    if not is_nullable:
        raise BadOption(f"{what} may be NULL, so the schema must not say NOT NULL")


def unreadable(what: str, kind: str) -> BadOption:
    """The error for a type that JSON is not read as."""
    return BadOption(f"{what}: JSON is not read as {kind}; there are {', '.join(TYPES)}, DECIMAL, ARRAY and STRUCT")


class _Parser:
    """Reads one token after the other: a name, a type, a string or a sign. `path` is where it is, for what is wrong."""

    def __init__(self, text: str) -> None:
        found = [(str(match.lastgroup), match[str(match.lastgroup)]) for match in _TOKEN.finditer(text)]
        self._left = [*found, ("sign", _END)][::-1]

    def fields(self, path: str, end: str) -> list[pa.Field]:
        """The fields up to a sign."""
        found = list[pa.Field]()
        while not self._take(end):
            if found:
                self._need(",")
            field = self._field(path)
            if field.name in (other.name for other in found):
                raise BadOption(f"payloadSchema: column {path}{field.name} is there twice")
            found.append(field)
        return found

    def _field(self, path: str) -> pa.Field:
        kind, name = self._next()
        if kind not in ("quoted", "word"):
            raise _unexpected("a name", name)
        name = name.replace("``", "`") if kind == "quoted" else name
        self._take(":")
        data_type = self._type(f"{path}{name}")
        if self._take("NOT"):
            self._need("NULL")
        comment = self._next()[1] if self._take("COMMENT") else ""
        return pa.field(name, data_type, True, {"comment": comment[1:-1]} if comment else None)

    def _type(self, path: str) -> pa.DataType:
        kind, text = self._next()
        word = _SAME.get(text.upper(), text.upper())
        if kind != "word":
            raise _unexpected(f"a type for column {path}", text)
        if word == "ARRAY":
            self._need("<")
            element = self._type(path)
            self._need(">")
            return list_of(element)
        if word == "STRUCT":
            self._need("<")
            return pa.struct(self.fields(f"{path}.", ">"))
        if word == "DECIMAL":
            return self._decimal(path)
        if word not in TYPES:
            raise unreadable(f"payloadSchema: column {path}", word)
        return TYPES[word]

    def _decimal(self, path: str) -> pa.DataType:
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
        return pa.decimal128(*map(int, numbers))

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
