"""The array of publish operations that the wire parser fills and a store's batch append takes as it is.

It lies below both, so that neither knows the other. An operation is a row of unsigned 32-bit integers: where the parts
of one received message lie in the buffer it arrived in. `ops.pxd` declares the same struct for the kernels.
"""

from __future__ import annotations

from array import array

OP_FIELDS = (
    "subject_start",
    "subject_size",
    "reply_start",
    "reply_size",
    "headers_start",
    "headers_size",
    "payload_start",
    "payload_size",
    "slot",  # a hint: the subject's slot in the stream's subject table, plus one; 0 when not known
    "flags",
    "expected_low",  # with OP_EXPECTS: the last sequence that the subject must have
    "expected_high",
)
OP_WORDS = len(OP_FIELDS)

# The headers hold a rule of JetStream's: the batch append stops in front of such an operation, unless it is admitted.
OP_SPECIAL = 1
# The headers hold a Nats-Msg-Id, which recovery wants to find again.
OP_MSG_ID = 2
# The batch append stops in front of such an operation unless the subject's last sequence is the expected one.
OP_EXPECTS = 4
# The rules of a special operation were looked at, and allow it.
OP_ADMITTED = 8
# The next operation, or the one before, belongs to the same atomic batch.
OP_MORE = 16
OP_REST = 32


def append_op(
    ops: array[int],
    buffer: bytearray,
    subject: bytes,
    payload: bytes,
    headers: bytes = b"",
    reply: bytes = b"",
    flags: int = 0,
) -> None:
    """Append one message to a buffer and its operation to the array, as a wire parser would."""
    places = []
    for part in (subject, reply, headers, payload):
        places += [len(buffer), len(part)]
        buffer += part
    ops.extend([*places, 0, flags, 0, 0])


def check_ops(data_size: int, ops_size: int, first: int, stop: int) -> None:
    """Raise IndexError unless the operations are in the array."""
    if not 0 <= first < stop <= ops_size // OP_WORDS:
        raise IndexError(f"operations {first}..{stop} of {ops_size // OP_WORDS}")
    if data_size > 2**32 - 1:
        raise ValueError(f"buffer of {data_size} bytes: offsets are of 32 bits")
