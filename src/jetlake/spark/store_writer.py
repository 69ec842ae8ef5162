"""Write a DataFrame straight into a store directory: blocks by executors in parallel, one atomic step at the end.

Where the stream is new, its whole directory is made beside its place and then gets its name. Where it exists, the
messages are appended under its lock, with the ledger (`ledger.py`) around it; nobody else may have the store open.
`overwrite` makes a new one in any case, and swaps it in.
"""

from __future__ import annotations

import os
import secrets
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace as replace_field

import pyarrow as pa
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from jetlake.clock import system_clock
from jetlake.errors import StoreLocked
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.jetstream.streams.meta import LOCK_NAME, StreamMeta, write_meta
from jetlake.spark.batches import RowMaker, check_columns
from jetlake.spark.compat import DataSourceStreamArrowWriter
from jetlake.spark.errors import SparkError
from jetlake.spark.ledger import Entry, Ledger
from jetlake.spark.rows import operations
from jetlake.spark.staging import BlockStager, Numbered, StagedBlock, bodies, number
from jetlake.spark.target import find_target, swap_in
from jetlake.spark.worker import one_line_errors, settle
from jetlake.store import FileStore, format
from jetlake.store.blocks.checkpoint import Checkpoint, write_checkpoint
from jetlake.store.disk.file_options import options_of
from jetlake.store.disk.files import OS_FILES
from jetlake.store.records.record import decode
from jetlake.subjects import decode_subject
from jetlake.table.options import Options, split_list

_SUBJECTS_MAX = 64
_NUMBERED_PER_CORE = 4  # blocks at a time: they wait for the disk in turn
_CLEAR_ATTEMPTS, _CLEAR_PAUSE_S = 10, 0.1


class Staged(WriterCommitMessage):
    """What a task wrote."""

    def __init__(
        self, writer: str, batch: int, partition: int, blocks: list[StagedBlock], count: int, subjects: list[str]
    ) -> None:
        self.writer, self.batch, self.partition = writer, batch, partition
        self.blocks, self.count, self.subjects = blocks, count, subjects


