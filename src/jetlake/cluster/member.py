"""A member: what one server has of one group, as whatever is replicated sees it (`group.Group`).

It leads, for its machine, from when it applied the first entry of its own term: then everything that earlier leaders
got committed is applied. Until then it takes no proposals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from jetlake.cluster.group import Machine

if TYPE_CHECKING:
    from jetlake.cluster._engine import Engine, Status

Read = Callable[[bool], None]


class Copier(Protocol):
    """Gets what a member is too far behind for: the log does not have it any more."""

    def copy(self, member: Member, source: int, index: int) -> None:
        """Copy the state of a node, as it is at an index or later, in whatever time that takes.

        The end is `member.install`, once the copy is durable here, or `member.copy_failed`. Until then no entries are
        applied.
        """


class Member:
    """This server's member of a group. Made by `Node.open`."""

    def __init__(
        self, engine: Engine, wake: Callable[[], None], id: int, raft_id: int, machine: Machine, applied: int
    ) -> None:
        self._engine, self._wake = engine, wake
        self.id, self.raft_id, self.machine = id, raft_id, machine
        self.copier: Copier | None = None
        self.leader = 0
        self.term = 0
        self.applied = applied
        self.voters: list[int] = []
        self.learners: list[int] = []
        self.is_open = True
        self.is_joining = False  # under a new raft id, which is not one of the members yet
        self._wins_term = 0  # in which it leads as soon as it applied the first entry of it
        self._is_leader = False
        self._reads: dict[int, Read] = {}
        self._due: list[tuple[int, Read]] = []

    @property
    def is_leader(self) -> bool:
        return self._is_leader

    def propose(self, data: bytes) -> int:
        assert data, "an empty entry is the engine's own"
        index = self._engine.propose(self.id, data) if self._is_leader else 0
        if index:
            self._wake()
        return index

    def transfer(self, to: int) -> None:
        if self.is_open:
            self._engine.transfer(self.id, to)
            self._wake()

    def step_down(self) -> None:
        if self.is_open:
            self._engine.step_down(self.id)
            self._wake()

    def checkpoint(self, index: int, note: bytes = b"") -> None:
        """What was applied up to here is durable by other means; the note is given back after a restart."""
        if self.is_open:
            self._engine.checkpoint(self.id, index, note)
            self._wake()

    def change(self, add: list[int], remove: list[int], learners: list[int]) -> bool:
        """Change who is a member, all in one step; False when this is not the leader or another change is under way."""
        done = self.is_open and self._engine.change(self.id, add, remove, learners)
        self._wake()
        return done

    def read(self, done: Read) -> None:
        """Call `done(True)` once all that was committed before is applied here, `done(False)` if nobody can say."""
        token = len(self._reads) + 1
        while token in self._reads:
            token += 1
        if not self._is_leader or not self._engine.read_index(self.id, token):
            done(False)
            return
        self._reads[token] = done
        self._wake()

    def status(self) -> Status:
        return self._engine.status(self.id)

    # Copies

    def position(self) -> tuple[int, int, bytes]:
        """What a copy of this member's state is to be installed with: its index and term, and the configuration."""
        return self._engine.position(self.id)

    def install(self, index: int, term: int, conf: bytes, note: bytes = b"") -> bool:
        """The copied state is durable here. False when this member got there by itself: then it is not to be used."""
        if not self.is_open or not self._engine.install(self.id, index, term, conf, note):
            return False
        self.applied = index
        self._wake()
        return True

    def copy_failed(self) -> None:
        if self.is_open:
            self._engine.copy_failed(self.id)
            self._wake()

    # What the node tells

    def apply(self, index: int, term: int, data: bytes) -> None:
        """An entry was committed."""
        self.applied = index
        if data:
            self.machine.apply(index, data)
        if term == self._wins_term:
            self._wins_term, self._is_leader = 0, True
            self.machine.lead(term)
        while self._due and self._due[0][0] <= index:
            self._due.pop(0)[1](True)

    def role(self, term: int, is_leader: bool, leader: int) -> None:
        """Who leads has changed."""
        self.leader, self.term = leader, term
        if is_leader:
            self._wins_term = term
            return
        self._wins_term = 0
        if self._is_leader:
            self._is_leader = False
            self.stop_reads()
        self.machine.follow(leader)

    def read_at(self, index: int, token: int) -> None:
        """A read may be made once an index is applied."""
        done = self._reads.pop(token, None)
        if done is not None and index <= self.applied:
            done(True)
        elif done is not None:
            self._due.append((index, done))

    def stop_reads(self) -> None:
        reads, self._reads, self._due = [*self._reads.values(), *(read for _, read in self._due)], {}, []
        for done in reads:
            done(False)

    def members(self, voters: list[int], learners: list[int]) -> None:
        """The configuration has changed."""
        self.voters, self.learners = voters, learners
        if self.raft_id in (*voters, *learners):
            self.is_joining = False


if TYPE_CHECKING:
    from jetlake.cluster.group import Group

    def _as_group(member: Member) -> Group:
        return member
