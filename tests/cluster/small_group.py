"""A group in this process: members that copy a leader's log when a test says so. No clock, no network, no threads.

It keeps the promises of `jetlake.cluster.group` as consensus does: an entry is committed once a majority has it in the
term of a leader that is still one; a leader has all that was committed; it begins to lead when its own empty entry is
applied. A leader that was replaced goes on for as long as nobody tells it, and loses what it alone has.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jetlake.cluster.group import Machine


@dataclass
class Member:
    """One server's member of the group."""

    world: SmallGroup
    number: int
    machine: Machine
    log: list[tuple[int, bytes]] = field(default_factory=list)  # term and data, from index 1 on
    term: int = 0  # that it knows of
    leader: int = 0
    commit: int = 0
    applied: int = 0
    refuses: int = 0  # how many proposals it does not take, as if too much were uncommitted

    @property
    def id(self) -> int:
        return 1

    @property
    def is_leader(self) -> bool:
        return self.leader == self.number

    def propose(self, data: bytes) -> int:
        if not self.is_leader or self.refuses > 0:
            self.refuses -= 1
            return 0
        self.log.append((self.term, data))
        return len(self.log)

    def transfer(self, to: int) -> None:
        self.world.elect(to)

    def step_down(self) -> None:
        if self.is_leader:
            self.leader = 0
            self.machine.follow(0)

    def checkpoint(self, index: int) -> None:
        """The log keeps everything."""

    def apply_all(self) -> None:
        """Apply what is known to be committed."""
        while self.applied < self.commit:
            term, data = self.log[self.applied]
            self.applied += 1
            self.machine.apply(self.applied, data)
            if self.is_leader and term == self.term and not data:
                self.machine.lead(term)

    def hear(self, leader: Member) -> None:
        """Learn of a leader in a later term."""
        if self.term < leader.term:
            was_leader, self.term, self.leader = self.is_leader, leader.term, leader.number
            if was_leader:
                self.machine.follow(leader.number)


class SmallGroup:
    """All members; numbers are from 1."""

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self.leader = self.term = 0

    def join(self, machine: Machine) -> Member:
        number = len(self.members) + 1
        self.members[number] = Member(self, number, machine)
        return self.members[number]

    @property
    def committed(self) -> list[bytes]:
        """All entries that were committed, as far as any member knows."""
        member = max(self.members.values(), key=lambda member: member.commit)
        return [data for _, data in member.log[: member.commit]]

    def may_lead(self, number: int) -> bool:
        """Whether a majority would vote for a member: its log is no less than theirs."""
        own = _weight(self.members[number])
        return sum(_weight(other) <= own for other in self.members.values()) * 2 > len(self.members)

    def elect(self, number: int) -> bool:
        """Let a member lead, if it may. The leader before it does not know yet."""
        if not self.may_lead(number):
            return False
        self.term += 1
        member = self.members[number]
        was_leader = member.is_leader
        self.leader, member.leader, member.term = number, number, self.term
        if was_leader:
            member.machine.follow(number)
        member.log.append((self.term, b""))
        return True

    def copy(self, number: int, count: int = 1 << 30) -> None:
        """Bring a member some entries further, and let it apply what is committed."""
        leader, member = self.members[self.leader], self.members[number]
        if member is leader:
            return
        member.hear(leader)
        same = 0
        while same < min(len(leader.log), len(member.log)) and leader.log[same] == member.log[same]:
            same += 1
        assert same >= member.commit, "what was committed is never overruled"
        member.log = leader.log[
            : min(max(same, len(member.log) if same == len(member.log) else 0) + count, len(leader.log))
        ]
        self.agree()
        member.commit = max(member.commit, min(leader.commit, len(member.log)))
        member.apply_all()

    def agree(self) -> None:
        """The leader finds out what a majority has."""
        leader = self.members[self.leader]
        for index in range(len(leader.log), leader.commit, -1):
            term, _ = leader.log[index - 1]
            holders = [other for other in self.members.values() if other.log[:index] == leader.log[:index]]
            if term == leader.term and len(holders) * 2 > len(self.members):
                leader.commit = index
                break
        leader.apply_all()

    def settle(self) -> None:
        """Everybody has everything."""
        for _ in range(2):
            for number in self.members:
                self.copy(number)


def _weight(member: Member) -> tuple[int, int]:
    return (member.log[-1][0] if member.log else 0, len(member.log))
