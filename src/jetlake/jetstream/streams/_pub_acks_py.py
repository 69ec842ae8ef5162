"""The acks of a run of publishes, in Python: the reference of `_pub_acks_c.pyx`. Import `pub_acks`."""

from __future__ import annotations

from array import array

from jetlake.broker._frames_py import Buffer, parts_of
from jetlake.ops import check_ops
from jetlake.wire.writer import msg


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
    """The PubAcks of the publishes first..stop-1, as far as their replies go to one subscription; see `pub_acks.py`."""
    check_ops(len(data), len(ops), first, stop)
    frames: list[bytes] = []
    for number in range(first, stop):
        _, reply, _, _ = parts_of(data, ops, number)
        if reply:
            if not is_reply_to(reply, prefix, may_have_dots):
                return b"".join(frames), number
            frames.append(msg(reply, sid, b"%s%d}" % (body, seq + number - first)))
    return b"".join(frames), stop


def is_reply_to(reply: bytes, prefix: bytes, may_have_dots: bool) -> bool:
    """Whether a reply is the prefix and one more token, or several of which none is empty."""
    rest = reply[len(prefix) :]
    if not reply.startswith(prefix) or not rest or (not may_have_dots and b"." in rest):
        return False
    return not may_have_dots or b"" not in rest.split(b".")
