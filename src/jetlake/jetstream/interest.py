"""Retention by interest, and work queues: which messages a stream need not keep because of what its consumers did.

interest    a message that no consumer wants is not stored; one that is stored stays until all that want it are done
workqueue   every message is stored, and leaves when the one consumer that wants it is done

A consumer is done with a message when it was acknowledged or terminated; without acks, when it was delivered. One that
reached max_deliver is kept. After a crash a message may be there still although every consumer was done with it: what
consumers remember is looked through once at the start (`check`).

Which consumers want a subject is remembered, so that an ack costs what its own subject's consumers cost, not all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jetlake.errors import MessageNotFound
from jetlake.jetstream.stream_config import Retention
from jetlake.subjects import decode_subject, is_subset

if TYPE_CHECKING:
    from jetlake.jetstream.consumer import Consumer
    from jetlake.jetstream.stream import Stream

_SUBJECTS_MAX = 4096  # whose consumers are remembered


class Interest:
    """What the consumers of one stream want of it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.removed_count = 0  # messages that left because consumers were done with them
        self._takers: dict[str, list[Consumer]] = {}
        self._wants_all: bool | None = None

    # At publish time

    @property
    def wants_all(self) -> bool:
        """Whether every message is to be stored."""
        if self._wants_all is None:
            has_unfiltered = any(not consumer.config.filters for consumer in self._consumers)
            self._wants_all = self._is_work_queue or has_unfiltered
        return self._wants_all

    def wants(self, subject: bytes) -> bool:
        """Whether a message of this subject is to be stored."""
        return self.wants_all or bool(self._takers_of(decode_subject(subject)))

    def _takers_of(self, subject: str) -> list[Consumer]:
        """The consumers that want messages of a subject."""
        takers = self._takers.get(subject)
        if takers is None:
            takers = [consumer for consumer in self._consumers if _takes(consumer, subject)]
            if len(self._takers) >= _SUBJECTS_MAX:
                self._takers.clear()
            self._takers[subject] = takers
        return takers

    # What consumers did

    def acked(self, consumer: Consumer, seqs: Iterable[int]) -> None:
        """A consumer is done with some messages."""
        if self._is_work_queue:
            self._remove(seqs)
        else:
            self._remove_unwanted(seqs)

    def consumer_added(self, consumer: Consumer) -> None:
        """There is one more."""
        self._forget()

    def consumer_removed(self, consumer: Consumer) -> None:
        """A consumer was deleted: what only it wanted can go. It is no longer among the stream's."""
        self._forget()
        if self._is_work_queue:
            return
        if not self._stream.consumers:
            self.removed_count += self._stream.store.catalog.table.total
            self._stream.purge()
        else:
            self._look_through(consumer.ledger.floor_stream_seq + 1)

    def filters_changed(self, consumer: Consumer) -> None:
        """A consumer wants other messages than before."""
        self._forget()
        if not self._is_work_queue:
            self._look_through(consumer.ledger.floor_stream_seq + 1)

    def begin(self) -> None:
        """Interest counts from now on in a stream that kept everything."""
        if self._is_work_queue:
            return
        if self._stream.consumers:
            self.check()
        else:
            self._stream.purge()

    def check(self) -> None:
        """Remove what all consumers are done with, as far as any of them got."""
        if not self._stream.consumers:
            return
        delivered_seq = max(consumer.ledger.delivered_stream_seq for consumer in self._consumers)
        if self._is_work_queue:
            self._check_work_queue()
        else:
            self._look_through(self._stream.store.catalog.first_seq, delivered_seq)

    # How

    @property
    def _consumers(self) -> list[Consumer]:
        return list(self._stream.consumers.values())

    @property
    def _is_work_queue(self) -> bool:
        return self._stream.config.retention is Retention.WORKQUEUE

    def _forget(self) -> None:
        self._takers.clear()
        self._wants_all = None

    def _look_through(self, first_seq: int, last_seq: int | None = None) -> None:
        """Remove messages from first to last that no consumer wants."""
        catalog = self._stream.store.catalog
        last_seq = catalog.last_seq if last_seq is None else last_seq
        seqs = []
        seq = catalog.next_live(max(first_seq, catalog.first_seq))
        while seq is not None and seq <= last_seq:
            seqs.append(seq)
            seq = catalog.next_live(seq + 1)
        self._remove_unwanted(seqs)

    def _check_work_queue(self) -> None:
        """Remove what its consumer delivered and is not waiting for: its acks were kept, the removals were not."""
        store = self._stream.store
        for consumer in self._consumers:
            filter = store.queries.filter(consumer.config.filters or ">")
            seqs = store.queries.matching(filter, store.catalog.first_seq, consumer.ledger.delivered_stream_seq + 1)
            self._remove([seq for seq in seqs if not consumer.needs(seq, store.subject_of(seq))])

    def _remove_unwanted(self, seqs: Iterable[int]) -> None:
        self._remove([seq for seq in seqs if not self._is_wanted(seq)])

    def _is_wanted(self, seq: int) -> bool:
        try:
            subject = self._stream.store.subject_of(seq)
        except MessageNotFound:
            return False
        return any(consumer.needs(seq, subject) for consumer in self._takers_of(subject))

    def _remove(self, seqs: Iterable[int]) -> None:
        stream = self._stream
        if stream.problem is not None:
            return  # nothing can be written; what is left over is found when the files are read anew
        removed_count = stream.store.remove_many(seqs)
        if removed_count:
            self.removed_count += removed_count
            stream.when_durable(_nothing)


def _takes(consumer: Consumer, subject: str) -> bool:
    filters = consumer.config.filters
    return not filters or any(is_subset(subject, filter) for filter in filters)


def _nothing() -> None:
    """The answer to nobody."""
