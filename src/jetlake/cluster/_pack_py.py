"""Messages in flat bytes, in Python: the reference of `_pack_c.pyx`. `pack.py` says what it is for."""

from __future__ import annotations

import struct
from array import array

from jetlake.ops import OP_ADMITTED, OP_EXPECTS, OP_MSG_ID, OP_SPECIAL, OP_WORDS
from jetlake.store.format import Buffer
from jetlake.store.records._encode_py import op_problem

HEAD = struct.Struct("<BHII")
HEAD_SIZE = HEAD.size
assert HEAD_SIZE == 11


def pack(data: Buffer, ops: array[int], first: int, stop: int, out: bytearray, takes_all: bool) -> int:
    """Append the messages of operations first..stop-1 to `out`; where it stopped. See `pack.py`."""
    check_pack(len(ops), first, stop)
    for number in range(first, stop):
        op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
        if not takes_all and (op[9] & (OP_SPECIAL | OP_ADMITTED) == OP_SPECIAL or op[9] & OP_EXPECTS):
            return number
        problem = op_problem(len(data), op)
        if problem is not None:
            if number > first:  # what is done stands; the next call says what is wrong
                return number
            raise problem
        out += HEAD.pack(op[9] & OP_MSG_ID, op[1], op[5], op[7])
        for start, size in (op[0:2], op[4:6], op[6:8]):
            out += data[start : start + size]
    return stop


def unpack(entry: bytes, offset: int, count: int) -> array[int]:
    """The operations of `count` messages in an entry, which end it; ValueError when they do not. See `pack.py`."""
    ops = array("I")
    if not 0 <= offset <= len(entry) or count < 0:
        raise IndexError(f"{count} messages at {offset} of {len(entry)} bytes")
    if len(entry) > 2**32 - 1:
        raise ValueError(f"an entry of {len(entry)} bytes: offsets are of 32 bits")
    for number in range(count):
        if len(entry) - offset < HEAD_SIZE:
            raise ends_early(number)
        flags, subject_size, headers_size, payload_size = HEAD.unpack_from(entry, offset)
        if flags & ~OP_MSG_ID:
            raise bad_flags(number, flags)
        offset += HEAD_SIZE
        if subject_size + headers_size + payload_size > len(entry) - offset:
            raise ends_early(number)
        headers, payload = offset + subject_size, offset + subject_size + headers_size
        op = [offset, subject_size, 0, 0, headers, headers_size, payload, payload_size, 0, flags, 0, 0]
        offset = payload + payload_size
        problem = op_problem(len(entry), array("I", op))
        if problem is not None:
            raise ValueError(f"message {number}: {problem}")
        ops.extend(op)
    if offset != len(entry):
        raise bytes_over(len(entry) - offset)
    return ops


def check_pack(words: int, first: int, stop: int) -> None:
    """IndexError unless the operations are in the array."""
    if not 0 <= first <= stop <= words // OP_WORDS:
        raise IndexError(f"operations {first}..{stop} of {words // OP_WORDS}")


def ends_early(number: int) -> ValueError:
    """An entry is shorter than it says."""
    return ValueError(f"the entry ends within message {number}")


def bad_flags(number: int, flags: int) -> ValueError:
    """A message is marked with something that nobody marks messages with."""
    return ValueError(f"message {number} has the flags {flags:#x}")


def bytes_over(size: int) -> ValueError:
    """An entry is longer than it says."""
    return ValueError(f"{size} bytes follow the last message")
