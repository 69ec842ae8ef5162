"""Members of batches among the publishes of a run, compiled. `_members_py.py` is the reference."""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from jetlake import ops as _ops
from jetlake.jetstream.streams import _members_py as _twin
from jetlake.jetstream.streams import _msg_ids_py as _ids
from jetlake.jetstream.streams._msg_ids_py import check_door
from jetlake.buffers cimport bytes_of
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.output cimport digit_count, put_number

cdef uint32_t OP_SPECIAL = _ops.OP_SPECIAL
cdef Py_ssize_t OP_WORDS = _ops.OP_WORDS
cdef const uint8_t* PLAIN_BLOCK = _ids.PLAIN_BLOCK
cdef Py_ssize_t PLAIN_BLOCK_SIZE = len(_ids.PLAIN_BLOCK)
cdef const uint8_t* RESERVED = _ids.RESERVED
cdef Py_ssize_t RESERVED_SIZE = len(_ids.RESERVED)
cdef const uint8_t* ID_LINE = _twin.ID_LINE
cdef Py_ssize_t ID_LINE_SIZE = len(_twin.ID_LINE)
cdef const uint8_t* SEQ_LINE = _twin.SEQ_LINE
cdef Py_ssize_t SEQ_LINE_SIZE = len(_twin.SEQ_LINE)
cdef const uint8_t* COMMIT_LINE = _twin.COMMIT_LINE
cdef Py_ssize_t COMMIT_LINE_SIZE = len(_twin.COMMIT_LINE)
cdef const uint8_t* LEVEL_LINE = _twin.LEVEL_LINE
cdef Py_ssize_t LEVEL_LINE_SIZE = len(_twin.LEVEL_LINE)
cdef const uint8_t* FAST_TAIL = _twin.FAST_TAIL
cdef Py_ssize_t FAST_TAIL_SIZE = len(_twin.FAST_TAIL)
cdef Py_ssize_t SEQ_DIGITS_MAX = _ids.SEQ_DIGITS_MAX
cdef Py_ssize_t HEADERS_SIZE_MAX = _ids.HEADERS_SIZE_MAX

cdef enum:
    NO = -1

cdef extern from "string.h":
    void* memmem(const void* text, size_t size, const void* part, size_t part_size) nogil


cdef inline bint lies_within(uint32_t start, uint32_t size, uint64_t end) noexcept nogil:
    return start <= end and size <= end - start


cdef inline bint is_placed(PubOp* op, uint64_t end) noexcept nogil:
    return (lies_within(op.subject_start, op.subject_size, end) and lies_within(op.reply_start, op.reply_size, end)
            and lies_within(op.headers_start, op.headers_size, end)
            and lies_within(op.payload_start, op.payload_size, end))


cdef inline bint fits(PubOp* op, int64_t size_max) noexcept nogil:
    return op.headers_size <= HEADERS_SIZE_MAX and not 0 <= size_max < <int64_t>op.headers_size + op.payload_size


cdef inline bint begins(const uint8_t* text, const uint8_t* end, const uint8_t* start, Py_ssize_t size) noexcept nogil:
    return end - text >= size and memcmp(text, start, size) == 0


cdef const uint8_t* value_of(const uint8_t* at, const uint8_t** end) noexcept nogil:
    """Where the value of a header begins, whose name ends at `at`; `end` of the block becomes that of the value."""
    cdef const uint8_t* stop = <const uint8_t*>memmem(at, end[0] - at, b"\r\n", 2)
    if stop != NULL:
        end[0] = stop
    while at < end[0] and at[0] == c" ":
        at += 1
    return at


cdef bint is_number(const uint8_t* at, const uint8_t* end, uint64_t wanted) noexcept nogil:
    cdef uint64_t number = 0
    if not 0 < end - at <= SEQ_DIGITS_MAX:
        return False
    while at < end:
        if not c"0" <= at[0] <= c"9":
            return False
        number = 10 * number + at[0] - c"0"
        at += 1
    return number == wanted


