"""NATS subjects: their text, their bytes, and what matches what.

A subject is a row of tokens joined by dots: `orders.eu.created`. A filter is a subject in which a whole token may be a
wildcard: `*` stands for exactly one token, `>` (only as the last token) for one or more. A wildcard character inside a
longer token is plain text: `a*` is a literal token.

Subjects are str in the API and bytes in kernels and on disk: UTF-8 with surrogateescape, so that any bytes a client
sent come back as they were. Everything here is a function of its arguments.

Always true: a subject that passed `check_subject` passes `check_filter`, and matches itself and nothing else.
"""

from __future__ import annotations

import re

from jetlake.errors import BadSubject

_FORBIDDEN = re.compile(r"[\x00 \t\n\v\f\r]")


def encode_subject(subject: str) -> bytes:
    """The bytes of a subject."""
    try:
        return subject.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadSubject(subject, "has no UTF-8 form") from None


def decode_subject(subject: bytes) -> str:
    """The text of a subject's bytes, whatever they are."""
    return subject.decode("utf-8", "surrogateescape")


def is_literal(subject: str) -> bool:
    """True when no token is a wildcard."""
    tokens = subject.split(".")
    return "*" not in tokens and ">" not in tokens


def check_subject(subject: str) -> None:
    """Raise BadSubject unless this is a literal subject."""
    check_tokens(subject)
    if not is_literal(subject):
        raise BadSubject(subject, "has a wildcard")


def check_filter(subject: str) -> None:
    """Raise BadSubject unless this is a subject or a pattern of subjects."""
    check_tokens(subject)
    if ">" in subject.split(".")[:-1]:
        raise BadSubject(subject, "'>' must be the last token")


def check_tokens(subject: str) -> None:
    """Raise BadSubject unless a message can be stored under this subject.

    A wildcard in it is text then, as for nats-server: such a message is found by sequence and by filters, but nobody
    can ask for its subject alone.
    """
    if not subject:
        raise BadSubject(subject, "is empty")
    if "" in subject.split("."):
        raise BadSubject(subject, "has an empty token")
    if found := _FORBIDDEN.search(subject):
        raise BadSubject(subject, f"contains {found[0]!r}")
    encode_subject(subject)


def matches(filter: str, subject: str) -> bool:
    """True when this literal subject is one that the filter stands for."""
    return is_subset(subject, filter)


def is_subset(inner: str, outer: str) -> bool:
    """True when every subject that matches `inner` matches `outer` too."""
    left, right = inner.split("."), outer.split(".")
    for mine, other in zip(left, right, strict=False):
        if other == ">":
            return True
        if mine == ">" or (other != "*" and mine != other):
            return False
    return len(left) == len(right)


def overlaps(a: str, b: str) -> bool:
    """True when some subject matches both."""
    left, right = a.split("."), b.split(".")
    for mine, other in zip(left, right, strict=False):
        if mine == ">" or other == ">":
            return True
        if mine != other and mine != "*" and other != "*":
            return False
    return len(left) == len(right)


def literal_prefix(filter: str) -> str:
    """What all matching subjects begin with: the text before the first wildcard token, with its trailing dot."""
    tokens = filter.split(".")
    for index, token in enumerate(tokens):
        if token in ("*", ">"):
            return "".join(f"{literal}." for literal in tokens[:index])
    return filter
