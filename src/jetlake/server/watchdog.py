"""The watchdog: a line in the log for everything that holds the event loop for longer than 20 ms.

Nothing that a client asks for may keep the others waiting. The watchdog runs in tests and with `--debug`: `main` then
makes a `WatchedLoop`, which measures every callback that it runs. The usual loop is left as it is, so the watchdog
costs nothing where it is off.

A neighbour on the same machine lengthens the wall time of everything, so three times are measured:

    cpu     processor time of the loop's thread
    held    wall time without the time in which the thread was ready and had to wait for a core. What it has beyond
            `cpu` is waiting: for a disk, a lock or the interpreter
    wall    what a client saw

A callback is reported when `held` is above the limit. While it runs, another thread notes what it is doing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import uvloop

from jetlake.clock import SECOND_NS

LIMIT_MS = 20.0
MILLISECOND_NS = 1_000_000
LINE_START = "Event loop held"
_SCHEDSTAT = "/proc/thread-self/schedstat"  # processor time, time waited for a core, count of time slices
_FRAMES_MAX = 6
_PROTOCOL_METHODS = (
    "connection_made",
    "connection_lost",
    "buffer_updated",
    "data_received",
    "eof_received",
    "pause_writing",
    "resume_writing",
)


def limit_ms(environ: dict[str, str], debug: bool) -> float | None:
    """The limit that the environment sets (JETLAKE_WATCHDOG_MS), the usual one with debug on, or None."""
    text = environ.get("JETLAKE_WATCHDOG_MS", "")
    if text:
        return float(text)
    return LIMIT_MS if debug else None


class _Times(NamedTuple):
    wall_ns: int
    cpu_ns: int
    queued_ns: int  # ready to run, but without a core


class Watchdog:
    """Measures the callbacks of one loop, in that loop's thread."""

    def __init__(self, limit_ms: float, log: Callable[[str, str], None]) -> None:
        self.is_on: Callable[[], bool] = lambda: False  # the owner says when it is
        self._limit_ns, self._log = int(limit_ms * MILLISECOND_NS), log
        self._thread_id = threading.get_ident()
        self._begin: _Times | None = None  # of the callback that runs
        self._doing = ""  # what the thread below saw it do
        try:
            self._schedstat = os.open(_SCHEDSTAT, os.O_RDONLY)
        except OSError:
            self._schedstat = -1  # another system: `held` is the wall time there
        self._stopped = threading.Event()
        self._sampler = threading.Thread(target=self._sample_often, name="watchdog", daemon=True)
        self._sampler.start()

    def close(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        self._sampler.join()
        if self._schedstat >= 0:
            os.close(self._schedstat)

    def run(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call, measure, and report if it took too long."""
        if self._begin is not None or not self.is_on():  # a callback within another one counts with that one
            return callback(*args)
        begin = self._begin = self._now()
        try:
            return callback(*args)
        finally:
            self._begin, doing = None, self._doing
            if time.monotonic_ns() - begin.wall_ns > self._limit_ns:
                self._report(begin, self._now(), doing or _name(callback))
            self._doing = ""

    def _now(self) -> _Times:
        queued_ns = int(os.pread(self._schedstat, 100, 0).split()[1]) if self._schedstat >= 0 else 0
        return _Times(time.monotonic_ns(), time.thread_time_ns(), queued_ns)

    def _report(self, begin: _Times, end: _Times, doing: str) -> None:
        wall_ns = end.wall_ns - begin.wall_ns
        held_ns = wall_ns - (end.queued_ns - begin.queued_ns)
        if held_ns > self._limit_ns and self.is_on():
            times = f"cpu {_ms(end.cpu_ns - begin.cpu_ns)} ms, wall {_ms(wall_ns)} ms"
            self._log("warning", f"{LINE_START} {_ms(held_ns)} ms ({times}): {doing}")

    def _sample_often(self) -> None:
        """Look at what the loop's thread does in a callback that is about to take too long, once for each."""
        sampled: _Times | None = None
        while not self._stopped.wait(self._limit_ns / 4 / SECOND_NS):
            begin = self._begin
            if begin is None or begin is sampled or time.monotonic_ns() - begin.wall_ns < self._limit_ns / 2:
                continue
            doing = _stack(sys._current_frames().get(self._thread_id))
            if self._begin is begin:
                self._doing, sampled = doing, begin


class WatchedLoop(uvloop.Loop):
    """An event loop whose callbacks are measured: handles, tasks, and the protocols of accepted connections."""

    def __init__(self, watchdog: Watchdog) -> None:
        super().__init__()
        self.watchdog = watchdog

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        return super().call_soon(self.watchdog.run, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        return super().call_soon_threadsafe(self.watchdog.run, callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        return super().call_later(delay, self.watchdog.run, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        return super().call_at(when, self.watchdog.run, callback, *args, context=context)

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        return await super().create_server(lambda: self._watched(protocol_factory()), *args, **options)

    async def connect_accepted_socket(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        return await super().connect_accepted_socket(lambda: self._watched(protocol_factory()), *args, **options)

    def _watched(self, protocol: Any) -> Any:
        """The protocol; the loop calls its methods directly, so each of them is replaced by one that measures."""
        for name in _PROTOCOL_METHODS:
            method = getattr(protocol, name, None)
            if method is not None:
                setattr(protocol, name, _measured(self.watchdog, method))
        return protocol


def _measured(watchdog: Watchdog, method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: watchdog.run(method, *args)


def _stack(frame: FrameType | None) -> str:
    """The innermost functions of a thread, the outer ones first."""
    names: list[str] = []
    while frame is not None and len(names) < _FRAMES_MAX and frame.f_code is not Watchdog.run.__code__:
        module = frame.f_globals.get("__name__", "?")
        if not module.startswith("importlib."):  # who imports is of more interest
            names.append(f"{module.removeprefix('jetlake.')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return " > ".join(reversed(names))


def _name(callback: Callable[..., Any]) -> str:
    owner = getattr(callback, "__self__", None)
    name = getattr(callback, "__qualname__", "") or getattr(callback, "__name__", "")
    return name or type(owner if owner is not None else callback).__name__


def _ms(time_ns: int) -> str:
    return f"{time_ns / MILLISECOND_NS:.1f}"
