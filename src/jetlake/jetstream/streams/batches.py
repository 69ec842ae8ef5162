"""Batches that publishers have begun and not ended: how many there may be, and when one is given up.

A batch is given up when nothing is heard of it for a while. One timer serves all batches of a stream: it is not moved
when a message arrives, but looks again later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from jetlake.clock import SECOND_NS
from jetlake.jetstream.host import Timer

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

BATCH_ID_SIZE_MAX = 64
ATOMIC_PER_STREAM_MAX, ATOMIC_TOTAL_MAX = 50, 1000
FAST_PER_STREAM_MAX, FAST_TOTAL_MAX = 1000, 50_000
MSGS_MAX = 1000
TIMEOUT_NS = 10 * SECOND_NS
HELD_SIZE_MAX = 256 * 1024 * 1024  # of all members that wait for their commit, in memory


class OpenBatches:
    """The open batches of a server, in numbers."""

    def __init__(self) -> None:
        self.atomic_count = self.fast_count = 0
        self.held_size = 0


class Open(Protocol):
    """A batch that is open."""

    heard_ns: int  # when its last message came


BatchT = TypeVar("BatchT", bound=Open)


class BatchTable(Generic[BatchT]):
    """The open batches of a stream, by id."""

    def __init__(self, stream: Stream, give_up: Callable[[bytes], None]) -> None:
        """`give_up` is called with the id of a batch of which nothing was heard for too long; it must remove it."""
        self._stream, self._give_up = stream, give_up
        self.batches: dict[bytes, BatchT] = {}
        self._timer: Timer | None = None

    def add(self, batch_id: bytes, batch: BatchT) -> None:
        """A batch begins."""
        self.batches[batch_id] = batch
        if self._timer is None:
            self._timer = self._stream.host.call_at(batch.heard_ns + self._timeout_ns, self._look)

    @property
    def _timeout_ns(self) -> int:
        return self._stream.host.options.jetstream.limits.batch_timeout_ns or TIMEOUT_NS

    def _look(self) -> None:
        self._timer = None
        now_ns, timeout_ns = self._stream.host.clock(), self._timeout_ns
        for batch_id, batch in list(self.batches.items()):
            if now_ns - batch.heard_ns >= timeout_ns:
                self._give_up(batch_id)
        if self.batches:
            oldest_ns = min(batch.heard_ns for batch in self.batches.values())
            self._timer = self._stream.host.call_at(oldest_ns + timeout_ns, self._look)

    def stop(self) -> None:
        """No batch is open any more, and none is given up."""
        self.batches.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
