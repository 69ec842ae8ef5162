"""Messages that an origin's consumer delivered, compiled. `_deliveries_py.py` is the reference."""

from cpython cimport array
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memset

import array as _array

from jetlake import ops as _ops
from jetlake.buffers cimport bytes_of, room_of
from jetlake.jetstream.sourcing._deliveries_py import check_door
from jetlake.ops cimport PubOp, op_count, ops_of

cdef extern from "string.h":
    void* memmem(const void*, size_t, const void*, size_t) noexcept nogil

cdef enum:
    DOTS_MAX = 16
    NEW_CONSUMER = 5
    OLD_CONSUMER = 3
    OLD_DOTS = 8
    NEW_DOTS_MIN = 10
    PREFIX_SIZE = 8
    WORDS_MAX = 6
    SIZE_DIGITS_MAX = 9
    NUMBER_DIGITS_MAX = 19

cdef uint32_t OP_SPECIAL = _ops.OP_SPECIAL
cdef uint32_t OP_MSG_ID = _ops.OP_MSG_ID
cdef array.array _TEMPLATE = _array.array("I")


cdef inline int64_t _number(const uint8_t* text, size_t size, size_t digits_max) noexcept nogil:
    """A number of 63 bits; -1 when it is none."""
    cdef uint64_t value = 0
    cdef size_t i
    if size == 0 or size > digits_max:
        return -1
    for i in range(size):
        if text[i] < 48 or text[i] > 57:
            return -1
        value = value * 10 + text[i] - 48
    return <int64_t>value if value < (<uint64_t>1 << 63) else -1


cdef struct Found:
    const uint8_t* consumer
    size_t consumer_size
    int64_t seq
    int64_t consumer_seq
    int64_t time_ns
    int64_t pending


cdef bint _read(const uint8_t* reply, size_t size, Found* found) noexcept nogil:
    """What a reply subject says; False when it is none of a delivery."""
    cdef size_t dots[DOTS_MAX]
    cdef size_t count = 0, i, at
    if size < PREFIX_SIZE or memcmp(reply, b"$JS.ACK.", PREFIX_SIZE) != 0:
        return False
    for i in range(size):
        if reply[i] == 46:
            if count < DOTS_MAX:
                dots[count] = i
            count += 1
    if count != OLD_DOTS and count < NEW_DOTS_MIN:
        return False
    at = OLD_CONSUMER if count == OLD_DOTS else NEW_CONSUMER
    found.consumer = reply + dots[at - 1] + 1
    found.consumer_size = dots[at] - dots[at - 1] - 1
    found.seq = _token(reply, size, dots, count, at + 2)
    found.consumer_seq = _token(reply, size, dots, count, at + 3)
    found.time_ns = _token(reply, size, dots, count, at + 4)
    found.pending = _token(reply, size, dots, count, at + 5)
    return found.seq >= 0 and found.consumer_seq >= 0 and found.time_ns >= 0 and found.pending >= 0


cdef inline int64_t _token(const uint8_t* text, size_t size, const size_t* dots, size_t count, size_t which) noexcept nogil:
    cdef size_t start = dots[which - 1] + 1
    cdef size_t end = dots[which] if which < count else size
    return _number(text + start, end - start, NUMBER_DIGITS_MAX)


