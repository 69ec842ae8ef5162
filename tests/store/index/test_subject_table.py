"""The subject table, its filter and its scans: every test on both twins, then the twins against a naive model."""

from __future__ import annotations

import importlib
import os
import random
from array import array
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jetlake.store.index import subject_table
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import FIRST_STALE, LAST_STALE, NO_ID, SEQ_MAX, SUBJECT_SIZE_MAX
from jetlake.subjects import decode_subject, matches

NO_KERNELS = bool(os.environ.get("JETLAKE_NO_KERNELS"))
BOTH_STALE = FIRST_STALE | LAST_STALE


def load_twin(suffix: str) -> SimpleNamespace:
    """Everything that the face exports, from the modules of one twin."""
    modules = [
        importlib.import_module(f"jetlake.store.index._subject_{part}_{suffix}") for part in ("filter", "table", "scan")
    ]
    names = (
        "SubjectFilter",
        "SubjectTable",
        "find_match",
        "find_match_back",
        "count_matches",
        "count_live",
        "list_live",
    )
    found = {name: getattr(module, name) for name in names for module in modules if hasattr(module, name)}
    return SimpleNamespace(**found)


@pytest.fixture(params=["py", "c"])
def twin(request: pytest.FixtureRequest) -> SimpleNamespace:
    if request.param == "c" and NO_KERNELS:
        pytest.skip("JETLAKE_NO_KERNELS is set")
    return load_twin(request.param)


def filled(twin: SimpleNamespace, *subjects: str) -> Any:
    """A table with one message under each subject, sequences from 1."""
    table = twin.SubjectTable()
    for seq, subject in enumerate(subjects, 1):
        table.add(table.intern(subject.encode()), seq)
    return table


def with_seqs(twin: SimpleNamespace, *seqs: int) -> Any:
    """A table whose slot 0 has these sequences."""
    table = twin.SubjectTable()
    for seq in seqs:
        table.add(table.intern(b"a"), seq)
    return table


def summary(table: Any, slot: int = 0) -> tuple[int, int, int, int]:
    return table.count(slot), table.first(slot), table.last(slot), table.flags(slot)


def match(twin: SimpleNamespace, table: Any, *patterns: str) -> list[str]:
    return [table.subject(slot).decode() for slot in table.match(twin.SubjectFilter(patterns))]


@pytest.mark.skipif(NO_KERNELS, reason="JETLAKE_NO_KERNELS is set")
def test_the_compiled_twin_is_loaded() -> None:
    assert subject_table.KERNEL
    assert subject_table.SubjectTable is load_twin("c").SubjectTable
    assert subject_table.find_match is load_twin("c").find_match


# Entries and counters


def test_a_subject_keeps_its_slot(twin: SimpleNamespace) -> None:
    table = twin.SubjectTable()
    assert [table.intern(subject) for subject in (b"a", b"b", b"a", b"c")] == [0, 1, 0, 2]
    assert [table.subject(slot) for slot in range(table.slot_limit)] == [b"a", b"b", b"c"]


def test_an_interned_subject_is_not_found_before_it_counts(twin: SimpleNamespace) -> None:
    table = twin.SubjectTable()
    slot = table.intern(b"a")
    assert (table.find(b"a"), len(table), table.total, summary(table)) == (-1, 0, 0, (0, 0, 0, 0))
    table.add(slot, 7)
    assert (table.find(b"a"), len(table), table.total, summary(table)) == (slot, 1, 1, (1, 7, 7, 0))


def test_adding_widens_the_bounds(twin: SimpleNamespace) -> None:
    assert summary(with_seqs(twin, 5, 9, 3)) == (3, 3, 9, 0)


def test_a_new_last_is_exact(twin: SimpleNamespace) -> None:
    table = with_seqs(twin, 1, 2, 5)
    table.remove(0, 5)
    assert summary(table) == (2, 1, 4, LAST_STALE)
    table.add(0, 8)
    assert summary(table) == (3, 1, 8, 0)


def test_an_added_seq_below_the_last_leaves_it_stale(twin: SimpleNamespace) -> None:
    table = with_seqs(twin, 1, 2, 5)
    table.remove(0, 5)
    table.add(0, 3)
    assert summary(table) == (3, 1, 4, LAST_STALE)


def test_a_summary_is_merged(twin: SimpleNamespace) -> None:
    table = twin.SubjectTable()
    slot = table.intern(b"a")
    table.add_many(slot, 3, 10, 20, FIRST_STALE)
    assert summary(table) == (3, 10, 20, FIRST_STALE)
    table.add_many(slot, 2, 30, 40, LAST_STALE)
    assert summary(table) == (5, 10, 40, BOTH_STALE)
    table.add_many(slot, 1, 4, 4, 0)
    assert (summary(table), table.total, len(table)) == ((6, 4, 40, BOTH_STALE), 6, 1)


def test_removing_at_a_bound_makes_it_stale(twin: SimpleNamespace) -> None:
    table = with_seqs(twin, 1, 4, 5, 9)
    assert table.remove(0, 1) == 3
    assert summary(table) == (3, 2, 9, FIRST_STALE)
    assert table.remove(0, 9) == 2
    assert summary(table) == (2, 2, 8, BOTH_STALE)


