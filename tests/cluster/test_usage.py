"""What servers use, told among them."""

from __future__ import annotations

import pytest

from jetlake.cluster.usage import INTERVAL_NS, REPEAT_NS, BadUsage, ServerUsage, Teller, UsageTable, usage_of
from jetlake.cluster.view import AccountUsage
from jetlake.testing.clock import FakeClock
from tests.cluster.small_cluster import SmallCluster
from tests.jetstream.harness import FakeHost


class World:
    """A server that tells, and one that hears."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.host = FakeHost(clock=self.clock)
        self.usage = ServerUsage(storage=5, accounts={"A": AccountUsage(storage=5)})
        self.own, self.other, self.sent = UsageTable(), UsageTable(), []
        self.teller = Teller(self.host, "p1", self.own, lambda: self.usage, self._send)
        self.teller.start()

    def _send(self, subject: str, payload: bytes) -> None:
        self.sent.append(subject)
        self.other.heard(subject.rpartition(".")[2], payload)

    def pass_time(self, ns: int) -> None:
        end = self.clock() + ns
        while self.host.timers and self.host.timers[-1].time_ns <= end:
            timer = self.host.timers.pop()
            self.clock.set(timer.time_ns)
            timer.callback()
        self.clock.set(end)


def test_what_is_told_is_heard() -> None:
    world = World()
    assert world.sent == ["$JETLAKE.USAGE.p1"]
    assert world.other.server("p1") == world.own.server("p1") == world.usage
    assert world.other.server("p2") is None


def test_a_change_is_told_within_a_quarter_of_a_second_and_not_more_often() -> None:
    world = World()
    for size in range(100):  # while messages pour in
        world.usage = ServerUsage(storage=size)
        world.pass_time(INTERVAL_NS // 10)
    assert 10 <= len(world.sent) <= 12
    world.pass_time(INTERVAL_NS)
    assert world.other.server("p1") == ServerUsage(storage=99)


def test_without_a_change_it_is_told_now_and_then() -> None:
    world = World()
    world.pass_time(REPEAT_NS - INTERVAL_NS)
    assert len(world.sent) == 1
    world.pass_time(2 * INTERVAL_NS)
    assert len(world.sent) == 2
    world.teller.stop()
    world.pass_time(3 * REPEAT_NS)
    assert len(world.sent) == 2


def test_an_account_is_summed_over_the_servers() -> None:
    table = UsageTable()
    table.set("p1", ServerUsage(accounts={"A": AccountUsage(1, 2, 3, 4), "B": AccountUsage(9, 9, 9, 9)}))
    table.set("p2", ServerUsage(accounts={"A": AccountUsage(10, 20, 30, 40)}))
    assert table.account("A") == AccountUsage(11, 22, 33, 44)
    assert table.account("C") == AccountUsage()
    table.forget("p2")
    assert table.account("A") == AccountUsage(1, 2, 3, 4)


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"memory":"x"}', b'{"accounts":{"A":["x"]}}', b"\xff"])
def test_what_is_no_usage_changes_nothing(payload: bytes) -> None:
    table = UsageTable()
    table.set("p1", ServerUsage(storage=1))
    with pytest.raises(BadUsage, match="usage of p1"):
        table.heard("p1", payload)
    assert table.server("p1") == ServerUsage(storage=1)


def test_a_server_counts_its_messages() -> None:
    cluster = SmallCluster()
    cluster.create("S")
    holder = cluster.holder_of("S")
    holder.account.send(b"S.a", b"hello")
    holder.host.settle()
    found = usage_of(holder.service.accounts.values())
    assert found.storage == found.accounts["A"].storage > 5 and found.memory == 0
    assert found.accounts["A"].api_total == 1
