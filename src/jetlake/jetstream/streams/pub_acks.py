"""The acks of a run of publishes, as the frames that one subscription gets.

`ack_frames(data, ops, first, stop, prefix, may_have_dots, sid, body, seq)` gives the PubAcks of a run of messages that
were stored from `seq` on, one after the other: the body followed by the sequence and a closing brace, to the reply of
each. It goes on as long as replies are the prefix and one more token (or several, with `may_have_dots`), which the
caller knows to reach the subscription `sid` alone; it returns the frames and the operation at which it stopped. A
message without a reply gets no ack.
"""

from __future__ import annotations

try:
    from jetlake.jetstream.streams._pub_acks_c import ack_frames

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.jetstream.streams._pub_acks_py import ack_frames

    COMPILED = False

__all__ = ["COMPILED", "ack_frames"]
