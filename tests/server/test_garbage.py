"""The garbage collector looks at little at a time, and while nobody waits."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from jetlake.server.garbage import FULL_AFTER, IDLE_TICKS, LOOKED_AT_MAX, WORTHWHILE, IdleCollector

COMPLETE = ["unfreeze", "collect", "freeze"]


class World:
    def __init__(self) -> None:
        self.activity, self.done = 0, list[str]()
        steps = (lambda name=name: self.done.append(name) for name in ("collect", "freeze", "unfreeze"))
        self.collector = IdleCollector(lambda: self.activity, *steps)

    def idle(self, collection_count: int = WORTHWHILE) -> list[str]:
        """Nobody does anything until the collector may; what it does then."""
        self.activity += 1
        for _ in range(IDLE_TICKS):
            self.collector.tick(collection_count)
        assert self.done == []
        self.collector.tick(collection_count)
        done, self.done = self.done, []
        return done

    def busy(self, collection_count: int) -> list[str]:
        self.activity += 1
        self.collector.tick(collection_count)
        done, self.done = self.done, []
        return done


def test_what_is_new_is_looked_through_and_frozen_when_the_server_is_idle() -> None:
    assert World().idle(LOOKED_AT_MAX) == ["collect", "freeze"]


def test_much_that_is_new_is_frozen_unseen() -> None:
    assert World().idle(LOOKED_AT_MAX + 1) == ["freeze"]


def test_a_busy_server_is_left_alone() -> None:
    world = World()
    assert [world.busy(FULL_AFTER) for _ in range(20)] == [[]] * 20


def test_nothing_is_looked_for_where_there_is_nothing() -> None:
    assert World().idle(WORTHWHILE - 1) == []


def test_after_many_small_collections_everything_is_looked_through() -> None:
    world = World()
    assert [world.idle(FULL_AFTER // 4) for _ in range(4)] == [["freeze"]] * 3 + [COMPLETE]
    assert world.idle(FULL_AFTER // 4) == ["freeze"], "the count begins anew"


def test_a_server_that_is_never_idle_is_looked_through_at_last() -> None:
    assert World().busy(2 * FULL_AFTER) == COMPLETE


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_python_makes_no_full_collection_by_itself(thresholds: tuple[int, int, int]) -> None:
    loop = asyncio.new_event_loop()
    IdleCollector(lambda: 0).start(loop)
    loop.close()
    assert gc.get_threshold()[:2] == thresholds[:2]
    gc.collect()
    cycles = [[] for _ in range(400_000)]  # type: ignore[var-annotated]
    full = gc.get_stats()[2]["collections"]
    more = [[cycle] for cycle in cycles]
    assert gc.get_count()[2] > 11 and len(more) == len(cycles), "more small collections than usually come before a full"
    assert gc.get_stats()[2]["collections"] == full
