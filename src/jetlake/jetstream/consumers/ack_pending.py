"""Messages that a consumer delivered and that are not yet acknowledged.

A message enters at its first delivery, so stream sequences and consumer sequences ascend together; a redelivery only
changes its time. Whole runs enter at once, and acks that arrived together leave at once. An entry costs 24 bytes, every
operation on one message is a look-up by position (or a bisection where sequences have gaps), and the smallest pending
message, on which the ack floor depends, is always at hand.

`parse_acks` reads the acks of one consumer straight from the operations that the wire parser found.
"""

from __future__ import annotations

from jetlake.jetstream.consumers._ack_pending_py import TIME_MAX_NS

try:
    from jetlake.jetstream.consumers._ack_pending_c import AckPending, parse_acks

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.jetstream.consumers._ack_pending_py import AckPending, parse_acks

    COMPILED = False

__all__ = ["COMPILED", "TIME_MAX_NS", "AckPending", "parse_acks"]
