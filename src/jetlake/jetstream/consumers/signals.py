"""Which consumers are to hear of new messages: only those that wait, and whose filters match one of them.

A stream tells its consumers of every commit. While few wait beside many new messages, each one's filter is compared
with the index of those messages by a kernel. Otherwise the subjects among them are looked up, once each, in an index of
filters: then consumers that have nothing to do with them cost nothing, however many there are.

Those that may deliver nothing because too much is pending hear of commits after which messages are missing: limits may
have taken what was pending. They are told once, and say again that they are full.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from jetlake.broker.sublist import Sublist
from jetlake.store.engine import BlockStore
from jetlake.store.index.subject_table import SubjectFilter
from jetlake.subjects import encode_subject

if TYPE_CHECKING:
    from jetlake.jetstream.consumers.consumer import Consumer
    from jetlake.jetstream.streams.stream import Stream

_MANY = 64  # filters of one consumer that are too many for the index
_FEW = 4  # waiting consumers whose filters are compared one by one, whatever was stored
_MSGS_PER_FILTER = 16  # or one for so many messages, which takes less time than to look up their subjects
_COMPARED_MAX = 128  # less than the store remembers of filters
_AT_ONCE = 32  # and so many deliver before others have their turn


class _Entry:
    """One filter of a consumer."""

    __slots__ = ("consumer", "subject")
    queue = None

    def __init__(self, consumer: Consumer, subject: str) -> None:
        self.consumer, self.subject = consumer, encode_subject(subject)


class _Broad:
    """A consumer with many filters. To put each into an index takes longer than to ask them together, seldom."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._filter: SubjectFilter | None = None

    def wants_any(self, subjects: set[bytes]) -> bool:
        if self._filter is None:
            queries = self.consumer.stream.store.queries
            self._filter = queries.filter(self.consumer.config.filters).subjects
        return any(map(self._filter.matches, subjects))


class Signals:
    """The consumers of one stream, by what they want."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._filters: Sublist[_Entry] = Sublist()
        self._entries: dict[int, list[_Entry]] = {}
        self._broad: dict[int, _Broad] = {}  # consumers with many filters, which are not in the index
        self._unfiltered: dict[int, Consumer] = {}  # those that wait
        self._filtered: dict[int, Consumer] = {}
        self._full: dict[int, Consumer] = {}
        self._gaps = 0  # sequences without a message, when this was looked at last

    def add(self, consumer: Consumer) -> None:
        """Take in a consumer, or its new filters."""
        self.remove(consumer)
        filters = consumer.config.filters
        if len(filters) > _MANY:
            self._broad[id(consumer)] = _Broad(consumer)
            return
        entries = self._entries[id(consumer)] = [_Entry(consumer, subject) for subject in filters]
        for entry in entries:
            self._filters.insert(entry)

    def remove(self, consumer: Consumer) -> None:
        """A consumer goes."""
        for entry in self._entries.pop(id(consumer), ()):
            self._filters.remove(entry)
        self._broad.pop(id(consumer), None)
        self.set_waiting(consumer, False)
        self._full.pop(id(consumer), None)

    def set_waiting(self, consumer: Consumer, is_waiting: bool) -> None:
        """Whether a consumer could deliver a new message at once."""
        waiting = self._filtered if consumer.config.filters else self._unfiltered
        if is_waiting:
            waiting[id(consumer)] = consumer
        else:
            self._filtered.pop(id(consumer), None)
            self._unfiltered.pop(id(consumer), None)

    def set_full(self, consumer: Consumer) -> None:
        """A consumer has too much pending."""
        self._full[id(consumer)] = consumer

    def is_waiting(self, consumer: Consumer) -> bool:
        return id(consumer) in self._filtered or id(consumer) in self._unfiltered

    def stored(self, first_seq: int, last_seq: int) -> None:
        """Messages were committed."""
        told = list(self._unfiltered.values())
        if len(self._filtered) <= max(_FEW, min((last_seq - first_seq) // _MSGS_PER_FILTER, _COMPARED_MAX)):
            told += [each for each in self._filtered.values() if self._has_match(each, first_seq, last_seq)]
        else:
            told += self._wanting(subjects_between(self._stream.store, first_seq, last_seq))
        self._tell(told, first_seq, last_seq)
        if self._full:
            self._tell_full()

    def _tell(self, consumers: list[Consumer], first_seq: int, last_seq: int) -> None:
        """Let consumers deliver: some of them now, others after others had their turn."""
        for consumer in consumers[:_AT_ONCE]:
            consumer.stored(first_seq, last_seq)
        if len(consumers) > _AT_ONCE:
            self._stream.host.call_soon(lambda: self._tell(consumers[_AT_ONCE:], first_seq, last_seq))

    def _tell_full(self) -> None:
        catalog = self._stream.store.catalog
        gaps = catalog.gone_count
        if gaps != self._gaps:
            full, self._full, self._gaps = self._full, {}, gaps
            for consumer in full.values():
                consumer.lost()

    def _has_match(self, consumer: Consumer, first_seq: int, last_seq: int) -> bool:
        queries = self._stream.store.queries
        found = queries.next_seq(queries.filter(consumer.config.filters), first_seq)
        return found is not None and found <= last_seq

    def _wanting(self, subjects: set[bytes]) -> list[Consumer]:
        """The waiting consumers that want one of some subjects."""
        found: dict[int, Consumer] = {}
        for subject in subjects:
            for entry in self._filters.match(subject).plain:
                if id(entry.consumer) in self._filtered:
                    found[id(entry.consumer)] = entry.consumer
        for key, broad in self._broad.items():
            if key in self._filtered and broad.wants_any(subjects):
                found[key] = broad.consumer
        return list(found.values())


def subjects_between(store: BlockStore, first_seq: int, last_seq: int) -> set[bytes]:
    """The subjects of the messages first..last, those that were removed meanwhile perhaps included."""
    found: set[bytes] = set()
    for block in store.catalog.blocks_from(first_seq):
        if block.first_seq > last_seq:
            break
        index = store.catalog.index(block)
        start, stop = index.position_from(first_seq), index.position_from(last_seq + 1)
        for slot in set(index.ids[start:stop]):
            with suppress(LookupError):  # the only message of its subject, and removed already
                found.add(index.table.subject(slot))
    return found
