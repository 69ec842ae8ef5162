"""Streams as tables without Spark: `jetlake.scan`.

    orders = jetlake.scan("/data", "ORDERS", where="seq > 5", subject_tokens="orders.{region}.{id}")
    orders.to_pandas()

A scan is a description: every read plans anew, so it sees the stream as it is then, and yields a set of messages that
is fixed from there on. All cores decode. What was seen of a directory's blocks is kept from one read to the next, which
looks only at what changed since.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetlake.table.condition import Condition
from jetlake.table.errors import MissingPackage
from jetlake.table.options import Options, parse_options
from jetlake.table.origin import Origin, Task, open_origin
from jetlake.table.payload import SAMPLE_COUNT, infer_ddl
from jetlake.table.place import is_url
from jetlake.table.plan import PARTITION_SIZE_DEFAULT
from jetlake.table.schema import RowBuilder, source_schema
from jetlake.table.threads import read_ahead, read_all
from jetlake.table.where import pruning

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

    from jetlake.table.dataset import StreamDataset

_TASK_SIZE = 16 * 1024 * 1024  # of blocks: enough tasks for all cores, and little memory for what is read ahead


def scan(
    place: str | os.PathLike[str],
    stream: str = "",
    *,
    where: str = "",
    columns: str | Sequence[str] = "",
    **options: Any,
) -> Scan:
    """A stream as a table, from a directory or a server (nats://host:port).

    Options have the names of the Spark data source's: scan("/data", "ORDERS", start_seq=100, payload="json").
    """
    where_from = os.fspath(place)
    given = {"url": where_from} if is_url(where_from) else {"path": os.path.abspath(where_from)}
    if stream:
        given["stream"] = stream
    given |= {name: _text(value) for name, value in options.items() if value is not None}
    return scan_options(given, where, columns if isinstance(columns, str) else ",".join(columns))


def scan_options(given: Mapping[str, str], where: str = "", columns: str = "") -> Scan:
    """The same, with options as texts."""
    parsed = parse_options(given)
    columns, parsed = columns or parsed.columns, replace(parsed, columns="")
    with closing(open_origin(parsed)) as origin:
        if parsed.payload == "json" and not parsed.payload_schema:
            parsed = replace(parsed, payload_schema=infer_ddl(origin.sample(SAMPLE_COUNT)))
        else:
            origin.refresh()  # a stream that is not there is said now
    return Scan(parsed, where, columns)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else str(value)


class Scan:
    """A stream, or several, as a table that can be read in many ways."""

    def __init__(self, options: Options, where: str = "", columns: str = "") -> None:
        self._options = options
        self._whole = _all_columns(options)
        self._condition = Condition(where, self._whole) if where.strip() else None
        self.schema: pa.Schema = source_schema(replace(options, columns=columns))
        self._origin: Origin | None = None  # of a directory; a connection to a server is not kept open
        self._planning = threading.Lock()

    def __repr__(self) -> str:
        place = self._options.url.rpartition("@")[2] or self._options.path
        return f"<Scan of {self._options.stream or place}: {', '.join(self.schema.names)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        where = self._condition.text if self._condition else ""
        return Scan, (self._options, where, ",".join(self.schema.names))

    def to_arrow(self) -> pa.Table:
        """All of it in memory."""
        tasks, read = self._plan(self.schema.names)
        return pa.Table.from_batches(read_all(tasks, lambda task: map(_own, read(task))), self.schema)

    def reader(self) -> pa.RecordBatchReader:
        """Record batches one after the other, in bounded memory."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches(self.schema.names))

    def to_pandas(self, **options: Any) -> pandas.DataFrame:
        """A pandas frame; options are those of `pyarrow.Table.to_pandas`."""
        _need("pandas", "pandas")
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> polars.DataFrame:
        """A Polars frame."""
        _need("polars", "'jetlake[polars]'")
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def lazy(self) -> polars.LazyFrame:
        """A lazy Polars frame: its query says which columns and rows are read."""
        _need("polars", "'jetlake[polars]'")
        from jetlake.table.lazy import lazy_frame

        return lazy_frame(self)

    def duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation: its query says which columns and rows are read."""
        _need("duckdb", "'jetlake[duckdb]'")
        import duckdb

        return (connection or duckdb.default_connection()).from_arrow(self.dataset())

    def dataset(self) -> StreamDataset:
        """A pyarrow dataset, for engines that push columns and filters into one."""
        from jetlake.table.dataset import StreamDataset

        return StreamDataset(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream interface: anything that takes Arrow data takes a scan."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def batches(
        self, columns: Sequence[str], pushed: str = "", keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of some columns.

        `pushed` is a condition that the caller applies: it rules out blocks. `keep` is applied to each batch by the
        threads that read.
        """
        tasks, read = self._plan(columns, pushed)
        return read_ahead(tasks, read if keep is None else lambda task: map(keep, read(task)))

    def _plan(self, columns: Sequence[str], pushed: str = "") -> tuple[list[Task], Any]:
        """What is to be read now, and how."""
        condition = self._condition
        texts = [f"({text})" for text in (condition.text if condition else "", pushed) if text]
        options = self._narrowed(" AND ".join(texts))
        needed = [*columns, *(name for name in (condition.columns if condition else ()) if name not in columns)]
        builder = RowBuilder(pa.schema([self._whole.field(name) for name in needed]), options)

        def read(task: Task) -> Iterator[pa.RecordBatch]:
            with closing(open_origin(options)) as origin:
                for batch in origin.read(task, builder.copy()):
                    if condition is not None:
                        batch = condition.keep(batch)
                    if len(needed) > len(columns):
                        batch = batch.select(list(columns))
                    if batch.num_rows:
                        yield batch

        return self._tasks(options), read

    def _tasks(self, options: Options) -> list[Task]:
        """Everything wanted, as the stream is now."""
        if options.url:
            with closing(open_origin(options)) as origin:
                return origin.plan()
        with self._planning:
            if self._origin is None:
                self._origin = open_origin(options)
            self._origin.options = options
            return self._origin.plan()

    def _narrowed(self, condition: str) -> Options:
        """The options, with what a condition rules out; what was given is exact, and is kept."""
        options = self._options
        if options.partition_size == PARTITION_SIZE_DEFAULT:
            options = replace(options, partition_size=_TASK_SIZE)
        given = {name: getattr(options, name) for name in ("start_seq", "end_seq", "start_time", "end_time", "subject")}
        found = parse_options({"path": "-"} | pruning(condition, options.subject_tokens)) if condition else Options()
        more = {name: getattr(found, name) for name, value in given.items() if value in (None, "")}
        return replace(options, **more)


def _all_columns(options: Options) -> pa.Schema:
    """All columns, and also the payload itself where it is read as JSON."""
    columns = source_schema(options)
    if "payload" in columns.names:
        return columns
    return pa.schema([*columns, source_schema(replace(options, columns="payload")).field(0)])


def _own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy of exactly its size: the buffers that were decoded into are larger, and are used again."""
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays([column, column.slice(0, 0)]) for column in batch.columns], schema=batch.schema
    )


def _need(package: str, install: str) -> None:
    try:
        __import__(package)
    except ImportError:
        raise MissingPackage(package, install) from None
