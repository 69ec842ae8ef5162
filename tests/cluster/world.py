"""Whole nodes in one process: virtual time, a network that delays, breaks and parts, disks that lose and corrupt.

    python -m tests.cluster.world --seed 17          replays one run, and says what happened
    python -m tests.cluster.world --seeds 1000       many of them

Each node is a real `Node` on `MemFiles`: the engine, the log and the turns are those of a server; only clock, loop,
commit thread and sockets are the world's. A seed decides everything, so a run that fails can be repeated.

What is checked: (1) an entry that was acknowledged is on every member in the end, at its index; (2) no two members
apply different entries at one index; (3) a term has one leader; (4) a member applies indexes in order, each once; (7)
when the faults have ended, every group has a leader and all members are equal within 30 seconds.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import heapq
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.cluster.world_moves import Moves
from tests.cluster.world_server import WAL_DIR, ListMachine, Server, Violation

__all__ = ["Plan", "Violation", "World"]


@dataclass
class Plan:
    """What a run is like."""

    nodes: int = 3
    groups: int = 2
    faulty_ms: int = 4000  # for how long things go wrong
    checkpoint_every: int = 40
    segment_size: int = 32 * 1024
    keep_size: int = 400  # bytes of entries that are kept for members that are behind
    replicas: int = 0  # of each group; 0: all nodes, and no group ever moves
    skips_sync: bool = False  # a deliberate bug: acknowledge before the disk has it
    faults: tuple[str, ...] = ("part", "part_one_way", "break", "kill", "power", "blackout", "pause", "io", "flip")


@dataclass
class Channel:
    """A connection from one node to another: in order, until it breaks."""

    epoch: int = 0
    is_open: bool = False
    last_ms: int = 0
    rest: bytes = b""


@dataclass
class World:
    seed: int
    plan: Plan = field(default_factory=Plan)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.trace: list[str] = []
        self.digest = hashlib.sha256()
        self.cut: set[tuple[int, int]] = set()
        self.value = 0
        self.log: dict[tuple[int, int], str] = {}  # what was applied, by group and index
        self.acked: dict[tuple[int, int], str] = {}
        self.proposed: dict[tuple[int, int, str], int] = {}  # group, index, value: by whom
        self.leaders: dict[tuple[int, int], int] = {}
        self.copies = self.rejoins = 0
        self.servers: dict[int, Server] = {}
        self.moves = Moves(self)
        for number in range(1, self.plan.nodes + 1):
            self.servers[number] = Server(self, number)
        self.channels = {(a, b): Channel() for a in self.servers for b in self.servers if a != b}
        self.victim = self.rng.choice(list(self.servers))  # whose disk may be damaged: a minority

    # Time

    def at(self, time_ms: int, work: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time_ms, self._count, work))

    def run_until(self, time_ms: int) -> None:
        while self._events and self._events[0][0] <= time_ms:
            self.now_ms, _, work = heapq.heappop(self._events)
            work()
        self.now_ms = time_ms

    def note(self, line: str) -> None:
        self.rejoins += "joins anew" in line
        self.trace.append(f"{self.now_ms:6d} {line}")

    # The network

    def is_cut(self, a: int, b: int) -> bool:
        return (a, b) in self.cut or (b, a) in self.cut

    def connect(self, number: int) -> None:
        for other in self.servers:
            if other != number:
                self.dial(number, other)
                self.dial(other, number)

    def dial(self, source: int, target: int) -> None:
        """Open a connection as soon as that is possible."""
        channel = self.channels[source, target]
        channel.is_open = False
        a, b = self.servers[source], self.servers[target]
        if not a.is_up:
            return
        if not b.is_up:
            if (source, target) not in self.cut:
                a.soon(lambda: a.node.peers.refused(target))
            return
        if (source, target) in self.cut:
            self.at(self.now_ms + 50, partial(self._redial, source, target))
            return
        channel.epoch += 1
        channel.is_open, channel.last_ms, channel.rest = True, self.now_ms, b""
        epoch = channel.epoch
        b.soon(lambda: b.node.connected(source, epoch))

    def _redial(self, source: int, target: int) -> None:
        if not self.channels[source, target].is_open:
            self.dial(source, target)

    def break_channel(self, source: int, target: int) -> None:
        channel = self.channels[source, target]
        if channel.is_open:
            channel.is_open = False
            a, b, epoch = self.servers[source], self.servers[target], channel.epoch
            if a.is_up:
                a.soon(lambda: a.node.unreachable(target))
            if b.is_up:
                b.soon(lambda: b.node.peers.lost(source, epoch))
            self.at(self.now_ms + self.rng.randint(5, 80), partial(self._redial, source, target))

    def send(self, source: int, target: int, data: bytes) -> None:
        self.digest.update(bytes((source, target)) + data)
        channel = self.channels[source, target]
        if not channel.is_open:
            return
        if (source, target) in self.cut or self.rng.random() < 0.001:
            self.break_channel(source, target)
            return
        channel.last_ms = max(channel.last_ms, self.now_ms + self.rng.randint(0, 4))
        self.servers[target].world.at(channel.last_ms, partial(self._deliver, source, target, channel.epoch, data))

    def _deliver(self, source: int, target: int, epoch: int, data: bytes) -> None:
        server, channel = self.servers[target], self.channels[source, target]
        if not server.is_up or channel.epoch != epoch:
            return
        if server.paused_until > self.now_ms:
            self.at(server.paused_until, partial(self._deliver, source, target, epoch, data))
            return
        whole = channel.rest + data
        split = self.rng.randint(0, len(whole)) if self.rng.random() < 0.1 else len(whole)
        rest = whole[:split]
        rest = rest[self._receive(server, source, epoch, rest) :] + whole[split:]
        channel.rest = rest[self._receive(server, source, epoch, rest) :]

    def _receive(self, server: Server, source: int, epoch: int, data: bytes) -> int:
        used = 0

        def receive() -> None:
            nonlocal used
            used = server.node.receive(source, epoch, data)

        server.guard(receive)
        return used

    # What is checked

    def applied(self, machine: ListMachine, index: int, value: str) -> None:
        group, number = machine.group, machine.server.number
        known = self.log.setdefault((group, index), value)
        if known != value:
            raise Violation(f"group {group} index {index}: node {number} applied {value}, another {known}")
        member = machine.server.node.members.get(group)
        if self.proposed.get((group, index, value)) == number and member is not None and member.is_leader:
            self.acked[group, index] = value

    def check_values(self, machine: ListMachine) -> None:
        for index, value in machine.values.items():
            if self.log.get((machine.group, index)) != value:
                raise Violation(f"group {machine.group} index {index}: {value} was loaded, and never applied")

    def leads(self, machine: ListMachine, term: int) -> None:
        number = machine.server.number
        other = self.leaders.setdefault((machine.group, term), number)
        if other != number:
            raise Violation(f"group {machine.group} term {term}: led by {other} and by {number}")
        self.note(f"{number} leads group {machine.group} in term {term}")

    def check_acked(self, machine: ListMachine) -> None:
        for (group, index), value in self.acked.items():
            if group == machine.group and machine.values.get(index) != value:
                number, has = machine.server.number, machine.values.get(index)
                raise Violation(f"group {group} index {index}: {value} was acknowledged, node {number} has {has}")

    def unequal(self) -> str:
        """What is not yet as it should be, when all is well again; else nothing."""
        for group in range(self.plan.groups):
            if self.moves.is_under_way(group):
                return f"group {group} is being moved"
            servers = [self.servers[number] for number in self.moves.nodes[group]]
            members = [server.node.members.get(group) for server in servers]
            if sum(member is not None and member.is_leader for member in members) != 1:
                return f"group {group} has no leader, or several"
            machines = [server.machines[group] for server in servers]
            if any(member is None or member.is_joining for member in members):
                return f"group {group} lacks members"
            if any(machine.values != machines[0].values for machine in machines):
                return f"group {group}: members differ"
        return ""

    # A run

    def run(self) -> World:
        """Raises Violation."""
        for server in self.servers.values():
            server.start()
        self.at(50, self._work)
        if self.plan.replicas:
            self.at(600, self.moves.step)
        end_ms = self.plan.faulty_ms
        self.at(700, partial(self._fault, end_ms))
        self.run_until(end_ms)
        self.heal()
        last_ms = end_ms + 30_000
        while True:
            self.run_until(self.now_ms + 250)
            self.start_all()  # a fault that was set up before may have struck late
            if self.now_ms > end_ms + 500 and not (problem := self.unequal()):
                break
            if self.now_ms > last_ms:
                raise Violation(f"after 30 seconds without faults: {problem}")
        for group, nodes in self.moves.nodes.items():
            for number in nodes:
                self.check_values(self.servers[number].machines[group])
                self.check_acked(self.servers[number].machines[group])
        self.digest.update(repr(sorted(self.log.items())).encode())
        return self

    def heal(self) -> None:
        self.note("faults end")
        self.cut.clear()
        for server in self.servers.values():
            server.paused_until = 0
        self.start_all()
        for pair, channel in self.channels.items():
            if not channel.is_open:
                self.dial(*pair)

    def start_all(self) -> None:
        for server in self.servers.values():
            if not server.is_up:
                server.start()

    def _work(self) -> None:
        """Propose something to whoever leads."""
        if self.now_ms < self.plan.faulty_ms:
            self.at(self.now_ms + self.rng.randint(1, 25), self._work)
        for server in self.servers.values():
            if server.is_up and server.paused_until <= self.now_ms:
                group = self.rng.randrange(self.plan.groups)
                server.guard(partial(self._propose, server, group))

    def _propose(self, server: Server, group: int) -> None:
        member = server.node.members.get(group)
        if member is None or not member.is_leader:
            return
        self.value += 1
        value = f"v{self.value}" + "x" * self.rng.choice((0, 0, 10, 300))
        index = member.propose(value.encode())
        if index:
            self.proposed[group, index, value] = server.number
        if self.rng.random() < 0.01:
            member.step_down()

    def _fault(self, end_ms: int) -> None:
        rng = self.rng
        if self.now_ms >= end_ms:
            return
        self.at(self.now_ms + rng.randint(50, 900), partial(self._fault, end_ms))
        server = self.servers[rng.choice(list(self.servers))]
        others = [number for number in self.servers if number != server.number]
        for down in self.servers.values():
            if not down.is_up and rng.random() < 0.7:
                down.start()
                self.note(f"{down.number} starts")
        if rng.random() < 0.5:
            self.cut.clear()
        kind = rng.choice(self.plan.faults)
        if kind == "part":
            self.cut |= {(server.number, other) for other in others} | {(other, server.number) for other in others}
        elif kind == "part_one_way":
            self.cut |= {(server.number, other) for other in others}
        elif kind == "break":
            self.break_channel(server.number, rng.choice(others))
        elif kind in ("kill", "power") and server.is_up:
            server.crash(power=kind == "power")
            self._refuse(server.number)
        elif kind == "blackout":
            for each in self.servers.values():
                if each.is_up:
                    each.crash(power=True)
        elif kind == "pause":
            server.paused_until = self.now_ms + rng.randint(100, 2500)
        elif kind == "io" and server.is_up:
            error = rng.choice((errno.EIO, errno.ENOSPC))
            server.files.fail(server.files.op_count + rng.randint(1, 4), OSError(error, "injected"))
            if rng.random() < 0.3:
                server.files.cut(server.files.op_count + rng.randint(1, 6))
        elif kind == "flip":
            self._flip(self.servers[self.victim])
        self.note(f"{kind} {server.number}")

    def _refuse(self, number: int) -> None:
        """Who dials a process that is gone hears so."""
        for other in self.servers.values():
            if other.number != number:
                self.dial(other.number, number)

    def _flip(self, server: Server) -> None:
        """Damage a disk while its machine is off."""
        if server.is_up:
            server.crash(power=False)
            self._refuse(server.number)
        paths = [path for path in server.files.snapshot() if path.startswith(WAL_DIR)]
        for _ in range(2 if paths else 0):
            path = self.rng.choice(paths)
            size = min(server.files.size(path), 12_000)
            if size:
                server.files.flip(path, self.rng.randrange(8 * size))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=0, help="fewer than nodes: groups are moved about")
    parser.add_argument("--skip-sync", action="store_true")
    options = parser.parse_args()
    plan = Plan(nodes=options.nodes, replicas=options.replicas, skips_sync=options.skip_sync)
    if options.seed is not None:
        world = World(options.seed, plan)
        try:
            world.run()
        finally:
            print("\n".join(world.trace))
        print(f"{len(world.acked)} acknowledged, {len(world.leaders)} leaders, digest {world.digest.hexdigest()[:16]}")
        return
    start = time.process_time()
    bad = acked = leaders = rejoins = copies = moves = 0
    for seed in range(options.first, options.first + options.seeds):
        world = World(seed, plan)
        try:
            world.run()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            bad += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
        acked, leaders = acked + len(world.acked), leaders + len(world.leaders)
        rejoins, copies, moves = rejoins + world.rejoins, copies + world.copies, moves + world.moves.done
    each_ms = (time.process_time() - start) / options.seeds * 1e3
    facts = f"{bad} bad, {acked} acknowledged, {leaders} leaders"
    facts += f", {rejoins} members joined anew, {copies} copies, {moves} moves"
    print(f"{options.seeds} seeds: {facts}, {each_ms:.0f} ms each")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
