"""The commit loop: changes of streams and consumers become durable, many at a time.

A unit (see `jetstream.host.CommitUnit`) asks for a commit with `request`. At the end of the loop's turn, everything
that asked is prepared and handed to a thread; what changes meanwhile goes into the next commit of that unit.

Small commits that have to be synced form a group: they are made in one thread, one after the other, and share one sync,
through the redo log (`store.redo`). One group at a time: what comes meanwhile is the next one. Large commits, and those
that take away or rewrite files, run by themselves, side by side with the group.

Small commits without a sync are made right here, for a few milliseconds; the rest of them joins the group. A thread
would need the interpreter after each write, and the loop would wait for it each time.

A sync is always a thread's work: how long it takes is up to the disk, and in the loop everybody would wait for it.
A commit that is small, alone and needs no sync is carried out right here, before the end of the turn: handing it to a
thread and back costs more than it wins, and there is no sync that others could share. What other clients ask for in the
same turn shares the next commit.

Where many units ask in one turn, they wait a millisecond more: each has its own cost whether it commits one message or
ten, and what arrives meanwhile goes with it.

The redo log is retired (its files are synced one by one) when it is large enough, or some seconds after the last group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from jetlake.jetstream.host import Commit, CommitUnit
from jetlake.store.redo.redo_log import Change, RedoLog

THREADS_MAX = 4
BACKGROUND_THREADS_MAX = 2
GROUP_COUNT_MAX = 500  # units that are prepared, and completed, before others have their turn
GATHER_COUNT_MIN = 50  # units that wait; so many are worth some time in which more may come for the same units
GATHER_S = 0.001
HERE_S_MAX = 0.004  # for all the commits of a turn that are made in the loop
RETIRE_S = 3.0

Group = list[tuple[CommitUnit, Commit]]


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
        self._is_scheduled = self._is_batch = self._is_group_running = self._is_gathered = False
        self._here_until = 0.0
        self._retire_timer: asyncio.TimerHandle | None = None
        self._is_retiring = False
        self._was_alone = False  # one unit was committed at once in this turn; what follows shares a commit
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
            is_alone = len(self._waiting) == 1 and not self._running and not self._was_alone
            if is_alone and not next(iter(self._waiting.values())).is_synced:
                self._was_alone = True
                self._loop.call_soon(self._begin_turn)
                self._commit_alone()
            else:
                self._schedule()

    def _begin_turn(self) -> None:
        self._was_alone = False

    def _commit_alone(self) -> None:
        """Commit the one unit that waits, at once."""
        key, unit = self._waiting.popitem()
        if self._commit_here(unit):
            self._tell_idle()
        else:
            self._waiting[key] = unit
            self._turn()

    def _commit_here(self, unit: CommitUnit) -> bool:
        """Commit a unit in the loop, if that is quick; False when it is not, or must be synced."""
        if unit.is_synced:
            return False
        try:
            is_done = unit.commit_now()
        except Exception as error:
            self._fail(unit, error)
            is_done = True
        return is_done

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Start a commit for every unit that waits for one and is not in the middle of another."""
        if len(self._waiting) >= GATHER_COUNT_MIN and not self._is_gathered:
            self._is_gathered = True
            self._loop.call_later(GATHER_S, self._turn)
            return
        self._is_scheduled = self._is_gathered = False
        ready = [unit for key, unit in self._waiting.items() if key not in self._running and self._may_start(unit)]
        if len(ready) > GROUP_COUNT_MAX:
            del ready[GROUP_COUNT_MAX:]
        is_alone = len(ready) == 1 and not self._running
        self._here_until = self._loop.time() + HERE_S_MAX
        group: Group = []
        for unit in ready:
            del self._waiting[id(unit)]
            if not (is_alone and self._commit_here(unit)):
                try:
                    self._prepare(unit, group)
                except Exception as error:
                    self._fail(unit, error)
        if group:
            self._start_group(group)
        self._tell_idle()
        self._after()

    def _may_start(self, unit: CommitUnit) -> bool:
        return not self._is_group_running or unit.is_large

    def _prepare(self, unit: CommitUnit, group: Group) -> None:
        commit = unit.prepare_commit()
        if commit is None:
            self._complete(unit, None)
        elif commit.is_small and not unit.is_synced and commit.redo is None and self._loop.time() < self._here_until:
            commit.run()
            self._complete(unit, commit)
        elif (commit.is_small or commit.redo is not None) and not self._is_group_running:
            group.append((unit, commit))
        else:
            self._start(unit, commit)

    def _start(self, unit: CommitUnit, commit: Commit) -> None:
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
        self._end(unit, commit, error)
        self._go_on()

    def _end(self, unit: CommitUnit, commit: Commit, error: BaseException | None) -> None:
        if error is None:
            self._complete(unit, commit)
        else:
            self._fail(unit, error)

    def _go_on(self) -> None:
        if self._waiting:
            self._schedule()
        self._tell_idle()
        self._after()

    # Groups

    def _start_group(self, group: Group) -> None:
        self._is_group_running = True
        for unit, _ in group:
            self._running[id(unit)] = unit
        self._threads.submit(self._run_group, group)

    def _run_group(self, group: Group) -> None:
        errors: list[BaseException | None] = [None] * len(group)
        logged: list[int] = []
        for place, (_, commit) in enumerate(group):
            if commit.redo is not None and (len(group) > 1 or not commit.is_small):
                logged.append(place)
                continue
            try:
                commit.run()
            except Exception as error:
                errors[place] = error
        if logged:
            self._run_logged(group, logged, errors)
        self._loop.call_soon_threadsafe(self._group_finished, group, errors)

    def _run_logged(self, group: Group, places: list[int], errors: list[BaseException | None]) -> None:
        commits = [group[place][1] for place in places]
        redo = commits[0].redo
        assert redo is not None
        try:
            found: list[Exception | None] = redo.commit(cast("list[Change]", commits))
        except Exception as error:
            found = [error] * len(commits)
        for place, problem in zip(places, found, strict=True):
            errors[place] = problem

    def _group_finished(self, group: Group, errors: list[BaseException | None]) -> None:
        self._is_group_running = False
        for unit, _ in group:
            del self._running[id(unit)]
        redo = None
        for (unit, commit), error in zip(group, errors, strict=True):
            self._end(unit, commit, error)
            redo = commit.redo or redo
        if redo is not None:
            self._retire_soon(redo)
        self._go_on()

    # The redo log

    def _retire_soon(self, redo: RedoLog) -> None:
        if redo.is_due and not self._is_retiring:
            self._retire(redo)
        elif self._retire_timer is None and not redo.is_clean:
            self._retire_timer = self._loop.call_later(RETIRE_S, self._retire, redo)

    def _retire(self, redo: RedoLog) -> None:
        if self._retire_timer is not None:
            self._retire_timer.cancel()
            self._retire_timer = None
        if not self._is_retiring:
            self._is_retiring = True
            self._background.submit(self._retire_in_thread, redo)

    def _retire_in_thread(self, redo: RedoLog) -> None:
        error: BaseException | None = None
        try:
            redo.retire()
        except Exception as failure:
            error = failure
        self._loop.call_soon_threadsafe(self._retired, redo, error)

    def _retired(self, redo: RedoLog, error: BaseException | None) -> None:
        """What could not be synced is tried again; the log has it meanwhile."""
        self._is_retiring = False
        if error is not None:
            self._failed("redo log", error)
        self._retire_soon(redo)

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
        if self._retire_timer is not None:
            self._retire_timer.cancel()
        self._threads.shutdown()
        self._background.shutdown()