def test_removing_between_the_bounds_leaves_them(twin: SimpleNamespace) -> None:
    table = with_seqs(twin, 1, 4, 5, 9)
    table.remove(0, 4)
    assert summary(table) == (3, 1, 9, 0)


def test_the_last_one_remaining_is_known_from_the_exact_side(twin: SimpleNamespace) -> None:
    table = with_seqs(twin, 1, 9)
    table.remove(0, 1)
    assert summary(table) == (1, 9, 9, 0)
    table = with_seqs(twin, 1, 9)
    table.remove(0, 9)
    assert summary(table) == (1, 1, 1, 0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_removal_of_unnamed_messages_makes_both_bounds_stale(twin: SimpleNamespace, count: int) -> None:
    table = with_seqs(twin, 1, 2, 3, 4)
    assert table.remove(0, 0, count) == 4 - count
    assert summary(table) == (4 - count, 1, 4, BOTH_STALE)


@pytest.mark.parametrize("side", ["set_first", "set_last"])
def test_one_exact_bound_of_a_single_message_is_both(twin: SimpleNamespace, side: str) -> None:
    table = with_seqs(twin, 1, 2, 3, 4)
    table.remove(0, 0, 3)
    getattr(table, side)(0, 2)
    assert summary(table) == (1, 2, 2, 0)


def test_setting_a_bound_clears_its_flag_only(twin: SimpleNamespace) -> None:
    table = with_seqs(twin, 1, 2, 3, 4)
    table.remove(0, 0, 2)
    table.set_first(0, 2)
    assert summary(table) == (2, 2, 4, LAST_STALE)
    table.set_last(0, 3)
    assert summary(table) == (2, 2, 3, 0)


def test_removing_all_frees_the_slot_for_another_subject(twin: SimpleNamespace) -> None:
    table = filled(twin, "a", "b", "c")
    assert table.remove(1, 2) == 0
    assert (table.find(b"b"), len(table), table.total, table.slot_limit, table.reuse_count) == (-1, 2, 2, 3, 0)
    assert table.intern(b"d") == 1
    assert (table.slot_limit, table.reuse_count, table.subject(1)) == (3, 1, b"d")


def test_slots_are_reused_last_freed_first(twin: SimpleNamespace) -> None:
    table = filled(twin, "a", "b", "c")
    table.remove(0, 1)
    table.remove(2, 3)
    assert [table.intern(subject) for subject in (b"x", b"y", b"z")] == [2, 0, 3]


def test_only_an_unused_entry_is_dropped(twin: SimpleNamespace) -> None:
    table = filled(twin, "a")
    slot = table.intern(b"b")
    table.drop_if_unused(0)
    table.drop_if_unused(slot)
    assert (table.find(b"a"), table.intern(b"c")) == (0, slot)


def test_clear_forgets_everything_but_says_so(twin: SimpleNamespace) -> None:
    table = filled(twin, "a", "b")
    table.clear()
    assert (len(table), table.total, table.slot_limit, table.reuse_count) == (0, 0, 0, 1)
    assert match(twin, table, ">") == []
    assert table.intern(b"b") == 0
    table.add(0, 5)
    assert match(twin, table, ">") == ["b"]


def test_a_thousand_subjects_come_and_go(twin: SimpleNamespace) -> None:
    seeded = random.Random(7)
    names = [f"orders.{number}.{'x' * seeded.randrange(40)}" for number in range(1000)]
    table = filled(twin, *names)
    gone = set(seeded.sample(names, 700))
    for name in sorted(gone):
        slot = table.find(name.encode())
        assert table.remove(slot, table.first(slot)) == 0
    assert match(twin, table, ">") == sorted(set(names) - gone)
    assert all((table.find(name.encode()) >= 0) is (name not in gone) for name in names)
    assert len(table) == table.total == 300


def test_subjects_of_every_size_are_told_apart(twin: SimpleNamespace) -> None:
    sizes = [*range(1, 70), 255, 256, SUBJECT_SIZE_MAX - 1, SUBJECT_SIZE_MAX]
    subjects = [b"s" * size for size in sizes] + [b"s" * (size - 1) + b"t" for size in sizes]
    table = twin.SubjectTable()
    slots = [table.intern(subject) for subject in subjects]
    assert slots == list(range(len(subjects)))
    assert [table.subject(slot) for slot in slots] == subjects
    assert [table.intern(subject) for subject in subjects] == slots


def test_size_follows_what_is_held(twin: SimpleNamespace) -> None:
    table = filled(twin)
    empty_size = table.size_bytes
    for number in range(1000):
        table.add(table.intern(b"subject.%022d" % number), 1)
    assert empty_size < 1000 < 30_000 < table.size_bytes
    table.clear()
    assert table.size_bytes == empty_size


# The door


@pytest.mark.parametrize("slot", [-1, 1, 2, 2**31, 2**32, 2**64, -(2**70)])
def test_a_slot_not_in_use_is_an_index_error(twin: SimpleNamespace, slot: int) -> None:
    table = filled(twin, "a", "b")
    table.remove(1, 2)
    calls: list[tuple[Any, ...]] = [
        (table.subject,), (table.count,), (table.first,), (table.last,), (table.flags,), (table.drop_if_unused,),
        (table.add, 1), (table.add_many, 1, 1, 1, 0), (table.remove, 1), (table.set_first, 1), (table.set_last, 1),
    ]  # fmt: skip
    for method, *arguments in calls:
        with pytest.raises(IndexError, match=f"slot {slot} is not in use"):
            method(slot, *arguments)


@pytest.mark.parametrize("size", [0, SUBJECT_SIZE_MAX + 1])
def test_a_subject_of_a_bad_size_is_refused(twin: SimpleNamespace, size: int) -> None:
    table = twin.SubjectTable()
    for method in (table.intern, table.find):
        with pytest.raises(ValueError, match=f"subject of {size} bytes, expected 1 to 65535"):
            method(b"x" * size)


@pytest.mark.parametrize("seq", [0, -1, SEQ_MAX + 1, 2**64])
def test_a_bad_sequence_is_refused(twin: SimpleNamespace, seq: int) -> None:
    table = filled(twin, "a")
    calls: list[tuple[Any, ...]] = [
        (table.add, seq), (table.add_many, 1, seq, 5, 0), (table.add_many, 1, 1, seq, 0),
        (table.set_first, seq), (table.set_last, seq),
    ]  # fmt: skip
    if seq:  # 0 removes an unnamed message
        calls.append((table.remove, seq))
    for method, *arguments in calls:
        with pytest.raises(ValueError, match=f"seq {seq}, expected 1 to {SEQ_MAX}"):
            method(0, *arguments)
    assert summary(table) == (1, 1, 1, 0)


def test_the_largest_sequence_is_kept(twin: SimpleNamespace) -> None:
    table = with_seqs(twin, SEQ_MAX - 1, SEQ_MAX)
    assert summary(table) == (2, SEQ_MAX - 1, SEQ_MAX, 0)


@pytest.mark.parametrize("count", [0, -1, 3, 2**64])
def test_no_more_is_removed_than_there_is(twin: SimpleNamespace, count: int) -> None:
    table = with_seqs(twin, 1, 2)
    with pytest.raises(ValueError, match=f"count {count}, expected 1 to 2"):
        table.remove(0, 1, count)
    assert summary(table) == (2, 1, 2, 0)


def test_an_unused_entry_has_nothing_to_remove(twin: SimpleNamespace) -> None:
    table = twin.SubjectTable()
    with pytest.raises(ValueError, match="count 1, expected 1 to 0"):
        table.remove(table.intern(b"a"), 1)


@pytest.mark.parametrize("count", [0, -1, SEQ_MAX, 2**64])
def test_a_summary_with_a_bad_count_is_refused(twin: SimpleNamespace, count: int) -> None:
    table = with_seqs(twin, 1)
    with pytest.raises(ValueError, match=f"count {count}, expected 1 to {SEQ_MAX - 1}"):
        table.add_many(0, count, 1, 1, 0)


# Filters


@pytest.mark.parametrize("pattern", ["a.>", b"a.>"])
def test_one_pattern_is_not_a_sequence_of_patterns(twin: SimpleNamespace, pattern: str | bytes) -> None:
    with pytest.raises(TypeError, match="sequence of patterns"):
        twin.SubjectFilter(pattern)


@pytest.mark.parametrize(
    ("patterns", "is_all", "literal"),
    [
        ([], True, None),
        ([">"], True, None),
        (["a", ">"], True, None),
        (["a.b"], False, b"a.b"),
        ([b"a*"], False, b"a*"),
        (["\udcff"], False, b"\xff"),
        (["a", "b"], False, None),
        (["a.*"], False, None),
        (["a.>"], False, None),
    ],
)
def test_a_filter_knows_its_kind(
    twin: SimpleNamespace, patterns: list[str | bytes], is_all: bool, literal: bytes | None
) -> None:
    filter = twin.SubjectFilter(patterns)
    assert (filter.is_all, filter.literal) == (is_all, literal)
    assert len(filter.patterns) == len(patterns)
    assert all(type(pattern) is bytes for pattern in filter.patterns)


tokens = st.sampled_from(["a", "b", "ab", "*", "a*", "*a", "c"])
patterns = st.builds(
    lambda row, end: ".".join([*row, *end]), st.lists(tokens, min_size=1, max_size=4), st.sampled_from(["", ">"])
)
literals = st.lists(st.sampled_from(["a", "b", "ab", "a*", "*a", "c", ">a"]), min_size=1, max_size=5).map(".".join)


@given(pattern=patterns, subject=literals)
def test_a_filter_matches_as_subjects_do(pattern: str, subject: str) -> None:
    for twin in TWINS:
        assert twin.SubjectFilter([pattern]).matches(subject.encode()) is matches(pattern, subject)


@given(st.lists(st.text("ab.*>"), max_size=3), st.text("ab.*>").map(str.encode))
def test_filters_agree_on_any_text(some: list[str], subject: bytes) -> None:
    filters = [twin.SubjectFilter(some) for twin in TWINS]
    assert len({(filter.matches(subject), filter.literal, filter.is_all) for filter in filters}) == 1


# Queries


SUBJECTS = ["b", "a.b.c", "a", "a.b", "ab", "a.c", "a.b.d", "b.b", "a-b", "a.b-c"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([], sorted(SUBJECTS)),
        ([">"], sorted(SUBJECTS)),
        (["*"], ["a", "a-b", "ab", "b"]),
        (["a.*"], ["a.b", "a.b-c", "a.c"]),
        (["a.>"], ["a.b", "a.b-c", "a.b.c", "a.b.d", "a.c"]),
        (["a.b.>"], ["a.b.c", "a.b.d"]),
        (["*.b"], ["a.b", "b.b"]),
        (["*.b.c"], ["a.b.c"]),
        (["a.b"], ["a.b"]),
        (["z"], []),
        (["z.>"], []),
        (["a.b", "a"], ["a", "a.b"]),
        (["a.b", "z", "a.b"], ["a.b"]),
        (["a.b.*", "a.>"], ["a.b", "a.b-c", "a.b.c", "a.b.d", "a.c"]),
        (["b.*", "a.b.*", "b.>"], ["a.b.c", "a.b.d", "b.b"]),
        (["a.b", "*.b", "a"], ["a", "a.b", "b.b"]),
    ],
)
def test_match_gives_each_subject_once_and_in_order(
    twin: SimpleNamespace, wanted: list[str], expected: list[str]
) -> None:
    table = filled(twin, *SUBJECTS)
    assert match(twin, table, *wanted) == expected
    assert table.match_total(twin.SubjectFilter(wanted)) == len(expected)
    assert table.match(twin.SubjectFilter(wanted)).typecode == "I"


