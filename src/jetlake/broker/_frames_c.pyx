"""Frames of a batch of publishes, compiled. `_frames_py.py` is the reference."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp

from jetlake.buffers cimport bytes_of
from jetlake import ops as _ops
from jetlake.ops import check_ops
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.output cimport put, put_byte, put_crlf, put_number


cdef inline Py_ssize_t frame_size(PubOp* op, Py_ssize_t sid_size, bint headers) noexcept nogil:
    """At most this many bytes: 4 for the verb, numbers of 10 digits, spaces and line ends."""
    return (op.subject_size + op.reply_size + op.payload_size + (op.headers_size if headers else 0) + sid_size
            + 5 + 20 + 5 + 4)


cdef inline uint8_t* put_sizes_and_body(uint8_t* out, const uint8_t* source, PubOp* op,
                                        bint has_headers) noexcept nogil:
    if has_headers:
        out = put_space(put_number(out, op.headers_size))
        out = put_crlf(put_number(out, <uint64_t>op.headers_size + op.payload_size))
        out = put(out, source + op.headers_start, op.headers_size)
    else:
        out = put_crlf(put_number(out, op.payload_size))
    return put_crlf(put(out, source + op.payload_start, op.payload_size))


cdef uint8_t* put_frame(uint8_t* out, const uint8_t* source, PubOp* op, const uint8_t* sid, Py_ssize_t sid_size,
                        bint headers) noexcept nogil:
    cdef bint has_headers = headers and op.headers_size > 0
    out = put(out, b"HMSG ", 5) if has_headers else put(out, b"MSG ", 4)
    out = put_space(put(out, source + op.subject_start, op.subject_size))
    out = put_space(put(out, sid, sid_size))
    if op.reply_size:
        out = put_space(put(out, source + op.reply_start, op.reply_size))
    return put_sizes_and_body(out, source, op, has_headers)


def msg_frames(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes sid not None, bint headers):
    """What a subscription receives for the publishes first..stop-1; see `frames.py`."""
    cdef const uint8_t[::1] view = data
    cdef uint32_t[::1] words = ops
    if not (0 <= first < stop <= op_count(words.shape[0]) and view.shape[0] <= UINT32_MAX):
        check_ops(view.shape[0], words.shape[0], first, stop)
    cdef PubOp* op_list = <PubOp*>&words[0]
    cdef const uint8_t* source = &view[0] if view.shape[0] else NULL
    cdef const uint8_t* sid_text = sid
    cdef Py_ssize_t number, sid_size = len(sid), size = 0, msgs_size = 0
    for number in range(first, stop):
        if not is_good(op_list + number, view.shape[0]):
            raise IndexError(f"operation {number} is not in the buffer")
        size += frame_size(op_list + number, sid_size, headers)
        msgs_size += op_list[number].payload_size + (op_list[number].headers_size if headers else 0)
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(frames)
    cdef uint8_t* out = start
    for number in range(first, stop):
        out = put_frame(out, source, op_list + number, sid_text, sid_size, headers)
    return frames[:out - start], msgs_size


def link_frames(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes verb not None, bytes headers_verb not None,
                bytes queues not None, bint headers):
    """What a link receives for the publishes first..stop-1; see `frames.py`."""
    cdef Py_ssize_t data_size, words
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
    cdef PubOp* op_list = ops_of(ops, &words)
    if not (0 <= first < stop <= op_count(words) and data_size <= UINT32_MAX):
        check_ops(data_size, words, first, stop)
    cdef const uint8_t* verb_text = verb
    cdef const uint8_t* headers_verb_text = headers_verb
    cdef const uint8_t* queues_text = queues
    cdef Py_ssize_t verb_size = len(verb), headers_verb_size = len(headers_verb), queues_size = len(queues)
    cdef Py_ssize_t number, size = 0, msgs_size = 0
    cdef PubOp* op
    cdef bint has_headers
    for number in range(first, stop):
        op = op_list + number
        if not is_good(op, data_size):
            raise IndexError(f"operation {number} is not in the buffer")
        size += frame_size(op, queues_size, headers) + max(verb_size, headers_verb_size) + 2
        msgs_size += op.payload_size + (op.headers_size if headers else 0)
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(frames)
    cdef uint8_t* out = start
    for number in range(first, stop):
        op = op_list + number
        has_headers = headers and op.headers_size > 0
        out = put(out, headers_verb_text, headers_verb_size) if has_headers else put(out, verb_text, verb_size)
        out = put_space(put(put_space(out), source + op.subject_start, op.subject_size))
        if queues_size:
            out = put_space(put_byte(out, 43 if op.reply_size else 124))  # + or |
        if op.reply_size:
            out = put_space(put(out, source + op.reply_start, op.reply_size))
        if queues_size:
            out = put_space(put(out, queues_text, queues_size))
        out = put_sizes_and_body(out, source, op, has_headers)
    return frames[:out - start], msgs_size


def msgs_size(ops, Py_ssize_t first, Py_ssize_t stop):
    """The size of the headers and payloads of the publishes first..stop-1."""
    cdef Py_ssize_t words, number
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef uint64_t size = 0
    if not 0 <= first < stop <= op_count(words):
        check_ops(0, words, first, stop)
    for number in range(first, stop):
        size += <uint64_t>op_list[number].headers_size + op_list[number].payload_size
    return size


cdef uint32_t OP_SPECIAL = _ops.OP_SPECIAL


cdef inline bint is_parent(const uint8_t* at) noexcept nogil:
    """Is this `traceparent:`, in letters of any case?"""
    cdef const uint8_t* name = b"traceparent"
    cdef int number
    for number in range(11):
        if at[number] | 32 != name[number]:
            return False
    return at[11] == 58


cdef bint asks_for_trace(const uint8_t* at, const uint8_t* end, bint by_parent) noexcept nogil:
    """Does a line of this header block begin with the name of a trace header?"""
    while True:
        at = <const uint8_t*>memchr(at, 10, end - at)
        if at == NULL:
            return False
        at += 1
        if end - at >= 16 and at[0] == 78 and memcmp(at, b"Nats-Trace-Dest:", 16) == 0:
            return True
        if by_parent and end - at >= 12 and is_parent(at):
            return True


def find_traced(data, ops, Py_ssize_t first, Py_ssize_t stop, bint by_parent):
    """The first of the publishes first..stop-1 whose headers ask for a trace, or stop; see `frames.py`."""
    cdef Py_ssize_t data_size, words, number
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    if not (0 <= first < stop <= op_count(words) and data_size <= UINT32_MAX):
        check_ops(data_size, words, first, stop)
    for number in range(first, stop):
        op = op_list + number
        if op.headers_size == 0 or not (by_parent or op.flags & OP_SPECIAL):
            continue
        if not is_good(op, data_size):
            raise IndexError(f"operation {number} is not in the buffer")
        if asks_for_trace(source + op.headers_start, source + op.headers_start + op.headers_size, by_parent):
            return number
    return stop
