"""Who is there: by words, by connections, by refusals."""

from __future__ import annotations

import pytest

from jetlake.cluster.peers import PING, Peers
from jetlake.testing.clock import FakeClock
from tests.cluster.engines import needs_engine


class Watched:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.events: list[str] = []
        self.peers = Peers(
            self.clock,
            lambda node, epoch: self.events.append(f"up {node} {epoch}"),
            lambda node: self.events.append(f"down {node}"),
        )

    def wait(self, ms: int) -> None:
        self.clock.advance(ms / 1000)
        self.peers.tick()


def test_silence_is_noticed_after_600_ms() -> None:
    watched = Watched()
    watched.peers.connected(2, 1)
    watched.wait(599)
    assert watched.peers.heard(2, 1)
    watched.wait(600)
    assert watched.events == ["up 2 1"]
    watched.wait(1)
    watched.wait(1)
    assert watched.events == ["up 2 1", "down 2"]
    assert watched.peers.up == []


def test_a_word_from_who_was_down_brings_it_back() -> None:
    watched = Watched()
    watched.peers.connected(2, 1)
    watched.wait(700)
    watched.peers.heard(2, 1)
    assert watched.events == ["up 2 1", "down 2", "up 2 1"]


def test_a_lost_connection_has_250_ms_to_come_back() -> None:
    watched = Watched()
    watched.peers.connected(2, 1)
    watched.peers.lost(2, 1)
    watched.wait(250)
    watched.peers.connected(2, 2)
    watched.peers.lost(2, 1)  # an earlier one
    watched.wait(300)
    assert watched.events == ["up 2 1", "up 2 2"]
    watched.peers.lost(2, 2)
    watched.wait(251)
    assert watched.events[2:] == ["down 2"]


def test_a_refused_connection_counts_at_once_and_once() -> None:
    watched = Watched()
    watched.peers.refused(2)
    watched.peers.refused(2)
    watched.wait(1000)
    assert watched.events == ["down 2"]


def test_an_earlier_connection_and_a_stranger_are_not_heard() -> None:
    watched = Watched()
    watched.peers.connected(2, 5)
    watched.peers.connected(2, 4)
    assert not watched.peers.heard(2, 4)
    assert watched.peers.heard(2, 5)
    assert not watched.peers.heard(3, 1)
    watched.peers.removed(2)
    assert not watched.peers.heard(2, 5)
    assert watched.events == ["up 2 5"]


@needs_engine
@pytest.mark.parametrize("count", [1, 3])
def test_the_engine_takes_a_ping_for_what_it_is(count: int) -> None:
    from jetlake.cluster.engine import new_engine

    engine = new_engine(1, 1)
    assert engine.feed(2, 1, PING * count) == len(PING) * count
    assert not engine.is_dirty()
