"""GroupReplicas: the replicated streams of this server, each with its group.

A stream that is assigned is opened as of its last checkpoint, and its group applies what the log has beyond. The leader
takes messages, and answers who asked for the stream. Its first entry is the stream's configuration as assigned, so all
replicas begin with the same one, whatever they were told first; a change of it is an entry, too.

Consumers are made by the leader, from their assignments, and go with its office: what they remember is not replicated.

Always true: a stream that took part in its group before and has lost its log, or its files, takes part under another
raft id (`node.py`). Files of another group under the same name are left alone, unless that group's stream was removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jetlake.cluster.assignments import ConsumerAssignment, StreamAssignment
from jetlake.cluster.engine import raft_id
from jetlake.cluster.marks import REPLICA_NAME, Mark, read_mark, write_mark
from jetlake.cluster.member import Member
from jetlake.cluster.node import Node
from jetlake.cluster.replica import NO_CUT, Checkpoint, ReplicatedLog
from jetlake.errors import JetLakeError
from jetlake.jetstream import errors
from jetlake.jetstream.consumers.registry import delete_consumer, make_consumer
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.js_account import JsAccount
from jetlake.jetstream.streams.config import Storage
from jetlake.jetstream.streams.meta import is_vacant, stream_directory, tomb_directory
from jetlake.jetstream.streams.stream import Stream

if TYPE_CHECKING:
    from jetlake.cluster.local import LocalCluster

CHECKPOINT_TICKS = 300


class Replica:
    """One replicated stream on this server: the machine of its group."""

    def __init__(self, owner: GroupReplicas, account: JsAccount, stream: Stream, path: str, mark: Mark) -> None:
        self._owner, self.account, self.stream, self._path, self._mark = owner, account, stream, path, mark
        assert isinstance(stream.log, ReplicatedLog)
        self.log: ReplicatedLog = stream.log
        self.group = mark.group
        self.leads_since_ns = 0
        self._kept_index = self.log.applied = mark.checkpoint.index

    # See `group.Machine`

    def apply(self, index: int, data: bytes) -> None:
        self.log.apply(index, data)

    def lead(self, term: int) -> None:
        self.leads_since_ns = self._owner.now_ns()
        self.log.lead(term)
        self._owner.leads(self)

    def follow(self, leader: int) -> None:
        was_leading, self.leads_since_ns = self.log.is_leading, 0
        self.log.follow(leader)
        if was_leading:
            self._owner.leads_no_more(self)

    def checkpoint_soon(self) -> None:
        """Make what was applied durable, so that the log may forget it."""
        if self.log.applied > self._kept_index:
            self.log.checkpoint(self._keep)

    def _keep(self, checkpoint: Checkpoint) -> None:
        """In the thread that writes blocks."""
        self._mark = replace(self._mark, checkpoint=checkpoint)
        write_mark(self._owner.files, self._path, self._mark)
        self._kept_index = checkpoint.index

    def joined(self, member: Member) -> None:
        """The group has this server as this member."""
        self.log.join(member)
        incarnation = member.raft_id & 0xFFFF
        if incarnation != self._mark.incarnation:
            self._mark = replace(self._mark, incarnation=incarnation)
            write_mark(self._owner.files, self._path, self._mark)


class GroupReplicas:
    """All replicated streams of this server: see `holder.Replicas`."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.files = cluster.service.plain_files
        self._open: dict[int, Replica] = {}  # by group
        self._ticks = 0

    def now_ns(self) -> int:
        return self._cluster.host.clock()

    def leads_since_ns(self, group: int) -> int:
        """Since when this server leads a group; 0 if it does not."""
        found = self._open.get(group)
        return found.leads_since_ns if found is not None else 0

    @property
    def _node(self) -> Node:
        node = self._cluster.node
        assert node is not None, "assignments come by the meta group"
        return node

    def tick(self) -> None:
        self._ticks += 1
        node = self._cluster.node
        for replica in self._open.values() if node is not None else ():
            member = node.members.get(replica.group) if node is not None else None
            if member is not None and member is not replica.log.group:
                replica.joined(member)
            if not self._ticks % CHECKPOINT_TICKS:
                replica.checkpoint_soon()

    # Assignments

    def assigned(self, stream: StreamAssignment) -> None:
        account = self._cluster.service.accounts.get(stream.account)
        if stream.group.id in self._open:
            return
        if account is None:
            self._log("error", stream, "its account is unknown here")
            return
        if account.when_gone(stream.name, lambda: self._again(stream)):
            return  # a stream of that name is on its way out
        try:
            self._take_part(account, stream)
        except (OSError, JetLakeError) as error:
            account.offline[stream.name] = errors.reason(error)
            self._log("error", stream, f"replica offline {error=!s}")

    def _again(self, stream: StreamAssignment) -> None:
        current = self._current(stream)
        if current is not None:
            self.assigned(current)

    def _take_part(self, account: JsAccount, assigned: StreamAssignment) -> None:
        group, path = assigned.group.id, self._mark_path(account, assigned)
        mark = read_mark(self.files, path)
        if mark is not None and mark.group != group:
            self._make_way(account, assigned, mark)
            mark = None
        if assigned.name in account.streams:
            raise errors.STREAM_CREATE("another stream of that name is here")
        took_part, node = mark is not None, self._node
        if mark is None:
            mark = self._first_mark(account, assigned, path)
        state = mark.checkpoint
        is_file = assigned.config.storage is Storage.FILE
        stream = account.open_stream(
            state.config, assigned.created_ns, make_log=ReplicatedLog, cut=state.cut if is_file else None
        )
        replica = self._open[group] = Replica(self, account, stream, path, mark)
        stream.log.on_failed = lambda error: self._failed(replica)  # type: ignore[attr-defined]
        incarnation = mark.incarnation
        is_lost = group in node.found and node.found[group][0] > max(state.index, 1)
        if is_lost:  # the log has forgotten what the blocks should have
            incarnation = max(node.own_id(group) & 0xFFFF, incarnation)
            node.destroy(group)
        is_new = not took_part and group not in node.found and not is_lost
        member = node.open(
            group,
            replica,
            voters=self._voters(assigned),
            applied=state.index,
            is_new=is_new,
            is_volatile=not is_file,
            incarnation=incarnation,
        )
        replica.joined(member)
        account.write_meta(stream, assigned.config)
        stream.log.commit_soon()
        if is_new and assigned.group.preferred == self._cluster.peer:
            node.campaign(group)

    def _voters(self, assigned: StreamAssignment) -> list[int]:
        nodes = self._cluster.meta.state.nodes
        return [raft_id(nodes[peer].number, 1) for peer in assigned.group.peers if peer in nodes]

    def _mark_path(self, account: JsAccount, assigned: StreamAssignment) -> str:
        if assigned.config.storage is Storage.MEMORY:
            return f"{self._cluster.service.directory}/_cluster_/memory/{assigned.group.id}.json"
        return f"{stream_directory(account.directory, assigned.name)}/{REPLICA_NAME}"

    def _first_mark(self, account: JsAccount, assigned: StreamAssignment, path: str) -> Mark:
        if assigned.config.storage is Storage.FILE:
            account.encryption.check()
            directory = stream_directory(account.directory, assigned.name)
            if not is_vacant(self.files, directory):
                raise errors.STREAM_CREATE("other files of that name are in the way")
        checkpoint = Checkpoint(0, *NO_CUT, assigned.config)
        mark = Mark(group=assigned.group.id, created_ns=assigned.created_ns, checkpoint=checkpoint)
        write_mark(self.files, path, mark)
        return mark

    def _make_way(self, account: JsAccount, assigned: StreamAssignment, mark: Mark) -> None:
        """Other files have the stream's name: they go if their stream was removed."""
        removed = self._cluster.meta.state.removed.values()
        about = (assigned.account, assigned.name, mark.created_ns)
        if not any((each.account, each.name, each.created_ns) == about for each in removed):
            raise errors.STREAM_CREATE("other files of that name are in the way")
        self._node.destroy(mark.group)
        directory = stream_directory(account.directory, assigned.name)
        self.files.rename(directory, tomb_directory(account.directory))  # the next start removes it

    def updated(self, stream: StreamAssignment) -> None:
        replica = self._open.get(stream.group.id)
        if replica is None:
            return
        replica.account.write_meta(replica.stream, stream.config)
        if replica.log.is_leading:
            self._configure(replica, stream)

    def _configure(self, replica: Replica, assigned: StreamAssignment) -> None:
        """Have the group agree on the assigned configuration, and answer who asked for it."""
        if replica.log.applied == 0 or replica.stream.config != assigned.config:
            replica.stream.update(assigned.config)
        self._cluster.holder.answer_when_ready(replica.account, replica.stream, assigned)

    def removed(self, stream: StreamAssignment) -> None:
        replica = self._open.pop(stream.group.id, None)
        if replica is not None:
            self._node.destroy(stream.group.id)
            replica.account.remove(replica.stream, lambda: None, lambda error: None)
            return
        account = self._cluster.service.accounts.get(stream.account)
        if account is None:
            return
        mark = read_mark(self.files, self._mark_path(account, stream))
        if mark is not None and mark.group == stream.group.id and stream.name not in account.streams:
            account.offline.pop(stream.name, None)
            self._node.destroy(stream.group.id)
            if stream.config.storage is Storage.FILE:
                directory = stream_directory(account.directory, stream.name)
                self.files.rename(directory, tomb_directory(account.directory))

    def _failed(self, replica: Replica) -> None:
        """A replica can no longer be relied on: it takes no part until the server is started again."""
        node = self._cluster.node
        if node is not None and replica.group in node.members:
            self._cluster.host.call_soon(lambda: self._close(replica))

    def _close(self, replica: Replica) -> None:
        node = self._node
        if replica.group in node.members:
            node.close_group(replica.group)

    # Offices

    def leads(self, replica: Replica) -> None:
        """This server leads a stream."""
        assigned = self._assignment(replica)
        if assigned is None or not replica.log.is_leading:
            return
        self._configure(replica, assigned)
        for consumer in list(assigned.consumers.values()):
            try:
                made = make_consumer(replica.stream, consumer.name, consumer.config, consumer.created_ns)
                made.release()
            except ApiError as error:
                self._log("error", assigned, f"consumer not made consumer={consumer.name} {error=!s}")
        status = self._cluster.status(assigned.group)
        if status is not None:
            self._cluster.advisories.stream_leader(replica.account.account, assigned.name, status)

    def leads_no_more(self, replica: Replica) -> None:
        """Another server leads: consumers are there now."""
        stream = replica.stream
        for consumer in list(stream.consumers.values()):
            stream.consumers.pop(consumer.name, None)
            consumer.close(409, "Leadership Change")

    def consumer_assigned(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None:
        replica = self._open.get(stream.group.id)
        if replica is not None and replica.log.is_leading:
            self._cluster.holder.put_consumer(replica.account, replica.stream, consumer)

    def consumer_removed(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None:
        replica = self._open.get(stream.group.id)
        found = replica.stream.consumers.get(consumer.name) if replica is not None else None
        if found is not None and found.created_ns == consumer.created_ns:
            delete_consumer(found, lambda: None)

    # Who is who

    def _assignment(self, replica: Replica) -> StreamAssignment | None:
        found = self._cluster.meta.state.stream(replica.account.account.name, replica.stream.name)
        return found if found is not None and found.group.id == replica.group else None

    def _current(self, stream: StreamAssignment) -> StreamAssignment | None:
        found = self._cluster.meta.state.stream(stream.account, stream.name)
        return found if found is not None and found.incarnation == stream.incarnation else None

    def _log(self, level: str, stream: StreamAssignment, line: str) -> None:
        self._cluster.host.log(level, f"{line} stream={stream.name} account={stream.account} group={stream.group.id}")
