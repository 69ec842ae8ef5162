"""What the leader of the meta group has proposed and not seen applied, by account and name.

The leader decides on the assignments as they will be: limits, overlaps and names are checked against what is applied
and what is in flight. Several operations on one name can be in flight; the last one says what the name will be. All of
it is forgotten when the leadership ends, for nobody knows then what becomes of it.

Always true: a name is here exactly while at least one operation on it is in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Key = tuple[Any, ...]  # a stream's name; of a consumer, the stream's name and incarnation, and its own name


@dataclass
class _Operations(Generic[T]):
    count: int
    outcome: T | None  # what there will be; None if it is removed


@dataclass
class Inflight(Generic[T]):
    """Operations in flight on things of one kind."""

    _accounts: dict[str, dict[Key, _Operations[T]]] = field(default_factory=dict)

    def track(self, account: str, key: Key, outcome: T | None) -> None:
        """An operation was proposed; `outcome` is what it leads to, None for a removal."""
        names = self._accounts.setdefault(account, {})
        found = names.get(key)
        if found is None:
            names[key] = _Operations(1, outcome)
        else:
            found.count, found.outcome = found.count + 1, outcome

    def untrack(self, account: str, key: Key) -> None:
        """One was applied."""
        names = self._accounts.get(account, {})
        found = names.get(key)
        if found is None:
            return
        found.count -= 1
        if not found.count:
            del names[key]
        if not names:
            del self._accounts[account]

    def is_inflight(self, account: str, key: Key) -> bool:
        return key in self._accounts.get(account, {})

    def count(self, account: str, key: Key) -> int:
        """How many operations on it are in flight."""
        found = self._accounts.get(account, {}).get(key)
        return found.count if found is not None else 0

    def outcome(self, account: str, key: Key, applied: T | None) -> T | None:
        """What there will be under a name, given what is applied."""
        found = self._accounts.get(account, {}).get(key)
        return applied if found is None else found.outcome

    def outcomes(self, account: str) -> Iterator[tuple[Key, T | None]]:
        """Every name in flight with what there will be."""
        for key, found in self._accounts.get(account, {}).items():
            yield key, found.outcome

    def all_outcomes(self) -> Iterator[tuple[str, Key, T | None]]:
        """The same of every account."""
        for account in self._accounts:
            for key, outcome in self.outcomes(account):
                yield account, key, outcome

    def clear(self) -> None:
        self._accounts.clear()

    def __len__(self) -> int:
        return sum(found.count for names in self._accounts.values() for found in names.values())
