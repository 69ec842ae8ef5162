"""Which sequences expire when: a hashed time wheel, whose cost follows what expires and not what is stored.

Time is cut into ticks. Each tick that holds a deadline has a slot, found by hashing the tick. Unlike in a wheel with a
fixed number of slots, none mixes the deadlines of several rounds: years ahead cost the same as seconds, and an expiry
never looks at what is not due. A heap of the ticks in use leads to the earliest slot. There is no notion of "now" in
here, hence a clock that jumps back or ahead by any distance changes nothing but the answer of `expire`.

A slot is a plain array of sequences until it is the earliest one. Then it is *opened*: sorted into a heap of
(deadline, sequence), whose top is the next expiry. Arrays and heaps are lazily cleaned: removing only forgets the
deadline, and a slot is rebuilt once more than half of it is forgotten.

Cost, amortised: `add` and `remove` O(1) (in an opened slot O(log of its entries)), and O(log ticks) for the first entry
of a tick; `next_expiry` O(1); `expire` O(log) for each sequence it returns. The longest single step opens one tick.

Memory, measured (test_time_wheel.py holds us to it): 24 bytes an entry where sequences are dense, as under max_age or
in a bucket where every key has a TTL; 0.5 KB an entry where they are far apart; and 0.3 KB for each tick in use.

Always true: every known sequence has exactly one deadline, and lies in the slot of the deadline's tick; `slot.live`
counts those; no slot is empty; an entry is stale when the deadline it was filed under is no longer its sequence's.
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush

from jetlake.errors import BadRequest
from jetlake.store.records.varint import U64_MAX

I64_MIN, I64_MAX = -(2**63), 2**63 - 1
TICK_NS = 1_000_000_000
STALE_SPARE = 32  # stale entries that are not worth cleaning up


class TimeWheel:
    """Sequences by deadline."""

    __slots__ = ("_deadlines", "_slots", "_tick_ns", "_ticks")

    def __init__(self, tick_ns: int = TICK_NS) -> None:
        if tick_ns < 1:
            raise BadRequest(f"a tick of {tick_ns} ns is not a length of time")
        self._tick_ns = tick_ns
        self._deadlines = _Deadlines()
        self._slots: dict[int, _Slot] = {}
        self._ticks: list[int] = []  # a heap of every tick that has a slot, and of some that had one

    def add(self, seq: int, expires_ns: int) -> None:
        """Let a sequence expire at this time, instead of when it would have so far."""
        if not 0 <= seq <= U64_MAX:
            raise BadRequest(f"sequence {seq} is outside 0..2**64-1")
        if not I64_MIN < expires_ns <= I64_MAX:
            raise BadRequest(f"sequence {seq}: deadline {expires_ns} does not fit in 64 bits")
        if self._deadlines.get(seq) == expires_ns:
            return
        self.remove(seq)
        self._deadlines.set(seq, expires_ns)
        self._slot_at(expires_ns // self._tick_ns).put(seq, expires_ns)

    def remove(self, seq: int) -> bool:
        """Forget a sequence; True if it was there."""
        expires_ns = self._deadlines.pop(seq)
        if expires_ns is None:
            return False
        tick = expires_ns // self._tick_ns
        slot = self._slots[tick]
        slot.live -= 1
        if not slot.live:
            self._drop(tick)
        elif slot.entry_count > 2 * slot.live + STALE_SPARE:
            slot.refill(self._live_entries(tick, slot))
        return True

    def expire(self, now_ns: int, count_max: int | None = None) -> list[int]:
        """Take out every sequence whose deadline is not after now, or the first so many, by (deadline, sequence)."""
        expired: list[int] = []
        while (front := self._front()) is not None and (count_max is None or len(expired) < count_max):
            tick, heap = front
            if heap[0][0] > now_ns:
                break
            self._expire_slot(tick, heap, now_ns, expired, count_max)
        return expired

    def next_expiry(self) -> int | None:
        """The earliest deadline."""
        front = self._front()
        return None if front is None else front[1][0][0]

    def deadline(self, seq: int) -> int | None:
        """When a sequence expires; None if it is not in the wheel."""
        return self._deadlines.get(seq)

    def __contains__(self, seq: int) -> bool:
        return self._deadlines.get(seq) is not None

    def __len__(self) -> int:
        return self._deadlines.count

    def _slot_at(self, tick: int) -> _Slot:
        """The slot of a tick, made if need be."""
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = _Slot()
            heappush(self._ticks, tick)
        return slot

    def _drop(self, tick: int) -> None:
        """Drop an empty slot. Its tick leaves the heap when it comes to the top, or when most ticks are like it."""
        del self._slots[tick]
        if len(self._ticks) > 2 * len(self._slots) + STALE_SPARE:
            self._ticks = list(self._slots)
            heapify(self._ticks)

    def _front(self) -> tuple[int, list[tuple[int, int]]] | None:
        """The earliest tick and the heap of its opened slot, with an entry on top that is not stale."""
        while self._ticks and self._ticks[0] not in self._slots:
            heappop(self._ticks)
        if not self._ticks:
            return None
        tick = self._ticks[0]
        slot = self._slots[tick]
        heap = slot.heap
        if heap is None:
            heap = slot.open(self._live_entries(tick, slot))
        while self._deadlines.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return tick, heap

    def _expire_slot(
        self, tick: int, heap: list[tuple[int, int]], now_ns: int, expired: list[int], count_max: int | None
    ) -> None:
        """Move what is due from an opened slot to `expired`, until that has so many."""
        before = len(expired)
        while heap and heap[0][0] <= now_ns and len(expired) != count_max:
            expires_ns, seq = heappop(heap)
            if self._deadlines.get(seq) == expires_ns:
                self._deadlines.pop(seq)
                expired.append(seq)
        slot = self._slots[tick]
        slot.live -= len(expired) - before
        if not slot.live:
            self._drop(tick)

    def _live_entries(self, tick: int, slot: _Slot) -> list[tuple[int, int]]:
        """The entries of a slot that are not stale, each once, sorted."""
        entries = []
        for seq in slot.distinct_seqs():
            expires_ns = self._deadlines.get(seq)
            if expires_ns is not None and expires_ns // self._tick_ns == tick:
                entries.append((expires_ns, seq))
        entries.sort()
        assert len(entries) == slot.live
        return entries


class _Slot:
    """The sequences of one tick: an array while it waits (`heap` is None), a heap once it is opened."""

    __slots__ = ("heap", "live", "seqs")

    def __init__(self) -> None:
        self.seqs: array[int] = array("Q")
        self.heap: list[tuple[int, int]] | None = None
        self.live = 0

    @property
    def entry_count(self) -> int:
        """How many entries there are, stale ones included."""
        return len(self.seqs) if self.heap is None else len(self.heap)

    def put(self, seq: int, expires_ns: int) -> None:
        """File one more entry."""
        self.live += 1
        if self.heap is None:
            self.seqs.append(seq)
        else:
            heappush(self.heap, (expires_ns, seq))

    def open(self, entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Turn the array into a heap of these sorted entries."""
        self.seqs = array("Q")
        self.heap = entries
        return entries

    def refill(self, entries: list[tuple[int, int]]) -> None:
        """Hold these sorted entries and no stale ones."""
        if self.heap is None:
            self.seqs = array("Q", [seq for _, seq in entries])
        else:
            self.heap[:] = entries

    def distinct_seqs(self) -> set[int]:
        """Every sequence that has an entry; one that came, left and came again has two."""
        return set(self.seqs) if self.heap is None else {seq for _, seq in self.heap}


