"""Read the blocks of a nats-server stream: from a file's bytes to batches of messages.

A batch is the decoded block and, for each message, an operation that says where its parts lie, a sequence and a time:
what `append_batch_at` and Spark's columns take as it is. Memory follows the size of a block.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jetlake.ops import OP_WORDS
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.store.format import Buffer
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.nats.envelope import SLACK, Body, open_body
from jetlake.store.nats.format import block_key
from jetlake.store.nats.keys import AssetKey, unwrap
from jetlake.store.nats.walk import walk

SEQ_MAX = 2**62 - 1
_BATCH_COUNT = 1 << 15


class Place(NamedTuple):
    """What reading a block needs to know beside secrets."""

    account: str
    stream: str
    number: int
    path: str
    key_path: str = ""  # "": it is not encrypted


class LiveBlock(NamedTuple):
    """The live messages of a block: first_seq..last_seq without `gone`."""

    place: Place
    first_seq: int
    last_seq: int
    gone: SequenceSet
    file_size: int

    @property
    def msgs(self) -> int:
        return self.last_seq + 1 - self.first_seq - self.gone.count

    @property
    def live(self) -> SequenceSet:
        return SequenceSet(self.gone.gaps(self.first_seq, self.last_seq))


class Batch(NamedTuple):
    """Messages of a block; the arrays are used again for the next batch. SLACK bytes follow the records in `data`."""

    data: Buffer
    entries: int  # how many
    ops: array[int]
    seqs: array[int]
    times: array[int]


def open_block(place: Place, secrets: Sequence[bytes], files: Files = OS_FILES) -> Body:
    """The records of a block; raises WrongKey, OSError."""
    with files.open(place.path) as file:
        size = file.size()
        stored = bytearray(size + SLACK)
        with memoryview(stored) as view:
            size = file.pread_into(0, view[:size])
    return open_body(stored, size, read_key(place, secrets, files))


def read_key(place: Place, secrets: Sequence[bytes], files: Files = OS_FILES) -> AssetKey | None:
    """The key of a block; None for one that has none."""
    if not place.key_path:
        return None
    context = f"{place.stream}:{place.number}"
    return unwrap(files.read(place.key_path), secrets, place.account, context, place.key_path)


class BlockReader:
    """Walks blocks, with arrays that it uses again."""

    def __init__(self, secrets: Sequence[bytes] = (), files: Files = OS_FILES) -> None:
        self._secrets, self._files = secrets, files
        self._ops = array("I", bytes(4 * OP_WORDS * _BATCH_COUNT))
        self._seqs, self._times = array("Q", bytes(8 * _BATCH_COUNT)), array("q", bytes(8 * _BATCH_COUNT))
        self.problem = ""  # what was wrong with the block that was read last
        self.end_seq = 0  # and its last sequence

    def live(self, block: LiveBlock) -> Iterator[Batch]:
        """The live messages of a block. What is missing of them afterwards is damaged; `problem` says how."""
        starts, ends = block.gone.arrays
        yield from self._walk(block.place, False, block.first_seq, block.last_seq, starts, ends)

    def everything(self, place: Place) -> Iterator[Batch]:
        """All messages and tombstones of a block, up to the first damaged record."""
        yield from self._walk(place, True, 1, SEQ_MAX, array("Q"), array("Q"))

    def _walk(
        self, place: Place, is_strict: bool, first_seq: int, last_seq: int, starts: array[int], ends: array[int]
    ) -> Iterator[Batch]:
        body = open_block(place, self._secrets, self._files)
        data, key, at, prev_seq, bad_count = body.data, block_key(place.stream, place.number), 0, 0, 0
        self.problem = body.problem
        while True:
            found = walk(
                data, at, body.size, key, is_strict, prev_seq, first_seq, last_seq, starts, ends,
                self._ops, self._seqs, self._times,
            )  # fmt: skip
            at, self.end_seq, bad_count = found.end, found.prev_seq, bad_count + found.bad_records
            prev_seq = found.prev_seq
            if found.entries:
                yield Batch(data, found.entries, self._ops, self._seqs, self._times)
            if found.is_bad or found.entries < len(self._seqs):
                break
        if found.is_bad and not self.problem:
            self.problem = f"record at offset {at} of {body.size} is damaged"
        if bad_count and not self.problem:
            self.problem = f"{bad_count} records are damaged"
