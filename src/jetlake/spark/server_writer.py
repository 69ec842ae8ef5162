"""Write a DataFrame to a stream of a live server: acks awaited, in a bounded window, and each row once.

Rows are published by the tasks, with the message id `<writer>:<batch>:<task>:<row>:<hash of its content>`. The server
drops an id that it has seen lately; a batch that is written again later than that is looked for in the stream first,
from the place where the ledger says it began. A row that was stored with another content says that the query does not
repeat itself: then there is no exactly-once, and the write fails.

Two attempts at the same task may be alive at once. The last one that came owns it: the other notices within a quarter
of the time that the server remembers ids, and gives up. What it published until then is found by the owner, who looks
into the stream a second time after half of it; until then the ids protect it.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import xxhash
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from jetlake.clock import SECOND_NS
from jetlake.spark.batches import RowMaker, check_columns
from jetlake.spark.blocks import Selection
from jetlake.spark.errors import BadOption, NoStream, ServerError
from jetlake.spark.nats import ApiRefused, Connection, Disconnected
from jetlake.spark.options import Options, split_list
from jetlake.spark.server_ledger import ServerEntry, ServerLedger
from jetlake.spark.store_writer import batch_of_query
from jetlake.spark.url_origin import Pull, UrlOrigin

_STREAM_NOT_FOUND = 10059
_FLUSH_SIZE = 256 * 1024
_OUTSTANDING_SIZE_MAX = 16 * 1024 * 1024
_SETTLE_S = 0.2
_ATTEMPTS_MAX = 100
_MEMORY_NS = 120 * SECOND_NS  # where a stream does not remember ids at all


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
        self._options, self._run = options, str(uuid.uuid4())
        self._writer = options.job_id or self._run
        with Connection(options) as link:
            _ensure_stream(link, options)
            ServerLedger(link, options.stream).ensure()

    def publish(self, iterator: Iterator[pa.RecordBatch], writer: str, batch: int) -> Published:
        """A task's work: every row that is not in the stream yet."""
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        with _Publisher(self._options, f"{writer}:{batch}:{task}:") as publisher:
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
    if any(sign in options.stream for sign in "*?[,. >"):
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


