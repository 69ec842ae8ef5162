"""Who holds what in a cluster: the state of the meta group.

Every server applies the same committed entries in the same order, so every server has the same assignments. A
`process_*` function checks one entry and carries it out; it returns what changed, or None when the entry has nothing to
change any more: a second removal, an update of a stream that is gone. What does not fit raises BadAssignment, on every
server alike.

Always true: a stream's `incarnation` is the index of the entry that assigned it, so no two streams ever share one, and
a removal that names another incarnation removes nothing. The peers of a group are distinct, and were servers of the
cluster when they were assigned. `loads` say what each peer has been assigned. `removed` remembers the last removals, so
that a server which was away can tell a stream that was removed from one that nobody knows: only the files of the former
may go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from jetlake.errors import JetLakeError
from jetlake.jetstream.consumers.ack_words import account_hash
from jetlake.jetstream.consumers.config import ConsumerConfig
from jetlake.jetstream.streams.config import Placement, Storage, StreamConfig

peer_id = account_hash  # a server's name in eight characters: n1 is fjFyEjc1

PEERS_MAX = 5
REMOVED_MAX = 10_000  # removals that are remembered


class BadAssignment(JetLakeError):
    """An entry of the meta group that no server can carry out."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A server of the cluster. Its number is part of its raft ids; one that lost its disk gets another one."""

    name: str
    number: int
    store_uuid: str = ""
    cluster: str = ""
    tags: tuple[str, ...] = ()
    max_memory: int = 0
    max_store: int = 0
    max_ha_assets: int = 0  # 0 is no limit

    @property
    def peer(self) -> str:
        return peer_id(self.name)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream goes back to when a change of its servers is given up."""

    replicas: int
    placement: Placement | None = None


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """The servers that a group is on its way to."""

    created_ns: int
    peers: tuple[str, ...]
    cluster: str = ""
    origin: Origin | None = None


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The servers that hold a stream or consumer."""

    name: str
    peers: tuple[str, ...]
    storage: Storage = Storage.FILE
    cluster: str = ""
    preferred: str = ""  # the peer that should lead first
    id: int = 0  # the index of the entry that made the group; the group's number in the log
    desired: Desired | None = None


class Origination(msgspec.Struct, frozen=True, kw_only=True):
    """Who asked for something, and where the answer goes."""

    client: dict[str, Any] = {}
    subject: str = ""
    reply: str = ""


class ConsumerAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that is in the meta state; ephemeral ones are not."""

    name: str
    config: ConsumerConfig
    created_ns: int
    group: GroupPlan
    incarnation: int = 0
    asked: Origination = Origination()


class StreamAssignment(msgspec.Struct, kw_only=True):
    """A stream and the servers that hold it. Changed in place by the process functions only."""

    account: str
    config: StreamConfig
    created_ns: int
    group: GroupPlan
    incarnation: int = 0
    asked: Origination = Origination()
    consumers: dict[str, ConsumerAssignment] = {}

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def is_replicated(self) -> bool:
        return len(self.group.peers) > 1


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that a committed entry removed. Its files say when it was created."""

    account: str
    name: str
    created_ns: int
    incarnation: int


class Load(msgspec.Struct):
    """What a peer has been assigned."""

    stream_count: int = 0
    ha_count: int = 0  # replicated streams
    leader_count: int = 0  # replicated streams that it should lead first
    reserved_memory: int = 0  # by the max_bytes of streams
    reserved_store: int = 0


def add_load(loads: dict[str, Load], stream: StreamAssignment, step: int = 1) -> None:
    """Count a stream in (1), or out (-1)."""
    group, reserved = stream.group, max(stream.config.max_bytes, 0) * step
    for peer in group.peers:
        load = loads.setdefault(peer, Load())
        load.stream_count += step
        if stream.config.storage is Storage.FILE:
            load.reserved_store += reserved
        else:
            load.reserved_memory += reserved
        if len(group.peers) > 1:
            load.ha_count += step
            load.leader_count += step * (peer == group.preferred)


