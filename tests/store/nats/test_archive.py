"""The entries of a snapshot archive: every test on both twins, then the twins against each other."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.ops import OP_MSG_ID, OP_WORDS
from jetlake.store.format import MSG_ID, SKIP
from jetlake.store.nats import archive
from jetlake.store.nats._archive_py import Head, decode_numbers, encode_numbers
from jetlake.store.records._record_py import Record, encode
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

SEED, TWIN = 42, "jetlake.store.nats._archive"
ID = b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"
# What nats-server sent for a message with a header.
REAL = bytes.fromhex("01b6adefa7a8ebe2e831011202734e4154532f312e300d0a413a20620d0a0d0a6869")


def pack(
    twin: ModuleType, data: bytes, room: int = 4000, last: int = 99, gone: tuple[int, ...] = ()
) -> tuple[Any, bytes]:
    out = bytearray(room)
    found = twin.pack(data, 0, len(data), SEED, 1, last, array("Q", gone), array("Q", gone), out, 0)
    return found, bytes(out[: found.used])


def unpack(twin: ModuleType, data: bytes, room: int = 50) -> tuple[Any, list[tuple[Any, ...]]]:
    ops, seqs, times = array("I", bytes(4 * OP_WORDS * room)), array("Q", bytes(8 * room)), array("q", bytes(8 * room))
    found = twin.unpack(data, 0, len(data), ops, seqs, times)
    messages = []
    for place in range(found.entries):
        op = ops[place * OP_WORDS : (place + 1) * OP_WORDS]
        parts = [data[at : at + size] for at, size in (op[0:2], op[4:6], op[6:8])]
        messages.append((seqs[place], times[place], *parts, op[9]))
    return found, messages


@both_twins
def test_real_entry_is_read_and_written_byte_for_byte(kind: str) -> None:
    twin, time_ns = load_twin(TWIN, kind), 1794901799442705243
    _, messages = unpack(twin, REAL + archive.SENTINEL)
    headers = b"NATS/1.0\r\nA: b\r\n\r\n"
    assert messages == [(1, time_ns, b"s", headers, b"hi", 0)]
    assert pack(twin, encode(Record(0, b"s", headers, b"hi", 1, time_ns), SEED))[1] == REAL


@both_twins
def test_only_live_messages_of_the_range_are_packed(kind: str) -> None:
    records = [Record(MSG_ID if seq == 2 else 0, b"a", b"", b"%d" % seq, seq, seq) for seq in (1, 2, 3, 9)]
    records.insert(3, Record(SKIP, b"", b"", b"\x05", 4, 3))
    found, packed = pack(load_twin(TWIN, kind), b"".join(encode(each, SEED) for each in records), last=3, gone=(1,))
    assert found.msgs == 2 and not found.is_bad
    assert [message[0] for message in unpack(load_twin(TWIN, kind), packed)[1]] == [2, 3]


@both_twins
def test_packing_stops_where_there_is_no_room_or_a_record_is_damaged(kind: str) -> None:
    twin, record = load_twin(TWIN, kind), encode(Record(0, b"a", b"", b"x" * 50, 1, 1), SEED)
    after = encode(Record(0, b"a", b"", b"x" * 50, 2, 1), SEED)
    found, _ = pack(twin, record + after, room=60)
    assert found.end == len(record) and found.msgs == 1 and not found.is_bad
    found, _ = pack(twin, record + after[:-1] + b"!")
    assert found.end == len(record) and found.is_bad


@both_twins
def test_unpacking_stops_in_front_of_what_is_not_complete(kind: str) -> None:
    twin = load_twin(TWIN, kind)
    for cut in range(1, len(REAL)):
        found, messages = unpack(twin, REAL + REAL[:-cut])
        assert found.end == len(REAL) and len(messages) == 1 and not found.problem


@both_twins
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\xff" * 11, "a number is too long"),
        (encode_numbers(0, 1, 1, 0, 0), "a message has no subject"),
        (encode_numbers(2**30, 1, 1, 0, 0), "an entry is too large"),
    ],
)
def test_what_cannot_be_an_entry_is_told(kind: str, data: bytes, problem: str) -> None:
    assert unpack(load_twin(TWIN, kind), data)[0].problem == problem


@both_twins
def test_message_id_is_noticed(kind: str) -> None:
    data = encode_numbers(1, -5, 3, len(ID), 0) + b"a" + ID
    assert unpack(load_twin(TWIN, kind), data)[1] == [(3, -5, b"a", ID, b"", OP_MSG_ID)]


def test_entry_of_a_name_is_no_message() -> None:
    data = archive.entry("state.json", 7, b"{}")
    assert decode_numbers(data, 0, len(data)) == Head(10, 7, 0, 0, 2, 5)
    assert data.endswith(b"state.json{}")


RECORDS = st.builds(
    Record,
    st.sampled_from([0, 0, MSG_ID, SKIP]),
    st.binary(min_size=1, max_size=5),
    st.sampled_from([b"", ID]),
    st.binary(max_size=30),
    st.integers(1, 12),
    st.integers(-(2**63), 2**63 - 1),
)


def by_seq(record: Record) -> int:
    return record.seq


# As in a block: sequences rise.
ROWS = st.lists(RECORDS, max_size=6, unique_by=by_seq).map(lambda row: sorted(row, key=by_seq))


@needs_kernels
@given(ROWS, st.integers(0, 300), st.integers(0, 255), st.integers(0, 300))
def test_twins_pack_alike(records: list[Record], place: int, byte: int, room: int) -> None:
    data = bytearray(b"".join(encode(each, SEED) for each in records))
    if place < len(data):
        data[place] = byte
    results = [pack(twin, bytes(data), room, gone=(4, 7)) for twin in load_twins(TWIN)]
    assert results[0] == results[1]


@needs_kernels
@given(st.lists(RECORDS, max_size=6), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3))
def test_twins_unpack_alike(records: list[Record], changes: list[tuple[int, int]]) -> None:
    data = bytearray(pack(load_twin(TWIN, "py"), b"".join(encode(each, SEED) for each in records))[1])
    for place, byte in changes:
        if place < len(data):
            data[place] = byte
    results = [unpack(twin, bytes(data)) for twin in load_twins(TWIN)]
    assert results[0] == results[1]


@needs_kernels
def test_compiled_twin_is_loaded() -> None:
    assert archive.COMPILED
