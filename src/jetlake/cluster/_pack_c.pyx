"""Messages in flat bytes, compiled. `_pack_py.py` is the reference."""

from array import array

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport UINT32_MAX, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jetlake import ops as _ops
from jetlake.buffers cimport bytes_of
from jetlake.cluster import _pack_py as _twin
from jetlake.cluster._pack_py import bad_flags, bytes_over, check_pack, ends_early
from jetlake.ops cimport PubOp, op_count, ops_of
from jetlake.output cimport put
from jetlake.store import format as _format
from jetlake.store.records._encode_py import op_problem

cdef uint32_t OP_SPECIAL = _ops.OP_SPECIAL, OP_EXPECTS = _ops.OP_EXPECTS, OP_ADMITTED = _ops.OP_ADMITTED
cdef uint32_t OP_MSG_ID = _ops.OP_MSG_ID
cdef Py_ssize_t OP_WORDS = _ops.OP_WORDS
cdef uint32_t SUBJECT_SIZE_MAX = _format.SUBJECT_SIZE_MAX, HEADERS_SIZE_MAX = _format.HEADERS_SIZE_MAX
cdef uint32_t PAYLOAD_SIZE_MAX = _format.PAYLOAD_SIZE_MAX
cdef enum:
    HEAD_SIZE = 11
assert HEAD_SIZE == _twin.HEAD_SIZE


cdef inline bint lies_in(uint32_t start, uint32_t size, Py_ssize_t data_size) noexcept nogil:
    return start <= data_size and size <= data_size - start


cdef inline bint is_good(const PubOp* op, Py_ssize_t data_size) noexcept nogil:
    """Whether a record can be made of an operation."""
    if not (lies_in(op.subject_start, op.subject_size, data_size)
            and lies_in(op.headers_start, op.headers_size, data_size)
            and lies_in(op.payload_start, op.payload_size, data_size)):
        return False
    return (0 < op.subject_size <= SUBJECT_SIZE_MAX and op.headers_size <= HEADERS_SIZE_MAX
            and op.payload_size <= PAYLOAD_SIZE_MAX)


def pack(data, ops, Py_ssize_t first, Py_ssize_t stop, bytearray out not None, bint takes_all):
    """Append the messages of operations first..stop-1 to `out`; where it stopped. See `pack.py`."""
    cdef Py_ssize_t data_size, words, number, size = 0, used = len(out)
    cdef const uint8_t* source = <const uint8_t*>bytes_of(data, &data_size)
    cdef PubOp* op_list = ops_of(ops, &words)
    cdef PubOp* op
    cdef uint8_t* at
    cdef uint16_t subject_size
    if not 0 <= first <= stop <= op_count(words):
        check_pack(words, first, stop)
    for number in range(first, stop):
        op = op_list + number
        if not takes_all and (op.flags & (OP_SPECIAL | OP_ADMITTED) == OP_SPECIAL or op.flags & OP_EXPECTS):
            stop = number
            break
        if not is_good(op, data_size):
            if number == first:
                raise op_problem(data_size, ops[number * OP_WORDS : (number + 1) * OP_WORDS])
            stop = number
            break
        size += HEAD_SIZE + op.subject_size + op.headers_size + op.payload_size
    PyByteArray_Resize(out, used + size)
    at = <uint8_t*>PyByteArray_AS_STRING(out) + used
    with nogil:
        for number in range(first, stop):
            op = op_list + number
            at[0] = <uint8_t>(op.flags & OP_MSG_ID)
            subject_size = <uint16_t>op.subject_size
            memcpy(at + 1, &subject_size, 2)
            memcpy(at + 3, &op.headers_size, 4)
            memcpy(at + 7, &op.payload_size, 4)
            at = put(at + HEAD_SIZE, source + op.subject_start, op.subject_size)
            at = put(at, source + op.headers_start, op.headers_size)
            at = put(at, source + op.payload_start, op.payload_size)
    return stop


def unpack(bytes entry not None, Py_ssize_t offset, Py_ssize_t count):
    """The operations of `count` messages in an entry, which end it; ValueError when they do not. See `pack.py`."""
    cdef Py_ssize_t size = len(entry), words, number
    cdef const uint8_t* source = entry
    cdef PubOp* op
    cdef uint16_t subject_size
    cdef uint32_t headers_size, payload_size
    if not 0 <= offset <= size or count < 0:
        raise IndexError(f"{count} messages at {offset} of {size} bytes")
    if size > UINT32_MAX:
        raise ValueError(f"an entry of {size} bytes: offsets are of 32 bits")
    if count > (size - offset) // HEAD_SIZE:  # no room is made for what cannot be there: the reference says why not
        return _twin.unpack(entry, offset, count)
    ops = array("I", (0,)) * (count * OP_WORDS)
    cdef PubOp* op_list = ops_of(ops, &words) if count else NULL
    for number in range(count):
        op = op_list + number
        if size - offset < HEAD_SIZE:
            raise ends_early(number)
        memcpy(&subject_size, source + offset + 1, 2)
        memcpy(&headers_size, source + offset + 3, 4)
        memcpy(&payload_size, source + offset + 7, 4)
        op.flags = source[offset]
        if op.flags & ~OP_MSG_ID:
            raise bad_flags(number, op.flags)
        offset += HEAD_SIZE
        if <uint64_t>subject_size + headers_size + payload_size > <uint64_t>(size - offset):
            raise ends_early(number)
        op.subject_start, op.subject_size = <uint32_t>offset, subject_size
        op.headers_start, op.headers_size = <uint32_t>(offset + subject_size), headers_size
        op.payload_start, op.payload_size = op.headers_start + headers_size, payload_size
        offset += <Py_ssize_t>subject_size + headers_size + payload_size
        if not is_good(op, size):
            raise ValueError(f"message {number}: {op_problem(size, ops[number * OP_WORDS : (number + 1) * OP_WORDS])}")
    if offset != size:
        raise bytes_over(size - offset)
    return ops
