"""The array of publish operations that the wire parser fills and a store's batch append takes as it is.

It lies below both, so that neither knows the other. An operation is ten unsigned 32-bit integers: where the parts of
one received message lie in the buffer it arrived in. `ops.pxd` declares the same struct for the kernels.
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
)
OP_WORDS = len(OP_FIELDS)

# The batch append stops in front of such an operation: it needs a rule that only Python knows.
OP_SPECIAL = 1
# The headers hold a Nats-Msg-Id, which recovery wants to find again.
OP_MSG_ID = 2


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
    ops.extend([*places, 0, flags])
