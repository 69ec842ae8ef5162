"""A group in memory, in place of the consensus: members that apply late, leaders that change, proposals that get lost.

group = MemoryGroup([machine, machine, machine])
group.elect(0)
group.members[0].propose(b"...")        # waits
group.commit()                          # is committed
group.deliver()                         # and applied by everybody
"""

from __future__ import annotations

from typing import Any

from jetlake.cluster.engine import raft_id
from jetlake.cluster.group import META_GROUP


class Member:
    """One server's member of the group: a `Group`."""

    id = META_GROUP

    def __init__(self, group: MemoryGroup, own: int, machine: Any) -> None:
        self._group, self.raft_id, self.machine = group, own, machine
        self.applied = 0
        self.knows = 0  # the raft id of the leader, as far as it is known here
        self.checkpoints: list[int] = []
        machine.group = self

    @property
    def is_leader(self) -> bool:
        return self._group.leader is self

    @property
    def leader(self) -> int:
        return self.raft_id if self.is_leader else self.knows

    def propose(self, data: bytes) -> int:
        return self._group.propose(self, data)

    def transfer(self, to: int) -> None:
        self._group.transfers.append(to)

    def step_down(self) -> None:
        self._group.transfers.append(0)

    def checkpoint(self, index: int) -> None:
        self.checkpoints.append(index)

    def catch_up(self, count: int | None = None) -> None:
        """Apply what is committed, or some of it."""
        end = len(self._group.log) if count is None else min(self.applied + count, len(self._group.log))
        for index in range(self.applied + 1, end + 1):
            self.applied = index
            if data := self._group.log[index - 1]:  # a new leader's own entry is empty, and for nobody
                self.machine.apply(index, data)


class MemoryGroup:
    """The members, and the log that they agree on. Indexes begin at 1."""

    def __init__(self, machines: list[Any]) -> None:
        self.log: list[bytes] = []
        self.waiting: list[bytes] = []  # proposed and not committed
        self.leader: Member | None = None
        self.term = 0
        self.waiting_max = 1_000
        self.transfers: list[int] = []
        self.members = [Member(self, raft_id(number, 1), machine) for number, machine in enumerate(machines, 1)]

    def propose(self, member: Member, data: bytes) -> int:
        if member is not self.leader or len(self.waiting) >= self.waiting_max:
            return 0
        self.waiting.append(data)
        return len(self.log) + len(self.waiting)

    def commit(self, count: int | None = None) -> None:
        """A quorum has what was proposed, or the first so many of it."""
        count = len(self.waiting) if count is None else count
        self.log += self.waiting[:count]
        del self.waiting[:count]

    def deliver(self) -> None:
        """Everybody applies all that is committed."""
        for member in self.members:
            member.catch_up()

    def settle(self) -> None:
        """Commit and apply until nothing is left to do."""
        while self.waiting or any(member.applied < len(self.log) for member in self.members):
            self.commit()
            self.deliver()

    def elect(self, number: int, *, surviving: int = 0) -> None:
        """Let a member lead; so many of the waiting proposals of the old leader are committed, the others are lost."""
        self.depose(surviving=surviving)
        self.term += 1
        leader = self.members[number]
        self.log.append(b"")
        leader.catch_up()
        self.leader = leader
        leader.machine.lead(self.term)
        for member in self.members:
            if member is not leader:
                member.knows = leader.raft_id
                member.machine.follow(leader.raft_id)

    def depose(self, *, surviving: int = 0) -> None:
        """Nobody leads."""
        self.commit(min(surviving, len(self.waiting)))
        self.waiting.clear()
        self.leader = None
        for member in self.members:
            if member.knows or member.machine.term == self.term:
                member.knows = 0
                member.machine.follow(0)