class StoreWriter:
    """What batch and streaming writes share."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool = False) -> None:
        check_columns(schema, options.subject)
        self._options, self._overwrite = options, overwrite
        self._has_times = bool({"time", "time_ns"} & set(schema.fieldNames()))
        self._target = find_target(options)
        self._filters = self._accepted(overwrite)
        self._run = str(uuid.uuid4())
        self._writer = options.job_id or self._run

    @one_line_errors()
    def stage(self, iterator: Iterator[pa.RecordBatch], writer: str, batch: int) -> Staged:
        """A task's work: its rows in blocks of a directory of its own."""
        settle()
        context = TaskContext.get()
        assert context is not None
        directory = f"{self._target.draft(writer)}/{self._run}/{context.partitionId()}-{context.taskAttemptId()}"
        OS_FILES.make_dirs(directory)
        stager = BlockStager(directory, self._options.block_size)
        maker = RowMaker(self._options.subject, self._filters)
        for record_batch in iterator:
            stager.add(maker.rows(record_batch))
        stager.close()
        subjects = maker.subjects[: _SUBJECTS_MAX + 1]
        return Staged(writer, batch, context.partitionId(), stager.blocks, stager.count, subjects)

    def _accepted(self, overwrite: bool) -> tuple[str, ...]:
        """The filters that rows' subjects must match; none where they decide themselves what the stream takes."""
        config, given = self._target.config(), tuple(split_list(self._options.subjects))
        if config is None or (overwrite and given):
            return given if self._target.stream else ()
        is_copy = config.mirror is not None or bool(config.sources) or config.subject_transform is not None
        return () if is_copy else config.subjects

    @one_line_errors()
    def finish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The driver's work: all tasks' blocks become part of the store, or none does."""
        settle()
        results = sorted((m for m in messages if isinstance(m, Staged)), key=lambda staged: staged.partition)
        writer, batch = (results[0].writer, results[0].batch) if results else (self._writer, 0)
        with ExitStack() as stack:
            self._lock(stack)
            if self._overwrite or not OS_FILES.exists(self._target.directory):
                self._make(results, writer, batch)
            else:
                self._append_or_undo(results, writer, batch)
        self._clear(writer)

    def give_up(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what tasks wrote. What was committed stays."""
        # Spark makes another object of a streaming writer for this: only tasks that ended well tell whose they were.
        # Where there is none, the next batch of the same query clears up.
        self._clear(next((m.writer for m in messages if isinstance(m, Staged)), self._writer))

    def _clear(self, writer: str) -> None:
        """Remove what a writer has staged, also in runs that were killed."""
        draft = self._target.draft(writer)
        for _ in range(_CLEAR_ATTEMPTS):  # tasks that nobody waits for may still be writing, for a moment
            with suppress(OSError):
                OS_FILES.remove_tree(draft)
            if not OS_FILES.exists(draft):
                break
            time.sleep(_CLEAR_PAUSE_S)

    def _lock(self, stack: ExitStack) -> None:
        """Keep out a server, and whoever has a store open that is about to go."""
        root, store = self._target.root, self._target.store
        places = []
        if root:
            OS_FILES.make_dirs(root)
            text = f"a server is running on {root}: write through it (option url), or stop it first"
            places.append((f"{root}/{LOCK_NAME}", text))
        if self._overwrite and OS_FILES.exists(store):
            places.append((f"{store}/{format.LOCK_NAME}", f"somebody else has {store} open"))
        for path, text in places:
            try:
                stack.enter_context(OS_FILES.lock(path))
            except StoreLocked:
                raise SparkError(text) from None

    def _make(self, results: list[Staged], writer: str, batch: int) -> None:
        """A new store, complete before it has its name."""
        target, draft = self._target, f"{self._target.draft(writer)}/{self._run}/new"
        store = f"{draft}/{target.msgs}" if target.msgs else draft
        config = self._config(results) if target.stream else None
        OS_FILES.make_dirs(store)
        stream_id = secrets.token_bytes(len(format.NO_STREAM))
        sizes = self._number(results, store, stream_id)
        count = sum(result.count for result in results)
        time_ns = max((block.time_ns_max for result in results for block in result.blocks), default=0)
        size = sum(done.size for done in sizes)
        checkpoint = Checkpoint(1, count, time_ns, count, size, gone=[], stream_id=stream_id.hex())
        write_checkpoint(OS_FILES, store, checkpoint)
        Ledger(draft).set(writer, Entry(batch, "done"))
        if config is not None:
            write_meta(OS_FILES, draft, StreamMeta(created_ns=system_clock(), config=config))
        OS_FILES.sync_dir(store)
        OS_FILES.sync_dir(draft)
        parent = target.directory.rsplit("/", 1)[0] or "/"
        OS_FILES.make_dirs(parent)
        if OS_FILES.exists(target.directory):
            old = swap_in(draft, target.directory, target.old())
            OS_FILES.sync_dir(parent)
            OS_FILES.remove_tree(old)
        else:
            OS_FILES.rename(draft, target.directory)
            OS_FILES.sync_dir(parent)

    def _number(self, results: list[Staged], directory: str, stream_id: bytes) -> list[Numbered]:
        """Give every block its place in the stream, several at a time."""
        jobs: list[tuple[StagedBlock, int, int, int, str, bytes]] = []
        base_seq = last_time_ns = 0
        for result in results:
            for block in result.blocks:
                jobs.append((block, len(jobs) + 1, base_seq, last_time_ns, directory, stream_id))
                last_time_ns = max(last_time_ns, block.time_ns_max)
            base_seq += result.count
        with ThreadPoolExecutor(_NUMBERED_PER_CORE * (os.cpu_count() or 1)) as pool:
            return list(pool.map(lambda job: number(*job), jobs))

    def _config(self, results: list[Staged]) -> StreamConfig:
        """The stream's configuration: the one it has, apart from subjects that are given now."""
        name, subjects, kept = self._target.stream, split_list(self._options.subjects), self._target.config()
        if kept is not None and not subjects:
            return kept
        if not subjects:
            subjects = sorted({subject for result in results for subject in result.subjects}) or [f"{name}.>"]
            if len(subjects) > _SUBJECTS_MAX:
                raise SparkError("the subjects have very many first tokens: option subjects says what the stream takes")
        config = replace(kept or StreamConfig(name=name), subjects=tuple(subjects))
        self._target.check(config)
        return config

    def _append_or_undo(self, results: list[Staged], writer: str, batch: int) -> None:
        """Append to a store that is there; what a failure leaves half done is taken back now, or by the next write."""
        try:
            with self._open() as store:
                self._append(store, results, writer, batch)
        except Exception:
            with suppress(Exception), self._open() as store:
                Ledger(self._target.directory).take_back(store)
            raise

    def _open(self) -> FileStore:
        target = self._target
        options = replace_field(options_of(OS_FILES, target.store), block_size_max=self._options.block_size)
        return FileStore(target.store, options=options, autocommit=False, tree_locked=bool(target.root))

    def _append(self, store: FileStore, results: list[Staged], writer: str, batch: int) -> None:
        """Append a batch unless it is there, with an entry of the ledger before and after."""
        ledger = Ledger(self._target.directory)
        ledger.take_back(store)
        if ledger.is_done(writer, batch):
            return
        count = sum(result.count for result in results)
        ledger.set(writer, Entry(batch, "begun", store.fast_state().last_seq + 1, count))
        for result in results:
            for block, body in bodies(result.blocks):
                self._append_block(store, block, body)
        store.commit(sync=True)
        ledger.set(writer, Entry(batch, "done"))

    def _append_block(self, store: FileStore, block: StagedBlock, body: bytes) -> None:
        if self._has_times:
            offset = 0
            while offset < len(body):
                record, offset = decode(body, offset, len(body), block.seed)
                seq = store.catalog.last_seq + 1
                store.append_at(seq, record.time_ns, decode_subject(record.subject), record.payload, record.headers)
        else:
            _, done = store.append_batch(body, operations(body, 0, len(body), block.seed))
            assert done == block.msgs
        store.commit(sync=False)


class StoreBatchWriter(DataSourceArrowWriter):
    """A batch write into a directory."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._writer = StoreWriter(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._writer.stage(iterator, self._writer._writer, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.finish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writer.give_up(messages)


class StoreStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write into a directory: exactly once for each batch of a query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._writer = StoreWriter(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        query, batch = batch_of_query()
        return self._writer.stage(iterator, self._writer._options.job_id or query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.finish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.give_up(messages)


def batch_of_query() -> tuple[str, int]:
    """The streaming query and the batch that this task works for."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise SparkError("this task belongs to no streaming query")
    return query, int(batch)
