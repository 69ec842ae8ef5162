"""Mapping the subjects of a batch: every test on both twins, then the twins against each other."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.broker import map_subjects as face
from jetlake.ops import OP_WORDS
from tests.twins import both_twins, load_twin, load_twins, needs_kernels

NAME = "jetlake.broker._map_subjects"


def batch(subjects: list[bytes]) -> tuple[bytes, array[int]]:
    """A buffer with these subjects, and an operation for each."""
    ops = array("I", bytes(4 * OP_WORDS * len(subjects)))
    data = bytearray()
    for number, subject in enumerate(subjects):
        ops[number * OP_WORDS], ops[number * OP_WORDS + 1] = len(data), len(subject)
        data += subject + b" "
    return bytes(data), ops


def map_all(
    twin: ModuleType,
    subjects: list[bytes],
    found: dict[bytes, Any],
    heads: frozenset[bytes] | None = None,
    seed: int = 7,
) -> tuple[int, int, list[bytes]]:
    """Where it stopped, how many were dropped, and all subjects then."""
    data, ops = batch(subjects)
    stop, dropped, mapped = twin.map_subjects(data, ops, 0, len(subjects), found, heads, len(data), seed)
    data += mapped
    ends = [(ops[at], ops[at] + ops[at + 1]) for at in range(0, len(ops), OP_WORDS)]
    return stop, dropped, [data[start:end] for start, end in ends]


@needs_kernels
def test_the_compiled_twin_is_loaded() -> None:
    assert face.COMPILED and type(face.map_subjects).__name__ == "cython_function_or_method"


@both_twins
def test_subjects_are_mapped_or_kept(kind: str) -> None:
    found = {b"a": b"mapped.a", b"b": None, b"c": b"x" * 5000}
    stop, dropped, subjects = map_all(load_twin(NAME, kind), [b"a", b"b", b"a", b"c"], found)
    assert (stop, dropped) == (4, 0) and subjects == [b"mapped.a", b"b", b"mapped.a", b"x" * 5000]


@both_twins
def test_it_stops_at_a_subject_that_is_not_known(kind: str) -> None:
    assert map_all(load_twin(NAME, kind), [b"a", b"new", b"a"], {b"a": b"z"}) == (1, 0, [b"z", b"new", b"a"])


@both_twins
def test_other_first_tokens_are_not_looked_up(kind: str) -> None:
    heads = frozenset({b"a"})
    subjects = [b"a.b", b"b.a", b"ab", b"a"]
    assert map_all(load_twin(NAME, kind), subjects, {b"a.b": b"z"}, heads) == (3, 0, [b"z", b"b.a", b"ab", b"a"])


@both_twins
def test_weights_are_kept_to(kind: str) -> None:
    found = {b"a": ((20, b"x"), (50, None), (90, b"y"))}
    stop, dropped, subjects = map_all(load_twin(NAME, kind), [b"a"] * 10_000, found)
    counts = {subject: subjects.count(subject) for subject in (b"x", b"a", b"y", b"")}
    assert stop == 10_000 and dropped == counts[b""]
    for subject, share in ((b"x", 20), (b"a", 30), (b"y", 40), (b"", 10)):
        assert abs(counts[subject] - 100 * share) < 300, counts


@both_twins
def test_operations_outside_of_the_array_are_refused(kind: str) -> None:
    data, ops = batch([b"a"])
    for first, stop in ((0, 2), (1, 1), (-1, 1)):
        with pytest.raises(IndexError):
            load_twin(NAME, kind).map_subjects(data, ops, first, stop, {}, None, 0, 1)


@needs_kernels
def test_a_subject_outside_of_the_buffer_is_refused() -> None:
    data, ops = batch([b"a"])
    ops[0], ops[1] = 2**32 - 1, 2**32 - 1
    with pytest.raises(IndexError):
        load_twin(NAME, "c").map_subjects(data, ops, 0, 1, {}, None, 0, 1)


_SUBJECTS = st.sampled_from([b"a", b"a.b", b"b", b"c.d.e", b""])
_CHOICES = (
    st.none() | st.binary(max_size=5) | st.lists(st.tuples(st.integers(0, 100), st.none() | st.binary())).map(tuple)
)


@needs_kernels
@given(
    st.lists(_SUBJECTS, min_size=1),
    st.dictionaries(_SUBJECTS, _CHOICES),
    st.none() | st.frozensets(st.sampled_from([b"a", b"b", b""])),
    st.integers(0, 2**64 - 1),
)
def test_the_twins_agree(
    subjects: list[bytes], found: dict[bytes, Any], heads: frozenset[bytes] | None, seed: int
) -> None:
    one, other = (map_all(twin, subjects, found, heads, seed) for twin in load_twins(NAME))
    assert one == other
