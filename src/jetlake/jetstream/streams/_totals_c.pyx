"""Totals of counters, compiled. `_totals_py.py` is the reference.

Totals stand in an array, at the slots of their subjects.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memset

from jetlake import ops as _ops
from jetlake.jetstream.streams import _msg_ids_py as _ids
from jetlake.jetstream.streams import _totals_py as _twin
from jetlake.jetstream.streams._members_c import moved
from jetlake.jetstream.streams._msg_ids_py import check_door
from jetlake.broker._frames_c cimport is_reply_to, put_space
from jetlake.buffers cimport bytes_of
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.output cimport digit_count, put, put_byte, put_crlf, put_number
from jetlake.store.index._subject_entry cimport LAST_STALE, Entry
from jetlake.store.index._subject_table_c cimport SubjectTable

cdef uint32_t OP_ADMITTED = _ops.OP_ADMITTED
cdef const uint8_t* PLAIN_BLOCK = _ids.PLAIN_BLOCK
cdef Py_ssize_t PLAIN_BLOCK_SIZE = len(_ids.PLAIN_BLOCK)
cdef const uint8_t* RESERVED = _ids.RESERVED
cdef Py_ssize_t RESERVED_SIZE = len(_ids.RESERVED)
cdef const uint8_t* FAST_SUFFIX = _ids.FAST_SUFFIX
cdef uint32_t FAST_SUFFIX_SIZE = len(_ids.FAST_SUFFIX)
cdef const uint8_t* LINE = _twin.LINE
cdef Py_ssize_t LINE_SIZE = len(_twin.LINE)
cdef Py_ssize_t DIGITS_MAX = _twin.DIGITS_MAX
cdef int64_t TOTAL_MAX = _twin.TOTAL_MAX
cdef Py_ssize_t HEADERS_SIZE_MAX = _ids.HEADERS_SIZE_MAX

cdef enum:
    PAYLOAD_SIZE_MAX = 32           # brackets, name, sign and digits

cdef extern from "string.h":
    void* memmem(const void* text, size_t size, const void* part, size_t part_size) nogil

cdef struct Total:
    uint64_t seq                    # where it stands; 0: it is not known
    int64_t value


cdef inline bint lies_within(uint32_t start, uint32_t size, uint64_t end) noexcept nogil:
    return start <= end and size <= end - start


cdef inline bint is_placed(PubOp* op, uint64_t end) noexcept nogil:
    return (lies_within(op.subject_start, op.subject_size, end) and lies_within(op.reply_start, op.reply_size, end)
            and lies_within(op.headers_start, op.headers_size, end)
            and lies_within(op.payload_start, op.payload_size, end))


cdef bint read_increment(const uint8_t* data, PubOp* op, int64_t* increment) noexcept nogil:
    """How much a message adds; False when it needs more of a look."""
    cdef const uint8_t* block = data + op.headers_start
    cdef const uint8_t* end = block + op.headers_size
    cdef const uint8_t* at
    cdef Py_ssize_t digits = 0
    cdef bint is_negative
    if op.payload_size or op.headers_size > HEADERS_SIZE_MAX or op.headers_size < PLAIN_BLOCK_SIZE:
        return False
    if memcmp(block, PLAIN_BLOCK, PLAIN_BLOCK_SIZE) != 0:
        return False
    at = <const uint8_t*>memmem(block, op.headers_size, RESERVED, RESERVED_SIZE)
    if at == NULL or end - at < LINE_SIZE or memcmp(at, LINE, LINE_SIZE) != 0:
        return False
    if memmem(at + 2, end - at - 2, RESERVED, RESERVED_SIZE) != NULL:
        return False
    if op.reply_size >= FAST_SUFFIX_SIZE and memcmp(data + op.reply_start + op.reply_size - FAST_SUFFIX_SIZE,
                                                    FAST_SUFFIX, FAST_SUFFIX_SIZE) == 0:
        return False
    at += LINE_SIZE
    while at < end and at[0] == c" ":
        at += 1
    is_negative = at < end and at[0] == c"-"
    if at < end and (at[0] == c"-" or at[0] == c"+"):
        at += 1
    increment[0] = 0
    while at < end and c"0" <= at[0] <= c"9" and digits <= DIGITS_MAX:
        increment[0] = 10 * increment[0] + at[0] - c"0"
        digits += 1
        at += 1
    if is_negative:
        increment[0] = -increment[0]
    return 0 < digits <= DIGITS_MAX and (at == end or (end - at >= 2 and at[0] == 13 and at[1] == 10))


cdef inline uint8_t* put_payload(uint8_t* out, int64_t value) noexcept nogil:
    out = put(out, b'{"val":"', 8)
    if value < 0:
        out = put_byte(out, c"-")
        value = -value
    return put(put_number(out, value), b'"}', 2)


cdef class Totals:
    """The totals that are known, by slot."""

    cdef SubjectTable _table
    cdef Total* _totals
    cdef Py_ssize_t _capacity

    def __init__(self, SubjectTable table not None):
        self._table = table

    def __dealloc__(self):
        free(self._totals)

    def clear(self):
        """Forget all of them."""
        if self._capacity:
            memset(self._totals, 0, self._capacity * sizeof(Total))

    def put(self, bytes subject not None, uint64_t seq, value):
        """Remember what a subject counts, whose last message has this sequence."""
        cdef Py_ssize_t capacity
        cdef Total* totals
        cdef int64_t slot = self._table.find_c(<const uint8_t*>subject, len(subject))
        if slot < 0 or abs(value) > TOTAL_MAX:
            return
        if slot >= self._capacity:
            capacity = max(2 * self._capacity, slot + 64)
            totals = <Total*>realloc(self._totals, capacity * sizeof(Total))
            if totals == NULL:
                raise MemoryError
            memset(totals + self._capacity, 0, (capacity - self._capacity) * sizeof(Total))
            self._totals, self._capacity = totals, capacity
        self._totals[slot] = Total(seq, value)

    def get(self, bytes subject not None):
        """What a subject counts; None when that is not known."""
        cdef Total* total = self._find(<const uint8_t*>subject, len(subject), 2**64 - 1)
        return None if total == NULL else total.value

    cdef Total* _find(self, const uint8_t* subject, Py_ssize_t size, uint64_t seq) noexcept nogil:
        """What is known of a subject, or NULL; a total from `seq` on is of the run that is being counted."""
        cdef int64_t slot = self._table.find_c(subject, size)
        cdef Entry* entry
        cdef Total* total
        if slot < 0 or slot >= self._capacity:
            return NULL
        entry, total = self._table.live_c(<uint32_t>slot), self._totals + slot
        if entry == NULL or total.seq == 0:
            return NULL
        if total.seq >= seq or (total.seq == entry.last and not entry.flags & LAST_STALE):
            return total
        return NULL

    def count(self, data, ops, Py_ssize_t first, Py_ssize_t stop, uint64_t seq, int64_t size_max):
        """Make the payloads of a run of increments; see `totals.py`."""
        cdef Py_ssize_t data_size, words_size, number = first
        cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
        cdef PubOp* op_list = ops_of(ops, &words_size)
        cdef PubOp* op
        cdef Total* total
        cdef int64_t increment, value
        cdef uint64_t least = data_size, greatest = 0
        cdef uint32_t size
        if not 0 <= first <= stop <= op_count(words_size):
            check_door(words_size, first, stop)
        cdef bytes payloads = PyBytes_FromStringAndSize(NULL, (stop - first) * PAYLOAD_SIZE_MAX)
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(payloads)
        cdef uint8_t* out = start
        while number < stop:
            op = op_list + number
            if not is_placed(op, data_size):
                raise IndexError(f"operation {number} is not in the buffer")
            if not read_increment(source, op, &increment):
                break
            total = self._find(source + op.subject_start, op.subject_size, seq)
            if total == NULL:
                break
            value = total.value + increment
            if not -TOTAL_MAX <= value <= TOTAL_MAX:
                break
            size = <uint32_t>(put_payload(out, value) - out)
            if 0 <= size_max < <int64_t>op.headers_size + size:
                break
            total.seq, total.value = seq + number - first, value
            out += size
            least = min(least, <uint64_t>min(op.subject_start, op.headers_start))
            greatest = max(greatest, <uint64_t>op.subject_start + op.subject_size,
                           <uint64_t>op.headers_start + op.headers_size)
            number += 1
        words = moved(ops, first, number, -<int64_t>least)
        cdef PubOp* moved_list = ops_of(words, &words_size)
        cdef uint8_t* at = start
        for number in range(op_count(words_size)):
            op = moved_list + number
            size = 10                                   # what stands around the number
            while at[size - 2] != c'"':
                size += 1
            op.payload_start, op.payload_size = <uint32_t>(greatest - least + (at - start)), size
            op.flags |= OP_ADMITTED
            at += size
        return first + op_count(words_size), payloads[:out - start], least, greatest, words


def total_frames(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes prefix not None, bint may_have_dots,
                 bytes sid not None, bytes body not None, uint64_t seq, bytes payloads not None, words):
    """The acks of the increments first..stop-1, as far as their replies go to one subscription; see `totals.py`."""
    cdef Py_ssize_t data_size, ops_size, words_size, number, size = 0
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
    cdef PubOp* op_list = ops_of(ops, &ops_size)
    cdef PubOp* word_list = ops_of(words, &words_size)
    cdef PubOp* op
    cdef PubOp* word
    if not 0 <= first <= stop <= op_count(ops_size):
        check_door(ops_size, first, stop)
    if stop - first > op_count(words_size):
        check_door(words_size, 0, stop - first)
    cdef const uint8_t* texts = <const uint8_t*>PyBytes_AS_STRING(payloads)
    cdef const uint8_t* sid_text = sid
    cdef const uint8_t* body_text = body
    cdef const uint8_t* prefix_text = prefix
    cdef Py_ssize_t sid_size = len(sid), body_size = len(body), prefix_size = len(prefix)
    cdef uint32_t base = word_list.payload_start if words_size else 0
    for number in range(first, stop):
        op, word = op_list + number, word_list + number - first
        if not is_placed(op, data_size):
            raise IndexError(f"operation {number} is not in the buffer")
        if (word.payload_start < base or not word.payload_size
                or not lies_within(word.payload_start - base, word.payload_size, len(payloads))):
            raise IndexError(f"payload {number} is not in the buffer")
        if not op.reply_size:
            continue
        if not is_reply_to(source + op.reply_start, op.reply_size, prefix_text, prefix_size, may_have_dots):
            stop = number
            break
        size += op.reply_size + sid_size + body_size + word.payload_size + 60
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(frames)
    cdef uint8_t* out = start
    for number in range(first, stop):
        op, word = op_list + number, word_list + number - first
        if op.reply_size:
            out = put_space(put(put(out, b"MSG ", 4), source + op.reply_start, op.reply_size))
            out = put_space(put(out, sid_text, sid_size))
            size = body_size + digit_count(seq + number - first) + word.payload_size
            out = put_crlf(put_number(out, size))
            out = put_byte(put_number(put(out, body_text, body_size), seq + number - first), c",")
            out = put_crlf(put(out, texts + word.payload_start - base + 1, word.payload_size - 1))
    return frames[:out - start], stop
