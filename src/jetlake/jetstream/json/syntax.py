"""JSON text to a tree, with the words of Go's decoder for what is not JSON.

A request may be several values one after the other: Go's decoder reads them all into the same place. Bytes that are not
UTF-8, and halves of surrogate pairs, become U+FFFD, as they do in Go.

A request may be a megabyte of which three fields matter. So a kernel finds out where everything is (`scan`), and a
Node is made of those values only that somebody looks at. No more than ITEMS_MAX of them in one array or object can be.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]

from jetlake.jetstream.json import _scan_py as codes
from jetlake.jetstream.json.scan import scan

_DEPTH_MAX = 10_000  # as in Go
ITEMS_MAX = 20_000  # of one array or object that is looked at; Go has no bound
_VALUES_MAX = 100  # one after the other
_SPACE = b" \t\r\n"
_SURROGATE = re.compile("[\ud800-\udfff]")
_AT_OFFSET = re.compile(r" at offset \d+$")
_EOF = "unexpected EOF"
_KINDS = ("object", "array", "string", "string", "number", "bool", "bool", "null")
_CONTEXTS = {
    codes.IN_STRING: "in string",
    codes.IN_NUMBER: "in numeric literal",
    codes.NO_VALUE: "looking for beginning of value",
    codes.NO_KEY: "looking for beginning of object key string",
    codes.AFTER_KEY: "after object key",
    codes.AFTER_PAIR: "after object key:value pair",
    codes.AFTER_ELEMENT: "after array element",
}

Pairs = list[tuple[str, "Node"]]


class Node:
    """A value: its kind in Go's words, what it holds, and its text.

    kind        value
    object      pairs of key and Node, in order, repeated keys included
    array       a list of Nodes
    string      str
    number      the same text again
    bool        True or False
    null        None
    """

    __slots__ = ("_at", "_data", "_words")

    def __init__(self, data: bytes, words: array[int], at: int = 0) -> None:
        self._data, self._words = data, words
        self._at = at * codes.WORDS

    @property
    def kind(self) -> str:
        return _KINDS[self._words[self._at]]

    @property
    def value(self) -> object:
        kind = self._words[self._at]
        if kind == codes.OBJECT:
            return list(self.pairs())
        if kind == codes.ARRAY:
            return list(self.items())
        if kind in (codes.STRING, codes.TEXT):
            return _string(self._data, self._words, self._at)
        return self.text if kind == codes.NUMBER else {codes.TRUE: True, codes.FALSE: False}.get(kind)

    @property
    def text(self) -> str:
        return _readable(_decode(self._data, self._words[self._at + 1], self._words[self._at + 2]))

    def items(self) -> Iterator[Node]:
        """What is right inside an array; of an object, keys and values in turn. Raises BadJson if that is too much."""
        words, count = self._words, 0
        at, stop = self._at // codes.WORDS + 1, words[self._at + 3]
        while at < stop:
            yield Node(self._data, words, at)
            at, count = words[at * codes.WORDS + 3], count + 1
            if count > ITEMS_MAX:
                raise BadJson(_TOO_MANY)

    def pairs(self) -> Iterator[tuple[str, Node]]:
        """The keys and values of an object. Raises BadJson if they are too many."""
        items = self.items()
        for key in items:
            yield _string(self._data, self._words, key._at), next(items)

    def strings(self) -> list[str] | None:
        """What an array of nothing but strings holds; None when this is something else. Raises BadJson as `items`."""
        data, words, first = self._data, self._words, self._at + codes.WORDS
        stop = words[self._at + 3] * codes.WORDS
        if words[self._at] != codes.ARRAY or not _STRINGS.issuperset(words[first : stop : codes.WORDS]):
            return None
        if stop - first > ITEMS_MAX * codes.WORDS:
            raise BadJson(_TOO_MANY)
        return [_string(data, words, at) for at in range(first, stop, codes.WORDS)]


class BadJson(ValueError):
    """A text that is not JSON, in Go's words."""


_TOO_MANY = f"more than {ITEMS_MAX} values in one array or object"
_STRINGS = {codes.STRING, codes.TEXT}


def parse_values(data: bytes) -> list[Node]:
    """All values of a request; none when it is blank. Raises BadJson."""
    nodes: list[Node] = []
    end, stop = 0, len(data.rstrip(_SPACE))
    while end < stop:
        node, end = _parse(data, end)
        nodes.append(node)
        if len(nodes) > _VALUES_MAX:
            raise BadJson(f"more than {_VALUES_MAX} values one after the other")
    return nodes


def parse_value(data: bytes) -> Node:
    """The one value of a text, as Go's Unmarshal reads it: its errors name no offset. Raises BadJson."""
    try:
        node, end = _parse(data, 0)
        rest = data[end:].lstrip(_SPACE)
        if rest:
            raise _unexpected(data, len(data) - len(rest), "after top-level value")
    except BadJson as error:
        text = str(error)
        raise BadJson("unexpected end of JSON input" if text == _EOF else _AT_OFFSET.sub("", text)) from None
    return node


def _parse(data: bytes, start: int) -> tuple[Node, int]:
    """The value that begins at or after an offset, and the offset behind it."""
    words, status, offset = scan(data, start, _DEPTH_MAX)
    if status != codes.OK:
        raise _problem(data, status, offset)
    return Node(data, words), offset


def _problem(data: bytes, status: int, offset: int) -> BadJson:
    """What is wrong at an offset."""
    if status == codes.EOF:
        return BadJson(_EOF)
    if status == codes.DEPTH:
        return BadJson(f"exceeded max depth at offset {offset + 1}")
    if status == codes.ESCAPE:
        return _bad_escape(data, offset)
    if status >= codes.IN_LITERAL:
        number, place = divmod(status - codes.IN_LITERAL, 8)
        word = codes.LITERALS[number].decode()
        return _unexpected(data, offset, f"in literal {word} (expecting '{word[place]}')")
    return _unexpected(data, offset, _CONTEXTS[status])


def _unexpected(data: bytes, offset: int, context: str) -> BadJson:
    char = _decode(data, offset, offset + 4)[0]
    return BadJson(f"invalid character {_quoted(char)} {context} at offset {offset + 1}")


def _bad_escape(data: bytes, start: int) -> BadJson:
    size = 6 if data[start + 1 : start + 2] == b"u" else 2
    escape = _decode(data, start, start + 4 * size)[:size]
    if len(escape) < size:
        return BadJson(_EOF)
    end = start + len(escape.encode("utf-8", "surrogateescape"))
    return BadJson(f"invalid escape sequence `{_readable(escape)}` in string at offset {end}")


def _string(data: bytes, words: array[int], at: int) -> str:
    if words[at] == codes.STRING:
        return data[words[at + 1] + 1 : words[at + 2] - 1].decode("ascii")
    found: str = scanstring(_decode(data, words[at + 1], words[at + 2]), 1, True)[0]
    return _readable(found)


def _decode(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode("utf-8", "surrogateescape")


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
