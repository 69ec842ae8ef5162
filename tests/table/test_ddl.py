"""Schemas in Spark's DDL: what Spark understands is understood, what JSON is not read as is named."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow")

from jetlake.table.ddl import check_readable, list_of, parse_ddl, type_name  # noqa: E402
from jetlake.table.errors import BadOption  # noqa: E402


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "struct<>"),
        ("a BIGINT, b String", "struct<a:bigint,b:string>"),
        ("a: long,b :byte", "struct<a:bigint,b:tinyint>"),
        ("a\tINT\n", "struct<a:int>"),
        (
            "`b c` STRUCT<x: INT, `y``z` ARRAY<STRUCT<>>>, c.d-e DATE",
            "struct<b c:struct<x:int,y`z:array<struct<>>>,c.d-e:date>",
        ),
        ("a DECIMAL, b DEC(5), c NUMERIC(10,2)", "struct<a:decimal(10,0),b:decimal(5,0),c:decimal(10,2)>"),
        ("a INT NOT NULL COMMENT 'x, y', b INT COMMENT 'it''s'", "struct<a:int,b:int>"),
    ],
)
def test_ddl_is_understood(text: str, expected: str) -> None:
    assert type_name(pa.struct(list(parse_ddl(text)))) == expected


def test_everything_may_be_null_and_comments_are_kept() -> None:
    found = parse_ddl("s STRUCT<x: INT NOT NULL> NOT NULL COMMENT 'a, b'")
    assert found == pa.schema([pa.field("s", pa.struct([pa.field("x", pa.int32())]))])
    assert found.field("s").metadata == {b"comment": b"a, b"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a INT,", "a name is expected, not the end"),
        ("a", "a type for column a is expected, not the end"),
        ("a INT b INT", ", is expected, not b"),
        ("a INT)", ", is expected, not \\)"),
        ("a STRUCT<b INT", ", is expected, not the end"),
        ("a ARRAY<INT", "> is expected, not the end"),
        ("a INT NOT 3", "NULL is expected, not 3"),
        ("a DECIMAL(", "\\) is expected, not the end"),
        ("a DECIMAL(50)", "column a: DECIMAL\\(50\\)"),
        ("s STRUCT<a: INT, a: INT>", "column s.a is there twice"),
        ("a FOO", "column a: JSON is not read as FOO; there are BOOLEAN, .* DECIMAL, ARRAY and STRUCT"),
        ("s STRUCT<a: ARRAY<VARIANT>>", "column s.a: JSON is not read as VARIANT"),
        ("m MAP<STRING, INT>", "column m: JSON is not read as MAP"),
        ("a VARCHAR(5)", "column a: JSON is not read as VARCHAR"),
    ],
)
def test_what_is_wrong_with_ddl_is_said(text: str, problem: str) -> None:
    with pytest.raises(BadOption, match=f"payloadSchema: {problem}"):
        parse_ddl(text)


def test_a_type_that_cannot_be_missing_is_refused() -> None:
    check_readable("a", list_of(pa.int64()))
    with pytest.raises(BadOption, match="an element of column a may be NULL"):
        check_readable("a", list_of(pa.int64(), nullable=False))
    with pytest.raises(BadOption, match=r"column s\.x may be NULL"):
        check_readable("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]))


def test_a_type_that_json_is_not_read_as_is_refused() -> None:
    with pytest.raises(BadOption, match=r"column m: JSON is not read as MAP<STRING,BIGINT>"):
        check_readable("m", pa.map_(pa.string(), pa.int64()))