cdef int member(const uint8_t* block, Py_ssize_t size, const uint8_t* batch_id, Py_ssize_t id_size,
                uint64_t seq) noexcept nogil:
    """Whether a member has no other headers of ours; NO when it is not the next one of the batch."""
    cdef const uint8_t* end = block + size
    cdef const uint8_t* value
    cdef const uint8_t* value_end
    cdef const uint8_t* line
    cdef bint has_id = False, has_seq = False, is_plain = True
    if size < PLAIN_BLOCK_SIZE or memcmp(block, PLAIN_BLOCK, PLAIN_BLOCK_SIZE) != 0:
        return NO
    line = <const uint8_t*>memmem(block, size, RESERVED, RESERVED_SIZE)
    while line != NULL:
        value_end = end
        if begins(line, end, ID_LINE, ID_LINE_SIZE):
            value = value_of(line + ID_LINE_SIZE, &value_end)
            if has_id or value_end - value != id_size or memcmp(value, batch_id, id_size) != 0:
                return NO
            has_id = True
        elif begins(line, end, SEQ_LINE, SEQ_LINE_SIZE):
            value = value_of(line + SEQ_LINE_SIZE, &value_end)
            if has_seq or not is_number(value, value_end, seq):
                return NO
            has_seq = True
        elif begins(line, end, COMMIT_LINE, COMMIT_LINE_SIZE) or begins(line, end, LEVEL_LINE, LEVEL_LINE_SIZE):
            return NO
        else:
            is_plain = False
        line = <const uint8_t*>memmem(line + 2, end - line - 2, RESERVED, RESERVED_SIZE)
    return is_plain if has_id and has_seq else NO


def atomic_run(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes batch_id not None, uint64_t seq, int64_t size_max):
    """Where the members of an atomic batch end, and what they take in the buffer; see `members.py`."""
    cdef Py_ssize_t data_size, words, number = first, id_size = len(batch_id)
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
    cdef const uint8_t* id_text = <const uint8_t*>PyBytes_AS_STRING(batch_id)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    cdef uint64_t least = data_size, greatest = 0
    cdef bint are_plain = True
    cdef int is_plain
    if not 0 <= first <= stop <= op_count(words):
        check_door(words, first, stop)
    while number < stop:
        op = op_list + number
        if not is_placed(op, data_size):
            raise IndexError(f"operation {number} is not in the buffer")
        if op.reply_size or not fits(op, size_max):
            break
        is_plain = member(source + op.headers_start, op.headers_size, id_text, id_size, seq + number - first)
        if is_plain == NO:
            break
        are_plain = are_plain and is_plain
        least = min(least, <uint64_t>min(op.subject_start, op.headers_start, op.payload_start))
        greatest = max(greatest, <uint64_t>op.subject_start + op.subject_size,
                       <uint64_t>op.headers_start + op.headers_size, <uint64_t>op.payload_start + op.payload_size)
        number += 1
    return number, least, greatest, are_plain


def fast_run(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes head not None, uint64_t seq, int64_t size_max):
    """Where the members of a fast-ingest batch end; see `members.py`."""
    cdef Py_ssize_t data_size, words, number, head_size = len(head), digits
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
    cdef const uint8_t* head_text = <const uint8_t*>PyBytes_AS_STRING(head)
    cdef const uint8_t* reply
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    cdef uint8_t[24] text
    if not 0 <= first <= stop <= op_count(words):
        check_door(words, first, stop)
    for number in range(first, stop):
        op = op_list + number
        if not is_placed(op, data_size):
            raise IndexError(f"operation {number} is not in the buffer")
        reply = source + op.reply_start
        digits = put_number(text, seq + number - first) - text
        if (op.reply_size != head_size + digits + FAST_TAIL_SIZE or memcmp(reply, head_text, head_size) != 0
                or memcmp(reply + head_size, text, digits) != 0
                or memcmp(reply + head_size + digits, FAST_TAIL, FAST_TAIL_SIZE) != 0):
            return number
        if op.flags & OP_SPECIAL or not fits(op, size_max):
            return number
        if op.headers_size and (op.headers_size < PLAIN_BLOCK_SIZE
                                or memcmp(source + op.headers_start, PLAIN_BLOCK, PLAIN_BLOCK_SIZE) != 0):
            return number
    return stop


def moved(ops, Py_ssize_t first, Py_ssize_t stop, int64_t distance):
    """Operations for a buffer in which everything lies so much later; see `members.py`."""
    cdef Py_ssize_t words, number
    ops_of(ops, &words)
    if not 0 <= first <= stop <= op_count(words):
        check_door(words, first, stop)
    copy = ops[first * OP_WORDS:stop * OP_WORDS]
    cdef PubOp* op_list = ops_of(copy, &words)
    cdef PubOp* op
    for number in range(op_count(words)):
        op = op_list + number
        op.subject_start = <uint32_t>(op.subject_start + distance)
        op.headers_start = <uint32_t>(op.headers_start + distance)
        op.payload_start = <uint32_t>(op.payload_start + distance)
        op.reply_start = op.reply_size = op.slot = 0
    return copy
