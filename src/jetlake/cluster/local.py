"""LocalCluster: this server's part of a cluster whose JetStream is one. It is the `ClusterView` of all others here.

It has the node with its groups, the meta group's machine, and whoever acts on assignments; and it says to those who
ask how things are. A server that was never in a cluster has no number and so no node: then everything is as without a
leader, until `admission.py` found it a place.

Always true: who this server is lies durably on its disk before the first message that says so.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from jetlake.broker.account import Account
from jetlake.broker.subscription import Msg
from jetlake.cluster.admission import Admission
from jetlake.cluster.adoption import Adoption
from jetlake.cluster.advisories import GroupAdvisories
from jetlake.cluster.api import ClusterApi
from jetlake.cluster.assignments import GroupPlan, StreamAssignment, peer_id
from jetlake.cluster.assignments import Node as ServerNode
from jetlake.cluster.engine import WHY_NOT, NoEngine, node_of, raft_id
from jetlake.cluster.gathering import Gathering
from jetlake.cluster.group import META_GROUP
from jetlake.cluster.holder import Holder
from jetlake.cluster.identity import Identity, read_identity, write_identity
from jetlake.cluster.member import Member
from jetlake.cluster.meta import Meta
from jetlake.cluster.meta_codec import NodeRemoved, RemoveStream
from jetlake.cluster.meta_copies import MetaCopies
from jetlake.cluster.meta_files import MetaFiles, MetaKeeper, Snapshot
from jetlake.cluster.node import Node, NodeHost
from jetlake.cluster.placement import Candidate
from jetlake.cluster.questions import Questions
from jetlake.cluster.replicas import GroupReplicas
from jetlake.cluster.statuses import group_status
from jetlake.cluster.system_api import SystemApi
from jetlake.cluster.usage import SUBJECT, BadUsage, ServerUsage, Teller, UsageTable, usage_of
from jetlake.cluster.view import AccountUsage, GroupStatus, Infos, SnapshotTimes, leader_of
from jetlake.errors import CorruptBlock, JetLakeError
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Host
from jetlake.jetstream.service import JetStream

DIRECTORY = "_cluster_"


class Linked(NamedTuple):
    """Another server with JetStream that this one is linked with."""

    name: str
    cluster_id: str  # empty: it is in no cluster yet
    number: int


class ClusterHost(NodeHost, Host, Protocol):
    """The server, as its part of a cluster sees it."""

    def linked(self) -> list[Linked]:
        """The servers with JetStream that this one is linked with now."""

    def is_complete(self) -> bool:
        """Whether all servers that the configuration names are linked, or this one."""

    def identity_changed(self, identity: dict[str, Any]) -> None:
        """Tell the servers that this one is linked with who it is now."""


class BadCluster(JetLakeError):
    """This server can take no part in a cluster as it is."""


class LocalCluster:
    """The cluster as this server sees it, and its part in it."""

    unique_tag = ""
    can_move = False  # until groups can change their servers

    def __init__(self, host: ClusterHost, service: JetStream, system: Account, name: str) -> None:
        """Raises NoEngine where there is no consensus."""
        if WHY_NOT:
            raise NoEngine
        self.host, self.service, self.name, self._system = host, service, name, system
        self.peer = peer_id(host.server_name)
        self._files, self._directory = service.plain_files, f"{service.directory}/{DIRECTORY}"
        self.identity = Identity(name=host.server_name, store_uuid=uuid.uuid4().hex)
        self.node: Node | None = None
        self.replicas = GroupReplicas(self)
        self.holder = Holder(self, service, self.replicas, self._take_back)
        self.keeper = MetaKeeper(MetaFiles(self._files, self._directory), host)
        self.meta = Meta(self.holder, host, self.keeper)
        self.meta.on_leader_change(self._leader_changed)
        self.api = ClusterApi(self)
        self.advisories = GroupAdvisories(self, system)
        self._usage = UsageTable()
        self._teller: Teller | None = None
        self._leads_since_ns = 0
        self._lost_ns: dict[str, int] = {}  # when servers were lost, by peer
        self._is_reconciled = self._is_stopped = False

    # Life

    def start(self) -> None:
        """Take up the place that this server has, or look for one. JetStream has started. Raises JetLakeError."""
        host, service = self.host, self.service
        found = read_identity(self._files, self._directory)
        if found is not None and found.name != host.server_name:
            raise BadCluster(f"the store is that of server {found.name!r}, and this one is {host.server_name!r}")
        self.own = ServerNode(
            name=host.server_name,
            number=found.number if found is not None else 0,
            store_uuid=(found or self.identity).store_uuid,
            cluster=self.name,
            tags=host.options.server_tags,
            max_memory=service.max_memory,
            max_store=service.max_store,
        )
        self.questions = Questions(host, self._system, self.peer)
        self._gathering = Gathering(self)
        self._copies, self._adoption = MetaCopies(self), Adoption(self)
        self.admission = Admission(self)
        self.system_api = SystemApi(self, self._system)
        if found is None:
            write_identity(self._files, self._directory, self.identity)
        else:
            self.identity = found
            if found.number:
                self._return()
        self._system.subscribe(SUBJECT.encode() + b"*", self._heard_usage)
        self._teller = Teller(
            host,
            self.peer,
            self._usage,
            self._own_usage,
            self._tell_usage,
        )
        self._teller.start()
        host.identity_changed(self.identity.shown())

    def _return(self) -> None:
        """Go on where this server was when it stopped."""
        snapshot: Snapshot | None = None
        is_lost = False
        try:
            snapshot = MetaFiles(self._files, self._directory).read(self.host.log)
        except CorruptBlock:
            is_lost = True
        if snapshot is not None:
            self.meta.load(snapshot.index, snapshot.data)
        node = self._start_node()
        incarnation = 1
        if is_lost:
            incarnation = max(node.own_id(META_GROUP) & 0xFFFF, 1)
            node.destroy(META_GROUP)
        is_new = META_GROUP not in node.found and not self.identity.was_member and not is_lost
        self._open_meta(is_joining=is_new, incarnation=incarnation)

    def found(self, cluster_id: str) -> None:
        """Begin a cluster: others are taken in later."""
        self._take_number(cluster_id, 1)
        node = self._start_node()
        member = node.open(META_GROUP, self.meta, voters=[raft_id(1, 1)], is_new=True, copier=self._copies)
        self.meta.group = member
        node.campaign(META_GROUP)

    def join(self, cluster_id: str, number: int) -> None:
        """Be a server of a cluster that knows this one."""
        self._take_number(cluster_id, number)
        self._start_node()
        self._open_meta(is_joining=True)
        self.host.log("info", f"Joined JetStream cluster id={cluster_id} node={number}")

    def _take_number(self, cluster_id: str, number: int) -> None:
        self.identity = replace(self.identity, cluster_id=cluster_id, number=number)
        self.own = replace(self.own, number=number)
        write_identity(self._files, self._directory, self.identity)
        self.host.identity_changed(self.identity.shown())

    def _start_node(self) -> Node:
        seed = secrets.randbits(63)
        self.node = Node(self.identity.number, self.host, self._files, f"{self._directory}/wal", seed)
        return self.node

    def _open_meta(self, *, is_joining: bool, incarnation: int = 1) -> None:
        assert self.node is not None
        self.meta.group = self.node.open(
            META_GROUP,
            self.meta,
            voters=[],
            applied=self.meta.applied,
            is_joining=is_joining,
            incarnation=incarnation,
            copier=self._copies,
        )

    def tick(self) -> None:
        """100 ms have passed."""
        if self._is_stopped:
            return
        node = self.node
        if node is not None:
            node.tick()
            self.meta.group = node.members.get(META_GROUP)  # a member that lost its log is another one
            self._note_losses(node)
            self._note_membership()
        self.admission.tick()
        if not self._is_reconciled and 0 < self.admission.current_at <= self.meta.applied:
            self._settle()
        self.replicas.tick()

    def _settle(self) -> None:
        """The state is current: bring what is on this server in line with it."""
        if not self.identity.is_settled:
            if self._adoption.offer():
                return
            self._keep_identity(replace(self.identity, is_settled=True))
        self._is_reconciled = True
        self.holder.reconcile()

    def _keep_identity(self, identity: Identity) -> None:
        self.identity = identity
        write_identity(self._files, self._directory, identity)

    def _note_losses(self, node: Node) -> None:
        up, now_ns = set(node.peers.up), self.host.clock()
        for server in self.meta.state.nodes.values():
            if server.number in up or server.peer == self.peer:
                self._lost_ns.pop(server.peer, None)
            else:
                self._lost_ns.setdefault(server.peer, now_ns)

    def _note_membership(self) -> None:
        member = self.meta_member
        if member is not None and not self.identity.was_member and member.raft_id in (*member.voters, *member.learners):
            self._keep_identity(replace(self.identity, was_member=True))

    def retire(self) -> None:
        """This server is about to go: let others lead."""
        if self.node is not None:
            self.node.retire_from_leading()

    @property
    def leads_any(self) -> bool:
        """Whether this server leads a group that another one could lead."""
        members = self.node.members.values() if self.node is not None else ()
        return any(member.is_leader and len(member.voters) > 1 for member in members)

    def stop(self) -> None:
        """Say and write nothing any more."""
        self._is_stopped = True
        if self._teller is not None:
            self._teller.stop()
        if self.node is not None:
            self.node.close()

    # The meta group

    @property
    def meta_member(self) -> Member | None:
        return self.node.members.get(META_GROUP) if self.node is not None else None

    def _leader_changed(self, is_leader: bool, leader: int) -> None:
        self.admission.leader_changed()
        self._leads_since_ns = self.host.clock() if is_leader else 0
        if is_leader:
            self.host.log("info", "Self is new JetStream cluster metadata leader")
            self.admission.lead()
            self.advisories.meta_leader(self.meta_status())
        elif leader:
            server = self.meta.state.node_numbered(node_of(leader))
            self.host.log("info", f"JetStream cluster new metadata leader: {server.name if server else leader}")

    def _take_back(self, stream: StreamAssignment) -> None:
        """A stream could not be made here."""
        if self.meta.is_leader:
            entry = RemoveStream(account=stream.account, name=stream.name, incarnation=stream.incarnation)
            self.meta.propose(entry)
        else:
            self.host.log("error", f"stream not made here name={stream.name} account={stream.account}")

    # What is told: see `view.ClusterView`

    def server_name(self, peer: str) -> str | None:
        found = self.meta.state.nodes.get(peer)
        return found.name if found is not None else None

    def is_online(self, peer: str) -> bool:
        return peer == self.peer or (peer in self.meta.state.nodes and peer not in self._lost_ns)

    def offline_since_ns(self, peer: str) -> int:
        return self._lost_ns.get(peer, 0)

    def candidates(self) -> list[Candidate]:
        loads, found = self.meta.loads(), []
        for server in self.meta.state.nodes.values():
            load, used = loads.get(server.peer), self._usage.server(server.peer) or ServerUsage()
            candidate = Candidate(
                server, is_online=self.is_online(server.peer), used_memory=used.memory, used_store=used.storage
            )
            if load is not None:
                candidate = candidate._replace(**msgspec.structs.asdict(load))
            found.append(candidate)
        return found

    def status(self, group: GroupPlan) -> GroupStatus | None:
        member = self.node.members.get(group.id) if self.node is not None and len(group.peers) > 1 else None
        if member is None or self.node is None:
            return None
        return group_status(member, self.meta.state, self.node.peers, self.replicas.leads_since_ns(group.id))

    def meta_status(self) -> GroupStatus:
        member = self.meta_member
        if member is None or self.node is None:
            return GroupStatus(had_leader=False)
        return group_status(member, self.meta.state, self.node.peers, self._leads_since_ns)

    @property
    def snapshot_times(self) -> SnapshotTimes:
        return SnapshotTimes(self.keeper.last_ns, self.keeper.last_duration_ns)

    def delivers(self, stream: StreamAssignment, consumer: str) -> bool:
        return leader_of(self, stream.group) == self.peer

    # What is asked for

    def transfer(self, group: GroupPlan | None, peer: str) -> None:
        member = self.meta_member if group is None else None
        if group is not None and self.node is not None:
            member = self.node.members.get(group.id)
        if member is None:
            return
        server = self.meta.state.nodes.get(peer)
        ids = [id for id in member.voters if server is not None and node_of(id) == server.number]
        if ids:
            member.transfer(ids[0])
        else:
            member.step_down()

    def move_deliverer(self, stream: StreamAssignment, consumer: str, peer: str) -> None:
        """The leader of a stream delivers for all its consumers."""
        self.transfer(stream.group, peer)

    def remove_member(self, peer: str, done: Callable[[ApiError | None], None]) -> None:
        name = self.server_name(peer) or peer

        def removed(changed: bool) -> None:
            self._usage.forget(peer)
            self.advisories.server_removed(name, peer)
            done(None)

        self.meta.propose(NodeRemoved(peer=peer), removed)

    def usage(self, account: str) -> AccountUsage:
        return self._usage.account(account)

    def gather_streams(self, account: str, names: list[str], done: Callable[[Infos], None]) -> None:
        self._gathering.streams(account, names, done)

    def _own_usage(self) -> ServerUsage:
        return usage_of(self.service.accounts.values())

    def _tell_usage(self, subject: str, payload: bytes) -> None:
        self._system.send(subject.encode(), payload)

    def _heard_usage(self, msg: Msg) -> None:
        peer = msg.subject.decode(errors="replace").rpartition(".")[2]
        if peer == self.peer:
            return
        try:
            self._usage.heard(peer, msg.payload)
        except BadUsage as error:
            self.host.log("warning", str(error))
