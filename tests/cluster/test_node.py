"""Nodes with the server's own commit loop and real files; and what a node does when its disk fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jetlake.clock import Clock
from jetlake.cluster.engine import raft_id
from jetlake.cluster.group import Group, Machine
from jetlake.cluster.member import Member
from jetlake.cluster.node import Node
from jetlake.server.commit_loop import CommitLoop
from jetlake.store.disk.files import Files, OsFiles
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.cluster.engines import needs_engine

pytestmark = needs_engine
IDS = [raft_id(number, 1) for number in (1, 2, 3)]


class Values:
    """A machine that remembers what it was told."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.roles: list[str] = []

    def apply(self, index: int, data: bytes) -> None:
        if data == b"poison":
            raise ValueError("not for me")
        self.values.append(data)

    def lead(self, term: int) -> None:
        self.roles.append(f"lead {term} after {len(self.values)}")

    def follow(self, leader: int) -> None:
        self.roles.append(f"follow {leader >> 16}")


class Host:
    """A server's loop, clock and commit thread; the network is a dictionary."""

    def __init__(self, network: dict[int, Node], files: Files, directory: str, number: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = FakeClock()
        self.commits = CommitLoop(self._loop, lambda: None, self.failed)
        self.errors: list[str] = []
        self.network = network
        self.node = Node(number, self, files, directory, seed=1, segment_size=256 * 1024)
        network[number] = self.node
        self.number = number

    @property
    def clock(self) -> Clock:
        return self._clock

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    def commit_soon(self, unit: Any) -> None:
        self.commits.request(unit)

    def log(self, level: str, line: str) -> None:
        pass

    def failed(self, what: str, error: BaseException) -> None:
        self.errors.append(f"{what}: {error}")

    def send(self, node: int, data: bytes) -> None:
        if node in self.network:
            self._loop.call_soon(self.network[node].receive, self.number, 1, data)


class Cluster:
    def __init__(self, files: dict[int, Files], directory: str) -> None:
        self.network: dict[int, Node] = {}
        self.hosts = {number: Host(self.network, files[number], f"{directory}/{number}", number) for number in files}
        self.machines = {number: Values() for number in files}
        self.members: dict[int, Member] = {}
        for number in files:
            for other in files:
                if other != number:
                    self.network[number].connected(other, 1)

    def open(self, group: int = 0) -> None:
        for number, node in self.network.items():
            self.members[number] = node.open(group, self.machines[number], voters=IDS, is_new=True)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - what is waited for sets no event
                await asyncio.sleep(0.001)

    def tick(self) -> None:
        for node in self.network.values():
            node.tick()

    async def lead(self, number: int) -> Member:
        self.network[number].campaign(0)
        await self.until(lambda: self.members[number].is_leader)
        return self.members[number]

    async def close(self) -> None:
        for host in self.hosts.values():
            host.node.close()
            await host.commits.drain()
            host.commits.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster({number: OsFiles() for number in (1, 2, 3)}, str(tmp_path))
    made.open()
    yield made
    await made.close()


def test_a_member_is_a_group_to_whoever_uses_it() -> None:
    def takes(group: Group, machine: Machine) -> None: ...

    takes(Member.__new__(Member), Values())  # as the type checker sees it
    names = [name for name in Group.__dict__ if not name.startswith("_")]
    assert names and all(name in Member.__dict__ or name in Member.__init__.__code__.co_names for name in names)


async def test_what_the_leader_proposes_is_applied_everywhere(cluster: Cluster) -> None:
    leader = await cluster.lead(2)
    for number in range(100):
        assert leader.propose(b"%d" % number)
    await cluster.until(lambda: all(len(machine.values) == 100 for machine in cluster.machines.values()))
    assert len({tuple(machine.values) for machine in cluster.machines.values()}) == 1
    assert cluster.machines[1].roles == ["follow 2"]
    assert cluster.members[1].propose(b"x") == 0
    assert leader.applied == leader.status()["applied"]


async def test_a_leader_begins_when_it_has_applied_what_came_before(cluster: Cluster) -> None:
    leader = await cluster.lead(1)
    for _ in range(50):
        leader.propose(b"x")
    leader.transfer(raft_id(3, 1))
    await cluster.until(lambda: cluster.members[3].is_leader)
    assert cluster.machines[3].roles[-1] == f"lead {cluster.members[3].term} after 50"
    assert not leader.is_leader and cluster.machines[1].roles[-1] == "follow 3"


async def test_a_restart_finds_what_was_committed(tmp_path: Path) -> None:
    first = Cluster({number: OsFiles() for number in (1, 2, 3)}, str(tmp_path))
    first.open()
    leader = await first.lead(1)
    leader.propose(b"a")
    await first.until(lambda: all(machine.values for machine in first.machines.values()))
    leader.checkpoint(leader.applied, b"note")
    leader.propose(b"b")
    await first.until(lambda: all(len(machine.values) == 2 for machine in first.machines.values()))
    applied = leader.status()["checkpoint"]
    await first.close()
    second = Cluster({number: OsFiles() for number in (1, 2, 3)}, str(tmp_path))
    assert second.network[1].found == {0: (applied, b"note")}
    for number, node in second.network.items():
        second.members[number] = node.open(0, second.machines[number], voters=IDS)
    await second.lead(2)
    await second.until(lambda: second.machines[1].values == [b"b"])  # the rest is behind its checkpoint
    assert second.machines[2].values == [b"a", b"b"]
    await second.close()


async def test_a_read_is_answered_when_all_before_it_is_applied(cluster: Cluster) -> None:
    leader = await cluster.lead(1)
    seen: list[tuple[bool, int]] = []
    leader.propose(b"a")
    leader.read(lambda is_sure: seen.append((is_sure, len(cluster.machines[1].values))))
    cluster.members[2].read(lambda is_sure: seen.append((is_sure, -1)))
    assert seen == [(False, -1)]
    await cluster.until(lambda: len(seen) == 2)
    assert seen[1][0]


async def test_a_machine_that_fails_gets_nothing_more(cluster: Cluster) -> None:
    leader = await cluster.lead(1)
    leader.propose(b"poison")
    failed: list[int] = []

    def has_failed() -> bool:  # two of three: the last may be alone before it hears that the entry is committed
        cluster.tick()
        failed[:] = [number for number, host in cluster.hosts.items() if host.errors]
        return len(failed) >= 2

    await cluster.until(has_failed)
    for number in failed:
        assert "group 0 index" in cluster.hosts[number].errors[0] and "not for me" in cluster.hosts[number].errors[0]
        assert 0 not in cluster.network[number].members


async def test_groups_are_closed_opened_again_and_destroyed(cluster: Cluster) -> None:
    leader = await cluster.lead(1)
    leader.propose(b"a")
    await cluster.until(lambda: cluster.machines[2].values)
    cluster.network[2].close_group(0)
    assert not cluster.members[2].is_open and cluster.members[2].propose(b"x") == 0
    again = Values()
    member = cluster.network[2].open(0, again, voters=IDS)
    assert not member.is_joining
    leader.propose(b"b")
    await cluster.until(lambda: again.values == [b"a", b"b"])
    cluster.network[2].destroy(0)
    await cluster.hosts[2].commits.drain()
    assert cluster.network[2].found == {}


async def test_a_group_that_keeps_old_segments_is_asked_for_a_checkpoint(tmp_path: Path) -> None:
    class Durable(Values):
        def checkpoint_soon(self) -> None:
            self.roles.append("asked")
            cluster.members[1].checkpoint(cluster.members[1].applied)

    cluster = Cluster({number: OsFiles() for number in (1, 2, 3)}, str(tmp_path))
    cluster.machines[1] = Durable()
    cluster.open()
    leader = await cluster.lead(1)
    for count in range(1, 60):
        leader.propose(bytes([1]) * 30_000)
        await cluster.until(lambda count=count: len(cluster.machines[1].values) == count)  # type: ignore[misc]
    assert "asked" in cluster.machines[1].roles
    await cluster.hosts[1].commits.drain()
    await cluster.until(lambda: len(list((tmp_path / "1").glob("*.log"))) <= 4)
    assert len(list((tmp_path / "2").glob("*.log"))) > 4  # nobody made a checkpoint there
    await cluster.close()


async def test_a_node_about_to_leave_gives_its_groups_away(cluster: Cluster) -> None:
    await cluster.lead(1)
    cluster.network[1].retire_from_leading()
    await cluster.until(lambda: cluster.members[2].is_leader or cluster.members[3].is_leader)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_a_node_whose_disk_fails_is_silent_until_it_works_again(code: int) -> None:
    disks = {number: MemFiles() for number in (1, 2, 3)}
    cluster = Cluster(dict(disks), "data")
    cluster.open()
    await cluster.lead(1)
    await cluster.until(lambda: all(member.leader for member in cluster.members.values()))
    for ahead in range(1, 4):
        disks[1].fail(disks[1].op_count + ahead, OSError(code, "injected"))
    assert cluster.members[1].propose(b"a")
    await cluster.until(lambda: cluster.network[1].frozen)
    assert "cluster log" in cluster.hosts[1].errors[0] and cluster.machines[1].values == []
    for _ in range(30):
        cluster.network[1].tick()
        await asyncio.sleep(0.002)
    await cluster.until(lambda: cluster.network[1].frozen is None)
    await cluster.until(lambda: all(machine.values == [b"a"] for machine in cluster.machines.values()))
    await cluster.close()
    again = Cluster({1: disks[1].after_cut()}, "data")
    assert again.network[1].open(0, Values(), voters=IDS).is_joining is False
    await again.close()


async def test_a_member_without_its_log_joins_anew(tmp_path: Path) -> None:
    cluster = Cluster({number: OsFiles() for number in (1, 2, 3)}, str(tmp_path))
    for number in (1, 2):
        cluster.members[number] = cluster.network[number].open(0, cluster.machines[number], voters=IDS, is_new=True)
    leader = await cluster.lead(1)
    leader.propose(b"a")
    await cluster.until(lambda: cluster.machines[1].values)

    class Copy:
        def copy(self, member: Member, source: int, index: int) -> None:
            at, term, conf = cluster.members[source].position()
            cluster.machines[3].values = list(cluster.machines[source].values)
            assert at >= index and member.install(at, term, conf)

    # It was a member, says whoever opens it; its log says nothing.
    member = cluster.network[3].open(0, cluster.machines[3], voters=IDS, copier=Copy())
    assert member.is_joining and member.raft_id == raft_id(3, 2)

    def joined() -> bool:
        cluster.tick()
        return raft_id(3, 2) in leader.voters

    await cluster.until(joined)
    assert leader.voters == [raft_id(1, 1), raft_id(2, 1), raft_id(3, 2)]
    leader.propose(b"b")
    await cluster.until(lambda: cluster.machines[3].values == [b"a", b"b"])
    assert not member.is_joining
    await cluster.close()
