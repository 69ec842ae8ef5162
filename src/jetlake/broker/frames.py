"""Frames of a batch of publishes: what subscribers receive, and the acks of a stream.

`msg_frames(data, ops, first, stop, sid, headers)` gives the MSG and HMSG frames of a run of publishes for one
subscription, and the size of their headers and payloads. Headers are left out if the client takes none.

`ack_frames(data, ops, first, stop, prefix, may_have_dots, sid, body, seq)` gives the PubAcks of a run of messages that
were stored from `seq` on, one after the other: the body followed by the sequence and a closing brace, to the reply of
each. It goes on as long as replies are the prefix and one more token (or several, with `may_have_dots`), which the
caller knows to reach the subscription `sid` alone; it returns the frames and the operation at which it stopped. A
message without a reply gets no ack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.store.subject_table import KERNEL as COMPILED

if TYPE_CHECKING or not COMPILED:
    from jetlake.broker._frames_py import ack_frames, msg_frames
else:
    from jetlake.broker._frames_c import ack_frames, msg_frames

__all__ = ["COMPILED", "ack_frames", "msg_frames"]
