"""Deliveries are read the same by both twins, whatever the bytes."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.jetstream.sourcing import deliveries
from jetlake.ops import OP_MSG_ID, OP_SPECIAL, OP_WORDS
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

TWINS = "jetlake.jetstream.sourcing._deliveries"
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n"


def frame(seq: int, consumer_seq: int, *, name: bytes = b"C", headers: bytes = b"", prefix: bytes = b"") -> bytes:
    reply = b"$JS.ACK.%sS.%s.1.%d.%d.%d.7" % (prefix, name, seq, consumer_seq, 1000 + seq)
    if headers:
        return b"HMSG s.a 1 %s %d %d\r\n%sxy\r\n" % (reply, len(headers), len(headers) + 2, headers)
    return b"MSG s.a 1 %s 2\r\nxy\r\n" % reply


def read(twin: ModuleType, data: bytes, consumer_seq: int = 1, seq: int = 0) -> tuple[int, int, list[int], list[int]]:
    ops = twin.read_frames(data)
    count = len(ops) // OP_WORDS
    seqs, times = array("Q", bytes(8 * count)), array("q", bytes(8 * count))
    end, pending = twin.read_run(data, ops, 0, count, b"C", consumer_seq, seq, seqs, times)
    return end, pending, list(seqs[:end]), list(times[:end])


@needs_kernels
def test_the_compiled_twin_is_used() -> None:
    assert deliveries.COMPILED and deliveries.read_run is load_twin(TWINS, "c").read_run


@both_twins
def test_frames_become_operations(kind: str) -> None:
    data = frame(5, 1) + frame(6, 2, headers=HEADERS) + b"MSG s.a 1 0\r\n\r\n"
    ops = load_twin(TWINS, kind).read_frames(data)
    rows = [ops[at : at + OP_WORDS] for at in range(0, len(ops), OP_WORDS)]
    parts = [[bytes(data[row[i] : row[i] + row[i + 1]]) for i in (0, 2, 4, 6)] for row in rows]
    assert parts[0] == [b"s.a", b"$JS.ACK.S.C.1.5.1.1005.7", b"", b"xy"]
    assert parts[1] == [b"s.a", b"$JS.ACK.S.C.1.6.2.1006.7", HEADERS, b"xy"]
    assert parts[2] == [b"s.a", b"", b"", b""]
    assert [row[9] for row in rows] == [0, OP_SPECIAL | OP_MSG_ID, 0]


@both_twins
@pytest.mark.parametrize("prefix", [b"", b"hub.HASH1234."])
def test_a_run_ends_where_a_delivery_is_missing(kind: str, prefix: bytes) -> None:
    data = b"".join(frame(seq, place, prefix=prefix) for place, seq in ((1, 5), (2, 6), (3, 9), (5, 10)))
    assert read(load_twin(TWINS, kind), data) == (3, 7, [5, 6, 9], [1005, 1006, 1009])
    assert read(load_twin(TWINS, kind), data, seq=5) == (2, 7, [5, 6], [1005, 1006])


@both_twins
@pytest.mark.parametrize("other", [frame(2, 2, name=b"D"), b"MSG s.a 1 $JS.FC.x 0\r\n\r\n", b"MSG s.a 1 0\r\n\r\n"])
def test_a_run_ends_in_front_of_what_is_not_of_this_consumer(kind: str, other: bytes) -> None:
    assert read(load_twin(TWINS, kind), frame(1, 1) + other + frame(3, 3))[0] == 1


@both_twins
@pytest.mark.parametrize(
    "bad", [b"MSG a 1 3\r\nxy\r\n", b"PUB a 2\r\nxy\r\n", b"MSG a 1 2\r\nxyz", b"HMSG a 1 5 2\r\nxy\r\n"]
)
def test_what_is_no_frame_is_refused(kind: str, bad: bytes) -> None:
    with pytest.raises(ValueError, match=r"no frame at \d+"):
        load_twin(TWINS, kind).read_frames(frame(1, 1) + bad)


REPLIES = st.one_of(
    st.binary(max_size=30).filter(lambda text: not {32, 13, 10} & set(text)),
    st.lists(st.sampled_from([b"1", b"2", b"C", b"", b"99999999999999999999", b"x"]), max_size=12).map(
        lambda tokens: b".".join([b"$JS", b"ACK", *tokens])
    ),
)


@needs_kernels
@given(replies=st.lists(REPLIES, max_size=5), seq=st.integers(0, 2))
def test_both_twins_agree(replies: list[bytes], seq: int) -> None:
    data = b"".join(b"MSG s.a 1 %s 1\r\nx\r\n" % reply if reply else frame(1, 1) for reply in replies)
    py, c = (read(twin, data, seq=seq) for twin in load_twins(TWINS))
    assert py == c


@needs_kernels
@given(data=st.binary(max_size=40).map(lambda text: b"MSG " + text))
def test_both_twins_refuse_the_same(data: bytes) -> None:
    outcomes = []
    for twin in load_twins(TWINS):
        try:
            outcomes.append(list(twin.read_frames(data)))
        except ValueError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@both_twins
def test_a_stream_ends_in_front_of_what_is_not_whole_or_of_another_subscription(kind: str) -> None:
    twin, whole = load_twin(TWINS, kind), frame(1, 1) + frame(2, 2, headers=HEADERS)
    for rest in (b"", b"PING\r\n", frame(3, 3)[:-1], b"MSG s.a 11 2\r\nxy\r\n", b"MSG s.a 2 2\r\nxy\r\n", b"MSG "):
        data = b"+OK\r\n" + whole + rest
        ops, end = twin.read_stream(data, 5, len(data), b"1")
        assert (len(ops) // OP_WORDS, end) == (2, 5 + len(whole))
        assert data[ops[0] : ops[0] + ops[1]] == b"s.a" and data[ops[6] : ops[6] + ops[7]] == b"xy"


@both_twins
def test_a_stream_is_read_within_its_bounds(kind: str) -> None:
    with pytest.raises(IndexError):
        load_twin(TWINS, kind).read_stream(b"MSG", 0, 4, b"1")


@given(
    pieces=st.lists(
        st.one_of(
            st.integers(1, 9).map(lambda seq: frame(seq, seq)),
            st.integers(1, 9).map(lambda seq: frame(seq, seq, headers=HEADERS)),
            st.sampled_from(
                [b"PING\r\n", b"MSG a 2 1\r\nx\r\n", b"MSG a 1 1\r\nx\r\n", b"HMSG a 1 9 1\r\nx\r\n", b"\r\n"]
            ),
        )
    ),
    cut=st.integers(0, 60),
)
def test_both_twins_read_a_stream_alike(pieces: list[bytes], cut: int) -> None:
    data = b"".join(pieces)
    data = data[: max(len(data) - cut, 0)]
    py, c = (twin.read_stream(data, 0, len(data), b"1") for twin in load_twins(TWINS))
    assert py == c
