"""A range of a stream on its way here: the messages of an ephemeral pull consumer without acks."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetlake.clock import SECOND_NS
from jetlake.subjects import is_subset, matches, overlaps
from jetlake.table.arrow import FIELDS, ColumnPool, Columns, arrays
from jetlake.table.blocks import Selection
from jetlake.table.errors import ServerError
from jetlake.table.msgs import SLACK, Received, receive
from jetlake.table.nats import Connection, Disconnected, pub_frame

if TYPE_CHECKING:
    from jetlake.table.url_origin import UrlOrigin

SETTLE_S = 0.2
BATCH_SIZE = 2 * 1024 * 1024  # bytes of messages in one record batch, about
_INACTIVE_NS = 30 * SECOND_NS
_BATCH = 10_000
_BATCHES_AHEAD = 2
_PULL_EXPIRES_NS = 30 * SECOND_NS
_GATHER_S = 0.003


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
        self._is_chosen_here = self._must_choose()
        if self._is_chosen_here and "subject" not in self._names:
            self._names.append("subject")
        self._batch = min(count_max or _BATCH, _BATCH)
        self._pool = ColumnPool.of(self._names)
        self._last_seq = 0  # of the messages handed over

    def _must_choose(self) -> bool:
        """No server takes filters that overlap: it sends all messages then, and they are chosen here."""
        return any(overlaps(a, b) for a, b in combinations(self._filters, 2))

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
                time.sleep(SETTLE_S * 2**failures)

    def _on_one_connection(self) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        link = self._origin.connection()
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
            columns, found = self._decode(link.received)
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

    def _decode(self, data: bytearray) -> tuple[Columns, Received]:
        """Take the messages that have arrived whole off the front of some bytes."""
        selection, size = self._selection, len(data)
        data += bytes(SLACK)
        columns = self._pool.take(max(size, BATCH_SIZE))
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
        while len(link.received) < BATCH_SIZE and link.receive(time.monotonic() + _GATHER_S):
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
