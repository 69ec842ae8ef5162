from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from jetlake.server.commit_loop import BACKGROUND_THREADS_MAX, GATHER_COUNT_MIN, THREADS_MAX, CommitLoop


class Work:
    """The disk's part of a commit: it waits until it is let go, and may fail."""

    is_small, redo = False, None

    def __init__(self, *, error: Exception | None = None) -> None:
        self._error = error
        self.started, self.may_end = threading.Event(), threading.Event()

    def run(self) -> None:
        self.started.set()
        assert self.may_end.wait(10)
        if self._error is not None:
            raise self._error


class Unit:
    """Hands out works one after the other; a small one is done with at once."""

    def __init__(
        self,
        *works: Work | None,
        is_synced: bool = True,
        is_background: bool = False,
        is_small: bool = False,
        error: Exception | None = None,
    ) -> None:
        self.works, self._left = works, list(works)
        self.is_synced, self.is_background, self.is_large = is_synced, is_background, False
        self._is_small, self._error = is_small, error
        self.events: list[Any] = []

    def commit_now(self) -> bool:
        if self._error is not None:
            raise self._error
        if self._is_small:
            self.events.append("now")
        return self._is_small

    def prepare_commit(self) -> Work | None:
        self.events.append("prepare")
        return self._left.pop(0) if self._left else None

    def complete_commit(self, commit: Any) -> None:
        self.events.append("complete")

    def fail_commit(self, error: BaseException) -> None:
        self.events.append(error)


def commit_loop(after: Callable[[], None] = lambda: None, failures: list[BaseException] | None = None) -> CommitLoop:
    def failed(what: str, error: BaseException) -> None:
        if failures is None:
            raise error
        failures.append(error)

    return CommitLoop(asyncio.get_running_loop(), after, failed)


async def started(work: Work) -> None:
    assert await asyncio.to_thread(work.started.wait, 10)


async def test_a_small_commit_that_is_alone_needs_no_thread() -> None:
    commits = commit_loop()
    alone, beside, large = Unit(is_small=True, is_synced=False), Unit(Work(), is_small=True), Work()
    commits.request(alone)
    await commits.drain()
    assert alone.events == ["now"]
    commits.request(Unit(large))
    await started(large)
    commits.request(beside)
    await asyncio.sleep(0)
    assert beside.events == ["prepare"]
    for work in (large, *beside.works):
        assert work is not None
        work.may_end.set()
    await commits.drain()
    commits.close()


async def test_a_commit_that_is_synced_never_holds_the_loop_even_if_it_is_small_and_alone() -> None:
    commits = commit_loop()
    work = Work()
    unit = Unit(work, is_small=True)
    commits.request(unit)
    await started(work)  # a disk that takes its time: the loop goes on
    assert unit.events == ["prepare"]
    work.may_end.set()
    await commits.drain()
    assert unit.events == ["prepare", "complete"]
    commits.close()


async def test_a_small_commit_that_fails_is_told() -> None:
    commits = commit_loop()
    error = OSError("disk")
    unit = Unit(error=error, is_synced=False)
    commits.request(unit)
    await commits.drain()
    assert unit.events == [error]
    commits.close()


async def test_without_a_sync_a_small_commit_is_over_at_the_end_of_the_batch() -> None:
    commits = commit_loop()
    unsynced, synced = Unit(is_small=True, is_synced=False), Unit(is_small=True)
    for unit in (unsynced, synced):
        with commits:
            commits.request(unit)
            assert unit.events == []
    assert unsynced.events == ["now"] and synced.events == []
    await commits.drain()
    assert synced.events == ["prepare", "complete"]
    commits.close()


async def test_without_a_sync_a_commit_that_fails_or_is_large_is_seen_to_as_well() -> None:
    commits = commit_loop()
    error, work = OSError("disk"), Work()
    failing, large = Unit(error=error, is_synced=False), Unit(work, is_synced=False)
    for unit in (failing, large):
        with commits:
            commits.request(unit)
        await asyncio.sleep(0)  # the next one comes in another turn
    assert failing.events == [error] and large.events == ["prepare"]
    work.may_end.set()
    await commits.drain()
    assert large.events == ["prepare", "complete"]
    commits.close()


async def test_a_stream_does_not_wait_for_what_is_done_in_the_background() -> None:
    commits = commit_loop()
    slow, stream = [Work() for _ in range(BACKGROUND_THREADS_MAX + THREADS_MAX)], Work()
    for work in slow:
        commits.request(Unit(work, is_background=True))
    commits.request(Unit(stream))
    await started(stream)
    for work in (*slow, stream):
        work.may_end.set()
    await commits.drain()
    commits.close()


async def test_commits_of_two_units_run_side_by_side() -> None:
    commits = commit_loop()
    works = [Work(), Work()]
    for work in works:
        commits.request(Unit(work))
    for work in works:
        await started(work)
    for work in works:
        work.may_end.set()
    await commits.drain()
    commits.close()