class _Publisher:
    """Publishes the rows of a task and counts their acks; on a new connection, again, when the old one is lost."""

    def __init__(self, options: Options, prefix: str) -> None:
        self._options, self._prefix = options, prefix
        self.link = Connection(options)
        self.count = self.skipped = self._row = self._outstanding = self._outstanding_size = 0
        self._recent: deque[bytes] = deque(maxlen=options.window)
        info = self.link.api(f"STREAM.INFO.{options.stream}")
        self._memory_s = (info["config"].get("duplicate_window") or _MEMORY_NS) / SECOND_NS
        self._stored: dict[int, str] = {}  # rows that are in the stream, with the hashes of their content
        self._look_from_seq = self._look_again_s = 0.0
        self._owner, self._task = str(uuid.uuid4()), ("", 0)
        self._checked_s, self._started_s = _now_s(), time.monotonic()

    def __enter__(self) -> _Publisher:
        return self

    def __exit__(self, *error: object) -> None:
        self.link.close()

    def claim(self, writer: str, task: int) -> None:
        """Tell other attempts at this task to stop."""
        self._task = (writer, task)
        ServerLedger(self.link, self._options.stream).claim(writer, task, self._owner)
        self._checked_s = _now_s()

    def look_for_rows(self, start_seq: int) -> None:
        """Find out which rows are in the stream behind a sequence, now and once more."""
        last_seq = self._find_stored(start_seq)
        self._look_from_seq, self._look_again_s = last_seq, _now_s() + self._memory_s / 2

    def _find_stored(self, start_seq: int) -> int:
        """Take note of this task's rows behind a sequence; where the stream ended."""
        origin, stream = UrlOrigin(self._options), self._options.stream
        try:
            origin.refresh()
            last_seq = origin.bounds(stream).last_seq
            if last_seq <= start_seq:
                return last_seq
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": start_seq + 1, "headers_only": True}
            for _, columns in Pull(origin, stream, start, ["headers"], Selection(last_seq=last_seq)).batches():
                for headers in columns["headers"].to_pylist():
                    for message_id in dict(headers).get("Nats-Msg-Id", []):
                        if message_id.startswith(self._prefix):
                            row, _, content = message_id[len(self._prefix) :].partition(":")
                            self._stored[int(row)] = content
            return last_seq
        finally:
            origin.close()

    def add(self, messages: Iterator[tuple[bytes, bytes, bytes]]) -> None:
        """Publish (subject, header lines, payload) of rows, but for those that are stored."""
        for subject, lines, payload in messages:
            if self._options.rate:
                self._pace()
            self._stay_owner()
            content = f"{xxhash.xxh64_intdigest(payload, xxhash.xxh64_intdigest(subject + lines)):016x}"
            known = self._stored.get(self._row)
            if known is None:
                self._send(subject, lines, payload, content.encode())
            elif known != content:
                raise ServerError(
                    f"row {self._row} of {self._prefix[:-1]} was stored with another content: the query does "
                    "not give the same rows again, so they cannot be written exactly once"
                )
            else:
                self.skipped += 1
            self._row += 1

    def _stay_owner(self) -> None:
        """Now and then: does this task still belong to this attempt, and what did the one before it publish last?"""
        now_s = _now_s()
        if now_s - self._checked_s < self._memory_s / 4:
            return
        self._keep(self._settle, 0)  # nothing may be on its way while the connection is used for questions
        self._keep(self._check_owner)
        self._checked_s = now_s
        if self._look_again_s and now_s >= self._look_again_s:
            self._find_stored(int(self._look_from_seq))
            self._look_again_s = 0.0

    def _check_owner(self) -> None:
        if not ServerLedger(self.link, self._options.stream).is_owner(*self._task, self._owner):
            raise ServerError("another attempt at this task has taken its place")

    def _pace(self) -> None:
        """Wait until it is this row's turn."""
        ahead_s = self._started_s + self._row / self._options.rate - time.monotonic()
        if ahead_s > 0:
            self._keep(self._settle, 0)
            time.sleep(max(self._started_s + self._row / self._options.rate - time.monotonic(), 0))

    def _send(self, subject: bytes, lines: bytes, payload: bytes, content: bytes) -> None:
        headers = b"NATS/1.0\r\nNats-Expected-Stream: %s\r\nNats-Msg-Id: %s%d:%s\r\n%s\r\n" % (
            self._options.stream.encode(),
            self._prefix.encode(),
            self._row,
            content,
            lines,
        )
        size = len(headers)
        frame = b"HPUB %s %s.%d %d %d\r\n%s%s\r\n" % (
            subject,
            self.link.inbox.encode(),
            self._row,
            size,
            size + len(payload),
            headers,
            payload,
        )
        self._recent.append(frame)
        self.link.publish(frame)
        self.count += 1
        self._outstanding += 1
        self._outstanding_size += len(frame)
        if self.link.queued_size >= _FLUSH_SIZE:
            self._keep(self._flush)
        if self._outstanding >= self._options.window or self._outstanding_size >= _OUTSTANDING_SIZE_MAX:
            self._keep(self._settle, self._options.window // 2)

    def finish(self) -> None:
        """Wait for the last acks."""
        self._keep(self._settle, 0)

    def _flush(self) -> None:
        self.link.flush()

    def _settle(self, left: int) -> None:
        """Wait until at most so many messages have no ack."""
        self.link.flush()
        while self._outstanding > left:
            deadline = time.monotonic() + self._options.timeout_s
            if not self._take_acks() and not self.link.receive(deadline):
                raise Disconnected(f"{self.link.where}: no ack within {self._options.timeout_s:g} s")
        self._outstanding_size = self._outstanding_size // 2 if left else 0

    def _take_acks(self) -> bool:
        """Count the acks that have arrived; False when there is none."""
        received = self.link.received
        end = received.rfind(b"}\r\n") + 3
        if end > 3:
            block = bytes(received[:end])
            if not any(sign in block for sign in (b'"error"', b"HMSG", b"-ERR", b"PING", b"INFO")):
                count = block.count(b"\r\nMSG ") + block.startswith(b"MSG ")
                del received[:end]
                return self._acked(count)
        reply = self.link.next_reply()
        if reply is None:
            return False
        self._check(reply.status, reply.description, reply.payload)
        return self._acked(1)

    def _acked(self, count: int) -> bool:
        self._outstanding = max(self._outstanding - count, 0)
        return True

    def _check(self, status: int, description: str, payload: bytes) -> None:
        if status == 503:
            raise ServerError(f"{self.link.where}: no stream takes messages of these subjects")
        if status:
            raise ServerError(f"{self.link.where}: {status} {description}")
        answer: dict[str, Any] = json.loads(payload)
        if "error" in answer:
            raise ServerError(f"{self.link.where}: a message was refused: {answer['error'].get('description')}")

    def _keep(self, action: Any, *arguments: Any) -> None:
        """Do something; when the connection is lost meanwhile, send on a new one what may not have arrived."""
        for attempt in range(self._options.retries + 1):
            try:
                if attempt:
                    self._reconnect()
                action(*arguments)
                return
            except Disconnected as error:
                if attempt == self._options.retries:
                    raise ServerError(
                        f"writing stopped after {self.count} rows, and {attempt + 1} attempts to go on failed: {error}"
                    ) from None
                time.sleep(_SETTLE_S * 2**attempt)

    def _reconnect(self) -> None:
        """Connect again, and publish the last messages once more: the server drops those that it has."""
        self.link.close()
        old = self.link.inbox.encode()
        self.link = Connection(self._options)
        again = [frame.replace(old, self.link.inbox.encode(), 1) for frame in self._recent]
        self._recent = deque(again, self._options.window)
        self._outstanding, self._outstanding_size = len(again), sum(map(len, again))
        for frame in again:
            self.link.publish(frame)


def _now_s() -> float:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
