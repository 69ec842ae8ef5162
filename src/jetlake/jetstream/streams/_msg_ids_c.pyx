"""Message ids and which publishes of a batch need no rule, compiled. `_msg_ids_py.py` is the reference.

A subject table holds the ids, each with a count of 1 and its sequence. Beside it stands a ring of slots and times in
the order they came, which grows by doubling.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from jetlake import ops as _ops
from jetlake.jetstream.streams import _msg_ids_py as _twin
from jetlake.jetstream.streams._msg_ids_py import check_door
from jetlake.buffers cimport bytes_of
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.store.records._record_c cimport MSG_ID, Parts, is_sound, parse
from jetlake.store.index._subject_entry cimport Entry
from jetlake.store.index._subject_table_c cimport SubjectTable

cdef uint32_t OP_SPECIAL = _ops.OP_SPECIAL, OP_EXPECTS = _ops.OP_EXPECTS, OP_ADMITTED = _ops.OP_ADMITTED
cdef uint32_t OP_MSG_ID = _ops.OP_MSG_ID
cdef const uint8_t* PLAIN_BLOCK = _twin.PLAIN_BLOCK
cdef Py_ssize_t PLAIN_BLOCK_SIZE = len(_twin.PLAIN_BLOCK)
cdef const uint8_t* RESERVED = _twin.RESERVED
cdef Py_ssize_t RESERVED_SIZE = len(_twin.RESERVED)
cdef const uint8_t* MSG_ID_LINE = _twin.MSG_ID_LINE
cdef Py_ssize_t MSG_ID_LINE_SIZE = len(_twin.MSG_ID_LINE)
cdef const uint8_t* LAST_LINE = _twin.LAST_LINE
cdef Py_ssize_t LAST_LINE_SIZE = len(_twin.LAST_LINE)
cdef const uint8_t* LAST_OF_SUBJECT_LINE = _twin.LAST_OF_SUBJECT_LINE
cdef Py_ssize_t LAST_OF_SUBJECT_LINE_SIZE = len(_twin.LAST_OF_SUBJECT_LINE)
cdef const uint8_t* FAST_SUFFIX = _twin.FAST_SUFFIX
cdef uint32_t FAST_SUFFIX_SIZE = len(_twin.FAST_SUFFIX)
cdef int SEQ_DIGITS_MAX = _twin.SEQ_DIGITS_MAX
cdef Py_ssize_t HEADERS_SIZE_MAX = _twin.HEADERS_SIZE_MAX, ID_SIZE_MAX = _twin.ID_SIZE_MAX

cdef extern from "string.h":
    void* memmem(const void* text, size_t size, const void* part, size_t part_size) nogil

cdef struct Remembered:
    int64_t time_ns
    uint32_t slot


cdef struct Text:
    const uint8_t* start
    Py_ssize_t size


cdef Text find_id(const uint8_t* block, Py_ssize_t size) noexcept:
    """The id in a header block; of size 0 when there is none."""
    cdef Text text = Text(NULL, 0)
    cdef const uint8_t* end
    cdef const uint8_t* line = <const uint8_t*>memmem(block, size, MSG_ID_LINE, MSG_ID_LINE_SIZE)
    if line == NULL:
        return text
    text.start = line + MSG_ID_LINE_SIZE
    end = <const uint8_t*>memmem(text.start, block + size - text.start, b"\r\n", 2)
    if end == NULL:
        end = block + size
    while text.start < end and text.start[0] == c" ":
        text.start += 1
    text.size = end - text.start
    return text


cdef inline bint begins(const uint8_t* text, const uint8_t* end, const uint8_t* start, Py_ssize_t size) noexcept nogil:
    return end - text >= size and memcmp(text, start, size) == 0


cdef bint read_number(const uint8_t* at, const uint8_t* end, uint64_t* number) noexcept nogil:
    """Read the digits up to the end of a line, after spaces; False when there is anything else, or too many."""
    cdef int digits = 0
    while at < end and at[0] == c" ":
        at += 1
    number[0] = 0
    while at < end and c"0" <= at[0] <= c"9" and digits < SEQ_DIGITS_MAX:
        number[0] = 10 * number[0] + at[0] - c"0"
        digits += 1
        at += 1
    return digits > 0 and (at == end or (end - at >= 2 and at[0] == 13 and at[1] == 10))


cdef class MsgIds:
    """The ids of recent messages and their sequences, oldest first."""

    cdef int64_t _window_ns
    cdef SubjectTable _table
    cdef Remembered* _ring
    cdef Py_ssize_t _capacity, _head, _count
    cdef public bint is_loaded

    def __init__(self, int64_t window_ns, bint is_loaded=True):
        self._window_ns, self.is_loaded = window_ns, is_loaded
        self._table = SubjectTable()

    def __dealloc__(self):
        free(self._ring)

    @property
    def window_ns(self):
        return self._window_ns

    @window_ns.setter
    def window_ns(self, int64_t window_ns):
        self._window_ns = window_ns

    def __len__(self):
        return self._count

    def find(self, bytes msg_id not None, int64_t now_ns):
        """The sequence of the message with this id; 0 when there is none in the window."""
        self._expire(now_ns)
        return self._seq_of(<const uint8_t*>msg_id, len(msg_id))

    def add(self, bytes msg_id not None, uint64_t seq, int64_t time_ns):
        """Remember an id."""
        if self._window_ns and 0 < len(msg_id) <= ID_SIZE_MAX and not self._seq_of(<const uint8_t*>msg_id, len(msg_id)):
            if not self._add(<const uint8_t*>msg_id, len(msg_id), seq, time_ns):
                raise MemoryError

    def load(self, body, offsets, Py_ssize_t first, Py_ssize_t stop, uint64_t seed):
        """Remember the ids of stored messages: those of a block's records first..stop-1 that are marked with one."""
        cdef const uint8_t[::1] view = body
        cdef uint32_t[::1] starts = offsets
        cdef Parts parts
        cdef Py_ssize_t position
        cdef const uint8_t* data = &view[0] if view.shape[0] else NULL
        cdef uint64_t size = view.shape[0]
        cdef Text text
        if not 0 <= first <= stop <= starts.shape[0]:
            raise IndexError(f"records {first}..{stop} of {starts.shape[0]}")
        for position in range(first, stop):
            if starts[position] >= size or not data[starts[position]] & MSG_ID:
                continue
            if not parse(data, starts[position], size, seed, False, &parts) or not is_sound(data, starts[position],
                                                                                           &parts, seed):
                continue
            text = find_id(data + parts.headers_start, parts.headers_size)
            if self._window_ns and 0 < text.size <= ID_SIZE_MAX and not self._seq_of(text.start, text.size):
                if not self._add(text.start, text.size, parts.seq, parts.time_ns):
                    raise MemoryError

    def expire(self, int64_t now_ns):
        """Forget what is older than the window."""
        self._expire(now_ns)

    def forget_from(self, uint64_t seq):
        """Forget the ids of messages that were not stored after all: those from a sequence on."""
        cdef Remembered* newest
        cdef Entry* entry
        while self._count:
            newest = self._ring + (self._head + self._count - 1) % self._capacity
            entry = self._table.live_c(newest.slot)
            if entry.last < seq:
                break
            self._table.remove_c(newest.slot, entry.last)
            self._count -= 1

    def admit(self, data, ops, Py_ssize_t first, Py_ssize_t stop, uint64_t seq, int64_t now_ns, int64_t size_max):
        """Where the first publish of first..stop-1 stands that needs a rule; see `msg_ids.py`."""
        cdef Py_ssize_t data_size, words, number
        cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
        cdef PubOp* op_list = ops_of(ops, &words)
        cdef PubOp* op
        cdef const uint8_t* block
        if not 0 <= first <= stop <= op_count(words):
            check_door(words, first, stop)
        if first == stop:
            return stop
        self._expire(now_ns)
        for number in range(first, stop):
            op = op_list + number
            if 0 <= size_max < <int64_t>op.headers_size + op.payload_size or op.headers_size > HEADERS_SIZE_MAX:
                return number
            if op.reply_size >= FAST_SUFFIX_SIZE:
                if op.reply_start > data_size or op.reply_size > data_size - op.reply_start:
                    raise IndexError(f"operation {number} is not in the buffer")
                if memcmp(source + op.reply_start + op.reply_size - FAST_SUFFIX_SIZE, FAST_SUFFIX, FAST_SUFFIX_SIZE) == 0:
                    return number
            if not op.headers_size:
                continue
            if op.headers_start > data_size or op.headers_size > data_size - op.headers_start:
                raise IndexError(f"operation {number} is not in the buffer")
            block = source + op.headers_start
            if op.headers_size < PLAIN_BLOCK_SIZE or memcmp(block, PLAIN_BLOCK, PLAIN_BLOCK_SIZE) != 0:
                return number
            if op.flags & OP_SPECIAL:
                op.flags &= ~(OP_ADMITTED | OP_EXPECTS)
                if not self._admit_headers(block, op.headers_size, op, seq + number - first, now_ns):
                    return number
        return stop

    def take(self, data, ops, Py_ssize_t first, Py_ssize_t stop, uint64_t seq, int64_t time_ns):
        """Remember the ids of messages first..stop-1 that were admitted elsewhere, and are stored from `seq` on."""
        cdef Py_ssize_t data_size, words, number
        cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
        cdef PubOp* op_list = ops_of(ops, &words)
        cdef PubOp* op
        cdef Text text
        if not 0 <= first <= stop <= op_count(words):
            check_door(words, first, stop)
        self._expire(time_ns)
        for number in range(first, stop):
            op = op_list + number
            if not op.flags & OP_MSG_ID:
                continue
            if op.headers_start > data_size or op.headers_size > data_size - op.headers_start:
                raise IndexError(f"operation {number} is not in the buffer")
            text = find_id(source + op.headers_start, op.headers_size)
            if self._window_ns and 0 < text.size <= ID_SIZE_MAX and not self._seq_of(text.start, text.size):
                if not self._add(text.start, text.size, seq + number - first, time_ns):
                    raise MemoryError

    cdef bint _admit_headers(self, const uint8_t* block, Py_ssize_t size, PubOp* op, uint64_t seq,
                             int64_t now_ns) except -1:
        """Look at the headers of ours, and note what the subject's last sequence must be; False when one is a rule's."""
        cdef const uint8_t* end = block + size
        cdef const uint8_t* line = <const uint8_t*>memmem(block, size, RESERVED, RESERVED_SIZE)
        cdef bint has_id = False, has_last = False, has_last_of_subject = False
        cdef uint64_t wanted = 0, expected = 0
        while line != NULL:
            if begins(line, end, MSG_ID_LINE, MSG_ID_LINE_SIZE) and not has_id:
                has_id = True
            elif begins(line, end, LAST_LINE, LAST_LINE_SIZE) and not has_last:
                has_last = True
                if not read_number(line + LAST_LINE_SIZE, end, &wanted) or wanted != seq - 1:
                    return False
            elif begins(line, end, LAST_OF_SUBJECT_LINE, LAST_OF_SUBJECT_LINE_SIZE) and not has_last_of_subject:
                has_last_of_subject = True
                if not read_number(line + LAST_OF_SUBJECT_LINE_SIZE, end, &expected):
                    return False
            else:
                return False
            line = <const uint8_t*>memmem(line + 2, end - line - 2, RESERVED, RESERVED_SIZE)
        if has_id and not self._admit_id(block, size, seq, now_ns):
            return False
        op.flags |= OP_ADMITTED
        if has_last_of_subject:
            op.flags |= OP_EXPECTS
            op.expected = expected
        return True

    cdef bint _admit_id(self, const uint8_t* block, Py_ssize_t size, uint64_t seq, int64_t now_ns) except -1:
        """Take the id of a message; False when it is known, or cannot be told."""
        if not self._window_ns:
            return True
        cdef Text text = find_id(block, size)
        if not self.is_loaded or not text.size or self._seq_of(text.start, text.size):
            return False
        if not self._add(text.start, text.size, seq, now_ns):
            raise MemoryError
        return True

    cdef uint64_t _seq_of(self, const uint8_t* text, Py_ssize_t size) noexcept:
        if not 0 < size <= ID_SIZE_MAX:
            return 0
        cdef int64_t slot = self._table.find_c(text, size)
        return self._table.live_c(<uint32_t>slot).last if slot >= 0 else 0

    cdef bint _add(self, const uint8_t* text, Py_ssize_t size, uint64_t seq, int64_t time_ns) noexcept:
        cdef int64_t slot
        if self._count == self._capacity and not self._grow():
            return False
        slot = self._table.intern_c(text, size)
        if slot < 0:
            return False
        self._table.add_c(<uint32_t>slot, seq)
        self._ring[(self._head + self._count) % self._capacity] = Remembered(time_ns, <uint32_t>slot)
        self._count += 1
        return True

    cdef bint _grow(self) noexcept:
        cdef Py_ssize_t capacity = max(1024, 2 * self._capacity), tail = self._capacity - self._head
        cdef Remembered* ring = <Remembered*>malloc(capacity * sizeof(Remembered))
        if ring == NULL:
            return False
        if self._capacity:
            memcpy(ring, self._ring + self._head, tail * sizeof(Remembered))
            memcpy(ring + tail, self._ring, self._head * sizeof(Remembered))
        free(self._ring)
        self._ring, self._capacity, self._head = ring, capacity, 0
        return True

    cdef void _expire(self, int64_t now_ns) noexcept:
        cdef Remembered* oldest
        while self._count:
            oldest = self._ring + self._head
            if oldest.time_ns > now_ns - self._window_ns:
                return
            self._table.remove_c(oldest.slot, self._table.live_c(oldest.slot).last)
            self._head = (self._head + 1) % self._capacity
            self._count -= 1
