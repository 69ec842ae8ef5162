"""InFlight: the commands of a stream that are on their way, and what rules may know of them before they are applied.

A leader decides on the next message while those before it are being agreed on. What it has to know then is the state
of the store plus what is in flight. Some of that is exact: the next sequence, the last time, the ids of messages. Of
the rest the view is sure of one side only, which will do: it says yes where yes is certain, and raises Unsettled where
it is not. The rule is asked again then, when nothing is in flight and the store tells everything.

    discard=new     a message fits for certain if it fits beside everything stored and everything in flight
    last sequence   of a subject: that of the last message in flight, else the store's, as long as no limit can evict
                    and no removal is in flight

Always true: entries are in the order in which they were proposed, and only the last ones may wait to be sent; messages
of entries follow each other without gaps in their sequences.
"""

from __future__ import annotations

from array import array
from collections import deque

from jetlake.cluster.codec import APPEND_HEAD_SIZE, decode, seal_append
from jetlake.cluster.pack import pack
from jetlake.errors import LimitExceeded
from jetlake.jetstream.streams.answers import Answer
from jetlake.jetstream.streams.commands import Append, Command, Put, Remove, Skip
from jetlake.jetstream.streams.log import Then, Unsettled
from jetlake.jetstream.streams.machine import Store, StreamMachine
from jetlake.ops import OP_WORDS
from jetlake.store.api import Discard
from jetlake.store.format import Buffer
from jetlake.subjects import encode_subject, is_literal


class Entry:
    """A command on its way, and who waits for it."""

    __slots__ = ("answers", "count", "data", "index", "is_barrier", "size", "then")

    def __init__(self, data: bytes, then: Then | None = None, *, is_barrier: bool = False) -> None:
        self.data, self.then, self.is_barrier = data, then, is_barrier
        self.index = 0  # in the group's log; 0 before it is sent
        self.answers: list[Answer] = []
        self.count = self.size = 0  # of its messages; their bytes as limits count them, or more


class Batch:
    """Messages that will be one entry, at the end of the turn."""

    def __init__(self, seq: int, time_ns: int) -> None:
        self.seq, self.time_ns = seq, time_ns
        self.count = self.size = 0
        self.out = bytearray(APPEND_HEAD_SIZE)
        self.answers: list[Answer] = []

    def entry(self) -> Entry:
        """All of them."""
        entry = Entry(seal_append(self.out, self.seq, self.time_ns, self.count))
        entry.answers, entry.count, entry.size = self.answers, self.count, self.size
        return entry


