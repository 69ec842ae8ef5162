"""ReplicatedLog: the way of a stream's commands on several servers, which agree on each of them first.

The leader's rules decide, as on one server; what they decide is proposed to the group, and every member applies what
was committed, in the same order. Messages that need no rule are gathered while a turn lasts, and become one entry. The
next message is decided on while those before it are on their way (`inflight.py`). After any other command that changes
what rules go by, a *barrier*, all that comes later waits until it is applied.

What waits for a command, acks and answers, goes out when the command is applied here: then a quorum has it in its logs.
Blocks are written later, and unsynced (`store.disk.file_options`, sync="checkpoint").

A leader that loses its office answers nothing for what is in flight: it may yet be stored, and an error would say that
it was not. What had to wait and was not proposed is dropped, too; clients ask again.

Always true: entries are applied as they come, each once; answers go out in the order of what they answer. A follower
decides nothing and refuses nothing. The group never calls back from within `propose`, so whoever decides still leads
when it is done.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from jetlake.cluster.codec import Entries, decode, encode
from jetlake.cluster.group import Group
from jetlake.cluster.inflight import Entry, InFlight
from jetlake.errors import BadRequest, StoreError
from jetlake.jetstream.host import Host
from jetlake.jetstream.streams.answers import Answer, Failed, Waiting
from jetlake.jetstream.streams.commands import Append, Command, Configure, Put, Remove, Skip
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.jetstream.streams.log import BaseLog, Owner, Then, Unsettled
from jetlake.jetstream.streams.machine import StreamMachine
from jetlake.ops import OP_EXPECTS, OP_WORDS
from jetlake.store import FileStore
from jetlake.store.format import SEQ_MAX, Buffer
from jetlake.store.records.record import check_sizes
from jetlake.subjects import check_tokens, decode_subject, encode_subject

BATCH_SIZE_MAX = 1024 * 1024  # a turn's messages are more than one entry beyond
RETRY_NS = 10_000_000  # after which an entry that the group did not take is proposed again


class Checkpoint(msgspec.Struct, frozen=True):
    """Up to where a stream's blocks hold what the group's log says, and by which configuration."""

    index: int  # of the last entry that is in them
    block_id: int
    offset: int
    config: StreamConfig

    @property
    def cut(self) -> tuple[int, int]:
        """Where the blocks are cut when they are opened again."""
        return self.block_id, self.offset


NO_CUT = (0, 0)  # of a stream that has no checkpoint yet: its entries are applied from the first one on


class NotLeading(StoreError):
    """Another server decides what is stored."""

    def __init__(self) -> None:
        super().__init__("another server leads the stream")


class ReplicatedLog(BaseLog):
    """The commands of one stream on one of its servers: what stream and group see of each other."""

    is_synced = False

    def __init__(self, host: Host, machine: StreamMachine, owner: Owner) -> None:
        super().__init__(host, machine, owner)
        self.is_leading = False
        self._group: Group | None = None
        self._flight = InFlight(machine)
        self._deferred: deque[Callable[[], None]] = deque()  # decisions that wait, the first for everything in flight
        self._again: list[Callable[[], None]] | None = None  # of the one that is being made, what has to wait again
        self._ready: list[Answer] = []  # that wait for nothing
        self._applying: Entry | None = None
        self._has_barrier = False
        self.applied = 0  # the index of the last entry that was applied
        self._keep: Callable[[Checkpoint], None] | None = None  # who waits for a checkpoint
        self._checkpoint: int | None = None  # up to which entry the one that is being made goes
        self._is_turn_due = self._is_committing = self._is_changed = False
        self.on_failed: Callable[[BaseException], None] = lambda error: None  # this replica has to be made anew
        machine.load_ids()

    def join(self, group: Group) -> None:
        """Be a member of a group from now on."""
        self._group = group

    @property
    def group(self) -> Group | None:
        """This server's member of the group."""
        return self._group

    # What the group says: see `group.Machine`

    def apply(self, index: int, data: bytes) -> None:
        """An entry was committed."""
        own, self.applied = self._own(index, data), index
        self._applying = own
        if data and self.problem is None and not self.is_closed:
            self._is_changed = True
            try:
                self._apply(decode(data), own)
            except Exception as error:
                self.fail_commit(error)  # this replica is no longer what the others are
        self._applying = None
        if own is not None:
            self._send(own.answers)
            self._uncommitted_size = max(self._uncommitted_size - len(own.data), 0) if self._flight else 0
            self._release_held()
        self._turn_soon()

    def lead(self, term: int) -> None:
        """This server decides from now on."""
        if self.problem is None and not self.is_closed:
            self.is_leading = True
            self._owner.lead()

    def follow(self, leader: int) -> None:
        """Another server decides, or nobody."""
        if self.is_leading:
            self._lose()

    def _own(self, index: int, data: bytes) -> Entry | None:
        """The entry, if it is the one that was proposed here."""
        first = self._flight.entries[0] if self._flight.entries else None
        if first is None or not 0 < first.index <= index:
            return None
        if first.index != index or first.data != data:
            self._lose()  # somebody else's took its place
            return None
        return self._flight.applied()

    def _apply(self, command: Command | Entries, own: Entry | None) -> None:
        assert not isinstance(command, Entries), "no consumer is replicated yet"
        if own is not None and isinstance(command, Append):
            result = self.machine.apply(command)  # its ids are taken already
            assert result == command.stop, f"stored up to {result} of {command.stop}"
        else:
            result = self.machine.replay(command)
        if own is not None and own.is_barrier:
            self._has_barrier = False
        if own is not None and own.then is not None:
            then = own.then
            self.call(lambda: then(result))
        elif own is None and isinstance(command, Configure) and command.config is not None:
            self._owner.configured(command.config, result)

    def _lose(self) -> None:
        """Forget what is in flight: the group may yet commit it, or not."""
        self.is_leading = False
        self.machine.msg_ids.forget_from(self.machine.next_seq)
        self._flight.clear()
        self._deferred.clear()
        self._has_barrier = False
        self._uncommitted_size = 0
        self._release_held()
        self._owner.follow()

    # What rules ask

    @property
    def must_defer(self) -> bool:
        """Whether what comes has to wait for its turn."""
        waiting = self._deferred if self._again is None else self._again
        return not self.is_leading or self._has_barrier or bool(waiting) or self._is_stuck

    @property
    def _is_stuck(self) -> bool:
        """Whether the group did not take the last entry: too much is not committed."""
        entries = self._flight.entries
        return bool(entries) and not entries[-1].index

    @property
    def next_seq(self) -> int:
        """The sequence of the next message."""
        return self._flight.next_seq

    def next_time_ns(self, now_ns: int) -> int:
        """The time of the next message."""
        return self._flight.next_time_ns(now_ns)

    def last_seq_of(self, filter: str) -> int:
        """The last sequence of a subject or filter, 0 when there is none; Unsettled when it cannot be told yet."""
        return self._flight.last_seq_of(filter)

    def check_new(self, subject: bytes, headers: Buffer, payload: Buffer, *, is_rollup: bool) -> None:
        """LimitExceeded when discard=new refuses a message; Unsettled when that cannot be told yet."""
        self._flight.check_fits(subject, headers, payload, is_rollup)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is in flight."""
        return not self._flight

    def check_settled(self) -> None:
        """Unsettled unless nothing is in flight."""
        if self._flight:
            raise Unsettled

    def defer(self, decide: Callable[[], None]) -> None:
        """Decide something when all that is in flight is applied; what comes later waits for it."""
        if self._again is not None:
            self._again.append(decide)
        elif self.is_leading:
            self._deferred.append(decide)
            self._turn_soon()

    # What the stream does

    def append(self, command: Append) -> int:
        """Take messages on their way; the operation at which it stopped."""
        if self.must_defer:
            raise Unsettled
        data, ops, first = command.data, command.ops, command.first
        stop = min(command.stop, first + SEQ_MAX - self.next_seq + 1)
        end, done, flight = self._flight.fitting(data, ops, first, stop), first, self._flight
        try:
            batch = flight.begin(command.seq, command.time_ns)
            while done < end:
                at = flight.pack(batch, data, ops, done, end)
                if at == done and not self._has_expected(data, ops, at):
                    break
                done = at
        finally:
            if done < command.stop:
                self.machine.msg_ids.forget_from(command.seq + done - first)
            if flight.batch is not None and not flight.batch.count:
                flight.batch = None
        if flight.batch is not None and len(flight.batch.out) > BATCH_SIZE_MAX:
            self._propose_batch()
        self._turn_soon()
        return done

    def _has_expected(self, data: Buffer, ops: array[int], number: int) -> bool:
        """Whether a message expects a last sequence of its subject, and finds it; then it may pass."""
        op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
        if not op[9] & OP_EXPECTS:
            return False
        try:
            found = self.last_seq_of(decode_subject(bytes(data[op[0] : op[0] + op[1]])))
        except Unsettled:
            return False
        if found == op[10] | op[11] << 32:
            ops[number * OP_WORDS + 9] &= ~OP_EXPECTS
            return True
        return False

    def submit(self, command: Command, then: Then | None = None) -> None:
        """Have a command carried out; `then` is told the result, unless this server loses its office before."""
        if isinstance(command, Put | Skip):
            if self.must_defer:
                raise Unsettled
            check_possible(command)
            if command.msg_id:
                self.machine.msg_ids.add(command.msg_id, command.seq, command.time_ns)
            self._propose(command, then, is_barrier=isinstance(command, Put) and bool(command.replaces))
        elif not self.is_leading:
            raise NotLeading
        elif self.must_defer:
            self.defer(lambda: self.submit(command, then))
        else:
            self._propose(command, then, is_barrier=not isinstance(command, Remove))

    def _propose(self, command: Command, then: Then | None, *, is_barrier: bool) -> None:
        self._propose_batch()
        entry = Entry(encode(command), then, is_barrier=is_barrier)
        self._flight.add(entry, command)
        self._has_barrier = self._has_barrier or is_barrier
        self._send_entries()

    def _propose_batch(self) -> None:
        batch, self._flight.batch = self._flight.batch, None
        if batch is not None:
            self._flight.entries.append(batch.entry())
            self._send_entries()

    def _send_entries(self) -> None:
        """Propose what was not taken yet. Too much may be uncommitted, or this server lost its office: see `_turn`."""
        assert self._group is not None
        for entry in [entry for entry in self._flight.entries if not entry.index]:
            entry.index = self._group.propose(entry.data)
            if not entry.index:
                self._host.call_at(self._host.clock() + RETRY_NS, self._turn_soon)
                return

    def _turn_soon(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._host.call_soon(self._turn)

    def _turn(self) -> None:
        """The end of a turn: decide what waited, send what was gathered, tell who waits for what was applied."""
        self._is_turn_due = False
        if self._is_stuck and self._group is not None:
            if self._group.is_leader:
                self._send_entries()
            else:
                self._lose()
        self._decide_deferred()
        self._propose_batch()
        ready, self._ready = self._ready, []
        self._send(ready)
        self._host.flush()
        if not self.is_closed:
            self._owner.committed()
            if self._is_changed:
                self._is_changed = False
                self._owner.expire_soon()
                self._host.commit_soon(self)

    def _decide_deferred(self) -> None:
        """Make the decisions that waited, up to one that has to wait again."""
        is_first = True
        while self._deferred and not (self._has_barrier or self._is_stuck):
            if is_first and self._flight:
                return
            is_first = False
            decide, self._again = self._deferred.popleft(), []
            self.call(decide)
            again, self._again = self._again, None
            self._deferred.extendleft(reversed(again))
            if again:
                return

    # Who waits

    def commit_soon(self) -> None:
        """Something was done that has to be written, or answered."""
        self._turn_soon()

    def answer(self, answer: Answer) -> None:
        """Send something once everything in flight is applied."""
        if self._applying is not None:  # it follows from what is applied just now
            self._applying.answers.append(answer)
        elif self._flight.batch is not None:
            self._flight.batch.answers.append(answer)
        elif self._flight.entries:
            self._flight.entries[-1].answers.append(answer)
        else:
            self._ready.append(answer)
            self._turn_soon()

    def answer_all(self) -> None:
        """Send what waits for nothing: nothing more will be applied."""
        ready, self._ready = self._ready, []
        self._send(ready)

    @property
    def committed_seq(self) -> int:
        """The last sequence that readers may see."""
        return self.machine.store.catalog.last_seq

    def when_durable(self, done: Callable[[], None], failed: Failed = lambda error: None) -> None:
        """Call back once everything in flight is applied; nobody does if this server loses its office before."""
        self.answer(Waiting(done, failed))
        if self.is_closed:
            self.answer_all()

    def when_committed(self, seq: int, done: Callable[[], None], failed: Failed) -> None:
        """Call back once the messages up to a sequence are applied, at once if they are."""
        if seq <= self.committed_seq:
            done()
        else:
            self.when_durable(done, failed)

    def when_erased(self, done: Callable[[], None], failed: Failed) -> None:
        """Call back once everything in flight is applied. Bytes of what was erased go after the next checkpoint."""
        self.when_durable(done, failed)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when blocks are not being written, at once if they are not; it must finish what it does."""
        if self._is_committing:
            self._idle.append(callback)
        else:
            callback()

    # Writing blocks: see `host.CommitUnit`

    def checkpoint(self, keep: Callable[[Checkpoint], None]) -> None:
        """Sync all that was applied, and have it kept up to where that is; the group's log may forget it then.

        `keep` is called in the thread that writes blocks, and returns when what it was given is durable. It is the last
        checkpoint from then on: with it the stream is opened again (`js_account.open_stream`). Streams in memory have
        none.
        """
        if isinstance(self.machine.store, FileStore):
            self._keep = keep
            self._host.commit_soon(self)

    def commit_now(self) -> bool:
        """Write what was applied, if that is a matter of a few bytes."""
        return self._keep is None and self._is_writing and self.machine.store.commit_small()

    def prepare_commit(self) -> Any:
        """Hand out what is to be written."""
        self._is_committing = True
        if not self._is_writing:
            return None
        store, keep = self.machine.store, self._keep
        if keep is None or not isinstance(store, FileStore):
            return self._prepare()
        index, config, self._keep = self.applied, self._owner.config, None
        self._checkpoint = index
        return store.prepare_checkpoint(lambda block_id, offset: keep(Checkpoint(index, block_id, offset, config)))

    def complete_commit(self, commit: Any) -> None:
        """What was handed out is written."""
        self._is_committing = False
        self._complete(commit)
        if self._checkpoint is not None and self._group is not None:
            self._group.checkpoint(self._checkpoint)
        self._checkpoint = None
        self._call_idle()

    def fail_commit(self, error: BaseException) -> None:
        """What is here can no longer be relied on: leave the deciding to others, and apply nothing more."""
        self._is_committing = False
        if isinstance(self.machine.store, FileStore):
            self.machine.store.fail_commit(error)
        self.problem = error
        if self.is_leading:
            self._lose()
        if self._group is not None:
            self._group.step_down()
        self._call_idle()
        self._host.log("error", f"replica failed stream={self._owner.name} {error=!r}")
        self.on_failed(error)


def check_possible(command: Put | Skip) -> None:
    """Raise what a store would raise of a message that it cannot take: nobody may refuse what was agreed on."""
    if command.seq > SEQ_MAX:
        raise BadRequest(f"no sequence is left after {SEQ_MAX}")
    if isinstance(command, Put):
        check_tokens(command.subject)
        check_sizes(len(encode_subject(command.subject)), len(command.headers), len(command.payload))
