"""Messages that were delivered and not yet acknowledged, compiled. `_ack_pending_py.py` is the reference.

Three parallel arrays in order of delivery: stream sequence, consumer sequence, time. Entries head..tail-1 are in use; one
whose consumer sequence is 0 was removed. Always true: the entry at head is not a removed one, and `count` of those in
use are not. When the arrays are full, removed entries are squeezed out, and they grow if most are in use.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp

import array

from jetlake.jetstream.consumers import _ack_pending_py as _reference
from jetlake.ops import OP_WORDS
from jetlake.ops cimport PubOp

cdef int64_t TIME_MAX_NS = _reference.TIME_MAX_NS
cdef int NUMBER_SIZE_MAX = _reference._NUMBER_SIZE_MAX
cdef int ACK_NUMBERS = _reference._ACK_NUMBERS
cdef array.array _U64 = array.array("Q")
cdef Py_ssize_t CAPACITY_MIN = 64
cdef enum:
    ENTRY_SIZE_MAX = 30             # three varints
assert sizeof(PubOp) == 4 * OP_WORDS


cdef inline uint8_t* _put_varint(uint8_t* out, uint64_t number) noexcept nogil:
    while number >= 0x80:
        out[0] = <uint8_t>(number | 0x80)
        number >>= 7
        out += 1
    out[0] = <uint8_t>number
    return out + 1


cdef class AckPending:
    cdef uint64_t* seqs
    cdef uint64_t* consumer_seqs
    cdef int64_t* times
    cdef Py_ssize_t head, tail, capacity, count
    cdef uint64_t last

    def __dealloc__(self):
        free(self.seqs)
        free(self.consumer_seqs)
        free(self.times)

    def __len__(self):
        return self.count

    cdef int _reserve(self, Py_ssize_t extra) except -1:
        """Make room for more entries at the tail."""
        cdef Py_ssize_t place, kept = 0, capacity
        cdef void* grown
        if extra <= self.capacity - self.tail:
            return 0
        for place in range(self.head, self.tail):
            if self.consumer_seqs[place]:
                self.seqs[kept] = self.seqs[place]
                self.consumer_seqs[kept] = self.consumer_seqs[place]
                self.times[kept] = self.times[place]
                kept += 1
        self.head, self.tail = 0, kept
        capacity = max(self.capacity, CAPACITY_MIN)
        while capacity < 2 * (kept + extra):  # so that squeezing out costs a constant amount per entry
            capacity *= 2
        if capacity == self.capacity:
            return 0
        for_each = (8 * capacity)
        grown = realloc(self.seqs, for_each)
        if grown == NULL:
            raise MemoryError()
        self.seqs = <uint64_t*>grown
        grown = realloc(self.consumer_seqs, for_each)
        if grown == NULL:
            raise MemoryError()
        self.consumer_seqs = <uint64_t*>grown
        grown = realloc(self.times, for_each)
        if grown == NULL:
            raise MemoryError()
        self.times = <int64_t*>grown
        self.capacity = capacity
        return 0

    cdef Py_ssize_t _place_from(self, uint64_t seq) noexcept:
        """The first place whose sequence is not below one; tail when there is none."""
        cdef Py_ssize_t low = self.head, high = self.tail, middle
        if low == high or seq <= self.seqs[low]:
            return low
        # Sequences without gaps lie where they belong; with gaps they lie before that.
        if seq - self.seqs[low] < <uint64_t>(high - low):
            middle = low + <Py_ssize_t>(seq - self.seqs[low])
            if self.seqs[middle] == seq:
                return middle
            high = middle
        while low < high:
            middle = low + (high - low) // 2
            if self.seqs[middle] < seq:
                low = middle + 1
            else:
                high = middle
        return low

    cdef inline Py_ssize_t _find(self, uint64_t seq) noexcept:
        """The place of a pending message; -1 when it is not pending."""
        cdef Py_ssize_t place = self._place_from(seq)
        if place < self.tail and self.seqs[place] == seq and self.consumer_seqs[place]:
            return place
        return -1

    cdef inline void _remove_at(self, Py_ssize_t place) noexcept:
        self.consumer_seqs[place] = 0
        self.count -= 1
        while self.head < self.tail and not self.consumer_seqs[self.head]:
            self.head += 1

    def add_run(self, seqs, uint64_t consumer_seq, int64_t time_ns):
        """Add messages that were delivered together, in order; the first one got this consumer sequence."""
        cdef array.array given = seqs
        cdef Py_ssize_t size = len(given), i
        cdef uint64_t last = self.last
        if given.ob_descr.typecode != c"Q" or consumer_seq < 1:
            _reference.check_run(seqs, self.last, consumer_seq)
        for i in range(size):
            if given.data.as_ulonglongs[i] <= last:
                _reference.check_run(seqs, self.last, consumer_seq)
            last = given.data.as_ulonglongs[i]
        self._reserve(size)
        for i in range(size):
            self.seqs[self.tail + i] = given.data.as_ulonglongs[i]
            self.consumer_seqs[self.tail + i] = consumer_seq + <uint64_t>i
            self.times[self.tail + i] = time_ns
        self.tail += size
        self.count += size
        self.last = last

    def consumer_seq(self, uint64_t seq):
        """The consumer sequence of a pending message; 0 when it is not pending."""
        cdef Py_ssize_t place = self._find(seq)
        return 0 if place < 0 else self.consumer_seqs[place]

    def time_ns(self, uint64_t seq):
        """The time of a pending message; 0 when it is not pending."""
        cdef Py_ssize_t place = self._find(seq)
        return 0 if place < 0 else self.times[place]

    def touch(self, uint64_t seq, int64_t time_ns):
        """Give a pending message another time; False when it is not pending."""
        cdef Py_ssize_t place = self._find(seq)
        if place < 0:
            return False
        self.times[place] = time_ns
        return True

    def remove(self, uint64_t seq):
        """Remove a message; its consumer sequence, 0 when it was not pending."""
        cdef Py_ssize_t place = self._find(seq)
        cdef uint64_t found
        if place < 0:
            return 0
        found = self.consumer_seqs[place]
        self._remove_at(place)
        return found

    def remove_many(self, seqs, Py_ssize_t count):
        """Remove the first `count` of some sequences; those that were pending, so many, move to the front."""
        cdef array.array given = seqs
        cdef Py_ssize_t i, place, removed = 0
        if given.ob_descr.typecode != c"Q" or not 0 <= count <= len(given):
            raise IndexError(f"{count} of {len(given)} sequences")
        for i in range(count):
            place = self._find(given.data.as_ulonglongs[i])
            if place >= 0:
                self._remove_at(place)
                given.data.as_ulonglongs[removed] = given.data.as_ulonglongs[i]
                removed += 1
        return removed

    def remove_through(self, uint64_t last):
        """Remove all up to a stream sequence; which they were."""
        cdef array.array removed = array.clone(_U64, self.count, False)
        cdef Py_ssize_t found = 0, place = self.head
        while place < self.tail and self.seqs[place] <= last:
            if self.consumer_seqs[place]:
                removed.data.as_ulonglongs[found] = self.seqs[place]
                found += 1
            place += 1
        self.count -= found
        self.head = place
        while self.head < self.tail and not self.consumer_seqs[self.head]:
            self.head += 1
        array.resize(removed, found)
        return removed

    def first(self):
        """The stream and consumer sequence of the smallest one; zeros when nothing is pending."""
        if not self.count:
            return 0, 0
        return self.seqs[self.head], self.consumer_seqs[self.head]

    def overdue(self, uint64_t first, uint64_t last, int64_t limit_ns):
        """Those of first..last whose time is not after a limit, and the earliest time among the others."""
        cdef Py_ssize_t place = self._place_from(first), begin = place, found = 0
        cdef int64_t earliest_ns = TIME_MAX_NS
        while place < self.tail and self.seqs[place] <= last:
            if self.consumer_seqs[place]:
                if self.times[place] <= limit_ns:
                    found += 1
                elif self.times[place] < earliest_ns:
                    earliest_ns = self.times[place]
            place += 1
        cdef array.array overdue = array.clone(_U64, found, False)
        cdef Py_ssize_t end = place
        found = 0
        for place in range(begin, end):
            if self.consumer_seqs[place] and self.times[place] <= limit_ns:
                overdue.data.as_ulonglongs[found] = self.seqs[place]
                found += 1
        return overdue, earliest_ns

    def entries(self):
        """Stream sequence, consumer sequence and time of each, ascending."""
        cdef Py_ssize_t place
        return [
            (self.seqs[place], self.consumer_seqs[place], self.times[place])
            for place in range(self.head, self.tail)
            if self.consumer_seqs[place]
        ]

    def pack(self, uint64_t stream_seq, uint64_t consumer_seq, uint64_t stream_max, uint64_t consumer_max):
        """How many there are, the earliest time, and their entries as `store.consumer_state` has them in its file."""
        cdef Py_ssize_t place
        cdef int64_t base_ns = TIME_MAX_NS
        cdef uint8_t* data
        cdef uint8_t* out
        if not self.count:
            return 0, 0, b""
        data = out = <uint8_t*>malloc(self.count * ENTRY_SIZE_MAX)
        if data == NULL:
            raise MemoryError()
        try:
            for place in range(self.head, self.tail):
                if self.consumer_seqs[place]:
                    base_ns = min(base_ns, self.times[place])
            for place in range(self.head, self.tail):
                if self.consumer_seqs[place]:
                    if self.seqs[place] <= stream_seq or self.consumer_seqs[place] <= consumer_seq:
                        raise ValueError(_reference.misplaced(self.seqs[place], self.consumer_seqs[place]))
                    out = _put_varint(out, self.seqs[place] - stream_seq)
                    out = _put_varint(out, self.consumer_seqs[place] - consumer_seq)
                    out = _put_varint(out, <uint64_t>self.times[place] - <uint64_t>base_ns)
                    stream_seq, consumer_seq = self.seqs[place], self.consumer_seqs[place]
            if stream_seq > stream_max or consumer_seq > consumer_max:
                raise ValueError(_reference.misplaced(stream_seq, consumer_seq))
            return self.count, base_ns, PyBytes_FromStringAndSize(<const char*>data, out - data)
        finally:
            free(data)

    def clear(self):
        """Forget everything."""
        self.head = self.tail = self.count = 0
        self.last = 0


cdef bint _is_ack(const uint8_t* payload, uint32_t size) noexcept nogil:
    if size == 0:
        return True
    return (size == 4 and memcmp(payload, b"+ACK", 4) == 0) or (size == 3 and memcmp(payload, b"+OK", 3) == 0)


cdef bint _numbers(const uint8_t* text, const uint8_t* end, uint64_t* numbers) noexcept nogil:
    """Read numbers with dots between them, and nothing else; False when they are not there."""
    cdef int found = 0, digits = 0
    cdef uint64_t number = 0
    while True:
        if text == end or text[0] == c".":
            if digits == 0 or found == ACK_NUMBERS:
                return False
            numbers[found] = number
            found += 1
            number, digits = 0, 0
            if text == end:
                return found == ACK_NUMBERS
        elif c"0" <= text[0] <= c"9" and digits < NUMBER_SIZE_MAX:
            number = number * 10 + (text[0] - c"0")
            digits += 1
        else:
            return False
        text += 1


def parse_acks(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes prefix, seqs, consumer_seqs):
    """Read operations from the first one on for as long as they are plain acks of one consumer; where that ends."""
    cdef const uint8_t[::1] view = data
    cdef uint32_t[::1] words = ops
    cdef array.array stream_out = seqs, consumer_out = consumer_seqs
    cdef Py_ssize_t size = view.shape[0], prefix_size = len(prefix), number
    cdef const uint8_t* wanted = prefix
    cdef const uint8_t* source
    cdef const PubOp* op
    cdef uint64_t[5] numbers
    if (
        not 0 <= first <= stop
        or stop * OP_WORDS > words.shape[0]
        or stream_out.ob_descr.typecode != c"Q"
        or consumer_out.ob_descr.typecode != c"Q"
        or min(len(stream_out), len(consumer_out)) < stop - first
    ):
        _reference.check_acks(ops, first, stop, seqs, consumer_seqs)
    if first == stop:
        return stop
    source = &view[0] if size else wanted
    op = <const PubOp*>&words[0]
    for number in range(first, stop):
        if (
            <Py_ssize_t>op[number].subject_start + op[number].subject_size > size
            or <Py_ssize_t>op[number].payload_start + op[number].payload_size > size
        ):
            raise IndexError(f"operation {number} reaches beyond {size} bytes")
        if op[number].reply_size or op[number].headers_size or op[number].subject_size <= prefix_size:
            return number
        if not _is_ack(source + op[number].payload_start, op[number].payload_size):
            return number
        text = source + op[number].subject_start
        if memcmp(text, wanted, prefix_size) != 0:
            return number
        if not _numbers(text + prefix_size, text + op[number].subject_size, numbers):
            return number
        stream_out.data.as_ulonglongs[number - first] = numbers[1]
        consumer_out.data.as_ulonglongs[number - first] = numbers[2]
    return stop
