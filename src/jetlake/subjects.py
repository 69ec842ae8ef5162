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
from collections.abc import Iterable, Sequence
from typing import Any

from jetlake.errors import BadSubject

_FORBIDDEN = re.compile(r"[\x00 \t\n\v\f\r]")
# A filter with nothing in it that needs a second look: most are, and there may be thousands in one request.
_TOKEN = r"[^\x00 \t\n\v\f\r.*>\ud800-\udfff]++"
_PLAIN = re.compile(rf"(?:(?:{_TOKEN}|\*)\.)*+(?:{_TOKEN}|\*|>)")
_LITERAL = re.compile(r"[^.*>\n]+")


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
    if _PLAIN.fullmatch(subject):
        return
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


_Trie = dict[str | None, Any]  # by token
_END = None  # where a filter ends


class FilterSet:
    """Many filters, to be compared with others without a look at each of them.

    Literal filters lie in a set, all others in a trie of their tokens; a literal one goes into a trie too once it has
    to be compared with patterns.
    """

    def __init__(self, filters: Iterable[str] = ()) -> None:
        self._literals: set[str] = set()
        self._patterns: _Trie = {}
        self._literal_tokens: _Trie | None = None
        for filter in filters:
            self.add(filter)

    def add(self, filter: str) -> None:
        """Add a filter."""
        if "*" not in filter and ">" not in filter:
            self._literals.add(filter)
            if self._literal_tokens is not None:
                _plant(self._literal_tokens, filter.split("."))
        else:
            _plant(self._patterns, filter.split("."))

    def overlaps(self, filter: str) -> bool:
        """True when some subject matches both this filter and one of the set."""
        tokens = filter.split(".")
        if "*" not in filter and ">" not in filter:
            return filter in self._literals or (bool(self._patterns) and _has_overlap(self._patterns, tokens))
        if self._patterns and _has_overlap(self._patterns, tokens):
            return True
        if self._literals and self._literal_tokens is None:
            self._literal_tokens = {}
            for literal in self._literals:
                _plant(self._literal_tokens, literal.split("."))
        return bool(self._literals) and _has_overlap(self._literal_tokens or {}, tokens)

    def covers(self, filter: str) -> bool:
        """True when another filter of the set matches all that this one matches."""
        return bool(self._patterns) and _is_covered(self._patterns, filter.split("."))


def first_overlap(filters: Sequence[str]) -> tuple[int, int] | None:
    """The places of the first filter that overlaps with a later one, and of the first such one."""
    if _are_alike(filters) and len(set(filters)) == len(filters):
        return None
    later, first = FilterSet(), -1
    for place in range(len(filters) - 1, -1, -1):
        if later.overlaps(filters[place]):
            first = place
        later.add(filters[place])
    if first < 0:
        return None
    return first, next(place for place in range(first + 1, len(filters)) if overlaps(filters[first], filters[place]))


def first_tokens(filters: Iterable[str]) -> set[str]:
    """The tokens that filters begin with. Two sets of filters without a token in common, or a wildcard, are apart."""
    return {filter.partition(".")[0] for filter in filters}


def _are_alike(filters: Sequence[str]) -> bool:
    """Whether all have their wildcards in the same places: then two that differ, differ where both are literal."""
    text = _LITERAL.sub("a", "\n".join(filters))
    return text.count("\n") == len(filters) - 1 and len(set(text.split("\n"))) == 1


def _plant(node: _Trie, tokens: list[str]) -> None:
    for token in tokens:
        node = node.setdefault(token, {})
        if token == ">":
            return
    node[_END] = {}


def _has_overlap(root: _Trie, tokens: list[str]) -> bool:
    """Whether a filter of a trie and this one have a subject in common."""
    waiting = [(root, 0)]
    while waiting:
        node, place = waiting.pop()
        if place == len(tokens):
            if _END in node:
                return True
            continue
        token = tokens[place]
        if ">" in node or (token == ">" and (len(node) > 1 or _END not in node)):
            return True
        if token == "*":
            waiting += [(below, place + 1) for key, below in node.items() if key is not _END]
        else:
            waiting += [(node[key], place + 1) for key in (token, "*") if key in node]
    return False


def _is_covered(root: _Trie, tokens: list[str]) -> bool:
    """Whether a filter of a trie, but for this one itself, matches all that this one matches."""
    waiting = [(root, 0, True)]
    while waiting:
        node, place, is_itself = waiting.pop()
        if place == len(tokens):
            if _END in node and not is_itself:
                return True
            continue
        token = tokens[place]
        if ">" in node and not (token == ">" and is_itself):
            return True
        if token != ">":
            waiting += [(node[key], place + 1, is_itself and key == token) for key in {token, "*"} if key in node]
    return False
