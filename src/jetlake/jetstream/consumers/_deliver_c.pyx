"""Stored messages as frames for a consumer, compiled. `_deliver_py.py` is the reference.

A run's frames are written into one bytearray, which grows ahead of each message by the most that its frame can take.
Messages stored together have the same time, so its digits are kept from one message to the next.
"""

cimport cython
from cpython cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t

from array import array as make_array

from jetlake.jetstream.consumers import _deliver_py as _py
from jetlake.output cimport DIGITS_MAX, digit_count, put, put_byte, put_crlf, put_number, put_signed
from jetlake.store.records._record_c cimport NOT_MESSAGE, Parts, is_sound, parse
from jetlake.store.index._subject_entry cimport Entry, subject_of
from jetlake.store.index._subject_filter_c cimport SubjectFilter
from jetlake.store.index._subject_table_c cimport SubjectTable
from jetlake.store.index._subject_scan_py import check_live

cdef int END = _py.END, COUNT = _py.COUNT, SIZE = _py.SIZE, BEYOND = _py.BEYOND

cdef enum:
    UNKNOWN, NO, YES                # what a memo says of a slot
    FRAME_OVERHEAD_MAX = 256        # verb, spaces, line ends and seven numbers
    SEQS_MIN = 64

cdef const char* VERSION_LINE = b"NATS/1.0\r\n"
cdef const char* MSG_SIZE = b"Nats-Msg-Size: "
cdef array.array _U64 = make_array("Q")


# Choosing


cdef inline bint _matches(SubjectTable table, SubjectFilter filter, uint32_t slot, uint8_t* memo) noexcept nogil:
    cdef Entry* entry
    if slot >= table.slot_count or memo[slot] == NO:
        return False
    entry = table.live_c(slot)
    if entry == NULL:
        return False
    if memo[slot] == UNKNOWN:
        memo[slot] = YES if filter.matches_c(subject_of(entry), entry.size) else NO
    return memo[slot] == YES