def test_many_new_subjects_match_in_any_order(twin: SimpleNamespace) -> None:
    table = filled(twin, *(f"s.{number}" for number in range(3000)))
    table.remove(7, table.last(7))
    found = table.match_unordered(twin.SubjectFilter(["s.*"]))
    assert sorted(map(table.subject, found)) == sorted(b"s.%d" % number for number in range(3000) if number != 7)


def test_match_total_sums_counts(twin: SimpleNamespace) -> None:
    table = filled(twin, "a.x", "a.y", "b")
    table.add_many(0, 10, 4, 20, 0)
    assert table.match_total(twin.SubjectFilter(["a.*"])) == 12
    assert table.match_total(twin.SubjectFilter(["a.x"])) == 11
    assert table.match_total(twin.SubjectFilter([])) == 13


def test_match_sees_what_changed_since_the_last_one(twin: SimpleNamespace) -> None:
    table = filled(twin, "a.1", "a.3", "a.5")
    assert match(twin, table, "a.*") == ["a.1", "a.3", "a.5"]
    table.remove(1, 2)  # a hole in the order
    assert match(twin, table, "a.*") == ["a.1", "a.5"]
    table.add(table.intern(b"a.4"), 4)  # the same slot, elsewhere in the order
    table.add(table.intern(b"a.0"), 5)
    assert match(twin, table, "a.*") == ["a.0", "a.1", "a.4", "a.5"]


