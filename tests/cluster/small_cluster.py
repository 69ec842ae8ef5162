"""Three servers in this process, with JetStream on files in memory, and a meta group that a test drives by hand.

Requests reach every server that is up, as links would bring them; who answers, answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jetlake.broker.account import Account
from jetlake.broker.subscription import Msg
from jetlake.cluster.api import ClusterApi
from jetlake.cluster.assignments import ConsumerAssignment, GroupPlan, Node, StreamAssignment
from jetlake.cluster.holder import Holder
from jetlake.cluster.meta import Meta
from jetlake.cluster.meta_codec import NodeJoined, NodeRemoved, RemoveStream
from jetlake.cluster.placement import Candidate
from jetlake.cluster.system_api import SystemApi
from jetlake.cluster.view import AccountUsage, GroupStatus, MemberStatus, SnapshotTimes, leader_of
from jetlake.config.options import AccountJetStream, AccountOptions, JetStreamOptions, ServerOptions
from jetlake.jetstream.api.stream_info import stream_info
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.service import JetStream
from jetlake.testing.clock import FakeClock
from jetlake.testing.memfiles import MemFiles
from tests.cluster.memory_group import MemoryGroup
from tests.jetstream.harness import FakeHost

Infos = dict[str, Any]


class FakeReplicas:
    """Replicated streams, of which only the fact is noted."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def assigned(self, stream: StreamAssignment) -> None:
        self.told.append(("assigned", stream.name))

    def updated(self, stream: StreamAssignment) -> None:
        self.told.append(("updated", stream.name))

    def removed(self, stream: StreamAssignment) -> None:
        self.told.append(("removed", stream.name))

    def consumer_assigned(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None:
        self.told.append(("consumer assigned", consumer.name))

    def consumer_removed(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None:
        self.told.append(("consumer removed", consumer.name))


class FakeNode:
    """One server: a `ClusterView`."""

    name, unique_tag, can_move = "C1", "", True

    def __init__(self, cluster: SmallCluster, number: int, limits: AccountJetStream, tags: tuple[str, ...]) -> None:
        self.cluster, self.number = cluster, number
        self.own = Node(name=f"n{number}", number=number, cluster="C1", tags=tags, max_store=1 << 30)
        self.peer, self.files = self.own.peer, MemFiles()
        self.limits = limits
        self.is_up = True
        self.lost_ns = 0
        self.snapshot_times = SnapshotTimes()
        self.statuses: dict[str, GroupStatus] = {}  # of replicated streams, by the name of their group
        self.transfers: list[tuple[str, str]] = []
        self.answers: list[Msg] = []
        self.start()

    def start(self) -> None:
        options = ServerOptions(
            server_name=self.own.name,
            accounts={"A": AccountOptions(name="A", jetstream=self.limits)},
            jetstream=JetStreamOptions(enabled=True, max_memory=1 << 30, max_store=1 << 30),
        )
        self.host = FakeHost(options=options, clock=self.cluster.clock, server_name=self.own.name)
        self.account, self.system = Account("A"), Account("$SYS")
        for account in (self.account, self.system):
            account.subscribe(b"_INBOX.>", self.answers.append)
        self.service = JetStream(self.host, "/store", files=self.files)
        self.service.cluster = ClusterApi(self)
        self.service.start([self.account])
        self.replicas = FakeReplicas()
        self.holder = Holder(self, self.service, self.replicas, self._take_back)
        self.meta = Meta(self.holder, self.host)
        self.system_api = SystemApi(self, self.system)

    def restart(self) -> None:
        """Stop and start with the same files; the meta state comes back as a snapshot."""
        state, applied, member = self.meta.snapshot(), self.meta.applied, self.meta.group
        self.host.settle()
        self.service.stop()
        self.start()
        self.meta.load(applied, state)
        self.meta.group = member
        member.machine = self.meta  # type: ignore[union-attr]
        self.holder.reconcile()
        self.host.settle()

    @property
    def js(self) -> Any:
        return self.service.accounts["A"]

    def _take_back(self, stream: StreamAssignment) -> None:
        entry = RemoveStream(account=stream.account, name=stream.name, incarnation=stream.incarnation)
        self.cluster.leader.meta.propose(entry)

    # The view

    def server_name(self, peer: str) -> str | None:
        found = self.meta.state.nodes.get(peer)
        return found.name if found is not None else None

    def is_online(self, peer: str) -> bool:
        return any(node.peer == peer and node.is_up for node in self.cluster.nodes)

    def offline_since_ns(self, peer: str) -> int:
        return next((node.lost_ns for node in self.cluster.nodes if node.peer == peer), 1)

    def candidates(self) -> list[Candidate]:
        loads, found = self.meta.loads(), []
        for node in self.meta.state.nodes.values():
            load = loads.get(node.peer)
            fields = (
                {name: getattr(load, name) for name in ("stream_count", "ha_count", "leader_count", "reserved_store")}
                if load is not None
                else {}
            )
            found.append(Candidate(node, is_online=self.is_online(node.peer), **fields))
        return found

    def status(self, group: GroupPlan) -> GroupStatus | None:
        return self.statuses.get(group.name)

    def meta_status(self) -> GroupStatus:
        peers = sorted(self.meta.state.nodes)
        leader = self.meta.leader
        members = tuple(MemberStatus(peer, True, 5 * (peer != self.peer)) for peer in peers)
        applied = self.meta.applied
        return GroupStatus(
            leader=leader.peer if leader is not None else "", members=members, committed=applied, applied=applied
        )

    def delivers(self, stream: StreamAssignment, consumer: str) -> bool:
        return leader_of(self, stream.group) == self.peer

    def transfer(self, group: GroupPlan | None, peer: str) -> None:
        self.transfers.append((group.name if group is not None else "_meta_", peer))

    def move_deliverer(self, stream: StreamAssignment, consumer: str, peer: str) -> None:
        self.transfers.append((consumer, peer))

    def remove_member(self, peer: str, done: Callable[[ApiError | None], None]) -> None:
        self.meta.propose(NodeRemoved(peer=peer), lambda changed: done(None))

    def usage(self, account: str) -> AccountUsage:
        return AccountUsage(memory=1, storage=2, api_total=3, api_errors=4)

    def gather_streams(self, account: str, names: list[str], done: Callable[[Infos], None]) -> None:
        infos: Infos = {}
        for node in self.cluster.nodes:
            for name in names if node.is_up else ():
                if (stream := node.js.streams.get(name)) is not None:
                    infos[name] = stream_info(stream, with_server=False)
        done(infos)


class SmallCluster:
    """Three servers and their meta group."""

    def __init__(
        self, limits: AccountJetStream | None = None, tags: tuple[tuple[str, ...], ...] = ((), (), ())
    ) -> None:
        self.clock = FakeClock()
        self.nodes: list[FakeNode] = []
        for number in range(1, 4):
            self.nodes.append(FakeNode(self, number, limits or AccountJetStream(), tags[number - 1]))
        self.group = MemoryGroup([node.meta for node in self.nodes])
        self.group.elect(0)
        for node in self.nodes:
            self.leader.meta.propose(NodeJoined(node=node.own))
        self.settle()

    @property
    def leader(self) -> FakeNode:
        return next(node for node in self.nodes if node.meta.is_leader)

    def node(self, peer: str) -> FakeNode:
        return next(node for node in self.nodes if node.peer == peer)

    def settle(self) -> None:
        """Commit, apply and write until nothing is left to do."""
        for _ in range(10):
            self.group.settle()
            for node in self.nodes:
                node.host.settle()

    def lose(self, node: FakeNode) -> None:
        """A server is gone."""
        node.is_up, node.lost_ns = False, self.clock()

    def ask(self, subject: str, body: Any = b"", *, system: bool = False) -> list[tuple[str, Any]]:
        """Send a request to all servers; who answered, and what."""
        self.send(subject, body, system=system)
        self.settle()
        return self.collect()

    def send(self, subject: str, body: Any = b"", *, system: bool = False) -> None:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        for node in self.nodes:
            node.answers.clear()
            if node.is_up:
                account = node.system if system else node.account
                account.send(f"$JS.API.{subject}".encode(), payload, reply=b"_INBOX.1")

    def collect(self) -> list[tuple[str, Any]]:
        return [(node.own.name, json.loads(msg.payload)) for node in self.nodes for msg in node.answers]

    def one(self, subject: str, body: Any = b"", *, system: bool = False) -> tuple[str, Any]:
        """The same where one server has to answer."""
        answers = self.ask(subject, body, system=system)
        assert len(answers) == 1, answers
        return answers[0]

    def error(self, subject: str, body: Any = b"", *, system: bool = False) -> tuple[int, int, str]:
        """The error that one server answers: code, err_code and description."""
        _, answer = self.one(subject, body, system=system)
        return tuple(answer["error"].values())  # type: ignore[return-value]

    def create(self, name: str = "S", **config: Any) -> tuple[str, Any]:
        return self.one(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})

    def holder_of(self, name: str) -> FakeNode:
        found = self.leader.meta.state.stream("A", name)
        assert found is not None
        return self.node(found.group.peers[0])

    def holder_name(self, name: str) -> str:
        """The same while nobody leads."""
        found = self.nodes[0].meta.state.stream("A", name)
        assert found is not None
        return self.node(found.group.peers[0]).own.name
