"""A node: all groups that this server is a member of, and the turns in which they make progress.

    node = Node(1, host, files, directory, seed)
    member = node.open(group, machine, voters=…, is_new=True)
    node.connected(2, epoch) · receive(2, epoch, data) · tick() every 100 ms

A turn. The engine says what is to be written and what a leader may send at once. What is to be written waits for the
disk, with whatever other turns add meanwhile, and is synced in one go, in the host's commit thread; then go the
messages that promise it (votes, acknowledgements), and what the group agreed on is applied. So nothing is
acknowledged, here or to another member, that a power cut could take back.

When the log cannot be written (a full disk, an I/O error) the node is *frozen*: it hears, says and applies nothing,
so the other members go on without it. It tries again each second, in a new file.

A member that lost some of its log is not opened under its raft id again: it gets the next one, and asks the leader to
be taken in anew (`membership.py`).

Always true: `persisted` is called only for turns that were synced; a machine sees each entry once, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jetlake.clock import Clock
from jetlake.cluster import membership
from jetlake.cluster.engine import new_engine, next_incarnation, node_of, raft_id
from jetlake.cluster.group import Checkpointing, Machine
from jetlake.cluster.member import Copier, Member
from jetlake.cluster.peers import PING, Peers
from jetlake.cluster.wal import SEGMENT_SIZE, Wal, Write
from jetlake.cluster.wal_commits import Retirement, WalUnit
from jetlake.jetstream.host import CommitUnit
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.disk.files import Files

NOW_SIZE_MAX = 64 * 1024  # what may be written in the loop, while nothing else waits
RETRY_TICKS = 10  # while frozen
ASK_TICKS = 10


class NodeHost(Protocol):
    """The server that a node runs in."""

    @property
    def clock(self) -> Clock: ...
    def call_soon(self, callback: Callable[[], None]) -> None: ...
    def commit_soon(self, unit: CommitUnit) -> None: ...
    def log(self, level: str, line: str) -> None: ...
    def failed(self, what: str, error: BaseException) -> None: ...
    def send(self, node: int, data: bytes) -> None:
        """Send to a peer, in order; nothing when there is no connection."""


class Node:
    """The groups of one server. Everything is called in the loop's thread."""

    def __init__(
        self,
        number: int,
        host: NodeHost,
        files: Files,
        directory: str,
        seed: int,
        *,
        segment_size: int = SEGMENT_SIZE,
        sealer: Sealer | None = None,
        **engine_options: int,
    ) -> None:
        """Read the log; the groups in it wait to be opened. NoEngine where the engine is not built, or WrongKey."""
        self.number, self._host = number, host
        self._engine = new_engine(number, seed, **engine_options)
        self.wal = Wal(files, directory, self._engine, segment_size=segment_size, sealer=sealer)
        self.members: dict[int, Member] = {}
        self.peers = Peers(host.clock, self._peer_up, self._peer_down)
        self.frozen: BaseException | None = None
        self._joins = membership.Joins()
        self._unit = WalUnit(self)
        self._retirement = Retirement(self)
        self._turn = self._synced_turn = self._covers = self._ticks = 0  # `_covers`: what is being written
        self._is_scheduled = self._is_in_turn = self._is_closed = False
        for problem in self.wal.problems:
            host.log("warning", f"cluster log damaged: {problem}")

    # Groups

    @property
    def found(self) -> dict[int, tuple[int, bytes]]:
        """Groups that are not open: the index and the note of their checkpoints; (0, b"") for those that forgot."""
        rows = self._engine.groups()
        return {row[0]: (0, b"") if row[5] else (row[2], row[3]) for row in rows if not row[4]}

    def own_id(self, group: int) -> int:
        """The raft id that this server has in a group, open or not; 0 if it has none."""
        return self._engine.own_id(group)

    def open(
        self,
        group: int,
        machine: Machine,
        *,
        voters: list[int],
        learners: list[int] | None = None,
        applied: int = 0,
        is_new: bool = False,
        is_joining: bool = False,
        is_volatile: bool = False,
        incarnation: int = 1,
        copier: Copier | None = None,
    ) -> Member:
        """Take part in a group, whose members are these raft ids as far as known.

        `is_new`: a new group begins with exactly these. `is_joining`: the leader is about to take this server in, with
        this incarnation, which it never had before. Both are for the first time only. Later the log decides, and the
        machine has what was applied up to `applied`; a member that is not in the log, or lost some of it, joins anew
        under the next incarnation. Who joins begins with a copy.
        """
        own = max(raft_id(self.number, incarnation), self._engine.own_id(group))
        first = [] if is_joining else voters
        is_open = self._engine.open(
            group, own, first, learners or [], applied=applied, is_new=is_new or is_joining, is_volatile=is_volatile
        )
        if not is_open:
            own, applied = next_incarnation(own), 0
            self._host.log("warning", f"group {group} lost some of its log here: it joins anew as {own:#x}")
            is_open = self._engine.open(group, own, [], [], is_volatile=is_volatile)
            assert is_open
        member = self._member(group, own, machine, applied)
        member.copier = copier
        if not member.voters:  # it waits to be taken in
            member.voters, member.is_joining = list(voters), True
        return member

    def _member(self, group: int, own: int, machine: Machine, applied: int) -> Member:
        status = self._engine.status(group)
        member = Member(self._engine, self.wake, group, own, machine, max(applied, status["first"] - 1))
        member.voters, member.learners, member.term = status["voters"], status["learners"], status["term"]
        self.members[group] = member
        self.wake()
        return member

    def close_group(self, group: int) -> None:
        """Take part no more, until it is opened again."""
        self._drop(group)
        self._engine.close(group)

    def destroy(self, group: int) -> None:
        """Remove a group from this server: its log is gone for good."""
        self._drop(group)
        self._engine.destroy(group)
        self.wake()

    def _drop(self, group: int) -> None:
        member = self.members.pop(group, None)
        if member is not None:
            member.is_open = False
            member.role(member.term, False, 0)
            member.stop_reads()

    def campaign(self, group: int) -> None:
        """Try to lead a group now; a new group need not wait for the end of a timeout."""
        self._engine.campaign(group)
        self.wake()

    def retire_from_leading(self) -> None:
        """This server is about to leave: give every group away, and take none."""
        for group, member in self.members.items():
            self._engine.retiring(group, True)
            member.step_down()
        self.wake()

    # Peers and time

    def connected(self, node: int, epoch: int) -> None:
        """A connection with a peer is there."""
        self.peers.connected(node, epoch)

    def unreachable(self, node: int) -> None:
        """A connection broke: what was sent to a peer last may be lost."""
        self._engine.unreachable(node)
        self.wake()

    def receive(self, node: int, epoch: int, data: bytes) -> int:
        """Bytes from a peer; how many of them were whole frames. ValueError ends the connection."""
        if self._is_closed or not self.peers.heard(node, epoch) or self.frozen is not None:
            return len(data)
        used = self._engine.feed(node, epoch, data)
        self.wake()
        return used

    def tick(self) -> None:
        """100 ms have passed."""
        self._ticks += 1
        if self.frozen is not None:
            if not self._ticks % RETRY_TICKS:
                self._host.commit_soon(self._unit)
            return
        self.peers.tick()
        for node in self.peers.up:
            self._host.send(node, PING)
        self._engine.tick()
        if not self._ticks % membership.STEP_TICKS:
            self._joins.step(self.members)
        if not self._ticks % ASK_TICKS:
            for member in self.members.values():
                if member.is_joining:
                    membership.ask(self._engine, member, self.peers.up)
        self.wake()

    def _peer_up(self, node: int, epoch: int) -> None:
        self._engine.peer_up(node, epoch)
        self.wake()

    def _peer_down(self, node: int) -> None:
        self._host.log("info", f"peer down node={node}")
        self._engine.peer_down(node)
        self.wake()

    # Turns

    def wake(self) -> None:
        """Have a turn soon, if there is something to do."""
        if not (self._is_scheduled or self._is_in_turn or self._is_closed) and self._engine.is_dirty():
            self._is_scheduled = True
            self._host.call_soon(self._scheduled)

    def _scheduled(self) -> None:
        self._is_scheduled = False
        self.turn()

    def turn(self) -> None:
        """Make all progress that needs no disk, and ask for the disk where it is needed."""
        if self.frozen is not None or self._is_closed or self._is_in_turn:
            return
        self._is_in_turn = True
        try:
            while self._engine.is_dirty() and not self._is_closed:
                self._ready()
                self._persisted()
        finally:
            self._is_in_turn = False
        if self.wal.is_pending and not self.wal.is_writing:
            self._host.commit_soon(self._unit)

    def _ready(self) -> None:
        self._turn, data, messages = self._engine.ready()
        if data:
            self.wal.add(data)
        elif not self.wal.is_pending:
            self._covers = self._turn  # by the write that runs, if one does
            if not self.wal.is_writing:
                self._synced_turn = self._turn
        self._send(messages)

    def _persisted(self) -> None:
        """Tell of everything that is due."""
        messages, applied, roles, reads, wanted, forgotten, confs, joins = self._engine.persisted(self._synced_turn)
        self._send(messages)
        for group, term, is_leader, leader in roles:
            if member := self.members.get(group):
                member.role(term, is_leader, leader)
        for group, index, token in reads:
            if member := self.members.get(group):
                member.read_at(index, token)
        for group, _, voters, learners in confs:
            if member := self.members.get(group):
                member.members(voters, learners)
        for group, index, term, data in applied:
            if member := self.members.get(group):
                self._apply(member, index, term, data)
        for group, leader, index in wanted:
            self._copy(group, leader, index)
        for group in forgotten:
            self._forgot(group)
        for group, _, new in joins:
            self._joins.add(group, new)

    def _send(self, messages: list[tuple[int, bytes]]) -> None:
        for node, data in messages:
            self._host.send(node, data)

    def _apply(self, member: Member, index: int, term: int, data: bytes) -> None:
        """A machine that cannot take an entry is not given another: it would not be what the other members have."""
        try:
            member.apply(index, term, data)
        except Exception as error:
            self._host.failed(f"group {member.id} index {index}", error)
            self.close_group(member.id)

    def _copy(self, group: int, leader: int, index: int) -> None:
        member = self.members.get(group)
        if member is None:
            return
        if member.copier is None:
            self._host.log("warning", f"group {group} is too far behind, and cannot copy")
            return
        member.copier.copy(member, node_of(leader), index)

    def _forgot(self, group: int) -> None:
        """This member acknowledged more than it has: it joins anew under another raft id."""
        old = self.members.pop(group, None)
        if old is not None:
            old.is_open = False
            old.role(old.term, False, 0)
            self.open(group, old.machine, voters=old.voters, copier=old.copier)

    # The disk

    @property
    def is_small(self) -> bool:
        """Whether what waits for the disk takes one short write."""
        return self.frozen is None and self.wal.pending_size <= NOW_SIZE_MAX

    def take(self) -> Write | None:
        """All that is to be written now; None when there is nothing."""
        if self._is_closed:
            return None
        if self.frozen is not None:
            self._covers = self._turn
            return self.wal.restart()
        if not self.wal.is_pending or self.wal.is_writing:
            return None
        self.turn()  # so that the engine keeps nothing back
        self._covers = self._turn
        return self.wal.take()

    def written(self, write: Write) -> None:
        """Everything up to the turn that was taken last is durable."""
        if self._is_closed:
            return
        if self.frozen is not None:
            self._host.log("info", f"cluster log written again after: {self.frozen}")
            self.frozen = None
        self.wal.written(write)
        self._synced_turn = self._covers
        self._is_in_turn = True
        try:
            self._persisted()
        finally:
            self._is_in_turn = False
        self.turn()
        if self.wal.is_pending and not self.wal.is_writing:
            self._host.commit_soon(self._unit)
        if self.wal.retirable():
            self._host.commit_soon(self._retirement)
        if write.begins_segment:
            self._ask_for_checkpoints()

    def _ask_for_checkpoints(self) -> None:
        """Have those groups make one that keep old segments from going."""
        for group in self.wal.holders():
            member = self.members.get(group)
            if member is not None and isinstance(member.machine, Checkpointing):
                member.machine.checkpoint_soon()

    def freeze(self, error: BaseException) -> None:
        """The log could not be written."""
        if self.frozen is None:
            self._host.failed("cluster log", error)
        self.frozen = error

    def retirement_failed(self, error: BaseException) -> None:
        """Old segments stay for now."""
        self._host.failed("cluster log", error)

    def close(self) -> None:
        """Stop: nothing is said or written any more. What was acknowledged is durable."""
        self._is_closed = True
        for member in self.members.values():
            member.is_open = False
        self.wal.close()
