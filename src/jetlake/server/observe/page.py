"""A page as JSON text, a piece at a time: one with 100,000 entries must not keep others from their turn.

What may be long in a page is an `Items` instead of a list. Its entries are made when their turn to be encoded has come,
so a long page is no picture of one moment; what is gone by then is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from jetlake.wire.json_text import encode_json

AT_ONCE = 64  # entries that make one piece
_STEP = b"  "


def items(entries: Iterable[Any], count: int) -> list[Any] | Items:
    """A list of about so many entries, which are made as they are encoded if they are many."""
    return list(entries) if count <= AT_ONCE else Items(entries)


class Items:
    """A list whose entries are made as they are encoded; once only."""

    def __init__(self, entries: Iterable[Any]) -> None:
        self._entries = iter(entries)

    def take(self) -> list[Any]:
        """The next few entries; none at the end."""
        return list(islice(self._entries, AT_ONCE))


def encode_page(page: object, *, indent: bool = False, level: int = 0) -> Iterator[bytes]:
    """The pieces of a page's text."""
    if isinstance(page, Items):
        return _encode_items(page, indent, level)
    try:
        return iter((_encode(page, indent, level),))
    except TypeError:  # there are Items in it: to look for them first would take longer
        if isinstance(page, dict):
            return _encode_dict(page, indent, level)
        if isinstance(page, list):
            return _encode_items(Items(page), indent, level)
        raise


def _encode(value: object, indent: bool, level: int) -> bytes:
    text = encode_json(value)
    if indent:
        text = msgspec.json.format(text, indent=len(_STEP)).replace(b"\n", _new_line(indent, level))
    return text


def _new_line(indent: bool, level: int) -> bytes:
    return b"\n" + _STEP * level if indent else b""


def _encode_dict(page: dict[str, Any], indent: bool, level: int) -> Iterator[bytes]:
    start, colon = b"{", b": " if indent else b":"
    for name, value in page.items():
        yield start + _new_line(indent, level + 1) + encode_json(name) + colon
        yield from encode_page(value, indent=indent, level=level + 1)
        start = b","
    yield _new_line(indent, level) + b"}"


def _encode_items(items: Items, indent: bool, level: int) -> Iterator[bytes]:
    start = b"["
    while some := items.take():
        try:
            text = _encode(some, indent, level)
        except TypeError:
            for entry in some:
                yield start + _new_line(indent, level + 1)
                yield from encode_page(entry, indent=indent, level=level + 1)
                start = b","
        else:
            yield start + text[1:-1].rstrip()  # without its brackets
            start = b","
    yield _new_line(indent, level) + b"]" if start == b"," else b"[]"
