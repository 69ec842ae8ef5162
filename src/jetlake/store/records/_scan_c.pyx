"""Walk the records of a block, compiled. `_scan_py.py` is the reference.

Two things make it fast beside the checksum. Where a subject's entry is likely to be is looked up before its message is
verified, so that it has come from memory when it is counted. And the column of sequences, which would only cost fresh
memory, is not written as long as they follow each other. Other threads run meanwhile.
"""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from array import array as make_array

from jetlake.store import format
from jetlake.store.records._record_c cimport (
    ERASED, EXPIRES, HINT_COUNT, NOT_MESSAGE, RUN_MAX, SKIP, Parts, hint_place, is_sound, load64, parse,
    sound_run_hinted,
)
from jetlake.store.records._scan_py import Scan, check_copy
from jetlake.store.index._subject_entry cimport Entry, entry_add, subject_of
from jetlake.store.index._subject_hash cimport same_text
from jetlake.store.index._subject_table_c cimport SubjectTable

cdef uint64_t SEQ_MAX = format.SEQ_MAX
cdef uint64_t SPAN_MAX = format.BLOCK_SEQ_SPAN_MAX
cdef uint64_t RECORD_SIZE_MIN = format.RECORD_SIZE_MIN

cdef array.array _U32 = make_array("I")
cdef array.array _U64 = make_array("Q")


cdef bint _varint(const uint8_t* data, uint64_t start, uint64_t end, uint64_t* value) noexcept nogil:
    """Read a varint of at most ten bytes that fits into 64 bits."""
    cdef int shift = 0
    value[0] = 0
    while start < end and shift < 70:
        if shift == 63 and data[start] > 1:
            return False
        value[0] |= <uint64_t>(data[start] & 0x7F) << shift
        if data[start] < 0x80:
            return True
        start += 1
        shift += 7
    return False


cdef inline bint _follows(const uint8_t* data, Parts* parts, uint64_t prev_seq, uint64_t* last_seq) noexcept nogil:
    """Can this record, sound or not, come after `prev_seq`? What the last sequence in use is after it."""
    cdef uint64_t count
    cdef bint is_message = not parts.flags & NOT_MESSAGE
    last_seq[0] = prev_seq
    if is_message and not parts.subject_size:
        return False
    if not is_message and not parts.flags & (SKIP | ERASED):
        return True
    if parts.seq <= prev_seq or parts.seq > SEQ_MAX or parts.seq - prev_seq > SPAN_MAX:
        return False
    last_seq[0] = parts.seq
    if parts.flags & SKIP:
        if not _varint(data, parts.payload_start, parts.payload_start + parts.payload_size, &count):
            return False
        if count == 0 or count - 1 > SEQ_MAX - parts.seq:
            return False
        last_seq[0] += count - 1
    return True


cdef inline bint _is_entry_of(Entry* entry, const uint8_t* subject, uint32_t size) noexcept nogil:
    return entry != NULL and entry.size == size and same_text(subject_of(entry), subject, size)


cdef struct Numbers:  # a list that grows without Python
    uint64_t* items
    Py_ssize_t count, room


cdef bint _note(Numbers* numbers, uint64_t first, uint64_t second) noexcept nogil:
    """Append a pair; False when there is no memory."""
    cdef uint64_t* items
    if numbers.count == numbers.room:
        items = <uint64_t*>realloc(numbers.items, 2 * sizeof(uint64_t) * (2 * numbers.room + 16))
        if items == NULL:
            return False
        numbers.items, numbers.room = items, 2 * numbers.room + 16
    numbers.items[2 * numbers.count], numbers.items[2 * numbers.count + 1] = first, second
    numbers.count += 1
    return True


cdef list _pairs(Numbers* numbers):
    """What was noted, as a list; its memory is given back."""
    cdef Py_ssize_t i
    pairs = [(numbers.items[2 * i], <int64_t>numbers.items[2 * i + 1]) for i in range(numbers.count)]
    free(numbers.items)
    return pairs


cdef array.array _first_seqs(uint64_t first, Py_ssize_t count, Py_ssize_t room):
    """A column with so many sequences one after the other, and room for more."""
    cdef array.array seqs = array.clone(_U64, room, zero=False)
    cdef uint64_t* out = <uint64_t*>seqs.data.as_voidptr
    cdef Py_ssize_t i
    for i in range(count):
        out[i] = first + <uint64_t>i
    return seqs