class Assignments:
    """The state that all servers of a cluster share."""

    def __init__(self) -> None:
        self.accounts: dict[str, dict[str, StreamAssignment]] = {}
        self.nodes: dict[str, Node] = {}  # by peer
        self.numbers_used: set[int] = set()  # of servers that are, or were, members: none is given out twice
        self.removed: dict[int, Removed] = {}  # by incarnation, in the order of their removal
        self.loads: dict[str, Load] = {}  # by peer

    def stream(self, account: str, name: str) -> StreamAssignment | None:
        return self.accounts.get(account, {}).get(name)

    def streams(self) -> Iterator[StreamAssignment]:
        for streams in self.accounts.values():
            yield from streams.values()

    def node_numbered(self, number: int) -> Node | None:
        return next((node for node in self.nodes.values() if node.number == number), None)

    def next_number(self) -> int:
        """A number for a server that joins."""
        return max(self.numbers_used, default=0) + 1

    # Streams

    def process_assign_stream(self, index: int, wanted: StreamAssignment) -> StreamAssignment | None:
        """A new stream. A name that is taken stays with whoever has it."""
        self._check_stream(wanted)
        streams = self.accounts.setdefault(wanted.account, {})
        if wanted.name in streams:
            return None
        wanted.incarnation, wanted.group = index, replace(wanted.group, id=index)
        wanted.consumers = {}
        streams[wanted.name] = wanted
        add_load(self.loads, wanted)
        return wanted

    def process_update_stream(
        self,
        index: int,
        account: str,
        incarnation: int,
        config: StreamConfig,
        group: GroupPlan | None,
        asked: Origination,
    ) -> StreamAssignment | None:
        """Another configuration, and other servers if a group is given."""
        found = self._stream_of(account, config.name, incarnation)
        if found is None:
            return None
        if config.storage is not found.config.storage:
            raise BadAssignment(f"stream {config.name}: the storage of a stream can not change")
        if group is not None:
            self._check_group(f"stream {config.name}", group, known=peers_about(found.group))
        add_load(self.loads, found, -1)
        if group is not None:
            is_same_group = group.name == found.group.name
            found.group = replace(group, id=found.group.id if is_same_group else index)
        found.config, found.asked = config, asked
        add_load(self.loads, found)
        return found

    def process_remove_stream(self, account: str, name: str, incarnation: int) -> StreamAssignment | None:
        """The only way out for a stream: a removal that means this very one."""
        found = self._stream_of(account, name, incarnation)
        if found is None:
            return None
        streams = self.accounts[account]
        del streams[name]
        if not streams:
            del self.accounts[account]
        add_load(self.loads, found, -1)
        self._remember(Removed(account=account, name=name, created_ns=found.created_ns, incarnation=found.incarnation))
        return found

    def _remember(self, removed: Removed) -> None:
        self.removed[removed.incarnation] = removed
        if len(self.removed) > REMOVED_MAX:
            del self.removed[next(iter(self.removed))]

    def process_set_desired(
        self, account: str, name: str, incarnation: int, desired: Desired | None
    ) -> StreamAssignment | None:
        """Where a stream's group is to go; None when it is there, or goes no further."""
        found = self._stream_of(account, name, incarnation)
        if found is None or found.group.desired == desired:
            return None
        if desired is not None:
            self._check_peers(f"stream {name}", desired.peers, peers_about(found.group))
        found.group = replace(found.group, desired=desired)
        return found

    # Consumers

    def process_assign_consumer(
        self, index: int, account: str, stream: str, incarnation: int, wanted: ConsumerAssignment
    ) -> ConsumerAssignment | None:
        """A new consumer, or another configuration of one: `created_ns` says which it is."""
        holder = self._stream_of(account, stream, incarnation)
        if holder is None:
            return None
        if not wanted.name:
            raise BadAssignment(f"stream {stream}: a consumer without a name")
        peers = peers_about(holder.group)
        self._check_group(f"consumer {wanted.name}", wanted.group, known=peers)
        if not set(wanted.group.peers) <= peers:
            raise BadAssignment(f"consumer {wanted.name}: its peers are not among those of stream {stream}")
        before = holder.consumers.get(wanted.name)
        if before is not None and before.created_ns != wanted.created_ns:
            return None  # somebody else has the name
        born = index if before is None else before.incarnation
        made = replace(wanted, incarnation=born, group=replace(wanted.group, id=born))
        holder.consumers[made.name] = made
        return made

    def process_remove_consumer(
        self, account: str, stream: str, incarnation: int, name: str, created_ns: int
    ) -> ConsumerAssignment | None:
        holder = self._stream_of(account, stream, incarnation)
        found = holder.consumers.get(name) if holder is not None else None
        if holder is None or found is None or found.created_ns != created_ns:
            return None
        return holder.consumers.pop(name)

    # Servers

    def process_node_joined(self, node: Node) -> Node | None:
        """A server is there, or there again with another log, disk, tags or limits."""
        if not node.name:
            raise BadAssignment("a server without a name")
        if node.number <= 0:
            raise BadAssignment(f"server {node.name}: its number is {node.number}")
        before = self.nodes.get(node.peer)
        if before == node:
            return None
        if before is not None and before.name != node.name:
            raise BadAssignment(f"server {node.name}: its peer id {node.peer} is that of {before.name}")
        if (before is None or before.number != node.number) and node.number in self.numbers_used:
            raise BadAssignment(f"server {node.name}: number {node.number} was used before")
        self.nodes[node.peer] = node
        self.numbers_used.add(node.number)
        return node

    def process_node_removed(self, peer: str) -> Node | None:
        """A server is a member no more. Its streams are moved by entries of their own."""
        return self.nodes.pop(peer, None)

    # Snapshots

    def replace_all(
        self, streams: list[StreamAssignment], nodes: list[Node], numbers_used: list[int], removed: list[Removed]
    ) -> None:
        """Become what a snapshot says; raises BadAssignment and changes nothing when it contradicts itself."""
        fresh = Assignments()
        for node in nodes:
            fresh.process_node_joined(node)
        fresh.numbers_used |= set(numbers_used)
        for stream in streams:
            if not stream.incarnation or stream.group.id <= 0:
                raise BadAssignment(f"stream {stream.name}: a snapshot without its incarnation")
            fresh._check_stream(stream, known=peers_about(stream.group))
            taken = fresh.accounts.setdefault(stream.account, {})
            if stream.name in taken:
                raise BadAssignment(f"stream {stream.name}: twice in a snapshot")
            taken[stream.name] = stream
            add_load(fresh.loads, stream)
        for each in removed:
            fresh._remember(each)
        self.__dict__.update(fresh.__dict__)

    # Checks

    def _stream_of(self, account: str, name: str, incarnation: int) -> StreamAssignment | None:
        found = self.stream(account, name)
        return found if found is not None and found.incarnation == incarnation else None

    def _check_stream(self, wanted: StreamAssignment, known: Collection[str] = ()) -> None:
        if not wanted.account or not wanted.name:
            raise BadAssignment("a stream without an account or a name")
        self._check_group(f"stream {wanted.name}", wanted.group, known)
        if wanted.group.storage is not wanted.config.storage:
            raise BadAssignment(f"stream {wanted.name}: its group is not for storage {wanted.config.storage}")

    def _check_group(self, what: str, group: GroupPlan, known: Collection[str] = ()) -> None:
        if not group.name:
            raise BadAssignment(f"{what}: a group without a name")
        self._check_peers(what, group.peers, known)
        if group.desired is not None:
            self._check_peers(what, group.desired.peers, known)
        if group.preferred and group.preferred not in group.peers:
            raise BadAssignment(f"{what}: the preferred peer {group.preferred} is not in its group")

    def _check_peers(self, what: str, peers: tuple[str, ...], known: Collection[str]) -> None:
        """Peers are servers of the cluster, or `known`: a server that was removed stays in its groups for a while."""
        if not 0 < len(peers) <= PEERS_MAX:
            raise BadAssignment(f"{what}: {len(peers)} peers")
        if len(set(peers)) < len(peers):
            raise BadAssignment(f"{what}: a peer twice")
        unknown = [peer for peer in peers if peer not in self.nodes and peer not in known]
        if unknown:
            raise BadAssignment(f"{what}: unknown peers {', '.join(unknown)}")


def peers_about(group: GroupPlan) -> set[str]:
    """The peers that hold a group, or are about to."""
    return {*group.peers, *(group.desired.peers if group.desired is not None else ())}
