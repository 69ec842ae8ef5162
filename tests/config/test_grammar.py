"""config/grammar.py: text to values."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.config.grammar import DEPTH_MAX, parse_file, parse_text
from jetlake.config.value import ConfigError, Value


def parsed(text: str, environ: dict[str, str] | None = None) -> object:
    return parse_text(text, environ=environ or {}).plain()


def failure(text: str, environ: dict[str, str] | None = None) -> tuple[int, int, str]:
    with pytest.raises(ConfigError) as raised:
        parse_text(text, "f.conf", environ or {})
    assert raised.value.where and raised.value.file == "f.conf"
    return raised.value.where.line, raised.value.where.column, raised.value.problem


@pytest.mark.parametrize(
    "text",
    ["port: 4222", "port = 4222", "port 4222", "port:4222", "port=4222;", "'port': 4222,", '"port" 4222', "port\n4222"],
)
def test_a_key_and_its_value_are_separated_in_many_ways(text: str) -> None:
    assert parsed(text) == {"port": 4222}


def test_comments_stand_on_their_own_lines_and_behind_values() -> None:
    text = "# one\n// two\nport: 1 # three\nhost: h // four\nm {\n # five\n a: 1 // six\n}\nl [ # seven\n 1 // eight\n]"
    assert parsed(text) == {"port": 1, "host": "h", "m": {"a": 1}, "l": [1]}


def test_an_empty_file_is_an_empty_map() -> None:
    assert parsed(" \n # nothing\n") == {}


def test_maps_nest_and_their_brace_may_stand_on_the_next_line() -> None:
    assert parsed("a {\n b: {c 1, d: 2; e=3}\n}\nf\n{\n g: 4\n}\nh: {}") == {
        "a": {"b": {"c": 1, "d": 2, "e": 3}},
        "f": {"g": 4},
        "h": {},
    }


def test_items_of_an_array_are_separated_by_commas_or_new_lines() -> None:
    assert parsed("a: [1, two, 'three'\n four\n\n {b: 5}\n [6],\n]\nc []") == {
        "a": [1, "two", "three", "four", {"b": 5}, [6]],
        "c": [],
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("nats://a.b:1/c", "nats://a.b:1/c"),
        ("/tmp/a$b/c.d", "/tmp/a$b/c.d"),
        ("foo.*.>", "foo.*.>"),
        ("10s", "10s"),
        ("a#b", "a#b"),
        ("'a \"b\" \\n'", 'a "b" \\n'),
        (r'"a\tb\n\"\\\x41"', 'a\tb\n"\\A'),
        (r"a\tb", "a\tb"),
        ('""', ""),
        ('"true"', "true"),
        ('"12"', "12"),
        ("$2a$11$abc.def/", "$2a$11$abc.def/"),
    ],
)
def test_strings_are_bare_or_quoted(text: str, value: str) -> None:
    assert parsed(f"a: {text}") == {"a": value}
    assert parsed(f"a: [{text}]") == {"a": [value]}


def test_a_block_string_ends_at_a_parenthesis_alone_on_its_line() -> None:
    assert parsed("a (\n x ) y\n  )\n)\nb: 1") == {"a": "\n x ) y\n  )\n", "b": 1}
    assert parsed("a (\nx\n)") == {"a": "\nx\n"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("Yes", True), ("ON", True), ("false", False), ("no", False), ("off", False)],
)
def test_booleans_have_six_words(text: str, value: bool) -> None:
    assert parsed(f"a: {text}") == {"a": value}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("007", 7),
        ("1k", 1000),
        ("1KB", 1024),
        ("1ki", 1024),
        ("1KiB", 1024),
        ("64MB", 64 << 20),
        ("2m", 2_000_000),
        ("3g", 3_000_000_000),
        ("3GiB", 3 << 30),
        ("1t", 10**12),
        ("1tb", 1 << 40),
        ("1p", 10**15),
        ("1pib", 1 << 50),
        ("1e", 10**18),
        ("1eb", 1 << 60),
        ("-2k", -2000),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("2026-11-15T22:00:00Z", datetime(2026, 11, 15, 22, tzinfo=UTC)),
    ],
)
def test_numbers_have_units_and_dates_are_zulu(text: str, value: object) -> None:
    for around in ("a: %s", "a: %s,", "{a: %s}", "a: %s # c"):
        assert parsed(around % text) == {"a": value}
    assert parsed(f"a: [{text}]") == {"a": [value]}


def test_a_key_given_twice_keeps_its_last_value() -> None:
    assert parsed("a: 1\na: 2") == {"a": 2}


def test_a_whole_file_may_be_json() -> None:
    content = {"port": 4567, "jetstream": True, "a": [1, "x", {"b": -1.5}], "c": {"d": {}}}
    assert parsed(json.dumps(content)) == content
    assert parsed(json.dumps(content, indent=2) + "\n") == content


def test_every_value_remembers_its_place() -> None:
    top = parse_text("a: 1\nb {\n  c: [x,\n   y]\n}", "f.conf", {})
    assert isinstance(top.data, dict)
    inner = top.data["b"].data
    assert isinstance(inner, dict)
    items = inner["c"].data
    assert isinstance(items, list)
    assert inner["c"].key_where == ("f.conf", 3, 3) and inner["c"].where == ("f.conf", 3, 6)
    assert [item.where for item in items] == [("f.conf", 3, 7), ("f.conf", 4, 4)]


# ---------------------------------------------------------------------------------------------- variables


def test_a_variable_is_looked_for_outwards_then_in_the_environment() -> None:
    text = "X: 1\na { X: 2, b { c: $X } }\nd: $X\ne: $ENV"
    assert parsed(text, {"X": "9", "ENV": "64MB"}) == {
        "X": 1,
        "a": {"X": 2, "b": {"c": 2}},
        "d": 1,
        "e": 64 << 20,
    }


def test_a_variable_may_hold_a_map_or_an_array() -> None:
    assert parsed("P: {allow: [a]}\nx: $P\ny: [$P]", {}) == {
        "P": {"allow": ["a"]},
        "x": {"allow": ["a"]},
        "y": [{"allow": ["a"]}],
    }
    assert parsed("x: $L", {"L": "[1, 2]"}) == {"x": [1, 2]}


def test_a_variable_of_the_environment_may_name_another() -> None:
    assert parsed("x: $A", {"A": "$B", "B": "yes"}) == {"x": True}


def test_a_cycle_of_variables_is_an_error() -> None:
    line, column, problem = failure("\nx: $A", {"A": "$B", "B": "$A"})
    assert (line, column) == (2, 4) and "refers to itself" in problem


def test_an_unknown_variable_is_an_error() -> None:
    assert failure("x: $NOPE")[2].startswith("the variable $NOPE is neither set before this line")


def test_a_variable_of_the_environment_that_cannot_be_parsed_is_an_error_at_its_use() -> None:
    line, _, problem = failure("x: $A", {"A": "[1"})
    assert line == 1 and problem.startswith("the variable $A cannot be used: expected ']'")


# ---------------------------------------------------------------------------------------------- includes


def test_an_include_is_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.conf").write_text("port: 1\ninclude 'sub/b.conf'\nm { include ./sub/c.conf }\nz: $Y")
    (tmp_path / "sub" / "b.conf").write_text('include "c.conf"\nY: 2')
    (tmp_path / "sub" / "c.conf").write_text("x: 1")
    top = parse_file(tmp_path / "a.conf", {})
    assert top.plain() == {"port": 1, "x": 1, "Y": 2, "m": {"x": 1}, "z": 2}
    assert isinstance(top.data, dict)
    assert top.data["x"].where.file == str(tmp_path / "sub" / "c.conf")


def test_a_file_that_includes_itself_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("include b.conf")
    (tmp_path / "b.conf").write_text("\n include a.conf")
    with pytest.raises(ConfigError, match=r"b\.conf:2:10: a\.conf includes itself"):
        parse_file(tmp_path / "a.conf", {})


def test_includes_have_a_bounded_depth(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.conf").write_text(f"include {number + 1}.conf")
    with pytest.raises(ConfigError, match="more than 10 files include each other"):
        parse_file(tmp_path / "0.conf", {})


def test_a_missing_file_is_an_error_at_its_include(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("port: 1\ninclude b.conf")
    with pytest.raises(ConfigError, match=r"a\.conf:2:9: cannot include b\.conf: No such file"):
        parse_file(tmp_path / "a.conf", {})
    with pytest.raises(ConfigError, match="cannot read the configuration file"):
        parse_file(tmp_path / "missing.conf", {})


def test_a_file_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_bytes(b"port: 1\n\xff")
    with pytest.raises(ConfigError, match="byte 8 is not UTF-8"):
        parse_file(tmp_path / "a.conf", {})


# ---------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("a: 1\nb:\n", 2, 3, "expected a value for 'b', found a new line"),
        ("a", 1, 2, "expected a value for 'a', found the end of the file"),
        ("a {\n b: 1\n", 3, 1, "expected '}' to close what line 1 column 3 opens, found the end of the file"),
        ("a [1,\n", 2, 1, "expected ']' to close what line 1 column 3 opens, found the end of the file"),
        ("a: 1 b: 2", 1, 6, "expected a new line or ',' after the value, found 'b'"),
        ("m {a: 1 b: 2}", 1, 9, "expected a new line or ',' after the value, or '}', found 'b'"),
        ("a [1 2]", 1, 6, "expected a new line or ',' after the value, or ']', found '2'"),
        ("a [1,,2]", 1, 6, "expected an item of the array or ']', found ','"),
        ("a: 1\n}", 2, 1, "expected a key, found '}'"),
        (": 1", 1, 1, "expected a key, found ':'"),
        ("jetstream{\n}", 1, 10, "expected a space or ':' after the key 'jetstream', found '{'"),
        ('a: "x', 1, 4, 'the text opened with " here is never closed'),
        ("a: 'x", 1, 4, "the text opened with ' here is never closed"),
        (r'a: "\q"', 1, 5, 'unknown escape: expected \\xXX, \\t, \\n, \\r, \\" or \\\\'),
        (r'a: "\xZ1"', 1, 5, "expected two hexadecimal digits after \\x"),
        ("a: 1kbb", 1, 4, "unknown unit 'kbb': expected one of k, kb, ki, kib, m, mb, … e, eb, ei, eib"),
        ("a: 10e", 1, 4, "the integer is out of range: it must fit in 64 bits"),
        ("a: 2026-13-01T00:00:00Z", 1, 4, "2026-13-01T00:00:00Z is not a date of the calendar"),
        ("a: -x", 1, 4, "expected a number that starts with a digit; quote it if it is a string"),
        ("a: it's", 1, 6, "a quote inside a bare string; quote the whole value"),
        ("a (\nx", 1, 3, "the block opened with ( here has no ) alone on a line"),
        ("include x", 1, 9, "include is only possible in a file"),
        ("include\n", 1, 8, "expected the name of a file to include, found a new line"),
        ("a: \0", 1, 4, "a NUL character is not text"),
    ],
)
def test_an_error_says_where_and_what_was_expected(text: str, line: int, column: int, problem: str) -> None:
    assert failure(text) == (line, column, problem)


def test_nesting_is_bounded() -> None:
    assert f"more than {DEPTH_MAX} maps" in failure("a: " + "[" * 100_000)[2]
    assert f"more than {DEPTH_MAX} maps" in failure("a {" * 100_000)[2]
    assert failure("{" * 100_000)[2] == "expected a key, found '{'"


def test_thousands_of_digits_are_out_of_range() -> None:
    assert "out of range" in failure("a: " + "9" * 10_000)[2]
    assert "out of range" in failure("a: " + "9" * 10_000 + ".0")[2]


_PIECES = st.sampled_from(
    [
        *"{}[]():=,;#$'\"\\-.\n\r\t 0a",
        "//",
        "key",
        "include ",
        "port",
        "1k",
        "2026-",
        "$A",
        "$2a$",
        "true",
        "(\n",
        "\n)\n",
        "\\x4",
    ]
)


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=30).map("".join)))
def test_any_text_gives_a_tree_or_a_config_error(text: str) -> None:
    try:
        top = parse_text(text, environ={"A": text})
    except ConfigError as error:
        assert error.where is not None
    else:
        assert isinstance(top, Value) and isinstance(top.data, dict)


_JSON = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\')),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text("abcdefgh_", min_size=1, max_size=8), inner, max_size=4),
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text("abcdefgh_", min_size=1, max_size=8), _JSON, max_size=5), st.sampled_from([None, 1]))
def test_json_is_read_as_json(content: dict[str, object], indent: int | None) -> None:
    assert parsed(json.dumps(content, indent=indent)) == content