def scan(data, Py_ssize_t start, Py_ssize_t end, uint64_t seed, uint64_t prev_seq, SubjectTable table not None,
         uint64_t size_fixed, uint64_t size_headers):
    """Every sound record of data[start:end], counting messages into the table; see `scan.py`."""
    cdef const uint8_t[::1] view = data
    if not 0 <= start <= end <= view.shape[0]:
        raise IndexError(f"scan range {start}..{end} of {view.shape[0]} bytes")
    if prev_seq > SEQ_MAX:
        raise ValueError(f"no sequence {prev_seq}")
    cdef const uint8_t* base = &view[0] if view.shape[0] else NULL
    cdef Py_ssize_t room = (end - start) // RECORD_SIZE_MIN
    cdef array.array offsets = array.clone(_U32, room, zero=False)
    cdef array.array ids = array.clone(_U32, room, zero=False)
    cdef array.array seqs = None    # as long as each one follows the last
    cdef bytearray hint_memory = bytearray(HINT_COUNT * sizeof(void*))
    cdef Entry** hints = <Entry**>PyByteArray_AS_STRING(hint_memory)
    cdef uint32_t* offset_out = offsets.data.as_uints
    cdef uint32_t* id_out = ids.data.as_uints
    cdef uint64_t* seq_out = NULL
    cdef Py_ssize_t count = 0
    cdef uint64_t offset = start, sound_end = start, stop = end, last_seq = 0, last_hash = 0, size = 0
    cdef uint64_t first_seq = 0
    cdef int64_t time_ns_min = INT64_MAX, time_ns_max = INT64_MIN
    cdef Parts[RUN_MAX] run
    cdef Parts* parts = &run[0]
    cdef uint32_t[RUN_MAX] places
    cdef uint32_t run_count, i
    cdef const uint8_t* subject
    cdef Entry* entry
    cdef Numbers others = Numbers(NULL, 0, 0), expiring = Numbers(NULL, 0, 0), damage = Numbers(NULL, 0, 0)
    cdef bint has_memory = True
    with nogil:
        while offset < stop and has_memory:
            run_count = 0
            if offset == sound_end:
                run_count = sound_run_hinted(base, offset, stop, seed, prev_seq, SEQ_MAX, SPAN_MAX, parts, RUN_MAX,
                                             <void**>hints, sizeof(Entry), places)
            if run_count == 0:  # something else than a sound message: one record at a time
                if not (parse(base, offset, stop, seed, offset == sound_end, parts)
                        and _follows(base, parts, prev_seq, &last_seq) and is_sound(base, offset, parts, seed)):
                    offset += 1
                    continue
                if offset > sound_end:
                    has_memory &= _note(&damage, sound_end, offset - sound_end)
                if parts.flags & NOT_MESSAGE:
                    has_memory &= _note(&others, offset, 0)
                    prev_seq = last_seq
                    offset = sound_end = parts.end
                    last_hash = load64(base + offset - 8)
                    continue
                places[0] = hint_place(base + parts.subject_start, parts.subject_size)
                run_count = 1
            if count == 0:
                first_seq = run[0].seq
            if seq_out == NULL and run[run_count - 1].seq != first_seq + <uint64_t>count + run_count - 1:
                with gil:
                    seqs = _first_seqs(first_seq, count, room)
                seq_out = <uint64_t*>seqs.data.as_voidptr
            for i in range(run_count):
                subject = base + run[i].subject_start
                entry = hints[places[i]]
                if not _is_entry_of(entry, subject, run[i].subject_size):
                    if table.intern_c(subject, run[i].subject_size) < 0:
                        has_memory = False
                        break
                    entry = hints[places[i]] = table.recent
                table.live_count += entry_add(entry, run[i].seq)
                offset_out[count] = <uint32_t>offset
                id_out[count] = entry.slot
                if seq_out != NULL:
                    seq_out[count] = run[i].seq
                count += 1
                size += size_fixed + run[i].subject_size + run[i].payload_size
                if run[i].headers_size:
                    size += size_headers + run[i].headers_size
                time_ns_min = min(time_ns_min, run[i].time_ns)
                time_ns_max = max(time_ns_max, run[i].time_ns)
                if run[i].flags & EXPIRES:
                    has_memory &= _note(&expiring, run[i].seq, <uint64_t>run[i].expires_ns)
                offset = run[i].end
            table.total_count += run_count
            prev_seq = run[run_count - 1].seq
            sound_end = offset
            last_hash = load64(base + offset - 8)
    other_pairs, expiring_pairs, damage_pairs = _pairs(&others), _pairs(&expiring), _pairs(&damage)
    if not has_memory:
        raise MemoryError
    for column in (offsets, ids) if seqs is None else (offsets, ids, seqs):
        array.resize(column, count)  # gives back the room that was not needed
    return Scan(offsets, ids, range(first_seq, first_seq + count) if seqs is None else seqs,
                [place for place, _ in other_pairs], expiring_pairs, damage_pairs,
                sound_end, prev_seq, last_hash, size, time_ns_min, time_ns_max)


