"""A stream on three servers: what clients are told, and what each replica holds."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from jetlake.clock import SECOND_NS
from jetlake.cluster.codec import encode
from jetlake.cluster.replica import NO_CUT, Checkpoint, NotLeading, ReplicatedLog
from jetlake.jetstream.streams.commands import Put
from jetlake.jetstream.streams.config import StreamConfig, parse_request
from jetlake.jetstream.streams.log import LocalLog
from jetlake.jetstream.streams.stream import Stream
from jetlake.ops import OP_MSG_ID, append_op
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.cluster.small_group import Member, SmallGroup
from tests.jetstream.harness import FakeHost, InProcess
from tests.jetstream.streams.test_machine import look

START_NS = 1_700_000_000 * SECOND_NS


class Peer:
    """Who sends messages."""

    def __init__(self) -> None:
        self.is_held = False

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False


class Server:
    """One server with a stream, replicated or its own."""

    def __init__(
        self,
        clock: FakeClock,
        config: StreamConfig,
        group: SmallGroup | None = None,
        make_log: Any = LocalLog,
        files: MemFiles | None = None,
        cut: tuple[int, int] | None = None,
    ) -> None:
        self.files = files or MemFiles()
        self.inner = InProcess("server", FakeHost(clock=clock), files=self.files)
        self.host, self.js = self.inner.host, self.inner.js
        self.answers: dict[int, bytes] = {}
        self.peer = Peer()
        self.inner.account.subscribe(b"_REPLY.>", self._answered)
        config = self.js.checked(config, pedantic=False)
        self.member: Member | None = None
        self.files.make_dirs(self.js.directory)
        self.stream: Stream = self.js.open_stream(config, START_NS, is_new=files is None, make_log=make_log, cut=cut)
        if group is not None:
            self.member = group.join(self.stream.log)  # type: ignore[arg-type]
            self.stream.log.join(self.member)  # type: ignore[attr-defined]

    def _answered(self, msg: Any) -> None:
        number = int(msg.subject.rpartition(b".")[2])
        assert number not in self.answers, "an answer comes once"
        self.answers[number] = msg.payload

    def publish(self, messages: list[tuple[str, str]], first_number: int, payload: bytes = b"x") -> None:
        """Publish as one chunk that a client sent; the answers have numbers."""
        data, ops = bytearray(), array("I")
        for number, (subject, line) in enumerate(messages, first_number):
            block = f"NATS/1.0\r\n{line}\r\n\r\n".encode() if line else b""
            flags = 1 | (OP_MSG_ID if line.startswith("Nats-Msg-Id") else 0) if line else 0
            append_op(ops, data, subject.encode(), payload + b"%d" % number, block, b"_REPLY.%d" % number, flags)
        self.stream.ingest(self.peer, data, ops, 0, len(messages))  # type: ignore[arg-type]
        data[:] = bytes(len(data))  # as the next chunk would
        self.host.settle()

    def ask(self, name: str, fields: dict[str, Any], number: int) -> None:
        """Send a request of the API."""
        self.inner.account.send(f"$JS.API.{name}.S".encode(), json.dumps(fields).encode(), reply=b"_REPLY.%d" % number)
        self.host.settle()

    def seqs(self) -> list[int]:
        return [message.seq for message in self.stream.store.messages()]

    def look(self, now_ns: int) -> tuple[Any, ...]:
        return look(self.stream.machine, now_ns)

    def stop(self) -> None:
        self.inner.stop()


class Cluster:
    """Three servers and their group."""

    def __init__(self, config: StreamConfig, make_log: Any = ReplicatedLog) -> None:
        self.clock, self.group = FakeClock(START_NS), SmallGroup()
        self.config, self.make_log, self.marks = config, make_log, dict[int, Checkpoint]()
        self.servers = {number: Server(self.clock, config, self.group, make_log, cut=NO_CUT) for number in range(1, 4)}
        self.elect(1)
        self.settle()

    @property
    def leader(self) -> Server:
        return self.servers[self.group.leader]

    def elect(self, number: int) -> bool:
        done = self.group.elect(number)
        self.run()
        return done

    def run(self) -> None:
        for server in self.servers.values():
            server.host.settle()

    def copy(self, number: int, count: int = 1 << 30) -> None:
        self.group.copy(number, count)
        self.run()

    def checkpoint(self, number: int) -> None:
        """Let a server make a checkpoint."""
        log: Any = self.servers[number].stream.log
        log.checkpoint(lambda mark: self.marks.update({number: mark}))
        self.run()

    def restart(self, number: int, keep: str) -> None:
        """The power of a server fails and comes back. It goes on from its checkpoint; its log is all there."""
        old, member, mark = self.servers[number], self.group.members[number], self.marks.get(number)
        member.leader = 0 if member.is_leader else member.leader
        config, cut, member.applied = (
            (mark.config, mark.cut, mark.index) if mark is not None else (self.config, NO_CUT, 0)
        )
        files = old.files.after_cut(keep=keep)
        new = self.servers[number] = Server(self.clock, config, None, self.make_log, files=files, cut=cut)
        new.answers, new.member, member.machine = old.answers, member, new.stream.log  # type: ignore[assignment]
        new.stream.log.join(member)  # type: ignore[attr-defined]
        member.apply_all()
        if self.group.leader == number:
            assert any(self.elect(other) for other in (1, 2, 3))
        self.run()

    def settle(self) -> None:
        """Everything is agreed on and applied everywhere."""
        for _ in range(100):
            before = [len(member.log) for member in self.group.members.values()]
            self.group.settle()
            self.run()
            if before == [len(member.log) for member in self.group.members.values()] and not self.is_waiting:
                return
        raise AssertionError("it never settles")

    @property
    def is_waiting(self) -> bool:
        log: Any = self.leader.stream.log
        return bool(log._deferred) or bool(log._flight)

    def stop(self) -> None:
        for server in self.servers.values():
            server.stop()


def config_of(**fields: Any) -> StreamConfig:
    base = {"name": "S", "subjects": ["s.*"], "allow_rollup_hdrs": True, "duplicate_window": 2 * SECOND_NS}
    return parse_request(json.dumps(base | fields).encode())[0]


@contextmanager
def cluster_of(**fields: Any) -> Iterator[Cluster]:
    cluster = Cluster(config_of(**fields))
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with cluster_of() as made:
        yield made


def ack(answers: dict[int, bytes], number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answers[number])
    return found


def test_messages_are_acknowledged_when_a_majority_has_them_and_not_before(cluster: Cluster) -> None:
    leader = cluster.leader
    leader.publish([("s.a", ""), ("s.b", "")], 1)
    assert leader.answers == {} and leader.seqs() == []
    cluster.copy(2)
    assert leader.answers == {1: b'{"stream":"S","seq":1}', 2: b'{"stream":"S","seq":2}'}
    assert leader.seqs() == cluster.servers[2].seqs() == [1, 2] and cluster.servers[3].seqs() == []
    cluster.copy(3)
    assert cluster.servers[3].seqs() == [1, 2]


def test_all_that_came_in_one_turn_is_one_entry(cluster: Cluster) -> None:
    leader = cluster.leader
    before = len(cluster.group.members[1].log)
    settle, leader.host.settle = leader.host.settle, lambda: None  # type: ignore[method-assign]
    leader.publish([("s.a", "")], 1)
    leader.publish([("s.a", ""), ("s.b", "")], 2)
    leader.host.settle = settle  # type: ignore[method-assign]
    cluster.run()
    assert len(cluster.group.members[1].log) == before + 1
    cluster.settle()
    assert sorted(leader.answers) == [1, 2, 3] and leader.seqs() == [1, 2, 3]


def test_a_leader_that_loses_its_office_answers_nothing_for_what_is_in_flight(cluster: Cluster) -> None:
    old = cluster.leader
    old.publish([("s.a", "Nats-Msg-Id: one")], 1)
    assert cluster.elect(2)
    cluster.settle()
    assert old.answers == {} and old.seqs() == []
    cluster.leader.publish([("s.a", "Nats-Msg-Id: one")], 2)
    cluster.settle()
    assert ack(cluster.leader.answers, 2) == {"stream": "S", "seq": 1}
    assert old.seqs() == [1]


def test_what_was_in_flight_may_be_stored_by_the_next_leader_and_is_a_duplicate_then(cluster: Cluster) -> None:
    old = cluster.leader
    old.publish([("s.a", "Nats-Msg-Id: one")], 1)
    cluster.group.members[2].log = list(cluster.group.members[1].log)  # copied, but nobody heard of it
    assert cluster.elect(2)
    cluster.settle()
    cluster.leader.publish([("s.a", "Nats-Msg-Id: one")], 2)
    cluster.settle()
    assert old.answers == {} and ack(cluster.leader.answers, 2) == {"stream": "S", "seq": 1, "duplicate": True}
    assert all(server.seqs() == [1] for server in cluster.servers.values())


def test_a_second_message_with_an_id_in_flight_is_a_duplicate(cluster: Cluster) -> None:
    leader = cluster.leader
    leader.publish([("s.a", "Nats-Msg-Id: one")], 1)
    leader.publish([("s.a", "Nats-Msg-Id: one")], 2)
    assert leader.answers == {}
    cluster.settle()
    assert ack(leader.answers, 2) == {"stream": "S", "seq": 1, "duplicate": True}


def test_expected_sequences_are_pipelined(cluster: Cluster) -> None:
    leader, before = cluster.leader, len(cluster.group.members[1].log)
    expects = "Nats-Expected-Last-Subject-Sequence: {}"
    leader.publish([("s.a", expects.format(0)), ("s.a", expects.format(1)), ("s.b", ""), ("s.b", expects.format(3))], 1)
    leader.publish([("s.a", expects.format(2)), ("s.c", "Nats-Expected-Last-Sequence: 5")], 5)
    assert len(cluster.group.members[1].log) == before + 2  # one for each turn: nothing waited
    leader.publish([("s.a", expects.format(2))], 7)  # which is wrong, and can only be told for certain later
    leader.publish([("s.d", "")], 8)
    cluster.settle()
    assert [ack(leader.answers, number)["seq"] for number in range(1, 7)] == [1, 2, 3, 4, 5, 6]
    assert ack(leader.answers, 7)["error"]["err_code"] == 10071 and ack(leader.answers, 8)["seq"] == 7


def test_a_message_that_a_limit_will_evict_is_not_the_last_of_its_subject() -> None:
    with cluster_of(max_msgs=1) as cluster:
        leader = cluster.leader
        leader.publish([("s.a", ""), ("s.b", ""), ("s.a", "Nats-Expected-Last-Subject-Sequence: 1")], 1)
        cluster.settle()
        assert ack(leader.answers, 3)["error"]["description"] == "wrong last sequence: 0"


def test_a_message_that_is_being_removed_is_not_the_last_of_its_subject(cluster: Cluster) -> None:
    leader = cluster.leader
    leader.publish([("s.a", "")], 1)
    leader.ask("STREAM.MSG.DELETE", {"seq": 1, "no_erase": True}, 2)
    leader.publish([("s.a", "Nats-Expected-Last-Subject-Sequence: 1")], 3)
    leader.publish([("s.a", "")], 4)
    cluster.settle()
    assert ack(leader.answers, 2)["success"] and ack(leader.answers, 4)["seq"] == 2
    assert ack(leader.answers, 3)["error"]["description"] == "wrong last sequence: 0"


def test_an_entry_of_somebody_else_in_the_place_of_an_own_one_ends_the_office(cluster: Cluster) -> None:
    leader, log = cluster.leader, cluster.leader.stream.log
    leader.publish([("s.a", "")], 1)
    assert isinstance(log, ReplicatedLog)
    log.apply(log._flight.entries[0].index, encode(Put(1, START_NS, "s.b", b"", b"another's")))
    leader.host.settle()
    assert leader.answers == {} and not log.is_leading
    assert [message.subject for message in leader.stream.store.messages()] == ["s.b"]


def test_what_follows_a_purge_waits_for_it(cluster: Cluster) -> None:
    leader = cluster.leader
    leader.publish([("s.a", ""), ("s.a", "")], 1)
    leader.ask("STREAM.PURGE", {}, 3)
    leader.publish([("s.a", "Nats-Expected-Last-Subject-Sequence: 0")], 4)
    assert leader.answers == {}
    cluster.settle()
    assert ack(leader.answers, 3)["purged"] == 2 and ack(leader.answers, 4)["seq"] == 3
    assert all(server.seqs() == [3] for server in cluster.servers.values())


def test_messages_that_met_a_rule_are_pipelined_too() -> None:
    with cluster_of(allow_msg_ttl=True) as cluster:
        leader, before = cluster.leader, len(cluster.group.members[1].log)
        for number in range(1, 5):
            leader.publish([("s.a", "Nats-TTL: 5s")], number)
        assert len(cluster.group.members[1].log) == before + 4
        cluster.settle()
        assert [ack(leader.answers, number)["seq"] for number in range(1, 5)] == [1, 2, 3, 4]
        cluster.clock.advance(6)
        leader.stream._expire()
        cluster.run()
        cluster.settle()
        assert all(server.seqs() == [] for server in cluster.servers.values())


def test_only_the_leader_takes_messages_and_sees_to_what_has_its_time() -> None:
    with cluster_of(max_age=3 * SECOND_NS) as cluster:
        for leader in (1, 2):
            cluster.elect(leader)
            cluster.settle()
            for server in cluster.servers.values():
                server.inner.account.send(b"s.a", b"y")
            cluster.run()
            cluster.settle()
            for number, server in cluster.servers.items():
                due = [timer for timer in server.host.timers if not timer.is_cancelled]
                assert (bool(due), server.seqs()) == (number == leader, list(range(1, leader + 1)))


def test_a_follower_does_not_decide(cluster: Cluster) -> None:
    with pytest.raises(NotLeading):
        cluster.servers[2].stream.purge()
    cluster.servers[2].publish([("s.a", "")], 1)
    cluster.settle()
    assert cluster.servers[2].answers == {} and cluster.leader.seqs() == []


def test_an_entry_that_the_group_does_not_take_is_proposed_again(cluster: Cluster) -> None:
    leader, member = cluster.leader, cluster.group.members[1]
    member.refuses = 2
    leader.publish([("s.a", "")], 1)
    leader.publish([("s.b", "")], 2)
    leader.publish([("s.c", "")], 3)
    for timer in list(leader.host.timers):
        timer.callback()
    cluster.run()
    cluster.settle()
    assert [ack(leader.answers, number)["seq"] for number in (1, 2, 3)] == [1, 2, 3]


def test_a_leader_that_was_not_told_acknowledges_nothing(cluster: Cluster) -> None:
    old = cluster.leader
    assert cluster.elect(2)
    cluster.copy(3)
    old.publish([("s.a", "")], 1)  # it believes that it leads
    cluster.group.members[1].leader = 0  # it does no more, and its stream has yet to hear of it
    old.publish([("s.b", "")], 2)
    old.publish([("s.c", "Nats-TTL: 1s")], 3)
    cluster.settle()
    assert old.answers == {} and old.seqs() == []


def test_a_stream_that_is_full_refuses_when_it_is_certain() -> None:
    with cluster_of(max_msgs=3, discard="new") as cluster:
        leader = cluster.leader
        leader.publish([("s.a", "")] * 2, 1)
        leader.publish([("s.a", "")] * 3, 3)
        cluster.settle()
        found = [ack(leader.answers, number) for number in range(1, 6)]
        assert [each.get("seq") for each in found] == [1, 2, 3, 0, 0]
        assert {each["error"]["err_code"] for each in found[3:]} == {10077}


def test_another_configuration_takes_effect_on_all_replicas_in_its_turn(cluster: Cluster) -> None:
    leader = cluster.leader
    leader.publish([("s.a", "")] * 4, 1)
    leader.stream.update(config_of(max_msgs=2, subjects=["s.*", "t"]))
    leader.publish([("s.a", "")], 5)
    cluster.settle()
    for server in cluster.servers.values():
        assert server.seqs() == [4, 5] and server.stream.config.subjects == ("s.*", "t")


def test_a_replica_that_cannot_apply_an_entry_stops_and_says_so(cluster: Cluster) -> None:
    failures: list[BaseException] = []
    log: Any = cluster.servers[3].stream.log
    log.on_failed = failures.append
    log.apply(99, b"\xffnonsense")
    cluster.leader.publish([("s.a", "")], 1)
    cluster.settle()
    assert len(failures) == 1 and log.problem is failures[0]
    assert cluster.servers[3].seqs() == [] and cluster.servers[2].seqs() == [1]
    assert ("error", "replica failed stream=S") in [(level, line[:23]) for level, line in cluster.servers[3].host.lines]


def test_publishers_are_held_while_too_much_is_in_flight(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jetlake.jetstream.streams.log.UNCOMMITTED_SIZE_MAX", 100)
    leader = cluster.leader
    leader.publish([("s.a", "")] * 3, 1, b"p" * 60)
    assert leader.peer.is_held
    cluster.settle()
    assert not leader.peer.is_held


def test_a_replica_that_lost_power_goes_on_from_its_checkpoint(cluster: Cluster) -> None:
    leader, old, kept = cluster.leader, cluster.servers[3], list[Checkpoint]()
    leader.publish([("s.a", "Nats-Msg-Id: one"), ("s.b", ""), ("s.a", "")], 1)
    cluster.settle()
    leader.stream.update(config_of(max_msgs=3))
    cluster.settle()
    log: Any = old.stream.log
    log.checkpoint(kept.append)
    old.host.settle()
    leader.publish([("s.c", ""), ("s.a", "Nats-Msg-Id: two")], 4)
    leader.ask("STREAM.MSG.DELETE", {"seq": 4}, 6)
    cluster.settle()
    leader.stream.update(config_of(max_msgs=9))
    cluster.settle()
    assert [(mark.index, mark.config.max_msgs) for mark in kept] == [(3, 3)]
    for keep in ("all", "none"):
        files = old.files.after_cut(keep=keep)
        new = Server(cluster.clock, kept[0].config, SmallGroup(), ReplicatedLog, files=files, cut=kept[0].cut)
        assert new.seqs() == [1, 2, 3]
        for index, (_, data) in enumerate(cluster.group.members[3].log, 1):
            if index > kept[0].index:
                new.stream.log.apply(index, data)  # type: ignore[attr-defined]
        new.host.settle()
        assert new.look(cluster.clock()) == old.look(cluster.clock())
        assert new.stream.config.max_msgs == 9


def test_a_replica_does_not_expire_messages_by_its_own_clock() -> None:
    with cluster_of(max_age=3 * SECOND_NS) as cluster:
        cluster.leader.publish([("s.a", "")], 1)
        cluster.settle()
        old = cluster.servers[2]
        marks: list[Checkpoint] = []
        old.stream.log.checkpoint(marks.append)  # type: ignore[attr-defined]
        old.host.settle()
        cluster.clock.advance(60)
        files = old.files.after_cut(keep="all")
        new = Server(cluster.clock, marks[0].config, SmallGroup(), ReplicatedLog, files=files, cut=marks[0].cut)
        assert new.seqs() == [1]
