"""A view that is refreshed while the stream goes on between two of its reads shows a state that the stream was in."""

from __future__ import annotations

import copy
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jetlake.store import FileOptions, FileStore, StreamLimits
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.view import StreamView
from tests.crash.workload import ENVELOPES, SCRIPTS, Life, Script
from tests.store.model import Model
from tests.store.raced_files import RacedFiles

State = tuple[tuple[int, ...], int, int]  # live sequences, the first and the last one
READS_MAX = 90  # more than a refresh of these small streams needs
READ_STEP = 1 if os.environ.get("JETLAKE_EVERY_BIT") else 5
RACED = ["none-none", "zstd-aes_256_gcm"]


class Race:
    """A life whose steps are taken while a view is being refreshed."""

    def __init__(self, envelope: str, script: Script, is_due: Callable[[int], bool]) -> None:
        """`is_due` says before which reads of a refresh the next step is taken."""
        self.files, self._is_due, self._reads = RacedFiles(), is_due, 0
        self.life = Life(self.files, ENVELOPES[envelope], script)
        self._steps = script()
        self.is_over = False
        self.life.open()

    def refresh(self, view: StreamView) -> None:
        """Refresh a view, which may then show any of the states that the stream was in meanwhile."""
        self._reads, self._states = 0, [state_of(self.life.before)]
        self.files.meanwhile = self._before_read
        catalog = view.refresh()
        self.files.meanwhile = None
        assert not catalog.lost and not view.damage
        assert (tuple(live(catalog)), catalog.first_seq, catalog.last_seq) in self._states

    def _before_read(self) -> None:
        if self._is_due(self._reads):
            self.step()
        self._reads += 1

    def step(self) -> None:
        step = next(self._steps, None)
        if step is None:
            self.is_over = True
            return
        self.life.after = copy.deepcopy(self.life.before)
        step(self.life)
        self.life.before = self.life.after
        self._states.append(state_of(self.life.before))


def state_of(model: Model) -> State:
    return tuple(sorted(model.msgs)), model.first, model.last


def live(catalog: Catalog) -> list[int]:
    return [
        seq
        for block in catalog.blocks
        for first, last in block.live_runs(catalog.first_seq, catalog.last_seq)
        for seq in range(first, last + 1)
    ]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("envelope", RACED)
def test_a_step_between_any_two_reads_costs_nothing(envelope: str, script: Script) -> None:
    for read in range(0, READS_MAX, READ_STEP):
        race = Race(envelope, script, lambda number, read=read: number == read)
        lasting = StreamView("s", files=race.files, keys=race.life.options.keys)
        while not race.is_over:
            race.refresh(lasting)
            race.refresh(StreamView("s", files=race.files, keys=race.life.options.keys))
            if race._reads <= read:  # too few for the step to have been taken
                race.step()


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
@pytest.mark.parametrize("envelope", RACED)
def test_many_steps_between_reads_cost_nothing(envelope: str, script: Script) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        race = Race(envelope, script, lambda number, rng=rng: rng.random() < 0.1)
        lasting = StreamView("s", files=race.files, keys=race.life.options.keys)
        while not race.is_over:
            race.refresh(
                lasting if rng.random() < 0.7 else StreamView("s", files=race.files, keys=race.life.options.keys)
            )


# With real files and another process


def write_on(directory: str, limits: StreamLimits, seconds: float) -> None:
    """Fill small blocks as fast as they come."""
    store = FileStore(directory, limits, FileOptions(block_size_max=20_000, sync="never"), autocommit=False)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for _ in range(20):
            store.append(f"s.{number % 7}", b"payload %d " % number * 5)
            number += 1
        store.commit()
    store.stop()


@pytest.mark.parametrize(
    "limits",
    [StreamLimits(), StreamLimits(max_msgs=2000), StreamLimits(max_msgs_per_subject=100)],
    ids=["unlimited", "max_msgs", "max_msgs_per_subject"],
)
def test_a_view_beside_a_process_that_fills_blocks_finds_no_damage(tmp_path: Path, limits: StreamLimits) -> None:
    directory = str(tmp_path / "s")
    with FileStore(directory):
        pass
    writer = multiprocessing.get_context("spawn").Process(target=write_on, args=(directory, limits, 2.0))
    writer.start()
    view, count, last_seq = StreamView(directory), 0, 0
    while writer.is_alive():
        catalog = view.refresh()
        assert not catalog.lost and not view.damage and catalog.last_seq >= last_seq
        if limits.max_msgs < 0 and limits.max_msgs_per_subject < 0:
            assert sum(block.message_count for block in catalog.blocks) == catalog.last_seq
        count, last_seq = count + 1, catalog.last_seq
    writer.join()
    assert writer.exitcode == 0 and count > 20 and last_seq > 2000
