"""Bare engines that talk to each other at once: no files, no time but the ticks that a test gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jetlake.cluster.engine import WHY_NOT, new_engine, node_of, raft_id

if TYPE_CHECKING:
    from jetlake.cluster._engine import Engine

needs_engine = pytest.mark.skipif(bool(WHY_NOT), reason=f"the consensus engine is not built: {WHY_NOT}")


def ids(*nodes: int) -> list[int]:
    return [raft_id(node, 1) for node in nodes]


class Engines:
    """Engines of nodes 1 to n, with one group 7 of all of them."""

    def __init__(self, count: int = 3, seed: int = 1, **kept: int) -> None:
        self.kept = kept
        self.all: dict[int, Engine] = {}
        self.wals: dict[int, list[bytes]] = {}
        self.applied: dict[int, list[bytes]] = {}
        self.wanted: list[tuple[int, int, int, int]] = []
        self.forgotten: list[tuple[int, int]] = []
        self.joins: list[tuple[int, int, int]] = []
        self.cut: set[tuple[int, int]] = set()
        for node in range(1, count + 1):
            self.add(node, seed)
            self.all[node].open(7, raft_id(node, 1), ids(*range(1, count + 1)), [])

    def add(self, node: int, seed: int = 1) -> Engine:
        self.all[node] = new_engine(node, seed, **self.kept)
        self.wals.setdefault(node, [])
        self.applied[node] = []
        return self.all[node]

    def restart(self, node: int, seed: int = 2, keep: int | None = None) -> Engine:
        """A new engine with what the old one wrote, or the first writes of that."""
        del self.wals[node][keep if keep is not None else len(self.wals[node]) :]
        engine = self.add(node, seed)
        for body in self.wals[node]:
            engine.replay(body)
        return engine

    def turn(self, node: int) -> None:
        engine = self.all[node]
        number, wal, messages = engine.ready()
        self.send(node, messages)
        if wal:
            self.wals[node].append(wal)
        later, applied, _, _, wanted, forgotten, _, joins = engine.persisted(number)
        self.send(node, later)
        self.applied[node] += [data for _, _, _, data in applied if data]
        self.wanted += [(node, *each) for each in wanted]
        self.forgotten += [(node, group) for group in forgotten]
        self.joins += joins

    def send(self, source: int, messages: list[tuple[int, bytes]]) -> None:
        for node, data in messages:
            if node in self.all and (source, node) not in self.cut:
                assert self.all[node].feed(source, 1, data) == len(data)

    def settle(self) -> None:
        while busy := [node for node, engine in self.all.items() if engine.is_dirty()]:
            for node in busy:
                self.turn(node)

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            for engine in self.all.values():
                engine.tick()
            self.settle()

    def elect(self, node: int) -> None:
        self.all[node].campaign(7)
        self.settle()
        assert self.role(node) == "leader"

    def propose(self, node: int, *values: bytes) -> None:
        for value in values:
            assert self.all[node].propose(7, value)
        self.settle()

    def role(self, node: int) -> str:
        return self.all[node].status(7)["role"]

    def leaders(self) -> list[int]:
        return [node for node in self.all if self.role(node) == "leader"]

    def copy(self, group: int = 7) -> None:
        """Carry out the copies that were asked for."""
        wanted, self.wanted = self.wanted, []
        for node, _, leader, least in wanted:
            source = node_of(leader)
            index, term, conf = self.all[source].position(group)
            assert index >= least
            self.applied[node] = list(self.applied[source])
            self.all[node].install(group, index, term, conf, b"copied")
        self.settle()
