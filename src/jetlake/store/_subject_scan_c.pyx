# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Search an array of slots for subjects that match: compiled twins of the functions in `_subject_scan_py.py`.

The memo is looked at first: a slot known not to match costs no visit to its entry, one known to match only a look at
its count. Nothing is remembered of slots without live messages.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport uint32_t

from jetlake.store._subject_entry cimport Entry, subject_of
from jetlake.store._subject_filter_c cimport SubjectFilter
from jetlake.store._subject_table_c cimport SubjectTable

from jetlake.store._subject_scan_py import check_scan

cdef enum:
    UNKNOWN = 0
    NO = 1
    YES = 2


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


def find_match(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None,
    Py_ssize_t start, Py_ssize_t stop, bytearray memo not None,
):
    """The smallest index in [start, stop) of `ids` whose slot is live and matches, or -1."""
    cdef unsigned char* known = door(table, ids, start, stop, memo)
    cdef Py_ssize_t index
    for index in range(start, stop):
        if slot_matches(table, filter, ids[index], known):
            return index
    return -1


def find_match_back(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None,
    Py_ssize_t start, Py_ssize_t stop, bytearray memo not None,
):
    """The largest index in [start, stop) of `ids` whose slot is live and matches, or -1."""
    cdef unsigned char* known = door(table, ids, start, stop, memo)
    cdef Py_ssize_t index
    for index in range(stop - 1, start - 1, -1):
        if slot_matches(table, filter, ids[index], known):
            return index
    return -1


def count_matches(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None,
    Py_ssize_t start, Py_ssize_t stop, bytearray memo not None,
):
    """How many indexes in [start, stop) of `ids` have a slot that is live and matches."""
    cdef unsigned char* known = door(table, ids, start, stop, memo)
    cdef Py_ssize_t index, count = 0
    for index in range(start, stop):
        count += slot_matches(table, filter, ids[index], known)
    return count
