"""The cluster's part of the monitoring pages: `meta_cluster` of /jsz, /raftz, and the meta group in /healthz."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jetlake.clock import go_duration
from jetlake.cluster.assignments import GroupPlan
from jetlake.cluster.info import replica
from jetlake.cluster.view import SYSTEM_TRAFFIC, ClusterView, GroupStatus, LogStatus, MemberStatus, server_name
from jetlake.wire.go_time import ZERO_TIME, format_time

NO_CONTACT = "JetStream has not established contact with a meta leader"
NOT_CURRENT = "JetStream is not current with the meta leader"


# /jsz


def meta_cluster(view: ClusterView) -> dict[str, Any]:
    """`meta_cluster` of /jsz."""
    status, meta, snapshot = view.meta_status(), view.meta, view.snapshot_times
    shown: dict[str, Any] = {"name": view.name}
    if status.leader:
        shown |= {"leader": server_name(view, status.leader), "peer": status.leader}
    own = view.peer if status.leader else ""
    replicas = [replica(view, member) for member in status.members if member.peer != own]
    if replicas:
        shown["replicas"] = sorted(replicas, key=lambda each: str(each["name"]))
    times: dict[str, Any] = {"last_time": format_time(snapshot.last_ns) if snapshot.last_ns else ZERO_TIME}
    if snapshot.last_duration_ns:
        times["last_duration"] = snapshot.last_duration_ns
    return {
        **shown,
        "cluster_size": len(status.members),
        "quorum_needed": status.quorum,
        "pending": status.committed - status.applied,
        "pending_requests": meta.inflight_count,
        "pending_infos": 0,
        "snapshot": {"pending_entries": meta.pending_entries, "pending_size": meta.pending_size, **times},
    }


def led_counts(view: ClusterView) -> dict[str, int]:
    """`streams_leader` and `consumers_leader` of /jsz?raft=1: what this server leads. What is zero is left out."""
    streams = [stream for stream in view.meta.state.streams() if _leads(view, stream.group)]
    consumers = sum(view.delivers(stream, name) for stream in view.meta.state.streams() for name in stream.consumers)
    counts = {"streams_leader": len(streams), "consumers_leader": consumers}
    return {name: count for name, count in counts.items() if count}


def _leads(view: ClusterView, group: GroupPlan) -> bool:
    if len(group.peers) == 1:
        return group.peers[0] == view.peer
    status = view.status(group)
    return status is not None and status.leader == view.peer


def raft_groups(view: ClusterView, account: str, name: str) -> dict[str, Any]:
    """What /jsz?raft=1 adds to a stream: its group, and those of its consumers."""
    stream = view.meta.state.stream(account, name)
    if stream is None:
        return {}
    shown: dict[str, Any] = {"stream_raft_group": stream.group.name}
    if stream.consumers:
        shown["consumer_raft_groups"] = [
            {"name": name, "raft_group": consumer.group.name} for name, consumer in sorted(stream.consumers.items())
        ]
    return shown


def ha_assets(view: ClusterView) -> int:
    """The groups that this server is a member of."""
    load = view.meta.state.loads.get(view.peer)
    return 1 + (load.ha_count if load is not None else 0)


# /raftz


def raftz(view: ClusterView, account: str = "", group: str = "") -> dict[str, dict[str, Any]] | None:
    """The groups of an account, the system account's unless it is named; None if there are none."""
    account = account or SYSTEM_TRAFFIC
    found: dict[str, Any] = {}
    if account == SYSTEM_TRAFFIC:
        found["_meta_"] = _group(view, view.meta_status())
    for name, plan in sorted(_plans(view, account)):
        status = view.status(plan)
        if status is not None:
            found[name] = _group(view, status)
    if group:
        found = {name: each for name, each in found.items() if name == group}
    return {account: found} if found else None


def _plans(view: ClusterView, account: str) -> Iterable[tuple[str, GroupPlan]]:
    streams = view.meta.state.accounts.get(account, {}).values()
    return [(stream.group.name, stream.group) for stream in streams if stream.is_replicated]


def _group(view: ClusterView, status: GroupStatus) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": view.peer,
        "state": status.state,
        "size": len(status.members),
        "quorum_needed": status.quorum,
        "committed": status.committed,
        "applied": status.applied,
    }
    if status.leader:
        shown["leader"] = status.leader
    if status.leader_since_ns:
        shown["leader_since"] = format_time(status.leader_since_ns)
    shown |= {"ever_had_leader": status.had_leader, "term": status.term}
    if status.voted_for:
        shown["voted_for"] = status.voted_for
    others = sorted((each for each in status.members if each.peer != view.peer), key=lambda each: each.peer)
    return {
        **shown,
        "pterm": status.last_term,
        "pindex": status.last_index,
        "system_account": True,
        "traffic_account": SYSTEM_TRAFFIC,
        "ipq_proposal_len": status.waiting_count,
        "ipq_entry_len": 0,
        "ipq_resp_len": 0,
        "ipq_apply_len": status.committed - status.applied,
        "wal": _wal(status.log),
        "peers": {each.peer: _peer(view, each) for each in others},
    }


def _wal(log: LogStatus) -> dict[str, Any]:
    return {
        "messages": log.entry_count,
        "bytes": log.size,
        "first_seq": log.first_index,
        "first_ts": format_time(log.first_ns) if log.first_ns else ZERO_TIME,
        "last_seq": log.last_index,
        "last_ts": format_time(log.last_ns) if log.last_ns else ZERO_TIME,
        "consumer_count": 0,
    }


def _peer(view: ClusterView, member: MemberStatus) -> dict[str, Any]:
    name = view.server_name(member.peer)
    shown: dict[str, Any] = {"name": name or "", "known": name is not None}
    if member.replicated_index:
        shown["last_replicated_index"] = member.replicated_index
    if member.active_ns:
        shown["last_seen"] = go_duration(member.active_ns)
    return shown


# /healthz


def health_problem(view: ClusterView) -> str | None:
    """What is wrong with the meta group as this server sees it; None if nothing is. The status is 503 JETSTREAM."""
    if view.meta.is_leaderless:
        return NO_CONTACT
    status = view.meta_status()
    return NOT_CURRENT if status.applied < status.committed else None
