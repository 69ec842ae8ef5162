"""The `cluster` object, and what monitoring shows, in states that a healthy cluster is not in."""

from __future__ import annotations

from typing import Any

import pytest

from jetlake.cluster.assignments import Desired, GroupPlan, Origin
from jetlake.cluster.info import cluster_block, replica
from jetlake.cluster.observe import NOT_CURRENT, ha_assets, health_problem, led_counts, meta_cluster, raftz
from jetlake.cluster.view import LOST_NS, GroupStatus, MemberStatus, is_offline
from jetlake.jetstream.streams.config import Placement
from tests.cluster.small_cluster import FakeNode, SmallCluster
from tests.cluster.things import N1, N2, N3, stream

PEERS = (N1, N2, N3)


@pytest.fixture
def cluster() -> SmallCluster:
    return SmallCluster()


@pytest.fixture
def node(cluster: SmallCluster) -> FakeNode:
    return cluster.nodes[0]


def group(**fields: Any) -> GroupPlan:
    return GroupPlan(**{"name": "G", "peers": PEERS, **fields})


def see(node: FakeNode, *members: MemberStatus, **fields: Any) -> dict[str, Any]:
    """The block when a server sees its group like this."""
    node.statuses["G"] = GroupStatus(members=members, **fields)
    return cluster_block(node, group())


def test_without_a_leader_the_server_itself_is_shown(node: FakeNode) -> None:
    shown = see(node, *map(MemberStatus, PEERS))
    assert "leader" not in shown and "leader_since" not in shown
    assert [each["name"] for each in shown["replicas"]] == ["n1", "n2", "n3"]


def test_a_follower_does_not_say_since_when_another_leads(node: FakeNode) -> None:
    shown = see(node, *map(MemberStatus, PEERS), leader=N2)
    assert shown["leader"] == "n2" and "leader_since" not in shown
    assert list(shown) == ["name", "raft_group", "leader", "system_account", "traffic_account", "replicas"]


def test_a_member_that_is_not_there_yet_is_pending(node: FakeNode) -> None:
    shown = see(node, MemberStatus(N1), MemberStatus(N2, True, 5), leader=N1)
    assert shown["replicas"] == [
        {"name": "n2", "current": True, "active": 5, "peer": N2},
        {"name": "n3", "current": False, "active": 0, "peer": N3, "pending": True},
    ]


def test_a_server_that_is_gone_is_offline_and_not_current(cluster: SmallCluster, node: FakeNode) -> None:
    cluster.lose(cluster.nodes[1])
    shown = replica(node, MemberStatus(N2, True, LOST_NS + 1, lag=3))
    assert shown == {
        "name": "n2", "current": False, "offline": True, "active": LOST_NS + 1, "lag": 3, "peer": N2
    }  # fmt: skip
    assert list(shown) == ["name", "current", "offline", "active", "lag", "peer"]


def test_a_server_that_nobody_knows_is_named_by_its_peer(node: FakeNode) -> None:
    shown = replica(node, MemberStatus("zzzzzzzz", lag=9))
    assert shown["name"] == "Server name unknown at this time (peerID: zzzzzzzz)" and "lag" not in shown


def test_a_move_shows_where_it_comes_from(node: FakeNode) -> None:
    origin = Origin(replicas=1, placement=Placement(tags=("ssd",)))
    desired = Desired(created_ns=1_700_000_000_000_000_000, peers=(N1, N2), cluster="C1", origin=origin)
    shown = cluster_block(node, group(peers=(N1,), desired=desired))
    assert shown["desired"] == {
        "created": "2023-11-14T22:13:20Z",
        "name": "C1",
        "replicas": [{"name": "n1", "peer": N1}, {"name": "n2", "peer": N2}],
        "origin": {"replicas": 1, "placement": {"tags": ["ssd"]}},
    }


# Streams whose servers are gone


@pytest.mark.parametrize(
    ("peers", "lost_s", "expected"),
    [
        ((N1, N2, N3), (), False),
        ((N1, N2, N3), (9,), False),
        ((N1, N2, N3), (9, 1), False),
        ((N1, N2, N3), (9, 3), True),
        ((N1,), (1.9,), False),
        ((N1,), (2,), True),
    ],
)
def test_a_stream_is_offline_when_a_quorum_is_gone_for_two_seconds(
    cluster: SmallCluster, peers: tuple[str, ...], lost_s: tuple[float, ...], expected: bool
) -> None:
    for gone, seconds in zip(cluster.nodes, lost_s, strict=False):
        gone.lost_ns = cluster.clock() - int(seconds * 1e9)
    assert is_offline(cluster.nodes[2], stream("S", *peers)) is expected


# Monitoring


def test_jsz_without_a_meta_leader_shows_everybody(cluster: SmallCluster, node: FakeNode) -> None:
    cluster.group.depose()
    shown = meta_cluster(node)
    assert "leader" not in shown and [each["name"] for each in shown["replicas"]] == ["n1", "n2", "n3"]


def test_what_a_server_leads_and_holds_is_counted(cluster: SmallCluster) -> None:
    for number in range(3):
        cluster.create(f"S{number}")
    cluster.send("STREAM.CREATE.R", {"name": "R", "num_replicas": 3})
    cluster.settle()
    assert [led_counts(node) for node in cluster.nodes] == [{"streams_leader": 1}] * 3
    assert [ha_assets(node) for node in cluster.nodes] == [2, 2, 2]
    found = cluster.leader.meta.state.stream("A", "R")
    assert found is not None
    leader = cluster.node(found.group.preferred)
    members = tuple(map(MemberStatus, PEERS))
    leader.statuses[found.group.name] = GroupStatus(leader=leader.peer, members=members, term=3)
    assert led_counts(leader)["streams_leader"] == 2
    shown = raftz(leader, account="A")
    assert shown is not None and shown["A"][found.group.name]["term"] == 3
    assert raftz(leader, account="A", group="other") is None


def test_a_server_that_is_behind_is_not_healthy(node: FakeNode) -> None:
    behind = node.meta_status()._replace(committed=99)
    node.meta_status = lambda: behind  # type: ignore[method-assign]
    assert health_problem(node) == NOT_CURRENT