def read_run(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes consumer not None, uint64_t consumer_seq, uint64_t seq,
             seqs, times):
    """Read deliveries for as long as each is the next; see `deliveries.py`."""
    cdef Py_ssize_t data_size, words, seqs_size, times_size, number = first
    cdef const uint8_t* text = <const uint8_t*>bytes_of(data, &data_size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef uint64_t* seq_out = <uint64_t*>room_of(seqs, &seqs_size)
    cdef int64_t* time_out = <int64_t*>room_of(times, &times_size)
    cdef const uint8_t* name = consumer
    cdef size_t name_size = len(consumer)
    cdef int64_t pending = 0
    cdef PubOp* op
    cdef Found found
    memset(&found, 0, sizeof(found))
    seqs_size //= 8
    times_size //= 8
    if not 0 <= first <= stop <= op_count(words) or stop - first > seqs_size or stop - first > times_size:
        check_door(words, first, stop, seqs_size, times_size)
    while number < stop:
        op = op_list + number
        if op.reply_start > <uint64_t>data_size or op.reply_size > <uint64_t>data_size - op.reply_start:
            break
        if not _read(text + op.reply_start, op.reply_size, &found):
            break
        if found.consumer_size != name_size or memcmp(found.consumer, name, name_size) != 0:
            break
        if <uint64_t>found.consumer_seq != consumer_seq:
            break
        if seq and <uint64_t>found.seq != seq + <uint64_t>(number - first):
            break
        seq_out[number - first] = <uint64_t>found.seq
        time_out[number - first] = found.time_ns
        pending = found.pending
        consumer_seq += 1
        number += 1
    return number, pending


def read_frames(data):
    """The operations of whole MSG and HMSG frames; ValueError where there is anything else."""
    cdef Py_ssize_t size, count = 0, room = 0
    cdef const uint8_t* text = <const uint8_t*>bytes_of(data, &size)
    cdef uint64_t at = 0, end = <uint64_t>size
    cdef array.array ops = array.clone(_TEMPLATE, 0, False)
    cdef PubOp* op
    if size > 0xFFFFFFFF:
        raise ValueError(f"buffer of {size} bytes: offsets are of 32 bits")
    while at < end:
        if count == room:
            room = 64 if room == 0 else 2 * room
            array.resize(ops, room * (sizeof(PubOp) // sizeof(uint32_t)))
        op = <PubOp*>ops.data.as_voidptr + count
        if not _read_frame(text, &at, end, op):
            raise ValueError(f"no frame at {at}")
        count += 1
    array.resize(ops, count * (sizeof(PubOp) // sizeof(uint32_t)))
    return ops


def read_stream(data, Py_ssize_t start, Py_ssize_t end, bytes sid not None):
    """The operations of whole frames of one subscription, and where they end; see `deliveries.py`."""
    cdef Py_ssize_t size, count = 0, room = 0
    cdef const uint8_t* text = <const uint8_t*>bytes_of(data, &size)
    cdef const uint8_t* wanted = sid
    cdef size_t wanted_size = len(sid)
    cdef uint64_t at, stop, place
    cdef array.array ops = array.clone(_TEMPLATE, 0, False)
    cdef PubOp* op
    if not 0 <= start <= end <= size:
        raise IndexError(f"range {start}..{end} of {size} bytes")
    if size > 0xFFFFFFFF:
        raise ValueError(f"buffer of {size} bytes: offsets are of 32 bits")
    at, stop = <uint64_t>start, <uint64_t>end
    while at < stop:
        if count == room:
            room = 64 if room == 0 else 2 * room
            array.resize(ops, room * (sizeof(PubOp) // sizeof(uint32_t)))
        op = <PubOp*>ops.data.as_voidptr + count
        place = at
        if not _read_frame(text, &at, stop, op):
            break
        if not _is_of(text, <uint64_t>op.subject_start + op.subject_size + 1, stop, wanted, wanted_size):
            at = place
            break
        count += 1
    array.resize(ops, count * (sizeof(PubOp) // sizeof(uint32_t)))
    return ops, <Py_ssize_t>at


cdef inline bint _is_of(const uint8_t* text, uint64_t at, uint64_t end, const uint8_t* sid, size_t size) noexcept nogil:
    """Whether a frame is of a subscription: its id stands at an offset, in a line that goes on."""
    return size < end - at and memcmp(text + at, sid, size) == 0 and text[at + size] == 32


cdef bint _read_frame(const uint8_t* text, uint64_t* at, uint64_t end, PubOp* op) noexcept nogil:
    """Read the frame at an offset and move it to the next; False when there is none."""
    cdef uint64_t starts[WORDS_MAX]
    cdef uint64_t sizes[WORDS_MAX]
    cdef const uint8_t* line_end = <const uint8_t*>memmem(text + at[0], end - at[0], b"\r\n", 2)
    cdef uint64_t stop, i, word = 0, expected, body
    cdef int64_t headers_size = 0, total
    cdef bint has_headers
    if line_end == NULL:
        return False
    stop = <uint64_t>(line_end - text)
    starts[0] = at[0]
    for i in range(at[0], stop):
        if text[i] == 32:
            sizes[word] = i - starts[word]
            word += 1
            if word == WORDS_MAX:
                return False
            starts[word] = i + 1
    sizes[word] = stop - starts[word]
    word += 1
    has_headers = sizes[0] == 4 and memcmp(text + starts[0], b"HMSG", 4) == 0
    if not has_headers and not (sizes[0] == 3 and memcmp(text + starts[0], b"MSG", 3) == 0):
        return False
    expected = 6 if has_headers else 5
    if word != expected and word != expected - 1:
        return False
    if has_headers:
        headers_size = _number(text + starts[word - 2], sizes[word - 2], SIZE_DIGITS_MAX)
    total = _number(text + starts[word - 1], sizes[word - 1], SIZE_DIGITS_MAX)
    body = stop + 2
    if headers_size < 0 or total < headers_size or <uint64_t>total + 2 > end - body:
        return False
    if text[body + total] != 13 or text[body + total + 1] != 10:
        return False
    memset(op, 0, sizeof(PubOp))
    op.subject_start, op.subject_size = <uint32_t>starts[1], <uint32_t>sizes[1]
    op.reply_start = <uint32_t>starts[3]
    op.reply_size = <uint32_t>sizes[3] if word == expected else 0
    op.headers_start, op.headers_size = <uint32_t>body, <uint32_t>headers_size
    op.payload_start = <uint32_t>(body + <uint64_t>headers_size)
    op.payload_size = <uint32_t>(total - headers_size)
    if headers_size and memmem(text + body, <size_t>headers_size, b"\r\nNats-", 7) != NULL:
        op.flags = OP_SPECIAL
        if memmem(text + body, <size_t>headers_size, b"\r\nNats-Msg-Id:", 14) != NULL:
            op.flags |= OP_MSG_ID
    at[0] = body + <uint64_t>total + 2
    return True
