"""Subject mappings: what becomes of the subjects of a batch."""

from __future__ import annotations

import pytest

from jetlake.broker import mappings
from jetlake.broker.mappings import BadMapping, Mappings
from jetlake.config import load_text
from jetlake.ops import OP_WORDS
from tests.broker.test_map_subjects import batch


def make(text: str) -> Mappings:
    return Mappings(load_text(f"mappings {{ {text} }}").mappings)


def apply(made: Mappings, subjects: list[bytes]) -> list[bytes]:
    data, ops = batch(subjects)
    mapped, dropped = made.apply(data, ops, 0, len(subjects))
    found = [bytes(mapped[ops[at] : ops[at] + ops[at + 1]]) for at in range(0, len(ops), OP_WORDS)]
    assert dropped == found.count(b"")
    return found


def test_the_first_source_that_matches_counts() -> None:
    made = make('"a.b": x, "a.*": "y.$1", "a.>": "z.>", "*.c": "w.$1"')
    subjects = [b"a.b", b"a.c", b"a.b.c", b"q.c", b"q", b"a"]
    assert apply(made, subjects) == [b"x", b"y.c", b"z.b.c", b"w.q", b"q", b"a"]
    assert apply(made, subjects) == [made.map(subject) for subject in subjects]


def test_a_batch_that_is_not_mapped_stays_where_it_is() -> None:
    data, ops = batch([b"b", b"c"])
    assert make("a: x").apply(data, ops, 0, 2)[0] is data


def test_a_part_of_a_batch_is_mapped() -> None:
    data, ops = batch([b"a", b"a", b"a"])
    mapped, _ = make("a: xyz").apply(data, ops, 1, 2)
    assert [ops[at + 1] for at in range(0, len(ops), OP_WORDS)] == [1, 3, 1] and b"xyz" in bytes(mapped)


def test_random_destinations_differ_each_time() -> None:
    found = apply(make('"a.*": "b.{{random(1000000)}}.$1", c: d'), [b"a.x", b"c"] * 50)
    assert len(set(found)) > 40 and found.count(b"d") == 50 and all(one.endswith(b".x") for one in found[::2])


def test_what_weights_leave_keeps_its_subject_or_is_dropped() -> None:
    kept = apply(make("a: {destination: b, weight: 25%}"), [b"a"] * 4000)
    assert set(kept) == {b"a", b"b"} and 800 < kept.count(b"b") < 1200
    dropped = apply(make("a: [{destination: a, weight: 25%}, {destination: b, weight: 25}]"), [b"a"] * 4000)
    assert set(dropped) == {b"a", b"b", b""} and 1700 < dropped.count(b"") < 2300


def test_destinations_of_other_clusters_are_not_used() -> None:
    made = make(
        '"a.*": [{destination: "b.$1", cluster: east}, {destination: "c.$1", weight: 100}], d: {dest: e, cluster: x}'
    )
    assert apply(made, [b"a.1", b"d"]) == [b"c.1", b"d"]


def test_many_subjects_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mappings, "FOUND_MAX", 10)
    made = make('"a.*": "b.$1"')
    subjects = [b"a.%d" % number for number in range(100)]
    assert apply(made, subjects) == [b"b.%d" % number for number in range(100)]
    assert len(made._found) <= 10


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"a.*": "b.$2"', "wildcard index out of range in $2: [2]"),
        ('"a.*": "b.{{foo(1)}}"', "unknown function in {{foo(1)}}"),
        ('"a.*": "b.*"', "invalid subject"),
        ('a: "b.>"', "invalid subject"),
    ],
)
def test_destinations_have_to_fit_their_sources(text: str, problem: str) -> None:
    with pytest.raises(BadMapping) as caught:
        make(text)
    assert str(caught.value).startswith("Error adding mapping for ") and str(caught.value).endswith(problem)
