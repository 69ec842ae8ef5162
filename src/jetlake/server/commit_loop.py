"""The commit loop: changes of streams and consumers become durable, many at a time.

A unit (see `jetstream.host.CommitUnit`) asks for a commit with `request`. At the end of the loop's turn, everything
that asked is prepared and handed to a thread; what changes meanwhile goes into the next commit of that unit. Units
commit side by side, so that their syncs overlap, and each of them one commit at a time.

A commit that is small and alone is carried out right here: while one client waits for one ack, handing work to a thread
and back costs more than it wins. If it needs no sync, it does not even wait for the end of the turn: there is no sync
that others could share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from jetlake.jetstream.host import Commit, CommitUnit

THREADS_MAX = 4
BACKGROUND_THREADS_MAX = 2


Failed = Callable[[str, BaseException], None]


class CommitLoop:
    """Runs the commits of all units."""

    def __init__(self, loop: asyncio.AbstractEventLoop, after: Callable[[], None], failed: Failed) -> None:
        """`after` follows every step; `failed` hears of what a unit should not have raised."""
        self._loop, self._after, self._failed = loop, after, failed
        self._threads = ThreadPoolExecutor(THREADS_MAX, "commit")
        self._background = ThreadPoolExecutor(BACKGROUND_THREADS_MAX, "background-commit")
        self._waiting: dict[int, CommitUnit] = {}
        self._running: dict[int, CommitUnit] = {}
        self._is_scheduled = self._is_batch = False
        self._idle: list[asyncio.Future[None]] = []

    def request(self, unit: CommitUnit) -> None:
        """Commit a unit soon."""
        self._waiting[id(unit)] = unit
        if not self._is_batch:
            self._schedule()

    def is_idle(self) -> bool:
        """Whether no thread is at work on a commit."""
        return not self._running

    def __enter__(self) -> None:
        """Work is about to be done that may ask for commits: they wait for its end."""
        self._is_batch = True

    def __exit__(self, *error: object) -> None:
        """See to what the work asked for, even if it failed."""
        self._is_batch = False
        if self._waiting and not self._is_scheduled:
            if len(self._waiting) == 1 and not self._running and not next(iter(self._waiting.values())).is_synced:
                self._commit_alone()
            else:
                self._schedule()

    def _commit_alone(self) -> None:
        """Commit the one unit that waits, at once."""
        key, unit = self._waiting.popitem()
        try:
            is_done = unit.commit_now()
        except Exception as error:
            self._fail(unit, error)
            is_done = True
        if is_done:
            self._tell_idle()
        else:
            self._waiting[key] = unit
            self._turn()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Start a commit for every unit that waits for one and is not in the middle of another."""
        self._is_scheduled = False
        ready = [unit for key, unit in self._waiting.items() if key not in self._running]
        is_alone = len(ready) == 1 and not self._running
        for unit in ready:
            del self._waiting[id(unit)]
            try:
                if not (is_alone and unit.commit_now()):
                    self._start(unit)
            except Exception as error:
                self._fail(unit, error)
        self._tell_idle()
        self._after()

    def _start(self, unit: CommitUnit) -> None:
        commit = unit.prepare_commit()
        if commit is None:
            self._complete(unit, None)
            return
        threads = self._background if unit.is_background else self._threads
        threads.submit(self._run_in_thread, unit, commit)
        self._running[id(unit)] = unit

    def _run_in_thread(self, unit: CommitUnit, commit: Commit) -> None:
        error: BaseException | None = None
        try:
            commit.run()
        except Exception as failure:
            error = failure
        self._loop.call_soon_threadsafe(self._finished, unit, commit, error)

    def _finished(self, unit: CommitUnit, commit: Commit, error: BaseException | None) -> None:
        del self._running[id(unit)]
        if error is None:
            self._complete(unit, commit)
        else:
            self._fail(unit, error)
        if self._waiting:
            self._schedule()
        self._tell_idle()
        self._after()

    def _complete(self, unit: CommitUnit, commit: Commit | None) -> None:
        """Tell a unit that it is done. If it cannot take that, it has failed: who waits for it must hear something."""
        try:
            unit.complete_commit(commit)
        except Exception as error:
            self._failed("commit", error)
            self._fail(unit, error)

    def _fail(self, unit: CommitUnit, error: BaseException) -> None:
        """What a unit raises must not keep others from their commits, nor the server from stopping."""
        try:
            unit.fail_commit(error)
        except Exception as failure:
            self._failed("commit", failure)

    def _tell_idle(self) -> None:
        if not self._waiting and not self._running:
            for future in self._idle:
                if not future.done():
                    future.set_result(None)
            self._idle.clear()

    async def drain(self) -> None:
        """Wait until nothing is left to commit."""
        while self._waiting or self._running:
            self._schedule()
            future = self._loop.create_future()
            self._idle.append(future)
            await future

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown()
        self._background.shutdown()
