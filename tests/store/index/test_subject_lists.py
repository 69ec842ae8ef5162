"""What is told of many subjects at once: every test on both twins, against the table's own answers."""

from __future__ import annotations

import json
import random
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.store.index.subject_table import LAST_STALE
from tests.twins import both_twins, load_twin, needs_kernels

LISTS, TABLE = "jetlake.store.index._subject_lists", "jetlake.store.index._subject_table"


def filled(kind: str, **seqs: int) -> Any:
    """A table with one message under each subject."""
    table = load_twin(TABLE, kind).SubjectTable()
    for subject, seq in seqs.items():
        table.add(table.intern(subject.encode()), seq)
    return table


def slots(*numbers: int) -> array[int]:
    return array("I", numbers)


@both_twins
def test_totals_are_a_json_object(kind: str) -> None:
    table, lists = filled(kind, a=1, b=2), load_twin(LISTS, kind)
    table.add(1, 10**9)
    assert lists.totals_json(table, slots(1, 0)) == b'{"b":2,"a":1}'
    assert lists.totals_json(table, slots()) == b"{}"


@both_twins
def test_totals_quote_what_json_cannot_hold_as_it_is(kind: str) -> None:
    table, lists = load_twin(TABLE, kind).SubjectTable(), load_twin(LISTS, kind)
    subjects = [b'a"b', b"a\\b", b"a\x01b", b"\xc3\xa4", b"\xffx", b"plain", b"del\x7f"]
    for seq, subject in enumerate(subjects, 1):
        table.add(table.intern(subject), seq)
    found = json.loads(lists.totals_json(table, slots(*range(len(subjects)))))
    assert found == dict.fromkeys([subject.decode("utf-8", "replace") for subject in subjects], 1)


@both_twins
@pytest.mark.parametrize("count", [0, 5, 3000])
def test_last_sequences_ascend(kind: str, count: int) -> None:
    chance = random.Random(count)
    seqs = [chance.randrange(1, 2 ** chance.choice([4, 20, 40, 63])) for _ in range(count)]
    table = filled(kind, **{f"s{place}": seq for place, seq in enumerate(seqs)})
    found, stale = load_twin(LISTS, kind).last_seqs(table, slots(*range(count)))
    assert found == array("Q", sorted(seqs))
    assert stale == slots()


@both_twins
def test_a_last_sequence_that_is_only_a_bound_is_told_apart(kind: str) -> None:
    table = filled(kind, a=1, b=2)
    table.add(0, 3)
    table.add(0, 7)
    table.remove(0, 7)
    assert table.flags(0) & LAST_STALE
    assert load_twin(LISTS, kind).last_seqs(table, slots(0, 1)) == (array("Q", [2]), slots(0))


@both_twins
@pytest.mark.parametrize(("start", "bounds"), [(0, (1, 9)), (2, (4, 9)), (6, (6, 9)), (10, (0, 0))])
def test_bounds_are_those_of_subjects_that_reach_the_start(kind: str, start: int, bounds: tuple[int, int]) -> None:
    table = filled(kind, a=1, b=4, c=5)
    table.add(1, 9)
    assert load_twin(LISTS, kind).seq_bounds(table, slots(0, 1, 2), start) == bounds
    assert load_twin(LISTS, kind).seq_bounds(table, slots(), start) == (0, 0)


@needs_kernels
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=30), st.integers(0, 2**63))
def test_twins_agree_on_bounds(steps: list[tuple[int, int]], start: int) -> None:
    found = []
    for kind in ("py", "c"):
        table, seq = load_twin(TABLE, kind).SubjectTable(), 0
        for subject, gap in steps:
            seq += gap
            table.add(table.intern(b"s%d" % subject), seq)
        every = slots(*range(table.slot_limit))
        found.append([load_twin(LISTS, kind).seq_bounds(table, every, at) for at in (start, start % (seq + 2))])
    assert found[0] == found[1]


@both_twins
@pytest.mark.parametrize(("name", "rest"), [("totals_json", ()), ("last_seqs", ()), ("seq_bounds", (0,))])
def test_a_slot_without_messages_is_refused(kind: str, name: str, rest: tuple[int, ...]) -> None:
    table = filled(kind, a=1)
    table.intern(b"unused")
    for slot in (1, 2, 2**32 - 1):
        with pytest.raises(IndexError, match=f"slot {slot} has no messages"):
            getattr(load_twin(LISTS, kind), name)(table, slots(0, slot), *rest)
