"""Messages that leave by themselves: too old (max_age), or with a time to live of their own.

Age. Times ascend with sequences, so what is too old lies at the front: the cost follows what expires. A message whose
TTL is "never" stays behind; the search goes on after it. (A message stored with an explicit time that lies before its
predecessor's expires together with that predecessor.)
TTL. A time wheel holds the sequences that have a deadline, and only those.

Where the stream is configured with delete markers, the last message of a subject leaves one: an empty message whose
headers say why, with a TTL of its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from jetlake.clock import go_duration
from jetlake.store.format import NEVER_NS
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.time_wheel import TimeWheel
from jetlake.store.records.record import Record

if TYPE_CHECKING:
    from jetlake.store.retention.retention import Retention

_PLAIN_MULTIPLE = 64  # messages that leave together take less time than those that leave one by one
_MARKER = re.compile(rb"\r\n(?:Nats-Marker-Reason:|KV-Operation: *PURGE\r\n)")


class Expiry:
    """What expires in one store, and when."""

    def __init__(self, store: Retention) -> None:
        self.store = store
        self.wheel = TimeWheel()
        self.never = SequenceSet()
        self._age_seq = 0  # everything below was looked at and is kept for good

    def add(self, seq: int, expires_ns: int) -> None:
        """A message was stored, or found by recovery, that has a TTL."""
        if expires_ns == NEVER_NS:
            self.never.add(seq)
        else:
            self.wheel.add(seq, expires_ns)

    def forget(self, seq: int) -> None:
        """A message was removed."""
        if len(self.wheel):
            self.wheel.remove(seq)
        if self.never:
            self.never.remove(seq)

    def forget_range(self, first: int, last: int) -> None:
        """All messages of a range were removed."""
        self.never.remove_range(first, last)
        if len(self.wheel):
            for seq in range(first, last + 1):
                self.wheel.remove(seq)

    def clear(self) -> None:
        """Everything was removed."""
        self.wheel, self.never = TimeWheel(), SequenceSet()

    def restart(self) -> None:
        """max_age may have changed: look at everything again."""
        self._age_seq = 0

    def next_ns(self) -> int | None:
        """When the next message expires; None when none does."""
        due_ns = self.wheel.next_expiry()
        max_age_ns = self.store.limits.max_age_ns
        if max_age_ns and (oldest_ns := self._oldest_time_ns()) is not None:
            oldest_ns += max_age_ns
            due_ns = oldest_ns if due_ns is None else min(due_ns, oldest_ns)
        return due_ns

    def run(self, now_ns: int, count_max: int | None = None) -> int:
        """Remove what has expired, or the first so many; how many."""
        expired = 0
        for seq in self.wheel.expire(now_ns, count_max):
            if self.store.catalog.is_live(seq):
                self._remove(seq, now_ns)
                expired += 1
        if self.store.limits.max_age_ns and (count_max is None or expired < count_max):
            expired += self._run_age(now_ns, count_max)
        return expired

    def _oldest_time_ns(self) -> int | None:
        """When the first message that age can take was stored."""
        seq = self._oldest(self._age_seq)
        while seq is not None:
            record = self.store.catalog.find(seq)
            if record is not None:
                return record.time_ns
            seq = self._oldest(seq + 1)
        return None

    def _oldest(self, start: int) -> int | None:
        """The first message at or after a sequence that age can take."""
        catalog = self.store.catalog
        seq = catalog.next_live(start)
        while seq is not None and seq in self.never:
            seq = catalog.next_live(self.never.next_missing(seq))
        return seq

    def _run_age(self, now_ns: int, count_max: int | None) -> int:
        """Remove messages that are too old, or the first so many; of plain ones a multiple."""
        store, expired = self.store, 0
        stop = store.queries.seq_from_time(now_ns - store.limits.max_age_ns + 1)
        if not self.never and not store.limits.subject_delete_marker_ttl_ns:
            return store._expel(stop, None if count_max is None else count_max * _PLAIN_MULTIPLE)
        while (seq := self._oldest(self._age_seq)) is not None and seq < stop and expired != count_max:
            self._age_seq = seq + 1
            self._remove(seq, now_ns)
            expired += 1
        return expired

    def _remove(self, seq: int, now_ns: int) -> None:
        """Remove one message, leaving a marker where one is due."""
        store = self.store
        ttl_ns = store.limits.subject_delete_marker_ttl_ns
        record = store.catalog.find(seq) if ttl_ns else None
        if store.catalog.is_live(seq):
            store._remove(seq)
        if record is not None and store.catalog.table.find(record.subject) < 0 and not _is_marker(record):
            headers = (
                f"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: {go_duration(ttl_ns)}\r\nNats-Rollup: sub\r\n\r\n"
            )
            time_ns = max(now_ns, store.catalog.last_time_ns)
            seq = store.catalog.last_seq + 1
            store._put(seq, time_ns, record.subject, headers.encode(), b"", time_ns + ttl_ns, 0)


def _is_marker(record: Record) -> bool:
    return _MARKER.search(record.headers) is not None
