"""Subject mappings of an account: what clients publish to one subject goes to another, before anybody is looked for.

The first mapping whose source matches counts, and it is applied once. A mapping has destinations with weights in per
cent. What they leave of 100 keeps its subject; unless the source itself is a destination: then it is dropped, which is
how losses are simulated. A destination for another cluster than the server's own is not used.

What becomes of a subject is remembered, and whole batches are mapped by a kernel (`map_subjects`). A destination with
`random` gives another subject each time, so such subjects are mapped one by one.
"""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Sequence
from typing import Any

from jetlake.broker.map_subjects import WEIGHTS, Choices, Found, map_subjects
from jetlake.broker.subscription import Buffer, read_subject
from jetlake.broker.transform import BadTransform, SubjectTransform
from jetlake.config import MappingOptions
from jetlake.errors import BadRequest
from jetlake.ops import OP_WORDS
from jetlake.subjects import is_literal

FOUND_MAX = 65_536
_NO_CLUSTER = ""
_RANDOM = re.compile(r"\{\{\s*random", re.IGNORECASE)


class BadMapping(BadRequest):
    """A mapping that nats-server refuses, in its words."""


class _Mapping:
    """One source and its destinations, by rising weight: the sum of all up to each."""

    def __init__(self, options: MappingOptions) -> None:
        self.source = options.source
        self.match = SubjectTransform(options.source, _same(options.source))
        own = [found for found in options.destinations if found.cluster == _NO_CLUSTER]
        # Those of other clusters are checked, too.
        transforms = {found: _transform(options.source, found.subject) for found in options.destinations}
        self._elsewhere = [found for found in options.destinations if found.cluster != _NO_CLUSTER]
        chosen = [(found.weight, transforms[found]) for found in own]
        total = sum(weight for weight, _ in chosen)
        if total != WEIGHTS and options.source not in [found.subject for found in options.destinations]:
            chosen.append((WEIGHTS - total, self.match))
        self.destinations: list[tuple[int, SubjectTransform]] = []
        reached = 0
        for weight, transform in sorted(chosen, key=lambda pair: pair[0]):
            reached += weight
            self.destinations.append((reached, transform))

    @property
    def is_random(self) -> bool:
        return any(_RANDOM.search(transform.dest) for _, transform in self.destinations)

    def shown(self) -> list[dict[str, Any]]:
        """The destinations as pages show them."""
        own = [{"subject": transform.dest, "weight": weight} for weight, transform in self.destinations]
        others = [
            {"subject": found.subject, "weight": found.weight, "cluster": found.cluster} for found in self._elsewhere
        ]
        return own + others


def _same(source: str) -> str:
    """The destination that leaves every subject as it is."""
    stars = iter(range(1, source.count("*") + 1))
    return ".".join(f"${next(stars)}" if token == "*" else token for token in source.split("."))


def _transform(source: str, subject: str) -> SubjectTransform:
    try:
        return SubjectTransform(source, subject)
    except BadTransform as error:
        raise BadMapping(f'Error adding mapping for "{source}" to "{subject}" : {error.problem}') from None


class Mappings:
    """The mappings of one account. Raises BadMapping when made."""

    def __init__(self, options: Sequence[MappingOptions]) -> None:
        self.options = options
        self._mappings = [_Mapping(found) for found in options]
        heads = {found.source.partition(".")[0] for found in options}
        self._heads = frozenset(map(str.encode, heads)) if all(map(is_literal, heads)) else None
        self._found: Found = {}

    def apply(self, data: Buffer, ops: array[int], first: int, stop: int) -> tuple[Buffer, int]:
        """Map a batch: the buffer in which the operations have their bytes now, and how many were dropped.

        A dropped one has an empty subject.
        """
        at = (stop - 1) * OP_WORDS
        base = size = max(ops[at + 6] + ops[at + 7], ops[at] + ops[at + 1])
        pieces: list[bytes] = []
        dropped = 0
        while first < stop:
            seed = random.getrandbits(64)
            first, lost, mapped = map_subjects(data, ops, first, stop, self._found, self._heads, base, seed)
            pieces.append(mapped)
            base, dropped = base + len(mapped), dropped + lost
            if first < stop and not self._learn(subject := read_subject(data, ops, first)):
                other = self.map(subject)
                ops[first * OP_WORDS], ops[first * OP_WORDS + 1] = base, len(other)
                pieces.append(other)
                base, dropped, first = base + len(other), dropped + (not other), first + 1
        return (b"".join([memoryview(data)[:size], *pieces]) if base > size else data), dropped

    def shown(self) -> dict[str, Any]:
        """All mappings as pages show them."""
        return {mapping.source: mapping.shown() for mapping in self._mappings}

    def map(self, subject: bytes) -> bytes:
        """What one subject becomes; nothing when its message is dropped."""
        mapping = self._mapping_of(subject)
        if mapping is None:
            return subject
        drawn = random.randrange(WEIGHTS)
        for weight, transform in mapping.destinations:
            if drawn < weight:
                return transform.apply_bytes(subject) or b""
        return b""

    def _mapping_of(self, subject: bytes) -> _Mapping | None:
        return next((found for found in self._mappings if found.match.apply_bytes(subject) is not None), None)

    def _learn(self, subject: bytes) -> bool:
        """Remember what becomes of a subject; False when that is another thing each time."""
        mapping = self._mapping_of(subject)
        if mapping is not None and mapping.is_random:
            return False
        if len(self._found) >= FOUND_MAX:
            self._found.clear()
        self._found[subject] = _choices(mapping, subject) if mapping is not None else None
        return True


def _choices(mapping: _Mapping, subject: bytes) -> bytes | Choices | None:
    choices = []
    for weight, transform in mapping.destinations:
        mapped = transform.apply_bytes(subject)
        choices.append((weight, None if mapped == subject else mapped))
    if len(choices) == 1 and choices[0][0] == WEIGHTS:
        return choices[0][1]
    return tuple(choices)
