# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What is told of many subjects at once: compiled twins of the functions in `_subject_lists_py.py`.

Sequences are sorted by digits of 16 bits, as many as the largest one has: three passes over millions of them.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from jetlake.store.index._subject_entry cimport LAST_STALE, Entry, subject_of
from jetlake.store.index._subject_table_c cimport SubjectTable

from array import array as new_array

from jetlake.store.index._subject_lists_py import quoted

cdef enum:
    NUMBER_SIZE_MAX = 20            # digits of a count
    DIGIT_BITS = 16
    DIGITS = 1 << DIGIT_BITS

cdef array.array _U32 = new_array("I")
cdef array.array _U64 = new_array("Q")


cdef Entry* live_entry(SubjectTable table, uint32_t slot) except NULL:
    cdef Entry* entry = table.live_c(slot)
    if entry == NULL:
        raise IndexError(f"slot {slot} has no messages")
    return entry


cdef inline bint is_plain(const unsigned char* text, Py_ssize_t size) noexcept nogil:
    """Whether a text stands in JSON as it is."""
    cdef Py_ssize_t i
    for i in range(size):
        if text[i] < 0x20 or text[i] > 0x7E or text[i] == c'"' or text[i] == c'\\':
            return False
    return True


cdef inline unsigned char* put_number(unsigned char* out, uint64_t number) noexcept nogil:
    cdef unsigned char digits[NUMBER_SIZE_MAX]
    cdef int count = 0
    while True:
        digits[count] = <unsigned char> (c'0' + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        out[0] = digits[count]
        out += 1
    return out


def totals_json(SubjectTable table not None, const uint32_t[::1] slots not None):
    """A JSON object: how many messages each subject has."""
    cdef Py_ssize_t i, count = slots.shape[0], size = 2, text_size
    cdef Entry* entry
    cdef unsigned char* out
    cdef bytes text
    special = {}                    # subjects that JSON shows in another way, by their place
    for i in range(count):
        entry = live_entry(table, slots[i])
        text_size = entry.size + 2
        if not is_plain(subject_of(entry), entry.size):
            text = quoted(PyBytes_FromStringAndSize(<const char*> subject_of(entry), entry.size))
            special[i], text_size = text, PyBytes_GET_SIZE(text)
        size += text_size + NUMBER_SIZE_MAX + 2
    result = bytearray(size)
    cdef unsigned char[::1] room = result
    cdef unsigned char* start = &room[0]
    out = start
    out[0] = c'{'
    out += 1
    for i in range(count):
        entry = live_entry(table, slots[i])
        if i:
            out[0] = c','
            out += 1
        text = special.get(i) if special else None
        if text is not None:
            memcpy(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
            out += PyBytes_GET_SIZE(text)
        else:
            out[0] = c'"'
            memcpy(out + 1, subject_of(entry), entry.size)
            out[entry.size + 1] = c'"'
            out += entry.size + 2
        out[0] = c':'
        out = put_number(out + 1, entry.count)
    out[0] = c'}'
    return PyBytes_FromStringAndSize(<const char*> start, out + 1 - start)


def last_seqs(SubjectTable table not None, const uint32_t[::1] slots not None):
    """The last sequences of subjects, ascending, and the slots of those of which only a bound is known."""
    cdef Py_ssize_t i, count = 0, stale_count = 0
    cdef array.array seqs = array.clone(_U64, slots.shape[0], zero=False)
    cdef array.array stale = array.clone(_U32, slots.shape[0], zero=False)
    cdef uint64_t* out = <uint64_t*> seqs.data.as_voidptr
    cdef Entry* entry
    for i in range(slots.shape[0]):
        entry = live_entry(table, slots[i])
        if entry.flags & LAST_STALE:
            stale.data.as_uints[stale_count] = slots[i]
            stale_count += 1
        else:
            out[count] = entry.last
            count += 1
    array.resize(seqs, count)
    array.resize(stale, stale_count)
    return sort_seqs(seqs), stale


def seq_bounds(SubjectTable table not None, const uint32_t[::1] slots not None, uint64_t start):
    """Sequences between which every message of these subjects at or after `start` lies; (0, 0) when there is none."""
    cdef Py_ssize_t i
    cdef uint64_t low = UINT64_MAX, high = 0
    cdef Entry* entry
    for i in range(slots.shape[0]):
        entry = live_entry(table, slots[i])
        if entry.last >= start:
            low = min(low, entry.first)
            high = max(high, entry.last)
    if not high:
        return 0, 0
    return max(low, start), high


cdef array.array sort_seqs(array.array seqs):
    """The same sequences, ascending."""
    cdef Py_ssize_t count = len(seqs), i
    cdef array.array others
    cdef array.array starts
    cdef uint64_t* ours = <uint64_t*> seqs.data.as_voidptr
    cdef uint64_t largest = 0
    cdef bint is_sorted = True
    cdef int shift = 0
    for i in range(count):
        is_sorted = is_sorted and ours[i] >= largest
        largest = max(largest, ours[i])
    if is_sorted:
        return seqs
    if count < 1024:                # a pass costs more than sorting these
        return new_array("Q", sorted(seqs))
    others, starts = array.clone(_U64, count, zero=False), array.clone(_U32, DIGITS, zero=False)
    while shift < 64 and largest >> shift:
        sort_by_digit(
            <uint64_t*> seqs.data.as_voidptr, <uint64_t*> others.data.as_voidptr, count, shift, starts.data.as_uints
        )
        seqs, others = others, seqs
        shift += DIGIT_BITS
    return seqs


cdef void sort_by_digit(
    const uint64_t* source, uint64_t* out, Py_ssize_t count, int shift, uint32_t* starts
) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint32_t digit, start = 0, size
    memset(starts, 0, DIGITS * sizeof(uint32_t))
    for i in range(count):
        starts[(source[i] >> shift) & (DIGITS - 1)] += 1
    for i in range(DIGITS):
        size = starts[i]
        starts[i] = start
        start += size
    for i in range(count):
        digit = (source[i] >> shift) & (DIGITS - 1)
        out[starts[digit]] = source[i]
        starts[digit] += 1
