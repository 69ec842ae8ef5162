"""Patterns of subjects, on bytes: the reference twin of `_subject_filter_c.pyx`. Import `subject_table`.

A filter keeps its patterns split into tokens and matches them as `jetlake.subjects` says, any of them. Patterns were
checked by whoever made them; a subject may be any bytes, and empty tokens count as tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from jetlake.subjects import encode_subject


class SubjectFilter:
    """One or several valid patterns, matched as "any of"; none at all matches everything."""

    __slots__ = ("_literals", "_tokens", "_wild", "is_all", "patterns")

    def __init__(self, patterns: Sequence[str | bytes]) -> None:
        if isinstance(patterns, (str, bytes)):
            raise TypeError("expected a sequence of patterns, not one pattern")
        self.patterns = tuple(encode_subject(p) if isinstance(p, str) else bytes(p) for p in patterns)
        self.is_all = not self.patterns or b">" in self.patterns
        self._tokens = [pattern.split(b".") for pattern in self.patterns]
        self._wild = [tokens for tokens in self._tokens if b"*" in tokens or b">" in tokens]
        self._literals = {b".".join(tokens) for tokens in self._tokens if not (b"*" in tokens or b">" in tokens)}

    @property
    def literal(self) -> bytes | None:
        """The subject, when there is exactly one pattern and it is literal."""
        return self.patterns[0] if len(self.patterns) == 1 and self.all_literal() else None

    def matches(self, subject: bytes) -> bool:
        """True when a pattern matches this subject."""
        tokens = subject.split(b".") if self._wild else []
        return self.is_all or subject in self._literals or any(_tokens_match(pattern, tokens) for pattern in self._wild)

    def all_literal(self) -> bool:
        """True when there are patterns and none has a wildcard."""
        return not self.is_all and not self._wild

    def prefixes(self) -> list[bytes]:
        """What matching subjects begin with, one for each pattern."""
        return [_prefix(tokens) for tokens in self._tokens]


def _tokens_match(pattern: list[bytes], tokens: list[bytes]) -> bool:
    for wanted, found in zip(pattern, tokens, strict=False):
        if wanted == b">":
            return True
        if wanted not in (b"*", found):
            return False
    return len(pattern) == len(tokens)


def _prefix(pattern: list[bytes]) -> bytes:
    for index, token in enumerate(pattern):
        if token in (b"*", b">"):
            return b"".join(literal + b"." for literal in pattern[:index])
    return b".".join(pattern)
