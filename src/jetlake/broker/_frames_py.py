"""Frames of a batch of publishes, in Python: the reference of `_frames_c.pyx`. Import `frames`."""

from __future__ import annotations

from array import array

from jetlake.ops import OP_SPECIAL, OP_WORDS, check_ops
from jetlake.wire.writer import msg

Buffer = bytes | bytearray


def msg_frames(data: Buffer, ops: array[int], first: int, stop: int, sid: bytes, headers: bool) -> tuple[bytes, int]:
    """What a subscription receives for the publishes first..stop-1; see `frames.py`."""
    check_ops(len(data), len(ops), first, stop)
    frames, size = [], 0
    for number in range(first, stop):
        subject, reply, block, payload = parts_of(data, ops, number)
        frames.append(msg(subject, sid, payload, reply, block if headers else b""))
        size += len(payload) + len(block) * headers
    return b"".join(frames), size


def link_frames(
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
    verb: bytes,
    headers_verb: bytes,
    queues: bytes,
    headers: bool,
) -> tuple[bytes, int]:
    """What a link receives for the publishes first..stop-1; see `frames.py`."""
    check_ops(len(data), len(ops), first, stop)
    frames, size = [], 0
    for number in range(first, stop):
        subject, reply, block, payload = parts_of(data, ops, number)
        block = block if headers else b""
        target = (b"+ %s %s " % (reply, queues) if reply else b"| %s " % queues) if queues else reply and reply + b" "
        sizes = b"%d %d" % (len(block), len(block) + len(payload)) if block else b"%d" % len(payload)
        frames.append(
            b"%s %s %s%s\r\n%s%s\r\n" % (headers_verb if block else verb, subject, target, sizes, block, payload)
        )
        size += len(payload) + len(block)
    return b"".join(frames), size


def msgs_size(ops: array[int], first: int, stop: int) -> int:
    """The size of the headers and payloads of the publishes first..stop-1."""
    check_ops(0, len(ops), first, stop)
    return sum(sum(ops[first * OP_WORDS + field : stop * OP_WORDS : OP_WORDS]) for field in (5, 7))


def find_traced(data: Buffer, ops: array[int], first: int, stop: int, by_parent: bool) -> int:
    """The first of the publishes first..stop-1 whose headers ask for a trace, or stop; see `frames.py`."""
    check_ops(len(data), len(ops), first, stop)
    for number in range(first, stop):
        at = number * OP_WORDS
        if not ops[at + 5] or not (by_parent or ops[at + 9] & OP_SPECIAL):
            continue
        lines = parts_of(data, ops, number)[2].split(b"\n")[1:]
        if any(line.startswith(b"Nats-Trace-Dest:") for line in lines):
            return number
        if by_parent and any(line[:12].lower() == b"traceparent:" for line in lines):
            return number
    return stop


def parts_of(data: Buffer, ops: array[int], number: int) -> list[bytes]:
    """Subject, reply, headers and payload of an operation. Raises IndexError when it is not in the buffer."""
    op = ops[number * OP_WORDS : number * OP_WORDS + 8]
    if any(op[field] + op[field + 1] > len(data) for field in (0, 2, 4, 6)):
        raise IndexError(f"operation {number} is not in the buffer")
    return [bytes(data[op[field] : op[field] + op[field + 1]]) for field in (0, 2, 4, 6)]
