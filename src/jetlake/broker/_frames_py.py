"""Frames of a batch of publishes, in Python: the reference of `_frames_c.pyx`. Import `frames`."""

from __future__ import annotations

from array import array

from jetlake.broker._routes_py import check_door
from jetlake.ops import OP_WORDS
from jetlake.wire.writer import msg

Buffer = bytes | bytearray


def msg_frames(data: Buffer, ops: array[int], first: int, stop: int, sid: bytes, headers: bool) -> tuple[bytes, int]:
    """What a subscription receives for the publishes first..stop-1; see `frames.py`."""
    check_door(len(data), len(ops), first, stop)
    frames, size = [], 0
    for number in range(first, stop):
        subject, reply, block, payload = _parts(data, ops, number)
        frames.append(msg(subject, sid, payload, reply, block if headers else b""))
        size += len(payload) + len(block) * headers
    return b"".join(frames), size


def ack_frames(
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
    prefix: bytes,
    may_have_dots: bool,
    sid: bytes,
    body: bytes,
    seq: int,
) -> tuple[bytes, int]:
    """The PubAcks of the publishes first..stop-1, as far as their replies go to one subscription; see `frames.py`."""
    check_door(len(data), len(ops), first, stop)
    frames: list[bytes] = []
    for number in range(first, stop):
        _, reply, _, _ = _parts(data, ops, number)
        if reply:
            rest = reply[len(prefix) :]
            if not reply.startswith(prefix) or not rest or (not may_have_dots and b"." in rest):
                return b"".join(frames), number
            if may_have_dots and b"" in rest.split(b"."):
                return b"".join(frames), number
            frames.append(msg(reply, sid, b"%s%d}" % (body, seq + number - first)))
    return b"".join(frames), stop


def _parts(data: Buffer, ops: array[int], number: int) -> list[bytes]:
    op = ops[number * OP_WORDS : number * OP_WORDS + 8]
    if any(op[field] + op[field + 1] > len(data) for field in (0, 2, 4, 6)):
        raise IndexError(f"operation {number} is not in the buffer")
    return [bytes(data[op[field] : op[field] + op[field + 1]]) for field in (0, 2, 4, 6)]
