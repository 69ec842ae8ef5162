"""Conditions become options that keep every message for which the condition holds."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from jetlake.table.where import pruning

TOKENS = "orders.{region}.{shard}"


@pytest.mark.parametrize(
    ("condition", "options"),
    [
        ("seq = 5", {"startSeq": "5", "endSeq": "5"}),
        ("SEQ > 5 and seq <= 9", {"startSeq": "6", "endSeq": "9"}),
        ("5 < seq AND 9 >= `seq`", {"startSeq": "6", "endSeq": "9"}),
        ("seq BETWEEN 5 AND 9 AND size > 3", {"startSeq": "5", "endSeq": "9"}),
        ("(seq between 5 and 9) and (size > 3 or size < 1)", {"startSeq": "5", "endSeq": "9"}),
        ("((seq >= 5 AND (seq < 7)))", {"startSeq": "5", "endSeq": "6"}),
        ("seq IN (9, 5, 7)", {"startSeq": "5", "endSeq": "9"}),
        ("time_ns < 1000000001", {"endTime": "1970-01-01T00:00:01.000000001Z"}),
        ("time >= '2026-03-01'", {"startTime": "2026-03-01T00:00:00.000000000Z"}),
        ("time < TIMESTAMP '2026-03-01 12:00:00'", {"endTime": "2026-03-01T12:00:00.000000999Z"}),
        ("subject = 'orders.eu.1'", {"subject": "orders.eu.1"}),
        ("subject IN ('a.b', 'c')", {"subject": "a.b,c"}),
        ("subject LIKE 'orders.eu.%'", {"subject": "orders.eu.>"}),
        ("subject LIKE 'orders.eu1%'", {"subject": "orders.>"}),
        ("subject LIKE 'orders.e_.x'", {"subject": "orders.>"}),
        ("subject LIKE 'orders'", {"subject": "orders"}),
        ("region = 'eu'", {"subject": "orders.eu.*"}),
        ("region IN ('eu', 'us') AND shard = '7'", {"subject": "orders.eu.7,orders.us.7"}),
        ("region = 'eu' AND subject LIKE 'orders.%'", {"subject": "orders.eu.*"}),
    ],
)
def test_what_is_understood_becomes_options(condition: str, options: dict[str, str]) -> None:
    assert pruning(condition, TOKENS) == options


@pytest.mark.parametrize(
    "condition",
    [
        "seq = 5 OR size = 1",
        "NOT seq = 5",
        "seq NOT IN (5)",
        "NOT (seq = 5)",
        "seq != 5",
        "seq <> 5",
        "seq = size",
        "seq + 1 = 5",
        "seq = 5 + 1",
        "seq > 5.5",
        "seq = '5'",
        "abs(seq) = 5",
        "CASE WHEN size = 1 THEN true AND seq = 5 AND true END",
        "subject LIKE '%eu'",
        "subject LIKE 'or%'",
        "subject = 'a.*'",
        "subject = 'a b'",
        "time > 'yesterday'",
        "region = 'e.u'",
        "region = '*'",
        "region LIKE 'e%'",
        "headers['seq'] = 5",
        "headers[true AND seq = 5 AND true] IS NULL",
        "true BETWEEN (1 BETWEEN 0 AND 2) AND seq = 5",
        'payload = "a AND seq = 5 AND b"',
        r"payload = 'a\' AND seq = 5 AND \'b'",
        r"payload = r'a\' AND seq = 5 AND size > '1'",
        "payload = $$ AND seq = 5 AND $$",
        "size >= 1 -- AND seq = 5",
        "size >= 1 /* AND seq = 5 AND */ AND true",
        "`a`` AND seq = 5 AND ``b` = 1",
        "subject = 'a' '.b'",
        "subject = 'a''b'",
        "subject = 'a.?'",
        "region = 'eu west'",
        "region = 'eu?'",
        "(seq = 5",
        "",
    ],
)
def test_what_is_not_understood_rules_nothing_out(condition: str) -> None:
    assert pruning(condition, TOKENS) == {}


def test_times_are_those_of_the_session() -> None:
    assert pruning("time >= '2026-03-01 01:00:00'", "", "Europe/Berlin") == {
        "startTime": "2026-03-01T00:00:00.000000000Z"
    }
    assert pruning("time >= '2026-03-01T01:00:00Z'", "", "Europe/Berlin") == {
        "startTime": "2026-03-01T01:00:00.000000000Z"
    }


@pytest.mark.parametrize("zone", ["+02:00", "GMT+2", "UTC+3", "PST", "Z", "Europe", "../x", ""])
def test_a_time_zone_that_only_spark_knows_rules_out_no_times(zone: str) -> None:
    assert pruning("time >= '2026-03-01 01:00:00' AND seq < 5", "", zone) == {"endSeq": "4"}
    assert "startTime" in pruning("time >= '2026-03-01 01:00:00Z'", "", zone)


def test_times_and_sequences_beyond_the_range_are_taken() -> None:
    latest = {"startTime": "2262-04-11T23:47:16.854775807Z"}
    assert pruning(f"time_ns > {10**30}") == latest == pruning("time >= '9999-12-31'")
    assert pruning("time <= '9999-12-31' AND time > '0001-01-01'", "", "Europe/Berlin") == {}