def uncount(data, Py_ssize_t start, Py_ssize_t end, uint64_t seed, SubjectTable table not None, uint64_t size_fixed,
            uint64_t size_headers, uint64_t count_max, uint64_t size_max):
    """Take messages of data[start:end] out of the table; see `scan.py`. How many, and their size."""
    cdef const uint8_t[::1] view = data
    if not 0 <= start <= end <= view.shape[0]:
        raise IndexError(f"scan range {start}..{end} of {view.shape[0]} bytes")
    cdef const uint8_t* base = &view[0] if view.shape[0] else NULL
    cdef uint64_t offset = start, stop = end, count = 0, size = 0
    cdef int64_t slot
    cdef Parts parts
    while offset < stop and count < count_max and size < size_max:
        if not parse(base, offset, stop, seed, True, &parts) or not is_sound(base, offset, &parts, seed):
            break
        offset = parts.end
        if parts.flags & NOT_MESSAGE:
            continue
        if not parts.subject_size:
            break
        slot = table.find_c(base + parts.subject_start, parts.subject_size)
        if slot < 0:
            break
        table.remove_c(<uint32_t>slot, parts.seq)
        size += size_fixed + parts.subject_size + parts.payload_size
        if parts.headers_size:
            size += size_headers + parts.headers_size
        count += 1
    return count, size


cdef inline uint8_t* _put_run(uint8_t* out, const uint8_t* base, uint64_t start, uint64_t end) noexcept nogil:
    if end > start:
        memcpy(out, base + start, end - start)
    return out + (end - start)


def copy_live(bytes head not None, data, const uint32_t[::1] offsets not None, seqs, uint64_t seed,
              const uint64_t[::1] starts not None, const uint64_t[::1] ends not None):
    """`head`, then those messages of a scan that are not gone, and where each of them starts; see `scan.py`."""
    check_copy(offsets.shape[0], len(seqs), starts.shape[0], ends.shape[0])
    cdef const uint8_t[::1] view = data
    cdef const uint64_t[::1] seq_view = None if isinstance(seqs, range) else seqs
    cdef uint64_t base_seq = seqs[0] if len(seqs) else 0, seq, size = view.shape[0], run_start = 0, run_end = 0
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head), gap = 0, gap_count = ends.shape[0], count = 0, i
    cdef bytearray out = PyByteArray_FromStringAndSize(NULL, head_size + size)
    cdef uint8_t* base_out = <uint8_t*>PyByteArray_AS_STRING(out)
    cdef uint8_t* at = base_out + head_size
    cdef const uint8_t* base = &view[0] if size else NULL
    cdef array.array places = array.clone(_U32, offsets.shape[0], zero=False)
    cdef uint32_t* place_out = places.data.as_uints
    cdef bint is_sound_so_far = True
    cdef Parts parts
    memcpy(base_out, PyBytes_AS_STRING(head), head_size)
    with nogil:
        for i in range(offsets.shape[0]):
            seq = base_seq + <uint64_t>i if seq_view is None else seq_view[i]
            while gap < gap_count and ends[gap] < seq:
                gap += 1
            if gap < gap_count and starts[gap] <= seq:
                continue
            if offsets[i] < run_end or not parse(base, offsets[i], size, seed, True, &parts):
                is_sound_so_far = False
                break
            if offsets[i] != run_end:  # what lies between is left out: copy what was before it
                at = _put_run(at, base, run_start, run_end)
                run_start = offsets[i]
            place_out[count] = <uint32_t>(at - base_out + <Py_ssize_t>(offsets[i] - run_start))
            count += 1
            run_end = parts.end
        at = _put_run(at, base, run_start, run_end)
    if not is_sound_so_far:
        raise ValueError(f"no message at offset {offsets[i]}")
    array.resize(places, count)
    PyByteArray_Resize(out, at - base_out)
    return out, places
