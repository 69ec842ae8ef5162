"""The machines of `world.py`: a disk, a node on it while it is up, and what the groups replicate."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from jetlake.cluster.engine import raft_id
from jetlake.cluster.member import Member
from jetlake.cluster.node import Node
from jetlake.cluster.wal import Write
from jetlake.store.disk.files import atomic_write
from jetlake.testing.memfiles import MemFiles, PowerCut

if TYPE_CHECKING:
    from tests.cluster.world import World

MS = 1_000_000
WAL_DIR, STATE_DIR = "wal", "state"


class Violation(AssertionError):
    """What must never happen did."""


class ListMachine:
    """A replicated list that keeps itself in a file, as of its last checkpoint."""

    def __init__(self, server: Server, group: int) -> None:
        self.server, self.group = server, group
        self.values: dict[int, str] = {}
        self.applied = 0
        self.member: Member | None = None
        if server.files.exists(self.path):
            self.load(server.files.read(self.path))

    @property
    def path(self) -> str:
        return f"{STATE_DIR}/{self.group}.json"

    def load(self, state: bytes) -> None:
        self.applied, values = json.loads(state)
        self.values = {int(index): value for index, value in values.items()}
        self.server.world.check_values(self)

    def state(self) -> bytes:
        return json.dumps([self.applied, self.values]).encode()

    def save(self, state: bytes) -> None:
        atomic_write(self.server.files, self.path, [state])

    def apply(self, index: int, data: bytes) -> None:
        if index <= self.applied:
            raise Violation(f"node {self.server.number} group {self.group}: {index} after {self.applied}")
        self.values[index], self.applied = data.decode(), index
        self.server.world.applied(self, index, data.decode())
        if len(self.values) % self.server.world.plan.checkpoint_every == 0:
            self.server.soon(self.checkpoint)

    def checkpoint(self) -> None:
        if self.member is None or not self.member.is_open or self.member.applied < self.applied:
            return
        try:
            self.save(self.state())
        except OSError:
            return  # the next one
        self.member.checkpoint(self.applied)

    def checkpoint_soon(self) -> None:
        self.server.soon(self.checkpoint)

    def lead(self, term: int) -> None:
        self.server.world.leads(self, term)

    def follow(self, leader: int) -> None:
        pass

    def copy(self, member: Member, source: int, index: int) -> None:
        delay = self.server.world.rng.randint(20, 150)
        self.server.later(delay, partial(self._copy, member, source, index))

    def _copy(self, member: Member, source: int, index: int) -> None:
        """Take what another node has, if it can be reached and has enough."""
        world = self.server.world
        other = world.servers[source]
        machine = (
            other.machines.get(self.group) if other.is_up and not world.is_cut(source, self.server.number) else None
        )
        if not member.is_open or member is not self.member:
            return
        if machine is None or machine.member is None or not machine.member.is_open:
            member.copy_failed()
            return
        at, term, conf = machine.member.position()
        state = json.dumps([at, machine.values]).encode()
        try:
            self.save(state)
        except OSError:
            member.copy_failed()
            return
        if at < index or not member.install(at, term, conf):
            member.copy_failed()
            return
        self.load(state)
        world.copies += 1


class Server:
    """One machine: its disk, and while it is up a node. The host of that node, too."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.files = MemFiles()
        self.files.make_dirs(STATE_DIR)
        self.boot = 0
        self.is_up = False
        self.paused_until = 0
        self.skew_ns = world.rng.randint(-5_000, 5_000) * MS
        self.machines: dict[int, ListMachine] = {}
        self.node: Node
        self.errors: list[str] = []

    def start(self) -> None:
        self.boot += 1
        self.is_up = True
        self._units: set[int] = set()
        self.guard(self._start)

    def _start(self) -> None:
        plan = self.world.plan
        seed = self.world.seed * 1000 + self.boot
        self.node = Node(
            self.number, self, self.files, WAL_DIR, seed, segment_size=plan.segment_size, keep_size=plan.keep_size
        )
        self.machines = {}
        assigned = self.world.moves.assigned(self.number)
        for group in set(self.node.found) - set(assigned):
            self.remove(group)  # what nobody needs here any more
        for group in assigned:
            self.open(group)
        self.later(100, self._tick)
        self.world.connect(self.number)

    def open(self, group: int) -> None:
        """Take part in a group, for the first time or again."""
        machine = self.machines[group] = ListMachine(self, group)
        first = self.world.moves.first(group, self.number)
        machine.member = self.node.open(
            group,
            machine,
            voters=[raft_id(number, 1) for number in self.world.moves.nodes[group]],
            applied=machine.applied,
            incarnation=self.world.moves.incarnation(group, self.number),
            is_new=first == "new",
            is_joining=first == "joins",
            copier=machine,
        )

    def remove(self, group: int) -> None:
        """Another server has the group now."""
        machine = self.machines.pop(group, None) or ListMachine(self, group)
        machine.member = None
        self.node.destroy(group)
        with suppress(OSError):
            self.files.remove(machine.path)

    def _tick(self) -> None:
        self.later(100, self._tick)
        for group, member in self.node.members.items():
            self.machines[group].member = member  # a member that lost its log is another one
        self.node.tick()

    def crash(self, *, power: bool) -> None:
        """The process is gone; with the power goes what was not synced."""
        rng = self.world.rng
        keep = rng.choice(("none", "random")) if power else "all"
        torn = rng.randint(0, 300) if power and rng.random() < 0.3 else None
        self.files = self.files.after_cut(keep=keep, torn_bytes=torn, rng=rng)
        self.is_up = False
        self.boot += 1  # whatever was to happen does not
        self.world.note(f"{self.number} {'loses power' if power else 'is killed'}")

    def guard(self, work: Callable[[], object]) -> None:
        """Do something as this machine."""
        try:
            work()
        except PowerCut:
            self.crash(power=True)

    def later(self, delay_ms: int, work: Callable[[], object]) -> None:
        boot = self.boot

        def run() -> None:
            if self.boot != boot or not self.is_up:
                return
            if self.paused_until > self.world.now_ms:
                self.later(self.paused_until - self.world.now_ms, work)
            else:
                self.guard(work)

        self.world.at(self.world.now_ms + delay_ms, run)

    def soon(self, work: Callable[[], object]) -> None:
        self.later(0, work)

    # The host of the node

    def clock(self) -> int:
        return 10**18 + self.world.now_ms * MS + self.skew_ns

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.later(0, callback)

    def commit_soon(self, unit: Any) -> None:
        if id(unit) not in self._units:
            self._units.add(id(unit))
            self.later(0, partial(self._prepare, unit))

    def _prepare(self, unit: Any) -> None:
        commit = unit.prepare_commit()
        self._units.discard(id(unit))
        if commit is None:
            unit.complete_commit(None)
            return
        self._units.add(id(unit))  # one at a time
        self.later(self.world.rng.randint(0, 6), partial(self._commit, unit, commit))

    def _commit(self, unit: Any, commit: Any) -> None:
        self._units.discard(id(unit))
        try:
            if self.world.plan.skips_sync and isinstance(commit, Write):
                commit.number = commit.log.append([commit.body])
            else:
                commit.run()
        except OSError as error:
            unit.fail_commit(error)
            return
        unit.complete_commit(commit)

    def log(self, level: str, line: str) -> None:
        self.world.note(f"{self.number} {line}")

    def failed(self, what: str, error: BaseException) -> None:
        self.world.note(f"{self.number} {what}: {error}")
        if not isinstance(error, OSError):
            raise error

    def send(self, node: int, data: bytes) -> None:
        self.world.send(self.number, node, data)
