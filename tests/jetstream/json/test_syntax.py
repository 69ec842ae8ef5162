"""JSON text to a tree. What nats-server says of broken JSON is compared in test_same_as_nats_server.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.json.syntax import ITEMS_MAX, BadJson, Node, parse_values

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def plain(node: Node) -> Any:
    """The value that a tree stands for."""
    value: Any = node.value
    if node.kind == "object":
        return {key: plain(item) for key, item in value}
    if node.kind == "array":
        return [plain(item) for item in value]
    return json.loads(value) if node.kind == "number" else value


@given(VALUES, st.booleans())
def test_it_reads_what_is_json(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "replace")
    expected = json.loads(text.decode("utf-8"))
    assert [plain(node) for node in parse_values(text)] == [_whole_characters(expected)]


def _whole_characters(value: Any) -> Any:
    """Halves of surrogate pairs become U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_whole_characters(item) for item in value]
    if isinstance(value, dict):
        return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    return value


@given(st.binary(max_size=60))
def test_any_bytes_are_json_or_refused(data: bytes) -> None:
    try:
        parse_values(data)
    except BadJson as error:
        assert str(error)


@given(VALUES, st.data())
def test_it_takes_no_prefix_for_a_whole(value: Any, data: st.DataObject) -> None:
    text = json.dumps({"v": value}).encode()
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(BadJson, match="EOF"):
        parse_values(text[:cut])


def test_values_may_follow_each_other() -> None:
    assert [plain(node) for node in parse_values(b' {"a":1}[2] "x"')] == [{"a": 1}, [2], "x"]


def test_a_tree_may_not_be_deeper_than_in_go() -> None:
    parse_values(b"[" * 10_000 + b"]" * 10_000)
    with pytest.raises(BadJson, match="exceeded max depth at offset 10001"):
        parse_values(b"[" * 100_000)


@pytest.mark.parametrize("text", [b"[%s1]" % (b"1," * ITEMS_MAX), b"{%s}" % b",".join([b'"a":1'] * ITEMS_MAX)])
def test_a_value_with_too_much_in_it_is_refused_once_it_is_looked_at(text: bytes) -> None:
    (node,) = parse_values(text)
    with pytest.raises(BadJson, match="more than"):
        list(node.items())


def test_too_many_strings_are_refused() -> None:
    assert parse_values(b'["a","b"]')[0].strings() == ["a", "b"]
    assert parse_values(b'["a",1]')[0].strings() is None
    assert parse_values(b'["a",["b"]]')[0].strings() is None
    with pytest.raises(BadJson, match="more than"):
        parse_values(b'[%s"a"]' % (b'"a",' * ITEMS_MAX))[0].strings()


def test_too_many_values_one_after_the_other_are_refused() -> None:
    with pytest.raises(BadJson, match="more than"):
        parse_values(b"{}" * 1000)


def test_a_node_knows_its_text() -> None:
    pairs: Any = parse_values(b'{"a": 1.50e+3 , "b":"\\u0041"}')[0].value
    assert [(key, node.text) for key, node in pairs] == [("a", "1.50e+3"), ("b", '"\\u0041"')]
