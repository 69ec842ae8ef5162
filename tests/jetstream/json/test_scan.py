"""Where the values of a JSON text begin and end, by both twins."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.json import _scan_py as codes
from jetlake.jetstream.json.scan import scan
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

NAME = "jetlake.jetstream.json._scan"
PIECES = st.sampled_from(
    [
        *'{}[],:" \n\\-+.eE019',
        "true",
        "false",
        "null",
        "nul",
        '"a"',
        '"a":',
        "\\u00e9",
        "\\ud8",
        "\x00",
        "é",
        "1.5e3",
        "u",
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map(lambda pieces: "".join(pieces).encode())


@needs_kernels
def test_the_kernel_is_in_use() -> None:
    assert scan is load_twin(NAME, "c").scan


@needs_kernels
@given(TEXTS | st.binary(max_size=20), st.integers(0, 3))
def test_twins_agree_on_any_text(data: bytes, depth_max: int) -> None:
    one, two = (twin.scan(data, 0, depth_max) for twin in load_twins(NAME))
    assert one == two


@both_twins
def test_every_value_knows_where_it_ends(kind: str) -> None:
    data = b' {"a":[1,"\\n"],"b":null} '
    words, status, end = load_twin(NAME, kind).scan(data, 0, 10)
    groups = [tuple(words[at : at + codes.WORDS]) for at in range(0, len(words), codes.WORDS)]
    assert (status, end) == (codes.OK, len(data) - 1)
    assert [(kind, data[start:stop], following) for kind, start, stop, following in groups] == [
        (codes.OBJECT, data.strip(), 7),
        (codes.STRING, b'"a"', 2),
        (codes.ARRAY, b'[1,"\\n"]', 5),
        (codes.NUMBER, b"1", 4),
        (codes.TEXT, b'"\\n"', 5),
        (codes.STRING, b'"b"', 6),
        (codes.NULL, b"null", 7),
    ]


@both_twins
@pytest.mark.parametrize(
    ("text", "status", "offset"),
    [
        (b"", codes.EOF, 0),
        (b"[1", codes.EOF, 2),
        (b'"\\u12', codes.EOF, 5),
        (b"[[[", codes.DEPTH, 2),
        (b'"\\x"', codes.ESCAPE, 1),
        (b'"\\u12x4"', codes.ESCAPE, 1),
        (b'"a\n"', codes.IN_STRING, 2),
        (b"-x", codes.IN_NUMBER, 1),
        (b"1.e", codes.IN_NUMBER, 2),
        (b"[,", codes.NO_VALUE, 1),
        (b"{1", codes.NO_KEY, 1),
        (b'{"a" 1', codes.AFTER_KEY, 5),
        (b'{"a":1 1', codes.AFTER_PAIR, 7),
        (b"[1 1", codes.AFTER_ELEMENT, 3),
        (b"trie", codes.IN_LITERAL + 2, 2),
        (b"nul!", codes.IN_LITERAL + 8 * 2 + 3, 3),
    ],
)
def test_what_is_wrong_and_where(kind: str, text: bytes, status: int, offset: int) -> None:
    assert load_twin(NAME, kind).scan(text, 0, 2)[1:] == (status, offset)


@both_twins
@given(value=st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner, max_size=3)))
def test_what_is_json_is_scanned_to_its_end(kind: str, value: Any) -> None:
    text = json.dumps(value).encode()
    assert load_twin(NAME, kind).scan(text, 0, 100)[1:] == (codes.OK, len(text))