PAGE_BITS = 5
PAGE_SIZE = 1 << PAGE_BITS
NO_DEADLINE = I64_MIN
_EMPTY_PAGE = array("q", [NO_DEADLINE] * PAGE_SIZE + [0])


class _Deadlines:
    """sequence → deadline, in pages of 32 neighbours: a dict would take six times the memory for dense sequences.

    The last element of a page counts the deadlines in it; a page without any is dropped.
    """

    __slots__ = ("_pages", "count")

    def __init__(self) -> None:
        self._pages: dict[int, array[int]] = {}
        self.count = 0

    def get(self, seq: int) -> int | None:
        """The deadline of a sequence."""
        page = self._pages.get(seq >> PAGE_BITS)
        if page is None or (expires_ns := page[seq & PAGE_SIZE - 1]) == NO_DEADLINE:
            return None
        return expires_ns

    def set(self, seq: int, expires_ns: int) -> None:
        """Give a deadline to a sequence that has none."""
        page = self._pages.get(seq >> PAGE_BITS)
        if page is None:
            page = self._pages[seq >> PAGE_BITS] = _EMPTY_PAGE[:]
        assert page[seq & PAGE_SIZE - 1] == NO_DEADLINE
        page[seq & PAGE_SIZE - 1] = expires_ns
        page[PAGE_SIZE] += 1
        self.count += 1

    def pop(self, seq: int) -> int | None:
        """Forget the deadline of a sequence, and return it."""
        expires_ns = self.get(seq)
        if expires_ns is None:
            return None
        page = self._pages[seq >> PAGE_BITS]
        page[seq & PAGE_SIZE - 1] = NO_DEADLINE
        page[PAGE_SIZE] -= 1
        if not page[PAGE_SIZE]:
            del self._pages[seq >> PAGE_BITS]
        self.count -= 1
        return expires_ns
