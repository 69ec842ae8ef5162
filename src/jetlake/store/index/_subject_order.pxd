# cython: language_level=3
"""The slots of a subject table in the order of their subjects, brought up to date when asked for. For kernels only.

New and reused slots wait in `tail`, each once at most; see IN_TAIL. `sorted` is in order but for holes: slots that were
freed, and perhaps reused, since they were put there. Every slot in use is in exactly one of the two.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcmp, memmove, memset

from jetlake.store.index._subject_entry cimport FREE, IN_TAIL, Entry, entry_of, subject_of

cdef struct Order:
    uint32_t* sorted
    uint32_t count
    bint has_holes
    uint32_t* tail
    uint32_t tail_count
    uint32_t tail_capacity

cdef struct SortKey:
    uint64_t head                   # the eight bytes after what all subjects have in common, big-endian
    const unsigned char* text
    uint32_t slot
    uint16_t size


cdef inline bint order_reserve(Order* order) noexcept nogil:
    """Make room in the tail for one more, or return False."""
    cdef uint32_t capacity = order.tail_capacity + (order.tail_capacity >> 2) + 4
    cdef void* grown
    if order.tail_count < order.tail_capacity:
        return True
    grown = realloc(order.tail, capacity * sizeof(uint32_t))
    if grown == NULL:
        return False
    order.tail, order.tail_capacity = <uint32_t*> grown, capacity
    return True


cdef inline void order_push(Order* order, uint32_t slot) noexcept nogil:
    """Put a slot, which will be IN_TAIL, into the tail; there is room."""
    order.tail[order.tail_count] = slot
    order.tail_count += 1


cdef inline uint32_t order_bound(
    Order* order, uintptr_t* slots, const unsigned char* key, Py_ssize_t size, bint after, uint32_t stop
) noexcept nogil:
    """The first index below `stop` of a subject >= key or, `after`, past all that begin with key. Without holes."""
    cdef uint32_t start = 0, middle
    cdef Py_ssize_t seen_size
    cdef Entry* entry
    while start < stop:
        middle = start + (stop - start) // 2
        entry = entry_of(slots[order.sorted[middle]])
        seen_size = min(<Py_ssize_t> entry.size, size) if after else entry.size
        if compare(subject_of(entry), seen_size, key, size) < after:
            start = middle + 1
        else:
            stop = middle
    return start


cdef inline void order_drop_holes(Order* order, uintptr_t* slots) noexcept nogil:
    cdef uint32_t i, kept = 0
    if not order.has_holes:
        return
    for i in range(order.count):
        if not slots[order.sorted[i]] & (FREE | IN_TAIL):
            order.sorted[kept] = order.sorted[i]
            kept += 1
    order.count, order.has_holes = kept, False


cdef inline bint order_update(Order* order, uintptr_t* slots) noexcept nogil:
    """Drop the holes, sort the tail, and merge it in; or return False for want of memory."""
    cdef SortKey* keys
    cdef void* grown
    order_drop_holes(order, slots)
    if order.tail_count == 0:
        return True
    keys = <SortKey*> malloc(order.tail_count * sizeof(SortKey))
    grown = realloc(order.sorted, (<size_t> order.count + order.tail_count) * sizeof(uint32_t)) if keys else NULL
    if grown == NULL:
        free(keys)
        return False
    order.sorted = <uint32_t*> grown
    order_merge(order, slots, keys, order_take_tail(order, slots, keys))
    free(keys)
    return True


cdef inline uint32_t order_take_tail(Order* order, uintptr_t* slots, SortKey* keys) noexcept nogil:
    """Empty the tail into keys, without what was freed there; return how many."""
    cdef uint32_t i, slot, count = 0
    cdef Entry* entry
    for i in range(order.tail_count):
        slot = order.tail[i]
        slots[slot] &= ~<uintptr_t> IN_TAIL
        if not slots[slot] & FREE:
            entry = entry_of(slots[slot])
            keys[count].slot, keys[count].text, keys[count].size = slot, subject_of(entry), entry.size
            count += 1
    free(order.tail)
    order.tail, order.tail_count, order.tail_capacity = NULL, 0, 0
    return count


cdef inline void order_merge(Order* order, uintptr_t* slots, SortKey* keys, uint32_t count) noexcept nogil:
    """Put each key where it belongs, the last first: what comes after it is moved up at once."""
    cdef uint32_t start, stop = order.count, end = order.count + count
    sort_keys(keys, count)
    order.count = end
    while count:
        count -= 1
        start = order_bound(order, slots, keys[count].text, keys[count].size, False, stop)
        end -= stop - start + 1
        memmove(&order.sorted[end + 1], &order.sorted[start], (stop - start) * sizeof(uint32_t))
        order.sorted[end] = keys[count].slot
        stop = start


cdef inline void order_clear(Order* order) noexcept nogil:
    free(order.sorted)
    free(order.tail)
    memset(order, 0, sizeof(Order))


cdef inline int compare(
    const unsigned char* a, Py_ssize_t a_size, const unsigned char* b, Py_ssize_t b_size
) noexcept nogil:
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
