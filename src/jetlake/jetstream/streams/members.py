"""Which publishes of a run belong to a batch and need no look at them by Python.

`atomic_run(data, ops, first, stop, batch_id, seq, size_max)` looks for members of an atomic batch from an operation on:
their headers name the batch and sequences that go on from `seq`, they do not commit it, and they want no answer. It
returns the operation at which it stopped, the least and the greatest offset of what they take in the buffer, and
whether all of them are plain: no other header of JetStream's.

`fast_run(data, ops, first, stop, head, seq, size_max)` looks for members of a fast-ingest batch: their replies are
`head`, sequences that go on from `seq`, and the end of a plain append; they have no header of JetStream's. It returns
the operation at which it stopped.

Both stop in front of a message that is too large (`size_max` below 0: no limit) or has a status in its header block.

`moved(ops, first, stop, distance)` gives a copy of some operations for a buffer in which their parts lie so much later.
"""

from __future__ import annotations

try:
    from jetlake.jetstream.streams._members_c import atomic_run, fast_run, moved

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.jetstream.streams._members_py import atomic_run, fast_run, moved

    COMPILED = False

__all__ = ["COMPILED", "atomic_run", "fast_run", "moved"]
