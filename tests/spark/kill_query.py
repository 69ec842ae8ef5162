"""Streaming queries in a process of their own, for `test_kill.py` to kill.

    python kill_query.py SOURCE WORK TARGET...

Each query copies the stream SOURCE to a TARGET, `phase=directory` or `phase=url`. In its first batch a worker kills
itself in the middle of its rows, and says so with the file WORK/<name of the target>.died. In its second batch it comes
to its phase, says so with `.reached`, and waits there to be killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from jetlake.spark.source import JetStreamSource
from jetlake.spark.spark_session import session

BATCH_ROWS, TASK_ROWS, ARROW_ROWS = 250, 100, 25


def interrupted(phase: str, name: str, mark: Path) -> type[JetStreamSource]:
    """The data source, with a worker that dies and a pause in one phase."""

    def pause(at: str) -> None:
        if at == phase:
            Path(f"{mark}.reached").touch()
            time.sleep(3600)

    def interrupt(rows: Iterator[Any]) -> Iterator[Any]:
        """The rows of a task, to the middle of the second one of a batch."""
        context = TaskContext.get()
        assert context is not None
        batch, died = context.getLocalProperty("streaming.sql.batchId"), Path(f"{mark}.died")
        for number, record_batch in enumerate(rows):
            if number == 2 and context.partitionId() == 1:
                if batch == "1":
                    pause("publishing")
                elif not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            yield record_batch

    class Interrupted(JetStreamSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamReader(self, schema: Any) -> Any:
            reader: Any = super().streamReader(schema)
            plan = reader.partitions

            def partitions(start: Any, end: Any) -> Any:
                if any(place["seq"] for place in start.values()):
                    pause("planned")
                return plan(start, end)

            reader.partitions = partitions
            return reader

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            writer: Any = super().streamWriter(schema, overwrite)
            write, commit, append_block = writer.write, writer.commit, getattr(writer._writer, "_append_block", None)

            def append_and_pause(*block: Any) -> None:
                append_block(*block)
                pause("appending")

            def commit_between_pauses(messages: Any, batch: int) -> None:
                if batch == 1:
                    pause("staged")
                commit(messages, batch)
                if batch == 1:
                    pause("written")

            writer.write, writer.commit = lambda rows: write(interrupt(rows)), commit_between_pauses
            if append_block is not None:  # the first batch makes the directory, and appends nothing
                writer._writer._append_block = append_and_pause
            return writer

    return Interrupted


def copy(spark: Any, source: str, mark: Path, target: str, format: str = "jetstream") -> Any:
    """Start a query that copies a stream; `mark` is what the names of its files begin with."""
    stream = spark.readStream.format(format).option("columns", "subject,payload")
    rows = stream.option("maxRowsPerTrigger", BATCH_ROWS).option("partitionRows", TASK_ROWS).load(source)
    writer = rows.writeStream.format(format).option("checkpointLocation", f"{mark}.checkpoint")
    if target.startswith("nats://"):
        writer = writer.option("url", target).option("stream", "COPY").option("window", 8)
    else:
        writer = writer.option("path", target)
    return writer.trigger(availableNow=True).start()


def mark_of(work: Path, target: str) -> Path:
    return work / target.rsplit("/", 1)[1].replace(".", "-")


def main(source: str, work: str, *targets: str) -> None:
    """Run all queries into their phases."""
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS)}
    spark = session("kill", master="local[4,4]", conf=conf)
    for number, text in enumerate(targets):
        phase, _, target = text.partition("=")
        format, mark = f"jetstream_{number}", mark_of(Path(work), target)
        spark.dataSource.register(interrupted(phase, format, mark))
        query = copy(spark, source, mark, target, format)
        while not Path(f"{mark}.reached").exists():  # one after the other: Spark waits no more than 10 s for a worker
            assert not query.awaitTermination(1), "the query ended before its phase"
    time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
