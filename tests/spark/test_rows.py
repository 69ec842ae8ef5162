"""Rows become records, get their sequences and become operations: both twins alike."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from jetlake.errors import BadSubject, MessageTooLarge  # noqa: E402
from jetlake.ops import OP_MSG_ID, OP_WORDS  # noqa: E402
from jetlake.spark import _rows_c, _rows_py, rows  # noqa: E402
from jetlake.spark.batches import RowMaker, header_block  # noqa: E402
from jetlake.store import FileStore  # noqa: E402
from jetlake.store.format import FLOOR, MSG_ID  # noqa: E402
from jetlake.store.records.record import BadRecord, Record, decode, encode  # noqa: E402
from jetlake.table.errors import BadOption  # noqa: E402
from jetlake.testing.memfiles import MemFiles  # noqa: E402

SEED = 5
TWINS = {"c": _rows_c, "py": _rows_py}


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return TWINS[str(request.param)]


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def encoded(twin: Any, record_batch: Any, room: int = 10_000, **more: Any) -> tuple[bytes, tuple[int, int, int, int]]:
    made = RowMaker(more.get("subject", "")).rows(record_batch)
    out = bytearray(room)
    found = twin.encode_rows(*made[1:], more.get("first", 0), made.row_count, out, 0, 1, 77, SEED)
    return bytes(out[: found[1]]), found


def records(data: bytes) -> list[Record]:
    found, offset = [], 0
    while offset < len(data):
        record, offset = decode(data, offset, len(data), SEED)
        found.append(record)
    return found


def test_the_compiled_twin_is_loaded() -> None:
    assert rows.COMPILED and rows.shift is _rows_c.shift


def test_rows_become_records_with_sequences_from_one(twin: Any) -> None:
    data, found = encoded(twin, batch(subject=["a.b", "ä"], payload=[b"one", None]))
    assert records(data) == [Record(0, b"a.b", b"", b"one", 1, 77), Record(0, "ä".encode(), b"", b"", 2, 77)]
    assert found == (2, len(data), 77, 77)


def test_headers_and_times_are_written(twin: Any) -> None:
    times = pa.array([5, 3], pa.timestamp("us", tz="UTC"))
    headers = pa.array([[("A", ["1", "2"])], None], pa.map_(pa.string(), pa.list_(pa.string())))
    data, found = encoded(twin, batch(subject=["a", "b"], payload=["text", ""], headers=headers, time=times))
    assert records(data) == [
        Record(0, b"a", b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n", b"text", 1, 5000),
        Record(0, b"b", b"", b"", 2, 3000),
    ]
    assert found[2:] == (3000, 5000)


def test_one_subject_serves_all_rows(twin: Any) -> None:
    data, _ = encoded(twin, batch(payload=[b"1", b"2"]), subject="all")
    assert [record.subject for record in records(data)] == [b"all", b"all"]


def test_it_stops_where_there_is_no_room(twin: Any) -> None:
    rows_in = batch(subject=["a"] * 5, payload=[b"x" * 50] * 5)
    data, found = encoded(twin, rows_in, room=200)
    assert found[0] == 2 and len(records(data)) == 2
    assert encoded(twin, rows_in, room=10)[1][:2] == (0, 0)


def test_slices_and_empty_batches_are_taken(twin: Any) -> None:
    data, _ = encoded(twin, batch(subject=["a", "b", "c"], payload=[b"1", b"2", b"3"]).slice(1, 2))
    assert [(record.subject, record.payload) for record in records(data)] == [(b"b", b"2"), (b"c", b"3")]
    assert encoded(twin, batch(subject=pa.array([], pa.string()), payload=pa.array([], pa.binary())))[0] == b""


def test_bad_buffers_are_refused(twin: Any) -> None:
    offsets, far = array("i", [0, 1]).tobytes(), array("i", [0, 99]).tobytes()
    for subject_offsets in (far, array("i", [1, 0]).tobytes(), b""):
        with pytest.raises(IndexError):
            twin.encode_rows(subject_offsets, b"a", b"", b"", offsets, b"p", b"", 0, 1, bytearray(99), 0, 1, 0, SEED)
    with pytest.raises(IndexError):
        twin.encode_rows(offsets, b"a", b"", b"", offsets, b"p", bytes(4), 0, 1, bytearray(99), 0, 1, 0, SEED)


def test_a_part_that_is_too_large_is_refused(twin: Any) -> None:
    data = b"s" * 70_000
    offsets, empty = array("i", [0, len(data)]).tobytes(), bytes(8)
    with pytest.raises(MessageTooLarge, match="subject of 70000 bytes"):
        twin.encode_rows(offsets, data, b"", b"", empty, b"", b"", 0, 1, bytearray(99_999), 0, 1, 0, SEED)


def test_sequences_are_shifted_and_records_stay_sound(twin: Any) -> None:
    data = bytearray(encoded(twin, batch(subject=["a"] * 3, payload=[b"x", b"yy", b""]))[0])
    assert twin.shift(data, 0, len(data), SEED, 1000) == 3
    assert [record.seq for record in records(bytes(data))] == [1001, 1002, 1003]


def test_damaged_records_are_not_shifted(twin: Any) -> None:
    data = bytearray(encoded(twin, batch(subject=["a"] * 2, payload=[b"x", b"y"]))[0])
    data[-1] ^= 1
    with pytest.raises(BadRecord, match="checksum"):
        twin.shift(data, 0, len(data), SEED, 5)
    with pytest.raises(BadRecord, match="checksum"):
        twin.operations(data, 0, len(data), SEED)
    with pytest.raises(IndexError):
        twin.shift(data, 0, len(data) + 1, SEED, 5)


def test_operations_append_the_same_messages(twin: Any) -> None:
    parts = [encode(Record(MSG_ID, b"a", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n", b"p", 1, 0), SEED)]
    parts += [encode(Record(0, b"b.c", b"", b"payload", 2, 0), SEED)]
    data = b"".join(parts)
    ops = twin.operations(data, 0, len(data), SEED)
    assert len(ops) == 2 * OP_WORDS and (ops[9], ops[OP_WORDS + 9]) == (OP_MSG_ID, 0)
    store = FileStore("s", files=MemFiles())
    assert store.append_batch(data, ops) == (1, 2)
    assert [(m.subject, m.payload) for m in store.messages()] == [("a", b"p"), ("b.c", b"payload")]
    floor = encode(Record(FLOOR, b"", b"", b"", 1, 0), SEED)
    with pytest.raises(BadRecord, match="not a message"):
        twin.operations(floor, 0, len(floor), SEED)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b.c", "ü"]), st.binary(max_size=200)), max_size=30), st.integers(0, 3000)
)
def test_twins_agree(messages: list[tuple[str, bytes]], room: int) -> None:
    columns = {"subject": pa.array([m[0] for m in messages], pa.string())}
    columns["payload"] = pa.array([m[1] for m in messages], pa.binary())
    assert encoded(_rows_c, batch(**columns), room) == encoded(_rows_py, batch(**columns), room)


@pytest.mark.parametrize("subject", ["", "a..b", "a b", "a.*", ">"])
def test_a_subject_that_cannot_be_stored_is_refused(subject: str) -> None:
    with pytest.raises(BadSubject):
        RowMaker().rows(batch(subject=["fine", subject], payload=[b"", b""]))
    with pytest.raises(BadOption, match="NULL"):
        RowMaker().rows(batch(subject=["fine", None], payload=[b"", b""]))


def test_subjects_are_summed_up_by_their_first_tokens() -> None:
    maker = RowMaker()
    maker.rows(batch(subject=["a.b", "a.c.d", "x", "y.z"], payload=[b""] * 4))
    assert maker.subjects == ["a.>", "x", "y.>"]


def test_headers_are_lines() -> None:
    assert header_block([("A", "1"), ("B", ["2", "3"])]) == b"NATS/1.0\r\nA: 1\r\nB: 2\r\nB: 3\r\n\r\n"
    assert header_block([]) == header_block(None) == b""
    for name, value in (("A", "1\r\nB: 2"), ("A:", "1"), ("", "x"), ("A\n", "1")):
        with pytest.raises(BadOption, match="cannot be written on a line"):
            header_block([(name, value)])
