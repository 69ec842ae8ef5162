"""Which route does each publish of a batch take? In Python: the reference of `_routes_c.pyx`. Import `routes`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from jetlake.ops import OP_WORDS
from jetlake.store.subject_table import SubjectFilter

UNKNOWN = -1
NOBODY = 0
FIRST_ROUTE = 1
PREFIX_TOKENS_MAX = 63
_WORD = 2**64 - 1
SUBJECTS_MAX = 1 << 17

Capture = tuple[Sequence[bytes], int]


class RouteTable:
    """Subjects and the numbers of their routes."""

    def __init__(self, subjects_max: int = SUBJECTS_MAX) -> None:
        self._subjects_max = subjects_max
        self._routes: dict[bytes, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self.clear((), None)

    def clear(self, captures: Sequence[Capture], others: Sequence[bytes] | None) -> None:
        """Forget every subject, and learn how to find the routes of new ones; see `routes.py`."""
        self._routes.clear()
        self._captures = [(SubjectFilter(patterns), route) for patterns, route in captures]
        self._others = SubjectFilter(others) if others else None
        self._may_find = others is not None
        self._prefixes = dict.fromkeys(self._prefixes, UNKNOWN)

    def add_prefix(self, prefix: bytes) -> None:
        """Subjects that begin like this, with whole tokens, share a route of their own, which `put_prefix` tells."""
        check_prefix(prefix)
        if prefix in self._prefixes:
            raise ValueError(f"prefix {prefix!r} is there already")
        self._prefixes[prefix] = UNKNOWN

    def remove_prefix(self, prefix: bytes) -> None:
        """Subjects that begin like this are like all others again."""
        self._check_known(prefix)
        del self._prefixes[prefix]

    def put_prefix(self, prefix: bytes, route: int) -> None:
        """Remember the route of a prefix until `clear`."""
        self._check_known(prefix)
        self._prefixes[prefix] = route

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
        return len(self._routes)

    def put(self, subject: bytes, route: int) -> None:
        """Remember the route of a subject."""
        if len(self._routes) >= self._subjects_max:
            self._routes.clear()
        self._routes[subject] = route

    def run(self, data: bytes | bytearray, ops: array[int], first: int, stop: int) -> tuple[int, int]:
        """The route of operation `first`, and the operation at which another route begins: (stop, route)."""
        check_door(len(data), len(ops), first, stop)
        route = UNKNOWN
        for number in range(first, stop):
            start, size = ops[number * OP_WORDS : number * OP_WORDS + 2]
            found = self._route(bytes(data[start : start + size]))
            if number == first:
                route = found
            elif found != route:
                return number, route
            if found == UNKNOWN:
                return number, UNKNOWN
        return stop, route

    def _route(self, subject: bytes) -> int:
        prefix = self.prefix_of(subject)
        if prefix is not None:
            return self._prefixes[prefix]
        route = self._routes.get(subject)
        if route is None:
            route = self._find(subject)
            if route != UNKNOWN:
                self.put(subject, route)
        return route

    def _find(self, subject: bytes) -> int:
        if not self._may_find or not _is_plain(subject):
            return UNKNOWN
        if self._others is not None and self._others.matches(subject):
            return UNKNOWN
        return next((route for filter, route in self._captures if filter.matches(subject)), NOBODY)


def check_prefix(prefix: bytes) -> int:
    """How many tokens a prefix has; ValueError when it is not one or more whole ones."""
    tokens = prefix.count(b".")
    if not 0 < tokens <= PREFIX_TOKENS_MAX or not _is_plain(prefix[:-1]) or not prefix.endswith(b"."):
        raise ValueError(f"{prefix!r} is not a row of tokens")
    return tokens


def _is_plain(subject: bytes) -> bool:
    return not {b"", b"*", b">"} & set(subject.split(b"."))


def deal(ops: array[int], first: int, stop: int, count: int, seed: int) -> list[array[int]]:
    """Operations first..stop-1 dealt at random into `count` arrays, in order within each; see `routes.py`."""
    check_door(0, len(ops), first, stop)
    dealt = [array("I") for _ in range(count)]
    state = seed | 1
    for number in range(first, stop):
        state ^= state << 13 & _WORD
        state ^= state >> 7
        state ^= state << 17 & _WORD
        dealt[(state >> 32) * count >> 32].extend(ops[number * OP_WORDS : (number + 1) * OP_WORDS])
    return dealt


def check_door(data_size: int, ops_size: int, first: int, stop: int) -> None:
    """Raise IndexError unless the operations are in the array."""
    if not 0 <= first < stop <= ops_size // OP_WORDS:
        raise IndexError(f"operations {first}..{stop} of {ops_size // OP_WORDS}")
    if data_size > 2**32 - 1:
        raise ValueError(f"buffer of {data_size} bytes: offsets are of 32 bits")
