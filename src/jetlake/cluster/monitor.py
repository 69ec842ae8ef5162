"""Monitor: carries the committed entries of the meta group out, one after the other, and tells what changed.

An entry that is no entry, or that asks for what cannot be, is logged and skipped: every server skips the same ones, and
none stops. An entry that has nothing to change any more is skipped in silence. A listener that fails is reported, and
the next entry follows: the state does not depend on what a server makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jetlake.cluster.assignments import (
    Assignments,
    BadAssignment,
    ConsumerAssignment,
    Node,
    StreamAssignment,
)
from jetlake.cluster.meta_codec import (
    AssignConsumer,
    AssignStream,
    BadEntry,
    Entry,
    NodeJoined,
    NodeRemoved,
    RemoveConsumer,
    RemoveStream,
    SetDesired,
    UpdateStream,
    decode_entry,
)


class Reporter(Protocol):
    """Where a server reports what happens; `jetstream.host.Host` is one."""

    def log(self, level: str, line: str) -> None: ...
    def failed(self, what: str, error: BaseException) -> None: ...


class Listener(Protocol):
    """Who acts on assignments: this server, which makes, changes and removes what is its own."""

    def stream_assigned(self, stream: StreamAssignment) -> None: ...
    def stream_updated(self, stream: StreamAssignment) -> None: ...
    def stream_removed(self, stream: StreamAssignment, entry: RemoveStream) -> None: ...
    def consumer_assigned(self, stream: StreamAssignment, consumer: ConsumerAssignment) -> None: ...
    def consumer_removed(
        self, stream: StreamAssignment, consumer: ConsumerAssignment, entry: RemoveConsumer
    ) -> None: ...
    def node_joined(self, node: Node) -> None: ...
    def node_removed(self, node: Node) -> None: ...


class Monitor:
    """Applies entries to assignments."""

    def __init__(self, state: Assignments, listener: Listener, host: Reporter) -> None:
        self.state, self._listener, self._host = state, listener, host
        self.skipped = 0  # entries that were none, or could not be carried out

    def process(self, index: int, data: bytes) -> Entry | None:
        """Carry an entry out; what it was if it changed something."""
        try:
            entry = decode_entry(data)
            changed = self._carry_out(index, entry)
        except (BadEntry, BadAssignment) as error:
            self.skipped += 1
            self._host.log("error", f"meta entry skipped {index=} {error=!s}")
            return None
        return entry if changed else None

    def tell(self, listener: Callable[..., None], *about: object) -> None:
        """Tell of a change; whatever becomes of it, the entries go on."""
        try:
            listener(*about)
        except Exception as error:
            self._host.failed(f"assignment {listener.__name__}", error)

    def _carry_out(self, index: int, entry: Entry) -> bool:
        if isinstance(entry, AssignStream | UpdateStream | RemoveStream | SetDesired):
            return self._stream(index, entry)
        if isinstance(entry, AssignConsumer | RemoveConsumer):
            return self._consumer(index, entry)
        return self._node(entry)

    def _stream(self, index: int, entry: AssignStream | UpdateStream | RemoveStream | SetDesired) -> bool:
        state, found = self.state, None
        if isinstance(entry, AssignStream):
            wanted = StreamAssignment(
                account=entry.account,
                config=entry.config,
                created_ns=entry.created_ns,
                group=entry.group,
                asked=entry.asked,
            )
            if (found := state.process_assign_stream(index, wanted)) is not None:
                self.tell(self._listener.stream_assigned, found)
        elif isinstance(entry, UpdateStream):
            found = state.process_update_stream(
                index, entry.account, entry.incarnation, entry.config, entry.group, entry.asked
            )
            if found is not None:
                self.tell(self._listener.stream_updated, found)
        elif isinstance(entry, SetDesired):
            found = state.process_set_desired(entry.account, entry.name, entry.incarnation, entry.desired)
            if found is not None:
                self.tell(self._listener.stream_updated, found)
        elif (found := state.process_remove_stream(entry.account, entry.name, entry.incarnation)) is not None:
            self.tell(self._listener.stream_removed, found, entry)
        return found is not None

    def _consumer(self, index: int, entry: AssignConsumer | RemoveConsumer) -> bool:
        state, about = self.state, (entry.account, entry.stream, entry.incarnation)
        stream = state.stream(entry.account, entry.stream)
        if isinstance(entry, AssignConsumer):
            made = state.process_assign_consumer(index, *about, entry.consumer)
            if made is not None and stream is not None:
                self.tell(self._listener.consumer_assigned, stream, made)
            return made is not None
        gone = state.process_remove_consumer(*about, entry.name, entry.created_ns)
        if gone is not None and stream is not None:
            self.tell(self._listener.consumer_removed, stream, gone, entry)
        return gone is not None

    def _node(self, entry: NodeJoined | NodeRemoved) -> bool:
        if isinstance(entry, NodeJoined):
            if (node := self.state.process_node_joined(entry.node)) is not None:
                self.tell(self._listener.node_joined, node)
        elif (node := self.state.process_node_removed(entry.peer)) is not None:
            self.tell(self._listener.node_removed, node)
        return node is not None
