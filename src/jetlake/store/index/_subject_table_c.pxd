# cython: language_level=3
"""What other kernels may cimport from the subject table. The layout is explained in `_subject_table_c.pyx`."""

cimport cython
from cpython cimport array
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uintptr_t

from jetlake.store.index._subject_arena cimport Arena
from jetlake.store.index._subject_entry cimport Entry
from jetlake.store.index._subject_filter_c cimport SubjectFilter
from jetlake.store.index._subject_order cimport Order

cdef struct Tally:                  # of matching entries, seen from a sequence
    uint64_t total                  # sum of counts
    uint64_t whole                  # sum of counts where no message lies before it
    bint cut                        # whether there are bounds on both sides of it


@cython.final
cdef class SubjectTable:
    cdef uintptr_t* slots           # a word per slot: see `_subject_entry.pxd`
    cdef uint32_t slot_count        # every slot is below
    cdef uint32_t slot_capacity
    cdef uint32_t free_head         # the last freed slot + 1, or 0
    cdef uint32_t used_count        # entries, interned ones with count 0 included
    cdef uint32_t live_count        # entries with count > 0
    cdef uint64_t total_count       # sum of all counts
    cdef uint64_t reuses
    cdef uint64_t* buckets
    cdef uint32_t mask              # number of buckets - 1
    cdef Order order
    cdef Arena arena                # holds the entries, which stay where they are until they are freed
    cdef Entry* recent              # the last one interned, unless one was freed since; or NULL

    # For other kernels. intern_c gives -1 without memory or for a bad size; find_c unless the count is above 0.
    cdef int64_t intern_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil
    cdef int64_t find_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil
    # These take any number for a slot. live_c is NULL unless the count is above 0.
    cdef bint holds_c(self, unsigned int slot, const unsigned char* subject, Py_ssize_t size) noexcept nogil
    cdef unsigned long long count_c(self, unsigned int slot) noexcept nogil
    cdef Entry* live_c(self, unsigned int slot) noexcept nogil
    # These trust their callers: the slot must be in use, and its count above 0 to remove. remove_c gives what remains.
    cdef void add_c(self, unsigned int slot, unsigned long long seq) noexcept nogil
    cdef unsigned long long remove_c(self, unsigned int slot, unsigned long long seq) noexcept nogil
    cdef void remove_first_c(self, unsigned int slot, unsigned long long seq) noexcept nogil

    cdef Entry* _at(self, uint32_t slot) noexcept nogil
    cdef Entry* _create(self, const unsigned char* subject, Py_ssize_t size, uint64_t hash) noexcept nogil
    cdef void _add(self, Entry* entry, uint64_t seq) noexcept nogil
    cdef bint _reserve(self) noexcept nogil
    cdef bint _grow_buckets(self) noexcept nogil
    cdef void _put_bucket(self, Entry* entry, uint64_t hash) noexcept nogil
    cdef void _drop_bucket(self, Entry* entry) noexcept nogil
    cdef uint32_t _take_slot(self) noexcept nogil
    cdef void _free_entry(self, Entry* entry) noexcept nogil
    cdef void _free_all(self) noexcept nogil
    cdef uint64_t _remove(self, Entry* entry, uint64_t seq, uint64_t count) noexcept nogil
    cdef Entry* _entry(self, object slot) except NULL
    cdef int64_t _find(self, bytes subject) noexcept
    cdef array.array _match_literals(self, SubjectFilter filter)
    cdef Tally _tally(self, SubjectFilter filter, uint64_t seq) except *
    cdef void _tally_range(
        self, SubjectFilter filter, const uint32_t* slots, uint32_t count, uint64_t seq, Tally* tally
    ) noexcept nogil
    cdef list _ranges(self, SubjectFilter filter)
    cdef Py_ssize_t _match_range(
        self, SubjectFilter filter, uint32_t start, uint32_t stop, uint32_t* out
    ) noexcept nogil
