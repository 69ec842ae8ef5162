"""The API of a cluster: who answers, what is checked, and what becomes of it on the servers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from jetlake.cluster.monitor import Monitor
from jetlake.cluster.view import GroupStatus, MemberStatus
from jetlake.config.options import AccountJetStream
from tests.cluster.small_cluster import FakeNode, SmallCluster
from tests.cluster.things import N1, N2, N3, Recorder

NOT_FOUND = (404, 10059, "stream not found")
UNAVAILABLE = (503, 10008, "JetStream system temporarily unavailable")


@pytest.fixture
def cluster() -> SmallCluster:
    return SmallCluster()


def other(cluster: SmallCluster, than: FakeNode) -> FakeNode:
    return next(node for node in cluster.nodes if node is not than)


# Streams on one server


def test_a_stream_is_made_on_one_server_which_answers(cluster: SmallCluster) -> None:
    server, answer = cluster.create()
    holder = cluster.holder_of("S")
    assert server == holder.own.name
    assert answer["type"] == "io.nats.jetstream.api.v1.stream_create_response" and answer["did_create"] is True
    assert answer["cluster"] == {"name": "C1", "leader": holder.own.name}
    assert [list(node.js.streams) for node in cluster.nodes if node is not holder] == [[], []]
    assert holder.js.streams["S"].created_ns == cluster.leader.meta.state.stream("A", "S").created_ns  # type: ignore[union-attr]


def test_streams_are_spread_over_the_servers(cluster: SmallCluster) -> None:
    for number in range(6):
        cluster.create(f"S{number}")
    assert [len(node.js.streams) for node in cluster.nodes] == [2, 2, 2]


def test_the_same_stream_again_is_answered_by_its_server(cluster: SmallCluster) -> None:
    first = cluster.create()
    assert cluster.create()[0] == first[0]
    assert cluster.error("STREAM.CREATE.S", {"name": "S", "subjects": ["x"]})[1] == 10058


def test_what_cannot_be_is_refused_by_the_meta_leader(cluster: SmallCluster) -> None:
    cluster.create()
    for body, err_code in (
        ({"name": "T", "subjects": ["S.a"]}, 10065),
        ({"name": "X"}, 10056),
        ({"name": "T", "num_replicas": 5}, 10005),
        ({"name": "T", "placement": {"tags": ["ssd"]}}, 10005),
        (b"{", 10025),
    ):
        server, answer = cluster.one("STREAM.CREATE.T", body)
        assert (server, answer["error"]["err_code"]) == (cluster.leader.own.name, err_code)


def test_limits_count_the_streams_of_all_servers_and_those_in_flight() -> None:
    cluster = SmallCluster(AccountJetStream(max_streams=2))
    cluster.create("S")
    cluster.send("STREAM.CREATE.T", {"name": "T"})  # in flight
    leader = cluster.leader
    leader.answers.clear()
    leader.account.send(b"$JS.API.STREAM.CREATE.U", b'{"name":"U"}', reply=b"_INBOX.1")
    assert b"10027" in leader.answers[0].payload
    cluster.settle()
    assert sorted(leader.meta.state.accounts["A"]) == ["S", "T"]


def test_an_update_reaches_the_server_that_has_the_stream(cluster: SmallCluster) -> None:
    cluster.create()
    holder = cluster.holder_of("S")
    server, answer = cluster.one("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "max_msgs": 7})
    assert server == holder.own.name and answer["config"]["max_msgs"] == 7
    assert answer["type"].endswith("stream_update_response") and "did_create" not in answer
    assert holder.js.streams["S"].config.max_msgs == 7
    assert cluster.error("STREAM.UPDATE.T", {"name": "T"}) == NOT_FOUND


def test_a_stream_is_removed_with_its_files(cluster: SmallCluster) -> None:
    cluster.create()
    holder = cluster.holder_of("S")
    assert any("/S/" in path for path in holder.files.snapshot())
    server, answer = cluster.one("STREAM.DELETE.S")
    assert server == cluster.leader.own.name and answer["success"] is True
    assert not any("/S/" in path for path in holder.files.snapshot())
    assert cluster.error("STREAM.DELETE.S") == NOT_FOUND


def test_a_stream_can_be_made_again_at_once(cluster: SmallCluster) -> None:
    cluster.create()
    cluster.send("STREAM.DELETE.S")
    cluster.send("STREAM.CREATE.S", {"name": "S", "subjects": ["other.>"]})
    cluster.settle()
    assert cluster.holder_of("S").js.streams["S"].config.subjects == ("other.>",)


def test_a_stream_that_is_removed_while_it_waits_to_be_made_is_not_made() -> None:
    cluster = SmallCluster(tags=(("here",), (), ()))
    config = {"name": "S", "placement": {"tags": ["here"]}}
    cluster.one("STREAM.CREATE.S", config)
    for subject, body in (("STREAM.DELETE.S", b""), ("STREAM.CREATE.S", config), ("STREAM.DELETE.S", b"")):
        cluster.send(subject, body)
        cluster.group.settle()  # the first removal waits for the disk
    cluster.settle()
    holder = cluster.nodes[0]
    assert holder.js.streams == {} and not any("/S/" in path for path in holder.files.snapshot())


def test_a_stream_that_cannot_be_made_is_taken_back(cluster: SmallCluster) -> None:
    for node in cluster.nodes:  # files that are no stream's
        path = "/store/jetstream/A/streams/S"
        node.files.make_dirs(path)
        with node.files.open(f"{path}/photo.png", write=True, create=True) as file:
            file.pwrite(0, b"x")
    code, err_code, _ = cluster.error("STREAM.CREATE.S", {"name": "S"})
    assert (code, err_code) == (500, 10049)
    assert cluster.leader.meta.state.stream("A", "S") is None


# Who answers


def test_info_is_answered_by_the_server_that_has_the_stream(cluster: SmallCluster) -> None:
    cluster.create()
    server, answer = cluster.one("STREAM.INFO.S")
    assert server == cluster.holder_of("S").own.name
    assert answer["cluster"] == {"name": "C1", "leader": server}
    assert cluster.error("STREAM.INFO.T") == NOT_FOUND


def test_names_and_lists_tell_the_streams_of_all_servers(cluster: SmallCluster) -> None:
    for name in ("B", "A", "C"):
        cluster.create(name)
    server, answer = cluster.one("STREAM.NAMES")
    assert server == cluster.leader.own.name
    assert answer == {
        "type": "io.nats.jetstream.api.v1.stream_names_response",
        "total": 3,
        "offset": 0,
        "limit": 1024,
        "streams": ["A", "B", "C"],
    }
    assert cluster.one("STREAM.NAMES", {"subject": "B.x"})[1]["streams"] == ["B"]
    listed = cluster.one("STREAM.LIST")[1]
    assert [each["config"]["name"] for each in listed["streams"]] == ["A", "B", "C"]
    assert all(each["cluster"]["name"] == "C1" for each in listed["streams"]) and "missing" not in listed


def test_a_list_says_which_streams_did_not_answer(cluster: SmallCluster) -> None:
    for name in ("A", "B", "C"):
        cluster.create(name)
    gone = next(node for node in cluster.nodes if node is not cluster.leader)
    cluster.lose(gone)
    answer = cluster.one("STREAM.LIST")[1]
    assert answer["missing"] == sorted(gone.js.streams) and answer["total"] == 3


def test_the_account_is_told_as_a_whole(cluster: SmallCluster) -> None:
    cluster.create("A", max_bytes=5)
    cluster.create("B", max_bytes=7)
    server, answer = cluster.one("INFO")
    assert server == cluster.leader.own.name
    assert {name: answer[name] for name in ("memory", "storage", "reserved_storage", "streams", "consumers")} == {
        "memory": 1,
        "storage": 2,
        "reserved_storage": 12,
        "streams": 2,
        "consumers": 0,
    }
    assert answer["api"]["total"] == 3 and answer["api"]["errors"] == 4


def test_messages_are_read_and_purged_where_they_are(cluster: SmallCluster) -> None:
    cluster.create()
    holder = cluster.holder_of("S")
    holder.account.send(b"S.a", b"hello")
    holder.host.settle()
    assert cluster.one("STREAM.MSG.GET.S", {"seq": 1})[0] == holder.own.name
    assert cluster.one("STREAM.PURGE.S")[1]["purged"] == 1
    assert cluster.error("STREAM.PURGE.T") == NOT_FOUND


def test_without_a_meta_leader_nothing_can_be_asked_but_infos(cluster: SmallCluster) -> None:
    cluster.create()
    cluster.group.depose()
    for subject in ("STREAM.NAMES", "INFO", "STREAM.CREATE.T", "STREAM.PURGE.S", "STREAM.INFO.T"):
        cluster.send(subject)
        answers = cluster.collect()
        assert len(answers) == 3
        assert all(tuple(answer["error"].values()) == UNAVAILABLE for _, answer in answers), subject
    cluster.send("STREAM.INFO.S")
    assert cluster.holder_name("S") in {server for server, answer in cluster.collect() if "error" not in answer}


def test_a_stream_whose_server_is_gone_is_offline_after_two_seconds(cluster: SmallCluster) -> None:
    while cluster.create(f"S{len(cluster.leader.meta.state.accounts.get('A', {}))}")[0] == cluster.leader.own.name:
        pass
    name = next(name for name in cluster.leader.meta.state.accounts["A"] if cluster.holder_of(name) != cluster.leader)
    cluster.lose(cluster.holder_of(name))
    cluster.clock.advance(1.9)
    assert cluster.ask(f"STREAM.INFO.{name}") == []
    cluster.clock.advance(0.2)
    assert cluster.error(f"STREAM.INFO.{name}") == (500, 10118, "stream is offline")


# Consumers


def durable(name: str = "D", **config: Any) -> dict[str, Any]:
    return {"stream_name": "S", "config": {"durable_name": name, "name": name, "ack_policy": "explicit", **config}}


def test_a_durable_consumer_goes_through_the_meta_group(cluster: SmallCluster) -> None:
    cluster.create()
    holder = cluster.holder_of("S")
    server, answer = cluster.one("CONSUMER.CREATE.S.D", durable())
    assert server == holder.own.name and answer["type"].endswith("consumer_create_response")
    assert answer["cluster"] == {"name": "C1", "leader": server}
    assert list(cluster.leader.meta.consumers_of("A", "S")) == ["D"] and "D" in holder.js.streams["S"].consumers
    assert cluster.one("CONSUMER.INFO.S.D")[0] == server
    assert cluster.one("CONSUMER.NAMES.S")[1]["consumers"] == ["D"]


def test_a_durable_consumer_is_changed_and_removed(cluster: SmallCluster) -> None:
    cluster.create()
    cluster.one("CONSUMER.CREATE.S.D", durable())
    assert cluster.one("CONSUMER.CREATE.S.D", durable(max_deliver=4))[1]["config"]["max_deliver"] == 4
    server, answer = cluster.one("CONSUMER.DELETE.S.D")
    assert server == cluster.leader.own.name and answer["success"] is True
    assert cluster.holder_of("S").js.streams["S"].consumers == {}
    assert cluster.error("CONSUMER.DELETE.S.D")[1] == 10014


def test_an_ephemeral_consumer_is_made_by_the_leader_of_its_stream_alone(cluster: SmallCluster) -> None:
    cluster.create()
    body = {"stream_name": "S", "config": {"name": "E", "ack_policy": "explicit"}}
    server, answer = cluster.one("CONSUMER.CREATE.S.E", body)
    assert server == cluster.holder_of("S").own.name
    assert answer["cluster"] == {"name": "C1", "leader": server}
    assert cluster.leader.meta.consumers_of("A", "S") == {}
    assert cluster.one("CONSUMER.DELETE.S.E")[0] == server


def test_bad_consumers_are_refused_once(cluster: SmallCluster) -> None:
    cluster.create()
    assert cluster.error("CONSUMER.CREATE.S.D", b"{")[1] == 10025
    assert cluster.error("CONSUMER.CREATE.S.D", durable(num_replicas=3))[1] == 10126
    assert cluster.error("CONSUMER.CREATE.T.D", {**durable(), "stream_name": "T"}) == NOT_FOUND
    assert cluster.error("CONSUMER.INFO.S.NONE")[1] == 10014
    assert cluster.error("CONSUMER.INFO.T.D") == NOT_FOUND
    assert cluster.ask("CONSUMER.RESET.T.D", {}) == []


# Replicated streams: their groups are told here what they would be


def replicated(cluster: SmallCluster) -> FakeNode:
    """A stream on three servers; who leads it."""
    cluster.send("STREAM.CREATE.S", {"name": "S", "subjects": ["S.>"], "num_replicas": 3})
    cluster.settle()
    assert [node.replicas.told for node in cluster.nodes] == [[("assigned", "S")]] * 3
    found = cluster.leader.meta.state.stream("A", "S")
    assert found is not None and found.group.name.startswith("S-R3F-")
    leader = found.group.preferred
    members = tuple(MemberStatus(peer, True) for peer in found.group.peers)
    for node in cluster.nodes:
        node.statuses[found.group.name] = GroupStatus(leader=leader, members=members)
    return cluster.node(leader)


def leaderless(cluster: SmallCluster) -> None:
    for node in cluster.nodes:
        node.statuses = {name: status._replace(leader="") for name, status in node.statuses.items()}


def test_the_leader_of_a_stream_hands_its_office_over(cluster: SmallCluster) -> None:
    leader = replicated(cluster)
    target = other(cluster, leader)
    body = {"placement": {"preferred": target.own.name}}
    server, answer = cluster.one("STREAM.LEADER.STEPDOWN.S", body)
    assert server == leader.own.name
    assert answer == {"type": "io.nats.jetstream.api.v1.stream_leader_stepdown_response", "success": True}
    assert leader.transfers[0][1] == target.peer
    cluster.one("STREAM.LEADER.STEPDOWN.S")
    assert leader.transfers[1][1] == ""
    body = {"placement": {"preferred": leader.own.name}}
    text = f'preferred server "{leader.own.name}" is already leader'
    assert cluster.error("STREAM.LEADER.STEPDOWN.S", body) == (400, 10005, text)
    assert cluster.error("STREAM.LEADER.STEPDOWN.T") == NOT_FOUND


def test_a_stream_on_one_server_has_no_office_to_hand_over(cluster: SmallCluster) -> None:
    cluster.create()
    assert cluster.one("STREAM.LEADER.STEPDOWN.S")[1]["success"] is True
    assert all(node.transfers == [] for node in cluster.nodes)


def test_members_of_a_stream_without_a_leader_say_so(cluster: SmallCluster) -> None:
    replicated(cluster)
    leaderless(cluster)
    answers = cluster.ask("STREAM.PURGE.S")
    assert [tuple(answer["error"].values()) for _, answer in answers] == [UNAVAILABLE] * 3


def test_a_peer_of_a_stream_is_replaced_if_there_is_a_spare_server(cluster: SmallCluster) -> None:
    replicated(cluster)
    assert cluster.error("STREAM.PEER.REMOVE.S", {"peer": "zz"}) == (400, 10040, "peer not a member")
    assert cluster.error("STREAM.PEER.REMOVE.S", {"peer": "n2"}) == (503, 10075, "peer remap failed")
    assert cluster.error("STREAM.PEER.REMOVE.S", {"peer": N2}) == (503, 10075, "peer remap failed")
    assert cluster.error("STREAM.PEER.REMOVE.S")[1] == 10003
    assert cluster.error("STREAM.PEER.REMOVE.S", {"peer": ""})[1] == 10003
    assert cluster.error("STREAM.PEER.REMOVE.T", {"peer": "n2"}) == NOT_FOUND
    assert cluster.error("STREAM.CANCEL_MOVE.S") == (400, 10129, "stream reconfiguration not in progress")


def test_more_replicas_are_a_desired_group_that_can_be_given_up(cluster: SmallCluster) -> None:
    cluster.create()
    holder = cluster.holder_of("S")
    cluster.ask("STREAM.UPDATE.S", {"name": "S", "subjects": ["S.>"], "num_replicas": 3})
    found = cluster.leader.meta.state.stream("A", "S")
    assert found is not None and found.group.desired is not None
    assert found.group.peers == (holder.peer,) and found.group.desired.peers[0] == holder.peer
    assert set(found.group.desired.peers) == {N1, N2, N3} and found.group.desired.origin.replicas == 1  # type: ignore[union-attr]
    assert found.group.name.startswith("S-R3F-")
    assert cluster.one("STREAM.CANCEL_MOVE.S")[1]["success"] is True
    assert found.group.desired is None and found.config.num_replicas == 1


def test_a_server_that_cannot_move_streams_refuses_to(cluster: SmallCluster) -> None:
    cluster.create()
    cluster.leader.can_move = False
    body = {"name": "S", "subjects": ["S.>"], "num_replicas": 3}
    assert cluster.error("STREAM.UPDATE.S", body)[1] == 10036
    assert cluster.error("STREAM.RESTORE.X", {"config": {"name": "X"}, "state": {}})[1] == 10036


def test_a_replicated_consumer_has_a_group_name_of_its_own(cluster: SmallCluster) -> None:
    replicated(cluster)
    cluster.ask("CONSUMER.CREATE.S.D", durable())
    found = cluster.leader.meta.consumer("A", "S", "D")
    assert found is not None and found.group.name.startswith("C-R3F-")
    assert ("consumer assigned", "D") in cluster.nodes[0].replicas.told
    cluster.ask("CONSUMER.CREATE.S.D1", durable("D1", num_replicas=1))
    one = cluster.leader.meta.consumer("A", "S", "D1")
    assert one is not None and len(one.group.peers) == 1 and one.group.name.startswith("C-R1F-")


# The system account


def test_the_meta_leader_hands_its_office_over(cluster: SmallCluster) -> None:
    leader = cluster.leader
    server, answer = cluster.one("META.LEADER.STEPDOWN", {"placement": {"preferred": "n3"}}, system=True)
    assert server == leader.own.name and leader.transfers == [("_meta_", N3)]
    assert answer == {"type": "io.nats.jetstream.api.v1.meta_leader_stepdown_response", "success": True}
    for body, text in (
        ({"placement": {"cluster": "X"}}, "no replacement peer connected"),
        ({"placement": {"preferred": "zz"}}, 'preferred server "zz" not known'),
        ({"placement": {"preferred": leader.own.name}}, f'preferred server "{leader.own.name}" is already leader'),
    ):
        assert cluster.error("META.LEADER.STEPDOWN", body, system=True) == (400, 10005, text)
    assert cluster.ask("META.LEADER.STEPDOWN") == []  # another account


def test_a_server_is_removed_from_the_cluster(cluster: SmallCluster) -> None:
    not_member = (400, 10044, "server is not a member of the cluster")
    assert cluster.error("SERVER.REMOVE", {"peer": "zz"}, system=True) == not_member
    assert cluster.error("SERVER.REMOVE", {"peer_id": "zz"}, system=True) == not_member
    assert cluster.error("SERVER.REMOVE", system=True)[1] == 10003
    assert cluster.error("SERVER.REMOVE", b"xx", system=True)[1] == 10025
    _, answer = cluster.one("SERVER.REMOVE", {"peer": "n3"}, system=True)
    assert answer == {"type": "io.nats.jetstream.api.v1.meta_server_remove_response", "success": True}
    assert sorted(cluster.leader.meta.state.nodes) == sorted([N1, N2])
    assert cluster.ask("SERVER.REMOVE", {"peer": "n2"}) == []


# Restarts and changes of the leader


def test_a_restarted_server_has_its_streams(cluster: SmallCluster) -> None:
    cluster.create()
    cluster.one("CONSUMER.CREATE.S.D", durable())
    holder = cluster.holder_of("S")
    holder.restart()
    assert list(holder.js.streams) == ["S"] and list(holder.js.streams["S"].consumers) == ["D"]


def test_a_stream_that_was_assigned_and_not_made_is_made_at_the_start(cluster: SmallCluster) -> None:
    for node in cluster.nodes:
        node.meta.monitor = Monitor(node.meta.state, Recorder(), node.host)  # the power goes before anything is made
    cluster.ask("STREAM.CREATE.S", {"name": "S"})
    holder = cluster.holder_of("S")
    assert holder.js.streams == {}
    holder.restart()
    assert list(holder.js.streams) == ["S"]


def test_a_stream_that_nobody_knows_is_offline_and_keeps_its_files(cluster: SmallCluster) -> None:
    cluster.create()
    holder = cluster.holder_of("S")
    before = {path: data for path, data in holder.files.snapshot().items() if path.endswith("meta.json")}
    del holder.meta.state.accounts["A"]  # a meta state that lost the stream, for whatever reason
    holder.restart()
    assert holder.js.streams == {} and list(holder.js.offline) == ["S"]
    after = holder.files.snapshot()
    assert all(after[path] == data for path, data in before.items())


def test_a_stream_that_was_removed_while_its_server_was_down_goes_at_the_start(cluster: SmallCluster) -> None:
    cluster.create()
    holder = cluster.holder_of("S")
    found = holder.meta.state.stream("A", "S")
    assert found is not None
    holder.meta.state.process_remove_stream("A", "S", found.incarnation)  # and nobody told the holder
    holder.restart()
    assert holder.js.streams == {} and holder.js.offline == {}
    assert not any("/S/" in path for path in holder.files.snapshot())


@pytest.mark.parametrize("seed", range(10))
def test_creates_under_leader_changes_are_answered_at_most_once_and_kept(seed: int) -> None:
    chance, cluster = random.Random(seed), SmallCluster()
    confirmed: set[str] = set()
    for number in range(25):
        name = f"S{number}"
        cluster.send(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]})
        if chance.random() < 0.4:
            cluster.group.elect(chance.randrange(3), surviving=chance.randrange(2))
        cluster.settle()
        answers = cluster.collect()
        assert len(answers) <= 1
        confirmed |= {name for _, answer in answers if answer.get("did_create")}
    assert len(confirmed) > 10
    kept = {name for node in cluster.nodes for name in node.js.streams}
    assert kept == set(cluster.leader.meta.state.accounts["A"]) and confirmed <= kept
    snapshots = {node.meta.snapshot() for node in cluster.nodes}
    assert len(snapshots) == 1
