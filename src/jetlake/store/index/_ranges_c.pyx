"""Loops over the ranges of a SequenceSet, compiled. `_ranges_py.py` is the reference."""

from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport UINT64_MAX, uint8_t, uint64_t

from array import array as make_array

from jetlake.store.index import _ranges_py as _py

cdef enum:
    VARINT_SIZE_MAX = 10
    NUMBER_SIZE_MAX = 20            # decimal digits

cdef array.array _U64 = make_array("Q")


cdef inline uint64_t* _u64(array.array column) noexcept:
    return <uint64_t*>column.data.as_voidptr


cdef object _count(array.array starts, array.array ends, Py_ssize_t count):
    """How many sequences some ranges hold."""
    cdef uint64_t total = 0
    cdef Py_ssize_t i
    if count == 1 and _u64(starts)[0] == 0 and _u64(ends)[0] == UINT64_MAX:
        return 2**64
    for i in range(count):
        total += _u64(ends)[i] - _u64(starts)[i] + 1
    return total


def merge_ranges(const uint64_t[::1] starts not None, const uint64_t[::1] ends not None,
                 const uint64_t[::1] firsts not None, const uint64_t[::1] lasts not None):
    """The ranges of both, as one set; see `_ranges_py`."""
    _py.check_columns(starts.shape[0], ends.shape[0])
    _py.check_columns(firsts.shape[0], lasts.shape[0])
    cdef Py_ssize_t ours = starts.shape[0], theirs = firsts.shape[0], i = 0, j = 0, count = 0
    cdef array.array new_starts = array.clone(_U64, ours + theirs, zero=False)
    cdef array.array new_ends = array.clone(_U64, ours + theirs, zero=False)
    cdef uint64_t* first_out = _u64(new_starts)
    cdef uint64_t* last_out = _u64(new_ends)
    cdef uint64_t first, last
    while i < ours or j < theirs:
        if j == theirs or (i < ours and starts[i] <= firsts[j]):
            first, last = starts[i], ends[i]
            i += 1
        else:
            first, last = firsts[j], lasts[j]
            j += 1
        if count and (first <= last_out[count - 1] or first - 1 == last_out[count - 1]):
            last_out[count - 1] = max(last_out[count - 1], last)
        else:
            first_out[count], last_out[count] = first, last
            count += 1
    array.resize(new_starts, count)
    array.resize(new_ends, count)
    return new_starts, new_ends, _count(new_starts, new_ends, count)


def seqs_within(const uint64_t[::1] starts not None, const uint64_t[::1] ends not None,
                const uint64_t[::1] seqs not None):
    """Those of some sequences, in ascending order, that lie in a range."""
    _py.check_columns(starts.shape[0], ends.shape[0])
    cdef Py_ssize_t ranges = ends.shape[0], place = 0, count = 0, i
    cdef array.array found = array.clone(_U64, seqs.shape[0], zero=False)
    cdef uint64_t* out = _u64(found)
    for i in range(seqs.shape[0]):
        while place < ranges and ends[place] < seqs[i]:
            place += 1
        if place == ranges:
            break
        if starts[place] <= seqs[i]:
            out[count] = seqs[i]
            count += 1
    array.resize(found, count)
    return found


cdef inline uint8_t* _put_varint(uint8_t* out, uint64_t number) noexcept nogil:
    while number >= 0x80:
        out[0] = <uint8_t>(number | 0x80)
        number >>= 7
        out += 1
    out[0] = <uint8_t>number
    return out + 1


def encode_ranges(const uint64_t[::1] starts not None, const uint64_t[::1] ends not None):
    """For each range, how far it is from the one before it, and its length less one."""
    _py.check_columns(starts.shape[0], ends.shape[0])
    out = bytearray(2 * VARINT_SIZE_MAX * starts.shape[0])
    cdef uint8_t* start = <uint8_t*>PyByteArray_AS_STRING(out)
    cdef uint8_t* at = start
    cdef uint64_t previous = 0
    cdef Py_ssize_t i
    for i in range(starts.shape[0]):
        at = _put_varint(_put_varint(at, starts[i] - previous), ends[i] - starts[i])
        previous = ends[i]
    return PyBytes_FromStringAndSize(<const char*>start, at - start)


cdef inline uint8_t* _put_number(uint8_t* out, uint64_t number) noexcept nogil:
    cdef uint8_t digits[NUMBER_SIZE_MAX]
    cdef int count = 0
    while True:
        digits[count] = <uint8_t>(c'0' + number % 10)
        count += 1
        number //= 10
        if number == 0:
            break
    while count:
        count -= 1
        out[0] = digits[count]
        out += 1
    return out


def seqs_json(const uint64_t[::1] starts not None, const uint64_t[::1] ends not None, Py_ssize_t count_max):
    """A JSON array of the sequences in ranges, the first so many of them."""
    _py.check_columns(starts.shape[0], ends.shape[0])
    cdef uint64_t left = 0, most = max(count_max, 0), seq, last
    cdef Py_ssize_t i
    for i in range(starts.shape[0]):
        left = most if ends[i] - starts[i] >= most - left else left + ends[i] - starts[i] + 1
        if left == most:
            break
    out = bytearray((NUMBER_SIZE_MAX + 1) * left + 2)
    cdef uint8_t* start = <uint8_t*>PyByteArray_AS_STRING(out)
    cdef uint8_t* at = start + 1
    start[0] = c'['
    i = 0
    while left:
        seq, last = starts[i], ends[i]
        i += 1
        while left:
            at = _put_number(at, seq)
            at[0] = c','
            at += 1
            left -= 1
            if seq == last:
                break
            seq += 1
    at -= at > start + 1            # the last comma
    at[0] = c']'
    return PyBytes_FromStringAndSize(<const char*>start, at + 1 - start)


cdef inline bint _get_varint(const uint8_t* data, Py_ssize_t* offset, Py_ssize_t end, uint64_t* value) noexcept nogil:
    """Read a number in its shortest form and step over it; False when it is not one."""
    cdef Py_ssize_t at = offset[0]
    cdef int shift = 0
    value[0] = 0
    while at < end and shift < 7 * VARINT_SIZE_MAX:
        if shift == 63 and data[at] > 1:
            return False
        value[0] |= <uint64_t>(data[at] & 0x7F) << shift
        if data[at] < 0x80:
            offset[0] = at + 1
            return data[at] != 0 or shift == 0
        at += 1
        shift += 7
    return False


def decode_ranges(bytes data not None, Py_ssize_t offset, Py_ssize_t range_count):
    """So many ranges from an offset on, how many sequences they hold, and the offset after them."""
    cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t start = offset, end = PyBytes_GET_SIZE(data), i
    if not (0 <= offset <= end and 0 <= range_count <= (end - offset) // 2):
        return _refuse(data, start, range_count)
    cdef array.array starts = array.clone(_U64, range_count, zero=False)
    cdef array.array ends = array.clone(_U64, range_count, zero=False)
    cdef uint64_t previous = 0, gap, extra
    for i in range(range_count):
        if not _get_varint(source, &offset, end, &gap) or not _get_varint(source, &offset, end, &extra):
            return _refuse(data, start, range_count)
        if (i and gap < 2) or gap > UINT64_MAX - previous or extra > UINT64_MAX - previous - gap:
            return _refuse(data, start, range_count)
        _u64(starts)[i] = previous + gap
        previous += gap + extra
        _u64(ends)[i] = previous
    return starts, ends, _count(starts, ends, range_count), offset


def _refuse(data, offset, range_count):
    """Raise in the words of the reference."""
    _py.decode_ranges(data, offset, range_count)
    raise AssertionError("the twins disagree")
