"""Write a DataFrame to a stream of a live server: acks awaited, in a bounded window, and each row once.

Rows are published by the tasks, with the message id `<writer>:<batch>:<task>:<row>:<hash of its content>`. The server
drops an id that it has seen lately; a batch that is written again later than that is looked for in the stream first,
from the place where the ledger says it began. A row that was stored with another content says that the query does not
repeat itself: then there is no exactly-once, and the write fails.

`publisher.py` does what a task does; here is what the tasks of a batch have in common.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from jetlake.spark.batches import RowMaker, check_columns
from jetlake.spark.compat import DataSourceStreamArrowWriter
from jetlake.spark.publisher import Publisher
from jetlake.spark.server_ledger import ServerEntry, ServerLedger
from jetlake.spark.store_writer import batch_of_query
from jetlake.spark.worker import one_line_errors, settle
from jetlake.table.errors import BadOption, NoStream, ServerError
from jetlake.table.nats import ApiRefused, Connection
from jetlake.table.options import Options, split_list

_STREAM_NOT_FOUND = 10059
_ATTEMPTS_MAX = 100


class Published(WriterCommitMessage):
    """What a task published."""

    def __init__(self, writer: str, batch: int, count: int, skipped: int) -> None:
        self.writer, self.batch, self.count, self.skipped = writer, batch, count, skipped


class ServerWriter:
    """What batch and streaming writes share."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_columns(schema, options.subject)
        if {"time", "time_ns"} & set(schema.fieldNames()):
            raise BadOption("a live server sets the time itself: columns time and time_ns are for writes to a path")
        if not options.job_id.isprintable():
            raise BadOption(f"jobId {options.job_id!r} cannot be written on a line: it becomes part of a header")
        self._options, self._run = options, str(uuid.uuid4())
        self._writer = options.job_id or self._run
        with Connection(options) as link:
            _ensure_stream(link, options)
            ServerLedger(link, options.stream).ensure()

    @one_line_errors()
    def publish(self, iterator: Iterator[pa.RecordBatch], writer: str, batch: int) -> Published:
        """A task's work: every row that is not in the stream yet."""
        settle()
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        with Publisher(self._options, f"{writer}:{batch}:{task}:") as publisher:
            begun = self._begin(publisher.link, writer, batch)
            if begun is None:
                return Published(writer, batch, 0, 0)
            publisher.claim(writer, task)
            if begun.run != self._run or context.attemptNumber() > 0:
                publisher.look_for_rows(begun.start_seq)
            maker = RowMaker(self._options.subject)
            for record_batch in iterator:
                publisher.add(maker.messages(record_batch))
            publisher.finish()
            return Published(writer, batch, publisher.count, publisher.skipped)

    def _begin(self, link: Connection, writer: str, batch: int) -> ServerEntry | None:
        """The entry of this batch, made by the first task that comes; None when the batch is done."""
        ledger = ServerLedger(link, self._options.stream)
        for _ in range(_ATTEMPTS_MAX):
            entry, revision = ledger.get(writer)
            if entry is not None and entry.batch >= batch:
                return entry if entry.batch == batch and entry.state == "begun" else None
            last_seq = link.api(f"STREAM.INFO.{self._options.stream}")["state"]["last_seq"]
            fresh = ServerEntry(writer, batch, "begun", last_seq, self._run)
            if ledger.put(fresh, revision):
                return fresh
        raise ServerError(f"{link.where}: the ledger's entry of {writer} never holds still")

    @one_line_errors()
    def finish(self, messages: list[WriterCommitMessage | None]) -> None:
        """The driver's work: record that the batch is done."""
        results = [message for message in messages if isinstance(message, Published)]
        if not results:
            return
        writer, batch = results[0].writer, results[0].batch
        with Connection(self._options) as link:
            ledger = ServerLedger(link, self._options.stream)
            for _ in range(_ATTEMPTS_MAX):
                entry, revision = ledger.get(writer)
                if entry is not None and (entry.batch > batch or (entry.batch == batch and entry.state == "done")):
                    return
                if ledger.put(ServerEntry(writer, batch, "done"), revision):
                    ledger.forget_tasks(writer)
                    return
        raise ServerError(f"{self._options.stream}: the ledger's entry of {writer} never holds still")


def _ensure_stream(link: Connection, options: Options) -> None:
    """The target must be there; it is made when the options say what it takes."""
    if any(sign in options.stream for sign in "*?[,"):
        raise BadOption(f"{options.stream!r} is not the name of one stream")
    try:
        link.api(f"STREAM.INFO.{options.stream}")
    except ApiRefused as error:
        if error.code != _STREAM_NOT_FOUND:
            raise
        if not options.subjects:
            raise NoStream(
                f"{link.where}: there is no stream {options.stream}; option subjects makes one that takes these"
            ) from None
        config = {"name": options.stream, "subjects": split_list(options.subjects), "storage": "file"}
        link.api(f"STREAM.CREATE.{options.stream}", config)


class ServerBatchWriter(DataSourceArrowWriter):
    """A batch write to a server."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._writer = ServerWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.publish(iterator, self._writer._writer, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.finish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was published stays; a repeated job with the same id completes it."""


class ServerStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write to a server: exactly once for each batch of a query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._writer = ServerWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = batch_of_query()
        return self._writer.publish(iterator, self._writer._options.job_id or query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.finish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was published stays; the batch that is run again completes it."""
