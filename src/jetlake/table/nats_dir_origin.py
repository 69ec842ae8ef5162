"""Streams in the store directory of a nats-server that does not run, read where they lie.

What is live is found out when a read is planned (`store.nats.live`); a task reads whole blocks of it. Blocks are ruled
out by sequence alone: nats-server's index says nothing else for certain.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from jetlake.jetstream.snapshots.nats_store import ttl_of
from jetlake.ops import OP_WORDS
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectFilter
from jetlake.store.nats.blocks import Batch, BlockReader, LiveBlock, Place
from jetlake.store.nats.live import Live
from jetlake.store.nats.stream_dir import NatsStream, StreamDir, list_streams
from jetlake.table.arrow import ColumnPool, arrays
from jetlake.table.errors import BadOption
from jetlake.table.locate import ACCOUNT_DEFAULT, match_names
from jetlake.table.nats_rows import fill
from jetlake.table.options import Options, split_list
from jetlake.table.origin import Bounds, Origin, Task
from jetlake.table.plan import partitions
from jetlake.table.schema import RowBuilder

_ROWS_MAX = 1 << 14  # of a batch: its columns should fit into the caches


class NatsPiece(NamedTuple):
    """Live messages of a block, as a plan fixed them."""

    place: Place
    first_seq: int
    last_seq: int
    gone: bytes  # an encoded SequenceSet
    start: int
    end: int

    @property
    def block(self) -> LiveBlock:
        return LiveBlock(self.place, self.first_seq, self.last_seq, SequenceSet.decode(self.gone), self.end)


class _Known(NamedTuple):
    """A stream as it was found."""

    live: Live
    created: str
    path: str
    ends: list[int]  # the last sequences of its blocks


class NatsDirOrigin(Origin):
    """Streams by nats-server's blocks."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._known: dict[str, _Known] = {}
        self._secrets = secrets_of(options)

    def names(self) -> list[str]:
        return [each.name for each in self._found()]

    def _found(self) -> list[StreamDir]:
        options = self.options
        found = list(list_streams(options.path))
        is_alone = len(found) == 1 and found[0].path.rstrip("/") == options.path.rstrip("/")
        if is_alone and not options.stream and not options.account:
            return found
        if is_alone and options.account:
            raise BadOption(f"option account is for a server's directory; {options.path} is one stream's own")
        account = options.account or (found[0].account if is_alone else ACCOUNT_DEFAULT)
        mine = {each.name: each for each in found if each.account == account}
        names = match_names(list(mine), options.stream, f"account {account} in {options.path}")
        return [mine[name] for name in names]

    def streams(self) -> list[str]:
        return list(self._known)

    def refresh(self) -> None:
        """At rest nothing changes, so one look is enough."""
        for found in self._found():
            if found.name not in self._known:
                stream = NatsStream(found, self._secrets, ttl_of)
                live = stream.live()
                ends = [block.last_seq for block in live.blocks]
                self._known[found.name] = _Known(live, str(stream.meta.get("Created", "")), found.path, ends)

    def sample(self, count: int) -> list[bytes]:
        self.refresh()
        payloads: list[bytes] = []
        for name in self._known:
            for piece in self._pieces(name, 1, 2**63 - 1):
                for batch in BlockReader(self._secrets).live(piece.block):
                    for place in range(min(batch.entries, count - len(payloads))):
                        start, size = batch.ops[place * OP_WORDS + 6 : place * OP_WORDS + 8]
                        payloads.append(bytes(batch.data[start : start + size]))
                    if len(payloads) >= count:
                        return payloads
        return payloads

    def plan(self) -> list[Task]:
        self.refresh()
        tasks, wanted = [], self.options.selection
        for name in self._known:
            self.report_lost(name, wanted.first_seq, wanted.last_seq)
            pieces = self._pieces(name, wanted.first_seq, wanted.last_seq)
            for row in partitions(pieces, self.options.partition_size):
                tasks.append(Task(name, row[0].first_seq, row[-1].last_seq, row))
        return tasks

    def plan_range(self, stream: str, first_seq: int, last_seq: int, time_ns_min: int) -> list[Task]:
        tasks = []
        while first_seq <= last_seq and self.count(stream, first_seq, last_seq):
            end_seq = min(self.limit(stream, first_seq, self.options.partition_rows, None), last_seq)
            pieces = self._pieces(stream, first_seq, end_seq)
            tasks.append(Task(stream, first_seq, end_seq, pieces, time_ns_min))
            first_seq = end_seq + 1
        return tasks

    def _pieces(self, stream: str, first_seq: int, last_seq: int) -> list[NatsPiece]:
        pieces = []
        for block in self._blocks(stream, first_seq, last_seq):
            first, last = max(first_seq, block.first_seq), min(last_seq, block.last_seq)
            gone = SequenceSet(block.gone.ranges_between(first, last))
            if gone.count < last - first + 1:
                pieces.append(NatsPiece(block.place, first, last, gone.encode(), 0, block.file_size))
        return pieces

    def _blocks(self, stream: str, first_seq: int, last_seq: int) -> Iterator[LiveBlock]:
        known = self._known[stream]
        for block in known.live.blocks[bisect_left(known.ends, first_seq) :]:
            if block.first_seq > last_seq:
                break
            yield block

    def read(self, task: Task, builder: RowBuilder) -> Iterator[pa.RecordBatch]:
        wanted, names = self.selection(task), builder.base_names
        pool, filter, reader = ColumnPool.of(names), SubjectFilter(wanted.filters), BlockReader(self._secrets)
        times = (wanted.time_ns_min, wanted.time_ns_max)
        for piece in task.pieces:
            seen, block = 0, piece.block
            for batch in reader.live(block):
                seen += batch.entries
                for first in range(0, batch.entries, _ROWS_MAX):
                    stop = min(first + _ROWS_MAX, batch.entries)
                    columns = pool.take(_span(batch, first, stop))
                    arguments = (batch.data, batch.ops, batch.seqs, batch.times, first, stop, filter, *times, columns)
                    found = fill(*arguments)
                    if found.rows:
                        columns_of = arrays(names, columns, found, builder.headers_type)
                        yield builder.build(task.stream, found.rows, columns_of)
            if seen < block.msgs:
                self._tell_damage(task.stream, block, reader)

    def _tell_damage(self, stream: str, block: LiveBlock, reader: BlockReader) -> None:
        lost = block.live
        for batch in reader.live(block):
            seqs = SequenceSet()
            seqs.add_all(batch.seqs[: batch.entries])
            lost.difference_update(seqs)
        self.losses(stream).damaged(lost, f"{block.place.path}: {reader.problem or 'messages are missing'}")

    def bounds(self, stream: str) -> Bounds:
        live = self._known[stream].live
        return Bounds(live.blocks[0].first_seq if live.blocks else live.last_seq + 1, live.last_seq)

    def seq_at(self, stream: str, time_ns: int) -> int:
        """Which block holds a time is not known for certain, so a read by time goes through all of them."""
        return self.bounds(stream).first_seq

    def identity(self, stream: str, seq: int) -> str:
        """When the stream was made."""
        return self._known[stream].created

    def limit(self, stream: str, start_seq: int, rows_max: int | None, size_max: int | None) -> int:
        """Sizes are counted as if all messages of a block were equally large."""
        last_seq = self._known[stream].live.last_seq
        rows_left, size_left = rows_max, size_max
        for block in self._blocks(stream, start_seq, last_seq):
            size_each = max(block.file_size // max(block.msgs, 1), 1)
            for first, last in block.gone.gaps(max(start_seq, block.first_seq), block.last_seq):
                count = last - first + 1
                fits = [count if rows_left is None else rows_left]
                fits.append(count if size_left is None else max(size_left // size_each, 1))
                if min(fits) <= count:
                    return first + min(fits) - 1
                rows_left = None if rows_left is None else rows_left - count
                size_left = None if size_left is None else size_left - count * size_each
        return last_seq

    def count(self, stream: str, first_seq: int, last_seq: int) -> int:
        total = 0
        for block in self._blocks(stream, first_seq, last_seq):
            first, last = max(first_seq, block.first_seq), min(last_seq, block.last_seq)
            total += last - first + 1 - block.gone.count_between(first, last)
        return total

    def size(self, stream: str, first_seq: int, last_seq: int) -> int:
        size = 0
        for block in self._blocks(stream, first_seq, last_seq):
            first, last = max(first_seq, block.first_seq), min(last_seq, block.last_seq)
            part = last - first + 1 - block.gone.count_between(first, last)
            size += block.file_size * part // max(block.msgs, 1)
        return size

    def report_lost(self, stream: str, first_seq: int, last_seq: int) -> int:
        known = self._known[stream]
        lost = SequenceSet(known.live.lost.ranges_between(first_seq, last_seq))
        self.losses(stream).damaged(lost, known.path)
        return lost.count


def _span(batch: Batch, first: int, stop: int) -> int:
    """How many bytes some messages of a batch lie in."""
    start, last = batch.ops[first * OP_WORDS], (stop - 1) * OP_WORDS
    return batch.ops[last + 6] + batch.ops[last + 7] - start


def secrets_of(options: Options) -> Sequence[bytes]:
    """The keys of an encrypted nats-server: the first lines of the files that the options name."""
    paths = [*split_list(options.key_file), *split_list(options.passphrase_file)]
    return [_first_line(path) for path in paths]


@lru_cache(maxsize=8)
def _first_line(path: str) -> bytes:
    return (Path(path).read_bytes().splitlines() or [b""])[0]
