"""Removing many messages of a stream, some at a time: others have their turn in between.

What is stored meanwhile stays, since the end is fixed when the work begins. `guard` is put around what happens later.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

from jetlake.jetstream import errors
from jetlake.jetstream.streams.commands import PurgeSome, Remove
from jetlake.jetstream.streams.config import StreamConfig, limits
from jetlake.store import Discard, StreamLimits

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

REMOVED_COUNT_MAX = 5000  # messages that are removed before others have their turn

Guard = Callable[[Callable[[], None]], Callable[[], None]]


def purge(stream: Stream, filter: str, seq: int, keep: int, done: Callable[[int], None], guard: Guard) -> None:
    """Purge for a client; `done` is told how many messages these are."""

    def finish(purged: int) -> None:
        stream.purged(filter)
        done(purged)

    def begin() -> None:
        catalog = stream.store.catalog
        count, last = stream.store.num_pending(0, filter).msgs - keep, catalog.last_seq
        is_everything = count == catalog.table.total and (not seq or seq > last)
        if count <= REMOVED_COUNT_MAX or is_everything:
            stream.purge(filter, seq=seq, keep=keep, done=done)
        else:
            _remove_first(stream, filter, min(seq - 1, last) if seq else last, count, finish, guard)

    stream.log.defer(guard(begin))


def shrink(stream: Stream, config: StreamConfig, done: Callable[[], None], guard: Guard) -> None:
    """Let go of most of what the limits of a configuration will take, before it is that of the stream."""

    def begin() -> None:
        wanted, total = limits(config), stream.store.catalog.table.total

        def trim(_: int) -> None:
            subject_max, old_max = wanted.max_msgs_per_subject, stream.store.limits.max_msgs_per_subject
            is_lower = subject_max > 0 and not 0 < old_max <= subject_max
            remove(stream.store.over_subjects(subject_max) if is_lower else array("Q"))

        def remove(seqs: array[int]) -> None:
            if stream.log.is_closed:
                raise errors.STREAM_NOT_FOUND()
            if len(seqs) > REMOVED_COUNT_MAX:
                rest = seqs[REMOVED_COUNT_MAX:]
                then = guard(lambda: remove(rest))
                stream.log.submit(Remove(seqs[:REMOVED_COUNT_MAX]), lambda _: stream.host.call_soon(then))
                return
            if stream.store.catalog.table.total < total:
                stream.shrunk()
                stream.changed()
            done()

        count = _count_over(stream, wanted)
        if stream.log.problem is not None:
            done()  # which says so
        elif count > REMOVED_COUNT_MAX:
            _remove_first(stream, ">", stream.store.catalog.last_seq, count, trim, guard)
        else:
            trim(0)

    stream.log.defer(guard(begin))


def _count_over(stream: Stream, wanted: StreamLimits) -> int:
    """How many of the oldest messages are sure to leave by limits; of those by bytes, whole blocks."""
    catalog, by_size = stream.store.catalog, 0
    if wanted.discard is Discard.NEW:
        return 0
    size_over = catalog.size - wanted.max_bytes if wanted.max_bytes > 0 else 0
    for block in catalog.blocks:
        if block.size > size_over:
            break
        size_over, by_size = size_over - block.size, by_size + block.message_count
    return max(catalog.table.total - wanted.max_msgs if wanted.max_msgs > 0 else 0, by_size)


def _remove_first(
    stream: Stream, filter: str, last: int, count: int, done: Callable[[int], None], guard: Guard
) -> None:
    """Remove the oldest so many messages up to a sequence that match; `done` is told how many there were."""

    def step(first: int, removed: int) -> None:
        if stream.log.is_closed:
            raise errors.STREAM_NOT_FOUND()

        def then(seqs: array[int]) -> None:
            total = removed + len(seqs)
            if len(seqs) == REMOVED_COUNT_MAX:
                stream.host.call_soon(guard(lambda: step(seqs[-1] + 1, total)))
            else:
                done(total)

        stream.log.submit(PurgeSome(filter, first, last, min(count - removed, REMOVED_COUNT_MAX)), then)

    step(stream.store.catalog.first_seq, 0)
