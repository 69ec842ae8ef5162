"""The clock that tests move."""

from __future__ import annotations

from jetlake.clock import Clock
from jetlake.testing.clock import FakeClock


def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock: Clock = FakeClock(start_ns=5)
    assert (clock(), clock()) == (5, 5)


def test_advance_adds_seconds_and_nanoseconds() -> None:
    clock = FakeClock(start_ns=0)
    clock.advance(1.5, ns=7)
    assert clock() == 1_500_000_007


def test_the_clock_can_go_back() -> None:
    clock = FakeClock(start_ns=10_000_000_000)
    clock.advance(-1)
    assert clock() == 9_000_000_000


def test_set_moves_to_a_time() -> None:
    clock = FakeClock()
    clock.set(42)
    assert clock() == 42
