"""The dedupe window, in both twins."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.streams import msg_ids
from jetlake.ops import OP_ADMITTED, OP_EXPECTS, OP_MSG_ID, OP_SPECIAL, OP_WORDS, append_op
from jetlake.store.format import MSG_ID
from jetlake.store.records.record import Record, encode
from tests.twins import load_twin, load_twins, needs_kernels

TWINS = "jetlake.jetstream.streams._msg_ids"

NO_LIMIT = -1
SEED = 7


def block(*lines: bytes) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def batch(*blocks: bytes, payload: bytes = b"") -> tuple[bytearray, array[int]]:
    data, ops = bytearray(), array("I")
    for headers in blocks:
        special = OP_SPECIAL if b"\r\nNats-" in headers else 0
        append_op(
            ops, data, b"s", payload, headers, flags=special | (OP_MSG_ID if b"\r\nNats-Msg-Id:" in headers else 0)
        )
    return data, ops


@pytest.fixture(params=["py", pytest.param("c", marks=needs_kernels)])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return load_twin(TWINS, request.param)


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert msg_ids.COMPILED and msg_ids.MsgIds is load_twin(TWINS, "c").MsgIds


def test_an_id_is_known_for_as_long_as_the_window(twin: ModuleType) -> None:
    ids = twin.MsgIds(100)
    ids.add(b"a", 5, 1000)
    assert ids.find(b"a", 1099) == 5
    assert ids.find(b"a", 1100) == 0
    assert len(ids) == 0


def test_admit_stops_at_an_id_that_is_known(twin: ModuleType) -> None:
    ids = twin.MsgIds(100)
    data, ops = batch(block(b"Nats-Msg-Id: a"), block(b"Nats-Msg-Id:b"), block(b"Nats-Msg-Id: a"))
    assert ids.admit(data, ops, 0, 3, 10, 0, NO_LIMIT) == 2
    assert (ids.find(b"a", 0), ids.find(b"b", 0)) == (10, 11)


def test_what_is_admitted_is_marked(twin: ModuleType) -> None:
    ids = twin.MsgIds(100)
    data, ops = batch(block(b"Nats-Msg-Id: a"), block(b"Nats-TTL: 1s"))
    assert ids.admit(data, ops, 0, 2, 1, 0, NO_LIMIT) == 1
    assert [ops[9], ops[OP_WORDS + 9]] == [OP_SPECIAL | OP_MSG_ID | OP_ADMITTED, OP_SPECIAL]


def test_an_expected_last_sequence_of_the_subject_is_noted(twin: ModuleType) -> None:
    ids = twin.MsgIds(100)
    lines = [b"Nats-Expected-Last-Subject-Sequence: 7", b"Nats-Expected-Last-Subject-Sequence:%d" % (2**32 + 5)]
    data, ops = batch(block(lines[0]), block(b"Nats-Msg-Id: a", lines[1]))
    assert ids.admit(data, ops, 0, 2, 1, 0, NO_LIMIT) == 2
    assert ops[9:12].tolist() == [OP_SPECIAL | OP_ADMITTED | OP_EXPECTS, 7, 0]
    assert ops[-3:].tolist() == [OP_SPECIAL | OP_MSG_ID | OP_ADMITTED | OP_EXPECTS, 5, 1]
    assert ids.find(b"a", 0) == 2


def test_an_expected_last_sequence_of_the_stream_must_be_that(twin: ModuleType) -> None:
    ids = twin.MsgIds(100)
    data, ops = batch(*(block(b"Nats-Expected-Last-Sequence: %d" % seq) for seq in (10, 11, 11)))
    assert ids.admit(data, ops, 0, 3, 11, 0, NO_LIMIT) == 2
    assert ids.admit(data, ops, 1, 3, 11, 0, NO_LIMIT) == 1, "the one before it was not stored after all"


def test_what_was_taken_back_can_be_admitted_again(twin: ModuleType) -> None:
    ids = twin.MsgIds(100)
    data, ops = batch(*(block(b"Nats-Msg-Id: %d" % number) for number in range(3)))
    assert ids.admit(data, ops, 0, 3, 1, 0, NO_LIMIT) == 3
    ids.forget_from(1)
    assert ids.admit(data, ops, 1, 3, 1, 0, NO_LIMIT) == 3
    assert [ids.find(b"%d" % number, 0) for number in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    "headers",
    [
        block(b"Nats-Rollup: sub"),
        block(b"Nats-Msg-Id: a", b"Nats-TTL: 1s"),
        block(b"Nats-TTL: 1s", b"Nats-Msg-Id: a"),
        block(b"Nats-Msg-Id:"),
        block(b"Nats-Msg-Id: a", b"Nats-Msg-Id: b"),
        block(b"Nats-Expected-Last-Subject-Sequence: x"),
        block(b"Nats-Expected-Last-Subject-Sequence: 1 "),
        block(b"Nats-Expected-Last-Subject-Sequence:"),
        block(b"Nats-Expected-Last-Subject-Sequence: -1"),
        block(b"Nats-Expected-Last-Subject-Sequence: " + b"1" * 20),
        block(b"Nats-Expected-Last-Subject-Sequence: 1", b"Nats-Expected-Last-Subject-Sequence: 1"),
        block(b"Nats-Expected-Last-Subject-Sequence: 1", b"Nats-Expected-Last-Subject-Sequence-Subject: s"),
        block(b"Nats-Expected-Last-Sequence: 1", b"Nats-Expected-Last-Sequence: 1"),
        block(b"Nats-Expected-Last-Sequence: 5"),
        block(b"Nats-Expected-Last-Msg-Id: a"),
        block(b"Nats-"),
        b"NATS/1.0 503\r\n\r\n",
        b"NATS/1.0",
        b"x",
        b"NATS/1.0\r\n" + b"x" * 65526,
    ],
)
def test_admit_stops_at_what_needs_a_rule(twin: ModuleType, headers: bytes) -> None:
    ids = twin.MsgIds(100)
    data, ops = batch(b"", block(b"a: b"), headers)
    assert ids.admit(data, ops, 0, 3, 1, 0, NO_LIMIT) == 2
    assert len(ids) == 0


def test_admit_stops_at_a_message_that_is_too_large(twin: ModuleType) -> None:
    ids = twin.MsgIds(100)
    data, ops = batch(b"", block(b"a: b"), payload=b"12345")
    assert ids.admit(data, ops, 0, 2, 1, 0, 5) == 1
    assert ids.admit(data, ops, 0, 2, 1, 0, 4) == 0
    assert ids.admit(data, ops, 0, 2, 1, 0, 5 + len(block(b"a: b"))) == 2


def test_ids_of_what_was_not_stored_are_taken_back(twin: ModuleType) -> None:
    ids = twin.MsgIds(100)
    data, ops = batch(*(block(b"Nats-Msg-Id: %d" % number) for number in range(4)))
    assert ids.admit(data, ops, 0, 4, 1, 0, NO_LIMIT) == 4
    ids.forget_from(3)
    assert [ids.find(b"%d" % number, 0) for number in range(4)] == [1, 2, 0, 0]


def test_without_a_window_ids_mean_nothing(twin: ModuleType) -> None:
    ids = twin.MsgIds(0)
    data, ops = batch(block(b"Nats-Msg-Id: a"), block(b"Nats-Msg-Id: a"))
    assert ids.admit(data, ops, 0, 2, 1, 0, NO_LIMIT) == 2
    ids.add(b"b", 1, 0)
    assert len(ids) == 0


def test_until_they_are_loaded_no_id_passes(twin: ModuleType) -> None:
    ids = twin.MsgIds(100, is_loaded=False)
    data, ops = batch(block(b"a: b"), block(b"Nats-Msg-Id: a"))
    assert ids.admit(data, ops, 0, 2, 1, 0, NO_LIMIT) == 1
    ids.is_loaded = True
    assert ids.admit(data, ops, 0, 2, 1, 0, NO_LIMIT) == 2


def test_ids_are_loaded_from_records(twin: ModuleType) -> None:
    records = [
        Record(MSG_ID, b"s", block(b"Nats-Msg-Id: a"), b"x", 1, 10),
        Record(0, b"s", block(b"Nats-Msg-Id: not marked"), b"x", 2, 20),
        Record(MSG_ID, b"s", block(b"x: y", b"Nats-Msg-Id: b"), b"x", 3, 30),
        Record(MSG_ID, b"s", block(b"Nats-Msg-Id: damaged"), b"x", 4, 40),
        Record(MSG_ID, b"s", block(b"Nats-Msg-Id: outside"), b"x", 5, 50),
    ]
    body, offsets = bytearray(), array("I")
    for record in records:
        offsets.append(len(body))
        body += encode(record, SEED)
    body[offsets[4] - 1] ^= 1
    ids = twin.MsgIds(100, is_loaded=False)
    ids.load(body, offsets, 0, 4, SEED)
    assert len(ids) == 2 and (ids.find(b"a", 40), ids.find(b"b", 40)) == (1, 3)
    with pytest.raises(IndexError):
        ids.load(body, offsets, 0, 6, SEED)


@needs_kernels
@given(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 3), st.integers(0, 40), st.booleans()),
        max_size=200,
    )
)
def test_the_twins_agree(steps: list[tuple[bytes, int, int, bool]]) -> None:
    twins = [twin.MsgIds(50) for twin in load_twins(TWINS)]
    now, seq = 0, 1
    for msg_id, kind, wait, suffix in steps:
        now += wait
        name = msg_id + (b"-%d" % seq if suffix else b"")
        found = []
        for ids in twins:
            if kind == 0:
                ids.forget_from(max(seq - 2, 1))
            elif kind == 1:
                ids.add(name, seq, now)
            data, ops = batch(block(b"Nats-Msg-Id: " + name), block(b"Nats-Msg-Id: " + msg_id))
            found.append((ids.admit(data, ops, 0, 2, seq, now, NO_LIMIT), ids.find(msg_id, now), len(ids)))
        assert found[0] == found[1]
        seq += 2


LINES = [
    b"Nats-Msg-Id: a",
    b"Nats-Expected-Last-Sequence: 0",
    b"Nats-Expected-Last-Sequence: 1",
    b"Nats-Expected-Last-Subject-Sequence: 3",
    b"Nats-Expected-Last-Subject-Sequence:  03",
    b"Nats-Expected-Last-Subject-Sequence: ",
    b"Nats-TTL: 1",
    b"X: y",
    b"Nats-Msg-Id: b",
]


@needs_kernels
@given(st.lists(st.lists(st.sampled_from(LINES), max_size=3), min_size=1, max_size=4))
def test_the_twins_admit_the_same(blocks: list[list[bytes]]) -> None:
    results = []
    for twin in load_twins(TWINS):
        ids = twin.MsgIds(50)
        data, ops = batch(*(block(*lines) for lines in blocks))
        results.append((ids.admit(data, ops, 0, len(blocks), 1, 0, NO_LIMIT), ops, len(ids)))
    assert results[0] == results[1]


@given(lines=st.lists(st.sampled_from([b"Nats-Msg-Id: a", b"Nats-Msg-Id:b", b"Nats-Msg-Id: ", b"X: 1"]), max_size=6))
def test_what_was_admitted_elsewhere_is_taken_as_if_it_were_here(lines: list[bytes]) -> None:
    for twin in load_twins(TWINS):
        ids, others = twin.MsgIds(100), twin.MsgIds(100)
        data, ops = batch(*map(block, lines))
        end = ids.admit(data, ops, 0, len(lines), 5, 7, NO_LIMIT)
        others.add(b"old", 1, -100)
        others.take(data, ops, 0, end, 5, 7)
        assert [others.find(name, 7) for name in (b"a", b"b", b"old")] == [
            *(ids.find(name, 7) for name in (b"a", b"b")),
            0,
        ]
        with pytest.raises(IndexError):
            others.take(data, ops, 0, len(lines) + 1, 5, 7)
