"""Subject summaries of sidecars, compiled. `_summary_py.py` is the reference."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from array import array as make_array

from jetlake.store import format
from jetlake.store.index._subject_entry cimport entry_of, subject_of
from jetlake.store.index._subject_table_c cimport Entry, SubjectTable
from jetlake.store.index._summary_py import _BITS_SIZE_MAX, _BITS_SIZE_MIN
from jetlake.store.records._trim_py import check_columns

cdef extern from "jetlake/store/records/xxh64.h":
    uint64_t jl_xxh64(const unsigned char* data, size_t size, uint64_t seed) noexcept nogil

cdef uint32_t NO_ID = format.NO_ID
cdef uint64_t SEQ_MAX = format.SEQ_MAX
cdef uint64_t SUBJECT_SIZE_MAX = format.SUBJECT_SIZE_MAX
cdef uint64_t BITS_SIZE_MIN = _BITS_SIZE_MIN, BITS_SIZE_MAX = _BITS_SIZE_MAX
cdef array.array _U32 = make_array("I")


cdef extern from *:
    void prefetch "__builtin_prefetch" (const void* address) noexcept nogil

cdef enum:
    AHEAD = 16  # so many messages before its turn, a subject's entry is fetched from memory


def localize(SubjectTable table not None, ids, seqs, uint64_t base_seq, const uint64_t[::1] starts not None,
             const uint64_t[::1] ends not None):
    """Give the subjects behind `ids` slots in a table of their own; see `summary.py`."""
    cdef const uint32_t[::1] id_view = ids
    cdef const uint32_t[::1] seq_view = seqs
    cdef Py_ssize_t count = id_view.shape[0], gap = 0, gap_count = ends.shape[0], position
    check_columns(count, 0, count, None if seq_view is None else seq_view.shape[0], starts.shape[0], gap_count)
    cdef uint32_t limit = table.slot_count, slot
    cdef uint64_t seq
    cdef Entry* entry
    cdef int64_t fresh
    cdef SubjectTable local = SubjectTable()
    cdef array.array local_ids = array.clone(_U32, count, zero=False)
    cdef uint32_t* out = local_ids.data.as_uints
    cdef uint32_t* slots = <uint32_t*>malloc(4 * (<size_t>limit + 1))
    if slots == NULL:
        raise MemoryError
    memset(slots, 0xFF, 4 * (<size_t>limit + 1))
    try:
        with nogil:
            for position in range(count):
                if position + AHEAD < count and id_view[position + AHEAD] < limit:
                    prefetch(entry_of(table.slots[id_view[position + AHEAD]]))
                slot = id_view[position]
                seq = base_seq + <uint64_t>(position if seq_view is None else seq_view[position])
                while gap < gap_count and ends[gap] < seq:
                    gap += 1
                if slot == NO_ID or (gap < gap_count and starts[gap] <= seq):
                    out[position] = NO_ID
                    continue
                if slot >= limit:
                    with gil:
                        raise IndexError(f"no slot {slot}")
                if slots[slot] == NO_ID:
                    entry = table.live_c(slot)
                    if entry == NULL:
                        with gil:
                            raise IndexError(f"slot {slot} holds no message")
                    fresh = local.intern_c(subject_of(entry), entry.size)
                    if fresh < 0:
                        with gil:
                            raise MemoryError
                    slots[slot] = <uint32_t>fresh
                out[position] = slots[slot]
                local.add_c(slots[slot], seq)
    finally:
        free(slots)
    return local, local_ids


cdef inline Py_ssize_t _put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 0
    while value >= 0x80:
        out[size] = <uint8_t>(value | 0x80)
        value >>= 7
        size += 1
    out[size] = <uint8_t>value
    return size + 1


def encode_subjects(SubjectTable table not None, uint64_t base_seq):
    """The live entries of a table whose slots are 0..n-1."""
    cdef uint32_t limit = table.slot_count, slot
    cdef Py_ssize_t room = 10, at
    cdef Entry* entry
    for slot in range(limit):
        entry = table.live_c(slot)
        if entry == NULL:
            raise IndexError(f"slot {slot} holds no message")
        room += entry.size + 40
    out = bytearray(room)
    cdef uint8_t* base = <uint8_t*>PyByteArray_AS_STRING(out)
    at = _put_varint(base, limit)
    for slot in range(limit):
        entry = table.live_c(slot)
        at += _put_varint(base + at, entry.size)
        memcpy(base + at, subject_of(entry), entry.size)
        at += entry.size
        at += _put_varint(base + at, entry.count)
        at += _put_varint(base + at, entry.first - base_seq)
        at += _put_varint(base + at, entry.last - entry.first)
    return bytes(memoryview(out)[:at])


cdef Py_ssize_t _get_varint(const uint8_t* data, Py_ssize_t offset, Py_ssize_t end, uint64_t* value) except -1:
    cdef int shift = 0
    value[0] = 0
    while offset < end and shift < 70:
        if shift == 63 and data[offset] > 1:
            break
        value[0] |= <uint64_t>(data[offset] & 0x7F) << shift
        offset += 1
        if data[offset - 1] < 0x80:
            return offset
        shift += 7
    raise ValueError("subject summary is damaged")


def merge_subjects(data, Py_ssize_t offset, Py_ssize_t end, uint64_t base_seq, SubjectTable table not None):
    """Count encoded subjects into a table; the offset after them."""
    cdef const uint8_t[::1] view = data
    if not 0 <= offset <= end <= view.shape[0]:
        raise IndexError(f"summary range {offset}..{end} of {view.shape[0]} bytes")
    cdef const uint8_t* base = &view[0] if view.shape[0] else NULL
    cdef uint64_t count, size, messages, first, span
    cdef const uint8_t* subject
    cdef int64_t slot
    offset = _get_varint(base, offset, end, &count)
    while count:
        count -= 1
        offset = _get_varint(base, offset, end, &size)
        if not 0 < size <= SUBJECT_SIZE_MAX or size > <uint64_t>(end - offset):
            raise ValueError("subject summary is damaged")
        subject = base + offset
        offset = _get_varint(base, offset + size, end, &messages)
        offset = _get_varint(base, offset, end, &first)
        offset = _get_varint(base, offset, end, &span)
        if (base_seq > SEQ_MAX or first > SEQ_MAX - base_seq or span > SEQ_MAX - base_seq - first or not messages):
            raise ValueError("subject summary is damaged")
        slot = table.intern_c(subject, size)
        if slot < 0:
            raise MemoryError
        table.add_many(<uint32_t>slot, messages, base_seq + first, base_seq + first + span, 0)
    return offset


def subject_bits(data, Py_ssize_t offset, Py_ssize_t end):
    """A Bloom filter of encoded subjects: see `summary.py`."""
    cdef const uint8_t[::1] view = data
    if not 0 <= offset <= end <= view.shape[0]:
        raise IndexError(f"summary range {offset}..{end} of {view.shape[0]} bytes")
    cdef const uint8_t* base = &view[0] if view.shape[0] else NULL
    cdef uint64_t count, size = BITS_SIZE_MIN, subject_size, number, skipped
    cdef int field
    offset = _get_varint(base, offset, end, &count)
    while size < count and size < BITS_SIZE_MAX:
        size *= 2
    found = bytearray(size)
    cdef uint8_t* bits = <uint8_t*>PyByteArray_AS_STRING(found)
    while count:
        count -= 1
        offset = _get_varint(base, offset, end, &subject_size)
        if not 0 < subject_size <= SUBJECT_SIZE_MAX or subject_size > <uint64_t>(end - offset):
            raise ValueError("subject summary is damaged")
        number = jl_xxh64(base + offset, subject_size, 0)
        bits[number >> 3 & (size - 1)] |= <uint8_t>(1 << (number & 7))
        bits[number >> 35 & (size - 1)] |= <uint8_t>(1 << (number >> 32 & 7))
        offset += subject_size
        for field in range(3):
            offset = _get_varint(base, offset, end, &skipped)
    return bytes(found)
