"""Answers to a run of gets, without an object for each request: direct gets by subject, and STREAM.MSG.GET.

`find_last(table, data, ops, first, stop, skip, seq_max, seqs)` looks up the last sequence of the subject that each
operation asks for: what its own subject goes on with after `skip` bytes. It stops in front of an operation that has
headers, a payload or no reply, or whose subject has no message, one whose sequence has to be searched for, or one above
`seq_max`; it returns where.

`get_frames(data, ops, first, records, seqs, seeds, prefix, may_have_dots, sid, stream)` makes the answers from records
as they were stored, one for each operation from `first` on, for as long as the replies are the prefix and one more
token (or several, with `may_have_dots`; see `broker.frames`) and the records are sound messages of these sequences.

`find_asked(table, data, ops, first, stop, skip, name, seq_max, seqs)` and `message_frames(data, ops, first, records,
seqs, seeds, prefix, may_have_dots, sid)` do the same for requests that say in JSON which message they want, and get it
in JSON. The first stops in front of an operation whose subject does not go on with `name`, and of one that says
anything but a sequence or the last message of a subject: {"seq":1} or {"last_by_subj":"a"}.
"""

from __future__ import annotations

from jetlake.jetstream.streams._gets_py import TIME_NS_MAX

try:
    from jetlake.jetstream.streams._gets_c import find_asked, find_last, get_frames, message_frames

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.jetstream.streams._gets_py import find_asked, find_last, get_frames, message_frames

    COMPILED = False

__all__ = ["COMPILED", "TIME_NS_MAX", "find_asked", "find_last", "get_frames", "message_frames"]
