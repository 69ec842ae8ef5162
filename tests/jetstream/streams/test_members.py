"""Members of batches among the publishes of a run, in both twins."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.streams import members
from jetlake.ops import OP_SPECIAL, OP_WORDS, append_op
from tests.twins import load_twin, load_twins, needs_kernels

TWINS = "jetlake.jetstream.streams._members"
LINES = st.sampled_from(
    [
        b"Nats-Batch-Id: b",
        b"Nats-Batch-Id:b",
        b"Nats-Batch-Id: c",
        b"Nats-Batch-Sequence: 3",
        b"Nats-Batch-Sequence: 4",
        b"Nats-Batch-Sequence: 4x",
        b"Nats-Batch-Sequence:",
        b"Nats-Batch-Commit: 1",
        b"Nats-Required-Api-Level: 1",
        b"Nats-Msg-Id: 1",
        b"Nats-",
        b"A: b",
        b"",
    ]
)
BLOCK = st.builds(lambda lines: b"NATS/1.0\r\n" + b"\r\n".join(lines) + b"\r\n\r\n", st.lists(LINES, max_size=4))
REPLY = st.sampled_from([b"", b"r.b.9.ok.3.1.$FI", b"r.b.9.ok.4.1.$FI", b"r.b.9.ok.4.2.$FI", b"r.b.9.ok.5.1.$FI"])
MESSAGE = st.tuples(st.binary(min_size=1, max_size=5), REPLY, BLOCK | st.just(b"") | st.just(b"NATS/1.0 503\r\n\r\n"))


def member(seq: int, *more: bytes) -> tuple[bytes, bytes, bytes]:
    lines = b"\r\n".join((b"Nats-Batch-Id: b", b"Nats-Batch-Sequence: %d" % seq, *more))
    return b"s", b"", b"NATS/1.0\r\n" + lines + b"\r\n\r\n"


def batch(*messages: tuple[bytes, bytes, bytes]) -> tuple[bytearray, array[int]]:
    data, ops = bytearray(b"before"), array("I")
    for subject, reply, headers in messages:
        append_op(ops, data, subject, b"payload", headers, reply, OP_SPECIAL if b"\r\nNats-" in headers else 0)
    return data + b"after", ops


@pytest.fixture(params=["py", pytest.param("c", marks=needs_kernels)])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    return load_twin(TWINS, request.param)


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert members.COMPILED and members.atomic_run is load_twin(TWINS, "c").atomic_run


@pytest.mark.parametrize(
    "other",
    [
        member(4),
        member(6),
        member(5, b"Nats-Batch-Commit: 1"),
        member(5, b"Nats-Batch-Id: b"),
        (b"s", b"reply", member(5)[2]),
        (b"s", b"", b""),
        (b"s", b"", b"NATS/1.0 503\r\n" + member(5)[2][10:]),
    ],
)
def test_a_run_ends_in_front_of_what_is_not_the_next_member(
    twin: ModuleType, other: tuple[bytes, bytes, bytes]
) -> None:
    data, ops = batch(member(3), member(4), other, member(6))
    assert twin.atomic_run(data, ops, 0, 4, b"b", 3, -1) == (2, 6, ops[2 * OP_WORDS], True)


def test_a_run_tells_whether_its_members_are_plain(twin: ModuleType) -> None:
    data, ops = batch(member(1), member(2, b"Nats-Msg-Id: 1"), member(3, b"X: y"))
    assert twin.atomic_run(data, ops, 0, 3, b"b", 1, -1)[::3] == (3, False)
    assert twin.atomic_run(data, ops, 2, 3, b"b", 3, -1)[::3] == (3, True)


def test_a_run_ends_in_front_of_a_member_that_is_too_large(twin: ModuleType) -> None:
    data, ops = batch(member(1), member(2, b"X: y"))
    assert twin.atomic_run(data, ops, 0, 2, b"b", 1, len(member(1)[2]) + 7)[0] == 1


def test_appends_follow_each_other_by_their_replies(twin: ModuleType) -> None:
    replies = [b"r.b.9.ok.%d.%d.$FI" % place for place in ((9, 1), (10, 1), (11, 1), (12, 2))]
    data, ops = batch(*((b"s", reply, b"") for reply in replies))
    assert twin.fast_run(data, ops, 0, 4, b"r.b.9.ok.", 9, -1) == 3
    assert twin.fast_run(data, ops, 0, 4, b"r.b.9.ok.", 8, -1) == 0
    assert twin.fast_run(data, ops, 0, 4, b"r.c.9.ok.", 9, -1) == 0


def test_moved_operations_find_their_parts(twin: ModuleType) -> None:
    data, ops = batch(member(1), member(2))
    words = twin.moved(ops, 1, 2, -3)
    start, size = words[4:6]
    assert data[3:][start : start + size] == member(2)[2]


@needs_kernels
@given(st.lists(MESSAGE, max_size=6), st.integers(0, 3), st.integers(-1, 90))
def test_the_twins_agree(messages: list[tuple[bytes, bytes, bytes]], first: int, size_max: int) -> None:
    data, ops = batch(*messages)
    first, stop = min(first, len(messages)), len(messages)
    for call in (
        lambda twin: twin.atomic_run(data, ops, first, stop, b"b", 3, size_max),
        lambda twin: twin.fast_run(data, ops, first, stop, b"r.b.9.ok.", 3, size_max),
        lambda twin: twin.moved(ops, first, stop, 7),
    ):
        reference, compiled = map(call, load_twins(TWINS))
        assert reference == compiled


@pytest.mark.parametrize("place", [0, 2, 4, 6])
def test_operations_outside_of_the_buffer_are_refused(twin: ModuleType, place: int) -> None:
    data, ops = batch(member(1))
    ops[place + 1] = 2**31
    for call in (twin.atomic_run, twin.fast_run):
        with pytest.raises(IndexError):
            call(data, ops, 0, 1, b"b", 1, -1)
