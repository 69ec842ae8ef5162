"""Requests by their shape. nats-server's words for what does not fit are compared in test_same_as_nats_server.py."""

from __future__ import annotations

from typing import Any

import pytest

from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.json.shape import (
    BOOL,
    INT64,
    STRING,
    STRINGS,
    TIME,
    UINT64,
    Enum,
    List,
    Struct,
    is_empty_request,
    is_json,
    read_request,
)

INNER = Struct("Inner", {"flag": BOOL})
SHAPE = Struct(
    "Outer",
    {
        "text": STRING,
        "number": INT64,
        "size": UINT64,
        "texts": STRINGS,
        "at": TIME,
        "word": Enum({"one": 1, "two": 2}),
        "inner": INNER,
        "inners": List(INNER),
    },
)


def problem(payload: bytes, **options: Any) -> str:
    with pytest.raises(ApiError) as caught:
        read_request(payload, SHAPE, **options)
    assert caught.value.err_code == 10025
    return caught.value.description.removeprefix("invalid JSON: ")


def test_only_what_is_given_is_in_the_result() -> None:
    assert read_request(b'{"text":"x","number":-5}', SHAPE) == {"text": "x", "number": -5}
    assert read_request(b"", SHAPE) == {}


def test_null_is_not_given() -> None:
    assert read_request(b'{"text":null,"inner":null}', SHAPE) == {}
    assert read_request(b'{"texts":["a",null]}', SHAPE) == {"texts": ("a", "")}


def test_names_match_in_any_case() -> None:
    assert read_request(b'{"TEXT":"a","Number":1}', SHAPE) == {"text": "a", "number": 1}


def test_later_values_add_to_earlier_ones() -> None:
    assert read_request(b'{"text":"a","number":1} {"number":2}', SHAPE) == {"text": "a", "number": 2}


def test_unknown_fields_are_refused_unless_told_otherwise() -> None:
    assert problem(b'{"nope":1}') == 'json: unknown field "nope"'
    assert problem(b'{"inners":[{"nope":1}]}') == 'json: unknown field "nope"'
    assert read_request(b'{"nope":1,"number":1}', SHAPE, strict=False) == {"number": 1}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"[]", "json: cannot unmarshal array into Go value of type server.Outer"),
        (b'{"text":1}', "json: cannot unmarshal number into Go struct field Outer.text of type string"),
        (b'{"size":-1}', "json: cannot unmarshal number -1 into Go struct field Outer.size of type uint64"),
        (b'{"texts":[1]}', "json: cannot unmarshal number into Outer.texts.0 of type string"),
        (b'{"inner":{"flag":1}}', "json: cannot unmarshal number into Go struct field Outer.inner.flag of type bool"),
        (b'{"word":"three"}', 'can not unmarshal "\\"three\\""'),
        (b'{"word":null}', 'can not unmarshal "null"'),
    ],
)
def test_what_does_not_fit_is_refused(payload: bytes, text: str) -> None:
    assert problem(payload) == text


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_numbers_have_bounds(number: int) -> None:
    assert "of type int64" in problem(b'{"number":%d}' % number)


def test_the_first_mistake_is_told() -> None:
    assert "nope" in problem(b'{"nope":1,"text":1}')
    assert "Outer.text" in problem(b'{"text":1,"nope":1}')


@pytest.mark.parametrize(("payload", "expected"), [(b"{", True), (b" \n[", True), (b"x", False), (b"", False)])
def test_is_json(payload: bytes, expected: bool) -> None:
    assert is_json(payload) is expected


@pytest.mark.parametrize(
    ("payload", "expected"),
    [(b"", True), (b"{}", True), (b" { } ", True), (b"[]", False), (b"{", False), (b"0", False)],
)
def test_is_empty_request(payload: bytes, expected: bool) -> None:
    assert is_empty_request(payload) is expected
