"""JSON text to a tree, with the words of Go's decoder for what is not JSON.

A request may be several values one after the other: Go's decoder reads them all into the same place. Bytes that are not
UTF-8, and halves of surrogate pairs, become U+FFFD, as they do in Go.
"""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

_DEPTH_MAX = 200
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_START = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+(?:[eE][+-]?)?)?|[eE][+-]?)?)?")
_WHOLE_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_AT_OFFSET = re.compile(r" at offset \d+$")
_EOF = "unexpected EOF"
_LITERALS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}

Pairs = list[tuple[str, "Node"]]


class Node(NamedTuple):
    """A value: its kind in Go's words, what it holds, and its text.

    kind        value
    object      pairs of key and Node, in order, repeated keys included
    array       a list of Nodes
    string      str
    number      the same text again
    bool        True or False
    null        None
    """

    kind: str
    value: object
    text: str


class BadJson(ValueError):
    """A text that is not JSON, in Go's words."""


def parse_values(data: bytes) -> list[Node]:
    """All values of a request; none when it is blank. Raises BadJson."""
    scanner = _Scanner(data.decode("utf-8", "surrogateescape"))
    nodes = []
    while not scanner.is_at_end():
        nodes.append(scanner.value(0))
    return nodes


def parse_value(data: bytes) -> Node:
    """The one value of a text, as Go's Unmarshal reads it: its errors name no offset. Raises BadJson."""
    scanner = _Scanner(data.decode("utf-8", "surrogateescape"))
    try:
        node = scanner.value(0)
        if not scanner.is_at_end():
            raise scanner.unexpected("after top-level value")
    except BadJson as error:
        text = str(error)
        raise BadJson("unexpected end of JSON input" if text == _EOF else _AT_OFFSET.sub("", text)) from None
    return node


class _Scanner:
    """A position in a text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def is_at_end(self) -> bool:
        self.skip_space()
        return self.at == len(self.text)

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def value(self, depth: int) -> Node:
        if depth > _DEPTH_MAX:
            raise BadJson("exceeded max depth")
        self.skip_space()
        start, char = self.at, self.peek()
        if char == "{":
            return self.node("object", self.pairs(depth), start)
        if char == "[":
            return self.node("array", self.items(depth), start)
        if char == '"':
            return self.node("string", self.string(), start)
        if char in _LITERALS:
            return self.literal(*_LITERALS[char])
        if char == "-" or "0" <= char <= "9":
            number = self.number()
            return self.node("number", number, start)
        raise self.unexpected("looking for beginning of value")

    def node(self, kind: str, value: object, start: int) -> Node:
        return Node(kind, value, _readable(self.text[start : self.at]))

    def pairs(self, depth: int) -> Pairs:
        found: Pairs = []
        if self.is_empty("}"):
            return found
        while True:
            self.skip_space()
            if self.peek() != '"':
                raise self.unexpected("looking for beginning of object key string")
            key = self.string()
            self.skip_space()
            if self.peek() != ":":
                raise self.unexpected("after object key")
            self.at += 1
            found.append((key, self.value(depth + 1)))
            if not self.goes_on("}", "after object key:value pair"):
                return found

    def items(self, depth: int) -> list[Node]:
        found: list[Node] = []
        if self.is_empty("]"):
            return found
        while True:
            found.append(self.value(depth + 1))
            if not self.goes_on("]", "after array element"):
                return found

    def is_empty(self, close: str) -> bool:
        """Step into an object or array; True (and out again) when it is empty."""
        self.at += 1
        self.skip_space()
        if self.peek() != close:
            return False
        self.at += 1
        return True

    def goes_on(self, close: str, context: str) -> bool:
        self.skip_space()
        char = self.peek()
        if char not in (",", close):
            raise self.unexpected(context)
        self.at += 1
        return char == ","

    def string(self) -> str:
        found: str
        try:
            found, self.at = scanstring(self.text, self.at + 1, True)
        except JSONDecodeError as error:
            raise self.bad_string(error) from None
        return _readable(found)

    def bad_string(self, error: JSONDecodeError) -> BadJson:
        self.at = error.pos
        if error.msg.startswith("Unterminated"):
            return BadJson(_EOF)
        if error.msg.startswith("Invalid control"):
            return self.unexpected("in string")
        start = self.text.rindex("\\", 0, self.at + 1)
        size = 6 if self.text[start + 1 : start + 2] == "u" else 2
        escape = self.text[start : start + size]
        if len(escape) < size or _WHOLE_ESCAPE.fullmatch(escape):  # nothing wrong with it: the rest is missing
            return BadJson(_EOF)
        return BadJson(f"invalid escape sequence `{_readable(escape)}` in string at offset {start + size}")

    def literal(self, word: str, value: object) -> Node:
        start = self.at
        for char in word:
            if self.peek() != char:
                raise self.unexpected(f"in literal {word} (expecting '{char}')")
            self.at += 1
        return self.node("null" if value is None else "bool", value, start)

    def number(self) -> str:
        start, match = self.at, _NUMBER.match(self.text, self.at)
        begun = _NUMBER_START.match(self.text, start)
        assert begun is not None
        if match is None or begun.end() > match.end():
            self.at = begun.end()
            raise self.unexpected("in numeric literal")
        self.at = match.end()
        return match[0]

    def peek(self) -> str:
        if self.at >= len(self.text):
            raise BadJson(_EOF)
        return self.text[self.at]

    def unexpected(self, context: str) -> BadJson:
        if self.at >= len(self.text):
            return BadJson(_EOF)
        offset = len(self.text[: self.at].encode("utf-8", "surrogateescape")) + 1
        return BadJson(f"invalid character {_quoted(self.text[self.at])} {context} at offset {offset}")


def _readable(text: str) -> str:
    """A text with U+FFFD for what is no character: bytes that are not UTF-8, and halves of surrogate pairs."""
    if _SURROGATE.search(text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _quoted(char: str) -> str:
    """A character as Go shows it."""
    if "\udc80" <= char <= "\udcff":  # a byte that is not UTF-8
        return f"'\\x{ord(char) & 0xFF:02x}'"
    if char == '"':
        return "'\"'"
    return f"'\\{char}'" if char in "'\\" else f"'{char}'" if char.isprintable() else repr(char)
