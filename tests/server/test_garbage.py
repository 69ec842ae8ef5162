"""Full garbage collections happen while nobody waits."""

from __future__ import annotations

from jetlake.server.garbage import IDLE_TICKS, WORTHWHILE, IdleCollector


class World:
    def __init__(self) -> None:
        self.activity, self.collected = 0, 0
        self.collector = IdleCollector(lambda: self.activity, self.collect)

    def collect(self) -> None:
        self.collected += 1

    def tick(self, count: int, collection_count: int = WORTHWHILE) -> None:
        for _ in range(count):
            self.collector.tick(collection_count)


def test_an_idle_server_is_cleaned_up() -> None:
    world = World()
    world.tick(IDLE_TICKS)
    assert world.collected == 0
    world.tick(1)
    assert world.collected == 1


def test_a_busy_server_is_left_alone() -> None:
    world = World()
    for _ in range(20):
        world.activity += 1
        world.tick(IDLE_TICKS)
    assert world.collected == 0


def test_nothing_is_looked_for_where_there_is_nothing() -> None:
    world = World()
    world.tick(20, collection_count=WORTHWHILE - 1)
    assert world.collected == 0
