# cython: language_level=3
"""The hash of a subject's bytes: keyed, and fast for short ones. Inline, for kernels only."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef extern from *:
    ctypedef unsigned long long uint128_t "unsigned __int128"


cdef inline uint64_t load(const unsigned char* text, size_t size) noexcept nogil:
    cdef uint64_t word = 0
    memcpy(&word, text, size)
    return word


cdef inline uint64_t fold(uint64_t a, uint64_t b) noexcept nogil:
    cdef uint128_t product = <uint128_t> a * b
    return <uint64_t> product ^ <uint64_t> (product >> 64)


cdef inline uint64_t hash_text(
    const unsigned char* text, Py_ssize_t size, uint64_t key_a, uint64_t key_b
) noexcept nogil:
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
    return fold(state ^ key_b, <uint64_t> 0x9E3779B97F4A7C15)


cdef inline bint same_text(const unsigned char* a, const unsigned char* b, Py_ssize_t size) noexcept nogil:
    """Are two texts of the same size, at least 1, equal? Eight bytes at a time; the last two loads may overlap."""
    if size < 8:
        if size >= 4:
            return load(a, 4) == load(b, 4) and load(a + size - 4, 4) == load(b + size - 4, 4)
        return a[0] == b[0] and a[size >> 1] == b[size >> 1] and a[size - 1] == b[size - 1]
    cdef Py_ssize_t at = 0
    while at + 8 < size:
        if load(a + at, 8) != load(b + at, 8):
            return False
        at += 8
    return load(a + size - 8, 8) == load(b + size - 8, 8)
