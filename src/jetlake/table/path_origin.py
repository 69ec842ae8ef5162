"""Streams in a directory, at rest or while a server writes to it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from jetlake.store.blocks.catalog import Catalog
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.view import StreamView
from jetlake.table.blocks import PieceReader
from jetlake.table.errors import NoStream
from jetlake.table.locate import StreamDir, find_streams
from jetlake.table.options import Options
from jetlake.table.origin import Bounds, Origin, Task
from jetlake.table.plan import first_seq_at, last_within, nth_live, partitions, plan, size_between
from jetlake.table.schema import RowBuilder


class PathOrigin(Origin):
    """Streams by their blocks."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._views: dict[str, StreamView] = {}

    def names(self) -> list[str]:
        return [stream.name for stream in self._found()]

    def _found(self) -> list[StreamDir]:
        return find_streams(self.options.path, self.options.stream, self.options.account, keys=self.options.keys)

    def streams(self) -> list[str]:
        return list(self._views)

    def refresh(self) -> None:
        found = self._found()
        for name, directory in found:
            if name not in self._views:
                self._views[name] = StreamView(directory, keys=self.options.keys, sync=True)
        self._views = {stream.name: self._views[stream.name] for stream in found}
        for name, view in self._views.items():
            try:
                view.refresh()
            except FileNotFoundError:
                raise NoStream(f"{view.directory}: stream {name} was deleted") from None

    def _catalog(self, stream: str) -> Catalog:
        return self._views[stream].catalog

    def sample(self, count: int) -> list[bytes]:
        self.refresh()
        payloads: list[bytes] = []
        for name, view in self._views.items():
            pieces = plan(view, self.options.selection, self.options.partition_size).pieces
            reader = PieceReader(["payload"], self.options.selection, self.losses(name), self.options.keys)
            for piece in pieces:
                for _, columns in reader.read(piece):
                    payloads += columns["payload"].slice(0, count - len(payloads)).to_pylist()
                    if len(payloads) >= count:
                        return payloads
        return payloads

    def plan(self) -> list[Task]:
        self.refresh()
        tasks = []
        for name, view in self._views.items():
            found = plan(view, self.options.selection, self.options.partition_size)
            self.losses(name).damaged(found.damaged, view.directory)
            for pieces in partitions(found.pieces, self.options.partition_size):
                tasks.append(Task(name, pieces[0].first_seq, pieces[-1].last_seq, pieces))
        return tasks

    def plan_range(self, stream: str, first_seq: int, last_seq: int, time_ns_min: int) -> list[Task]:
        """Tasks of equally many messages, however far apart their sequences are."""
        catalog, tasks = self._catalog(stream), []
        while (live_seq := catalog.next_live(first_seq)) is not None and live_seq <= last_seq:
            end_seq = min(nth_live(catalog, first_seq, self.options.partition_rows), last_seq)
            task = Task(stream, first_seq, end_seq, time_ns_min=time_ns_min)
            task.pieces = plan(self._views[stream], self.selection(task), self.options.partition_size).pieces
            tasks.append(task)
            first_seq = end_seq + 1
        return tasks

    def read(self, task: Task, builder: RowBuilder) -> Iterator[pa.RecordBatch]:
        reader = PieceReader(
            builder.base_names,
            self.selection(task),
            self.losses(task.stream),
            self.options.keys,
            headers_type=builder.headers_type,
        )
        for piece in task.pieces:
            for rows, columns in reader.read(piece):
                yield builder.build(task.stream, rows, columns)

    def bounds(self, stream: str) -> Bounds:
        catalog = self._catalog(stream)
        return Bounds(catalog.first_seq, catalog.last_seq)

    def seq_at(self, stream: str, time_ns: int) -> int:
        return first_seq_at(self._catalog(stream), time_ns)

    def identity(self, stream: str, seq: int) -> str:
        """The hash seed of the block that holds the sequence: rewriting keeps it, a new stream has others."""
        block = self._catalog(stream).block_of(seq)
        return "" if block is None else f"{block.seed:016x}"

    def limit(self, stream: str, start_seq: int, rows_max: int | None, size_max: int | None) -> int:
        catalog = self._catalog(stream)
        ends = [catalog.last_seq]
        if rows_max is not None:
            ends.append(nth_live(catalog, start_seq, rows_max))
        if size_max is not None:
            ends.append(last_within(catalog, start_seq, size_max))
        return min(ends)

    def count(self, stream: str, first_seq: int, last_seq: int) -> int | None:
        blocks = self._catalog(stream).blocks_from(first_seq)
        runs = (run for block in blocks for run in block.live_runs(first_seq, last_seq))
        return sum(last - first + 1 for first, last in runs)

    def size(self, stream: str, first_seq: int, last_seq: int) -> int:
        return size_between(self._catalog(stream), first_seq, last_seq)

    def report_lost(self, stream: str, first_seq: int, last_seq: int) -> int:
        lost = SequenceSet(self._catalog(stream).lost.ranges_between(first_seq, last_seq))
        self.losses(stream).damaged(lost, self._views[stream].directory)
        return lost.count
