"""Options, subject tokens and the columns they make: right ones are understood, wrong ones are named."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from jetlake.errors import BadSubject  # noqa: E402
from jetlake.table.blocks import Selection  # noqa: E402
from jetlake.table.ddl import type_name  # noqa: E402
from jetlake.table.errors import BadOption, NoStream  # noqa: E402
from jetlake.table.locate import match_names  # noqa: E402
from jetlake.table.options import parse_options, parse_time_ns  # noqa: E402
from jetlake.table.schema import source_schema  # noqa: E402
from jetlake.table.tokens import TokenPattern  # noqa: E402

PATH = {"path": "/data"}


def schema(**options: Any) -> str:
    """Names and types of the columns; those that may be NULL have a question mark."""
    found = source_schema(parse_options(PATH | options))
    return ", ".join(f"{field.name} {type_name(field.type)}{'?' * field.nullable}" for field in found)


def test_names_of_options_do_not_care_for_case_and_underscores() -> None:
    options = parse_options({"PATH": "/data", "start_seq": "5", "onGap": "report", "MAXROWSPERTRIGGER": "1_000"})
    assert (options.start_seq, options.on_gap, options.max_rows_per_trigger) == (5, "report", 1000)


def test_options_of_spark_itself_are_passed_over() -> None:
    assert parse_options(PATH | {"checkpointLocation": "/c"}).path == "/data"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startSequence": "5"}, "there is no option startSequence; there are path, url, stream,"),
        ({"startSeq": "five"}, "option startSeq is 'five', not a number"),
        ({"startSeq": "-1"}, "option startSeq is -1, which is below 0"),
        ({"onGap": "ignore"}, "option onGap is 'ignore', not fail or report"),
        ({"payload": "xml"}, "not binary or string or json"),
        ({"tls": "yes"}, "option tls is 'yes', not true or false"),
        ({"startTime": "yesterday"}, "'yesterday' is not a time like 2026-01-31T12:00:00Z"),
        ({"endTime": "2026-02-31"}, "'2026-02-31' is not a time: day is out of range"),
        ({"url": "nats://x"}, "give either the option path"),
        ({"path": ""}, "give either the option path"),
        ({"path": "", "url": "nats://x"}, "option stream is missing"),
        ({"path": "", "url": "nats://x", "stream": "O P"}, "'O P' is not the name of a stream, it contains ' '"),
        ({"path": "", "url": "nats://x", "stream": "A,B.C"}, "'B.C' is not the name of a stream"),
        ({"path": "", "url": "nats://x", "stream": "S", "account": "A"}, "option account is for path"),
        ({"partitionSize": "0"}, "option partitionSize must be at least 1"),
        ({"maxRowsPerTrigger": "0"}, "option maxRowsPerTrigger must be at least 1"),
        ({"columns": "seq, SEQ"}, "option columns has a column twice: seq, SEQ"),
        ({"payloadSchema": "a INT"}, "need payload=json"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        parse_options(PATH | options)
    with pytest.raises(BadSubject):
        parse_options(PATH | {"subject": "a.>.b"})


def test_options_become_a_selection() -> None:
    given = {"startSeq": "3", "endSeq": "9", "endTime": "1970-01-01T00:00:01Z", "subject": "a.*, b"}
    assert parse_options(PATH | given).selection == Selection(3, 9, -(2**63), 10**9 - 1, ("a.*", "b"))
    assert parse_options(PATH).selection == Selection()


def test_times_beyond_the_range_are_clamped_to_it() -> None:
    given = {"startTime": "0001-01-01T00:00:00+02:00", "endTime": "9999-12-31T23:59:59-02:00"}
    assert parse_options(PATH | given).selection == Selection(time_ns_max=2**63 - 2)
    assert parse_options(PATH | {"endTime": "0001-01-01"}).selection.time_ns_max == -(2**63)
    assert parse_options(PATH | {"startTime": "9999-12-31"}).selection.time_ns_min == 2**63 - 1


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-02", 86_400 * 10**9),
        ("1970-01-01T00:00:01", 10**9),
        ("1970-01-01 00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:00.123456789Z", 123_456_789),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:59:59Z", -(10**9)),
    ],
)
def test_times_are_exact_to_the_nanosecond(text: str, time_ns: int) -> None:
    assert parse_time_ns(text) == time_ns


def test_streams_are_named_by_patterns() -> None:
    names = ["ORDERS", "EVENTS-1", "EVENTS-2"]
    assert match_names(names, "ORDERS", "here") == ["ORDERS"]
    assert match_names(names, "EVENTS-*, ORDERS", "here") == ["EVENTS-1", "EVENTS-2", "ORDERS"]
    with pytest.raises(NoStream, match="here: no stream X; there is EVENTS-1, EVENTS-2, ORDERS"):
        match_names(names, "ORDERS,X", "here")
    with pytest.raises(BadOption, match="option stream is missing; here has EVENTS-1"):
        match_names(names, "", "here")


# Tokens


def test_tokens_become_columns() -> None:
    subjects = pa.array(["orders.eu.1", "orders.us.2.x", "orders.eu.1", "other"])
    found = TokenPattern("orders.{region}.{id}").columns(subjects)
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "region": ["eu", None, "eu", None],
        "id": ["1", None, "1", None],
    }
    assert TokenPattern("*.{a}.{rest>}").columns(subjects)["rest"].to_pylist() == ["1", "2.x", "1", None]


def test_token_values_become_subjects() -> None:
    pattern = TokenPattern("orders.{region}.*.{id}")
    assert pattern.subjects({"region": ["eu", "us"], "id": ["7"]}) == ["orders.eu.*.7", "orders.us.*.7"]
    assert pattern.subjects({"other": ["x"]}) == []
    assert TokenPattern("kv.{bucket}.{key>}").subjects({"bucket": ["b"], "key": ["k"]}) == ["kv.b.>"]


def test_a_wildcard_at_the_end_stands_for_all_that_follows() -> None:
    subjects = pa.array(["orders.eu.1.x", "orders.us", "other"])
    assert TokenPattern("orders.{region}.>").columns(subjects)["region"].to_pylist() == ["eu", None, None]
    assert TokenPattern("orders.{region}.>").subjects({"region": ["eu"]}) == ["orders.eu.>"]


@pytest.mark.parametrize(
    "text", ["a..b", "{a", "{a b}", "{a>}.b", "{a}.{a}", "{a}.{A}", "{}", "a.>", "a", ">.{a}", "{a}.>.b", "x{a}"]
)
def test_a_bad_pattern_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="subject_tokens"):
        TokenPattern(text)


# Columns


def test_the_columns_follow_from_the_options() -> None:
    assert schema().startswith(
        "stream string, seq bigint, subject string, time timestamp, time_ns bigint, headers map<"
    )
    assert schema(columns="seq, payload") == "seq bigint, payload binary"
    assert schema(columns="SEQ") == "seq bigint"
    assert schema(payload="string", columns="payload,_malformed") == "payload string?, _malformed binary?"
    assert schema(columns="a,x", subject_tokens="{a}.*", payload="json", payloadSchema="x INT") == "a string?, x int?"
    fields = {"payload": "json", "payloadSchema": "a BIGINT NOT NULL, b STRUCT<c: ARRAY<DOUBLE>>"}
    assert schema(**fields).endswith("size int, a bigint?, b struct<c:array<double>>?, _malformed binary?")
    assert "_malformed" not in schema(**fields, malformed="fail")
    assert schema(**fields, columns="Payload,a") == "payload binary, a bigint?"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"columns": "x"}, "there is no column x; there are stream, seq"),
        (
            {"payloadSchema": "Time STRING"},
            "field 'Time' cannot be a column, there is a column time already; option payloadP",
        ),
        ({"payloadSchema": "id INT, ID INT"}, "field 'ID' cannot be a column, there is a column id already"),
        ({"payloadSchema": "_malformed INT"}, "there is a column _malformed already"),
        ({"payloadSchema": "`` INT"}, "field '' cannot be a column, it has no name; option payloadPrefix"),
        ({"payloadSchema": "a INT", "subject_tokens": "{A}"}, "field 'a' cannot be a column"),
        ({"subject_tokens": "orders.{Seq}"}, "there is a column seq already; give Seq another name"),
    ],
)
def test_columns_that_are_not_there_or_twice_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        schema(payload="json", **options)


def test_a_prefix_makes_any_field_a_column() -> None:
    found = schema(payload="json", payloadSchema="time STRING, `` INT, `a``b` INT", payloadPrefix="p_")
    assert "p_time string?, p_ int?, p_a`b int?" in found
