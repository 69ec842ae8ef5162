from __future__ import annotations

import asyncio

import pytest

from jetlake.server import vigil as vigil_module
from jetlake.server.vigil import Vigil


class Loop:
    """Counts turns of a loop that always has something to call."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def call_soon(self, callback: object) -> None:
        self.calls.append(callback)

    def turn(self) -> bool:
        if not self.calls:
            return False
        self.calls.pop()()  # type: ignore[operator]
        return True


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1}, raising=False)


@pytest.fixture
def now_ns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [0]
    monkeypatch.setattr(vigil_module.time, "monotonic_ns", lambda: now[0])
    return now


def make(loop: Loop, is_idle: list[bool]) -> Vigil:
    return Vigil(loop, lambda: is_idle[0])  # type: ignore[arg-type]


def test_a_loop_stays_awake_for_a_moment_after_each_time_it_heard_somebody(now_ns: list[int]) -> None:
    loop = Loop()
    vigil = make(loop, [True])
    vigil.begin()
    assert loop.turn() and loop.turn()
    now_ns[0] = vigil_module.VIGIL_NS - 1
    vigil.begin()
    vigil.begin()
    assert loop.turn() and len(loop.calls) == 1  # one vigil, however often it begins
    now_ns[0] += vigil_module.VIGIL_NS - 1
    assert loop.turn()
    now_ns[0] += 1
    assert loop.turn() and not loop.turn()
    vigil.begin()
    assert loop.turn()


def test_a_commit_in_a_thread_ends_it(now_ns: list[int]) -> None:
    loop, is_idle = Loop(), [True]
    vigil = make(loop, is_idle)
    vigil.begin()
    is_idle[0] = False
    assert loop.turn() and not loop.turn()
    vigil.begin()
    assert not loop.turn()


def test_there_is_none_on_a_single_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0}, raising=False)
    loop = Loop()
    make(loop, [True]).begin()
    assert not loop.turn()


async def test_a_real_loop_falls_asleep_in_the_end() -> None:
    loop = asyncio.get_running_loop()
    vigil = Vigil(loop, lambda: True)
    vigil.begin()
    await asyncio.sleep(0.05)
    assert not vigil._is_on
