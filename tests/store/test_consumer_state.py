"""What a consumer remembers."""

from __future__ import annotations

import re

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import BadRequest, CorruptBlock
from jetlake.store import consumer_state
from jetlake.store.consumer_state import (
    FILE_NAME_SIZE_MAX,
    HASH,
    HEADER,
    I64_MAX,
    I64_MIN,
    ConsumerState,
    Pending,
    check_state,
    consumer_file_name,
    decode_state,
    encode_state,
)
from jetlake.store.disk.files import is_temp
from jetlake.store.records.varint import U64_MAX

EXAMPLE = ConsumerState(7, 9, 3, 4, {5: Pending(4, 1000), 9: Pending(7, 1300)}, {5: 2})


BROKEN = {
    "consumer floor above delivered": ConsumerState(1, 5, 2, 5),
    "stream floor above delivered": ConsumerState(5, 1, 5, 2),
    "a position below zero": ConsumerState(-1, 5, -1, 5),
    "a position above u64": ConsumerState(U64_MAX + 1, 5, 0, 5),
    "pending at the floor": ConsumerState(5, 5, 2, 2, {2: Pending(3, 0)}),
    "pending above delivered": ConsumerState(5, 5, 2, 2, {6: Pending(3, 0)}),
    "pending consumer sequence at the floor": ConsumerState(5, 5, 2, 2, {3: Pending(2, 0)}),
    "pending consumer sequence above delivered": ConsumerState(5, 5, 2, 2, {3: Pending(6, 0)}),
    "pending sequences out of order": ConsumerState(5, 5, 2, 2, {3: Pending(5, 0), 4: Pending(4, 0)}),
    "two pending with one consumer sequence": ConsumerState(5, 5, 2, 2, {3: Pending(4, 0), 4: Pending(4, 0)}),
    "a time that is no i64": ConsumerState(5, 5, 2, 2, {3: Pending(4, I64_MAX + 1)}),
    "redelivered zero times": ConsumerState(5, 5, 2, 2, {}, {3: 0}),
    "redelivered but never delivered": ConsumerState(5, 5, 2, 2, {}, {6: 1}),
    "message zero redelivered": ConsumerState(5, 5, 2, 2, {}, {0: 1}),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_state_that_cannot_be_is_not_encoded(broken: ConsumerState) -> None:
    with pytest.raises(BadRequest):
        encode_state(broken)


def test_a_redelivered_message_need_not_be_pending_nor_above_the_floor() -> None:
    check_state(ConsumerState(5, 5, 2, 2, {}, {1: 3, 4: 1}))


STEP = st.one_of(
    st.tuples(st.just("deliver"), st.integers(1, 3)),
    st.tuples(st.just("redeliver"), st.integers(0, 20)),
    st.tuples(st.just("ack"), st.integers(0, 20)),
    st.tuples(st.just("ack_all"), st.integers(0, 20)),
)


class Naive:
    """nats-server's rules, with its walk over sequences to find the floor.

    It moves the floor when the consumer sequence right above it is acknowledged. That is always the smallest pending
    one, until `ack_all` leaves the sequence of a redelivery in between: there its floor waits, and ours goes on.
    """

    def __init__(self) -> None:
        self.state = ConsumerState()
        self.explicit_only = True

    def deliver(self, stream_seq: int) -> int:
        state = self.state
        state.delivered_consumer_seq += 1
        if stream_seq > state.delivered_stream_seq:
            state.delivered_stream_seq = stream_seq
            state.pending[stream_seq] = Pending(state.delivered_consumer_seq, 0)
        else:
            state.redelivered[stream_seq] = state.redelivered.get(stream_seq, 0) + 1
        return state.delivered_consumer_seq

    def ack(self, stream_seq: int) -> None:
        state = self.state
        state.redelivered.pop(stream_seq, None)
        is_smallest = stream_seq == min(state.pending)
        seq = state.pending.pop(stream_seq).seq
        if self.explicit_only:
            assert is_smallest == (seq == state.ack_floor_consumer_seq + 1)
        if not state.pending:
            self.set_floor(state.delivered_consumer_seq, state.delivered_stream_seq)
        elif is_smallest:
            following = next(n for n in range(stream_seq, state.delivered_stream_seq + 1) if n in state.pending)
            self.set_floor(state.pending[following].seq - 1, following - 1)

    def ack_all(self, stream_seq: int) -> int:
        self.explicit_only = False
        state = self.state
        consumer_seq = state.pending[stream_seq].seq
        for seq in [seq for seq in state.pending if seq <= stream_seq]:
            del state.pending[seq]
            state.redelivered.pop(seq, None)
        self.set_floor(consumer_seq, stream_seq)
        return consumer_seq

    def set_floor(self, consumer_seq: int, stream_seq: int) -> None:
        self.state.ack_floor_consumer_seq, self.state.ack_floor_stream_seq = consumer_seq, stream_seq


# The file


def test_the_example_in_the_specification_is_true() -> None:
    example = re.search(r"Example: .*?\n((?:    (?:[0-9a-f]{2} ?)+\n)+)", consumer_state.__doc__ or "", re.DOTALL)
    assert example is not None
    data = bytes.fromhex(example[1])
    assert decode_state(data) == (EXAMPLE, b"m")
    assert encode_state(EXAMPLE, b"m") == data


@st.composite
def states(draw: st.DrawFn) -> ConsumerState:
    """Any valid state."""
    u64 = st.integers(0, U64_MAX)
    floor_consumer, delivered_consumer = sorted((draw(u64), draw(u64)))
    floor_stream, delivered_stream = sorted((draw(u64), draw(u64)))
    count = min(draw(st.integers(0, 20)), delivered_consumer - floor_consumer, delivered_stream - floor_stream)
    consumer_seqs = st.sets(st.integers(floor_consumer + 1, delivered_consumer), min_size=count, max_size=count)
    stream_seqs = st.sets(st.integers(floor_stream + 1, delivered_stream), min_size=count, max_size=count)
    pairs = zip(sorted(draw(stream_seqs)), sorted(draw(consumer_seqs)), strict=True) if count else ()
    pending = {stream_seq: Pending(seq, draw(st.integers(I64_MIN, I64_MAX))) for stream_seq, seq in pairs}
    counts = st.dictionaries(st.integers(1, max(1, delivered_stream)), st.integers(1, U64_MAX), max_size=9)
    redelivered = draw(counts) if delivered_stream else {}
    return ConsumerState(delivered_consumer, delivered_stream, floor_consumer, floor_stream, pending, redelivered)


@given(states(), st.binary(max_size=50))
def test_any_state_and_meta_survive_encoding(state: ConsumerState, meta: bytes) -> None:
    assert decode_state(memoryview(encode_state(state, meta))) == (state, meta)


def test_every_flipped_bit_is_detected() -> None:
    data = encode_state(EXAMPLE, b"meta")
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBlock):
            decode_state(damaged)


