"""What the leader of the meta group sets right by itself."""

from __future__ import annotations

from jetlake.cluster.assignments import StreamAssignment, peer_id
from jetlake.cluster.meta_codec import NodeJoined, NodeRemoved
from jetlake.cluster.reconcile import Reconciler
from tests.cluster.small_cluster import SmallCluster
from tests.cluster.things import N1, N2, N3, node

N4 = peer_id("n4")


def made(cluster: SmallCluster, replicas: int = 3) -> StreamAssignment:
    cluster.send("STREAM.CREATE.S", {"name": "S", "num_replicas": replicas})
    cluster.settle()
    found = cluster.leader.meta.state.stream("A", "S")
    assert found is not None
    return found


def remove(cluster: SmallCluster, peer: str) -> None:
    cluster.leader.meta.propose(NodeRemoved(peer=peer))
    cluster.settle()


def reconcilers(cluster: SmallCluster) -> list[Reconciler]:
    return [Reconciler(each) for each in cluster.nodes]


def test_a_stream_leaves_a_server_that_was_removed() -> None:
    cluster = SmallCluster()
    found, leader = made(cluster), reconcilers(cluster)[0]
    cluster.leader.meta.propose(NodeJoined(node=node(4)))
    remove(cluster, N2)
    leader.look()
    cluster.settle()
    assert found.group.desired is not None and set(found.group.desired.peers) == {N1, N3, N4}
    before = cluster.leader.meta.applied
    leader.look()  # there is nothing more to do
    cluster.settle()
    assert cluster.leader.meta.applied == before


def test_without_a_spare_server_it_goes_on_with_those_that_stay() -> None:
    cluster = SmallCluster()
    found, leader = made(cluster), reconcilers(cluster)[0]
    remove(cluster, N3)
    leader.look()
    cluster.settle()
    assert found.group.desired is not None and set(found.group.desired.peers) == {N1, N2}
    assert found.config.num_replicas == 3


def test_a_new_leader_takes_over_what_the_old_one_left() -> None:
    cluster = SmallCluster()
    made(cluster)
    reconcilers(cluster)
    remove(cluster, N3)
    cluster.group.elect(1)  # before anybody looked
    cluster.settle()
    now = cluster.leader.meta.state.stream("A", "S")
    assert now is not None and now.group.desired is not None and N3 not in now.group.desired.peers


def test_a_stream_of_one_replica_stays_with_its_server() -> None:
    cluster = SmallCluster()
    found, leader = made(cluster, 1), reconcilers(cluster)[0]
    remove(cluster, found.group.peers[0])
    leader.look()
    cluster.settle()
    assert found.group.desired is None


def test_a_stream_on_its_way_to_a_server_that_was_removed_goes_elsewhere() -> None:
    cluster = SmallCluster()
    found, leader = made(cluster, 1), reconcilers(cluster)[0]
    cluster.ask("STREAM.UPDATE.S", {"name": "S", "num_replicas": 3})
    gone = next(peer for peer in (N2, N3) if peer not in found.group.peers)
    remove(cluster, gone)
    leader.look()
    cluster.settle()
    assert found.group.desired is not None and set(found.group.desired.peers) == {N1, N2, N3} - {gone}
    assert found.group.desired.origin is not None and found.group.desired.origin.replicas == 1


def test_a_group_that_has_arrived_is_written_down() -> None:
    cluster = SmallCluster()
    found, leader = made(cluster, 1), reconcilers(cluster)[0]
    cluster.ask("STREAM.UPDATE.S", {"name": "S", "num_replicas": 3})
    assert found.group.desired is not None
    leader.arrived("A", "S", found.incarnation + 1)  # of another stream
    leader.arrived("A", "S", found.incarnation)
    cluster.settle()
    assert found.group.desired is None and set(found.group.peers) == {N1, N2, N3}
    assert found.group.preferred in found.group.peers and found.is_replicated
    assert cluster.leader.meta.state.loads[N1].ha_count == 1


def test_a_server_that_cannot_move_streams_does_not_try() -> None:
    cluster = SmallCluster()
    found, leader = made(cluster), reconcilers(cluster)[0]
    cluster.leader.can_move = False
    remove(cluster, N3)
    leader.look()
    cluster.settle()
    assert found.group.desired is None
