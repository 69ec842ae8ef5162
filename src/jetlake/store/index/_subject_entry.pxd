# cython: language_level=3
"""What the parts of a subject table share: the entry, and the word by which a slot leads to it. For kernels only.

A slot's word is the address of its entry or, when FREE is set, the next free slot + 1, shifted by TAG_BITS. IN_TAIL is
set while the slot stands in the tail of the order, even if it was freed and reused meanwhile.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

cdef enum:
    FIRST_STALE = 1                 # flags of an entry: which of its bounds may be loose
    LAST_STALE = 2

cdef enum:
    FREE = 1
    IN_TAIL = 2
    TAG_BITS = 2

cdef struct Entry:                  # 32 bytes, and right behind them the subject's
    uint64_t count
    uint64_t first
    uint64_t last
    uint32_t slot
    uint16_t size
    uint8_t flags


cdef inline const unsigned char* subject_of(const Entry* entry) noexcept nogil:
    return <const unsigned char*> (entry + 1)


cdef inline Entry* entry_of(uintptr_t word) noexcept nogil:
    return <Entry*> (word & ~<uintptr_t> (FREE | IN_TAIL))


cdef inline bint entry_add(Entry* entry, uint64_t seq) noexcept nogil:
    """Count one more message; whether it is the only one."""
    cdef bint is_only = entry.count == 0
    if is_only:
        entry.first = entry.last = seq
        entry.flags = 0
    elif seq > entry.last:
        entry.last = seq
        entry.flags &= FIRST_STALE
    elif seq < entry.first:
        entry.first = seq
    entry.count += 1
    return is_only
