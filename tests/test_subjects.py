"""Subjects: text, bytes, validity, matching."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import BadSubject
from jetlake.subjects import (
    FilterSet,
    check_filter,
    check_subject,
    decode_subject,
    encode_subject,
    first_overlap,
    first_tokens,
    is_literal,
    is_subset,
    literal_prefix,
    matches,
    overlaps,
)

BAD_FOR_BOTH = ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\rb", "a\nb", "a\0b", "a\vb", "a\fb", "a.\ud800"]
PATTERNS = ["*", ">", "a.*", "*.a", "a.>", "a.*.>", "*.*"]

# Patterns draw on a and b; subjects also on c, which stands for every token that no pattern names.
SUBJECTS = [".".join(tokens) for size in range(1, 5) for tokens in itertools.product("abc", repeat=size)]


@st.composite
def filters(draw: st.DrawFn) -> str:
    """A valid filter of up to three tokens over a tiny alphabet."""
    tokens = draw(st.lists(st.sampled_from(["a", "b", "*"]), max_size=3))
    if not tokens or draw(st.booleans()):
        tokens = [*tokens[:2], draw(st.sampled_from([">", "a"]))]
    return ".".join(tokens)


def matching(filter: str) -> set[str]:
    return {subject for subject in SUBJECTS if matches(filter, subject)}


@given(st.binary())
def test_any_bytes_survive_as_text(raw: bytes) -> None:
    assert encode_subject(decode_subject(raw)) == raw


def test_text_without_a_utf8_form_is_refused() -> None:
    with pytest.raises(BadSubject, match="no UTF-8 form"):
        encode_subject("\ud800")


@pytest.mark.parametrize("subject", ["a", "a.b", "$KV.b.k", "a*", "a.>b", "**", ">>", "é.ü", "\udcff.x", "a\u00a0b"])
def test_literal_subjects_pass(subject: str) -> None:
    assert is_literal(subject)
    check_subject(subject)
    check_filter(subject)
    assert matches(subject, subject)


@pytest.mark.parametrize("subject", BAD_FOR_BOTH)
def test_malformed_subjects_are_refused(subject: str) -> None:
    with pytest.raises(BadSubject):
        check_subject(subject)
    with pytest.raises(BadSubject):
        check_filter(subject)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_wildcards_are_filters_but_not_subjects(pattern: str) -> None:
    assert not is_literal(pattern)
    check_filter(pattern)
    with pytest.raises(BadSubject, match="wildcard"):
        check_subject(pattern)


@pytest.mark.parametrize("pattern", [">.a", "a.>.b", ">.>"])
def test_full_wildcard_must_come_last(pattern: str) -> None:
    with pytest.raises(BadSubject, match="last token"):
        check_filter(pattern)


@pytest.mark.parametrize(
    ("filter", "subject", "expected"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a", "a.b", False),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("*.b", "a.b", True),
        (">", "a.b.c", True),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        ("a.>", "ab.c", False),
        ("a*", "ab", False),
        ("a*", "a*", True),
    ],
)
def test_matches(filter: str, subject: str, expected: bool) -> None:
    assert matches(filter, subject) is expected


@pytest.mark.parametrize(
    ("filter", "prefix"),
    [("a.b.*.c", "a.b."), ("a.b", "a.b"), (">", ""), ("*", ""), ("*.a", ""), ("a.>", "a."), ("a*.b.>", "a*.b.")],
)
def test_literal_prefix(filter: str, prefix: str) -> None:
    assert literal_prefix(filter) == prefix


@given(filters(), filters())
def test_overlap_is_a_common_subject(a: str, b: str) -> None:
    assert overlaps(a, b) is bool(matching(a) & matching(b))
    assert overlaps(a, b) is overlaps(b, a)


@given(filters(), filters())
def test_subset_is_inclusion_of_matching_subjects(inner: str, outer: str) -> None:
    assert is_subset(inner, outer) is (matching(inner) <= matching(outer))


@given(filters())
def test_matching_subjects_begin_with_the_literal_prefix(filter: str) -> None:
    check_filter(filter)
    assert all(subject.startswith(literal_prefix(filter)) for subject in matching(filter))


tokens = st.lists(st.sampled_from(["a", "b", "*", "c*"]), min_size=1, max_size=4)
filters = st.builds(
    lambda tokens, end: ".".join([*tokens, end]) if end else ".".join(tokens), tokens, st.sampled_from(["", ">"])
)


@given(st.lists(filters, max_size=6), filters)
def test_a_set_of_filters_overlaps_as_each_of_them_does(members: list[str], other: str) -> None:
    assert FilterSet(members).overlaps(other) == any(overlaps(member, other) for member in members)


@given(st.lists(filters, max_size=6, unique=True), filters)
def test_a_set_of_filters_covers_as_each_of_them_but_the_same_does(members: list[str], other: str) -> None:
    expected = any(is_subset(other, member) for member in members if member != other)
    assert FilterSet(members).covers(other) == expected


@given(st.lists(filters, max_size=6))
def test_the_first_overlap_is_the_first_of_all_pairs(members: list[str]) -> None:
    pairs = ((i, j) for i in range(len(members)) for j in range(i + 1, len(members)))
    assert first_overlap(members) == next((pair for pair in pairs if overlaps(*(members[k] for k in pair))), None)


def test_filters_of_many_tokens_are_compared_without_recursion() -> None:
    long = ".".join("a" * 50_000)
    assert FilterSet([f"{long}.*"]).overlaps(f"{long}.b")
    assert FilterSet([f"{long}.>"]).covers(f"{long}.b")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (["a.1.*", "a.2.*"], None),
        (["a.1.*", "a.1.*"], (0, 1)),
        (["a.1.*", "a.*.2"], (0, 1)),
        (["a*.1", "b*.1"], None),
        (["a*.*", "*a.*"], None),
        (["a\nb", "b"], None),
        (["", ""], (0, 1)),
    ],
)
def test_overlaps_among_filters_that_look_alike(members: list[str], expected: tuple[int, int] | None) -> None:
    assert first_overlap(members) == expected


def test_first_tokens_are_those_before_the_first_dot() -> None:
    assert first_tokens(["a.b", "a.c", "*.d", "e", ">"]) == {"a", "*", "e", ">"}