def test_a_slot_freed_and_reused_between_queries_moves(twin: SimpleNamespace) -> None:
    table = filled(twin, "a.1", "a.2", "a.3")
    assert match(twin, table, "a.*") == ["a.1", "a.2", "a.3"]
    for subject in (b"a.9", b"a.0", b"a.2"):  # slot 1 leaves the order once and comes and goes in the tail
        table.remove(1, table.first(1))
        table.add(table.intern(subject), 9)
    assert match(twin, table, "a.*") == ["a.1", "a.2", "a.3"]
    table.remove(1, 9)
    assert match(twin, table, "a.*") == ["a.1", "a.3"]


def test_an_interned_subject_without_messages_never_matches(twin: SimpleNamespace) -> None:
    table = filled(twin, "a.1")
    table.intern(b"a.2")
    assert match(twin, table, "a.>") == match(twin, table, ">") == match(twin, table, "a.1", "a.2") == ["a.1"]


def test_subjects_sort_as_bytes(twin: SimpleNamespace) -> None:
    subjects = [b"a", b"a\0", b"a\0\0", b"a.", b"\xff\xff", b"\xff", b"a.\x80", b"prefix.aaaaaaaa", b"prefix.aaaaaaaab"]
    table = twin.SubjectTable()
    for subject in subjects:
        table.add(table.intern(subject), 1)
    assert [table.subject(slot) for slot in table.match(twin.SubjectFilter([]))] == sorted(subjects)


# Scans


def test_scans_find_the_nearest_live_match(twin: SimpleNamespace) -> None:
    table = filled(twin, "a.1", "b.1", "a.2")
    filter, memo = twin.SubjectFilter(["a.*"]), bytearray(3)
    ids = array("I", [NO_ID, 1, 0, 1, 2, 7, 1])
    assert twin.find_match(table, filter, ids, 0, 7, memo) == 2
    assert twin.find_match(table, filter, ids, 3, 7, memo) == 4
    assert twin.find_match_back(table, filter, ids, 0, 7, memo) == 4
    assert twin.find_match_back(table, filter, ids, 0, 4, memo) == 2
    assert twin.find_match(table, filter, ids, 5, 7, memo) == twin.find_match_back(table, filter, ids, 0, 2, memo) == -1
    assert twin.count_matches(table, filter, ids, 0, 7, memo) == 2
    assert memo == bytearray([2, 1, 2])