class InFlight:
    """What is on its way, in order."""

    def __init__(self, machine: StreamMachine) -> None:
        self._machine = machine
        self.entries: deque[Entry] = deque()
        self.batch: Batch | None = None
        self.clear()

    def clear(self) -> None:
        """Nothing is on its way."""
        self.entries.clear()
        self.batch = None
        self.last_seq = self.last_time_ns = 0  # of what is on its way
        self.count = self.size = 0  # of its messages, at least as many as there are
        self.has_removals = False
        self._subjects: dict[bytes, tuple[int, int]] | None = None  # count and last sequence; None: not asked for

    def __bool__(self) -> bool:
        return self.batch is not None or bool(self.entries)

    @property
    def _store(self) -> Store:
        return self._machine.store

    @property
    def next_seq(self) -> int:
        """The sequence of the next message."""
        return self.last_seq + 1 if self else self._machine.next_seq

    def next_time_ns(self, now_ns: int) -> int:
        """The time of the next message. Those of one batch have the same."""
        if self.batch is not None:
            return self.batch.time_ns
        return self._machine.next_time_ns(max(now_ns, self.last_time_ns) if self else now_ns)

    # Taking notes

    def begin(self, seq: int, time_ns: int) -> Batch:
        """The batch that takes messages, from a sequence on if there is none yet."""
        if self.batch is None:
            self._follow_store()
            assert seq == self.last_seq + 1, f"sequence {seq} does not follow {self.last_seq}"
            self.batch, self.last_time_ns = Batch(seq, time_ns), time_ns
        return self.batch

    def pack(self, batch: Batch, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Take messages into a batch, up to one that needs a look; where that is."""
        start = len(batch.out)
        done = pack(data, ops, first, stop, batch.out, False)
        count = done - first
        if count and self._subjects is not None:
            for number in range(first, done):
                at, size = ops[number * OP_WORDS : number * OP_WORDS + 2]
                self._note(bytes(data[at : at + size]), self.last_seq + 1 + number - first)
        size = len(batch.out) - start + count * self._size_fixed
        batch.count, batch.size = batch.count + count, batch.size + size
        self.last_seq, self.count, self.size = self.last_seq + count, self.count + count, self.size + size
        return done

    def add(self, entry: Entry, command: Command) -> None:
        """A command is on its way by itself."""
        self._follow_store()
        if isinstance(command, Put):
            entry.count, entry.size = 1, len(entry.data) + self._size_fixed
            self.count, self.size = self.count + 1, self.size + entry.size
            if self._subjects is not None:
                self._note(encode_subject(command.subject), command.seq)
        if isinstance(command, Put | Skip):
            assert command.seq > self.last_seq, f"sequence {command.seq} does not follow {self.last_seq}"
            self.last_seq, self.last_time_ns = command.seq, max(command.time_ns, self.last_time_ns)
        elif isinstance(command, Remove):
            self.has_removals = True
        self.entries.append(entry)

    def applied(self) -> Entry:
        """The first entry was applied: it is handed back."""
        entry = self.entries.popleft()
        self.count, self.size = self.count - entry.count, self.size - entry.size
        if not self:
            self.clear()
        return entry

    def _follow_store(self) -> None:
        """With nothing in flight, the next message follows the last one stored."""
        if not self:
            catalog = self._store.catalog
            self.last_seq, self.last_time_ns = catalog.last_seq, catalog.last_time_ns

    @property
    def _size_fixed(self) -> int:
        return self._store.size_fixed + self._store.size_headers

    def _note(self, subject: bytes, seq: int) -> None:
        assert self._subjects is not None
        self._subjects[subject] = (self._subjects.get(subject, (0, 0))[0] + 1, seq)

    # What rules ask

    def check_fits(self, subject: bytes, headers: Buffer, payload: Buffer, is_rollup: bool) -> None:
        """LimitExceeded when discard=new refuses a message; Unsettled when that cannot be told yet."""
        if not self:
            self._store.check_new(subject, headers, payload, is_rollup=is_rollup)
        elif self._store.limits.discard is Discard.NEW:
            size = len(subject) + len(headers) + len(payload) + self._size_fixed
            if not self._fits(subject, 1, size):
                raise Unsettled

    def fitting(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Where the first message of first..stop-1 stands that discard=new may refuse."""
        limits = self._store.limits
        if limits.discard is not Discard.NEW or not limits.is_bounded:
            return stop
        count = size = 0
        taken: dict[bytes, int] = {}
        for number in range(first, stop):
            op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
            subject = bytes(data[op[0] : op[0] + op[1]])
            count, size = count + 1, size + self._size_fixed + op[1] + op[5] + op[7]
            taken[subject] = taken.get(subject, 0) + 1
            if not self._fits(subject, count, size, taken[subject]):
                return number if number > first or self else self._fitting_one(subject, data, op, first)
        return stop

    def _fitting_one(self, subject: bytes, data: Buffer, op: array[int], first: int) -> int:
        """Where nothing is in flight, the store knows of one message whether it fits."""
        headers, payload = (data[start : start + size] for start, size in (op[4:6], op[6:8]))
        try:
            self._store.check_new(subject, headers, payload)
        except LimitExceeded:
            return first
        return first + 1

    def _fits(self, subject: bytes, count: int, size: int, of_subject: int = 1) -> bool:
        """Whether some messages fit for certain, so many of them of one subject."""
        limits, catalog = self._store.limits, self._store.catalog
        if 0 < limits.max_msgs < catalog.table.total + self.count + count:
            return False
        if 0 < limits.max_bytes < catalog.size + self.size + size:
            return False
        if not limits.discard_new_per_subject:
            return True
        slot = catalog.table.find(subject)
        stored = catalog.table.count(slot) if slot >= 0 else 0
        return stored + self._of(subject)[0] + of_subject <= limits.max_msgs_per_subject

    def last_seq_of(self, filter: str) -> int:
        """The last sequence of a subject, or of those that a filter matches; Unsettled when it cannot be told yet."""
        if not self:
            return self._machine.last_seq_of(filter)
        if self.has_removals or not is_literal(filter) or self._may_evict():
            raise Unsettled
        return self._of(encode_subject(filter))[1] or self._machine.last_seq_of(filter)

    def _may_evict(self) -> bool:
        """Whether a limit may take messages when what is in flight is stored."""
        limits, catalog = self._store.limits, self._store.catalog
        if limits.discard is Discard.NEW:
            return False
        if 0 < limits.max_msgs < catalog.table.total + self.count:
            return True
        return 0 < limits.max_bytes < catalog.size + self.size

    def _of(self, subject: bytes) -> tuple[int, int]:
        """How many messages of a subject are in flight, at least, and the last one's sequence."""
        if not self:
            return 0, 0
        if self._subjects is None:
            self._look_through()
        assert self._subjects is not None
        return self._subjects.get(subject, (0, 0))

    def _look_through(self) -> None:
        """Take down the subjects of everything in flight; from now on they are noted as they come."""
        self._subjects = {}
        batch = [self.batch.entry()] if self.batch is not None else []
        for entry in (*self.entries, *batch):
            command = decode(entry.data) if entry.count else None
            if isinstance(command, Put):
                self._note(encode_subject(command.subject), command.seq)
            elif isinstance(command, Append):
                for number in range(command.stop):
                    at, size = command.ops[number * OP_WORDS : number * OP_WORDS + 2]
                    self._note(entry.data[at : at + size], command.seq + number)
