"""How a group is, made from this server's member of it: see `view.GroupStatus`."""

from __future__ import annotations

from jetlake.cluster.assignments import Assignments
from jetlake.cluster.engine import node_of
from jetlake.cluster.member import Member
from jetlake.cluster.peers import Peers
from jetlake.cluster.view import GroupStatus, LogStatus, MemberStatus

_STATES = {"leader": "LEADER", "follower": "FOLLOWER"}


def group_status(member: Member, state: Assignments, peers: Peers, since_ns: int = 0) -> GroupStatus:
    """How a group is; `since_ns` says since when this server leads it."""
    status, own = member.status(), member.raft_id
    names = {node.number: node.peer for node in state.nodes.values()}
    last, matched = status["last"], status["matched"]
    found = []
    for id in status["voters"]:  # learners are on their way: they neither vote nor count
        number = node_of(id)
        index = matched.get(id, (0, False))[0] if member.is_leader else 0
        is_own = id == own
        lag = max(last - index, 0) if member.is_leader and not is_own else 0
        if is_own:
            lag = max(status["commit"] - status["applied"], 0)
        is_current = (is_own or number in peers.up) and not lag
        active_ns = 0 if is_own else peers.silent_ns(number)
        found.append(MemberStatus(names.get(number, f"{number:08}"), is_current, active_ns, lag, index))
    return GroupStatus(
        leader=names.get(node_of(member.leader), "") if member.leader else "",
        leader_since_ns=since_ns if member.is_leader else 0,
        members=tuple(found),
        state=_STATES.get(status["role"], "CANDIDATE"),
        had_leader=status["term"] > 1 or bool(member.leader),
        term=status["term"],
        voted_for=names.get(node_of(status["vote"]), "") if status["vote"] else "",
        committed=status["commit"],
        applied=status["applied"],
        last_term=status["term"],
        last_index=last,
        waiting_count=max(last - status["commit"], 0),
        log=LogStatus(last - status["first"] + 1, status["size"], status["first"], 0, last, 0),
    )
