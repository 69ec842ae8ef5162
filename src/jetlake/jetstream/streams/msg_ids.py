"""The dedupe window, and which publishes of a batch can be stored without a look at their headers.

`MsgIds` remembers the id of each message for a while: a second message with it is a duplicate. Time passed in never
goes back, so the oldest ids are the first to go. After a start they have to be read from the stored messages (`load`,
block by block), which is done when the first id is asked for: until `is_loaded`, `admit` lets none pass.

`admit(data, ops, first, stop, seq, now_ns, size_max)` looks at the publishes first..stop-1, which are about to be
stored from `seq` on, and returns where it found one that needs a rule: a reply of a fast-ingest batch, a header of
JetStream's other than an id or an expected last sequence, an id that is known, a last sequence of the stream that is
not the expected one, a status in its header block, headers or a message that are too large (`size_max` below 0: no
limit). The ids of those before it are remembered, and special ones are marked as admitted; an expected last sequence of
the subject is noted in the operation, for the batch append to compare. What is not stored then has to be taken back
with `forget_from`.

`take` remembers the ids of messages that were admitted elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.jetstream.streams._msg_ids_py import HEADERS_SIZE_MAX
from jetlake.store.index.subject_table import KERNEL as COMPILED

if TYPE_CHECKING or not COMPILED:
    from jetlake.jetstream.streams._msg_ids_py import MsgIds
else:
    from jetlake.jetstream.streams._msg_ids_c import MsgIds

__all__ = ["COMPILED", "HEADERS_SIZE_MAX", "MsgIds"]
