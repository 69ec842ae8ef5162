# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Which subjects hold messages, and how many: the compiled twin of `_subject_table_py.py`, which says what is true of it.

An entry and its subject are one allocation, so that a lookup among millions misses the cache once there. Per slot there
is one word: the entry's address, or, when FREE is set, the next free slot + 1 (shifted by TAG_BITS). IN_TAIL is set
while the slot stands in `tail`, even if it was freed and reused meanwhile, so that no slot ever stands there twice.

A bucket of the hash table is 0 when empty. Otherwise its bits under `mask` are slot + 1, which fits since less than 70 %
of the buckets are taken and slots are dense; the bits above `mask` are those of the hash, so that a probe seldom visits
an entry in vain. Collisions go to the next bucket; a removal moves followers back, so there are no tombstones. The hash
is keyed by a random number of the process: subjects come from clients.

`order` is exact for the slots in it, but for holes (slots that are FREE or IN_TAIL) while `order_has_holes`.
"""

cimport cython
from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

from jetlake.store._subject_filter_c cimport Pattern
from jetlake.store._subject_text cimport SortKey, compare, hash_text, sort_keys

import os
from array import array as new_array

from jetlake.store._subject_table_py import SEQ_MAX, SUBJECT_SIZE_MAX, check_count, check_seq, check_size

cdef extern from "Python.h":
    Py_ssize_t PyNumber_AsSsize_t(object number, void* clip_if_null) except? -1

cdef enum:
    FREE = 1
    IN_TAIL = 2
    TAG_BITS = 2
    SIZE_MAX = 65535
    BUCKETS_MIN = 8

cdef uint64_t SLOTS_MAX = 1 << 31
cdef uint64_t KEY_A = int.from_bytes(os.urandom(8), "little")
cdef uint64_t KEY_B = int.from_bytes(os.urandom(8), "little")
cdef array.array EMPTY = new_array("I")

assert SIZE_MAX == SUBJECT_SIZE_MAX and sizeof(Entry) == 32


cdef inline Entry* entry_of(uintptr_t word) noexcept nogil:
    return <Entry*> (word & ~<uintptr_t> (FREE | IN_TAIL))


cdef inline size_t allocation(size_t size) noexcept nogil:
    """What malloc takes for an entry: its own eight bytes, in units of sixteen."""
    return (sizeof(Entry) + size + 8 + 15) & ~<size_t> 15


@cython.final
cdef class SubjectTable:
    """Subjects, their slots and their counters."""

    def __dealloc__(self):
        self._free_all()

    # For other kernels.

    cdef int64_t intern_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
        cdef uint32_t hash
        cdef int64_t slot
        cdef Entry* entry
        if size < 1 or size > SIZE_MAX:
            return -1
        hash = hash_text(subject, size, KEY_A, KEY_B)
        slot = self._lookup(subject, size, hash)
        if slot >= 0:
            return slot
        entry = <Entry*> malloc(sizeof(Entry) + size) if self._reserve() else NULL
        if entry == NULL:
            return -1
        entry.count = entry.first = entry.last = 0
        entry.hash, entry.size, entry.flags = hash, <uint16_t> size, 0
        memcpy(<void*> subject_of(entry), subject, size)
        slot = self._take_slot()
        self.slots[slot] = <uintptr_t> entry | IN_TAIL
        self._put_bucket(<uint32_t> slot, hash)
        self.used_count += 1
        self.entries_size += allocation(size)
        return slot

    cdef int64_t find_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
        cdef int64_t slot = -1
        if 1 <= size <= SIZE_MAX:
            slot = self._lookup(subject, size, hash_text(subject, size, KEY_A, KEY_B))
        return slot if slot >= 0 and entry_of(self.slots[slot]).count else -1

    cdef bint holds_c(self, unsigned int slot, const unsigned char* subject, Py_ssize_t size) noexcept nogil:
        cdef Entry* entry
        if slot >= self.slot_count or self.slots[slot] & FREE:
            return False
        entry = entry_of(self.slots[slot])
        return entry.size == size and memcmp(subject_of(entry), subject, size) == 0

    cdef void add_c(self, unsigned int slot, unsigned long long seq) noexcept nogil:
        cdef Entry* entry = entry_of(self.slots[slot])
        if entry.count == 0:
            entry.first = entry.last = seq
            entry.flags = 0
            self.live_count += 1
        elif seq > entry.last:
            entry.last = seq
            entry.flags &= FIRST_STALE
        elif seq < entry.first:
            entry.first = seq
        entry.count += 1
        self.total_count += 1

    cdef unsigned long long remove_c(self, unsigned int slot, unsigned long long seq) noexcept nogil:
        return self._remove(slot, seq, 1)

    cdef unsigned long long count_c(self, unsigned int slot) noexcept nogil:
        cdef Entry* entry = self.live_c(slot)
        return entry.count if entry != NULL else 0

    cdef Entry* live_c(self, unsigned int slot) noexcept nogil:
        if slot >= self.slot_count or self.slots[slot] & FREE or entry_of(self.slots[slot]).count == 0:
            return NULL
        return entry_of(self.slots[slot])

    # The hash table and the slots.

    cdef int64_t _lookup(self, const unsigned char* subject, Py_ssize_t size, uint32_t hash) noexcept nogil:
        cdef uint32_t mask = self.mask, at = hash & mask, bucket
        cdef Entry* entry
        if self.buckets == NULL:
            return -1
        while True:
            bucket = self.buckets[at]
            if bucket == 0:
                return -1
            if ((bucket ^ hash) & ~mask) == 0:
                entry = entry_of(self.slots[(bucket & mask) - 1])
                if entry.size == size and memcmp(subject_of(entry), subject, size) == 0:
                    return (bucket & mask) - 1
            at = (at + 1) & mask

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
        if self.tail_count == self.tail_capacity:
            capacity = self.tail_capacity + (self.tail_capacity >> 2) + 4
            grown = realloc(self.tail, capacity * sizeof(uint32_t))
            if grown == NULL:
                return False
            self.tail, self.tail_capacity = <uint32_t*> grown, capacity
        if self.buckets == NULL or (<uint64_t> self.used_count + 1) * 10 > (<uint64_t> self.mask + 1) * 7:
            return self._grow_buckets()
        return True

    cdef bint _grow_buckets(self) noexcept nogil:
        cdef size_t count = BUCKETS_MIN if self.buckets == NULL else (<size_t> self.mask + 1) * 2
        cdef uint32_t* buckets = <uint32_t*> calloc(count, sizeof(uint32_t))
        cdef uint32_t slot
        if buckets == NULL:
            return False
        free(self.buckets)
        self.buckets, self.mask = buckets, <uint32_t> (count - 1)
        for slot in range(self.slot_count):
            if not self.slots[slot] & FREE:
                self._put_bucket(slot, entry_of(self.slots[slot]).hash)
        return True

    cdef void _put_bucket(self, uint32_t slot, uint32_t hash) noexcept nogil:
        cdef uint32_t at = hash & self.mask
        while self.buckets[at]:
            at = (at + 1) & self.mask
        self.buckets[at] = (hash & ~self.mask) | (slot + 1)

    cdef void _drop_bucket(self, uint32_t slot, uint32_t hash) noexcept nogil:
        """Empty the bucket of this slot, and move each follower that may stand there back into the gap."""
        cdef uint32_t mask = self.mask, gap = hash & mask, at, home
        while (self.buckets[gap] & mask) != slot + 1:
            gap = (gap + 1) & mask
        at = (gap + 1) & mask
        while self.buckets[at]:
            home = entry_of(self.slots[(self.buckets[at] & mask) - 1]).hash & mask
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
            self.tail[self.tail_count] = slot
            self.tail_count += 1
        return slot

    cdef void _free_entry(self, uint32_t slot) noexcept nogil:
        cdef Entry* entry = entry_of(self.slots[slot])
        cdef uintptr_t in_tail = self.slots[slot] & IN_TAIL
        self._drop_bucket(slot, entry.hash)
        self.entries_size -= allocation(entry.size)
        self.used_count -= 1
        free(entry)
        self.slots[slot] = (<uintptr_t> self.free_head << TAG_BITS) | in_tail | FREE
        self.free_head = slot + 1
        if not in_tail:
            self.order_has_holes = True

    cdef void _free_all(self) noexcept nogil:
        cdef uint32_t slot
        for slot in range(self.slot_count):
            if not self.slots[slot] & FREE:
                free(entry_of(self.slots[slot]))
        free(self.slots)
        free(self.buckets)
        free(self.order)
        free(self.tail)

    cdef uint64_t _remove(self, uint32_t slot, uint64_t seq, uint64_t count) noexcept nogil:
        cdef Entry* entry = entry_of(self.slots[slot])
        entry.count -= count
        self.total_count -= count
        if entry.count == 0:
            self.live_count -= 1
            self._free_entry(slot)
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
        cdef int64_t slot = self.find_c(<const unsigned char*> PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        if slot < 0:
            check_size(subject)
        return slot

    def add(self, slot, seq):
        """Count one more message."""
        check_seq(seq)
        self._entry(slot)
        self.add_c(slot, seq)

    def add_many(self, slot, count, first, last, flags):
        """Merge a summary, such as a block's."""
        cdef Entry* entry
        check_seq(first)
        check_seq(last)
        check_count(count, SEQ_MAX - self.total_count)
        entry = self._entry(slot)
        if entry.count == 0:
            entry.first, entry.last, entry.flags = first, last, flags & 3
            self.live_count += 1
        else:
            entry.first, entry.last = min(<uint64_t> first, entry.first), max(<uint64_t> last, entry.last)
            entry.flags |= flags & 3
        entry.count += count
        self.total_count += count

    def remove(self, slot, seq, count=1):
        """Count this message less, or `count` unnamed ones (with seq 0); how many remain. At 0 the entry is freed."""
        check_count(count, self._entry(slot).count)
        if count == 1 and seq:
            check_seq(seq)
            return self._remove(slot, seq, 1)
        return self._remove(slot, 0, count)

    def drop_if_unused(self, slot):
        """Free an entry that was interned and never used."""
        if self._entry(slot).count == 0:
            self._free_entry(slot)

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
        check_seq(seq)
        cdef Entry* entry = self._entry(slot)
        entry.first = seq
        entry.flags &= LAST_STALE
        if entry.count == 1:
            entry.last, entry.flags = seq, 0

    def set_last(self, slot, seq):
        """State the exact last sequence."""
        check_seq(seq)
        cdef Entry* entry = self._entry(slot)
        entry.last = seq
        entry.flags &= FIRST_STALE
        if entry.count == 1:
            entry.first, entry.flags = seq, 0

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
        cdef size_t buckets_size = (<size_t> self.mask + 1) * sizeof(uint32_t) if self.buckets != NULL else 0
        cdef size_t order_size = (<size_t> self.order_count + self.tail_capacity) * sizeof(uint32_t)
        return self.__sizeof__() + self.entries_size + self.slot_capacity * sizeof(uintptr_t) + buckets_size + order_size

    def clear(self):
        """Forget every subject."""
        self._free_all()
        self.reuses += self.slot_count > 0
        self.slots, self.buckets, self.order, self.tail = NULL, NULL, NULL, NULL
        self.slot_count = self.slot_capacity = self.free_head = self.used_count = self.live_count = 0
        self.mask = self.order_count = self.tail_count = self.tail_capacity = 0
        self.total_count, self.entries_size, self.order_has_holes = 0, 0, False

    # Queries by pattern.

    def match(self, SubjectFilter filter not None):
        """The slots with live messages that match, ascending by subject."""
        cdef array.array found
        cdef Py_ssize_t count = 0
        cdef uint32_t start, stop
        if filter.all_literal():
            return new_array("I", [slot for slot in map(self.find, sorted(set(filter.patterns))) if slot >= 0])
        self._sort()
        ranges = [(0, self.order_count)] if filter.is_all else self._ranges(filter)
        found = array.clone(EMPTY, sum([stop - start for start, stop in ranges]), False)
        for start, stop in ranges:
            count += self._match_range(filter, start, stop, &found.data.as_uints[count])
        array.resize(found, count)
        return found

    def match_total(self, SubjectFilter filter not None):
        """How many live messages are under matching subjects."""
        cdef uint64_t total = 0
        cdef array.array found
        cdef Py_ssize_t i
        if filter.is_all:
            return self.total_count
        found = self.match(filter)
        for i in range(len(found)):
            total += entry_of(self.slots[found.data.as_uints[i]]).count
        return total

    cdef list _ranges(self, SubjectFilter filter):
        """The parts of `order` that can match, ascending and disjoint."""
        cdef Pattern pattern
        cdef Py_ssize_t i
        bounds, ranges, end = [], [], 0
        for i in range(filter.item_count):
            pattern = filter.items[i]
            bounds.append((
                self._bound(pattern.text, pattern.prefix_size, False, self.order_count),
                self._bound(pattern.text, pattern.prefix_size, True, self.order_count),
            ))
        for start, stop in sorted(bounds):
            start, end = max(start, end), max(stop, end)
            ranges.append((start, end))
        return ranges

    cdef uint32_t _bound(self, const unsigned char* key, Py_ssize_t size, bint after, uint32_t stop) noexcept nogil:
        """The first index below `stop` in `order` of a subject >= key or, `after`, past all that begin with key."""
        cdef uint32_t start = 0, middle
        cdef Entry* entry
        while start < stop:
            middle = start + (stop - start) // 2
            entry = entry_of(self.slots[self.order[middle]])
            if compare(subject_of(entry), min(<Py_ssize_t> entry.size, size) if after else entry.size, key, size) < after:
                start = middle + 1
            else:
                stop = middle
        return start

    cdef Py_ssize_t _match_range(
        self, SubjectFilter filter, uint32_t start, uint32_t stop, uint32_t* out
    ) noexcept nogil:
        cdef uint32_t i
        cdef Py_ssize_t count = 0
        cdef Entry* entry
        for i in range(start, stop):
            entry = entry_of(self.slots[self.order[i]])
            if entry.count and filter.matches_c(subject_of(entry), entry.size):
                out[count] = self.order[i]
                count += 1
        return count

    cdef int _sort(self) except -1:
        """Bring `order` up to date: drop the holes, sort the tail, and put each of it where it belongs, last first."""
        cdef SortKey* keys
        cdef Entry* entry
        cdef void* grown
        cdef uint32_t i, start, count = 0, stop = 0, end
        if self.order_has_holes:
            for i in range(self.order_count):
                if not self.slots[self.order[i]] & (FREE | IN_TAIL):
                    self.order[stop] = self.order[i]
                    stop += 1
            self.order_count, self.order_has_holes = stop, False
        if self.tail_count == 0:
            return 0
        keys = <SortKey*> malloc(self.tail_count * sizeof(SortKey))
        grown = realloc(self.order, (<size_t> self.order_count + self.tail_count) * sizeof(uint32_t)) if keys else NULL
        if grown == NULL:
            free(keys)
            raise MemoryError
        self.order = <uint32_t*> grown
        for i in range(self.tail_count):
            self.slots[self.tail[i]] &= ~<uintptr_t> IN_TAIL
            if not self.slots[self.tail[i]] & FREE:
                entry = entry_of(self.slots[self.tail[i]])
                keys[count].slot, keys[count].text, keys[count].size = self.tail[i], subject_of(entry), entry.size
                count += 1
        sort_keys(keys, count)
        stop, end = self.order_count, self.order_count + count
        self.order_count = end
        while count:
            count -= 1
            start = self._bound(keys[count].text, keys[count].size, False, stop)
            end -= stop - start + 1
            memmove(&self.order[end + 1], &self.order[start], (stop - start) * sizeof(uint32_t))
            self.order[end] = keys[count].slot
            stop = start
        free(keys)
        free(self.tail)
        self.tail, self.tail_count, self.tail_capacity = NULL, 0, 0
        return 0