def test_every_truncation_is_detected() -> None:
    data = encode_state(EXAMPLE, b"meta")
    for size in range(len(data)):
        with pytest.raises(CorruptBlock):
            decode_state(data[:size])


def test_bytes_after_the_end_are_detected() -> None:
    with pytest.raises(CorruptBlock):
        decode_state(encode_state(EXAMPLE) + b"\0")


@given(st.binary(max_size=120))
def test_any_other_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBlock):
        decode_state(data)


def hashed(body: bytes) -> bytes:
    return body + HASH.pack(xxhash.xxh64_intdigest(body))


@given(st.binary(max_size=40), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_wrong_body_under_a_right_hash_is_a_state_or_corrupt(
    body: bytes, pending_count: int, redelivered_count: int, meta_size: int
) -> None:
    header = HEADER.pack(b"JLCONSUM", 1, pending_count, redelivered_count, meta_size, 50, 50, 2, 2, 0)
    try:
        state, _ = decode_state(hashed(header + body))
    except CorruptBlock:
        return
    check_state(state)


@pytest.mark.parametrize("broken", [ConsumerState(1, 5, 2, 5), ConsumerState(5, 1, 5, 2)])
def test_a_state_that_cannot_be_is_corrupt_even_under_a_right_hash(broken: ConsumerState) -> None:
    positions = (broken.delivered_consumer_seq, broken.delivered_stream_seq)
    floors = (broken.ack_floor_consumer_seq, broken.ack_floor_stream_seq)
    with pytest.raises(CorruptBlock, match="ack floor"):
        decode_state(hashed(HEADER.pack(b"JLCONSUM", 1, 0, 0, 0, *positions, *floors, 0)))


def test_counts_that_cannot_fit_are_refused_before_anything_is_read() -> None:
    header = HEADER.pack(b"JLCONSUM", 1, 2**32 - 1, 0, 0, 50, 50, 2, 2, 0)
    with pytest.raises(CorruptBlock, match="do not fit"):
        decode_state(hashed(header + bytes(100)))


def test_an_unknown_version_is_refused_by_its_number() -> None:
    header = HEADER.pack(b"JLCONSUM", 2, 0, 0, 0, 0, 0, 0, 0, 0)
    with pytest.raises(CorruptBlock, match="expected version 1, found 2"):
        decode_state(hashed(header))


# File names


@pytest.mark.parametrize(
    ("name", "file_name"),
    [
        ("orders", "orders"),
        ("A-z_09", "A-z_09"),
        ("..", "%2E%2E"),
        ("../../etc/passwd", "%2E%2E%2F%2E%2E%2Fetc%2Fpasswd"),
        ("a b%", "a%20b%25"),
        ("é", "%C3%A9"),
        ("\0\n", "%00%0A"),
        ("\ud800", "%ED%A0%80"),
        ("~", "%7E"),
    ],
)
def test_names_become_safe_file_names(name: str, file_name: str) -> None:
    assert consumer_file_name(name) == file_name


def test_the_empty_name_is_refused() -> None:
    with pytest.raises(BadRequest):
        consumer_file_name("")


def test_a_name_that_fits_is_not_cut() -> None:
    assert consumer_file_name("x" * FILE_NAME_SIZE_MAX) == "x" * FILE_NAME_SIZE_MAX


@pytest.mark.parametrize("tail", ["", "é"])
def test_long_names_that_differ_at_the_end_have_different_files(tail: str) -> None:
    names = ["x" * 300 + end + tail for end in "abc"]
    files = {consumer_file_name(name) for name in names}
    assert len(files) == 3
    assert all(len(file) == FILE_NAME_SIZE_MAX and "~" in file for file in files)


ANY_TEXT = st.text(st.characters(), min_size=1, max_size=120)  # surrogates too


@given(ANY_TEXT, ANY_TEXT)
def test_different_names_have_different_safe_files(one: str, other: str) -> None:
    names = consumer_file_name(one), consumer_file_name(other)
    assert (names[0] == names[1]) == (one == other)
    assert all(re.fullmatch(r"[A-Za-z0-9_%~-]{1,200}", name) and not is_temp(name) for name in names)
