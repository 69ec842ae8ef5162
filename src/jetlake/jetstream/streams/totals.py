"""What counters count, remembered from run to run, and the runs of increments that need no more than that.

`Totals(table)` belongs to the subject table of a stream. A total counts while the message that it stands in is the last
one of its subject: `put(subject, seq, value)` remembers it, `get(subject)` gives it, or None.

`count(data, ops, first, stop, seq, size_max)` looks at publishes that are about to be stored from `seq` on, up to one
that is not a plain increment of a subject whose total is known: with a payload, with another header of JetStream's,
with numbers beyond 64 bits. It returns where that is, the payloads of those before it in one piece, the least and the
greatest offset of what else they take in the buffer, and their operations for a buffer that holds both, one after the
other. The totals are those after the run: if it is not stored, `clear` has to be called.

`total_frames(data, ops, first, stop, prefix, may_have_dots, sid, body, seq, payloads, words)` gives the acks of a run,
as `ack_frames` does (see `pub_acks.py`), with the total of each; payloads and words are those of `count`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.store.index.subject_table import KERNEL as COMPILED

if TYPE_CHECKING or not COMPILED:
    from jetlake.jetstream.streams._totals_py import Totals, total_frames
else:
    from jetlake.jetstream.streams._totals_c import Totals, total_frames

__all__ = ["COMPILED", "Totals", "total_frames"]
