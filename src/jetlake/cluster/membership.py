"""Taking a member in anew that lost some of its log.

It has a new raft id and asks all nodes for a place (`ask`): who leads its group it may not know any more. The leader
makes the new id a learner, which copies the state; when it is near the end of the log, the leader swaps it for the old
id in one joint change (`Joins`). The old id never speaks again. There must be a quorum without it; and who was removed
from a group gets no place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.cluster.engine import node_of
from jetlake.cluster.member import Member

if TYPE_CHECKING:
    from jetlake.cluster._engine import Engine

NEAR_COUNT = 1000  # entries that a learner may lack when it becomes a voter
STEP_TICKS = 5


def ask(engine: Engine, member: Member, nodes: list[int]) -> None:
    """Ask other nodes for a place."""
    engine.join(member.id, member.raft_id - 1, member.raft_id, nodes)


class Joins:
    """Members that asked for a place, by group and raft id: the leader's list."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], None] = {}

    def add(self, group: int, new: int) -> None:
        self._asked[group, new] = None

    def step(self, members: dict[int, Member]) -> None:
        """Take the next step for each of them; only a leader can."""
        for group, new in list(self._asked):
            member = members.get(group)
            if member is None or not member.is_leader or self._is_done(member, new):
                del self._asked[group, new]  # if that was wrong it asks again

    def _is_done(self, member: Member, new: int) -> bool:
        status = member.status()
        voters, learners = status["voters"], status["learners"]
        same = [id for id in (*voters, *learners) if node_of(id) == node_of(new) and id != new]
        if not same or max(same) > new:
            return True  # it is in already, was removed, or is not the latest
        if new not in (*voters, *learners):
            member.change([], [], [new])
        elif status["matched"][new][0] + NEAR_COUNT >= status["last"]:
            is_voter = any(id in voters for id in same)
            member.change([new] if is_voter and new not in voters else [], same, [])
        return False
