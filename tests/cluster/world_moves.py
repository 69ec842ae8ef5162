"""Who has which group in `world.py`, and moves from one server to another while everything goes wrong.

This is what a meta group would know: it never forgets, and gives out each incarnation once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jetlake.cluster.engine import node_of
from jetlake.cluster.member import Member

if TYPE_CHECKING:
    from tests.cluster.world import World

NEAR_COUNT = 20


@dataclass
class Move:
    """A group goes from one server to another."""

    new: int
    old: int


class Moves:
    def __init__(self, world: World) -> None:
        self._world = world
        count = world.plan.replicas or world.plan.nodes
        self.nodes = {group: list(range(1, count + 1)) for group in range(world.plan.groups)}
        self.done = 0
        self._moves: dict[int, Move] = {}
        self._incarnations: Counter[tuple[int, int]] = Counter()
        self._opened: set[tuple[int, int]] = set()  # group, server: it was told to take part
        self._new = {(group, number) for group, numbers in self.nodes.items() for number in numbers}

    def is_under_way(self, group: int) -> bool:
        return group in self._moves

    def assigned(self, number: int) -> list[int]:
        """The groups that a server takes part in."""
        moving = (group for group, move in self._moves.items() if move.new == number)
        return sorted({*(group for group, nodes in self.nodes.items() if number in nodes), *moving})

    def incarnation(self, group: int, number: int) -> int:
        return self._incarnations[group, number] + 1

    def first(self, group: int, number: int) -> str:
        """How a server takes part for the first time; nothing if it did before."""
        if (group, number) in self._opened:
            return ""
        self._opened.add((group, number))
        return "new" if (group, number) in self._new else "joins"

    def step(self) -> None:
        world = self._world
        is_over = world.now_ms >= world.plan.faulty_ms
        world.at(world.now_ms + world.rng.randint(30, 200), self.step)
        for group in self.nodes:
            if group in self._moves:
                self._go_on(group, self._moves[group])
            elif not is_over and world.rng.random() < 0.2:
                self._begin(group)

    def _begin(self, group: int) -> None:
        world = self._world
        spare = [number for number in world.servers if number not in self.nodes[group] and world.servers[number].is_up]
        if not spare:
            return
        move = self._moves[group] = Move(world.rng.choice(spare), world.rng.choice(self.nodes[group]))
        world.note(f"group {group} moves from {move.old} to {move.new}")
        server = world.servers[move.new]
        server.guard(lambda: server.open(group))

    def _leader(self, group: int) -> Member | None:
        world = self._world
        servers = (server for server in world.servers.values() if server.is_up and server.paused_until <= world.now_ms)
        members = [server.node.members.get(group) for server in servers if hasattr(server, "node")]
        leaders = [member for member in members if member is not None and member.is_leader]
        return max(leaders, key=lambda member: member.term, default=None)

    def _go_on(self, group: int, move: Move) -> None:
        server, leader = self._world.servers[move.new], self._leader(group)
        member = server.node.members.get(group) if server.is_up else None
        if leader is None or member is None:
            return
        status, new = leader.status(), member.raft_id
        voters, learners = status["voters"], status["learners"]
        old = [id for id in (*voters, *learners, *status["outgoing"]) if node_of(id) == move.old]
        if new in voters and not old and not status["outgoing"]:
            self._end(group, move)
        elif new not in (*voters, *learners):
            leader.change([], [], [new])
        elif new in learners and status["matched"][new][0] + NEAR_COUNT >= status["last"]:
            leader.change([new], old, [])

    def _end(self, group: int, move: Move) -> None:
        """The old server is told; one that is down hears it when it starts."""
        del self._moves[group]
        self.done += 1
        self.nodes[group] = [number for number in self.nodes[group] if number != move.old] + [move.new]
        self._world.note(f"group {group} has moved to {move.new}")
        old = self._world.servers[move.old]
        self._opened.discard((group, move.old))
        self._new.discard((group, move.old))
        used = old.machines[group].member if group in old.machines else None
        latest = used.raft_id & 0xFFFF if used is not None else 0
        self._incarnations[group, move.old] = max(self._incarnations[group, move.old], latest) + 10
        if old.is_up:
            old.guard(lambda: old.remove(group))
