"""Long work in the event loop, which others must not wait for: it pauses whenever it has taken a few milliseconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TypeVar

TURN_NS = 5_000_000
T = TypeVar("T")


class Turns:
    """The turns of one piece of work, the first of which begins now."""

    def __init__(self) -> None:
        self._stop_ns = time.monotonic_ns() + TURN_NS

    @property
    def is_over(self) -> bool:
        """Whether others are to have their turn."""
        return time.monotonic_ns() > self._stop_ns

    def take(self, steps: Iterator[T]) -> tuple[list[T], bool]:
        """What this turn has time for, and whether that is all."""
        taken = []
        for step in steps:
            taken.append(step)
            if self.is_over:
                return taken, False
        return taken, True

    async def take_all(self, steps: Iterator[T]) -> list[T]:
        """All of it, with pauses."""
        taken = []
        for step in steps:
            taken.append(step)
            await self.pause()
        return taken

    async def pause(self) -> None:
        """Let others have their turn, if it is time."""
        if self.is_over:
            await asyncio.sleep(0)
            self._stop_ns = time.monotonic_ns() + TURN_NS
