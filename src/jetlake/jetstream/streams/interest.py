"""Retention by interest, and work queues: which messages a stream need not keep because of what its consumers did.

interest    a message that no consumer wants is not stored; one that is stored stays until all that want it are done
workqueue   every message is stored, and leaves when the one consumer that wants it is done

A consumer is done with a message when it was acknowledged or terminated; without acks, when it was delivered. One that
reached max_deliver is kept.

The ack of a message and its removal are written to two files, the consumer's and the stream's, so after a crash a
message may still be there although every consumer was done with it. In an interest stream the positions of the
consumers say which these are: what all of them are past, none will ask for again (`check`). In a work queue positions
do not say it: a message can lie behind its consumer and be unread, because the consumer was reset or had other filters
when it came by. There a consumer's file lists what was acknowledged and whose removal was not durable yet (`Removals`),
and only that is removed at the next start.

While the file of a consumer cannot be read, nobody knows what it wants: an interest stream stores and keeps everything.

Which consumers want a subject is remembered, so that an ack costs what its own subject's consumers cost, not all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from jetlake.errors import MessageNotFound
from jetlake.jetstream.streams.commands import Remove
from jetlake.jetstream.streams.config import Retention
from jetlake.subjects import decode_subject, is_subset

if TYPE_CHECKING:
    from jetlake.jetstream.consumers.consumer import Consumer
    from jetlake.jetstream.streams.stream import Stream

_SUBJECTS_MAX = 4096  # whose consumers are remembered
_SLICE_COUNT = 1000  # messages that are looked at before others have their turn


class Removals:
    """The messages that left a work queue by the acks of one consumer, until their removal is durable."""

    def __init__(self) -> None:
        self._runs: dict[int, Sequence[int]] = {}  # by a number, so that a run of any size is dropped at once
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def begin(self, seqs: Sequence[int]) -> Callable[[], None]:
        """Take note of some; to be called when their removal is durable."""
        self._count += 1
        number = self._count
        self._runs[number] = seqs
        return lambda: self._end(number)

    def _end(self, number: int) -> None:
        self._runs.pop(number, None)

    def seqs(self) -> list[int]:
        """All of them."""
        return [seq for run in self._runs.values() for seq in run]

    def take(self) -> list[int]:
        """All of them, which are forgotten here."""
        seqs = self.seqs()
        self._runs.clear()
        return seqs


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
            self._wants_all = self._is_work_queue or has_unfiltered or self._is_unknown
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

    def acked(self, consumer: Consumer, seqs: Sequence[int], *, are_late: bool = False) -> None:
        """A consumer is done with some messages; late ones were not pending any more, or it was reset since."""
        if not self._is_work_queue:
            self._remove_in_slices(iter(seqs))
            return
        # What is pending is a consumer's own, unless its filters were others before and another one has them now.
        if are_late or (consumer.may_hold_others and len(self._stream.consumers) > 1):
            seqs = [seq for seq in seqs if not self._is_wanted(seq)]
            consumer.may_hold_others = len(consumer.ledger.pending) > 0
        if self._stream.log.problem is not None:  # nothing can be removed before the files are read anew
            consumer.removals.begin(seqs)
        else:
            self._remove(seqs, lambda: self._stream.log.when_durable(consumer.removals.begin(seqs)))

    def consumer_added(self, consumer: Consumer) -> None:
        """There is one more."""
        self._forget()

    def consumer_removed(self, consumer: Consumer) -> None:
        """A consumer was deleted: what only it wanted can go. It is no longer among the stream's."""
        self._forget()
        if self._is_work_queue or self._is_unknown:
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
        self._forget()
        if self._is_work_queue or self._is_unknown:
            return
        if self._stream.consumers:
            self.check()
        else:
            self._stream.purge()

    def check(self) -> None:
        """Remove what a crash or a failed write left behind."""
        self._forget()
        if self._is_work_queue:
            for consumer in self._consumers:
                self.acked(consumer, consumer.removals.take())
        else:
            for consumer in self._consumers:
                self._remove_unwanted(self._passed(consumer))

    # How

    @property
    def _consumers(self) -> list[Consumer]:
        return list(self._stream.consumers.values())

    @property
    def _is_work_queue(self) -> bool:
        return self._stream.config.retention is Retention.WORKQUEUE

    @property
    def _is_unknown(self) -> bool:
        """Whether there are consumers that cannot be asked what they want."""
        return bool(self._stream.offline_consumers)

    def _forget(self) -> None:
        self._takers.clear()
        self._wants_all = None

    def _passed(self, consumer: Consumer) -> list[int]:
        """The messages of its subjects that a consumer has behind it, or that it is waiting for."""
        store, ledger = self._stream.store, consumer.ledger
        last_seq = ledger.delivered_stream_seq if ledger.pending else ledger.floor_stream_seq
        filter = store.queries.filter(consumer.config.filters or ">")
        return list(chain.from_iterable(store.queries.matching(filter, store.catalog.first_seq, last_seq + 1)))

    def _look_through(self, first_seq: int) -> None:
        """Remove messages from a sequence on that no consumer wants."""
        catalog = self._stream.store.catalog
        self._remove_in_slices(self._live(max(first_seq, catalog.first_seq), catalog.last_seq))

    def _live(self, first_seq: int, last_seq: int) -> Iterator[int]:
        """The messages between two sequences, as they are when their turn comes."""
        seq = self._stream.store.catalog.next_live(first_seq)
        while seq is not None and seq <= last_seq:
            yield seq
            seq = self._stream.store.catalog.next_live(seq + 1)

    def _remove_in_slices(self, seqs: Iterator[int]) -> None:
        """Remove what no consumer wants of some messages: the first ones now, others after others had their turn."""
        if self._stream.is_closed:
            return
        some = list(islice(seqs, _SLICE_COUNT))
        self._remove_unwanted(some)
        if len(some) == _SLICE_COUNT:
            self._stream.host.call_soon(lambda: self._remove_in_slices(seqs))

    def _remove_unwanted(self, seqs: Iterable[int]) -> None:
        if self._stream.log.problem is not None or self._is_unknown:
            return
        self._remove([seq for seq in seqs if not self._is_wanted(seq)], lambda: self._stream.log.when_durable(_nothing))

    def _is_wanted(self, seq: int) -> bool:
        try:
            subject = self._stream.store.subject_of(seq)
        except MessageNotFound:
            return False
        return any(consumer.needs(seq, subject) for consumer in self._takers_of(subject))

    def _remove(self, seqs: Iterable[int], then: Callable[[], None]) -> None:
        """Remove messages; `then` is called if there were any."""

        def removed(count: int) -> None:
            self.removed_count += count
            if count:
                then()

        self._stream.log.submit(Remove(list(seqs)), removed)


def _takes(consumer: Consumer, subject: str) -> bool:
    filters = consumer.config.filters
    return not filters or any(is_subset(subject, filter) for filter in filters)


def _nothing() -> None:
    """The answer to nobody."""
