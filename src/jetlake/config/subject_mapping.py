"""Subjects of one account under another name in a second: what an import makes of them.

`subject` is the exporter's pattern, and `local` says what the importer calls it, token by token:

    text                        itself
    $n, {{wildcard(n)}}         the n-th `*` of the exporter's pattern
    *                           the same, the first one for the first, and so on
    >                           the rest, if the exporter's pattern ends so too

Always true: what `inward` makes of a subject, `outward` makes the same subject of again.
"""

from __future__ import annotations

import re

from jetlake.errors import BadRequest
from jetlake.subjects import check_filter, decode_subject, encode_subject

_NUMBER = re.compile(rb"\$([0-9]+)|\{\{ *[wW]ildcard *\( *([0-9]+) *\) *\}\}", re.ASCII)

_Token = bytes | int  # text, or which of the exporter's wildcards, from 0


class SubjectMapping:
    """The names of an import's subjects on both sides. Raises BadRequest or BadSubject when they do not fit."""

    def __init__(self, subject: str, local: str) -> None:
        check_filter(subject)
        self._exported = encode_subject(subject).split(b".")
        if any(map(_NUMBER.fullmatch, self._exported)):
            raise BadRequest(f"{subject!r} has numbered wildcards, which belong in 'to'; here they are '*'")
        self._local, self._last = _parse(encode_subject(local).split(b"."))
        self.subject, self.local = subject, decode_subject(b".".join(_pattern(self._local)))
        check_filter(self.local)
        self._check(local)
        self.is_identity = self._local == _parse(self._exported)[0]

    def _check(self, local: str) -> None:
        """Each wildcard of the exporter needs a place; what is too much, `*` apart, stands for nothing."""
        count, used = self._exported.count(b"*"), {token for token in self._local if isinstance(token, int)}
        if not used.issuperset(range(count)):
            raise BadRequest(f"{local!r} does not use all the wildcards of {self.subject!r}")
        if self._last > count:
            raise BadRequest(f"{local!r} uses a wildcard that {self.subject!r} does not have")
        if (self._local[-1] == b">") != (self._exported[-1] == b">"):
            raise BadRequest(f"{local!r} and {self.subject!r} end in '>' both, or neither does")

    @property
    def has_spare_wildcards(self) -> bool:
        """True when several subjects of the importer are one of the exporter's."""
        count = self._exported.count(b"*")
        return any(isinstance(token, int) and token >= count for token in self._local)

    def inward(self, subject: bytes) -> bytes:
        """What the importer calls a subject that the exporter's pattern matches."""
        if self.is_identity:
            return subject
        tokens = subject.split(b".")
        bound = [token for token, own in zip(tokens, self._exported, strict=False) if own == b"*"]
        named = [bound[token] if isinstance(token, int) else token for token in self._local]
        if named[-1] == b">":
            named[-1:] = tokens[len(self._exported) - 1 :]
        return b".".join(named)

    def outward(self, pattern: bytes) -> bytes | None:
        """The exporter's subjects behind a subject or pattern of the importer's; None when there are none."""
        asked, rest = pattern.split(b"."), [b">"]
        bound: dict[int, bytes] = {}
        for at, own in enumerate(self._local):
            if at >= len(asked):
                return None
            if asked[at] == b">":
                break
            if own == b">":
                rest = asked[at:]
                break
            if isinstance(own, int):
                if asked[at] != b"*" and bound.setdefault(own, asked[at]) != asked[at]:
                    return None
            elif asked[at] not in (own, b"*"):
                return None
        else:
            if len(asked) > len(self._local):
                return None
        return b".".join(self._fill(bound, rest))

    def _fill(self, bound: dict[int, bytes], rest: list[bytes]) -> list[bytes]:
        filled: list[bytes] = []
        number = 0
        for token in self._exported:
            if token == b"*":
                filled.append(bound.get(number, token))
                number += 1
            elif token == b">":
                filled += rest
            else:
                filled.append(token)
        return filled


def _parse(tokens: list[bytes]) -> tuple[list[_Token], int]:
    """The tokens, and the highest number that was written as one."""
    parsed: list[_Token] = []
    stars = last = 0
    for token in tokens:
        if token == b"*":
            parsed.append(stars)
            stars += 1
        elif found := _NUMBER.fullmatch(token):
            number = int(found[1] or found[2])
            last = max(last, number)
            if not number:
                raise BadRequest("wildcards are counted from 1")
            parsed.append(number - 1)
        elif token.startswith(b"{{") and token.endswith(b"}}"):
            raise BadRequest(f"{decode_subject(token)}: an import has no function but wildcard")
        else:
            parsed.append(token)
    return parsed, last


def _pattern(tokens: list[_Token]) -> list[bytes]:
    return [b"*" if isinstance(token, int) else token for token in tokens]
