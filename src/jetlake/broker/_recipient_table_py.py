"""Whom does each publish of a batch reach? The reference of `_recipient_table_c.pyx`. Import `recipient_table`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from jetlake.ops import OP_WORDS, check_ops
from jetlake.store.index.subject_table import SubjectFilter

UNKNOWN = -1
NOBODY = 0
FIRST_RECIPIENTS = 1
PREFIX_TOKENS_MAX = 63
_WORD = 2**64 - 1
SUBJECTS_MAX = 1 << 17

Capture = tuple[Sequence[bytes], int]


class RecipientTable:
    """Subjects and the numbers of their recipients."""

    def __init__(self, subjects_max: int = SUBJECTS_MAX) -> None:
        self._subjects_max = subjects_max
        self._recipients: dict[bytes, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self.clear((), None)

    def clear(self, captures: Sequence[Capture], others: Sequence[bytes] | None) -> None:
        """Forget every subject, and learn how to find the recipients of new ones; see `recipient_table.py`."""
        self._recipients.clear()
        self._captures = [(SubjectFilter(patterns), recipients) for patterns, recipients in captures]
        self._others = SubjectFilter(others) if others else None
        self._may_find = others is not None
        self._prefixes = dict.fromkeys(self._prefixes, UNKNOWN)

    def add_prefix(self, prefix: bytes) -> None:
        """Subjects that begin like this, with whole tokens, share their recipients, which `put_prefix` tells."""
        check_prefix(prefix)
        if prefix in self._prefixes:
            raise ValueError(f"prefix {prefix!r} is there already")
        self._prefixes[prefix] = UNKNOWN

    def remove_prefix(self, prefix: bytes) -> None:
        """Subjects that begin like this are like all others again."""
        self._check_known(prefix)
        del self._prefixes[prefix]

    def put_prefix(self, prefix: bytes, recipients: int) -> None:
        """Remember the recipients of a prefix until `clear`."""
        self._check_known(prefix)
        self._prefixes[prefix] = recipients

    def _check_known(self, prefix: bytes) -> None:
        if prefix not in self._prefixes:
            raise KeyError(f"no prefix {prefix!r}")

    def prefix_of(self, subject: bytes) -> bytes | None:
        """The prefix that a subject begins with; None when there is none, or the rest is no literal subject."""
        end = subject.find(b".") + 1
        while 0 < end < len(subject):
            if subject[:end] in self._prefixes:
                return subject[:end] if _is_plain(subject[end:]) else None
            end = subject.find(b".", end) + 1
        return None

    def __len__(self) -> int:
        return len(self._recipients)

    def put(self, subject: bytes, recipients: int) -> None:
        """Remember the recipients of a subject."""
        if len(self._recipients) >= self._subjects_max:
            self._recipients.clear()
        self._recipients[subject] = recipients

    def run(self, data: bytes | bytearray, ops: array[int], first: int, stop: int) -> tuple[int, int]:
        """The recipients of operation `first`, and the first operation with other ones: (stop, recipients)."""
        check_ops(len(data), len(ops), first, stop)
        recipients = UNKNOWN
        for number in range(first, stop):
            start, size = ops[number * OP_WORDS : number * OP_WORDS + 2]
            found = self._recipients_of(bytes(data[start : start + size]))
            if number == first:
                recipients = found
            elif found != recipients:
                return number, recipients
            if found == UNKNOWN:
                return number, UNKNOWN
        return stop, recipients

    def groups(
        self, data: bytes | bytearray, ops: array[int], first: int, stop: int, apart: bytes | bytearray
    ) -> tuple[int, array[int], list[tuple[int, int, int]]]:
        """Sort publishes by their recipients, as far as that is allowed; see `recipient_table.py`."""
        check_ops(len(data), len(ops), first, stop)
        found: dict[int, array[int]] = {}
        for number in range(first, stop):
            start, size = ops[number * OP_WORDS : number * OP_WORDS + 2]
            recipients = self._recipients_of(bytes(data[start : start + size]))
            if not 0 <= recipients < len(apart) or not apart[recipients]:
                stop = number
                break
            found.setdefault(recipients, array("I")).extend(ops[number * OP_WORDS : (number + 1) * OP_WORDS])
        taken, runs = array("I"), []
        for recipients, own in found.items():
            begin = len(taken) // OP_WORDS
            taken.extend(own)
            runs.append((recipients, begin, begin + len(own) // OP_WORDS))
        return stop, taken, runs

    def _recipients_of(self, subject: bytes) -> int:
        prefix = self.prefix_of(subject)
        if prefix is not None:
            return self._prefixes[prefix]
        recipients = self._recipients.get(subject)
        if recipients is None:
            recipients = self._find(subject)
            if recipients != UNKNOWN:
                self.put(subject, recipients)
        return recipients

    def _find(self, subject: bytes) -> int:
        if not self._may_find or not _is_plain(subject):
            return UNKNOWN
        if self._others is not None and self._others.matches(subject):
            return UNKNOWN
        return next((recipients for filter, recipients in self._captures if filter.matches(subject)), NOBODY)


def check_prefix(prefix: bytes) -> int:
    """How many tokens a prefix has; ValueError when it is not one or more whole ones."""
    tokens = prefix.count(b".")
    if not 0 < tokens <= PREFIX_TOKENS_MAX or not _is_plain(prefix[:-1]) or not prefix.endswith(b"."):
        raise ValueError(f"{prefix!r} is not a row of tokens")
    return tokens


def _is_plain(subject: bytes) -> bool:
    return not {b"", b"*", b">"} & set(subject.split(b"."))


def deal(ops: array[int], first: int, stop: int, count: int, seed: int) -> list[array[int]]:
    """Operations first..stop-1 dealt at random into `count` arrays, in order within each; see `recipient_table.py`."""
    check_ops(0, len(ops), first, stop)
    dealt = [array("I") for _ in range(count)]
    state = seed | 1
    for number in range(first, stop):
        state ^= state << 13 & _WORD
        state ^= state >> 7
        state ^= state << 17 & _WORD
        dealt[(state >> 32) * count >> 32].extend(ops[number * OP_WORDS : (number + 1) * OP_WORDS])
    return dealt
