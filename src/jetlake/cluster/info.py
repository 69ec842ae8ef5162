"""The `cluster` object in the infos of streams and consumers: keys, order and presence as nats-server has them.

    {"name":"C1","raft_group":"S-R3F-1rLnj50M","leader":"n1","leader_since":"...","system_account":true,
     "traffic_account":"$SYS","replicas":[{"name":"n2","current":true,"active":278670,"peer":"44jzkV9D"}, ...]}

`leader_since` is told by the leader alone. Without a leader there is no `leader`, and the server that answers is one of
the replicas. What has one replica has no group: {"name":"C1","leader":"n3"}.
"""

from __future__ import annotations

from typing import Any

from jetlake.cluster.assignments import Desired, GroupPlan, peers_about
from jetlake.cluster.view import LOST_NS, SYSTEM_TRAFFIC, ClusterView, GroupStatus, MemberStatus, server_name
from jetlake.wire.go_time import format_time


def cluster_block(view: ClusterView, group: GroupPlan) -> dict[str, Any]:
    """The `cluster` object of what a group holds."""
    status = view.status(group)
    if status is None and group.desired is None:
        return {"name": view.name, "leader": server_name(view, group.peers[0])}
    block: dict[str, Any] = {"name": view.name, "raft_group": group.name}
    if status is not None:
        block |= _office(view, status)
    replicas = _replicas(view, group, status)
    if replicas:
        block["replicas"] = replicas
    if group.desired is not None:
        block["desired"] = _desired(view, group.desired)
    return block


def _office(view: ClusterView, status: GroupStatus) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if status.leader:
        shown["leader"] = server_name(view, status.leader)
    if status.leader_since_ns:
        shown["leader_since"] = format_time(status.leader_since_ns)
    return {**shown, "system_account": True, "traffic_account": SYSTEM_TRAFFIC}


def _replicas(view: ClusterView, group: GroupPlan, status: GroupStatus | None) -> list[dict[str, Any]]:
    """The members but for this server, and those that are to be members, by name."""
    own = view.peer if status is None or status.leader else ""
    wanted = peers_about(group)
    members = {member.peer: member for member in (status.members if status is not None else ())}
    shown = [replica(view, member) for peer, member in members.items() if peer != own and peer in wanted]
    for peer in group.peers:
        if peer != own and peer not in members:
            shown.append(replica(view, MemberStatus(peer), is_pending=status is not None))
    return sorted(shown, key=lambda each: str(each["name"]))


def replica(view: ClusterView, member: MemberStatus, *, is_pending: bool = False) -> dict[str, Any]:
    """One server of a group."""
    is_named = view.server_name(member.peer) is not None
    shown: dict[str, Any] = {
        "name": server_name(view, member.peer),
        "current": member.is_current and member.active_ns <= LOST_NS,
    }
    if not view.is_online(member.peer):
        shown["offline"] = True
    shown["active"] = member.active_ns
    if member.lag and is_named:
        shown["lag"] = member.lag
    shown["peer"] = member.peer
    if is_pending:
        shown["pending"] = True
    return shown


def _desired(view: ClusterView, desired: Desired) -> dict[str, Any]:
    shown: dict[str, Any] = {"created": format_time(desired.created_ns)}
    if desired.cluster:
        shown["name"] = desired.cluster
    shown["replicas"] = [{"name": server_name(view, peer), "peer": peer} for peer in desired.peers]
    if (origin := desired.origin) is not None:
        shown["origin"] = {"replicas": origin.replicas}
        if origin.placement is not None:
            fields = {
                "cluster": origin.placement.cluster,
                "tags": list(origin.placement.tags),
            }
            shown["origin"]["placement"] = {name: value for name, value in fields.items() if value}
    return shown


def all_replicas(view: ClusterView, status: GroupStatus) -> list[dict[str, Any]]:
    """Every member of a group, this server too, as advisories tell them."""
    return [replica(view, member) for member in status.members]
