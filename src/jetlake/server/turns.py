"""Long work in the event loop, which others must not wait for: it pauses whenever it has taken a few milliseconds."""

from __future__ import annotations

import asyncio
import time

TURN_NS = 5_000_000


class Turns:
    """The turns of one piece of work, the first of which begins now."""

    def __init__(self) -> None:
        self._stop_ns = time.monotonic_ns() + TURN_NS

    @property
    def is_over(self) -> bool:
        """Whether others are to have their turn."""
        return time.monotonic_ns() > self._stop_ns

    async def pause(self) -> None:
        """Let others have their turn, if it is time."""
        if self.is_over:
            await asyncio.sleep(0)
            self._stop_ns = time.monotonic_ns() + TURN_NS
