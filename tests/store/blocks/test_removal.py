"""Removal groups: what a tombstone says, as bytes and back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.blocks.removal import ERASE, LOST, REMOVED, RemovalGroup, decode_group
from jetlake.store.index.sequence_set import SequenceSet

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
SMALL = RemovalGroup(3, 1, SequenceSet([(5, 7), (300, 300)]), {b"a": (3, 96), b"b.c": (1, 40)})


@st.composite
def groups(draw: st.DrawFn) -> RemovalGroup:
    kind = draw(st.sampled_from([REMOVED, LOST, ERASE]))
    ranges = draw(st.lists(st.tuples(U64, U64).map(sorted), max_size=5))
    subjects = draw(st.dictionaries(st.binary(max_size=20), st.tuples(U64, U64), max_size=5))
    place = draw(st.tuples(U32, U32)) if kind == ERASE else (0, 0)
    return RemovalGroup(draw(U32), draw(U32), SequenceSet(ranges), subjects, kind, place)


@given(groups())
def test_a_group_that_was_encoded_is_decoded(group: RemovalGroup) -> None:
    assert decode_group(group.encode()) == group


def test_the_subjects_keep_their_order() -> None:
    group = RemovalGroup(1, 0, SequenceSet(), {b"b": (1, 1), b"a": (2, 2)})
    assert list(decode_group(group.encode()).subjects) == [b"b", b"a"]


def test_the_bytes_are_those_of_version_1() -> None:
    group = RemovalGroup(300, 1, SequenceSet([(5, 7)]), {b"ab": (3, 200)})
    assert group.encode().hex(" ") == "00 ac 02 01 04 01 01 05 02 01 02 61 62 03 c8 01"


def test_only_an_erasure_names_a_place() -> None:
    one = SequenceSet([(5, 5)])
    erase, removed = RemovalGroup(1, 0, one, kind=ERASE, place=(300, 40)), RemovalGroup(1, 0, one, place=(300, 40))
    assert decode_group(erase.encode()).place == (300, 40)
    assert decode_group(removed.encode()).place == (0, 0)
    assert erase.encode() == bytes((ERASE,)) + removed.encode()[1:] + b"\xac\x02\x28"


def test_messages_and_bytes_are_added_up_over_the_subjects() -> None:
    assert (SMALL.count, SMALL.size) == (4, 136)


def test_a_group_without_subjects_counts_nothing() -> None:
    group = RemovalGroup(0, 0, SequenceSet([(1, 9)]), kind=LOST)
    assert (group.count, group.size) == (0, 0)


@pytest.mark.parametrize("group", [SMALL, RemovalGroup(1, 2, SequenceSet([(1, 1)]), kind=ERASE, place=(9, 99))])
def test_a_group_cut_at_any_byte_is_refused(group: RemovalGroup) -> None:
    data = group.encode()
    for size in range(len(data)):
        with pytest.raises(ValueError):
            decode_group(data[:size])


def test_bytes_after_a_group_are_refused() -> None:
    with pytest.raises(ValueError, match="bytes after a removal group"):
        decode_group(SMALL.encode() + b"\0")


@pytest.mark.parametrize("data", [b"", b"\3", b"\xff" + SMALL.encode()[1:]])
def test_an_unknown_kind_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="unknown kind of removal group"):
        decode_group(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_group_or_refused(data: bytes) -> None:
    with suppress(ValueError):
        assert decode_group(data).kind == data[0]


@given(st.integers(0, 8 * len(SMALL.encode()) - 1))
def test_a_damaged_group_is_another_group_or_refused(bit: int) -> None:
    damaged = bytearray(SMALL.encode())
    damaged[bit // 8] ^= 1 << bit % 8
    with suppress(ValueError):
        assert decode_group(bytes(damaged)) != SMALL


def test_a_claim_of_many_subjects_ends_where_the_bytes_do() -> None:
    data = bytes((REMOVED, 1, 0, 2, 1, 0)) + b"\xff" * 9 + b"\1"
    with pytest.raises(ValueError):
        decode_group(data)
