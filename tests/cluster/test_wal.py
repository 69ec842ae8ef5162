"""The write-ahead log: every bit, every truncation, every operation at which the power can go."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jetlake.cluster.engine import new_engine, raft_id
from jetlake.cluster.wal import Wal
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.disk.files import OsFiles
from jetlake.store.log.segment import HEADER_SIZE
from jetlake.testing.memfiles import MemFiles, PowerCut
from tests.cluster.engines import ids, needs_engine

if TYPE_CHECKING:
    from jetlake.cluster._engine import Engine

pytestmark = needs_engine
DIRECTORY = "wal"
SEGMENT_SIZE = 8 * 1024


class Writer:
    """Groups of one member each, which need nobody to agree, and their log."""

    def __init__(
        self, files: MemFiles | OsFiles, directory: str = DIRECTORY, groups: int = 2, sealer: Sealer | None = None
    ) -> None:
        self.engine = new_engine(1, 1, keep_size=0)
        self.wal = Wal(files, directory, self.engine, segment_size=SEGMENT_SIZE, sealer=sealer)
        self.applied: dict[int, list[bytes]] = {group: [] for group in range(groups)}
        self.opened = {
            group: self.engine.open(group, raft_id(1, 1), ids(1), [], is_new=True) for group in range(groups)
        }
        for group, is_open in self.opened.items():
            if is_open:
                self.engine.campaign(group)
        self.write()

    def write(self) -> None:
        while self.engine.is_dirty():
            turn, data, _ = self.engine.ready()
            if data:
                self.wal.add(data)
                write = self.wal.take()
                write.run()
                self.wal.written(write)
            for group, _, _, value in self.engine.persisted(turn)[1]:
                if value:
                    self.applied[group].append(value)

    def put(self, group: int, value: bytes) -> None:
        """It is acknowledged when this returns."""
        assert self.engine.propose(group, value)
        self.write()
        assert self.applied[group][-1] == value

    def checkpoint(self, group: int) -> None:
        self.engine.checkpoint(group, self.engine.status(group)["applied"])
        self.write()
        if number := self.wal.retirable():
            self.wal.retire(number)
            self.wal.retired(number)


def _read(files: MemFiles, sealer: Sealer | None = None) -> tuple[Engine, Wal]:
    engine = new_engine(1, 1)
    return engine, Wal(files, DIRECTORY, engine, segment_size=SEGMENT_SIZE, sealer=sealer)


def found_values(files: MemFiles, sealer: Sealer | None = None) -> dict[int, list[bytes] | None]:
    """What each group has after a restart; None for one that forgot."""
    engine, _ = _read(files, sealer)
    found: dict[int, list[bytes] | None] = {}
    for group, own, _, _, _, forgot in engine.groups():
        if forgot:
            found[group] = None
            continue
        assert engine.open(group, own, [], [], is_new=False)
        engine.campaign(group)
        values: list[bytes] = []
        while engine.is_dirty():
            turn, _, _ = engine.ready()
            values += [value for each, _, _, value in engine.persisted(turn)[1] if value and each == group]
        found[group] = values
    return found


def small_log(sealer: Sealer | None = None) -> tuple[MemFiles, dict[int, list[bytes]]]:
    files = MemFiles()
    writer = Writer(files, sealer=sealer)
    for number in range(4):
        writer.put(number % 2, b"value %d" % number)
    return files, writer.applied


def test_a_log_is_read_as_it_was_written() -> None:
    files, applied = small_log()
    assert found_values(files) == applied


@pytest.mark.parametrize("part", range(4))
def test_every_flipped_bit_is_noticed_or_harmless(part: int) -> None:
    """A group has everything or has forgotten; never less, and never something else."""
    files, applied = small_log()
    ((path, content),) = files.snapshot().items()
    content = content.rstrip(b"\0") + bytes(64)
    forgot = 0
    places = [*range(1024 * 8), *range(HEADER_SIZE * 8, len(content) * 8)]
    for bit in places[part::4]:
        damaged = MemFiles.from_snapshot({path: content})
        damaged.flip(path, bit)
        found = found_values(damaged)
        for group, values in applied.items():
            assert found.get(group) in (None, values), (group, bit)
        forgot += found != applied
    assert forgot > 200


def test_every_truncation_leaves_a_prefix_or_is_noticed() -> None:
    files, applied = small_log()
    (path,) = files.snapshot()
    content = files.snapshot()[path]
    used = len(content.rstrip(b"\0"))
    for size in range(0, used + 8, 3):
        found = found_values(MemFiles.from_snapshot({path: content[:size]}))
        for group, values in applied.items():
            has = found.get(group)
            assert has is None or has == values[: len(has)]


def _work(files: MemFiles, acked: dict[int, list[bytes]], checkpointed: dict[int, int]) -> None:
    writer = Writer(files)
    rng = random.Random(5)
    for number in range(40):
        group = rng.randrange(2)
        value = b"value %d " % number + bytes(rng.choice((10, 900)))
        writer.put(group, value)
        acked[group].append(value)
        if rng.random() < 0.15:
            checkpointed[group] = len(acked[group])  # from here on the log may have forgotten these
            writer.checkpoint(group)


@pytest.mark.parametrize("keep", ["none", "all", "random"])
def test_a_power_cut_at_any_operation_loses_nothing_that_was_acknowledged(keep: str) -> None:
    whole = MemFiles()
    _work(whole, {0: [], 1: []}, {})
    assert len(whole.list(DIRECTORY)) < 6  # old segments go
    for operation in range(1, whole.op_count + 1):
        files, acked, checkpointed = MemFiles(), {0: list[bytes](), 1: list[bytes]()}, dict[int, int]()
        files.cut(operation)
        with pytest.raises(PowerCut):
            _work(files, acked, checkpointed)
        rng = random.Random(operation)
        torn = rng.choice((None, rng.randrange(1200)))
        after = files.after_cut(keep=keep, torn_bytes=torn, rng=rng)
        found = found_values(after)
        for group, values in acked.items():
            if values:
                has = found[group]
                assert has is not None, (operation, group)
                least = values[checkpointed.get(group, 0) :]
                assert _contains(has, least), (operation, group)


def _contains(has: list[bytes], values: list[bytes]) -> bool:
    """Whether values are there, in a row, and at most one write more, which was never acknowledged."""
    return not values or any(has[start : start + len(values)] == values for start in range(len(has)))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_after_an_error_the_same_is_written_to_another_segment(code: int) -> None:
    whole = MemFiles()
    _work(whole, {0: [], 1: []}, {})
    for operation in range(10, whole.op_count, 3):
        files = MemFiles()
        files.fail(operation, OSError(code, "injected"), partial_bytes=operation % 50)
        acked: dict[int, list[bytes]] = {0: [], 1: []}
        writer = _Stubborn(files)
        for number in range(12):
            writer.put(number % 2, b"%d" % number + bytes(700))
            acked[number % 2].append(writer.applied[number % 2][-1])
        assert found_values(files.after_cut()) == acked
        assert found_values(files) == acked


class _Stubborn(Writer):
    def write(self) -> None:
        try:
            super().write()
        except OSError:
            write = self.wal.restart()
            write.run()
            self.wal.written(write)
            for group, _, _, value in self.engine.persisted(1 << 60)[1]:
                if value:
                    self.applied[group].append(value)
            super().write()


def test_groups_that_are_not_open_are_kept() -> None:
    files, applied = small_log()
    for _ in range(3):  # each start begins a segment
        engine, wal = _read(files)
        engine.open(9, raft_id(1, 1), ids(1), [])
        wal.add(engine.ready()[1])
        write = wal.take()
        write.run()
        wal.written(write)
        engine.destroy(9)
    found = found_values(files)
    assert {group: found[group] for group in (0, 1)} == applied


def test_damage_that_later_records_make_up_for_costs_nothing() -> None:
    """An older segment whose entries are all behind a checkpoint may rot."""
    files = MemFiles()
    writer = Writer(files)
    for number in range(3):
        writer.put(0, b"%d" % number)
    writer.engine.checkpoint(0, writer.engine.status(0)["applied"])
    writer.engine.checkpoint(1, writer.engine.status(1)["applied"])
    writer.write()
    again = Writer(files)  # another segment, which says where the groups stand
    again.put(1, b"later")
    old = sorted(files.snapshot())[0]
    for byte in range(HEADER_SIZE, HEADER_SIZE + 200, 7):
        damaged = MemFiles.from_snapshot(files.snapshot())
        damaged.flip(old, byte * 8)
        _, wal = _read(damaged)
        assert wal.problems
        assert found_values(damaged) == {0: [], 1: [b"later"]}


def test_what_was_forgotten_stays_so_after_the_damaged_segment_is_gone() -> None:
    files, _ = small_log()
    (path,) = files.snapshot()
    files.flip(path, (HEADER_SIZE + 40) * 8)
    for _ in range(2):
        writer = Writer(files)
        assert writer.opened == {0: False, 1: False}
        writer.engine.open(5, raft_id(1, 1), ids(1), [])
        writer.engine.campaign(5)
        writer.applied[5] = []
        writer.write()
        if number := writer.wal.retirable():
            writer.wal.retire(number)
            writer.wal.retired(number)
        writer.engine.destroy(5)
        writer.write()
    assert path not in files.snapshot()
    assert found_values(files) == {0: None, 1: None}


def test_a_log_of_another_purpose_is_not_read() -> None:
    files, _ = small_log()
    engine = new_engine(1, 1)
    (path,) = files.snapshot()
    files.rename(path, f"{DIRECTORY}/00000007.log")
    wal = Wal(files, DIRECTORY, engine)
    assert "is of another log" in wal.problems[0]
    assert engine.groups() == []


KILLED = """
import sys
from jetlake.store.disk.files import OsFiles
from tests.cluster.test_wal import Writer
writer = Writer(OsFiles(), sys.argv[1])
number = int(sys.argv[2])
while True:
    number += 1
    writer.put(number % 2, b"%d" % number)
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}/src:{root}"}
    last, rng = 0, random.Random(1)
    for _ in range(4):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "wal"), str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            for _ in range(rng.randint(30, 150)):
                last = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split()
            last = int(rest[-1]) if rest and rest[-1] else last
        applied = Writer(OsFiles(), str(tmp_path / "wal")).applied
        values = sorted(int(value) for group in (0, 1) for value in applied[group])
        assert set(range(1, last + 1)) <= set(values)
        last = values[-1]  # the one that was in the middle may be there
