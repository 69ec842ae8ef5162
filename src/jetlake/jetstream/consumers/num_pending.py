"""How many messages a consumer has yet to deliver for the first time: exact whenever somebody asks, and free otherwise.

A count is kept with the sequence up to which it was made. When asked again, only what was stored since is counted, by
the store's indexes. Removals need no notice: the number of sequences without a message (last sequence less messages)
grows with every one of them, wherever it is, and then the store counts anew.

For the last message of each subject the list that was made at creation comes first, then what was stored after it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from jetlake.store.engine import BlockStore


class NumPending:
    """The number of messages from some sequence on that match some filters."""

    def __init__(self, filters: Sequence[str]) -> None:
        self.filters: Sequence[str] = filters or (">",)
        self._list = array("Q")  # the rest of the list, the next one last
        self.resume_seq = 0
        self._count = self._next_seq = self._through_seq = 0
        self._gaps = self._list_gaps = -1
        self._list_count = 0

    def use_list(self, seqs: Sequence[int], resume_seq: int) -> None:
        """Deliver these first, then what comes from a sequence on."""
        self._list, self.resume_seq = array("Q", seqs), resume_seq
        self._list.reverse()
        self._list_gaps = -1

    def use_filters(self, filters: Sequence[str], store: BlockStore) -> None:
        """Count others from now on; of the list there remains what they match."""
        self.filters = filters or (">",)
        if self._list:
            matching = set(store.matching_seqs(self.filters, self._list[-1], self._list[0]))
            self._list = array("Q", filter(matching.__contains__, self._list))
        self._gaps = self._list_gaps = -1

    @property
    def has_list(self) -> bool:
        """Whether something of the list is left."""
        return len(self._list) > 0

    @property
    def first_listed(self) -> int:
        """The next sequence of the list."""
        return self._list[-1]

    def value(self, store: BlockStore, next_seq: int) -> int:
        """How many there are from a sequence on; while the list lasts, its rest and what comes after it."""
        if not self._list:
            return self._from(store, next_seq)
        return self._in_list(store) + self._from(store, self.resume_seq)

    def taken(self, count: int, next_seq: int) -> None:
        """So many of them were delivered, or turned out to be unreadable: the rest starts at a sequence.

        From the list one is taken at a time, and does not count if it was gone.
        """
        if self._list:
            self._list.pop()
            self._list_count -= count
        else:
            self._count -= count
            self._next_seq = next_seq

    def _from(self, store: BlockStore, next_seq: int) -> int:
        catalog = store.catalog
        last_seq, gaps = catalog.last_seq, catalog.gone_count
        if gaps != self._gaps or next_seq != self._next_seq or last_seq < self._through_seq:
            self._count = store.num_pending(next_seq, self.filters).msgs if next_seq <= last_seq else 0
            self._gaps, self._next_seq = gaps, next_seq
        elif last_seq > self._through_seq:
            start_seq = max(self._through_seq + 1, next_seq)
            self._count += store.num_pending(start_seq, self.filters).msgs if start_seq <= last_seq else 0
        self._through_seq = last_seq
        return self._count

    def _in_list(self, store: BlockStore) -> int:
        catalog = store.catalog
        gaps = catalog.gone_count
        if gaps != self._list_gaps:
            self._list_count = len(self._list) - len(catalog.gone_among(self._list[::-1]))
            self._list_gaps = gaps
        return self._list_count
