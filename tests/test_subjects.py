"""Subjects: text, bytes, validity, matching."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetlake.errors import BadSubject
from jetlake.subjects import (
    check_filter,
    check_subject,
    decode_subject,
    encode_subject,
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
