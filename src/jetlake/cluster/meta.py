"""Meta: this server's member of the meta group, and what the leader of it needs to decide.

All servers apply the entries (`monitor.py`) to the assignments. The one that leads proposes them, after it checked them
against what is applied and what is in flight (`stream`, `streams_of`, `consumer`). Whoever proposed is called back when
the entry was applied, and told whether it changed anything; never, when the leadership ends first: the entry may yet be
committed, and an error would be taken for a "no".

A snapshot of the assignments is written now and then; the log may forget what is in it.

Always true: nothing is in flight on a server that does not lead. A stream leaves the state by a committed removal only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from jetlake.cluster.assignments import Assignments, ConsumerAssignment, Load, Node, StreamAssignment, add_load
from jetlake.cluster.engine import node_of
from jetlake.cluster.group import Group
from jetlake.cluster.meta_codec import (
    AssignConsumer,
    AssignStream,
    BadEntry,
    Entry,
    RemoveConsumer,
    RemoveStream,
    SetDesired,
    UpdateStream,
    decode_snapshot,
    encode_entry,
    encode_snapshot,
)
from jetlake.cluster.meta_inflight import Inflight, Key
from jetlake.cluster.monitor import Listener, Monitor, Reporter
from jetlake.jetstream import errors

SNAPSHOT_ENTRIES = 1_000  # applied since the last snapshot
SNAPSHOT_SIZE = 4 * 1024 * 1024

Done = Callable[[bool], None]
LeaderChange = Callable[[bool, int], None]


class Keeper(Protocol):
    """Writes snapshots (`meta_files.py`)."""

    def write(self, index: int, data: bytes, done: Callable[[], None]) -> None:
        """Keep a snapshot of everything up to an index; `done` is called when it is durable."""


class MetaListener(Listener, Protocol):
    """Who acts on assignments, and on the lack of them after a snapshot."""

    def stream_unknown(self, stream: StreamAssignment) -> None:
        """A stream of this server is in no snapshot, and no removal of it is known: it is offline, its files stay."""


@dataclass(frozen=True)
class _Proposed:
    account: str
    key: Key
    is_consumer: bool
    done: Done


class Meta:
    """The machine of the meta group."""

    def __init__(self, listener: MetaListener, host: Reporter, keeper: Keeper | None = None) -> None:
        self.state = Assignments()
        self._listener, self._host, self._keeper = listener, host, keeper
        self.monitor = Monitor(self.state, listener, host)
        self.group: Group | None = None
        self.applied = self.term = 0
        self.pending_entries = self.pending_size = 0  # applied since the last snapshot
        self._is_writing = False
        self._streams: Inflight[StreamAssignment] = Inflight()
        self._consumers: Inflight[ConsumerAssignment] = Inflight()
        self._proposed: dict[int, _Proposed | Done] = {}
        self._on_leader_change: list[LeaderChange] = []

    # The machine

    def apply(self, index: int, data: bytes) -> None:
        """An entry was committed."""
        assert index > self.applied, f"entry {index} after {self.applied}"
        self.applied = index
        self.pending_entries += 1
        self.pending_size += len(data)
        changed = bool(data) and self.monitor.process(index, data) is not None
        proposed = self._proposed.pop(index, None)
        if isinstance(proposed, _Proposed):
            inflight = self._consumers if proposed.is_consumer else self._streams
            inflight.untrack(proposed.account, proposed.key)
            proposed.done(changed)
        elif proposed is not None:
            proposed(changed)
        if self.pending_entries >= SNAPSHOT_ENTRIES or self.pending_size >= SNAPSHOT_SIZE:
            self.take_snapshot()

    def lead(self, term: int) -> None:
        """This server leads: its state is complete, and nothing is in flight."""
        self.term = term
        self._leader_changed(True, 0)

    def follow(self, leader: int) -> None:
        """Another server leads, or nobody: what was in flight is nobody's now."""
        self._leader_changed(False, leader)

    def on_leader_change(self, callback: LeaderChange) -> None:
        """Call back whenever the leader changes: whether this server leads, else the raft id of who does."""
        self._on_leader_change.append(callback)

    def _leader_changed(self, is_leader: bool, leader: int) -> None:
        self._streams.clear()
        self._consumers.clear()
        self._proposed.clear()
        for callback in self._on_leader_change:
            callback(is_leader, leader)

    # Who leads

    @property
    def is_leader(self) -> bool:
        return self.group is not None and self.group.is_leader

    @property
    def is_leaderless(self) -> bool:
        return self.group is None or not (self.group.is_leader or self.group.leader)

    @property
    def leader(self) -> Node | None:
        """The server that leads, if it is known."""
        return self.state.node_numbered(node_of(self.group.leader)) if self.group is not None else None

    # What the leader sees: the assignments as they will be

    def stream(self, account: str, name: str) -> StreamAssignment | None:
        return self._streams.outcome(account, (name,), self.state.stream(account, name))

    def streams_of(self, account: str) -> dict[str, StreamAssignment]:
        """The streams of an account, by name."""
        found = dict(self.state.accounts.get(account, {}))
        for (name,), outcome in self._streams.outcomes(account):
            if outcome is None:
                found.pop(name, None)
            else:
                found[name] = outcome
        return found

    def consumer(self, account: str, stream: str, name: str) -> ConsumerAssignment | None:
        return self.consumers_of(account, stream).get(name)

    def consumers_of(self, account: str, stream: str) -> dict[str, ConsumerAssignment]:
        """The consumers of a stream, by name."""
        holder = self.stream(account, stream)
        if holder is None:
            return {}
        found = dict(holder.consumers)
        for (of, incarnation, name), outcome in self._consumers.outcomes(account):
            if (of, incarnation) != (stream, holder.incarnation):
                continue
            if outcome is None:
                found.pop(name, None)
            else:
                found[name] = outcome
        return found

    def loads(self) -> dict[str, Load]:
        """What each peer will have been assigned."""
        loads = {peer: replace(load) for peer, load in self.state.loads.items()}
        for account, (name,), outcome in self._streams.all_outcomes():
            if (applied := self.state.stream(account, name)) is not None:
                add_load(loads, applied, -1)
            if outcome is not None:
                add_load(loads, outcome)
        return loads

    @property
    def inflight_count(self) -> int:
        return len(self._proposed)

    # Proposals

    def propose(self, entry: Entry, done: Done = lambda changed: None) -> int:
        """Have an entry committed; its index. Raises ApiError when this server cannot, or no entry can say that."""
        try:
            data = encode_entry(entry)
        except BadEntry as error:
            raise errors.BAD_REQUEST() from error
        index = self.group.propose(data) if self.group is not None else 0
        if not index:
            raise errors.CLUSTER_NOT_AVAIL()
        self._track(index, entry, done)
        return index

    def _track(self, index: int, entry: Entry, done: Done) -> None:
        if isinstance(entry, AssignConsumer | RemoveConsumer):
            outcome = entry.consumer if isinstance(entry, AssignConsumer) else None
            name = entry.name if isinstance(entry, RemoveConsumer) else entry.consumer.name
            key = (entry.stream, entry.incarnation, name)
            self._consumers.track(entry.account, key, outcome)
            self._proposed[index] = _Proposed(entry.account, key, True, done)
        elif isinstance(entry, AssignStream | UpdateStream | RemoveStream | SetDesired):
            name = entry.config.name if isinstance(entry, AssignStream | UpdateStream) else entry.name
            self._streams.track(entry.account, (name,), self._outcome(index, entry, name))
            self._proposed[index] = _Proposed(entry.account, (name,), False, done)
        else:
            self._proposed[index] = done

    def _outcome(
        self, index: int, entry: AssignStream | UpdateStream | RemoveStream | SetDesired, name: str
    ) -> StreamAssignment | None:
        """What a stream will be once an entry is applied."""
        before = self.stream(entry.account, name)
        if isinstance(entry, AssignStream):
            return before or StreamAssignment(
                account=entry.account,
                config=entry.config,
                created_ns=entry.created_ns,
                group=replace(entry.group, id=index),
                incarnation=index,
                asked=entry.asked,
            )
        if before is None or before.incarnation != entry.incarnation:
            return before
        if isinstance(entry, UpdateStream):
            return replace(before, config=entry.config, group=entry.group or before.group, asked=entry.asked)
        if isinstance(entry, SetDesired):
            return replace(before, group=replace(before.group, desired=entry.desired))
        return None

    # Snapshots

    def take_snapshot(self) -> None:
        """Keep the state, and let the log forget what led to it. One at a time."""
        if self._keeper is None or self._is_writing or not self.pending_entries:
            return
        index, entries, size = self.applied, self.pending_entries, self.pending_size

        def written() -> None:
            self._is_writing = False
            self.pending_entries -= entries
            self.pending_size -= size
            if self.group is not None:
                self.group.checkpoint(index)

        self._is_writing = True
        self._keeper.write(index, encode_snapshot(self.state), written)

    def checkpoint_soon(self) -> None:
        """The log wants to forget old entries."""
        self.take_snapshot()

    def snapshot(self) -> bytes:
        """The state as of `applied`, for a server that is too far behind for the log."""
        return encode_snapshot(self.state)

    def load(self, index: int, data: bytes) -> None:
        """Begin with a snapshot: nobody is told, since nothing was there before. Raises BadEntry."""
        self._replace(index, decode_snapshot(data))

    def install(self, index: int, data: bytes) -> None:
        """Jump to a snapshot of the leader's, and tell what is different. Raises BadEntry and changes nothing."""
        before, after = list(self.state.streams()), decode_snapshot(data)
        nodes_before = dict(self.state.nodes)
        self._replace(index, after)
        for peer, node in self.state.nodes.items():
            if nodes_before.get(peer) != node:
                self.monitor.tell(self._listener.node_joined, node)
        for stream in before:
            self._tell_end(stream)
        known = {stream.incarnation: stream for stream in before}
        for stream in self.state.streams():
            self._tell_change(known.get(stream.incarnation), stream)
        for peer, node in nodes_before.items():
            if peer not in self.state.nodes:
                self.monitor.tell(self._listener.node_removed, node)

    def _replace(self, index: int, state: Assignments) -> None:
        self.state = self.monitor.state = state
        self.applied, self.pending_entries, self.pending_size = index, 0, 0

    def _tell_end(self, stream: StreamAssignment) -> None:
        """Tell of a stream that a snapshot does not have."""
        now = self.state.stream(stream.account, stream.name)
        if now is not None and now.incarnation == stream.incarnation:
            return
        if stream.incarnation in self.state.removed:
            entry = RemoveStream(account=stream.account, name=stream.name, incarnation=stream.incarnation)
            self.monitor.tell(self._listener.stream_removed, stream, entry)
        else:
            about = f"name={stream.name} account={stream.account} incarnation={stream.incarnation}"
            self._host.log("error", f"stream in no snapshot, and no removal of it is known: its files stay {about}")
            self.monitor.tell(self._listener.stream_unknown, stream)

    def _tell_change(self, before: StreamAssignment | None, stream: StreamAssignment) -> None:
        if before is None:
            self.monitor.tell(self._listener.stream_assigned, stream)
        elif (before.config, before.group) != (stream.config, stream.group):
            self.monitor.tell(self._listener.stream_updated, stream)
        old = before.consumers if before is not None else {}
        for name, consumer in old.items():
            now = stream.consumers.get(name)
            if now is None or now.created_ns != consumer.created_ns:
                gone = RemoveConsumer(
                    account=stream.account,
                    stream=stream.name,
                    incarnation=stream.incarnation,
                    name=name,
                    created_ns=consumer.created_ns,
                )
                self.monitor.tell(self._listener.consumer_removed, stream, consumer, gone)
        for name, consumer in stream.consumers.items():
            if old.get(name) != consumer:
                self.monitor.tell(self._listener.consumer_assigned, stream, consumer)