def test_an_empty_range_has_no_match(twin: SimpleNamespace) -> None:
    table, filter, memo, ids = filled(twin, "a"), twin.SubjectFilter([]), bytearray(1), array("I", [0, 0])
    for start, stop in [(0, 0), (2, 2), (2, 1), (5, 1)]:
        assert twin.find_match(table, filter, ids, start, stop, memo) == -1
        assert twin.find_match_back(table, filter, ids, start, stop, memo) == -1
        assert twin.count_matches(table, filter, ids, start, stop, memo) == 0
    assert memo == b"\0"


def test_scans_trust_the_memo(twin: SimpleNamespace) -> None:
    table, filter, ids = filled(twin, "a.a", "b.b"), twin.SubjectFilter(["a.*"]), array("I", [0, 1])
    assert twin.count_matches(table, filter, ids, 0, 2, bytearray([1, 2])) == 1
    assert twin.find_match(table, filter, ids, 0, 2, bytearray([1, 2])) == 1


def test_scans_for_one_literal_subject_need_no_memo(twin: SimpleNamespace) -> None:
    table, ids, memo = filled(twin, "a", "b"), array("I", [0, 1, NO_ID, 1, 5]), bytearray(2)
    arguments = (table, twin.SubjectFilter(["b"]), ids, 0, 5, memo)
    found = (twin.find_match(*arguments), twin.find_match_back(*arguments), twin.count_matches(*arguments))
    assert (found, memo) == ((1, 3, 2), bytearray(2))
    table.remove(1, 2)
    found = (twin.find_match(*arguments), twin.find_match_back(*arguments), twin.count_matches(*arguments))
    assert (found, memo) == ((-1, -1, 0), bytearray(2))


def test_slots_without_messages_never_match_and_are_not_remembered(twin: SimpleNamespace) -> None:
    table = filled(twin, "a", "b")
    table.remove(1, 2)
    slots = [table.intern(b"c"), table.intern(b"d")]
    table.drop_if_unused(slots[1])
    ids, memo = array("I", [*slots, NO_ID]), bytearray(3)
    assert twin.find_match(table, twin.SubjectFilter([]), ids, 0, 3, memo) == -1
    assert memo == bytearray(3)
    table.add(slots[0], 3)
    assert twin.find_match(table, twin.SubjectFilter([]), ids, 0, 3, memo) == 0


def test_a_match_that_lost_its_messages_no_longer_counts(twin: SimpleNamespace) -> None:
    table, filter, memo, ids = filled(twin, "a", "b"), twin.SubjectFilter([]), bytearray(2), array("I", [0, 1])
    assert twin.count_matches(table, filter, ids, 0, 2, memo) == 2
    table.remove(0, 1)
    assert twin.count_matches(table, filter, ids, 0, 2, memo) == 1


@pytest.mark.parametrize("name", ["find_match", "find_match_back", "count_matches"])
def test_scans_check_their_arguments(twin: SimpleNamespace, name: str) -> None:
    scan, table, filter, ids = getattr(twin, name), filled(twin, "a", "b"), twin.SubjectFilter([]), array("I", [0, 1])
    for start, stop in [(-1, 1), (0, 3)]:
        with pytest.raises(IndexError, match=f"range {start} to {stop} of 2 ids"):
            scan(table, filter, ids, start, stop, bytearray(2))
    with pytest.raises(ValueError, match="memo of 1 bytes for 2 slots"):
        scan(table, filter, ids, 0, 2, bytearray(1))
    scan(table, filter, memoryview(ids), 0, 2, bytearray(9))


# Counting what is live


def count_live(twin: SimpleNamespace, ids: list[int], *, pattern: str = "a.*", **changed: Any) -> int:
    """Count in a table whose slots are a.1, b.1 and a.2; message i has sequence 10 + i unless told otherwise."""
    arguments: dict[str, Any] = {
        "count": len(ids), "seqs": None, "base_seq": 10, "first": 0, "last": 2**64 - 1,
        "starts": array("Q"), "ends": array("Q"), "memo": bytearray(3),
    } | changed  # fmt: skip
    table = filled(twin, "a.1", "b.1", "a.2")
    columns = (table, twin.SubjectFilter([pattern]), array("I", ids), *arguments.values())
    found: int = twin.count_live(*columns)
    listed = twin.list_live(*columns)
    assert listed.typecode == "Q" and len(set(listed)) == found
    return found


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 99, 4), (11, 14, 3), (12, 12, 1), (13, 13, 0), (13, 12, 0), (0, 9, 0), (17, 20, 0)],
)
def test_count_live_counts_between_two_sequences(twin: SimpleNamespace, first: int, last: int, expected: int) -> None:
    assert count_live(twin, [0, 2, 0, 1, 2, NO_ID, 1], first=first, last=last) == expected


