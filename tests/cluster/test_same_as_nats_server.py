"""What a cluster says, beside what a cluster of three real nats-servers says in the same state.

`Captured` states are built by hand here, equal to those of the real cluster; answers are compared by their keys, the
order of them, and the kinds of values; errors by every word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from jetlake.cluster.advisories import GroupAdvisories
from jetlake.cluster.assignments import Desired, GroupPlan, Origin
from jetlake.cluster.info import cluster_block
from jetlake.cluster.observe import health_problem, meta_cluster, raftz
from jetlake.cluster.view import GroupStatus, LogStatus, MemberStatus, SnapshotTimes
from tests.broker.sessions import connect, make_broker
from tests.cluster.real_cluster import TAGS, RealCluster, real_cluster, shape
from tests.cluster.small_cluster import FakeNode, SmallCluster
from tests.cluster.things import N1, N2, N3
from tests.compat.peer import Peer

S_TIME = 1_700_000_000_123_456_789
PEERS = (N1, N2, N3)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with real_cluster(tmp_path_factory.mktemp("real")) as cluster:
        cluster.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": 3})
        cluster.ask("STREAM.CREATE.R1", {"name": "R1", "subjects": ["r1.>"]})
        durable = {"durable_name": "D", "name": "D", "ack_policy": "explicit"}
        cluster.ask("CONSUMER.CREATE.S.D", {"stream_name": "S", "config": durable})
        yield cluster


@pytest.fixture
def ours() -> SmallCluster:
    return SmallCluster(tags=TAGS)


def group(name: str = "S-R3F-aaaaaaaa", **fields: Any) -> GroupPlan:
    return GroupPlan(**{"name": name, "peers": PEERS, "cluster": "C1", **fields})


def led(node: FakeNode, leader: str = N1, *, own_since: bool = True, **fields: Any) -> FakeNode:
    """A server that sees the group of `group()` with everybody current."""
    members = tuple(
        MemberStatus(peer, True, 0 if peer == node.peer else 300, replicated_index=9 if own_since else 0)
        for peer in PEERS
    )
    since_ns = S_TIME if own_since else 0
    node.statuses[group().name] = GroupStatus(leader=leader, leader_since_ns=since_ns, members=members, **fields)
    return node


# Infos


def test_a_replicated_stream(real: RealCluster, ours: SmallCluster) -> None:
    theirs = real.make_current("STREAM.INFO.S")["cluster"]
    mine = cluster_block(led(ours.nodes[0]), group())
    assert shape(mine) == shape(theirs)
    assert [each["name"] for each in mine["replicas"]] == ["n2", "n3"]
    assert {each["peer"] for each in theirs["replicas"]} < set(PEERS)
    assert theirs["raft_group"][:6] == mine["raft_group"][:6] == "S-R3F-"


def test_a_replicated_consumer(real: RealCluster, ours: SmallCluster) -> None:
    theirs = real.make_current("CONSUMER.INFO.S.D")
    assert shape(cluster_block(led(ours.nodes[0]), group())) == shape(theirs["cluster"])
    assert theirs["cluster"]["raft_group"].startswith("C-R3F-")


def test_a_stream_and_a_consumer_of_one_server(real: RealCluster, ours: SmallCluster) -> None:
    ours.create("R1", subjects=["r1.>"])
    body = {"stream_name": "R1", "config": {"name": "D", "durable_name": "D", "ack_policy": "explicit"}}
    for subject, asked in (("STREAM.INFO.R1", b""), ("CONSUMER.CREATE.R1.D", body), ("CONSUMER.INFO.R1.D", b"")):
        assert shape(ours.one(subject, asked)[1]) == shape(real.ask(subject, asked)), subject


def test_creating_updating_and_removing(real: RealCluster, ours: SmallCluster) -> None:
    config = {"name": "T", "subjects": ["t.>"]}
    ephemeral = {"stream_name": "T", "config": {"name": "E", "ack_policy": "explicit"}}
    for subject, body in (
        ("STREAM.CREATE.T", config),
        ("STREAM.UPDATE.T", {**config, "max_msgs": 5}),
        ("STREAM.NAMES", {"subject": "t.x"}),
        ("STREAM.LIST", {"subject": "t.x"}),
        ("CONSUMER.CREATE.T.E", ephemeral),
        ("CONSUMER.LIST.T", b""),
        ("CONSUMER.NAMES.T", b""),
        ("CONSUMER.DELETE.T.E", b""),
        ("STREAM.LEADER.STEPDOWN.T", b""),
        ("STREAM.DELETE.T", b""),
        ("INFO", b""),
    ):
        ask = real.ask_for_all if ".LIST" in subject else real.ask
        assert shape(ours.one(subject, body)[1]) == shape(ask(subject, body)), subject


def test_a_stream_that_gets_more_replicas(real: RealCluster, ours: SmallCluster) -> None:
    config = {"name": "G", "subjects": ["g.>"], "num_replicas": 1}
    real.ask("STREAM.CREATE.G", config)
    theirs = real.ask("STREAM.UPDATE.G", {**config, "num_replicas": 3})["cluster"]
    origin = Origin(replicas=1)
    desired = Desired(created_ns=S_TIME, peers=PEERS, cluster="C1", origin=origin)
    mine = cluster_block(led(ours.nodes[0]), group(peers=(N1,), desired=desired))
    assert "desired" in theirs, theirs
    theirs["desired"].pop("status", None)  # what the mover does at the moment
    assert shape(mine["desired"]) == shape(theirs["desired"])
    real.ask("STREAM.DELETE.G")


# Errors


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("STREAM.CREATE.P", {"name": "P", "placement": {"cluster": "X"}}),
        ("STREAM.CREATE.P", {"name": "P", "num_replicas": 5}),
        ("STREAM.CREATE.P", {"name": "P", "num_replicas": 6}),
        ("STREAM.CREATE.P", {"name": "P", "num_replicas": 3, "placement": {"tags": ["ssd"]}}),
        ("STREAM.CREATE.P", {"name": "P", "num_replicas": 3, "placement": {"tags": ["!ssd"]}}),
        ("STREAM.CREATE.P", {"name": "P", "placement": {"tags": ["az:9"]}}),
        ("STREAM.CREATE.P", {"name": "P", "max_bytes": 1 << 31}),
        ("STREAM.CREATE.P", {"name": "P", "num_replicas": 3, "max_bytes": 1 << 31, "placement": {"tags": ["ssd"]}}),
        ("STREAM.CREATE.P", {"name": "P", "placement": {"preferred": "n1"}}),
        ("STREAM.CREATE.P", {"name": "P", "subjects": ["r1.a"]}),
        ("STREAM.CREATE.R1", {"name": "R1", "subjects": ["other"]}),
        ("STREAM.DELETE.NOPE", b""),
        ("STREAM.INFO.NOPE", b""),
        ("STREAM.UPDATE.NOPE", {"name": "NOPE"}),
        ("STREAM.PURGE.NOPE", b""),
        ("STREAM.LEADER.STEPDOWN.NOPE", b""),
        ("STREAM.PEER.REMOVE.NOPE", {"peer": "n1"}),
        ("STREAM.PEER.REMOVE.S", {"peer": "zz"}),
        ("STREAM.PEER.REMOVE.S", {"peer": "n1"}),
        ("STREAM.PEER.REMOVE.S", {"peer": ""}),
        ("STREAM.PEER.REMOVE.S", b""),
        ("STREAM.PEER.REMOVE.S", b"xx"),
        ("STREAM.PEER.EVACUATE.S", {"peer": "n1"}),
        ("STREAM.CANCEL_MOVE.S", b""),
        ("STREAM.LEADER.STEPDOWN.S", {"placement": {"preferred": "zz"}}),
        ("STREAM.LEADER.STEPDOWN.S", {"placement": {"tags": ["nope"]}}),
        ("STREAM.LEADER.STEPDOWN.S", {"placement": {"cluster": "X"}}),
        ("CONSUMER.INFO.R1.NOPE", b""),
        ("CONSUMER.INFO.NOPE.X", b""),
        ("CONSUMER.DELETE.R1.NOPE", b""),
        ("CONSUMER.LEADER.STEPDOWN.NOPE.X", b""),
        ("CONSUMER.CREATE.NOPE.X", {"stream_name": "NOPE", "config": {"name": "X", "durable_name": "X"}}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_errors_are_the_same(real: RealCluster, ours: SmallCluster, subject: str, body: Any) -> None:
    ours.create("R1", subjects=["r1.>"])
    ours.send("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "num_replicas": 3})
    ours.settle()
    found = ours.leader.meta.state.stream("A", "S")
    assert found is not None
    members = tuple(MemberStatus(peer, True) for peer in PEERS)
    for node in ours.nodes:
        node.statuses[found.group.name] = GroupStatus(leader=found.group.preferred, members=members)
    assert ours.error(subject, body) == real.error(subject, body)


def test_tags_match_in_any_case(real: RealCluster, ours: SmallCluster) -> None:
    config = {"name": "CASE", "placement": {"tags": ["HDD"]}}
    for answer in (real.ask("STREAM.CREATE.CASE", config), ours.create("CASE", placement={"tags": ["HDD"]})[1]):
        assert answer["cluster"]["leader"] == "n3"
    real.ask("STREAM.DELETE.CASE")


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("META.LEADER.STEPDOWN", {"placement": {"cluster": "X"}}),
        ("META.LEADER.STEPDOWN", {"placement": {"preferred": "zz"}}),
        ("META.LEADER.STEPDOWN", {"placement": {"tags": ["nope"]}}),
        ("SERVER.REMOVE", {"peer": "zz"}),
        ("SERVER.REMOVE", b""),
        ("SERVER.REMOVE", b"xx"),
        ("SERVER.REMOVE", {"peer_id": "zz"}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_errors_of_the_system_account_are_the_same(
    real: RealCluster, ours: SmallCluster, subject: str, body: Any
) -> None:
    assert ours.one(subject, body, system=True)[1] == real.ask(subject, body, system=True)


def test_a_unique_tag_that_is_taken(tmp_path_factory: pytest.TempPathFactory, ours: SmallCluster) -> None:
    for node in ours.nodes:
        node.unique_tag = "az:"
    with real_cluster(tmp_path_factory.mktemp("unique"), ', unique_tag: "az:"') as cluster:
        for config in (
            {"name": "P", "num_replicas": 3},
            {"name": "P", "num_replicas": 3, "placement": {"tags": ["az:2"]}},
            {"name": "P", "num_replicas": 2, "placement": {"tags": ["hdd", "SSD"]}},
        ):
            mine, theirs = (where.error("STREAM.CREATE.P", config)[2] for where in (ours, cluster))
            assert _sorted_tags(mine) == _sorted_tags(theirs)


def _sorted_tags(text: str) -> list[str]:
    """The words of an error: nats-server tells tags in any order."""
    return sorted(text.replace("[", " ").replace("]", " ").replace(",", " ").split())


# Monitoring


def test_the_meta_group_in_jsz(real: RealCluster, ours: SmallCluster) -> None:
    theirs = real.meta_leader().get("/jsz")["meta_cluster"]
    mine = meta_cluster(ours.leader)
    theirs["snapshot"].pop("last_duration", None)  # once there was a snapshot
    assert shape(mine) == shape(theirs)
    assert (mine["cluster_size"], mine["quorum_needed"]) == (theirs["cluster_size"], theirs["quorum_needed"]) == (3, 2)
    ours.leader.snapshot_times = SnapshotTimes(S_TIME, 5)
    taken = meta_cluster(ours.leader)["snapshot"]
    assert list(taken) == ["pending_entries", "pending_size", "last_time", "last_duration"]


def test_groups_in_raftz(real: RealCluster, ours: SmallCluster) -> None:
    leader = real.meta_leader()
    theirs = leader.get("/raftz")["$SYS"]["_meta_"]
    node = ours.leader
    mine = raftz(node)
    assert mine is not None and list(mine) == ["$SYS"] and list(mine["$SYS"]) == ["_meta_"]
    full = GroupStatus(
        leader=node.peer,
        leader_since_ns=S_TIME,
        members=tuple(MemberStatus(peer, True, 300, replicated_index=9) for peer in PEERS),
        state="LEADER",
        term=1,
        voted_for=node.peer,
        committed=9,
        applied=9,
        log=LogStatus(),
    )
    node.meta_status = lambda: full  # type: ignore[method-assign]
    shown = raftz(node)
    assert shown is not None
    assert _keys(shown["$SYS"]["_meta_"]) == _keys(theirs)
    assert raftz(node, account="A") is None and raftz(node, group="zz") is None


def _keys(found: dict[str, Any]) -> Any:
    """Keys in order, down to one of the peers."""
    first = next(iter(found["peers"].values()))
    wal = {name: value for name, value in found["wal"].items() if name != "deleted"}
    return list(found), list(wal), list(first), type(first["last_seen"])


def test_health_without_a_meta_leader(ours: SmallCluster) -> None:
    assert health_problem(ours.nodes[0]) is None
    ours.group.depose()
    assert health_problem(ours.nodes[0]) == "JetStream has not established contact with a meta leader"


# Advisories


class Listeners:
    """A client of an account, and one of the system account, who hear all advisories."""

    def __init__(self, node: FakeNode) -> None:
        brokers = [make_broker(), make_broker()]  # the second one's account plays the system account
        self.account, system = (broker.accounts["$G"] for broker in brokers)
        self._clients = [connect(broker) for broker in brokers]
        for client in self._clients:
            client.say(b"SUB $JS.EVENT.ADVISORY.> 7\r\n")
        self.told = GroupAdvisories(node, system)

    def heard(self) -> list[dict[str, Any]]:
        """What each of them heard: subjects without their prefix, and events."""
        found = []
        for client in self._clients:
            lines = client.heard().split(b"\r\n")
            subjects = [line.split()[1].decode() for line in lines if line.startswith(b"MSG")]
            events = [json.loads(line) for line in lines if line.startswith(b"{")]
            names = [subject.removeprefix("$JS.EVENT.ADVISORY.") for subject in subjects]
            found.append(dict(zip(names, events, strict=True)))
        return found


def test_a_leader_that_was_elected(real: RealCluster, ours: SmallCluster) -> None:
    theirs = _advisory_of_a_new_leader(real)
    node = led(ours.nodes[0])
    listeners = Listeners(node)
    listeners.told.stream_leader(listeners.account, "S", node.statuses[group().name])
    account, system = listeners.heard()
    mine = account["STREAM.LEADER_ELECTED.S"]
    for each in theirs["replicas"]:
        each.pop("lag", None)
    assert shape(mine) == shape(theirs)
    assert list(system["STREAM.LEADER_ELECTED.S"]) == [*list(mine)[:3], "account", *list(mine)[3:]]
    assert mine["leader"] == "n1" and {each["peer"] for each in mine["replicas"]} == set(PEERS)


def _advisory_of_a_new_leader(real: RealCluster) -> Any:
    with Peer(real.servers[0]) as listener:
        listener.subscribe("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.S")
        real.make_current("STREAM.INFO.S")
        assert real.ask("STREAM.LEADER.STEPDOWN.S")["success"] is True
        return listener.message().json


def test_other_advisories_have_the_fields_that_were_captured(ours: SmallCluster) -> None:
    node = led(ours.nodes[0])
    status, listeners = node.statuses[group().name], Listeners(node)
    told, account = listeners.told, listeners.account
    told.meta_leader(node.meta_status())
    told.stream_quorum_lost(account, "S", status)
    told.consumer_leader(account, "S", "D", status)
    told.consumer_quorum_lost(account, "S", "D", status)
    told.server_removed("n3", "ID")
    own, system = listeners.heard()
    assert {subject: list(event)[3:] for subject, event in system.items()} == {
        "DOMAIN.LEADER_ELECTED": ["leader", "replicas", "cluster"],
        "STREAM.QUORUM_LOST.S": ["account", "stream", "replicas"],
        "CONSUMER.LEADER_ELECTED.S.D": ["account", "stream", "consumer", "leader", "replicas"],
        "CONSUMER.QUORUM_LOST.S.D": ["account", "stream", "consumer", "replicas"],
        "SERVER.REMOVED": ["server", "server_id", "cluster"],
    }
    assert sorted(own) == ["CONSUMER.LEADER_ELECTED.S.D", "CONSUMER.QUORUM_LOST.S.D", "STREAM.QUORUM_LOST.S"]
    assert system["DOMAIN.LEADER_ELECTED"]["leader"] == N1
