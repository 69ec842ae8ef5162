# cython: language_level=3
"""What other kernels may cimport from the subject table. The layout is explained in `_subject_table_c.pyx`."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

from jetlake.store._subject_filter_c cimport SubjectFilter

cdef enum:
    FIRST_STALE = 1
    LAST_STALE = 2

cdef struct Entry:                  # 32 bytes, and the subject's bytes follow in the same allocation
    uint64_t count
    uint64_t first
    uint64_t last
    uint32_t hash
    uint16_t size
    uint8_t flags


cdef inline const unsigned char* subject_of(const Entry* entry) noexcept nogil:
    return <const unsigned char*> (entry + 1)


@cython.final
cdef class SubjectTable:
    cdef uintptr_t* slots           # a word per slot: see Entry and FREE in the .pyx
    cdef uint32_t slot_count        # every slot is below
    cdef uint32_t slot_capacity
    cdef uint32_t free_head         # the last freed slot + 1, or 0
    cdef uint32_t used_count        # entries, interned ones with count 0 included
    cdef uint32_t live_count        # entries with count > 0
    cdef uint64_t total_count       # sum of all counts
    cdef uint64_t reuses
    cdef uint32_t* buckets
    cdef uint32_t mask              # number of buckets - 1
    cdef uint32_t* order            # slots by subject, with holes where slots were freed since
    cdef uint32_t order_count
    cdef bint order_has_holes
    cdef uint32_t* tail             # slots not yet in order
    cdef uint32_t tail_count
    cdef uint32_t tail_capacity
    cdef size_t entries_size        # bytes of all entries

    # For other kernels. They trust their callers: a slot must be in use, and remove_c needs a count above 0.
    cdef int64_t intern_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil  # or -1: no memory, bad size
    cdef int64_t find_c(self, const unsigned char* subject, Py_ssize_t size) noexcept nogil    # slot with count > 0, or -1
    cdef bint holds_c(self, unsigned int slot, const unsigned char* subject, Py_ssize_t size) noexcept nogil  # any slot
    cdef void add_c(self, unsigned int slot, unsigned long long seq) noexcept nogil
    cdef unsigned long long remove_c(self, unsigned int slot, unsigned long long seq) noexcept nogil  # what remains
    cdef unsigned long long count_c(self, unsigned int slot) noexcept nogil                    # any slot; 0 when not live
    cdef Entry* live_c(self, unsigned int slot) noexcept nogil                                 # any slot; NULL when not live

    cdef int64_t _lookup(self, const unsigned char* subject, Py_ssize_t size, uint32_t hash) noexcept nogil
    cdef bint _reserve(self) noexcept nogil
    cdef bint _grow_buckets(self) noexcept nogil
    cdef void _put_bucket(self, uint32_t slot, uint32_t hash) noexcept nogil
    cdef void _drop_bucket(self, uint32_t slot, uint32_t hash) noexcept nogil
    cdef uint32_t _take_slot(self) noexcept nogil
    cdef void _free_entry(self, uint32_t slot) noexcept nogil
    cdef void _free_all(self) noexcept nogil
    cdef uint64_t _remove(self, uint32_t slot, uint64_t seq, uint64_t count) noexcept nogil
    cdef Entry* _entry(self, object slot) except NULL
    cdef int _sort(self) except -1
    cdef uint32_t _bound(self, const unsigned char* key, Py_ssize_t size, bint after, uint32_t stop) noexcept nogil
    cdef list _ranges(self, SubjectFilter filter)
    cdef Py_ssize_t _match_range(self, SubjectFilter filter, uint32_t start, uint32_t stop, uint32_t* out) noexcept nogil