def test_count_live_leaves_out_what_is_gone(twin: SimpleNamespace) -> None:
    gone = SequenceSet([(0, 4), (8, 10), (12, 13), (16, 40)]).arrays
    assert count_live(twin, [0] * 8, starts=gone[0], ends=gone[1]) == 3
    assert count_live(twin, [0] * 8, starts=gone[0], ends=gone[1], first=13, last=14) == 1
    assert count_live(twin, [0] * 8, starts=gone[0], ends=gone[1], pattern="a.2") == 0
    assert count_live(twin, [0] * 8, starts=array("Q", [0]), ends=array("Q", [2**64 - 1])) == 0


def test_list_live_lists_what_count_live_counts(twin: SimpleNamespace) -> None:
    table, ids = filled(twin, "a.1", "b.1", "a.2"), array("I", [0, 2, 0, 1, 2, NO_ID, 1])
    gone = SequenceSet([(0, 10), (12, 12)]).arrays
    for seqs, expected in ((None, [11, 14]), (array("I", [0, 1, 3, 4, 9, 10, 11]), [11, 13, 19])):
        found = twin.list_live(table, twin.SubjectFilter(["a.*"]), ids, 7, seqs, 10, 1, 99, *gone, bytearray(3))
        assert list(found) == expected


def test_count_live_ignores_room_to_grow(twin: SimpleNamespace) -> None:
    assert count_live(twin, [0, 0, 0, 0], count=2) == 2
    assert count_live(twin, [0, 0, 0, 0], count=2, seqs=array("I", [0, 7, 0, 0])) == 2
    assert count_live(twin, [], count=0) == 0


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"count": 3}, "range 0 to 3 of 2 ids"),
        ({"count": -1}, "count -1 of 2 ids"),
        ({"seqs": array("I", [0])}, "count 2 of 1 seqs"),
        ({"starts": array("Q", [1])}, "1 starts and 0 ends of ranges"),
        ({"base_seq": -1}, "seq -1, expected 0 to 18446744073709551615"),
        ({"first": 2**64}, "seq 18446744073709551616, expected 0 to 18446744073709551615"),
        ({"last": -1}, "seq -1, expected 0 to 18446744073709551615"),
        ({"memo": bytearray(2)}, "memo of 2 bytes for 3 slots"),
    ],
)
def test_count_live_checks_its_arguments(twin: SimpleNamespace, changed: dict[str, Any], problem: str) -> None:
    with pytest.raises((IndexError, ValueError), match=problem):
        count_live(twin, [0, 1], **changed)


@given(
    ids=st.lists(st.integers(0, 3) | st.just(NO_ID), max_size=40),
    gaps=st.none() | st.lists(st.integers(1, 5), min_size=40, max_size=40),
    gone=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 6)), max_size=12),
    base_seq=st.integers(0, 60) | st.just(2**64 - 250),
    bounds=st.tuples(st.integers(0, 160), st.integers(0, 160)),
    pattern=st.sampled_from(["a.*", "a.1", "*.1", "z", ">"]),
)
def test_count_live_counts_as_a_plain_loop_does(
    ids: list[int],
    gaps: list[int] | None,
    gone: list[tuple[int, int]],
    base_seq: int,
    bounds: tuple[int, int],
    pattern: str,
) -> None:
    shift = base_seq if base_seq > 1000 else 0
    gone_set = SequenceSet((shift + start, shift + start + more) for start, more in gone)
    distances = array("I", accumulate(gaps)) if gaps else None
    first, last = shift + bounds[0], shift + bounds[1]
    seqs = [base_seq + (distances[i] if distances else i) for i in range(len(ids))]
    names = {0: "a.1", 1: "b.1", 2: "a.2"}
    expected = sum(
        first <= seq <= last and seq not in gone_set and slot in names and matches(pattern, names[slot])
        for seq, slot in zip(seqs, ids, strict=True)
    )
    starts, ends = gone_set.arrays
    for twin in TWINS:
        found = count_live(
            twin,
            ids,
            pattern=pattern,
            seqs=distances,
            base_seq=base_seq,
            first=first,
            last=last,
            starts=starts,
            ends=ends,
        )
        assert found == expected


# Matches as seen from a sequence


def test_match_from_tells_whole_subjects_from_cut_ones(twin: SimpleNamespace) -> None:
    table = filled(twin, "a.1", "a.2", "b")
    table.add_many(0, 4, 5, 9, 0)
    filter = twin.SubjectFilter(["a.*"])
    assert [table.match_from(filter, start) for start in (1, 2, 3, 9, 10)] == [
        (6, 6, False), (6, 1, True), (6, 0, True), (6, 0, True), (6, 0, False),
    ]  # fmt: skip
    assert table.match_from(twin.SubjectFilter(["b", "a.2"]), 3) == (2, 1, False)
    assert table.match_from(twin.SubjectFilter([">"]), 3) == (7, 1, True)


def test_match_last_from_names_only_what_it_cannot_tell(twin: SimpleNamespace) -> None:
    table = filled(twin, "a.2", "a.1", "b")
    for slot in (0, 1, 2):
        table.add_many(slot, 2, 10, 20, LAST_STALE if slot < 2 else 0)
    for patterns, count, unsure in [([">"], 1, [0, 1]), (["*", "a.*"], 1, [1, 0]), (["a.1", "a.2"], 0, [1, 0])]:
        assert table.match_last_from(twin.SubjectFilter(patterns), 15) == (count, array("I", unsure))
    assert table.match_last_from(twin.SubjectFilter([">"]), 1) == (3, array("I"))
    assert table.match_last_from(twin.SubjectFilter([">"]), 21) == (0, array("I"))


