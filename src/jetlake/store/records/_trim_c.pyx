"""Take many messages out of a stream at once, compiled. `_trim_py.py` is the reference."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport UINT32_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from array import array as make_array

from jetlake.store.records import _trim_py as _py
from jetlake.store.records._record_c cimport NOT_MESSAGE, Parts, is_sound, parse
from jetlake.store.index._subject_entry cimport FIRST_STALE, Entry, subject_of
from jetlake.store.index._subject_table_c cimport SubjectTable

cdef enum:
    VARINT_SIZE_MAX = 10

cdef array.array _U32 = make_array("I")
cdef array.array _U64 = make_array("Q")


cdef inline uint64_t* _u64(array.array column) noexcept:
    return <uint64_t*>column.data.as_voidptr


def oldest_known(SubjectTable table not None, slots not None, uint64_t count_max, bytearray need not None):
    """By which messages subjects exceed `count_max`, as far as the table knows; see `_trim_py`."""
    _py.check_need(need, table.slot_limit)
    cdef uint32_t* needs = <uint32_t*>PyByteArray_AS_STRING(need)
    cdef array.array seqs = array.clone(_U64, len(slots), zero=False)
    cdef Py_ssize_t count = 0
    cdef uint64_t left = 0, low = UINT64_MAX, excess
    cdef Entry* entry
    for slot in slots:
        entry = table._entry(slot)
        if entry.count <= count_max:
            continue
        excess = entry.count - count_max
        if excess == 1 and not entry.flags & FIRST_STALE:
            _u64(seqs)[count] = entry.first
            count += 1
            continue
        if excess > UINT32_MAX:
            raise OverflowError(f"{excess} messages of one subject")
        left += excess - needs[entry.slot]
        needs[entry.slot] = <uint32_t>excess
        low = min(low, entry.first)
    array.resize(seqs, count)
    return seqs, left, low


def oldest_in(const uint32_t[::1] ids not None, Py_ssize_t place, Py_ssize_t stop, const uint32_t[::1] seqs,
              uint64_t base_seq, const uint64_t[::1] starts not None, const uint64_t[::1] ends not None,
              bytearray need not None, Py_ssize_t left):
    """Find needed messages among those at place..stop-1 that are not gone; see `_trim_py`."""
    _py.check_columns(ids.shape[0], place, stop, None if seqs is None else seqs.shape[0], starts.shape[0],
                      ends.shape[0])
    cdef uint32_t* needs = <uint32_t*>PyByteArray_AS_STRING(need)
    cdef uint64_t slot_limit = PyByteArray_GET_SIZE(need) // 4, seq
    cdef array.array found = array.clone(_U64, min(left, stop - place), zero=False)
    cdef Py_ssize_t count = 0, gap = 0, gap_count = ends.shape[0], position
    cdef uint32_t slot
    for position in range(place, stop):
        if count == left:
            break
        slot = ids[position]
        if slot >= slot_limit or needs[slot] == 0:
            continue
        seq = base_seq + (<uint64_t>position if seqs is None else seqs[position])
        if count == 0 and gap == 0:
            gap = _from(ends, 0, seq)
        while gap < gap_count and ends[gap] < seq:
            gap += 1
        if gap == gap_count or seq < starts[gap]:
            needs[slot] -= 1
            _u64(found)[count] = seq
            count += 1
    array.resize(found, count)
    return found


cdef Py_ssize_t _from(const uint64_t[::1] column, Py_ssize_t low, uint64_t value) noexcept nogil:
    """The first place, from `low` on, of a column in order that holds this value or a higher one."""
    cdef Py_ssize_t high = column.shape[0], middle
    while low < high:
        middle = low + (high - low) // 2
        if column[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def locate(const uint64_t[::1] wanted not None, const uint32_t[::1] seqs, uint64_t base_seq, Py_ssize_t count):
    """The positions of some sequences in an index of `count` messages; see `_trim_py`."""
    if count < 0 or (seqs is not None and count > seqs.shape[0]):
        raise IndexError(f"no {count} messages")
    cdef array.array positions = array.clone(_U32, wanted.shape[0], zero=False)
    cdef Py_ssize_t i, low = 0, high, middle
    cdef uint64_t distance
    for i in range(wanted.shape[0]):
        distance = wanted[i] - base_seq
        if seqs is None:
            low = <Py_ssize_t>distance if distance < <uint64_t>count else count
        else:
            high = count
            while low < high:
                middle = low + (high - low) // 2
                if seqs[middle] < distance:
                    low = middle + 1
                else:
                    high = middle
        if wanted[i] < base_seq or low == count or (seqs is not None and seqs[low] != distance):
            raise LookupError(f"sequence {wanted[i]} is not in the index")
        positions.data.as_uints[i] = <uint32_t>low
    return positions


def measure_at(const uint8_t[::1] data not None, uint64_t base, const uint32_t[::1] offsets not None,
               Py_ssize_t count, uint64_t body_size, uint64_t seed, const uint32_t[::1] positions not None,
               Py_ssize_t place, const uint64_t[::1] wanted not None, SubjectTable table not None,
               uint64_t size_fixed, uint64_t size_headers, uint32_t[::1] slots not None, uint64_t[::1] sizes not None):
    """Fill in slots and sizes of messages, up to one that is damaged or beyond the data; see `_trim_py`."""
    _check_places(offsets, count, positions, place, wanted, slots, sizes)
    cdef const uint8_t* source = &data[0] if data.shape[0] else NULL
    cdef uint64_t source_end = base + <uint64_t>data.shape[0], offset, end
    cdef uint32_t position
    cdef int64_t slot
    cdef Parts parts
    while place < positions.shape[0]:
        position = positions[place]
        offset = offsets[position]
        end = min(offsets[position + 1] if <Py_ssize_t>position + 1 < count else body_size, source_end)
        if (not base <= offset < end or not parse(source, offset - base, end - base, seed, True, &parts)
                or parts.seq != wanted[place] or parts.flags & NOT_MESSAGE or not parts.subject_size
                or not is_sound(source, offset - base, &parts, seed)):
            break
        slot = table.find_c(source + parts.subject_start, parts.subject_size)
        if slot < 0:
            break
        slots[place] = <uint32_t>slot
        sizes[place] = _size_of(&parts, size_fixed, size_headers)
        place += 1
    return place


def message_size(const uint8_t[::1] data not None, Py_ssize_t start, Py_ssize_t end, uint64_t seed,
                 uint64_t size_fixed, uint64_t size_headers):
    """How large JetStream counts the message at data[start:end]; -1 when there is none, or a damaged one."""
    cdef Parts parts
    if not 0 <= start <= end:
        raise IndexError(f"message range {start}..{end} of {data.shape[0]} bytes")
    end = min(end, data.shape[0])
    if start >= end or not parse(&data[0], start, end, seed, True, &parts) or parts.flags & NOT_MESSAGE:
        return -1
    if not is_sound(&data[0], start, &parts, seed):
        return -1
    return _size_of(&parts, size_fixed, size_headers)


cdef inline uint64_t _size_of(Parts* parts, uint64_t size_fixed, uint64_t size_headers) noexcept nogil:
    cdef uint64_t size = size_fixed + parts.subject_size + parts.payload_size
    return size + size_headers + parts.headers_size if parts.headers_size else size


cdef int _check_places(const uint32_t[::1] offsets, Py_ssize_t count, const uint32_t[::1] positions, Py_ssize_t place,
                       const uint64_t[::1] wanted, uint32_t[::1] slots, uint64_t[::1] sizes) except -1:
    cdef Py_ssize_t i, room = min(wanted.shape[0], slots.shape[0], sizes.shape[0])
    cdef bint is_good = 0 <= place <= positions.shape[0] <= room and 0 <= count <= offsets.shape[0]
    if is_good:
        for i in range(place, positions.shape[0]):
            is_good &= <Py_ssize_t>positions[i] < count
    if not is_good:
        _py.check_places(offsets, count, positions, place, wanted.shape[0], slots.shape[0], sizes.shape[0])
        raise AssertionError("the twins disagree")
    return 0


def leave(SubjectTable table not None, const uint32_t[::1] slots not None, const uint64_t[::1] wanted not None,
          const uint64_t[::1] sizes not None, Py_ssize_t start, Py_ssize_t stop, dict subjects, bint are_oldest):
    """Take messages start..stop-1 out of the table; see `_trim_py`."""
    if not 0 <= start <= stop <= min(slots.shape[0], wanted.shape[0], sizes.shape[0]):
        raise IndexError(f"messages {start}..{stop} of {slots.shape[0]}")
    cdef uint64_t total = 0, run_total = 0
    cdef Py_ssize_t i, run_start = start
    cdef Entry* entry
    cdef bytes subject = None
    for i in range(start, stop):
        entry = table.live_c(slots[i])
        if entry == NULL:
            raise IndexError(f"slot {slots[i]} is not in use")
        if subjects is not None and (subject is None or slots[i] != slots[i - 1]):
            # Messages of one subject in a row are noted together. Its entry may be gone after the last of them.
            note_loss(subjects, subject, i - run_start, total - run_total)
            subject = PyBytes_FromStringAndSize(<const char*>subject_of(entry), entry.size)
            run_start, run_total = i, total
        if are_oldest:
            table.remove_first_c(slots[i], wanted[i])
        else:
            table.remove_c(slots[i], wanted[i])
        total += sizes[i]
    note_loss(subjects, subject, stop - run_start, total - run_total)
    return total


cdef int note_loss(dict subjects, bytes subject, uint64_t count, uint64_t size) except -1:
    """Add to what a subject loses, if there is one."""
    if subject is not None:
        before = subjects.get(subject)
        subjects[subject] = (count, size) if before is None else (before[0] + count, before[1] + size)
    return 0


cdef inline uint8_t* _put_varint(uint8_t* out, uint64_t number) noexcept nogil:
    while number >= 0x80:
        out[0] = <uint8_t>(number | 0x80)
        number >>= 7
        out += 1
    out[0] = <uint8_t>number
    return out + 1


def encode_losses(dict subjects not None):
    """What each subject loses, as a removal group encodes it; see `_trim_py`."""
    cdef Py_ssize_t size = 0
    cdef bytes subject
    for subject in subjects:
        size += PyBytes_GET_SIZE(subject) + 3 * VARINT_SIZE_MAX
    out = bytearray(size)
    cdef uint8_t* start = <uint8_t*>PyByteArray_AS_STRING(out)
    cdef uint8_t* at = start
    for subject, (count, lost) in subjects.items():
        size = PyBytes_GET_SIZE(subject)
        at = _put_varint(at, size)
        memcpy(at, PyBytes_AS_STRING(subject), size)
        at = _put_varint(_put_varint(at + size, count), lost)
    return PyBytes_FromStringAndSize(<const char*>start, at - start)


cdef inline bint _get_varint(const uint8_t* data, Py_ssize_t* offset, Py_ssize_t end, uint64_t* value) noexcept nogil:
    """Read a number that fits into 64 bits and step over it; False when it is not one."""
    cdef Py_ssize_t at = offset[0]
    cdef int shift = 0
    value[0] = 0
    while at < end and shift < 7 * VARINT_SIZE_MAX:
        if shift == 63 and data[at] & 0x7F > 1:
            return False
        value[0] |= <uint64_t>(data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            offset[0] = at
            return True
        shift += 7
    return False


def skip_losses(bytes data not None, Py_ssize_t offset):
    """The offset after what subjects lose; see `_trim_py`."""
    cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t start = offset, end = PyBytes_GET_SIZE(data)
    cdef uint64_t count, number
    if not 0 <= offset <= end or not _get_varint(base, &offset, end, &count):
        return _py.skip_losses(data, start)  # raises, with the words of the reference
    while count:
        count -= 1
        if not _get_varint(base, &offset, end, &number) or number > <uint64_t>(end - offset):
            return _py.skip_losses(data, start)
        offset += number
        if not _get_varint(base, &offset, end, &number) or not _get_varint(base, &offset, end, &number):
            return _py.skip_losses(data, start)
    return offset
