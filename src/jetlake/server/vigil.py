"""A vigil: the loop stays awake for a moment after a client was heard.

Who has just been answered often asks again at once. To fall asleep and be woken takes a thread about 50 µs, which is
more than the server needs for a message. So for a moment the loop looks for news again and again instead of waiting for
them. It does not when there is no other core for the client to run on, nor while a thread needs the interpreter to
finish a commit.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

VIGIL_NS = 60_000


class Vigil:
    """Keeps a loop awake."""

    def __init__(self, loop: asyncio.AbstractEventLoop, may_watch: Callable[[], bool]) -> None:
        """`may_watch` says whether nobody is in need of the interpreter."""
        self._loop, self._may_watch = loop, may_watch
        self._has_cores = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else False
        self._end_ns = 0
        self._is_on = False

    def begin(self) -> None:
        """A client was heard: it may be heard again in a moment."""
        if self._has_cores:
            self._end_ns = time.monotonic_ns() + VIGIL_NS
            if not self._is_on and self._may_watch():
                self._is_on = True
                self._loop.call_soon(self._watch)

    def _watch(self) -> None:
        self._is_on = time.monotonic_ns() < self._end_ns and self._may_watch()
        if self._is_on:
            self._loop.call_soon(self._watch)
