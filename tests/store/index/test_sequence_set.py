"""A set of sequences held as ranges."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.index import sequence_set
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.records.varint import U64_MAX

SMALL = 24  # small enough for ranges to meet, split and merge all the time


def of(*ranges: tuple[int, int]) -> SequenceSet:
    return SequenceSet(ranges)


def ranges(seqs: SequenceSet) -> list[tuple[int, int]]:
    return list(seqs.ranges())


# Changing


def test_a_new_set_is_empty() -> None:
    seqs = SequenceSet()
    assert (bool(seqs), len(seqs), seqs.count, list(seqs), seqs.range_count) == (False, 0, 0, [], 0)


def test_add_says_whether_the_sequence_is_new() -> None:
    seqs = SequenceSet()
    assert [seqs.add(5), seqs.add(5), seqs.add(6)] == [True, False, True]


def test_consecutive_sequences_become_one_range() -> None:
    seqs = SequenceSet()
    for seq in range(1, 1001):
        seqs.add(seq)
    assert (ranges(seqs), seqs.count) == ([(1, 1000)], 1000)


def test_descending_sequences_become_one_range() -> None:
    seqs = SequenceSet()
    for seq in range(1000, 0, -1):
        seqs.add(seq)
    assert ranges(seqs) == [(1, 1000)]


def test_filling_a_gap_merges_both_neighbours() -> None:
    seqs = of((1, 4), (6, 9))
    assert seqs.add(5)
    assert ranges(seqs) == [(1, 9)]


def test_a_range_that_bridges_several_counts_only_what_is_new() -> None:
    seqs = of((1, 2), (5, 6), (9, 10), (20, 21))
    assert seqs.add_range(2, 11) == 5
    assert ranges(seqs) == [(1, 11), (20, 21)]


def test_a_range_inside_another_adds_nothing() -> None:
    seqs = of((1, 10))
    assert seqs.add_range(3, 7) == 0
    assert ranges(seqs) == [(1, 10)]


def test_a_range_that_touches_both_neighbours_merges_them() -> None:
    seqs = of((1, 3), (7, 9))
    assert seqs.add_range(4, 6) == 3
    assert ranges(seqs) == [(1, 9)]


def test_a_range_between_two_others_stays_apart() -> None:
    seqs = of((1, 3), (9, 11))
    seqs.add_range(5, 7)
    assert ranges(seqs) == [(1, 3), (5, 7), (9, 11)]


def test_removing_from_the_middle_splits_a_range() -> None:
    seqs = of((1, 9))
    assert seqs.remove(5)
    assert (ranges(seqs), seqs.count) == ([(1, 4), (6, 9)], 8)


def test_removing_at_the_edges_shrinks_a_range() -> None:
    seqs = of((1, 9))
    assert [seqs.remove(1), seqs.remove(9)] == [True, True]
    assert ranges(seqs) == [(2, 8)]


def test_removing_the_only_sequence_of_a_range_drops_it() -> None:
    seqs = of((1, 1), (5, 5))
    seqs.remove(1)
    assert ranges(seqs) == [(5, 5)]


def test_removing_what_is_not_there_changes_nothing() -> None:
    seqs = of((1, 3), (7, 9))
    assert not seqs.remove(5)
    assert seqs.remove_range(4, 6) == 0
    assert ranges(seqs) == [(1, 3), (7, 9)]


def test_removing_a_range_cuts_the_ranges_it_crosses() -> None:
    seqs = of((1, 5), (8, 9), (12, 20))
    assert seqs.remove_range(4, 14) == 2 + 2 + 3
    assert ranges(seqs) == [(1, 3), (15, 20)]


def test_clear_leaves_nothing() -> None:
    seqs = of((1, 5), (8, 9))
    seqs.clear()
    assert seqs == SequenceSet()


def test_a_set_can_be_updated_with_itself() -> None:
    seqs = of((1, 5), (8, 9))
    seqs.update(seqs)
    assert ranges(seqs) == [(1, 5), (8, 9)]


def test_a_set_without_itself_is_empty() -> None:
    seqs = of((1, 5), (8, 9))
    seqs.difference_update(seqs)
    assert not seqs


def test_a_copy_is_independent() -> None:
    seqs = of((1, 5))
    twin = seqs.copy()
    twin.remove(3)
    assert (ranges(seqs), ranges(twin)) == ([(1, 5)], [(1, 2), (4, 5)])


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (5, 4), (0, U64_MAX + 1), (U64_MAX + 1, U64_MAX + 1)])
def test_what_is_not_a_range_of_u64_is_refused(first: int, last: int) -> None:
    seqs = of((2, 3))
    for change in (seqs.add_range, seqs.remove_range):
        with pytest.raises(ValueError, match="not a range"):
            change(first, last)
    assert ranges(seqs) == [(2, 3)]


# Asking


def test_contains_knows_the_edges_of_ranges() -> None:
    seqs = of((2, 4), (8, 8))
    assert [seq for seq in range(-1, 12) if seq in seqs] == [2, 3, 4, 8]


def test_sequences_come_in_ascending_order() -> None:
    assert list(of((8, 9), (1, 3))) == [1, 2, 3, 8, 9]


def test_first_and_last_are_the_extremes() -> None:
    seqs = of((8, 9), (1, 3))
    assert (seqs.first, seqs.last) == (1, 9)


@pytest.mark.parametrize("end", ["first", "last"])
def test_an_empty_set_has_no_first_or_last(end: str) -> None:
    with pytest.raises(LookupError):
        getattr(SequenceSet(), end)


def test_ranges_between_are_clipped() -> None:
    assert list(of((1, 5), (8, 9), (12, 20)).ranges_between(4, 13)) == [(4, 5), (8, 9), (12, 13)]


def test_gaps_are_what_the_set_lacks() -> None:
    assert list(of((1, 5), (8, 9), (12, 20)).gaps(0, 25)) == [(0, 0), (6, 7), (10, 11), (21, 25)]


def test_a_full_range_has_no_gaps() -> None:
    assert list(of((1, 20)).gaps(3, 20)) == []


def test_an_empty_interval_holds_nothing_and_lacks_nothing() -> None:
    seqs = of((1, 20))
    assert (list(seqs.ranges_between(9, 8)), list(seqs.gaps(9, 8)), seqs.count_between(9, 8)) == ([], [], 0)


def test_count_between_clips_both_ends() -> None:
    assert of((1, 5), (8, 9), (12, 20)).count_between(5, 12) == 1 + 2 + 1


def test_next_missing_is_the_number_after_the_range() -> None:
    seqs = of((1, 5), (8, 9))
    assert [seqs.next_missing(seq) for seq in (0, 1, 5, 6, 8)] == [0, 6, 6, 6, 10]


def test_prev_missing_is_the_number_before_the_range() -> None:
    seqs = of((1, 5), (8, 9))
    assert [seqs.prev_missing(seq) for seq in (0, 1, 5, 6, 9)] == [0, 0, 0, 6, 7]


def test_a_set_equals_only_a_set_with_the_same_sequences() -> None:
    assert of((1, 2), (3, 4)) == of((1, 4))
    assert of((1, 4)) != of((1, 5))
    assert of((1, 1)) != {1}


def test_a_set_is_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(SequenceSet())


def test_repr_shows_the_ranges() -> None:
    assert repr(of((1, 3), (7, 7))) == "SequenceSet(1-3, 7-7)"


def test_repr_of_many_ranges_is_short() -> None:
    assert repr(SequenceSet((n, n) for n in range(0, 2000, 2))).endswith("14-14, ... 1000 ranges)")


def test_a_range_costs_sixteen_bytes() -> None:
    tracemalloc.start()
    seqs = SequenceSet((n, n) for n in range(0, 200_000, 2))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seqs.size_bytes == 16 * 100_000
    assert used < 1.3 * seqs.size_bytes


# The ends of the number line


def test_the_first_and_last_sequences_are_ordinary_members() -> None:
    seqs = SequenceSet()
    assert [seqs.add(U64_MAX), seqs.add(0), seqs.add(U64_MAX), seqs.add(0)] == [True, True, False, False]
    assert ranges(seqs) == [(0, 0), (U64_MAX, U64_MAX)]


def test_ranges_merge_at_both_ends_of_the_number_line() -> None:
    seqs = of((0, 0), (U64_MAX, U64_MAX))
    assert [seqs.add(1), seqs.add(U64_MAX - 1)] == [True, True]
    assert ranges(seqs) == [(0, 1), (U64_MAX - 1, U64_MAX)]


def test_the_full_set_counts_more_than_len_can_say() -> None:
    seqs = of((0, U64_MAX))
    assert seqs.count == 2**64
    with pytest.raises(OverflowError):
        len(seqs)


def test_the_full_set_misses_nothing() -> None:
    seqs = of((0, U64_MAX))
    assert (seqs.next_missing(0), seqs.prev_missing(U64_MAX), list(seqs.gaps(0, U64_MAX))) == (2**64, -1, [])


def test_gaps_stay_within_u64() -> None:
    assert list(of((5, 6)).gaps(-3, 2**65)) == [(0, 4), (7, U64_MAX)]


def test_the_ends_can_be_removed_from_the_full_set() -> None:
    seqs = of((0, U64_MAX))
    assert [seqs.remove(0), seqs.remove(U64_MAX)] == [True, True]
    assert ranges(seqs) == [(1, U64_MAX - 1)]


# Encoded form


def test_the_example_in_the_specification_is_true() -> None:
    example = re.search(r"Example: .*\n\s+([0-9a-f ]+)\n", sequence_set.__doc__ or "")
    assert example is not None
    assert SequenceSet.decode(bytes.fromhex(example[1])) == of((1, 3), (10, 10), (300, 431))
    assert of((1, 3), (10, 10), (300, 431)).encode() == bytes.fromhex(example[1])


@pytest.mark.parametrize(
    "seqs", [of(), of((0, 0)), of((0, U64_MAX)), of((0, 0), (U64_MAX, U64_MAX)), of((1, 1), (3, 9))]
)
def test_what_is_encoded_is_decoded(seqs: SequenceSet) -> None:
    decoded = SequenceSet.decode(seqs.encode())
    assert (decoded, decoded.count) == (seqs, seqs.count)


@given(st.lists(st.tuples(st.integers(0, U64_MAX), st.integers(0, U64_MAX)).map(sorted), max_size=20))
def test_any_set_survives_encoding(pairs: list[list[int]]) -> None:
    seqs = SequenceSet((first, last) for first, last in pairs)
    assert SequenceSet.decode(memoryview(seqs.encode())) == seqs


@pytest.mark.parametrize(
    ("encoded", "problem"),
    [
        ("", "version"),
        ("0200", "version"),
        ("01", "truncated"),
        ("010101", "do not fit"),
        ("01018000", "longer than its value needs"),
        ("0101010000", "follow the last range"),
        ("01020100" + "0100", "overlaps or touches"),
        ("01020100" + "0000", "overlaps or touches"),
        ("0101" + "ff" * 9 + "01" + "01", "exceeds"),
        ("0101" + "80" * 10 + "0100", "longer than 10 bytes"),
        ("01" + "ff" * 9 + "01", "do not fit"),
    ],
)
def test_bytes_that_no_set_encodes_to_are_refused(encoded: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        SequenceSet.decode(bytes.fromhex(encoded))


def test_every_truncation_is_refused() -> None:
    encoded = of((1, 3), (10, 10), (300, 431), (2**40, 2**50)).encode()
    for size in range(len(encoded)):
        with pytest.raises(ValueError):
            SequenceSet.decode(encoded[:size])


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda data: b"\x01" + data))
def test_any_bytes_are_a_set_in_its_only_form_or_a_value_error(data: bytes) -> None:
    try:
        seqs = SequenceSet.decode(data)
    except ValueError:
        return
    assert seqs.encode() == data


# Against a plain set

SEQ = st.integers(0, SMALL)
PAIR = st.tuples(SEQ, SEQ).map(lambda pair: (min(pair), max(pair)))
OTHER = st.lists(PAIR, max_size=3)
STEP = st.one_of(
    st.tuples(st.sampled_from(["add_range", "remove_range"]), PAIR),
    st.tuples(st.sampled_from(["add", "remove"]), SEQ),
    st.tuples(st.sampled_from(["update", "difference_update"]), OTHER),
)


def change(seqs: SequenceSet, model: set[int], step: tuple[str, object], base: int) -> None:
    """Make one change to both, and compare what they say about it."""
    name, argument = step
    before = set(model)
    if isinstance(argument, list):
        moved = [(base + first, base + last) for first, last in argument]
        members = {seq for first, last in moved for seq in range(first, last + 1)}
        model.symmetric_difference_update(members - model if name == "update" else members & model)
        getattr(seqs, name)(SequenceSet(moved))
        return
    first, last = argument if isinstance(argument, tuple) else (argument, argument)
    assert isinstance(first, int)
    assert isinstance(last, int)
    members = set(range(base + first, base + last + 1))
    model.symmetric_difference_update(members - model if name.startswith("add") else members & model)
    arguments = (base + first, base + last) if name.endswith("range") else (base + first,)
    assert getattr(seqs, name)(*arguments) == len(model ^ before)


def spread(found: list[tuple[int, int]]) -> list[int]:
    return [seq for first, last in found for seq in range(first, last + 1)]


def compare(seqs: SequenceSet, model: set[int], base: int) -> None:
    """Ask both everything about the numbers around base."""
    found = ranges(seqs)
    assert list(seqs) == spread(found) == sorted(model)
    assert all(end + 1 < start for (_, end), (start, _) in pairwise(found))
    assert (seqs.count, bool(seqs), seqs.range_count) == (len(model), bool(model), len(found))
    top = base + SMALL
    for seq in range(base, top + 1):
        assert (seq in seqs) == (seq in model)
        assert seqs.next_missing(seq) == next(n for n in range(seq, top + 3) if n not in model)
        assert seqs.prev_missing(seq) == next(n for n in range(seq, base - 3, -1) if n not in model)


def compare_between(seqs: SequenceSet, model: set[int], first: int, last: int) -> None:
    inside = [seq for seq in range(first, last + 1) if seq in model]
    outside = [seq for seq in range(first, last + 1) if seq not in model]
    gaps = list(seqs.gaps(first, last))
    assert spread(list(seqs.ranges_between(first, last))) == inside
    assert spread(gaps) == outside
    assert all(end + 1 < start for (_, end), (start, _) in pairwise(gaps))
    assert seqs.count_between(first, last) == len(inside)


@given(st.lists(STEP, max_size=30), PAIR, st.sampled_from([0, 1, 1000, U64_MAX - SMALL]))
def test_the_set_agrees_with_a_plain_set(steps: list[tuple[str, object]], pair: tuple[int, int], base: int) -> None:
    seqs, model = SequenceSet(), set[int]()
    for step in steps:
        change(seqs, model, step, base)
        compare(seqs, model, base)
        compare_between(seqs, model, base + pair[0], base + pair[1])
    assert seqs == SequenceSet((seq, seq) for seq in model) == SequenceSet.decode(seqs.encode()) == seqs.copy()


@given(st.lists(PAIR, min_size=1, max_size=4), st.booleans())
def test_a_small_set_changes_a_large_one_range_by_range(pairs: list[tuple[int, int]], adding: bool) -> None:
    seqs = SequenceSet((n, n) for n in range(0, 400, 2))
    model = set(range(0, 400, 2))
    change(seqs, model, ("update" if adding else "difference_update", pairs), 100)
    assert list(seqs) == sorted(model)


@given(st.lists(PAIR, max_size=5), st.lists(PAIR, max_size=8), st.integers(0, 120), st.integers(0, 120))
def test_what_is_appended_from_another_set_is_what_it_holds(
    below: list[tuple[int, int]], others: list[tuple[int, int]], first: int, last: int
) -> None:
    mine, other = SequenceSet(below), SequenceSet(others)
    first = max(first, mine.last + 1) if mine else first
    expected = SequenceSet([*mine.ranges(), *other.ranges_between(first, last)])
    mine.append_from(other, first, last)
    assert mine == expected
    assert mine.count == expected.count
