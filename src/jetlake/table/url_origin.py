"""Streams of a live server, JetLake or nats-server, read over the NATS protocol.

A task reads its range through an ephemeral pull consumer without acks, held in memory, which it deletes when it is
done (`pull.py`); one that a killed task leaves behind is removed by the server half a minute later. A work queue has no
consumers but its own, and its messages are asked for one by one (`gets.py`). When the connection is lost in the middle,
the task connects again and goes on after the last message it has handed over, a bounded number of times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa

from jetlake.store.index.sequence_set import SequenceSet
from jetlake.table.blocks import Selection
from jetlake.table.errors import NoStream
from jetlake.table.gets import Gets
from jetlake.table.locate import match_names
from jetlake.table.nats import ApiRefused, Connection, Disconnected
from jetlake.table.options import Options
from jetlake.table.origin import Bounds, Origin, Task
from jetlake.table.pull import SETTLE_S, Pull
from jetlake.table.schema import RowBuilder
from jetlake.wire.go_time import format_time

_STREAM_NOT_FOUND = 10059
T = TypeVar("T")


class UrlOrigin(Origin):
    """Streams by the JetStream API."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._connection: Connection | None = None
        self._infos: dict[str, dict[str, Any]] = {}

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _retry(self, action: Callable[[Connection], T]) -> T:
        """Do something with the connection, on a new one when it is lost; at most as often as the options say."""
        for attempt in range(self.options.retries + 1):
            try:
                if self._connection is None:
                    self._connection = Connection(self.options)
                return action(self._connection)
            except Disconnected:
                self.close()
                if attempt == self.options.retries:
                    raise
                time.sleep(SETTLE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def connection(self) -> Connection:
        """The connection, which is made when there is none."""
        return self._retry(lambda connection: connection)

    def pull(self, stream: str, *start_and_more: Any, **more: Any) -> Pull:
        """A range of a stream that was looked at."""
        kind = Gets if self._infos[stream]["config"].get("retention") == "workqueue" else Pull
        return kind(self, stream, *start_and_more, **more)

    def streams(self) -> list[str]:
        return list(self._infos)

    def refresh(self) -> None:
        self._infos = {name: self._info(name) for name in self.names()}

    def names(self) -> list[str]:
        wanted = self.options.stream
        if not any(sign in wanted for sign in "*?[,"):
            return [wanted]
        names: list[str] = []
        while True:
            body = {"offset": len(names)}
            answer = self._retry(lambda link, body=body: link.api("STREAM.NAMES", body))  # type: ignore[misc]
            names += answer.get("streams") or []
            if len(names) >= answer["total"] or not answer.get("streams"):
                break
        return match_names(names, wanted, self.options.url.rpartition("@")[2])

    def _info(self, stream: str) -> dict[str, Any]:
        try:
            return self._retry(lambda link: link.api(f"STREAM.INFO.{stream}"))
        except ApiRefused as error:
            if error.code == _STREAM_NOT_FOUND:
                raise NoStream(f"{self.options.url.rpartition('@')[2]}: there is no stream {stream}") from None
            raise

    def bounds(self, stream: str) -> Bounds:
        state = self._infos[stream]["state"]
        return Bounds(max(state["first_seq"], 1), state["last_seq"])

    def identity(self, stream: str, seq: int) -> str:
        """When the stream was made."""
        return str(self._infos[stream]["created"])

    def seq_at(self, stream: str, time_ns: int) -> int:
        start = {"deliver_policy": "by_start_time", "opt_start_time": format_time(max(time_ns, 0))}
        for seq, _ in self._consume(stream, start, self.bounds(stream).last_seq, 1):
            return seq
        return self.bounds(stream).last_seq + 1

    def _consume(self, stream: str, start: dict[str, Any], last_seq: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Sequences and payloads of a few messages."""
        pulled = self.pull(stream, start, ["seq", "payload"], Selection(last_seq=last_seq), count)
        for rows, columns in pulled.batches():
            for row in range(rows):
                yield columns["seq"][row].as_py(), columns["payload"][row].as_py()
                count -= 1
                if not count:
                    return

    def limit(self, stream: str, start_seq: int, rows_max: int | None, size_max: int | None) -> int:
        """By sequences, as if none were missing, and by the average size of a message."""
        ends = [self.bounds(stream).last_seq]
        if rows_max is not None:
            ends.append(start_seq + rows_max - 1)
        if size_max is not None:
            ends.append(start_seq + max(size_max // self.average_size(stream), 1) - 1)
        return min(ends)

    def size(self, stream: str, first_seq: int, last_seq: int) -> int:
        return (last_seq - first_seq + 1) * self.average_size(stream)

    def average_size(self, stream: str) -> int:
        state = self._infos[stream]["state"]
        return max(int(state["bytes"]) // max(int(state["messages"]), 1), 1)

    def count(self, stream: str, first_seq: int, last_seq: int) -> int | None:
        return None

    def report_lost(self, stream: str, first_seq: int, last_seq: int) -> int:
        return 0

    def sample(self, count: int) -> list[bytes]:
        self.refresh()
        payloads: list[bytes] = []
        for stream in self._infos:
            first, last = self._range(stream)
            if first <= last and len(payloads) < count:
                start = {"deliver_policy": "by_start_sequence", "opt_start_seq": first}
                payloads += [payload for _, payload in self._consume(stream, start, last, count - len(payloads))]
        return payloads

    def plan(self) -> list[Task]:
        self.refresh()
        tasks = []
        for stream in self._infos:
            tasks += self.plan_range(stream, *self._range(stream), self.options.selection.time_ns_min)
        return tasks

    def _range(self, stream: str) -> tuple[int, int]:
        """The sequences that are wanted, with times turned into sequences."""
        selection, bounds = self.options.selection, self.bounds(stream)
        first, last = max(selection.first_seq, bounds.first_seq), min(selection.last_seq, bounds.last_seq)
        if selection.time_ns_min > 0 and first <= last:
            first = max(first, self.seq_at(stream, selection.time_ns_min))
        if selection.time_ns_max < 2**63 - 1 and first <= last:
            last = min(last, self.seq_at(stream, selection.time_ns_max + 1) - 1)
        return first, last

    def plan_range(self, stream: str, first_seq: int, last_seq: int, time_ns_min: int) -> list[Task]:
        step = self.options.partition_rows
        return [
            Task(stream, seq, min(seq + step - 1, last_seq), time_ns_min=time_ns_min)
            for seq in range(first_seq, last_seq + 1, step)
        ]

    def read(self, task: Task, builder: RowBuilder) -> Iterator[pa.RecordBatch]:
        stream = task.stream
        self._infos = {stream: self._info(stream)}
        first_seq = self.bounds(stream).first_seq
        if first_seq > task.first_seq:
            gone = (task.first_seq, min(first_seq - 1, task.last_seq))
            self.losses(stream).gone(SequenceSet([gone]))
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": task.first_seq}
        names, selection = builder.base_names, self.selection(task)
        pulled = self.pull(stream, start, names, selection, headers_type=builder.headers_type)
        for rows, columns in pulled.batches():
            yield builder.build(stream, rows, columns)