cdef Py_ssize_t _first_gap(const uint64_t[::1] ends, uint64_t seq) noexcept nogil:
    """The first range that ends at this sequence or later."""
    cdef Py_ssize_t low = 0, high = ends.shape[0], middle
    while low < high:
        middle = low + (high - low) // 2
        if ends[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low


def select(
    SubjectTable table not None, SubjectFilter filter not None, const uint32_t[::1] ids not None, Py_ssize_t place,
    Py_ssize_t stop, const uint32_t[::1] seqs, uint64_t base_seq, const uint64_t[::1] starts not None,
    const uint64_t[::1] ends not None, bytearray memo not None, uint32_t[::1] out not None,
):
    """Write the positions of place..stop-1 that are live and match to `out`; see `_deliver_py.select`."""
    check_live(table, ids, stop, seqs, base_seq, 0, 0, starts, ends, memo)
    if place < 0:
        raise IndexError(f"place {place} of {ids.shape[0]} ids")
    cdef uint8_t* known = <uint8_t*>PyByteArray_AS_STRING(memo)
    cdef Py_ssize_t count = 0, gap, gap_count = ends.shape[0], room = out.shape[0]
    cdef bint is_all = filter.is_all
    cdef int64_t wanted = -1        # the only slot that can match
    cdef uint64_t seq
    if place >= stop or room == 0:
        return 0, place
    if not is_all and filter.item_count == 1 and filter.items[0].literal:
        wanted = table.find_c(filter.items[0].text, filter.items[0].size)
        if wanted < 0:
            return 0, stop
    gap = _first_gap(ends, base_seq + (<uint64_t>place if seqs is None else seqs[place]))
    while place < stop and count < room:
        if wanted >= 0:
            if ids[place] != <uint32_t>wanted:
                place += 1
                continue
        elif not is_all and not _matches(table, filter, ids[place], known):
            place += 1
            continue
        seq = base_seq + (<uint64_t>place if seqs is None else seqs[place])
        while gap < gap_count and ends[gap] < seq:
            gap += 1
        if gap == gap_count or seq < starts[gap]:
            out[count] = <uint32_t>place
            count += 1
        place += 1
    return count, place


# Writing


cdef struct Head:                   # the header block of a frame, in pieces
    uint32_t kept_size              # of the stored block
    bint is_new                     # starts with a version line of its own
    bint is_extended                # ends with a line end of its own
    uint32_t size                   # all of it
    uint32_t counted_size           # without the extra headers


@cython.final
cdef class Framer:
    """The frames of one run: the first has the consumer sequence given, and one of `num_pending` less behind it."""

    cdef bytes _middle              # what stands between a subject and a stream sequence
    cdef Py_ssize_t _reply_place    # where the ack reply starts in it
    cdef bytes extra_headers
    cdef readonly bint headers_only
    cdef readonly uint64_t consumer_seq, num_pending, count_max, size_max, count, size
    cdef readonly list damaged
    cdef bytearray _data
    cdef Py_ssize_t _used
    cdef array.array _seqs
    cdef int64_t _time_ns
    cdef uint8_t[DIGITS_MAX + 1] _time_text
    cdef int _time_size

    def __init__(self, bytes sid not None, bytes ack_prefix not None, consumer_seq, num_pending, count_max, size_max,
                 bint headers_only, bytes extra_headers not None):
        _py.check_framer(consumer_seq, num_pending, count_max, size_max)
        self._middle, self._reply_place = b" %s %s1." % (sid, ack_prefix), len(sid) + 2
        self.extra_headers, self.headers_only = extra_headers, headers_only
        self.consumer_seq, self.num_pending = consumer_seq, num_pending
        self.count_max, self.size_max = count_max, size_max
        self.count = self.size = 0
        self.damaged = []
        self._data, self._used = bytearray(), 0
        self._seqs = array.clone(_U64, 0, zero=False)
        self._time_ns, self._time_size = 0, 1
        self._time_text[0] = 48

    def take(self):
        """The frames and the sequences of their messages; the framer is of no use afterwards."""
        PyByteArray_Resize(self._data, self._used)
        array.resize(self._seqs, self.count)
        return self._data, self._seqs

    def frame(self, const uint8_t[::1] data not None, uint64_t base, const uint32_t[::1] offsets not None,
              Py_ssize_t index_count, uint64_t body_size, const uint32_t[::1] seqs, uint64_t base_seq, uint64_t seed,
              const uint32_t[::1] positions not None, Py_ssize_t place, Py_ssize_t stop):
        """Frame the messages at positions[place:stop] of a block's index; see `_deliver_py.Framer.frame`."""
        _check(offsets, index_count, seqs, positions, place, stop)
        cdef const uint8_t* source = &data[0] if data.shape[0] else NULL
        cdef uint64_t source_end = base + <uint64_t>data.shape[0], offset, end, seq
        cdef Py_ssize_t first = place
        cdef uint32_t position
        cdef Parts parts
        while place < stop:
            if self.count >= self.count_max:
                return place, COUNT
            position = positions[place]
            offset = offsets[position]
            end = offsets[position + 1] if <Py_ssize_t>position + 1 < index_count else body_size
            seq = base_seq + (position if seqs is None else seqs[position])
            if (base <= offset < source_end and parse(source, offset - base, min(end, source_end) - base, seed, True,
                                                      &parts)
                    and parts.seq == seq and not parts.flags & NOT_MESSAGE and parts.subject_size
                    and is_sound(source, offset - base, &parts, seed)):
                if not self._add(source, &parts):
                    return place, SIZE
            elif place > first and end > source_end:
                return place, BEYOND
            else:
                self.damaged.append(seq)
                self.num_pending -= self.num_pending > 0
            place += 1
        return place, END

    cdef bint _add(self, const uint8_t* source, Parts* parts) except -1:
        """Frame one message, unless it is too much."""
        cdef Head head = self._head(source, parts)
        cdef uint32_t payload_size = 0 if self.headers_only else parts.payload_size
        cdef uint64_t fixed_size = parts.subject_size + <uint64_t>head.size + payload_size
        cdef uint64_t pending = self.num_pending - (self.num_pending > 0), size
        self._reserve(fixed_size + PyBytes_GET_SIZE(self._middle) + FRAME_OVERHEAD_MAX)
        cdef uint8_t* out = <uint8_t*>PyByteArray_AS_STRING(self._data) + self._used
        cdef uint8_t* at = put(out, b"HMSG ", 5) if head.size else put(out, b"MSG ", 4)
        cdef uint8_t* reply
        at = put(at, source + parts.subject_start, parts.subject_size)
        reply = at + self._reply_place
        at = put(at, PyBytes_AS_STRING(self._middle), PyBytes_GET_SIZE(self._middle))
        at = put_byte(put_number(at, parts.seq), 46)
        at = put_byte(put_number(at, self.consumer_seq), 46)
        at = put_byte(self._put_time(at, parts.time_ns), 46)
        at = put_number(at, pending)
        size = parts.subject_size + <uint64_t>(at - reply) + head.counted_size + payload_size
        if size > self.size_max - self.size:
            return False
        at = put_byte(at, 32)
        if head.size:
            at = put_byte(put_number(at, head.size), 32)
        at = put_crlf(put_number(at, <uint64_t>head.size + payload_size))
        at = self._put_head(at, source, parts, &head)
        at = put_crlf(put(at, source + parts.payload_start, payload_size))
        self._used += at - out
        (<uint64_t*>self._seqs.data.as_voidptr)[self.count] = parts.seq
        self.count += 1
        self.size += size
        self.consumer_seq += 1
        self.num_pending = pending
        return True

    cdef int _reserve(self, uint64_t size) except -1:
        """Make room for a frame of at most this size, and for its sequence."""
        cdef uint64_t needed = <uint64_t>self._used + size
        if needed > <uint64_t>PyByteArray_GET_SIZE(self._data):
            PyByteArray_Resize(self._data, <Py_ssize_t>max(needed, 2 * <uint64_t>self._used))
        if self.count == <uint64_t>len(self._seqs):
            array.resize(self._seqs, max(2 * <Py_ssize_t>self.count, <Py_ssize_t>SEQS_MIN))
        return 0

    cdef Head _head(self, const uint8_t* source, Parts* parts) noexcept:
        """What the header block of a message's frame is made of."""
        cdef Head head
        cdef const uint8_t* end = source + parts.headers_start + parts.headers_size
        cdef uint32_t extra_size = <uint32_t>PyBytes_GET_SIZE(self.extra_headers)
        head.is_new = False
        head.is_extended = self.headers_only or extra_size > 0
        head.kept_size = head.size = head.counted_size = parts.headers_size
        if not head.is_extended:
            return head
        head.is_new = parts.headers_size <= 2
        if head.is_new:
            head.kept_size = 0
        elif (end - 2)[0] == 13 and (end - 1)[0] == 10:
            head.kept_size -= 2
        head.size = (10 if head.is_new else 0) + head.kept_size + 2
        if self.headers_only:
            head.size += 17 + digit_count(parts.payload_size)
            head.counted_size = head.size
        head.size += extra_size
        return head

    cdef uint8_t* _put_head(self, uint8_t* at, const uint8_t* source, Parts* parts, Head* head) noexcept:
        if head.is_new:
            at = put(at, VERSION_LINE, 10)
        at = put(at, source + parts.headers_start, head.kept_size)
        if self.headers_only:
            at = put_crlf(put_number(put(at, MSG_SIZE, 15), parts.payload_size))
        if head.is_extended:
            at = put(at, PyBytes_AS_STRING(self.extra_headers), PyBytes_GET_SIZE(self.extra_headers))
            at = put_crlf(at)
        return at

    cdef uint8_t* _put_time(self, uint8_t* at, int64_t time_ns) noexcept:
        if time_ns != self._time_ns:
            self._time_ns = time_ns
            self._time_size = <int>(put_signed(self._time_text, time_ns) - self._time_text)
        return put(at, self._time_text, self._time_size)


cdef int _check(const uint32_t[::1] offsets, Py_ssize_t index_count, const uint32_t[::1] seqs,
                const uint32_t[::1] positions, Py_ssize_t place, Py_ssize_t stop) except -1:
    cdef Py_ssize_t i
    cdef bint is_good = (0 <= place <= stop <= positions.shape[0] and 0 <= index_count <= offsets.shape[0]
                         and index_count <= UINT32_MAX and (seqs is None or seqs.shape[0] >= index_count))
    if is_good:
        for i in range(place, stop):
            is_good &= <Py_ssize_t>positions[i] < index_count
    if not is_good:
        _py.check_frame(offsets, index_count, seqs, positions, place, stop)
        raise AssertionError("the twins disagree")
    return 0
