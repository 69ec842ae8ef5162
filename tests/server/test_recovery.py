"""What a server says while it recovers many streams."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.jetstream.harness import FakeHost, InProcess

SECOND_NS = 10**9


def fill(directory: Path, count: int) -> None:
    on = InProcess(str(directory))
    for number in range(count):
        on.request(f"$JS.API.STREAM.CREATE.S{number}", b'{"name":"S%d"}' % number)
    on.stop()


def progress(host: FakeHost) -> list[str]:
    return [line for level, line in host.lines if level == "info" and line.startswith("recovering streams")]


def test_a_long_recovery_tells_how_far_it_is(tmp_path: Path) -> None:
    fill(tmp_path, 4)
    ticks = itertools.count(1)
    host = FakeHost(clock=lambda: next(ticks) * SECOND_NS)  # every look at the clock takes a second
    on = InProcess(str(tmp_path), host)
    assert progress(host)[0] == "recovering streams done=1 of=4 account=$G"
    assert "streams recovered count=4 account=$G" in [line for _, line in host.lines]
    on.stop()


def test_a_short_recovery_does_not(tmp_path: Path) -> None:
    fill(tmp_path, 4)
    host = FakeHost(clock=lambda: SECOND_NS)
    on = InProcess(str(tmp_path), host)
    assert progress(host) == []
    on.stop()
