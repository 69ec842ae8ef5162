# cython: language_level=3
"""Memory for the entries of a subject table: many small pieces, without a header each. Inline, for kernels only.

Pieces are cut from chunks, which grow with the arena, in units of eight bytes. What is given back is kept in a list for
pieces of that size, linked through their first word, and taken again first. Chunks are freed all together.
"""

from libc.stdint cimport uint32_t, uintptr_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

cdef enum:
    UNIT_SIZE = 8
    CHUNK_SIZE_MIN = 512
    CHUNK_SIZE_MAX = 1 << 20
    ADDRESS_BITS = 48               # users keep a tag in the bits above

cdef struct Arena:
    void** chunks                   # the last one; the first word of each points to the one before
    unsigned char* rest             # of the last chunk
    size_t rest_size
    void** lists                    # by units
    uint32_t list_count
    size_t size


cdef inline size_t arena_units(size_t size) noexcept nogil:
    return (size + UNIT_SIZE - 1) // UNIT_SIZE


cdef inline bint arena_add_chunk(Arena* arena, size_t needed_size) noexcept nogil:
    cdef size_t size = min(max(arena.size >> 2, <size_t> CHUNK_SIZE_MIN), <size_t> CHUNK_SIZE_MAX)
    cdef void** chunk
    size = max(size, needed_size + UNIT_SIZE)
    chunk = <void**> malloc(size)
    if chunk == NULL or <uintptr_t> chunk >> ADDRESS_BITS:
        free(chunk)
        return False
    chunk[0] = arena.chunks
    arena.chunks, arena.rest, arena.rest_size = chunk, <unsigned char*> (chunk + 1), size - UNIT_SIZE
    arena.size += size
    return True


cdef inline bint arena_add_lists(Arena* arena, uint32_t count) noexcept nogil:
    cdef void** lists = <void**> realloc(arena.lists, count * sizeof(void*))
    if lists == NULL:
        return False
    memset(lists + arena.list_count, 0, (count - arena.list_count) * sizeof(void*))
    arena.lists, arena.list_count = lists, count
    return True


cdef inline void* arena_take(Arena* arena, size_t size) noexcept nogil:
    """A piece of this size, or NULL."""
    cdef size_t units = arena_units(size)
    cdef void** piece
    if units >= arena.list_count and not arena_add_lists(arena, <uint32_t> units + 1):
        return NULL
    piece = <void**> arena.lists[units]
    if piece != NULL:
        arena.lists[units] = piece[0]
        return piece
    if arena.rest_size < units * UNIT_SIZE and not arena_add_chunk(arena, units * UNIT_SIZE):
        return NULL
    piece = <void**> arena.rest
    arena.rest += units * UNIT_SIZE
    arena.rest_size -= units * UNIT_SIZE
    return piece


cdef inline void arena_give(Arena* arena, void* piece, size_t size) noexcept nogil:
    """Take back a piece that was taken with this size."""
    cdef size_t units = arena_units(size)
    (<void**> piece)[0] = arena.lists[units]
    arena.lists[units] = piece


cdef inline void arena_clear(Arena* arena) noexcept nogil:
    """Free everything."""
    cdef void** chunk
    while arena.chunks != NULL:
        chunk = arena.chunks
        arena.chunks = <void**> chunk[0]
        free(chunk)
    free(arena.lists)
    memset(arena, 0, sizeof(Arena))
