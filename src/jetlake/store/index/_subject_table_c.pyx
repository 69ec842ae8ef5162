# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Which subjects hold messages, and how many: the compiled twin of `_subject_table_py.py`, which says what is true.

An entry and its subject lie together in the arena (`_subject_arena.pxd`). A slot leads to its entry by one word, and
free slots are linked through theirs (`_subject_entry.pxd`). The order of subjects is kept apart (`_subject_order.pxd`).

A bucket of the hash table is 0 when empty, else the entry's address and, in the bits above ADDRESS_BITS, those of the
hash, so that a probe seldom visits an entry in vain: a lookup among millions misses the cache twice. At most 70 % of
the buckets are taken. Collisions go to the next bucket; a removal moves followers back, so there are no tombstones. The
hash is keyed by random numbers of the process, since subjects come from clients.
"""

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from jetlake.store.index._subject_arena cimport ADDRESS_BITS, arena_clear, arena_give, arena_take
from jetlake.store.index._subject_entry cimport (
    FIRST_STALE, FREE, IN_TAIL, LAST_STALE, TAG_BITS, Entry, entry_add, entry_of, subject_of,
)
from jetlake.store.index._subject_filter_c cimport Pattern
from jetlake.store.index._subject_hash cimport hash_text, same_text
from jetlake.store.index._subject_order cimport order_bound, order_clear, order_push, order_reserve, order_update

import os
from array import array as new_array

from jetlake.store.index._subject_table_py import SEQ_MAX, SUBJECT_SIZE_MAX, check_count, check_seq, check_size

cdef extern from "Python.h":
    Py_ssize_t PyNumber_AsSsize_t(object number, void* clip_if_null) except? -1
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) noexcept nogil

cdef enum:
    SIZE_MAX = 65535
    BUCKETS_MIN = 8
    NEW_MIN = 1024                  # new subjects that take long to sort
    AHEAD = 16                      # entries to fetch while others are matched: neighbours in order are far apart

cdef uint64_t SLOTS_MAX = 1 << 31
cdef uint64_t KEY_A = int.from_bytes(os.urandom(8), "little")
cdef uint64_t KEY_B = int.from_bytes(os.urandom(8), "little")
cdef array.array EMPTY = new_array("I")

assert SIZE_MAX == SUBJECT_SIZE_MAX and sizeof(Entry) == 32


cdef inline Entry* entry_in(uint64_t bucket) noexcept nogil:
    return <Entry*> <uintptr_t> (bucket & ((<uint64_t> 1 << ADDRESS_BITS) - 1))


cdef inline uint64_t positive(object number) except? 0:
    """The value of an int from 1 to 2**63 - 1, without the cost of comparing objects; 0 for anything else."""
    cdef int overflow = 0
    cdef long long value = PyLong_AsLongLongAndOverflow(number, &overflow) if PyLong_CheckExact(number) else 0
    return value if value > 0 else 0


cdef inline uint64_t checked_seq(object seq) except 0:
    cdef uint64_t value = positive(seq)
    if value == 0:
        check_seq(seq)
        value = seq
    return value


cdef inline uint64_t checked_count(object count, uint64_t count_max) except 0:
    cdef uint64_t value = positive(count)
    if value == 0 or value > count_max:
        check_count(count, count_max)
        value = count
    return value


cdef inline uint64_t hash_of(const unsigned char* subject, Py_ssize_t size) noexcept nogil:
    return hash_text(subject, size, KEY_A, KEY_B)


cdef inline bint last_is_from(
    const Entry* entry, uint64_t seq, uint32_t* unsure, Py_ssize_t* unsure_count
) noexcept nogil:
    """Whether the last live sequence is certainly this or a later one; when that is open, note the slot as unsure."""
    if entry.count == 0 or entry.last < seq:
        return False
    if entry.flags & LAST_STALE and entry.first < seq:
        unsure[unsure_count[0]] = entry.slot
        unsure_count[0] += 1
        return False
    return True


cdef inline Entry* _lookup(SubjectTable table, const unsigned char* subject, Py_ssize_t size,
                           uint64_t hash) noexcept nogil:
    """The entry of this subject, or NULL."""
    cdef uint32_t at = hash & table.mask
    cdef uint64_t bucket
    cdef Entry* entry
    if table.buckets == NULL:
        return NULL
    while True:
        bucket = table.buckets[at]
        if bucket == 0:
            return NULL
        if (bucket ^ hash) >> ADDRESS_BITS == 0:
            entry = entry_in(bucket)
            if entry.size == size and same_text(subject_of(entry), subject, size):
                return entry
        at = (at + 1) & table.mask


@cython.final
cdef class SubjectTable:
    """Subjects, their slots and their counters."""

    def __dealloc__(self):
        self._free_all()

    # For other kernels.

    cdef int64_t intern_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
        cdef uint64_t hash
        cdef Entry* entry
        if size < 1 or size > SIZE_MAX:
            return -1
        hash = hash_of(subject, size)
        entry = _lookup(self, subject, size, hash)
        if entry == NULL:
            entry = self._create(subject, size, hash)
            if entry == NULL:
                return -1
        self.recent = entry
        return entry.slot

    cdef int64_t find_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
        cdef Entry* entry = NULL
        if 1 <= size <= SIZE_MAX:
            entry = _lookup(self, subject, size, hash_of(subject, size))
        return entry.slot if entry != NULL and entry.count else -1

    cdef bint holds_c(self, unsigned int slot, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
        cdef Entry* entry = self._at(slot)
        return entry != NULL and entry.size == size and same_text(subject_of(entry), subject, size)

    cdef void add_c(self, unsigned int slot, unsigned long long seq) noexcept nogil:
        self._add(self._at(slot), seq)

    cdef void _add(self, Entry* entry, uint64_t seq) noexcept nogil:
        self.live_count += entry_add(entry, seq)
        self.total_count += 1

    cdef unsigned long long remove_c(self, unsigned int slot, unsigned long long seq) noexcept nogil:
        return self._remove(self._at(slot), seq, 1)

    cdef void remove_first_c(self, unsigned int slot, unsigned long long seq) noexcept nogil:
        cdef Entry* entry = self._at(slot)
        if entry.count > 1:                     # whatever the bound was, it is not above this
            entry.first = seq
        self._remove(entry, seq, 1)

    cdef unsigned long long count_c(self, unsigned int slot) noexcept nogil:
        cdef Entry* entry = self._at(slot)
        return entry.count if entry != NULL else 0

    cdef Entry* live_c(self, unsigned int slot) noexcept nogil:
        cdef Entry* entry = self._at(slot)
        return entry if entry != NULL and entry.count else NULL

    # The hash table and the slots.

    cdef inline Entry* _at(self, uint32_t slot) noexcept nogil:
        """The entry of any slot, or NULL. A kernel interns and then counts: that needs no look at `slots`."""
        if self.recent != NULL and self.recent.slot == slot:
            return self.recent
        if slot >= self.slot_count or self.slots[slot] & FREE:
            return NULL
        return entry_of(self.slots[slot])

    cdef Entry* _create(self, const unsigned char* subject, Py_ssize_t size, uint64_t hash) noexcept nogil:
        """An entry for a new subject, or NULL when there is no memory."""
        cdef Entry* entry = <Entry*> arena_take(&self.arena, sizeof(Entry) + size) if self._reserve() else NULL
        if entry == NULL:
            return NULL
        entry.count = entry.first = entry.last = 0
        entry.slot, entry.size, entry.flags = self._take_slot(), <uint16_t> size, 0
        memcpy(<void*> subject_of(entry), subject, size)
        self.slots[entry.slot] = <uintptr_t> entry | IN_TAIL
        self._put_bucket(entry, hash)
        self.used_count += 1
        return entry

    cdef bint _reserve(self) noexcept nogil:
        """Make room for one more entry everywhere, or return False and change nothing that matters."""
        cdef uint32_t capacity
        cdef void* grown
        if self.free_head == 0 and self.slot_count == self.slot_capacity:
            capacity = self.slot_capacity + (self.slot_capacity >> 2) + 4
            grown = realloc(self.slots, capacity * sizeof(uintptr_t)) if capacity <= SLOTS_MAX else NULL
            if grown == NULL:
                return False
            self.slots, self.slot_capacity = <uintptr_t*> grown, capacity
        if not order_reserve(&self.order):
            return False
        if self.buckets == NULL or (<uint64_t> self.used_count + 1) * 10 > (<uint64_t> self.mask + 1) * 7:
            return self._grow_buckets()
        return True

    cdef bint _grow_buckets(self) noexcept nogil:
        cdef size_t count = BUCKETS_MIN if self.buckets == NULL else (<size_t> self.mask + 1) * 2
        cdef uint64_t* buckets = <uint64_t*> calloc(count, sizeof(uint64_t))
        cdef uint32_t slot
        cdef Entry* entry
        if buckets == NULL:
            return False
        free(self.buckets)
        self.buckets, self.mask = buckets, <uint32_t> (count - 1)
        for slot in range(self.slot_count):
            if not self.slots[slot] & FREE:
                entry = entry_of(self.slots[slot])
                self._put_bucket(entry, hash_of(subject_of(entry), entry.size))
        return True

    cdef void _put_bucket(self, Entry* entry, uint64_t hash) noexcept nogil:
        cdef uint32_t at = hash & self.mask
        while self.buckets[at]:
            at = (at + 1) & self.mask
        self.buckets[at] = (hash >> ADDRESS_BITS << ADDRESS_BITS) | <uintptr_t> entry

    cdef void _drop_bucket(self, Entry* entry) noexcept nogil:
        """Empty the bucket of this entry, and move each follower that may stand there back into the gap."""
        cdef uint32_t mask = self.mask, gap = hash_of(subject_of(entry), entry.size) & mask, at, home
        while entry_in(self.buckets[gap]) != entry:
            gap = (gap + 1) & mask
        at = (gap + 1) & mask
        while self.buckets[at]:
            entry = entry_in(self.buckets[at])
            home = hash_of(subject_of(entry), entry.size) & mask
            if ((at - home) & mask) >= ((at - gap) & mask):
                self.buckets[gap] = self.buckets[at]
                gap = at
            at = (at + 1) & mask
        self.buckets[gap] = 0

    cdef uint32_t _take_slot(self) noexcept nogil:
        """The last freed slot, else a new one; it stands in the tail afterwards."""
        cdef uint32_t slot
        cdef uintptr_t word = 0
        if self.free_head:
            slot = self.free_head - 1
            word = self.slots[slot]
            self.free_head = <uint32_t> (word >> TAG_BITS)
            self.reuses += 1
        else:
            slot = self.slot_count
            self.slot_count += 1
        if not word & IN_TAIL:
            order_push(&self.order, slot)
        return slot

    cdef void _free_entry(self, Entry* entry) noexcept nogil:
        cdef uint32_t slot = entry.slot
        cdef uintptr_t in_tail = self.slots[slot] & IN_TAIL
        self._drop_bucket(entry)
        self.recent = NULL
        arena_give(&self.arena, entry, sizeof(Entry) + entry.size)
        self.used_count -= 1
        if self.used_count == 0 and self.arena.chunks[0] != NULL:
            arena_clear(&self.arena)            # more than the smallest chunk, and nothing in it
        self.slots[slot] = (<uintptr_t> self.free_head << TAG_BITS) | in_tail | FREE
        self.free_head = slot + 1
        if not in_tail:
            self.order.has_holes = True

    cdef void _free_all(self) noexcept nogil:
        arena_clear(&self.arena)
        order_clear(&self.order)
        free(self.slots)
        free(self.buckets)

    cdef uint64_t _remove(self, Entry* entry, uint64_t seq, uint64_t count) noexcept nogil:
        entry.count -= count
        self.total_count -= count
        if entry.count == 0:
            self.live_count -= 1
            self._free_entry(entry)
            return 0
        if count > 1 or seq == 0:
            entry.flags |= FIRST_STALE | LAST_STALE
            return entry.count
        if seq == entry.first:
            entry.first = seq + 1
            entry.flags |= FIRST_STALE
        if seq == entry.last:
            entry.last = seq - 1
            entry.flags |= LAST_STALE
        if entry.count == 1 and entry.flags == FIRST_STALE:
            entry.first, entry.flags = entry.last, 0
        elif entry.count == 1 and entry.flags == LAST_STALE:
            entry.last, entry.flags = entry.first, 0
        return entry.count

    # For Python: the same, with checked arguments.

    cdef Entry* _entry(self, object slot) except NULL:
        cdef Py_ssize_t index = PyNumber_AsSsize_t(slot, NULL)
        if index < 0 or index >= self.slot_count or self.slots[index] & FREE:
            raise IndexError(f"slot {slot} is not in use")
        return entry_of(self.slots[index])

    def intern(self, bytes subject not None):
        """The slot of this subject, with a new entry of count 0 when there is none."""
        cdef int64_t slot = self.intern_c(<const unsigned char*> PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        if slot < 0:
            check_size(subject)
            raise MemoryError
        return slot

    def find(self, bytes subject not None):
        """The slot of this subject if it has live messages, else -1."""
        cdef int64_t slot = self._find(subject)
        if slot < 0:
            check_size(subject)
        return slot

    cdef int64_t _find(self, bytes subject) noexcept:
        return self.find_c(<const unsigned char*> PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))

    def add(self, slot, seq):
        """Count one more message."""
        cdef uint64_t value = checked_seq(seq)
        self._add(self._entry(slot), value)

    def add_many(self, slot, count, first, last, flags):
        """Merge a summary, such as a block's."""
        cdef uint64_t low = checked_seq(first), high = checked_seq(last)
        cdef uint64_t added = checked_count(count, SEQ_MAX - self.total_count)
        cdef Entry* entry = self._entry(slot)
        if entry.count == 0:
            entry.first, entry.last, entry.flags = low, high, flags & 3
            self.live_count += 1
        else:
            entry.first, entry.last = min(entry.first, low), max(entry.last, high)
            entry.flags |= flags & 3
        entry.count += added
        self.total_count += added

    def remove(self, slot, seq, count=1):
        """Count this message less, or `count` unnamed ones (with seq 0); how many remain. At 0 the entry is freed."""
        cdef Entry* entry = self._entry(slot)
        cdef uint64_t gone = checked_count(count, entry.count)
        return self._remove(entry, checked_seq(seq) if gone == 1 and seq else 0, gone)

    def remove_first(self, slot, seq):
        """Count a message less of which is known that no live one comes before it."""
        cdef uint64_t value = checked_seq(seq)
        cdef Entry* entry = self._entry(slot)
        checked_count(1, entry.count)
        self.remove_first_c(entry.slot, value)

    def drop_if_unused(self, slot):
        """Free an entry that was interned and never used."""
        cdef Entry* entry = self._entry(slot)
        if entry.count == 0:
            self._free_entry(entry)

    def subject(self, slot):
        """The subject of this slot."""
        cdef Entry* entry = self._entry(slot)
        return PyBytes_FromStringAndSize(<const char*> subject_of(entry), entry.size)

    def count(self, slot):
        """How many live messages it has."""
        return self._entry(slot).count

    def first(self, slot):
        """A lower bound of its first live sequence, exact unless FIRST_STALE."""
        return self._entry(slot).first

    def last(self, slot):
        """An upper bound of its last live sequence, exact unless LAST_STALE."""
        return self._entry(slot).last

    def flags(self, slot):
        """FIRST_STALE and LAST_STALE, or-ed."""
        return self._entry(slot).flags

    def set_first(self, slot, seq):
        """State the exact first sequence."""
        cdef uint64_t value = checked_seq(seq)
        cdef Entry* entry = self._entry(slot)
        entry.first = value
        entry.flags &= LAST_STALE
        if entry.count == 1:
            entry.last, entry.flags = value, 0

    def set_last(self, slot, seq):
        """State the exact last sequence."""
        cdef uint64_t value = checked_seq(seq)
        cdef Entry* entry = self._entry(slot)
        entry.last = value
        entry.flags &= FIRST_STALE
        if entry.count == 1:
            entry.first, entry.flags = value, 0

    def __len__(self):
        return self.live_count

    @property
    def total(self):
        """The sum of all counts."""
        return self.total_count

    @property
    def slot_limit(self):
        """Every slot is below this."""
        return self.slot_count

    @property
    def reuse_count(self):
        """How many times slots came to mean another subject, which invalidates memos."""
        return self.reuses

    @property
    def size_bytes(self):
        """Memory held."""
        cdef size_t buckets_size = (<size_t> self.mask + 1) * sizeof(uint64_t) if self.buckets != NULL else 0
        cdef size_t order_size = (<size_t> self.order.count + self.order.tail_capacity) * sizeof(uint32_t)
        cdef size_t arena_size = self.arena.size + self.arena.list_count * sizeof(void*)
        return self.__sizeof__() + arena_size + self.slot_capacity * sizeof(uintptr_t) + buckets_size + order_size

    def clear(self):
        """Forget every subject."""
        self._free_all()
        self.reuses += self.slot_count > 0
        self.slots, self.buckets, self.recent = NULL, NULL, NULL
        self.slot_count = self.slot_capacity = self.free_head = self.mask = 0
        self.used_count = self.live_count = 0
        self.total_count = 0

    # Queries by pattern.

    def match(self, SubjectFilter filter not None):
        """The slots with live messages that match, ascending by subject."""
        cdef array.array found
        cdef Py_ssize_t count = 0
        cdef uint32_t start, stop
        if filter.all_literal():
            return self._match_literals(filter)
        ranges = self._ranges(filter)
        found = array.clone(EMPTY, sum([stop - start for start, stop in ranges]), False)
        for start, stop in ranges:
            count += self._match_range(filter, start, stop, &found.data.as_uints[count])
        array.resize(found, count)
        return found

    def match_unordered(self, SubjectFilter filter not None):
        """The same in any order, which is faster while many subjects are new."""
        cdef array.array found
        cdef Py_ssize_t count = 0
        cdef uint32_t slot
        cdef Entry* entry
        if self.order.tail_count < max(<uint32_t> NEW_MIN, self.order.count) or filter.all_literal():
            return self.match(filter)
        found = array.clone(EMPTY, self.slot_count, False)
        for slot in range(self.slot_count):
            if AHEAD < self.slot_count - slot:
                prefetch(entry_of(self.slots[slot + AHEAD]))
            if self.slots[slot] & FREE:
                continue
            entry = entry_of(self.slots[slot])
            if entry.count and filter.matches_c(subject_of(entry), entry.size):
                found.data.as_uints[count] = slot
                count += 1
        array.resize(found, count)
        return found

    cdef array.array _match_literals(self, SubjectFilter filter):
        cdef array.array found = array.clone(EMPTY, filter.item_count, False)
        cdef Py_ssize_t count = 0, i
        cdef int64_t slot
        for i in range(filter.item_count):      # they are sorted; the same may be there twice
            slot = self.find_c(filter.items[i].text, filter.items[i].size)
            if slot >= 0 and (count == 0 or found.data.as_uints[count - 1] != slot):
                found.data.as_uints[count] = <uint32_t> slot
                count += 1
        array.resize(found, count)
        return found

    def match_total(self, SubjectFilter filter not None):
        """How many live messages are under matching subjects."""
        return self.total_count if filter.is_all else self._tally(filter, 1).total

    def match_from(self, SubjectFilter filter not None, start):
        """How many live messages are under matching subjects; how many of them under those whose first bound is at or
        after `start`; and whether `start` lies above the first and not above the last bound of another one."""
        cdef Tally tally = self._tally(filter, checked_seq(start))
        return tally.total, tally.whole, bool(tally.cut)

    def match_last_from(self, SubjectFilter filter not None, start):
        """How many matching subjects have their last live sequence at or after `start` for certain, and the slots of
        those that may have: LAST_STALE ones with `start` above the first and not above the last bound. In the order of
        slots for a filter of everything, else of subjects."""
        cdef uint64_t seq = checked_seq(start)
        cdef array.array slots, unsure
        cdef Py_ssize_t count = 0, unsure_count = 0, i
        cdef Entry* entry
        if filter.is_all:
            unsure = array.clone(EMPTY, self.slot_count, False)
            for i in range(self.slot_count):
                if not self.slots[i] & FREE:
                    entry = entry_of(self.slots[i])
                    count += last_is_from(entry, seq, unsure.data.as_uints, &unsure_count)
        else:
            slots = self.match(filter)
            unsure = array.clone(EMPTY, len(slots), False)
            for i in range(len(slots)):
                entry = entry_of(self.slots[slots.data.as_uints[i]])
                count += last_is_from(entry, seq, unsure.data.as_uints, &unsure_count)
        array.resize(unsure, unsure_count)
        return count, unsure

    cdef Tally _tally(self, SubjectFilter filter, uint64_t seq) except *:
        """The matching entries in numbers, in one pass."""
        cdef Tally tally
        cdef array.array slots
        cdef uint32_t start, stop
        tally.total, tally.whole, tally.cut = 0, 0, False
        if filter.all_literal():
            slots = self._match_literals(filter)
            self._tally_range(filter, slots.data.as_uints, <uint32_t> len(slots), seq, &tally)
        else:
            for start, stop in self._ranges(filter):
                self._tally_range(filter, self.order.sorted + start, stop - start, seq, &tally)
        return tally

    cdef void _tally_range(
        self, SubjectFilter filter, const uint32_t* slots, uint32_t count, uint64_t seq, Tally* tally
    ) noexcept nogil:
        cdef uint32_t i
        cdef Entry* entry
        for i in range(count):
            if AHEAD < count - i:
                prefetch(entry_of(self.slots[slots[i + AHEAD]]))
            entry = entry_of(self.slots[slots[i]])
            if entry.count and filter.matches_c(subject_of(entry), entry.size):
                tally.total += entry.count
                if entry.first >= seq:
                    tally.whole += entry.count
                elif entry.last >= seq:
                    tally.cut = True

    cdef list _ranges(self, SubjectFilter filter):
        """The parts of the order, brought up to date, that can match: ascending and disjoint."""
        cdef Pattern pattern
        cdef Py_ssize_t i
        if not order_update(&self.order, self.slots):
            raise MemoryError
        if filter.is_all:
            return [(0, self.order.count)]
        bounds, ranges, end = [], [], 0
        for i in range(filter.item_count):
            pattern = filter.items[i]
            start, stop = [
                order_bound(&self.order, self.slots, pattern.text, pattern.prefix_size, after, self.order.count)
                for after in (False, True)
            ]
            bounds.append((start, stop))
        for start, stop in sorted(bounds):
            start, end = max(start, end), max(stop, end)
            ranges.append((start, end))
        return ranges

    cdef Py_ssize_t _match_range(
        self, SubjectFilter filter, uint32_t start, uint32_t stop, uint32_t* out
    ) noexcept nogil:
        cdef uint32_t i
        cdef Py_ssize_t count = 0
        cdef Entry* entry
        for i in range(start, stop):
            if AHEAD < stop - i:
                prefetch(entry_of(self.slots[self.order.sorted[i + AHEAD]]))
            entry = entry_of(self.slots[self.order.sorted[i]])
            if entry.count and filter.matches_c(subject_of(entry), entry.size):
                out[count] = self.order.sorted[i]
                count += 1
        return count
