"""The write-ahead log of a node: one file at a time for all its groups, one sync for everything that a turn wrote.

    wal = Wal(files, directory, engine)      # replays what is there into the engine
    wal.add(data)                            # what `Engine.ready` gave
    write = wal.take(); write.run()          # in any thread: it is durable now
    wal.written(write)

It is a `store.log`: records with checksums, in segments. A record is what one write made durable; what is in it only
the engine knows (`engine/src/log.rs`). The first record of a segment also says where each group stands, so that older
segments can go once none of the entries in them is needed: every group has a checkpoint behind its last one there.

What cannot be read. An interrupted write at the very end was never acknowledged, and is cut off. Anything else was
durable once: it may have held a vote or an entry of any group. The engine is told where in the log that is
(`Engine.damage`), and groups for which later records do not make up for it are *forgotten*: their member must not
vote or acknowledge under its raft id again. The same holds for a last record of which nobody can tell whether it was
damaged or interrupted.

On a server with an encryption key every record is sealed (`store.blocks.sealed_file`), each for its own number, so none
can take the place of another. `wal_conversion.py` brings a log under another key.

After a failed write or sync the file is left as it is. `restart` writes the same bytes once more, into a new segment;
the numbers of records say that it replaces what the old segment may have of them.

Always true: what `take` gave is in the log, as a whole and durably, or not at all; a segment goes only after a later
one that has been synced says more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jetlake.errors import CorruptBlock
from jetlake.store.blocks.envelope import Cipher
from jetlake.store.blocks.sealed_file import OVERHEAD_SIZE, Sealer
from jetlake.store.disk.files import Files
from jetlake.store.log.log import Log
from jetlake.store.log.segment import (
    HEADER_SIZE,
    Record,
    SegmentHeader,
    decode_header,
    parse_segment_name,
    record_size,
    scan,
    segment_name,
)

if TYPE_CHECKING:
    from jetlake.cluster._engine import Engine

PURPOSE = 2  # the redo log's is 1
SEGMENT_SIZE = 64 * 1024 * 1024
SEGMENT_COUNT_MAX = 2  # that a restart reads, if the groups make their checkpoints
_FIRST_COPIES_SIZE = 1024  # of a header; both copies are in it

Needs = dict[int, int]  # by group, the highest index of an entry


def record_kind(seq: int) -> bytes:
    """What a record is sealed for."""
    return b"cluster log %d" % seq


@dataclass
class Write:
    """Something that is about to become durable."""

    log: Log
    sealer: Sealer
    body: bytes
    highest: Needs
    checkpoints: dict[int, int]  # which it makes durable
    begins_segment: bool
    seq: int  # of the record
    number: int = 0  # of the segment that it went to

    redo = None  # it has a log of its own
    is_small = False  # nor does it wait for others

    def run(self) -> None:
        """Write and sync. OSError leaves open what the file has."""
        if self.begins_segment:
            self.log.next_segment()
        self.number = self.log.append([self.sealer.seal(self.body, record_kind(self.seq))])
        self.log.sync()


@dataclass
class _Segment:
    """A file of the log, or one that cannot be read."""

    number: int
    header: SegmentHeader | None
    highest: Needs = field(default_factory=dict)


class Wal:
    """The log of one node. Everything but `Write.run` and `retire` is called in one thread."""

    def __init__(
        self,
        files: Files,
        directory: str,
        engine: Engine,
        *,
        segment_size: int = SEGMENT_SIZE,
        sealer: Sealer | None = None,
    ) -> None:
        """Replay the log into the engine, which is new. Nothing is written yet. WrongKey where the key is another."""
        self._files, self._directory, self._engine = files, directory, engine
        self._segment_size, self._sealer = segment_size, sealer or Sealer()
        self.problems: list[str] = []  # what could not be read
        self._pending: list[bytes] = []
        self._writing: Write | None = None
        self._checkpoints: dict[int, int] = {}  # that are durable
        self._segments = self._find()
        next_seq = self._replay()
        files.make_dirs(directory)
        self._log = self._new_log(next_seq, self._segments[-1].number + 1 if self._segments else 1)
        self._is_first = True  # the next write begins a segment

    def _new_log(self, next_seq: int, number: int) -> Log:
        size = self._segment_size
        return Log(
            self._files, self._directory, purpose=PURPOSE, next_seq=next_seq, next_number=number, segment_size=size
        )

    # Reading

    def _find(self) -> list[_Segment]:
        names = self._files.list(self._directory) if self._files.exists(self._directory) else []
        numbers = (parse_segment_name(name) for name in names)
        return [_Segment(number, self._read_header(number)) for number in numbers if number is not None]

    def _read_header(self, number: int) -> SegmentHeader | None:
        path = f"{self._directory}/{segment_name(number)}"
        with self._files.open(path) as file:
            header = decode_header(file.pread(0, _FIRST_COPIES_SIZE))
        if header is None or (header.number, header.purpose) != (number, PURPOSE):
            self.problems.append(f"{path}: {'both headers are damaged' if header is None else 'is of another log'}")
            return None
        return header

    def _replay(self) -> int:
        """Hand all records to the engine; the number of the next one."""
        expected = 0
        for segment, limit in self._with_limits():
            assert segment.header is not None
            path = f"{self._directory}/{segment_name(segment.number)}"
            found = scan(self._files.read(path), segment.header)
            if expected and segment.header.first_seq > expected:
                self._damaged(f"{path}: records {expected} to {segment.header.first_seq - 1} before it are missing")
            expected = segment.header.first_seq
            for record in found.records:
                if record.seq >= limit:
                    break
                body = self._open(record, path)
                if body is None:
                    continue
                if record.seq != expected:
                    self._damaged(f"{path}: records {expected} to {record.seq - 1} are damaged")
                for group, index in self._engine.replay(body).items():
                    segment.highest[group] = max(index, segment.highest.get(group, 0))
                expected = record.seq + 1
            if found.records and expected <= min(found.records[-1].seq, limit - 1):
                self._damaged(f"{path}: records from {expected} on are damaged")
            if found.tail and segment is self._segments[-1]:
                self._damaged(f"{path}: {found.tail}")
        if self._segments and self._segments[-1].header is None:
            self._engine.damage()
        return max(expected, 1)

    def _open(self, record: Record, path: str) -> bytes | None:
        """What was written; None when it does not authenticate."""
        try:
            return self._sealer.open(record.body, record_kind(record.seq), path)
        except CorruptBlock as error:
            self.problems.append(str(error))
            return None

    def _with_limits(self) -> Iterator[tuple[_Segment, int]]:
        """Readable segments, each with the number of the first record that a later one replaces."""
        limit = 1 << 64
        limits = []
        for segment in reversed(self._segments):
            if segment.header is not None:
                limits.append((segment, limit))
                limit = min(limit, segment.header.first_seq)
        return reversed(limits)

    def _damaged(self, problem: str) -> None:
        self.problems.append(problem)
        self._engine.damage()

    # Writing

    @property
    def is_pending(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._pending)

    @property
    def pending_size(self) -> int:
        return sum(map(len, self._pending))

    @property
    def is_writing(self) -> bool:
        return self._writing is not None

    def add(self, data: bytes) -> None:
        """Write this with the next `take`."""
        self._pending.append(data)

    def take(self) -> Write:
        """All that waits. The engine has nothing for the log that was not added."""
        assert self._writing is None
        body = b"".join(self._pending)
        self._pending.clear()
        size = len(body) + (OVERHEAD_SIZE if self._sealer.cipher is not Cipher.NONE else 0)
        begins = self._is_first or self._log.size + record_size(size) > self._segment_size
        if begins:
            body += self._engine.heads()
        self._writing = self._write(body, self._engine.written(), self._log.next_seq, begins=begins)
        return self._writing

    def _write(self, body: bytes, highest: Needs, seq: int, *, begins: bool) -> Write:
        return Write(self._log, self._sealer, body, highest, self._engine.checkpoints(), begins, seq)

    def written(self, write: Write) -> None:
        """It is durable."""
        assert write is self._writing
        self._writing, self._is_first = None, False
        self._checkpoints = write.checkpoints
        if not self._segments or self._segments[-1].number != write.number:
            self._segments.append(_Segment(write.number, None))
        highest = self._segments[-1].highest
        for group, index in write.highest.items():
            highest[group] = max(index, highest.get(group, 0))

    def restart(self) -> Write:
        """After a failed write: the same once more, with what came since, in a new segment."""
        failed = self._writing
        assert failed is not None
        self._log.close()
        self._log = self._new_log(failed.seq, self._log.number + 1)
        body = b"".join((failed.body, *self._pending, self._engine.heads()))
        self._pending.clear()
        highest = {**failed.highest}
        for group, index in self._engine.written().items():
            highest[group] = max(index, highest.get(group, 0))
        self._is_first = True
        self._writing = self._write(body, highest, failed.seq, begins=True)
        return self._writing

    # Letting go

    def retirable(self) -> int:
        """Segments before this number are not needed any more; 0 when there are none of them."""
        if self._is_first:
            return 0
        needed = self._segments[-1].number
        for segment in self._segments:
            if any(index > self._checkpoints.get(group, index) for group, index in segment.highest.items()):
                needed = segment.number
                break
        return needed if self._segments[0].number < needed else 0

    def holders(self) -> list[int]:
        """Groups without whose entries the oldest segments could go, when a restart would read too many of them."""
        old = self._segments[:-SEGMENT_COUNT_MAX]
        held = {group: index for segment in old for group, index in segment.highest.items()}
        return [group for group, index in held.items() if index > self._checkpoints.get(group, index)]

    def retire(self, number: int) -> None:
        """Remove segments before a number; in any thread, one at a time."""
        self._log.retire(number)

    def retired(self, number: int) -> None:
        """They are gone."""
        self._segments = [segment for segment in self._segments if segment.number >= number]

    @property
    def size(self) -> int:
        """How many bytes would be replayed, roughly."""
        return (len(self._segments) - 1) * self._segment_size + self._log.size if self._segments else 0

    def close(self) -> None:
        """Give the file back."""
        self._log.close()


assert SEGMENT_SIZE > HEADER_SIZE
