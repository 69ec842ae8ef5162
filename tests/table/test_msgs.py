"""Delivered messages become Arrow columns: the same from both twins, however the bytes arrive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from jetlake.table import _msgs_c, _msgs_py, msgs  # noqa: E402
from jetlake.table.arrow import ALL, arrays, column_buffers  # noqa: E402
from jetlake.table.msgs import SLACK, Received  # noqa: E402

TWINS = {"c": _msgs_c.receive, "py": _msgs_py.receive}
HEADERS = b"NATS/1.0\r\nA: 1\r\n\r\n"
NAMES = ["seq", "subject", "time_ns", "headers", "payload", "size"]
Rows = list[dict[str, Any]]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def msg(seq: int, payload: bytes = b"hi", headers: bytes = b"", left: int = 5, subject: bytes = b"a.b") -> bytes:
    reply = b"$JS.ACK.S.C.1.%d.%d.%d.%d" % (seq, seq, 1000 * seq, left)
    total = len(headers) + len(payload)
    sizes = b"%d %d" % (len(headers), total) if headers else b"%d" % total
    return b"%s %s 1 %s %s\r\n%s%s\r\n" % (b"HMSG" if headers else b"MSG", subject, reply, sizes, headers, payload)


def read(twin: str, data: bytes, last_seq: int = 10**9, rows_max: int = 100, **times: int) -> tuple[Rows, Received]:
    columns = column_buffers(ALL, len(data), rows_max)
    bounds = (times.get("first", 0), times.get("last", 2**63 - 1))
    found = TWINS[twin](data + bytes(SLACK), 0, len(data), last_seq, *bounds, columns)
    return pa.table(arrays(NAMES, columns, found)).to_pylist(), found


def test_the_compiled_twin_is_loaded() -> None:
    assert msgs.COMPILED and msgs.receive is _msgs_c.receive


def test_messages_become_rows(twin: str) -> None:
    data = msg(7, b"\x00\r\n", left=1) + msg(9, b"", HEADERS, left=0, subject="ä".encode())
    rows, found = read(twin, data)
    assert rows == [
        {"seq": 7, "subject": "a.b", "time_ns": 7000, "headers": [], "payload": b"\x00\r\n", "size": 3},
        {"seq": 9, "subject": "ä", "time_ns": 9000, "headers": [("A", ["1"])], "payload": b"", "size": 0},
    ]
    assert found[:5] == (len(data), 2, 2, 9, 0) and not found.is_other


def test_unfinished_messages_wait_for_the_rest(twin: str) -> None:
    one, two = msg(1), msg(2, b"payload", HEADERS)
    for cut in range(len(one), len(one + two)):
        rows, found = read(twin, (one + two)[:cut])
        assert [row["seq"] for row in rows] == [1] and (found.end, found.is_other) == (len(one), False)


@pytest.mark.parametrize(
    "line",
    [
        b"PING\r\n",
        b"-ERR 'x'\r\n",
        b"HMSG _INBOX.x 1 20 20\r\nNATS/1.0 404 None\r\n\r\n\r\n",
        b"MSG a 1 3\r\nabc\r\n",
        b"MSG a 1 other.reply 3\r\nabc\r\n",
        b"MSG a 1 $JS.ACK.S.C.1.x.1.1.1 3\r\nabc\r\n",
        b"HMSG a 1 $JS.ACK.S.C.1.1.1.1.1 9 3\r\nabc\r\n",
        b"\r\n",
    ],
)
def test_other_lines_are_left_to_python(twin: str, line: bytes) -> None:
    rows, found = read(twin, msg(1) + line + msg(2))
    assert [row["seq"] for row in rows] == [1]
    assert (found.end, found.is_other) == (len(msg(1)), True)


def test_only_what_is_wanted_becomes_a_row_and_the_last_one_is_told(twin: str) -> None:
    data = b"".join(msg(seq) for seq in range(1, 8))
    rows, found = read(twin, data, last_seq=4, first=2000)
    assert [row["seq"] for row in rows] == [2, 3, 4] and (found.seen, found.last_seq) == (7, 7)


def test_it_goes_on_where_it_ran_out_of_rows(twin: str) -> None:
    data = b"".join(msg(seq) for seq in range(1, 8))
    rows, found = read(twin, data, rows_max=3)
    assert len(rows) == 3
    assert [row["seq"] for row in read(twin, data[found.end :])[0]] == [4, 5, 6, 7]


def test_longer_ack_subjects_are_understood(twin: str) -> None:
    for tail in (b"", b".token"):
        rows, found = read(twin, b"MSG s 1 $JS.ACK._.hash.S.C.1.42.9.77.3%s 1\r\nx\r\n" % tail)
        assert (rows[0]["seq"], rows[0]["time_ns"], found.pending) == (42, 77, 3)


def test_bad_arguments_are_refused(twin: str) -> None:
    columns = column_buffers(ALL, 100)
    with pytest.raises(IndexError):
        TWINS[twin](b"MSG", 0, 3, 1, 0, 1, columns)
    with pytest.raises(ValueError, match="line without an end"):
        read(twin, b"x" * 70_000)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 2**62), st.binary(max_size=60), st.sampled_from([b"", HEADERS])), max_size=12),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 255)), max_size=3),
    st.integers(0, 900),
)
def test_twins_agree_on_any_bytes(messages: list[Any], flips: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(b"".join(msg(seq, payload, headers) for seq, payload, headers in messages))
    for place, byte in flips:
        if place < len(data):
            data[place] = byte
    both = [read(name, bytes(data[: max(cut, 1)])) for name in TWINS]
    assert both[0] == both[1]
