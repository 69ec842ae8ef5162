"""StreamMachine: the messages of a stream and the ids of the recent ones. Only commands change them.

`apply` depends on the state and the command alone: it reads no clock, no random number and no configuration. It refuses
nothing that the rules let pass; where the state does not fit a command, a rule was wrong or the files are damaged.

Always true: a message's sequence follows the last one's; times do not go back.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from jetlake.errors import BadSubject, MessageNotFound
from jetlake.jetstream.schedules.schedules import Schedules
from jetlake.jetstream.streams.commands import (
    Append,
    AppendAll,
    Command,
    Configure,
    Copy,
    Erase,
    Expire,
    Purge,
    PurgeSome,
    Put,
    Remove,
    Skip,
    Timing,
    Truncate,
)
from jetlake.jetstream.streams.msg_ids import MsgIds
from jetlake.ops import OP_WORDS
from jetlake.store import FileStore, MemStore
from jetlake.subjects import decode_subject
from jetlake.wire.headers import header_value

Store = FileStore | MemStore


class StreamMachine:
    """What the commands of one stream made of it."""

    def __init__(self, store: Store, duplicate_window_ns: int) -> None:
        self.use(store, duplicate_window_ns)

    def use(self, store: Store, duplicate_window_ns: int) -> None:
        """Go on from what a store holds."""
        self.store = store
        self.msg_ids = MsgIds(duplicate_window_ns, is_loaded=False)
        self.schedules = Schedules()

    @property
    def next_seq(self) -> int:
        """The sequence of the next message."""
        return self.store.catalog.last_seq + 1

    def next_time_ns(self, now_ns: int) -> int:
        """The time of the next message: now, unless the clock went backwards."""
        return max(now_ns, self.store.catalog.last_time_ns)

    def last_seq_of(self, filter: str) -> int:
        """The last sequence of a subject, or of those that a filter matches; 0 when there is none."""
        queries = self.store.queries
        try:
            return queries.last_seq(queries.filter(filter)) or 0
        except BadSubject:  # which nothing has
            return 0

    def apply(self, command: Command) -> Any:
        """Carry out a command; what it returns is said where its kind is applied."""
        return _APPLY[type(command)](self, command)

    def replay(self, command: Command) -> Any:
        """Carry out a command that was decided elsewhere: ids that the rules took there are taken here."""
        done = self.apply(command)
        if isinstance(command, Append):
            assert done == command.stop, f"stored up to {done} of {command.stop}"
            data, ops, first, stop = command[2:]
            self.msg_ids.take(data, ops, first, stop, command.seq, command.time_ns)
        return done

    def find_msg_id(self, msg_id: bytes, now_ns: int) -> int:
        """The sequence of the message with this id; 0 when there is none in the window."""
        if not self.msg_ids.is_loaded:
            self._load_ids(now_ns)
        return self.msg_ids.find(msg_id, now_ns)

    def load_ids(self) -> None:
        """Know the ids of recent messages from now on, so that those of later ones are added in their order."""
        if not self.msg_ids.is_loaded:
            self._load_ids(self.store.catalog.last_time_ns)

    def last_msg_id(self) -> bytes:
        """The id of the last message; empty when it has none or is gone."""
        try:
            return header_value(self.store.load(self.next_seq - 1).headers, b"Nats-Msg-Id") or b""
        except MessageNotFound:
            return b""

    def _load_ids(self, now_ns: int) -> None:
        """Remember the ids of the messages that are still within the window."""
        catalog, window_ns = self.store.catalog, self.msg_ids.window_ns
        start = self.store.seq_from_time(now_ns - window_ns)
        for block in catalog.blocks if window_ns else ():
            if block.last_seq >= start:
                index, body = catalog.index(block), self.store.body_of(block)
                for first, last in block.live_runs(start, block.last_seq):
                    positions = index.position_from(first), index.position_from(last + 1)
                    self.msg_ids.load(body, index.offsets, *positions, block.seed)
        self.msg_ids.is_loaded = True

    def _take_id(self, msg_id: bytes, seq: int, time_ns: int) -> None:
        if msg_id:
            self.msg_ids.expire(time_ns)
            self.msg_ids.add(msg_id, seq, time_ns)

    # One for each kind

    def _append(self, command: Append) -> int:
        """The operation at which it stopped. The rules took its ids: those of what is not stored are let go."""
        assert command.seq == self.next_seq, f"sequence {command.seq} does not follow {self.next_seq - 1}"
        done = command.first
        try:
            _, done = self.store.append_batch(command.data, command.ops, command.first, command.stop, command.time_ns)
        finally:
            if done < command.stop:
                self.msg_ids.forget_from(command.seq + done - command.first)
        if self.schedules:
            self.schedules.end_replaced(command.data, command.ops, command.first, done)
        return done

    def _append_all(self, command: AppendAll) -> None:
        assert command.seq == self.next_seq, f"sequence {command.seq} does not follow {self.next_seq - 1}"
        self.store.append_together(command.data, command.ops, command.time_ns, command.expires, command.replaces)
        for number, msg_id in command.msg_ids:
            self._take_id(msg_id, command.seq + number, command.time_ns)
        if command.unwanted:
            self.store.remove_many([command.seq + number for number in command.unwanted])
        if self.schedules or command.timings:
            self._schedule_all(command)

    def _schedule_all(self, command: AppendAll) -> None:
        """Members of a batch are schedules, come from some, or replace some."""
        timings, unwanted = dict(command.timings), set(command.unwanted)
        for number in range(len(command.ops) // OP_WORDS):
            start, size = command.ops[number * OP_WORDS : number * OP_WORDS + 2]
            subject = decode_subject(bytes(command.data[start : start + size]))
            if number not in unwanted:
                self.schedules.end(subject)
            if number in timings:
                self._schedule(subject, command.seq + number, timings[number])

    def _copy(self, command: Copy) -> None:
        self.store.append_batch_at(command.data, command.ops, command.seqs, command.times)

    def _put(self, command: Put) -> None:
        assert command.seq == self.next_seq, f"sequence {command.seq} does not follow {self.next_seq - 1}"
        self.store.append_at(
            command.seq,
            command.time_ns,
            command.subject,
            command.payload,
            command.headers,
            expires_ns=command.expires_ns,
            msg_id=bool(command.msg_id),
        )
        self._take_id(command.msg_id, command.seq, command.time_ns)
        if command.replaces:
            self.store.purge(command.replaces, seq=command.seq)
        if self.schedules:
            self.schedules.end(command.subject)
        if command.timing is not None:
            self._schedule(command.subject, command.seq, command.timing)

    def _schedule(self, subject: str, seq: int, timing: Timing) -> None:
        """A message is a schedule, or was made by one, or ends one."""
        if timing.due_ns:
            self.schedules.put(subject, seq, timing.due_ns)
        if timing.scheduler and timing.next_ns:
            self.schedules.move(timing.scheduler, seq, timing.next_ns)
        elif timing.scheduler:
            self.schedules.end(timing.scheduler)
            self.store.purge(timing.scheduler, seq=seq)

    def _skip(self, command: Skip) -> None:
        self.store.skip(command.seq - self.next_seq + 1, command.time_ns)
        self._take_id(command.msg_id, command.seq, command.time_ns)
        if command.timing is not None:
            self._schedule("", command.seq, command.timing)

    def _remove(self, command: Remove) -> int:
        """How many of them there were."""
        return self.store.remove_many(command.seqs)

    def _erase(self, command: Erase) -> bool:
        """Whether there was one. Its bytes may stay for as long as the store says that it is erasing."""
        return self.store.erase_soon(command.seq)

    def _purge(self, command: Purge) -> int:
        """How many went."""
        if command == Purge():
            self.schedules.clear()
        return self.store.purge(command.filter, seq=command.below_seq, keep=command.keep)

    def _purge_some(self, command: PurgeSome) -> array[int]:
        """Which went."""
        return self.store.purge_first(command.filter, command.first_seq, command.last_seq, command.count_max)

    def _truncate(self, command: Truncate) -> None:
        self.store.truncate(command.seq)
        self.msg_ids.forget_from(command.seq + 1)

    def _expire(self, command: Expire) -> int:
        """How many went; there may be more if it is as many as it might be."""
        return self.store.expire(command.now_ns, count_max=command.count_max)

    def _configure(self, command: Configure) -> int:
        """How many messages went."""
        count = self.store.catalog.table.total
        self.store.update(command.limits, command.now_ns)
        self.msg_ids.window_ns = command.duplicate_window_ns
        return count - self.store.catalog.table.total


_APPLY: dict[type, Callable[[StreamMachine, Any], Any]] = {
    Append: StreamMachine._append,
    AppendAll: StreamMachine._append_all,
    Copy: StreamMachine._copy,
    Put: StreamMachine._put,
    Skip: StreamMachine._skip,
    Remove: StreamMachine._remove,
    Erase: StreamMachine._erase,
    Purge: StreamMachine._purge,
    PurgeSome: StreamMachine._purge_some,
    Truncate: StreamMachine._truncate,
    Expire: StreamMachine._expire,
    Configure: StreamMachine._configure,
}
