"""Errors that nobody foresaw: what is told of them.

Whoever calls code on behalf of others (of a client, a timer, a commit) catches everything that it raises, goes on with
the others, and reports here. An error is told in full, with its traceback, the first time that it comes from a place in
the code; from then on in one line, so that a client which can provoke it cannot fill the disk with it.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

PLACES_MAX = 1024


class Failures:
    """Tells of errors."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._places: set[tuple[str, str, int]] = set()
        self.count = 0

    def __call__(self, what: str, error: BaseException) -> None:
        """`what` failed. Lines of the traceback are lines of the log; the error's own text stays within its line."""
        self.count += 1
        self._log("error", f"{what} failed: {type(error).__name__}: {error}")
        frames = traceback.extract_tb(error.__traceback__)
        place = (type(error).__name__, frames[-1].filename, frames[-1].lineno or 0) if frames else None
        if place is None or place in self._places or len(self._places) >= PLACES_MAX:
            return
        self._places.add(place)
        self._log("error", "Traceback (most recent call last):")
        for line in "".join(traceback.format_list(frames)).splitlines():
            self._log("error", line)
