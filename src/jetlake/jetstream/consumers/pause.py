"""A consumer that is told to rest until a time."""

from __future__ import annotations

from jetlake.jetstream.consumers.pull_queue import NEVER_NS

DURATION_MAX_NS = 2**63 - 1


class Pause:
    """Until when nothing is delivered. It ends by itself."""

    def __init__(self, until_ns: int | None) -> None:
        self.until_ns = until_ns
        self._is_told = True  # its end, or that there is none

    def set(self, until_ns: int | None, now_ns: int) -> None:
        """Rest until another time; None or a time past is not at all."""
        self.until_ns = until_ns
        self._is_told = not self.is_on(now_ns)

    def is_on(self, now_ns: int) -> bool:
        return self.until_ns is not None and now_ns < self.until_ns

    def left_ns(self, now_ns: int) -> int:
        """How long it goes on, as far as Go counts."""
        return min(max(self.until_ns - now_ns, 0), DURATION_MAX_NS) if self.until_ns is not None else 0

    @property
    def deadline_ns(self) -> int:
        """When to look again."""
        return NEVER_NS if self._is_told or self.until_ns is None else self.until_ns

    def ends(self, now_ns: int) -> bool:
        """Whether it ended since this was asked last."""
        if self._is_told or self.is_on(now_ns):
            return False
        self._is_told = True
        return True
