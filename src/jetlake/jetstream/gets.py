"""Answers to a run of direct gets by subject, without an object for each request.

`find_last(table, data, ops, first, stop, skip, seq_max, seqs)` looks up the last sequence of the subject that each
operation asks for: what its own subject goes on with after `skip` bytes. It stops in front of an operation that has
headers, a payload or no reply, or whose subject has no message, one whose sequence has to be searched for, or one above
`seq_max`; it returns where.

`get_frames(data, ops, first, records, seqs, seeds, prefix, may_have_dots, sid, stream)` makes the answers from records
as they were stored, one for each operation from `first` on, for as long as the replies are the prefix and one more
token (or several, with `may_have_dots`; see `broker.frames`) and the records are sound messages of these sequences.
"""

from __future__ import annotations

from jetlake.jetstream._gets_py import TIME_NS_MAX

try:
    from jetlake.jetstream._gets_c import find_last, get_frames

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.jetstream._gets_py import find_last, get_frames

    COMPILED = False

__all__ = ["COMPILED", "TIME_NS_MAX", "find_last", "get_frames"]
