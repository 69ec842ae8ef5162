"""Loops over ranges of sequences: every test on both twins, then the twins against each other."""

from __future__ import annotations

import json
from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.records.varint import U64_MAX, encode_varint
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

NAME = "jetlake.store.index._ranges"
SEQS = st.one_of(st.integers(0, 60), st.integers(U64_MAX - 9, U64_MAX))


def columns(*ranges: tuple[int, int]) -> tuple[array[int], array[int]]:
    return array("Q", [first for first, _ in ranges]), array("Q", [last for _, last in ranges])


def members(starts: array[int], ends: array[int]) -> set[int]:
    return {seq for first, last in zip(starts, ends, strict=True) for seq in range(first, last + 1)}


@both_twins
def test_ranges_that_touch_or_overlap_become_one(kind: str) -> None:
    merged = load_twin(NAME, kind).merge_ranges(*columns((1, 3), (10, 12), (20, 20)), *columns((4, 5), (11, 15)))
    assert merged == (*columns((1, 5), (10, 15), (20, 20)), 12)


@both_twins
def test_sequences_are_merged_as_ranges_of_one(kind: str) -> None:
    seqs = array("Q", [2, 3, 4, 9])
    assert load_twin(NAME, kind).merge_ranges(*columns((5, 6)), seqs, seqs) == (*columns((2, 6), (9, 9)), 6)


@both_twins
def test_the_last_sequence_of_all_is_not_followed_by_the_first(kind: str) -> None:
    twin = load_twin(NAME, kind)
    assert twin.merge_ranges(*columns((0, 0)), *columns((U64_MAX, U64_MAX)))[2] == 2
    assert twin.merge_ranges(*columns((0, 5)), *columns((6, U64_MAX))) == (*columns((0, U64_MAX)), 2**64)


@both_twins
def test_sequences_within_ranges_are_found(kind: str) -> None:
    twin, ranges = load_twin(NAME, kind), columns((2, 3), (7, 7), (U64_MAX, U64_MAX))
    assert twin.seqs_within(*ranges, array("Q", [1, 2, 3, 4, 6, 8, U64_MAX])) == array("Q", [2, 3, U64_MAX])
    assert twin.seqs_within(*columns(), array("Q", [1])) == array("Q")
    assert twin.seqs_within(*ranges, array("Q")) == array("Q")


@both_twins
@pytest.mark.parametrize("count_max", [-1, 0, 1, 3, 4, 5, 100])
def test_sequences_as_json_stop_at_a_number_of_them(kind: str, count_max: int) -> None:
    found = load_twin(NAME, kind).seqs_json(*columns((0, 0), (9, 11), (U64_MAX, U64_MAX)), count_max)
    assert json.loads(found) == [0, 9, 10, 11, U64_MAX][: max(count_max, 0)]


@both_twins
def test_sequences_as_json_of_a_range_without_end(kind: str) -> None:
    assert load_twin(NAME, kind).seqs_json(*columns((0, U64_MAX)), 3) == b"[0,1,2]"


@both_twins
def test_columns_of_different_lengths_are_refused(kind: str) -> None:
    twin, good, bad = load_twin(NAME, kind), columns((1, 1)), (array("Q", [1]), array("Q"))
    for call in (lambda: twin.merge_ranges(*good, *bad), lambda: twin.merge_ranges(*bad, *good)):
        with pytest.raises(ValueError, match="1 starts and 0 ends"):
            call()
    with pytest.raises(ValueError, match="1 starts and 0 ends"):
        twin.encode_ranges(*bad)
    with pytest.raises(ValueError, match="1 starts and 0 ends"):
        twin.seqs_json(*bad, 1)
    with pytest.raises(ValueError, match="1 starts and 0 ends"):
        twin.seqs_within(*bad, array("Q", [1]))


@both_twins
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x01", "truncated"),
        (b"\x01\x80", "truncated"),
        (b"\x81\x00\x00", "longer than its value needs"),
        (b"\x01\x00\x01\x00", "touches"),
        (encode_varint(U64_MAX) + b"\x01", "exceeds"),
        (b"\xff" * 9 + b"\x02\x00", "exceeds"),
        (b"\x80" * 10 + b"\x00", "longer than 10 bytes"),
    ],
)
def test_bytes_that_are_not_ranges_are_refused(kind: str, data: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        load_twin(NAME, kind).decode_ranges(data, 0, 2 if data[:1] == b"\x01" and len(data) == 4 else 1)


@both_twins
@given(st.lists(SEQS), st.lists(SEQS))
def test_merging_is_the_union(kind: str, ours: list[int], theirs: list[int]) -> None:
    sets = [SequenceSet((seq, seq) for seq in seqs) for seqs in (ours, theirs)]
    starts, ends, count = load_twin(NAME, kind).merge_ranges(*sets[0].arrays, *sets[1].arrays)
    assert members(starts, ends) == {*ours, *theirs} and count == len({*ours, *theirs})
    assert all(last + 1 < first for last, first in zip(ends, starts[1:], strict=False))


@both_twins
@given(st.lists(SEQS))
def test_what_is_encoded_is_decoded(kind: str, seqs: list[int]) -> None:
    twin, (starts, ends) = load_twin(NAME, kind), SequenceSet((seq, seq) for seq in seqs).arrays
    data = b"xx" + twin.encode_ranges(starts, ends)
    assert twin.decode_ranges(data + b"more", 2, len(starts)) == (starts, ends, len(set(seqs)), len(data))


def outcome(twin: ModuleType, data: bytes, offset: int, count: int) -> object:
    try:
        return twin.decode_ranges(data, offset, count)
    except (IndexError, ValueError) as error:
        return str(error)


@needs_kernels
@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF]), max_size=30).map(bytes),
    st.integers(-1, 3),
    st.integers(-1, 9),
)
def test_twins_decode_any_bytes_alike(data: bytes, offset: int, count: int) -> None:
    python, compiled = load_twins(NAME)
    assert outcome(compiled, data, offset, count) == outcome(python, data, offset, count)
