"""A clock that moves only when a test moves it, forwards or backwards, so that no test waits and none is flaky."""

from __future__ import annotations

from jetlake.clock import SECOND_NS


class FakeClock:
    """A Clock (nanoseconds since the Unix epoch) that a test moves by hand."""

    def __init__(self, start_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now_ns = start_ns

    def __call__(self) -> int:
        return self._now_ns

    def advance(self, seconds: float = 0, *, ns: int = 0) -> None:
        """Move by this much, both added up."""
        self._now_ns += round(seconds * SECOND_NS) + ns

    def set(self, ns: int) -> None:
        """Move to this time."""
        self._now_ns = ns
