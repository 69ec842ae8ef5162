"""MsgBlock: one block of a stream in memory: what it holds, where each message lies, and its bytes not yet on disk.

Body bytes are staged in *chunks*: fixed-size buffers that the kernels encode into and readers read from, so that a
recent message never touches the disk. A file's block hands chunks to the disk in order and then keeps only the last
few as a read cache; a memory block keeps them all.

    body:   0 ............ written_size ............ body_size
            on disk (synced up to synced_size)       staged in chunks only

What is always true
    synced_size <= written_size <= body_size
    live messages are the sequences of [first_seq, last_seq] that are not in `gone`
    the index knows every message record of the body, gone ones included, in ascending order
    a sealed block's body never changes

Damage raises nothing here: `read` gives as many bytes as can be had, and `record` None where there is no sound record.
What to make of it is up to `Catalog.record_at` and `Retention.lose`, for all readers alike.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from jetlake.store.blocks.removal import RemovalGroup
from jetlake.store.format import BlockHeader
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import BadRecord, Record, decode

CHUNK_SIZE_MIN = 4 * 1024
CHUNK_SIZE_MAX = 1024 * 1024
# Written chunks that stay in memory to serve reads of recent messages.
CACHED_CHUNKS_MAX = 2
_INDEX_GROWTH_MIN = 64


class Chunk:
    """A piece of a block's body in memory."""

    __slots__ = ("base", "data", "used")

    def __init__(self, base: int, size: int) -> None:
        self.base, self.data, self.used = base, bytearray(size), 0

    @property
    def end(self) -> int:
        return self.base + self.used


