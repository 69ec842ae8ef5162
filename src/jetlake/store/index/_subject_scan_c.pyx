# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Search an array of slots for subjects that match: compiled twins of the functions in `_subject_scan_py.py`.

The memo is looked at first: a slot known not to match costs no visit to its entry, one known to match only a look at
its count. Nothing is remembered of slots without live messages. One literal subject is sought by its slot alone.
"""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport UINT64_MAX, int64_t, uint32_t, uint64_t

from jetlake.store.index._subject_entry cimport Entry, subject_of
from jetlake.store.index._subject_filter_c cimport SubjectFilter
from jetlake.store.index._subject_table_c cimport SubjectTable

from array import array as new_array

from jetlake.store.index._subject_scan_py import check_live, check_scan

cdef array.array _U64 = new_array("Q")

cdef enum:
    UNKNOWN = 0
    NO = 1
    YES = 2

cdef enum:
    MANY = -2
    NONE = -1


cdef inline bint slot_matches(
    SubjectTable table, SubjectFilter filter, uint32_t slot, unsigned char* memo
) noexcept nogil:
    cdef Entry* entry
    if slot >= table.slot_count or memo[slot] == NO:
        return False
    entry = table.live_c(slot)
    if entry == NULL:
        return False
    if memo[slot] == UNKNOWN:
        memo[slot] = YES if filter.matches_c(subject_of(entry), entry.size) else NO
    return memo[slot] == YES


cdef unsigned char* door(
    SubjectTable table, const uint32_t[::1] ids, Py_ssize_t start, Py_ssize_t stop, bytearray memo
) except NULL:
    if start < 0 or stop > ids.shape[0] or PyByteArray_GET_SIZE(memo) < table.slot_count:
        check_scan(table, ids, start, stop, memo)
    return <unsigned char*> PyByteArray_AS_STRING(memo)


cdef inline int64_t one_slot(SubjectTable table, SubjectFilter filter) noexcept nogil:
    """The only slot that can match; NONE when the filter is literal and its subject is not there, MANY when it is not."""
    cdef int64_t slot
    if filter.item_count != 1 or filter.is_all or not filter.items[0].literal:
        return MANY
    slot = table.find_c(filter.items[0].text, filter.items[0].size)
    return slot if slot >= 0 else NONE


def find_match(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None,
    Py_ssize_t start, Py_ssize_t stop, bytearray memo not None,
):
    """The smallest index in [start, stop) of `ids` whose slot is live and matches, or -1."""
    cdef unsigned char* known = door(table, ids, start, stop, memo)
    cdef int64_t wanted = one_slot(table, filter)
    cdef Py_ssize_t index
    if wanted == MANY:
        for index in range(start, stop):
            if slot_matches(table, filter, ids[index], known):
                return index
    elif wanted != NONE:
        for index in range(start, stop):
            if ids[index] == <uint32_t> wanted:
                return index
    return -1


def find_match_back(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None,
    Py_ssize_t start, Py_ssize_t stop, bytearray memo not None,
):
    """The largest index in [start, stop) of `ids` whose slot is live and matches, or -1."""
    cdef unsigned char* known = door(table, ids, start, stop, memo)
    cdef int64_t wanted = one_slot(table, filter)
    cdef Py_ssize_t index
    if wanted == MANY:
        for index in range(stop - 1, start - 1, -1):
            if slot_matches(table, filter, ids[index], known):
                return index
    elif wanted != NONE:
        for index in range(stop - 1, start - 1, -1):
            if ids[index] == <uint32_t> wanted:
                return index
    return -1


cdef Py_ssize_t count_range(
    SubjectTable table, SubjectFilter filter, const uint32_t* ids, Py_ssize_t count, unsigned char* known,
    int64_t wanted,
) noexcept nogil:
    """How many of `count` ids match, where `wanted` is their one slot, or MANY."""
    cdef Py_ssize_t index, found = 0
    if wanted == MANY:
        for index in range(count):
            found += slot_matches(table, filter, ids[index], known)
    else:
        for index in range(count):
            found += ids[index] == <uint32_t> wanted
    return found


def count_matches(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None,
    Py_ssize_t start, Py_ssize_t stop, bytearray memo not None,
):
    """How many indexes in [start, stop) of `ids` have a slot that is live and matches."""
    cdef unsigned char* known = door(table, ids, start, stop, memo)
    cdef int64_t wanted = one_slot(table, filter)
    if wanted == NONE or start >= stop:
        return 0
    return count_range(table, filter, &ids[start], stop - start, known, wanted)


cdef Py_ssize_t position_from(
    const uint32_t[::1] seqs, Py_ssize_t start, Py_ssize_t count, uint64_t distance
) noexcept nogil:
    """The first of `count` messages, from `start` on, at this distance from base_seq or farther."""
    cdef Py_ssize_t low = start, high, step = 1, middle
    if seqs is None:
        return max(start, <Py_ssize_t> min(distance, <uint64_t> count))
    while step <= count - low and seqs[low + step - 1] < distance:  # the answer is near: double the step, then bisect
        low += step
        step *= 2
    high = low + min(step, count - low)
    while low < high:
        middle = low + (high - low) // 2
        if seqs[middle] < distance:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline Py_ssize_t position_after(
    const uint32_t[::1] seqs, Py_ssize_t start, Py_ssize_t count, uint64_t distance
) noexcept nogil:
    return position_from(seqs, start, count, distance + 1) if distance != UINT64_MAX else count


cdef Py_ssize_t range_from(const uint64_t[::1] ends, uint64_t seq) noexcept nogil:
    """The first range that ends at this sequence or later."""
    cdef Py_ssize_t low = 0, high = ends.shape[0], middle
    while low < high:
        middle = low + (high - low) // 2
        if ends[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low


def count_live(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None, count,
    const uint32_t[::1] seqs, base_seq, first, last,
    const uint64_t[::1] starts not None, const uint64_t[::1] ends not None, bytearray memo not None,
):
    """How many of `count` messages have a sequence of first..last, a slot that is live and matches, and are not gone.

    Message i has the sequence base_seq + seqs[i], or base_seq + i without `seqs`; sequences ascend. Gone are those of
    starts[i]..ends[i], which ascend and do not overlap: the arrays of a SequenceSet.
    """
    check_live(table, ids, count, seqs, base_seq, first, last, starts, ends, memo)
    cdef unsigned char* known = <unsigned char*> PyByteArray_AS_STRING(memo)
    cdef uint64_t base = base_seq, low = max(first, base_seq), high = last
    cdef int64_t wanted = one_slot(table, filter)
    cdef Py_ssize_t place = range_from(ends, low), index, stop, end, found = 0
    if wanted == NONE or high < low:
        return 0
    index = position_from(seqs, 0, count, low - base)
    end = position_after(seqs, index, count, high - base)
    while index < end:                              # a run of live messages, then one of gone ones
        stop = end
        if place < ends.shape[0]:
            stop = position_from(seqs, index, end, starts[place] - base if starts[place] > base else 0)
        found += count_range(table, filter, &ids[index], stop - index, known, wanted)
        if stop == end:
            break
        index = position_after(seqs, stop, end, ends[place] - base)
        place += 1
    return found


def list_live(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None, count,
    const uint32_t[::1] seqs, base_seq, first, last,
    const uint64_t[::1] starts not None, const uint64_t[::1] ends not None, bytearray memo not None,
):
    """The sequences of the messages that `count_live` counts."""
    cdef Py_ssize_t total = count_live(
        table, filter, ids, count, seqs, base_seq, first, last, starts, ends, memo
    )
    cdef array.array found = array.clone(_U64, total, False)
    if not total:
        return found
    cdef unsigned char* known = <unsigned char*> PyByteArray_AS_STRING(memo)
    cdef uint64_t base = base_seq, low = max(first, base_seq), seq
    cdef int64_t wanted = one_slot(table, filter)
    cdef Py_ssize_t place = range_from(ends, low), index = position_from(seqs, 0, count, low - base), kept = 0
    while kept < total:
        seq = base + (<uint64_t> index if seqs is None else seqs[index])
        while place < ends.shape[0] and ends[place] < seq:
            place += 1
        if place == ends.shape[0] or seq < starts[place]:
            if ids[index] == wanted if wanted != MANY else slot_matches(table, filter, ids[index], known):
                found.data.as_ulonglongs[kept] = seq
                kept += 1
        index += 1
    return found
