"""What Python's garbage collector looks at, and when: little at a time, while nobody waits for the server.

A full collection holds the event loop for as long as it looks at every object: 110 ms with 100,000 subscriptions.
Nearly everything goes without it, by reference counts, connections and subscriptions included; young cycles are found
by the small collections. So Python's own full collections are turned off. When the server was idle for a while, what is
new since the last look is looked through, if it is little, and then frozen: later looks pass over it. Much that is new
is frozen unseen.

Cycles that were frozen and fall apart later stay in memory until a complete look. One is made after FULL_AFTER small
collections, which is millions of new objects: when the server is idle, or at the latest after twice as many.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

# All three count small collections: each found at most 7,000 more objects that stayed.
WORTHWHILE = 2  # below which nothing is looked for
LOOKED_AT_MAX = 8  # what can be looked through in 15 ms
FULL_AFTER = 500
TICK_S = 10.0
IDLE_TICKS = 3
_NEVER = 2**31 - 1


class IdleCollector:
    """Collects when the server is idle."""

    def __init__(
        self,
        activity: Callable[[], int],
        collect: Callable[[], object] = gc.collect,
        freeze: Callable[[], object] = gc.freeze,
        unfreeze: Callable[[], object] = gc.unfreeze,
    ) -> None:
        """`activity` is a number that changes with everything a client does."""
        self._activity, self._collect, self._freeze, self._unfreeze = activity, collect, freeze, unfreeze
        self._seen, self._idle_ticks = -1, 0
        self._frozen = 0  # small collections before the last freeze, since the last complete look

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin, with a collector that is told to leave full collections to this one."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        loop.call_later(TICK_S, self._go_on, loop)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self.tick(gc.get_count()[2])
        loop.call_later(TICK_S, self._go_on, loop)

    def tick(self, collection_count: int) -> None:
        """Look whether now is the time; so many small collections came after the last full one, or freeze."""
        seen = self._activity()
        self._idle_ticks = self._idle_ticks + 1 if seen == self._seen else 0
        self._seen = seen
        is_idle, total = self._idle_ticks >= IDLE_TICKS, self._frozen + collection_count
        if total >= (FULL_AFTER if is_idle else 2 * FULL_AFTER):
            self._unfreeze()
            self._collect()
            self._freeze()
            self._frozen = 0
        elif is_idle and collection_count >= WORTHWHILE:
            if collection_count <= LOOKED_AT_MAX:
                self._collect()
            self._freeze()
            self._frozen = total