class BlockIndex:
    """Where each message of a block starts, and its subject.

    `offsets` and `ids` may be longer than `count`: the rest is room to grow. `ids` are slots of `table`, which is the
    whole stream's for the block being written to, and the block's own for one read from a sidecar.
    """

    __slots__ = ("base_seq", "count", "ids", "offsets", "seqs", "table")

    def __init__(self, table: SubjectTable, base_seq: int = 0) -> None:
        self.table, self.base_seq, self.count = table, base_seq, 0
        self.offsets, self.ids = array("I"), array("I")
        # Distances of sequences from base_seq; None while message i simply has the sequence base_seq + i.
        self.seqs: array[int] | None = None

    def reserve(self, count: int) -> None:
        """Make room for so many more messages."""
        missing = self.count + count - len(self.offsets)
        if missing > 0:
            more = array("I", bytes(4 * max(missing, len(self.offsets) // 2, _INDEX_GROWTH_MIN)))
            self.offsets.extend(more)
            self.ids.extend(more)

    def trim(self) -> None:
        """Give back the room to grow."""
        del self.offsets[self.count :]
        del self.ids[self.count :]

    def extend(self, seq: int, count: int) -> None:
        """Offsets and subjects of so many more messages were put in place; their sequences go from `seq` on."""
        if self.seqs is not None or seq != self.base_seq + self.count:
            self._note_seqs(seq, count)
        self.count += count

    def extend_at(self, seqs: array[int], first: int, stop: int) -> None:
        """The same with sequences seqs[first:stop], which rise."""
        if seqs[stop - 1] - seqs[first] == stop - first - 1:
            self.extend(seqs[first], stop - first)
            return
        self.extend(seqs[first], 1)
        if self.seqs is None:
            self.seqs = array("I", range(self.count))
        self.seqs.extend([seq - self.base_seq for seq in seqs[first + 1 : stop]])
        self.count += stop - first - 1

    def _note_seqs(self, seq: int, count: int) -> None:
        if not self.count and self.seqs is None:
            self.base_seq = seq
        elif self.seqs is None:
            self.seqs = array("I", range(self.count))
        if self.seqs is not None:
            self.seqs.extend(range(seq - self.base_seq, seq - self.base_seq + count))

    def add(self, seq: int, offset: int, slot: int) -> None:
        """Append one message."""
        self.reserve(1)
        self.offsets[self.count], self.ids[self.count] = offset, slot
        self.extend(seq, 1)

    def cut(self, position: int) -> None:
        """Forget the messages from a position on."""
        self.count = position
        del self.offsets[position:], self.ids[position:]
        if self.seqs is not None:
            del self.seqs[position:]

    def drop(self, position: int) -> None:
        """Forget one message."""
        if self.seqs is None and position < self.count - 1:
            self.seqs = array("I", range(self.count))
        for column in (self.offsets, self.ids, self.seqs):
            if column is not None:
                del column[position]
        self.count -= 1
        if self.seqs is not None and self.count and self.seqs[-1] == self.count - 1:
            self.seqs = None  # what is left has no gaps

    def position(self, seq: int) -> int:
        """Which message has this sequence; -1 when none."""
        position = self.position_from(seq)
        return position if position < self.count and self.seq(position) == seq else -1

    def position_from(self, seq: int) -> int:
        """The first message whose sequence is `seq` or higher; `count` when there is none."""
        distance = seq - self.base_seq
        if distance <= 0:
            return 0
        if self.seqs is None:
            return min(distance, self.count)
        return bisect_left(self.seqs, distance)

    def seq(self, position: int) -> int:
        return self.base_seq + (position if self.seqs is None else self.seqs[position])

    def end(self, position: int, body_size: int) -> int:
        """An offset at or after the end of a message's record, and at or before the next message."""
        return self.offsets[position + 1] if position + 1 < self.count else body_size

    @property
    def size_bytes(self) -> int:
        """Memory held."""
        words = len(self.offsets) + len(self.ids) + (len(self.seqs) if self.seqs is not None else 0)
        return 4 * words


class MsgBlock:
    """One block of a stream."""

    def __init__(self, header: BlockHeader, path: str = "") -> None:
        self.header, self.path = header, path
        self.first_seq, self.last_seq = header.first_seq, header.first_seq - 1
        self.gone = SequenceSet()
        self.lost = SequenceSet()  # of the gone ones, those taken by damage
        self.size = 0  # of the live messages, as JetStream counts it
        self.fixed_size = 0  # of what else the block must hold, as its last rewriting in this process told
        self.time_ns_min, self.time_ns_max = 2**63 - 1, -(2**63)
        self.index: BlockIndex | None = None
        self.chunks: list[Chunk] = []
        self.body_size = self.written_size = self.synced_size = 0
        self.written_seq = self.last_seq  # the last one that was in use when the written bytes were handed to the disk
        self.frame_ends: list[int] = []  # staged offsets at which a frame has to end
        self._last_hash = 0  # where no chunk is in memory
        self.subject_bits = b""  # of a sealed block: see `summary.py`; empty when it is not known
        self.sealed = False
        self.groups: list[RemovalGroup] = []  # tombstones in this block that speak of earlier blocks, or of none
        self.floor_seq = header.floor_seq
        self.expiring: list[tuple[int, int]] = []
        self.read_body: Callable[[int, int], bytes] = _nothing_on_disk

    @property
    def id(self) -> int:
        return self.header.block_id

    @property
    def seed(self) -> int:
        return self.header.hash_seed

    @property
    def last_hash(self) -> int:
        """The hash of the last record; 0 when there is none."""
        for chunk in reversed(self.chunks):
            if chunk.used:
                return int.from_bytes(chunk.data[chunk.used - 8 : chunk.used], "little")
        return self._last_hash

    @last_hash.setter
    def last_hash(self, last_hash: int) -> None:
        self._last_hash = last_hash

    @property
    def message_count(self) -> int:
        """Live messages."""
        return self.last_seq - self.first_seq + 1 - self.gone.count

    @property
    def pending_size(self) -> int:
        """Bytes not yet handed to the disk."""
        return self.body_size - self.written_size

    def is_live(self, seq: int) -> bool:
        return self.first_seq <= seq <= self.last_seq and seq not in self.gone

    def next_live(self, seq: int) -> int | None:
        """The first live sequence at or after `seq` in this block."""
        seq = self.gone.next_missing(max(seq, self.first_seq))
        return seq if seq <= self.last_seq else None

    def prev_live(self, seq: int) -> int | None:
        """The last live sequence at or before `seq` in this block."""
        seq = self.gone.prev_missing(min(seq, self.last_seq))
        return seq if seq >= self.first_seq else None

    def live_runs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The live sequences between two, as inclusive ranges."""
        return self.gone.gaps(max(first, self.first_seq), min(last, self.last_seq))

    def room(self, size: int) -> Chunk:
        """The chunk to encode the next `size` bytes into, with what is staged in it so far."""
        last = self.chunks[-1] if self.chunks else None
        if last is None or size > len(last.data) - last.used:
            grown = 2 * len(last.data) if last else CHUNK_SIZE_MIN
            grown = min(grown, CHUNK_SIZE_MAX) if size <= CHUNK_SIZE_MAX // 2 else size  # no second one would fit
            last = Chunk(self.body_size, max(size, grown))
            self.chunks.append(last)
        return last

    def stage(self, record: bytes) -> int:
        """Append one encoded record; its offset."""
        chunk = self.room(len(record))
        chunk.data[chunk.used : chunk.used + len(record)] = record
        chunk.used += len(record)
        self.body_size = chunk.end
        return self.body_size - len(record)

    def seal(self) -> None:
        """Nothing more will be staged."""
        self.sealed, self.last_hash = True, self.last_hash

    def pending(self) -> list[memoryview]:
        """The staged bytes that the disk has not been given, in order."""
        written_size, chunks = self.written_size, self.chunks
        if chunks and chunks[-1].base <= written_size:  # most of the time
            chunk = chunks[-1]
            return [memoryview(chunk.data)[written_size - chunk.base : chunk.used]] if chunk.end > written_size else []
        return [
            memoryview(chunk.data)[max(written_size - chunk.base, 0) : chunk.used]
            for chunk in chunks
            if chunk.end > written_size
        ]

    def trim_chunks(self, keep: int = CACHED_CHUNKS_MAX) -> None:
        """Let go of chunks that are on disk, but for the newest few."""
        count = 0
        while len(self.chunks) > keep + count and self.chunks[count].end <= self.written_size:
            count += 1
        if count:
            self.chunks = self.chunks[count:]  # a new list: another thread may be reading from the old one

    def chunk_at(self, offset: int) -> Chunk | None:
        """The chunk that holds the record at an offset; None when it is on disk only."""
        for chunk in reversed(self.chunks):  # what is asked for most is in the last ones
            if offset >= chunk.base:
                return chunk
        return None

    def note_time(self, time_ns: int) -> None:
        """A record of this time is in the block."""
        self.time_ns_min, self.time_ns_max = min(self.time_ns_min, time_ns), max(self.time_ns_max, time_ns)

    def read(self, start: int, end: int) -> bytes:
        """Bytes start..end-1 of the body, from memory or from disk, or as many of them as come before damage."""
        chunks, parts = self.chunks, list[bytes]()
        if not chunks or end <= chunks[0].base:
            return self.read_body(start, end)
        if start < chunks[0].base:
            parts.append(self.read_body(start, chunks[0].base))
            if len(parts[0]) < chunks[0].base - start:
                return parts[0]
            start = chunks[0].base
        place = bisect_right(chunks, start, key=_chunk_base) - 1
        while start < end:
            chunk = chunks[place]
            parts.append(bytes(memoryview(chunk.data)[start - chunk.base : min(end, chunk.end) - chunk.base]))
            start, place = chunk.end, place + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def record(self, index: BlockIndex, position: int) -> Record | None:
        """Decode the message at a position of the index; None when its bytes are damaged."""
        start = index.offsets[position]
        data = self.read(start, index.end(position, self.body_size))
        try:
            record = decode(data, 0, len(data), self.seed)[0]
        except BadRecord:
            return None
        return record if record.is_message and record.seq == index.seq(position) else None


def _chunk_base(chunk: Chunk) -> int:
    return chunk.base


def _nothing_on_disk(start: int, end: int) -> bytes:
    raise AssertionError(f"bytes {start}..{end} are neither in memory nor on disk")
