"""The acks of a run of publishes, compiled. `_pub_acks_py.py` is the reference."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport UINT32_MAX, uint8_t, uint64_t

from jetlake.broker._frames_c cimport is_good, is_reply_to, put_space
from jetlake.buffers cimport bytes_of
from jetlake.ops import check_ops
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.output cimport digit_count, put, put_crlf, put_number


def ack_frames(data, ops, Py_ssize_t first, Py_ssize_t stop, bytes prefix not None, bint may_have_dots,
               bytes sid not None, bytes body not None, uint64_t seq):
    """The PubAcks of the publishes first..stop-1, as far as their replies go to one subscription; see `pub_acks.py`."""
    cdef Py_ssize_t data_size, words
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    if not (0 <= first < stop <= op_count(words) and data_size <= UINT32_MAX):
        check_ops(data_size, words, first, stop)
    cdef const uint8_t* sid_text = sid
    cdef const uint8_t* body_text = body
    cdef const uint8_t* prefix_text = prefix
    cdef Py_ssize_t number, sid_size = len(sid), body_size = len(body), prefix_size = len(prefix), size = 0
    for number in range(first, stop):
        op = op_list + number
        if not is_good(op, data_size):
            raise IndexError(f"operation {number} is not in the buffer")
        if not op.reply_size:
            continue
        if not is_reply_to(source + op.reply_start, op.reply_size, prefix_text, prefix_size, may_have_dots):
            stop = number
            break
        size += op.reply_size + sid_size + body_size + 41  # verb, spaces, line ends, two numbers and a brace
    cdef bytes frames = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(frames)
    cdef uint8_t* out = start
    for number in range(first, stop):
        op = op_list + number
        if op.reply_size:
            out = put_space(put(put(out, b"MSG ", 4), source + op.reply_start, op.reply_size))
            out = put_space(put(out, sid_text, sid_size))
            out = put_crlf(put_number(out, body_size + digit_count(seq + number - first) + 1))
            out = put_number(put(out, body_text, body_size), seq + number - first)
            out[0] = c"}"
            out = put_crlf(out + 1)
    return frames[:out - start], stop
