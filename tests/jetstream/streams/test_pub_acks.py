"""The acks of a run of publishes, in both twins."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.streams import pub_acks
from jetlake.ops import append_op
from tests.twins import load_twin, load_twins, needs_kernels

TWINS = "jetlake.jetstream.streams._pub_acks"

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
    assert pub_acks.COMPILED and pub_acks.ack_frames is load_twin(TWINS, "c").ack_frames


def test_acks_go_to_replies_with_the_prefix_and_one_token(twin: ModuleType) -> None:
    data, ops = batch(
        (b"s", b"in.1", b"", b""), (b"s", b"", b"", b""), (b"s", b"in.2", b"", b""), (b"s", b"o.1", b"", b"")
    )
    made, stop = twin.ack_frames(data, ops, 0, 4, b"in.", False, b"1", b'{"seq":', 9)
    assert made == b'MSG in.1 1 9\r\n{"seq":9}\r\nMSG in.2 1 10\r\n{"seq":11}\r\n'
    assert stop == 3


@pytest.mark.parametrize(
    ("reply", "dots", "matches"),
    [
        (b"in.a", False, True),
        (b"in.a.b", False, False),
        (b"in.a.b", True, True),
        (b"in.", False, False),
        (b"in.", True, False),
        (b"in.a..b", True, False),
        (b"in..a", True, False),
        (b"in.a.", True, False),
        (b"inn.a", False, False),
        (b"in", True, False),
    ],
)
def test_only_replies_that_the_subscription_matches_are_taken(
    twin: ModuleType, reply: bytes, dots: bool, matches: bool
) -> None:
    data, ops = batch((b"s", reply, b"", b""))
    _, stop = twin.ack_frames(data, ops, 0, 1, b"in.", dots, b"1", b"{", 1)
    assert stop == int(matches)


@needs_kernels
@given(st.lists(MESSAGE, min_size=1, max_size=6), TEXT, st.integers(1, 2**64 - 100), st.booleans())
def test_the_twins_agree(messages: list[tuple[bytes, bytes, bytes, bytes]], sid: bytes, seq: int, dots: bool) -> None:
    data, ops = batch(*messages)
    count, prefix = len(messages), messages[0][1][:1]
    made = [
        twin.ack_frames(data, ops, 0, count, prefix, dots, sid, b'{"stream":"S","seq":', seq)
        for twin in load_twins(TWINS)
    ]
    assert made[0] == made[1]
