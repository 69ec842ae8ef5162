# cython: language_level=3
"""What the subject table does with the bytes of subjects: hash, compare, sort. Inline functions, for kernels only."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy

cdef extern from *:
    ctypedef unsigned long long uint128_t "unsigned __int128"

cdef struct SortKey:
    uint64_t head                   # the eight bytes after what all subjects have in common, big-endian
    const unsigned char* text
    uint32_t slot
    uint16_t size


cdef inline uint64_t load(const unsigned char* text, size_t size) noexcept nogil:
    cdef uint64_t word = 0
    memcpy(&word, text, size)
    return word


cdef inline uint64_t fold(uint64_t a, uint64_t b) noexcept nogil:
    cdef uint128_t product = <uint128_t> a * b
    return <uint64_t> product ^ <uint64_t> (product >> 64)


cdef inline uint32_t hash_text(const unsigned char* text, Py_ssize_t size, uint64_t key_a, uint64_t key_b) noexcept nogil:
    """Keyed; size >= 1. Sixteen bytes per multiplication, and the last two loads may overlap what came before."""
    cdef uint64_t a, b = 0, state = key_b ^ <uint64_t> size
    while size > 16:
        state = fold(load(text, 8) ^ key_a, load(text + 8, 8) ^ state)
        text += 16
        size -= 16
    if size >= 8:
        a, b = load(text, 8), load(text + size - 8, 8)
    elif size >= 4:
        a, b = load(text, 4), load(text + size - 4, 4)
    else:
        a = (text[0] << 16) | (text[size >> 1] << 8) | text[size - 1]
    state = fold(a ^ key_a, b ^ state)
    return <uint32_t> fold(state ^ key_b, <uint64_t> 0x9E3779B97F4A7C15)


cdef inline int compare(const unsigned char* a, Py_ssize_t a_size, const unsigned char* b, Py_ssize_t b_size) noexcept nogil:
    cdef int result = memcmp(a, b, min(a_size, b_size))
    return result if result != 0 else (a_size > b_size) - (a_size < b_size)


cdef inline int compare_keys(const void* left, const void* right) noexcept nogil:
    cdef const SortKey* a = <const SortKey*> left
    cdef const SortKey* b = <const SortKey*> right
    if a.head != b.head:
        return -1 if a.head < b.head else 1
    return compare(a.text, a.size, b.text, b.size)


cdef inline size_t common_size(const SortKey* keys, size_t count) noexcept nogil:
    """How many bytes all subjects begin with alike."""
    cdef size_t i, at, common = keys[0].size
    for i in range(1, count):
        common = min(common, <size_t> keys[i].size)
        at = 0
        while at < common and keys[i].text[at] == keys[0].text[at]:
            at += 1
        common = at
    return common


cdef inline void sort_keys(SortKey* keys, size_t count) noexcept nogil:
    """Sort by subject. The heads settle most comparisons without a visit to the text."""
    cdef size_t i, at, common
    if count == 0:
        return
    common = common_size(keys, count)
    for i in range(count):
        keys[i].head = 0
        for at in range(common, common + 8):
            keys[i].head = (keys[i].head << 8) | (keys[i].text[at] if at < keys[i].size else 0)
    qsort(keys, count, sizeof(SortKey), compare_keys)