@pytest.mark.parametrize("start", [0, -1, 2**64])
def test_match_from_a_bad_sequence_is_refused(twin: SimpleNamespace, start: int) -> None:
    table, filter = filled(twin, "a"), twin.SubjectFilter([">"])
    for method in (table.match_from, table.match_last_from):
        with pytest.raises(ValueError, match=f"seq {start}, expected 1 to {SEQ_MAX}"):
            method(filter, start)


# The twins beside a model


TWINS = [load_twin("py")] if NO_KERNELS else [load_twin("py"), load_twin("c")]
NAMES = [b"a", b"b", b"a.a", b"a.b", b"a.a.a", b"a.a.b", b"a.b.a", b"b.a", b"b.b", b"b.*a", b"ab", b"c.c.c.c.c.c.c.c.c"]
FILTERS = [
    (),
    (">",),
    ("a",),
    ("a.*",),
    ("*.a",),
    ("a.>",),
    ("a.a.>", "a.*"),
    ("a.b", "b"),
    ("b.*", "a.a", "*"),
    ("z.>",),
]

names = st.sampled_from(NAMES)
numbers = st.integers(0, 1000)


class TwinsAndModel(RuleBasedStateMachine):
    """Every step runs on both twins; the model is a dict of sets of live sequences."""

    @initialize()
    def start(self) -> None:
        self.live: dict[bytes, set[int]] = {}
        self.seq = 0
        self.slots: dict[bytes, int] = {}  # of live and interned subjects
        self.tables = [twin.SubjectTable() for twin in TWINS]
        self.memos: dict[tuple[str, ...], tuple[int, list[bytearray]]] = {}

    def on_all(self, method: str, *arguments: Any) -> Any:
        """Call it on every twin; they must agree."""
        results = [getattr(table, method)(*arguments) for table in self.tables]
        assert results.count(results[0]) == len(results), (method, arguments, results)
        return results[0]

    def intern(self, name: bytes) -> int:
        slot: int = self.on_all("intern", name)
        assert self.slots.get(name, slot) == slot
        assert all(other == name for other, taken in self.slots.items() if taken == slot)
        self.slots[name] = slot
        return slot

    def forget(self, name: bytes) -> None:
        del self.slots[name]
        self.live.pop(name, None)

    @rule(name=names)
    def interned(self, name: bytes) -> None:
        self.intern(name)

    @rule(name=names, gap=st.integers(1, 3))
    def added(self, name: bytes, gap: int) -> None:
        self.seq += gap
        self.on_all("add", self.intern(name), self.seq)
        self.live.setdefault(name, set()).add(self.seq)

    @rule(name=names, pick=numbers)
    def added_out_of_order(self, name: bytes, pick: int) -> None:
        taken = set().union(*self.live.values())
        if unused := [seq for seq in range(1, self.seq) if seq not in taken]:
            seq = unused[pick % len(unused)]
            self.on_all("add", self.intern(name), seq)
            self.live.setdefault(name, set()).add(seq)

    @rule(name=names, count=st.integers(1, 4), slack=st.integers(0, 2))
    def merged(self, name: bytes, count: int, slack: int) -> None:
        seqs = range(self.seq + 1 + slack, self.seq + 1 + slack + count)
        self.seq += count + 2 * slack
        flags = BOTH_STALE if slack else 0
        self.on_all("add_many", self.intern(name), count, seqs[0] - slack, seqs[-1] + slack, flags)
        self.live.setdefault(name, set()).update(seqs)

    @rule(pick=numbers, which=st.sampled_from([0, -1, 1]))
    def removed(self, pick: int, which: int) -> None:
        if self.live:
            name = sorted(self.live)[pick % len(self.live)]
            seqs = sorted(self.live[name])
            seq = seqs[which] if which <= 0 else seqs[pick % len(seqs)]
            self.live[name].remove(seq)
            assert self.on_all("remove", self.slots[name], seq) == len(self.live[name])
            if not self.live[name]:
                self.forget(name)

    @rule(pick=numbers, count=st.integers(1, 4))
    def removed_unnamed(self, pick: int, count: int) -> None:
        many = sorted(name for name, seqs in self.live.items() if len(seqs) >= count)
        if many:
            name = many[pick % len(many)]
            gone = sorted(self.live[name], key=lambda seq: seq * 7919 % (pick + 11))[:count]
            self.live[name] -= set(gone)
            assert self.on_all("remove", self.slots[name], 0, count) == len(self.live[name])
            if not self.live[name]:
                self.forget(name)

    @rule(name=names)
    def dropped_if_unused(self, name: bytes) -> None:
        if name in self.slots:
            self.on_all("drop_if_unused", self.slots[name])
            if name not in self.live:
                self.forget(name)

    @rule(pick=numbers, last=st.booleans())
    def made_exact(self, pick: int, last: bool) -> None:
        if self.live:
            name = sorted(self.live)[pick % len(self.live)]
            seqs = self.live[name]
            self.on_all("set_last" if last else "set_first", self.slots[name], max(seqs) if last else min(seqs))

    @rule(sure=st.integers(0, 9))
    def cleared(self, sure: int) -> None:
        if sure == 0:
            self.on_all("clear")
            self.live, self.slots = {}, {}

    @rule(patterns=st.sampled_from(FILTERS))
    def matched(self, patterns: tuple[str, ...]) -> None:
        wanted = sorted(name for name in self.live if naive_match(patterns, name))
        for twin, table in zip(TWINS, self.tables, strict=True):
            filter = twin.SubjectFilter(patterns)
            assert sorted(table.match_unordered(filter)) == sorted(self.slots[name] for name in wanted)
            assert table.match(filter) == array("I", [self.slots[name] for name in wanted])
            assert table.match_total(filter) == sum(len(self.live[name]) for name in wanted)

    @rule(patterns=st.sampled_from(FILTERS), start=st.integers(1, 60))
    def matched_from(self, patterns: tuple[str, ...], start: int) -> None:
        wanted = sorted(name for name in self.live if naive_match(patterns, name))
        found = [
            (table.match_from(filter, start), table.match_last_from(filter, start))
            for table, filter in zip(self.tables, (twin.SubjectFilter(patterns) for twin in TWINS), strict=True)
        ]
        assert found.count(found[0]) == len(found)
        (total, whole, cut), (count, unsure) = found[0]
        after = sum(seq >= start for name in wanted for seq in self.live[name])
        assert total == sum(len(self.live[name]) for name in wanted)
        assert whole <= after if cut else whole == after
        reaching = {self.slots[name] for name in wanted if max(self.live[name]) >= start}
        assert count == len(reaching - set(unsure))
        assert len(set(unsure)) == len(unsure) and set(unsure) <= {self.slots[name] for name in wanted}

    @rule(patterns=st.sampled_from(FILTERS), ids=st.lists(st.integers(0, 14) | st.just(NO_ID), max_size=8), cut=numbers)
    def scanned(self, patterns: tuple[str, ...], ids: list[int], cut: int) -> None:
        matching = {slot for name, slot in self.slots.items() if name in self.live and naive_match(patterns, name)}
        start, stop = sorted((cut % (len(ids) + 1), cut // 9 % (len(ids) + 1)))
        hits = [index for index in range(start, stop) if ids[index] in matching]
        expected = (hits[0] if hits else -1, hits[-1] if hits else -1, len(hits))
        memos = self.memos_of(patterns)
        for twin, table, memo in zip(TWINS, self.tables, memos, strict=True):
            arguments = (table, twin.SubjectFilter(patterns), array("I", ids), start, stop, memo)
            found = (twin.find_match(*arguments), twin.find_match_back(*arguments), twin.count_matches(*arguments))
            assert found == expected
        assert memos.count(memos[0]) == len(memos)

    def memos_of(self, patterns: tuple[str, ...]) -> list[bytearray]:
        """The memos kept with this filter, renewed when slots were reused, as callers do."""
        reuse_count, memos = self.memos.get(patterns, (-1, []))
        if reuse_count != self.tables[0].reuse_count:
            memos = [bytearray() for _ in TWINS]
        for memo in memos:
            memo.extend(bytes(max(0, self.tables[0].slot_limit - len(memo))))
        self.memos[patterns] = (self.tables[0].reuse_count, memos)
        return memos

    @invariant()
    def twins_agree_with_the_model(self) -> None:
        for name in NAMES:
            assert self.on_all("find", name) == (self.slots[name] if name in self.live else -1)
        for name, slot in self.slots.items():
            assert self.on_all("subject", slot) == name
            count, first, last, flags = (self.on_all(field, slot) for field in ("count", "first", "last", "flags"))
            seqs = self.live.get(name, set())
            assert count == len(seqs)
            if seqs:
                assert first == min(seqs) or (flags & FIRST_STALE and first < min(seqs))
                assert last == max(seqs) or (flags & LAST_STALE and last > max(seqs))
        for table in self.tables:
            assert (len(table), table.total) == (len(self.live), sum(map(len, self.live.values())))
        assert len({(table.slot_limit, table.reuse_count) for table in self.tables}) == 1


def naive_match(patterns: tuple[str, ...], name: bytes) -> bool:
    return not patterns or any(matches(pattern, decode_subject(name)) for pattern in patterns)


TestTwinsAndModel = TwinsAndModel.TestCase
TestTwinsAndModel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


_many = st.lists(st.sampled_from(["a", "b", "ab", "*", ">"]), min_size=1, max_size=3).map(
    lambda tokens: ".".join(token for token in tokens[:-1] if token != ">") + ("." if tokens[:-1] else "") + tokens[-1]
)


@given(
    st.lists(_many.filter(lambda text: "" not in text.split(".")), min_size=5, max_size=40),
    st.lists(st.sampled_from(["a", "b", "ab", "c"]), min_size=1, max_size=4).map(".".join),
)
def test_many_patterns_match_as_each_of_them_does(patterns: list[str], subject: str) -> None:
    expected = any(matches(pattern, subject) for pattern in patterns)
    for twin in TWINS:
        assert twin.SubjectFilter(patterns).matches(subject.encode()) is expected
