"""What a consumer makes of messages that leave its stream: by a purge, a deletion, limits or age.

What is pending and gone counts as terminated. A consumer is told of purges and deletions. Of what limits take it is not
told, so it looks for itself when its numbers are asked for, and while it may deliver nothing because too much is
pending: by a number that grows with every loss, so that looking costs nothing where nothing was lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetlake.jetstream.consumers.commands import Drop, ForgetCounts, SkipTo
from jetlake.subjects import is_subset

if TYPE_CHECKING:
    from jetlake.jetstream.consumers.consumer import Consumer


class Losses:
    """The losses of a stream, as one consumer sees them."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._seen_count = self._count()
        self.looked_ns = 0  # when all that is pending was gone through

    def purged(self, filter: str | None) -> None:
        """All that match a filter are gone, up to some sequence; or (None) messages left by age or limits."""
        consumer = self._consumer
        if filter is not None and not _overlaps(consumer.config.filters, filter):
            return
        if filter is None:
            self.look()  # before these are skipped: of each that is pending it is told
        ledger, pending_count = consumer.ledger, len(consumer.ledger.pending)
        first_seq = self._first_left(filter)
        if filter is not None or ledger.next_seq < first_seq or ledger.floor_stream_seq < first_seq - 1:
            consumer.submit(SkipTo(first_seq))
        self.look()
        if len(ledger.pending) < pending_count:
            consumer.acked_ns = consumer.host.clock()

    def _first_left(self, filter: str | None) -> int:
        """The first message that may concern the consumer after a purge."""
        store, mine = self._consumer.stream.store, self._consumer.config.filters
        if filter not in (None, ">") and mine and all(is_subset(own, str(filter)) for own in mine):
            # All that it wants was purged: it goes on at the first that is left of it, or after the end.
            return store.queries.next_seq(store.queries.filter(str(filter)), 0) or store.catalog.last_seq + 1
        return store.catalog.first_seq

    def removed(self, seq: int) -> bool:
        """One message is gone; whether it was pending."""
        return self._drop(array("Q", (seq,)))

    def look(self, *, anyway: bool = False) -> None:
        """Drop what is pending and gone, if anything left the stream since the last time."""
        count = self._count()
        if count == self._seen_count and not anyway:
            return
        self._seen_count, self.looked_ns = count, self._consumer.host.clock()
        ledger, catalog = self._consumer.ledger, self._consumer.stream.store.catalog
        self._drop(catalog.gone_among(ledger.pending_seqs))
        if ledger.redelivered:
            gone = catalog.gone_among(array("Q", sorted(ledger.redelivered)))
            self._consumer.submit(ForgetCounts(gone))

    def _count(self) -> int:
        """How many messages left the stream other than by the acks of its consumers."""
        stream = self._consumer.stream
        acked = stream.interest.removed_count if stream.interest is not None else 0
        return stream.store.catalog.gone_count - acked

    def _drop(self, seqs: array[int]) -> bool:
        """Messages are gone: tell of those that were pending; whether there were any."""
        consumer = self._consumer
        if not seqs:
            return False
        told = consumer.ledger.pending_among(seqs) if consumer.events.are_deletions_heard else []
        if not consumer.submit(Drop(seqs)):
            return False
        consumer.acked_ns = consumer.host.clock()
        consumer.events.deleted(told)
        consumer.changed()
        return True


def _overlaps(filters: Sequence[str], filter: str) -> bool:
    """Whether one of a consumer's filters says more or less the same as another one."""
    return not filters or any(is_subset(own, filter) or is_subset(filter, own) for own in filters)
