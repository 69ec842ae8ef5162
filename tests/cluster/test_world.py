"""Nodes under faults: seeds of `world.py`. JETLAKE_SEEDS=n runs n more of each kind (`make soak`)."""

from __future__ import annotations

import os

import pytest

from tests.cluster.engines import needs_engine
from tests.cluster.world import Plan, Violation, World

pytestmark = needs_engine
MORE = int(os.environ.get("JETLAKE_SEEDS", "0"))
STEP = 20  # seeds of one test


def _run(first: int, plan: Plan) -> list[World]:
    worlds = []
    for seed in range(first, first + STEP):
        try:
            worlds.append(World(seed, plan).run())
        except BaseException as error:
            options = f"--nodes {plan.nodes} --replicas {plan.replicas} --seed {seed}"
            error.add_note(f"python -m tests.cluster.world {options}")
            raise
    return worlds


@pytest.mark.parametrize("first", range(0, 120 + MORE, STEP))
def test_three_nodes_lose_nothing_that_was_acknowledged(first: int) -> None:
    worlds = _run(first, Plan())
    assert all(len(world.acked) > 10 for world in worlds)
    assert sum(world.rejoins for world in worlds) > 0  # bits were flipped where it mattered
    assert sum(world.copies for world in worlds) > 0


@pytest.mark.parametrize("first", range(10_000, 10_040 + MORE, STEP))
def test_five_nodes_lose_nothing_that_was_acknowledged(first: int) -> None:
    _run(first, Plan(nodes=5))


@pytest.mark.parametrize("first", range(20_000, 20_040 + MORE, STEP))
def test_a_blackout_takes_nothing_that_was_acknowledged(first: int) -> None:
    _run(first, Plan(faults=("blackout", "power", "pause")))


@pytest.mark.parametrize("first", range(30_000, 30_060 + MORE, STEP))
def test_groups_that_are_moved_about_lose_nothing(first: int) -> None:
    worlds = _run(first, Plan(nodes=5, replicas=3))
    assert sum(world.moves.done for world in worlds) > STEP


def test_acknowledging_before_the_sync_is_found_out() -> None:
    """The world can fail: where the sync is left out, a blackout makes acknowledged entries or whole groups vanish."""
    found = 0
    for seed in range(20):
        try:
            World(seed, Plan(faults=("blackout", "power"), skips_sync=True)).run()
        except Violation:
            found += 1
    assert found >= 15


def test_a_seed_replays_byte_for_byte() -> None:
    first, second = World(3).run(), World(3).run()
    assert first.digest.digest() == second.digest.digest()
    assert first.trace == second.trace
    assert first.digest.digest() != World(4).run().digest.digest()


def test_without_faults_a_leader_is_replaced_only_when_asked() -> None:
    world = World(1, Plan(faults=("break",))).run()
    assert len(world.acked) > 100
    assert world.rejoins == world.copies == 0
