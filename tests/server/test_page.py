"""Pages as text: in pieces they are what they would be at once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jetlake.server.observe.page import AT_ONCE, Items, encode_page, items


def nested(make: Any, count: int) -> dict[str, Any]:
    """A page with lists in the entries of a list."""
    inner = [{"name": f"c{number}", "empty": {}, "none": [], "text": 'a\n"b"'} for number in range(count)]
    outer = [{"id": number, "consumers": make(inner), "config": {"a": [1, {"b": 2}]}} for number in range(4)]
    return {"now": "x", "server": {"id": 1, "all": make(outer[1:])}, "names": make(["a", "b"]), "few": outer[:1]}


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE])
def test_a_page_in_pieces_is_the_page_at_once(count: int) -> None:
    plain, pieces = msgspec.json.encode(nested(list, count)), list(encode_page(nested(Items, count)))
    assert b"".join(pieces) == plain
    indented = b"".join(encode_page(nested(Items, count), indent=True))
    assert indented == msgspec.json.format(plain, indent=2)


def test_a_page_without_long_lists_is_one_piece() -> None:
    assert list(encode_page({"a": [1, 2], "b": {}})) == [b'{"a":[1,2],"b":{}}']


def test_a_short_list_is_made_at_once() -> None:
    assert items(iter("ab"), 2) == ["a", "b"]
    assert isinstance(items(range(AT_ONCE + 1), AT_ONCE + 1), Items)


def test_an_entry_is_made_when_its_turn_has_come() -> None:
    made = []
    pieces = encode_page(Items(made.append(number) or number for number in range(2 * AT_ONCE)))
    next(pieces)
    assert len(made) == AT_ONCE


def test_names_that_are_not_utf_8_are_shown() -> None:
    assert b"".join(encode_page({"names": Items(["a\udcff"])})) == '{"names":["a\ufffd"]}'.encode()