async def test_a_unit_commits_one_thing_at_a_time() -> None:
    commits = commit_loop()
    first, second = Work(), Work()
    unit = Unit(first, second)
    commits.request(unit)
    await started(first)
    commits.request(unit)
    commits.request(unit)  # which makes no third commit
    await asyncio.sleep(0)
    assert unit.events == ["prepare"] and not second.started.is_set()
    first.may_end.set()
    second.may_end.set()
    await commits.drain()
    assert unit.events == ["prepare", "complete", "prepare", "complete"]
    commits.close()


async def test_a_failure_is_told_and_nothing_is_completed() -> None:
    commits = commit_loop()
    error = OSError("disk")
    work = Work(error=error)
    work.may_end.set()
    unit = Unit(work)
    commits.request(unit)
    await commits.drain()
    assert unit.events == ["prepare", error]
    commits.close()


async def test_draining_ends_when_there_was_nothing_to_write() -> None:
    commits = commit_loop()
    unit = Unit(None)
    commits.request(unit)
    await asyncio.wait_for(commits.drain(), 5)
    assert unit.events == ["prepare", "complete"]
    commits.close()


async def test_what_is_sent_is_flushed_after_each_turn() -> None:
    flushed: list[int] = []
    commits = commit_loop(lambda: flushed.append(1))
    work = Work()
    work.may_end.set()
    commits.request(Unit(work))
    await commits.drain()
    assert len(flushed) >= 1
    commits.close()


class Broken(Unit):
    """Cannot say what became of its commit."""

    def complete_commit(self, commit: Any) -> None:
        raise OverflowError("complete")

    def fail_commit(self, error: BaseException) -> None:
        raise OverflowError("fail")


async def test_a_batch_that_fails_is_over_and_what_it_asked_for_is_committed() -> None:
    commits = commit_loop()
    unit = Unit(is_small=True, is_synced=False)
    with suppress(ZeroDivisionError), commits:
        commits.request(unit)
        raise ZeroDivisionError
    assert unit.events == ["now"]
    later = Unit(is_small=True, is_synced=False)
    commits.request(later)
    await commits.drain()
    assert later.events == ["now"]
    commits.close()


@pytest.mark.parametrize("is_done_here", [True, False])
async def test_a_unit_that_raises_keeps_nobody_from_committing_nor_from_stopping(is_done_here: bool) -> None:
    failures: list[BaseException] = []
    commits = commit_loop(failures=failures)
    works = [Work(), Work(error=OSError("disk"))]
    broken = [Broken(), Broken(error=OSError("disk"))] if is_done_here else [Broken(work) for work in works]
    good = Unit()
    for unit in (*broken, good):
        commits.request(unit)
    for work in works:
        work.may_end.set()
    await asyncio.wait_for(commits.drain(), 10)
    assert good.events == ["prepare", "complete"]
    told = [str(error) for error in failures]
    assert told == ["complete", "fail"] * 2 if is_done_here else sorted(told) == ["complete", "fail", "fail"]
    commits.close()


async def test_without_a_sync_what_follows_a_commit_in_the_same_turn_shares_the_next_one() -> None:
    commits = commit_loop()
    first, second = Unit(is_small=True, is_synced=False), Unit(is_small=True, is_synced=False)
    for unit in (first, second, second):
        with commits:
            commits.request(unit)
    assert first.events == ["now"] and second.events == []
    await commits.drain()
    assert second.events == ["now"]
    await asyncio.sleep(0)
    with commits:
        commits.request(first)
    assert first.events == ["now", "now"]
    commits.close()


async def test_small_commits_without_a_sync_are_made_in_the_loop() -> None:
    commits = commit_loop()
    threads: list[int] = []

    class Small(Work):
        is_small = True

        def run(self) -> None:
            threads.append(threading.get_ident())
            super().run()

    works = [Small(), Small(error=OSError("full")), Small()]
    units = [Unit(work, is_synced=False) for work in works]
    for unit, work in zip(units, works, strict=True):
        work.may_end.set()
        commits.request(unit)
    await commits.drain()
    assert threads == [threading.get_ident()] * 3
    assert units[0].events == units[2].events == ["prepare", "complete"]
    assert units[1].events[0] == "prepare" and isinstance(units[1].events[1], OSError)
    commits.close()


async def test_many_units_wait_for_others_that_ask_soon_after() -> None:
    commits = commit_loop()
    early = [Unit() for _ in range(GATHER_COUNT_MIN)]
    late = Unit()
    for unit in early:
        commits.request(unit)
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: loop.call_soon(commits.request, late))  # after the turn in which the others would commit
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert early[0].events == [], "committed without a wait"
    await commits.drain()
    assert early[0].events == early[-1].events == late.events == ["prepare", "complete"]
    commits.close()
