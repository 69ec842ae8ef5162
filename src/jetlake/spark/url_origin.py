"""Streams of a live server, JetLake or nats-server, read over the NATS protocol.

A task reads its range through an ephemeral pull consumer without acks, held in memory, which it deletes when it is
done; one that a killed task leaves behind is removed by the server half a minute later. When the connection is lost in
the middle, the task connects again and goes on after the last message it has handed over, a bounded number of times.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, TypeVar

import pyarrow as pa

from jetlake.clock import SECOND_NS
from jetlake.spark.arrow import FIELDS, ColumnPool, Columns, arrays
from jetlake.spark.blocks import Selection
from jetlake.spark.errors import NoStream, ServerError
from jetlake.spark.locate import match_names
from jetlake.spark.msgs import SLACK, Received, receive
from jetlake.spark.nats import ApiRefused, Connection, Disconnected, pub_frame
from jetlake.spark.options import Options
from jetlake.spark.origin import Bounds, Origin, StreamPartition
from jetlake.spark.schema import RowBuilder
from jetlake.store.sequence_set import SequenceSet
from jetlake.subjects import is_subset, matches, overlaps

_INACTIVE_NS = 30 * SECOND_NS
_BATCH = 10_000
_BATCHES_AHEAD = 2
_PULL_EXPIRES_NS = 30 * SECOND_NS
_BATCH_SIZE = 2 * 1024 * 1024  # bytes of messages in one record batch, about
_STREAM_NOT_FOUND = 10059
_SETTLE_S = 0.2
_GATHER_S = 0.003
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
                time.sleep(_SETTLE_S * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

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
        seconds, rest = divmod(max(time_ns, 0), SECOND_NS)
        text = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
        start = {"deliver_policy": "by_start_time", "opt_start_time": text}
        for seq, _ in self._consume(stream, start, self.bounds(stream).last_seq, 1):
            return seq
        return self.bounds(stream).last_seq + 1

    def _consume(self, stream: str, start: dict[str, Any], last_seq: int, count: int) -> Iterator[tuple[int, bytes]]:
        """Sequences and payloads of a few messages."""
        pulled = Pull(self, stream, start, ["seq", "payload"], Selection(last_seq=last_seq), count)
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
            ends.append(start_seq + max(size_max // self._average_size(stream), 1) - 1)
        return min(ends)

    def size(self, stream: str, first_seq: int, last_seq: int) -> int:
        return (last_seq - first_seq + 1) * self._average_size(stream)

    def _average_size(self, stream: str) -> int:
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

    def plan(self) -> list[StreamPartition]:
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

    def plan_range(self, stream: str, first_seq: int, last_seq: int, time_ns_min: int) -> list[StreamPartition]:
        step = self.options.partition_rows
        return [
            StreamPartition(stream, seq, min(seq + step - 1, last_seq), time_ns_min=time_ns_min)
            for seq in range(first_seq, last_seq + 1, step)
        ]

    def read(self, partition: StreamPartition, builder: RowBuilder) -> Iterator[pa.RecordBatch]:
        stream = partition.stream
        self._infos = {stream: self._info(stream)}
        first_seq = self.bounds(stream).first_seq
        if first_seq > partition.first_seq:
            gone = (partition.first_seq, min(first_seq - 1, partition.last_seq))
            self.losses(stream).gone(SequenceSet([gone]))
        start = {"deliver_policy": "by_start_sequence", "opt_start_seq": partition.first_seq}
        names, selection = builder.base_names, self.selection(partition)
        pulled = Pull(self, stream, start, names, selection, headers_type=builder.headers_type)
        for rows, columns in pulled.batches():
            yield builder.build(stream, rows, columns)


def distinct_filters(filters: Sequence[str]) -> list[str]:
    """The filters that no other one covers."""
    once = list(dict.fromkeys(filters))
    return [one for one in once if not any(is_subset(one, other) for other in once if other != one)]


class Pull:
    """A range of a stream on its way here."""

    def __init__(
        self,
        origin: UrlOrigin,
        stream: str,
        start: dict[str, Any],
        names: list[str],
        selection: Selection,
        count_max: int = 0,
        **more: Any,
    ) -> None:
        self._origin, self._stream, self._start, self._selection = origin, stream, start, selection
        self._names, self._more = [name for name in names if name in FIELDS], more
        self._filters = distinct_filters(selection.filters)
        # No server takes filters that overlap: it sends all messages then, and they are chosen here.
        self._is_chosen_here = any(overlaps(a, b) for a, b in combinations(self._filters, 2))
        if self._is_chosen_here and "subject" not in self._names:
            self._names.append("subject")
        self._batch = min(count_max or _BATCH, _BATCH)
        self._pool = ColumnPool.of(self._names)
        self._last_seq = 0  # of the messages handed over

    def batches(self) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Rows as they come; on a new connection, after the last ones, when the old one is lost."""
        failures = 0
        while True:
            before = self._last_seq
            try:
                yield from self._on_one_connection()
                return
            except Disconnected as error:
                self._origin.close()
                failures = 0 if self._last_seq > before else failures + 1
                if failures > self._origin.options.retries:
                    raise ServerError(
                        f"stream {self._stream}: reading stopped after sequence {self._last_seq}, and "
                        f"{failures} attempts to go on failed: {error}"
                    ) from None
                time.sleep(_SETTLE_S * 2**failures)

    def _on_one_connection(self) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        link = self._origin._retry(lambda connection: connection)
        name = f"jetlake-{secrets.token_hex(8)}"
        pending = self._create(link, name)
        try:
            if pending:
                yield from self._pull(link, name)
        finally:
            try:
                link.request(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}")
            except ServerError:  # the connection is gone; the server removes what nobody uses
                self._origin.close()

    def _create(self, link: Connection, name: str) -> int:
        """Make a consumer; how many messages it has."""
        start = self._start
        if self._last_seq:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": self._last_seq + 1}
        config: dict[str, Any] = {
            "name": name,
            "ack_policy": "none",
            "mem_storage": True,
            "inactive_threshold": _INACTIVE_NS,
            "max_waiting": 16,
            **start,
        }
        if len(self._filters) == 1:
            config["filter_subject"] = self._filters[0]
        elif self._filters and not self._is_chosen_here:
            config["filter_subjects"] = self._filters
        body = {"stream_name": self._stream, "config": config}
        return int(link.api(f"CONSUMER.CREATE.{self._stream}.{name}", body)["num_pending"])

    def _pull(self, link: Connection, name: str) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        selection, timeout_s = self._selection, self._origin.options.timeout_s
        asked = waiting = 0  # pull requests so far; messages of them that are still to come
        deadline, has_more = time.monotonic() + timeout_s, False
        while True:
            while waiting <= (_BATCHES_AHEAD - 1) * self._batch:
                asked += 1
                self._ask(link, name, asked)
                waiting += self._batch
            if not has_more:
                self._gather(link, deadline)
            columns, found = self._decode(link)
            if found.seen:
                deadline = time.monotonic() + timeout_s
                waiting -= found.seen
                if found.rows:
                    yield from self._chosen(found.rows, arrays(self._names, columns, found, **self._more))
                self._last_seq = max(self._last_seq, min(found.last_seq, selection.last_seq))
                if found.pending == 0 or found.last_seq >= selection.last_seq:
                    return
            has_more = found.rows == columns.rows_max
            if found.is_other:
                before = len(link.received)
                if self._other(link):
                    waiting = 0
                has_more = len(link.received) < before

    def _chosen(self, rows: int, columns: dict[str, pa.Array]) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """The rows whose subjects are wanted, where the server could not tell; each distinct one is looked at once."""
        if self._is_chosen_here:
            subjects = columns["subject"].dictionary_encode()
            texts = subjects.dictionary.to_pylist()
            is_wanted = pa.array([any(matches(filter, text) for filter in self._filters) for text in texts], pa.bool_())
            mask = is_wanted.take(subjects.indices)
            columns = {name: column.filter(mask) for name, column in columns.items()}
            rows = len(columns["subject"])
        if rows:
            yield rows, columns

    def _decode(self, link: Connection) -> tuple[Columns, Received]:
        """Take the messages that have arrived whole off the connection."""
        data, selection = link.received, self._selection
        size = len(data)
        data += bytes(SLACK)
        columns = self._pool.take(max(size, _BATCH_SIZE))
        found = receive(
            data, 0, size, selection.last_seq, max(selection.time_ns_min, 0), selection.time_ns_max, columns
        )
        del data[size:]
        del data[: found.end]
        return columns, found

    def _ask(self, link: Connection, name: str, number: int) -> None:
        body = json.dumps({"batch": self._batch, "expires": _PULL_EXPIRES_NS}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}".encode()
        link.publish(pub_frame(subject, body, reply=f"{link.inbox}.p{number}".encode()))
        link.flush()

    def _gather(self, link: Connection, deadline: float) -> None:
        """Wait for bytes, then take what comes right behind them: large record batches cost Spark less."""
        if not link.receive(deadline):
            raise Disconnected(f"{link.where}: nothing came for {self._origin.options.timeout_s:g} s")
        while len(link.received) < _BATCH_SIZE and link.receive(time.monotonic() + _GATHER_S):
            pass

    def _other(self, link: Connection) -> bool:
        """A line that is not a delivered message; True when a pull request ended."""
        reply = link.next_reply()
        if reply is None:  # a control line, or a status that is not complete
            return False
        status = reply.status
        if status in (404, 408):
            return True
        if status == 409 and "Batch Completed" in reply.description:
            return False
        if status == 409:  # the consumer was deleted, or the server goes down: another attempt will tell
            raise Disconnected(f"{link.where}: {reply.description}")
        if status >= 400:
            raise ServerError(f"{link.where}: {status} {reply.description}")
        return False
