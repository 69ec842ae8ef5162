"""Records become Arrow columns: the same ones from both twins, and nothing that is damaged, gone or not wanted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from jetlake.store.format import ERASED, EXPIRES, MSG_ID, SKIP, TOMBSTONE  # noqa: E402
from jetlake.store.index import _subject_filter_c, _subject_filter_py  # noqa: E402
from jetlake.store.index.sequence_set import SequenceSet  # noqa: E402
from jetlake.store.records.record import Record, encode  # noqa: E402
from jetlake.table import _arrow_c, _arrow_py, arrow  # noqa: E402
from jetlake.table.arrow import ALL, ColumnPool, Columns, Decoded, Wanted, arrays, column_buffers  # noqa: E402

SEED = 77
EVERYTHING = (1, 2**62)
HEADERS = b"NATS/1.0\r\nA: 1\r\nB:two\r\nA:  3\r\n\r\n"
TWINS = {
    "c": (_arrow_c.decode, _subject_filter_c.SubjectFilter),
    "py": (_arrow_py.decode, _subject_filter_py.SubjectFilter),
}
Rows = list[dict[str, Any]]


def message(seq: int, subject: bytes = b"a.b", payload: bytes = b"hi", headers: bytes = b"", **more: int) -> bytes:
    record = Record(more.get("flags", 0), subject, headers, payload, seq, more.get("time_ns", 1000 * seq), 5)
    return encode(record, SEED)


def read(
    twin: str,
    data: bytes,
    *,
    seqs: tuple[int, int] = EVERYTHING,
    gone: tuple[tuple[int, int], ...] = (),
    filters: tuple[str, ...] = (),
    is_final: bool = True,
    mask: int = ALL,
    rows_max: int = 1000,
    **times: int,
) -> tuple[Rows, Decoded]:
    decode, subject_filter = TWINS[twin]
    wanted = Wanted.of(*seqs, SequenceSet(gone), **times)._replace(filter=subject_filter(filters))
    columns = column_buffers(mask, len(data), rows_max)
    found = decode(data, 0, len(data), SEED, 0, is_final, *wanted, columns)
    names = [name for name, (flag, _) in arrow.FIELDS.items() if flag & mask]
    table = arrays(names, columns, found)
    for column in table.values():
        column.validate(full=True)
    return pa.table(table).to_pylist() if names else [{}] * found.rows, found


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_compiled_twin_is_loaded() -> None:
    assert arrow.COMPILED and arrow.decode is _arrow_c.decode


def test_the_kernel_numbers_columns_as_the_reference_does() -> None:
    assert {name: getattr(_arrow_py, name) for name in _arrow_c.NUMBERS} == _arrow_c.NUMBERS


def test_every_column_holds_what_was_stored(twin: str) -> None:
    rows, found = read(twin, message(7, b"orders.eu", b"\x00\xff", HEADERS, time_ns=1_700_000_000_123_456_789))
    (row,) = rows
    assert row["time"].isoformat() == "2023-11-14T22:13:20.123456+00:00"
    assert row["time_ns"] == 1_700_000_000_123_456_789
    assert (row["seq"], row["subject"], row["payload"], row["size"]) == (7, "orders.eu", b"\x00\xff", 2)
    assert row["headers"] == [("A", ["1", "3"]), ("B", ["two"])]
    assert (found.seen, found.last_seq, found.damage) == (1, 7, [])


def test_only_wanted_columns_are_filled(twin: str) -> None:
    rows, _ = read(twin, message(1) + message(2), mask=_arrow_py.SEQ | _arrow_py.SIZE)
    assert rows == [{"seq": 1, "size": 2}, {"seq": 2, "size": 2}]
    assert read(twin, message(1) + message(2), mask=0)[0] == [{}, {}]


def test_sequences_times_subjects_and_deletes_are_filtered_exactly(twin: str) -> None:
    data = b"".join(message(seq, b"s.%d" % (seq % 2)) for seq in range(1, 11))

    def seqs(**wanted: Any) -> tuple[list[int], int]:
        rows, found = read(twin, data, **wanted)
        return [row["seq"] for row in rows], found.seen

    assert seqs(seqs=(3, 5)) == ([3, 4, 5], 3)
    assert seqs(gone=((2, 3), (9, 20))) == ([1, 4, 5, 6, 7, 8], 6)
    assert seqs(filters=("s.1",)) == ([1, 3, 5, 7, 9], 10)
    assert seqs(filters=("t", "*.0")) == ([2, 4, 6, 8, 10], 10)
    assert seqs(time_ns_min=4000, time_ns_max=6000) == ([4, 5, 6], 10)


def test_other_records_are_stepped_over(twin: str) -> None:
    others = [
        encode(Record(TOMBSTONE, b"", b"", b"anything", 1, 0), SEED),
        encode(Record(SKIP, b"", b"", b"\x02", 3, 0), SEED),
        message(5, flags=EXPIRES),
        encode(Record(ERASED, b"", b"noise", b"noise", 6, 0), SEED),
    ]
    rows, found = read(twin, b"".join([message(1), message(2), *others, message(7)]), is_final=False)
    assert [row["seq"] for row in rows] == [1, 2, 5, 7]
    assert (found.seen, found.damage) == (4, [])


def test_damage_is_stepped_over_and_told_when_there_are_no_more_bytes_to_come(twin: str) -> None:
    one, two, three = message(1), bytearray(message(2)), message(3)
    two[-1] ^= 1
    data = one + bytes(two) + three + b"cut off"
    rows, found = read(twin, data)
    assert [row["seq"] for row in rows] == [1, 3]
    assert found.damage == [(len(one), len(two)), (len(data) - 7, 7)]
    assert (found.seen, found.end) == (2, len(data))
    rows, found = read(twin, data, is_final=False)
    assert [row["seq"] for row in rows] == [1]
    assert (found.end, found.damage) == (len(one), [])


def test_a_record_whose_sequence_does_not_ascend_is_damage(twin: str) -> None:
    rows, found = read(twin, message(2) + message(2) + message(1) + message(3))
    assert [row["seq"] for row in rows] == [2, 3]
    assert len(found.damage) == 1


def test_it_goes_on_where_it_ran_out_of_rows(twin: str) -> None:
    data = b"".join(message(seq) for seq in range(1, 101))
    rows, found = read(twin, data, rows_max=40)
    assert ([row["seq"] for row in rows], found.last_seq, found.seen) == (list(range(1, 41)), 40, 40)
    rows, found = read(twin, data[found.end :], rows_max=70)
    assert [row["seq"] for row in rows] == list(range(41, 101))


def test_text_that_is_not_utf8_becomes_question_marks(twin: str) -> None:
    headers = b"NATS/1.0\r\nn\xff: \xc3\xa4\r\nm: \xed\xa0\x80\r\n\r\n"
    (row,), _ = read(twin, message(1, "ü.".encode() + b"\xfe", headers=headers))
    assert row["subject"] == "??.?"
    assert row["headers"] == [("n?", ["ä"]), ("m", ["???"])]


def test_header_blocks_of_any_shape_are_taken(twin: str) -> None:
    many = b"NATS/1.0\r\n" + b"".join(b"k%d: v\r\n" % (number % 50) for number in range(200)) + b"\r\n"
    blocks = [b"", b"NATS/1.0", b"NATS/1.0\r\n\r\n", b"\r\nno colon\r\n:\r\na:\r", b"x\r\na\rb: c\nd\r\n", many]
    rows, _ = read(twin, b"".join(message(seq, headers=block) for seq, block in enumerate(blocks, 1)))
    found = [dict(row["headers"]) for row in rows]
    assert found[:5] == [{}, {}, {}, {"": [""], "a": ["\r"]}, {"a\rb": ["c\nd"]}]
    assert found[5] == {f"k{number}": ["v"] * 4 for number in range(50)}


def test_a_buffer_that_is_too_small_is_refused() -> None:
    data = message(1)
    small = column_buffers(ALL, len(data))._replace(payloads=bytearray(3))
    with pytest.raises(ValueError, match="are needed"):
        arrow.decode(data, 0, len(data), SEED, 0, True, *Wanted.of(*EVERYTHING, SequenceSet()), small)


def test_bad_ranges_are_refused(twin: str) -> None:
    decode, subject_filter = TWINS[twin]
    wanted = Wanted.of(*EVERYTHING, SequenceSet())._replace(filter=subject_filter(()))
    with pytest.raises(IndexError, match=r"range 0\.\.9 of 3 bytes"):
        decode(b"abc", 0, 9, SEED, 0, True, *wanted, column_buffers(ALL, 9))
    with pytest.raises(ValueError, match="no sequence"):
        decode(b"abc", 0, 3, SEED, 2**64 - 1, True, *wanted, column_buffers(ALL, 9))


def rarely(values: list[Any], usual: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 4 * len(values) + values)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"a.b", b"\xc3\xa4.\xff", b"s" * 40, b"s" * 127, b"s" * 128, b""]),
            st.binary(max_size=300) | st.sampled_from([127, 128, 16383, 16384]).map(bytes),
            rarely([HEADERS, b"NATS/1.0\r\n\xc3: \xff\r\n", b"\r\n:"], b""),
            st.integers(-(2**63), 2**63 - 1),
            rarely([MSG_ID, EXPIRES, SKIP, ERASED, TOMBSTONE], 0),
        ),
        max_size=40,
    ),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=3),
    st.booleans(),
    st.sampled_from(
        [
            {"gone": ((3, 4),), "filters": ("a.>", "*")},
            {},
            {"seqs": (5, 25)},
            {"seqs": (1, 12), "rows_max": 1000},
            {"time_ns_min": 0},
            {"gone": ((7, 7), (15, 16))},
            {"mask": _arrow_py.SUBJECT | _arrow_py.TIME},
        ]
    ),
)
def test_twins_agree_on_any_bytes(
    messages: list[Any], flips: list[tuple[int, int]], is_final: bool, wanted: dict[str, Any]
) -> None:
    parts = [
        message(seq, subject, payload, headers, time_ns=time_ns, flags=flags)
        for seq, (subject, payload, headers, time_ns, flags) in enumerate(messages, 1)
    ]
    data = bytearray(b"".join(parts))
    for place, byte in flips:
        if place < len(data):
            data[place] = byte
    both = [read(name, bytes(data), is_final=is_final, **{"rows_max": 20, **wanted}) for name in TWINS]
    assert both[0] == both[1]


def test_times_before_the_epoch_are_rounded_down(twin: str) -> None:
    decode, subject_filter = TWINS[twin]
    data = message(1, time_ns=-1) + message(2, time_ns=-1000) + message(3, time_ns=1999)
    columns = column_buffers(_arrow_py.TIME, len(data))
    wanted = Wanted.of(*EVERYTHING, SequenceSet())._replace(filter=subject_filter(()))
    found = decode(data, 0, len(data), SEED, 0, True, *wanted, columns)
    assert arrays(["time"], columns, found)["time"].cast(pa.int64()).to_pylist() == [-1, -1, 1]


def test_a_pool_gives_buffers_again_only_when_nobody_reads_them() -> None:
    pool, wanted = ColumnPool(ALL), Wanted.of(*EVERYTHING, SequenceSet())

    def fill(payload: bytes) -> tuple[Columns, Decoded]:
        columns, data = pool.take(100), message(1, payload=payload)
        return columns, arrow.decode(data, 0, len(data), SEED, 0, True, *wanted, columns)

    first = fill(b"first")
    held = arrays(["payload"], *first)["payload"]
    second = fill(b"other")
    assert second[0] is not first[0] and held.to_pylist() == [b"first"]
    del held
    assert fill(b"again")[0] is first[0]


def test_what_goes_to_spark_is_what_is_filled() -> None:
    data = b"".join(message(seq, headers=HEADERS if seq == 1 else b"") for seq in range(1, 101))
    columns = column_buffers(ALL, 2**20)
    found = arrow.decode(data, 0, len(data), SEED, 0, True, *Wanted.of(*EVERYTHING, SequenceSet()), columns)
    batch = pa.RecordBatch.from_pydict(arrays(arrow.FIELDS, columns, found))
    assert batch.num_rows == 100
    assert batch.serialize().size < 3 * len(data)


def test_a_thread_keeps_its_pool_for_the_same_columns() -> None:
    pool = ColumnPool.of(["seq", "payload"])
    assert ColumnPool.of(["payload", "seq"]) is pool
    assert ColumnPool.of(["seq"]).mask == _arrow_py.SEQ
