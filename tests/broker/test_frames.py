"""Frames of a batch of publishes, in both twins."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.broker import frames
from jetlake.ops import append_op
from jetlake.wire.headers import header_flags
from tests.twins import load_twin, load_twins, needs_kernels

TWINS = "jetlake.broker._frames"

TEXT = st.binary(min_size=1, max_size=12).filter(lambda text: not set(text) & set(b" \t\r\n"))
MESSAGE = st.tuples(TEXT, st.just(b"") | TEXT, st.just(b"") | st.binary(max_size=30), st.binary(max_size=200))


def batch(*messages: tuple[bytes, bytes, bytes, bytes]) -> tuple[bytearray, array[int]]:
    data, ops = bytearray(), array("I")
    for subject, reply, headers, payload in messages:
        append_op(ops, data, subject, payload, headers, reply)
    return data, ops


@pytest.fixture(params=["py", pytest.param("c", marks=needs_kernels)])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return load_twin(TWINS, request.param)


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert frames.COMPILED and frames.msg_frames is load_twin(TWINS, "c").msg_frames


def test_a_message_becomes_a_frame_of_its_kind(twin: ModuleType) -> None:
    data, ops = batch((b"a.b", b"", b"", b"hello"), (b"c", b"r", b"NATS/1.0\r\n\r\n", b""))
    assert twin.msg_frames(data, ops, 0, 2, b"7", True) == (
        b"MSG a.b 7 5\r\nhello\r\nHMSG c 7 r 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        17,
    )


def test_headers_are_left_out_for_a_client_that_takes_none(twin: ModuleType) -> None:
    data, ops = batch((b"c", b"r", b"NATS/1.0\r\n\r\n", b"x"))
    assert twin.msg_frames(data, ops, 0, 1, b"7", False) == (b"MSG c 7 r 1\r\nx\r\n", 1)


@pytest.mark.parametrize(
    ("reply", "queues", "headers", "line"),
    [
        (b"", b"", b"", b"LMSG b 2"),
        (b"rep", b"", b"", b"LMSG b rep 2"),
        (b"", b"q2", b"", b"LMSG b | q2 2"),
        (b"rep", b"q1 q2", b"", b"LMSG b + rep q1 q2 2"),
        (b"", b"", b"NATS/1.0\r\n\r\n", b"HMSG b 12 14"),
        (b"rep", b"q2", b"NATS/1.0\r\n\r\n", b"HMSG b + rep q2 12 14"),
    ],
)
def test_a_link_gets_messages_with_the_queue_groups_they_are_for(
    twin: ModuleType, reply: bytes, queues: bytes, headers: bytes, line: bytes
) -> None:
    data, ops = batch((b"b", reply, headers, b"hi"))
    made = twin.link_frames(data, ops, 0, 1, b"LMSG", b"HMSG", queues, True)
    assert made == (b"%s\r\n%shi\r\n" % (line, headers), len(headers) + 2)


def test_a_link_that_takes_no_headers_gets_none(twin: ModuleType) -> None:
    data, ops = batch((b"c", b"r", b"NATS/1.0\r\n\r\n", b"x"))
    assert twin.link_frames(data, ops, 0, 1, b"LMSG", b"HMSG", b"", False) == (b"LMSG c r 1\r\nx\r\n", 1)


def test_an_operation_outside_the_buffer_is_refused(twin: ModuleType) -> None:
    data, ops = batch((b"s", b"r", b"", b"payload"))
    del data[-1:]
    with pytest.raises(IndexError):
        twin.msg_frames(data, ops, 0, 1, b"1", True)
    with pytest.raises(IndexError):
        twin.msg_frames(data, ops, 0, 2, b"1", True)


@needs_kernels
@given(st.lists(MESSAGE, min_size=1, max_size=6), TEXT, st.booleans())
def test_the_twins_agree(messages: list[tuple[bytes, bytes, bytes, bytes]], sid: bytes, headers: bool) -> None:
    data, ops = batch(*messages)
    count = len(messages)
    made = [
        (
            twin.msg_frames(data, ops, 0, count, sid, headers),
            twin.link_frames(data, ops, 0, count, b"LMSG", b"HMSG", sid, headers),
            twin.link_frames(data, ops, 0, count, b"RMSG A", b"HMSG A", b"", headers),
        )
        for twin in load_twins(TWINS)
    ]
    assert made[0] == made[1]


@needs_kernels
@given(st.lists(MESSAGE, min_size=1, max_size=10))
def test_twins_find_the_same_size_of_messages(messages: list[tuple[bytes, bytes, bytes, bytes]]) -> None:
    _, ops = batch(*messages)
    first = len(messages) // 2
    for twin in load_twins(TWINS):
        expected = sum(len(headers) + len(payload) for _, _, headers, payload in messages[first:])
        assert twin.msgs_size(ops, first, len(messages)) == expected
        with pytest.raises(IndexError):
            twin.msgs_size(ops, first, len(messages) + 1)


TRACED = b"NATS/1.0\r\nA: b\r\nNats-Trace-Dest: t\r\n\r\n"
PARENT = b"NATS/1.0\r\nTraceParent: 00-a-b-01\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "by_dest", "by_parent"),
    [
        (TRACED, True, True),
        (PARENT, False, True),
        (b"", False, False),
        (b"NATS/1.0\r\nNats-Trace-Des: t\r\n\r\n", False, False),
        (b"NATS/1.0\r\nnats-trace-dest: t\r\n\r\n", False, False),
        (b"NATS/1.0\r\nX-Nats-Trace-Dest: t\r\n\r\n", False, False),
        (b"NATS/1.0\r\nNats-Trace-Dest:", True, True),
        (b"Nats-Trace-Dest: t", False, False),
        (b"NATS/1.0\r\ntraceparent", False, False),
    ],
)
def test_publishes_that_ask_for_a_trace_are_found(
    twin: ModuleType, headers: bytes, by_dest: bool, by_parent: bool
) -> None:
    data, ops = bytearray(), array("I")
    for block in (b"", b"NATS/1.0\r\nNats-Msg-Id: 1\r\n\r\n", headers, TRACED):
        append_op(ops, data, b"s", b"p", block, flags=header_flags(block))
    assert twin.find_traced(data, ops, 0, 4, False) == (2 if by_dest else 3)
    assert twin.find_traced(data, ops, 0, 4, True) == (2 if by_parent else 3)
    assert twin.find_traced(data, ops, 0, 2, True) == 2


@needs_kernels
@given(st.lists(st.binary(max_size=60) | st.just(TRACED) | st.just(PARENT), min_size=1, max_size=5), st.booleans())
def test_twins_find_the_same_traces(blocks: list[bytes], by_parent: bool) -> None:
    data, ops = bytearray(), array("I")
    for block in blocks:
        append_op(ops, data, b"s", b"p", block, flags=header_flags(block))
    python, compiled = load_twins(TWINS)
    args = (data, ops, 0, len(blocks), by_parent)
    assert python.find_traced(*args) == compiled.find_traced(*args)
