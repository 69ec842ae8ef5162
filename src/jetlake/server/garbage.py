"""When Python's garbage collector goes through all objects: while nobody waits for the server.

A full collection holds the event loop for as long as it looks at every object, 30 ms with 500 streams. Nearly all
objects go without it, by their reference counts, and young cycles are found by the small collections. So full ones are
made rare, and one is made on purpose when the server was idle for a while and there is something to look for.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

FULL_AFTER = 500  # small collections, beyond which a full one is made whatever happens
WORTHWHILE = 10  # small collections since the last full one, below which nothing is looked for
TICK_S = 10.0
IDLE_TICKS = 3


class IdleCollector:
    """Collects when the server is idle."""

    def __init__(self, activity: Callable[[], int], collect: Callable[[], object] = gc.collect) -> None:
        """`activity` is a number that changes with everything a client does."""
        self._activity, self._collect = activity, collect
        self._seen, self._idle_ticks = -1, 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin, with a collector that is told to leave full collections to this one."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, FULL_AFTER)
        loop.call_later(TICK_S, self._go_on, loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tick(gc.get_count()[2])
        loop.call_later(TICK_S, self._go_on, loop)

    def tick(self, collection_count: int) -> None:
        """Look whether now is the time; so many small collections came after the last full one."""
        seen = self._activity()
        self._idle_ticks = self._idle_ticks + 1 if seen == self._seen else 0
        self._seen = seen
        if self._idle_ticks >= IDLE_TICKS and collection_count >= WORTHWHILE:
            self._collect()
