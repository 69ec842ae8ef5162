"""Frames of a batch of publishes: what subscribers receive.

`msg_frames(data, ops, first, stop, sid, headers)` gives the MSG and HMSG frames of a run of publishes for one
subscription, and the size of their headers and payloads. Headers are left out if the client takes none.

`link_frames(data, ops, first, stop, verb, headers_verb, queues, headers)` gives the same for a link to another server,
with its verbs (`LMSG` and `HMSG`). `queues` are the names of the queue groups of which somebody behind the link is to
get the messages, separated by spaces.

`msgs_size(ops, first, stop)` is the size of the headers and payloads of a run of publishes.

`find_traced(data, ops, first, stop, by_parent)` is the number of the first publish whose headers ask for a message
trace, or `stop`: by `Nats-Trace-Dest`, or if `by_parent` also by `traceparent`.
"""

from __future__ import annotations

try:
    from jetlake.broker._frames_c import find_traced, link_frames, msg_frames, msgs_size

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.broker._frames_py import find_traced, link_frames, msg_frames, msgs_size

    COMPILED = False

__all__ = ["COMPILED", "find_traced", "link_frames", "msg_frames", "msgs_size"]
