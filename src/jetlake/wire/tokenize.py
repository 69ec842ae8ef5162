"""Find the publishes in a received buffer, without an object each.

`tokenize(data, start, end, ops, count_max, max_payload, max_control_line, headers=True)` walks the consecutive PUB and
HPUB messages of data[start:end] and writes an operation for each into `ops` (see `jetlake.ops`; offsets count from
the start of `data`). It returns (operations written, offset of the first byte not consumed, reason, needed):

    reason              what lies at the offset                                   needed
    NEED_MORE           an incomplete line                                        0
    NEED_MORE           a message whose line is complete, and its payload is not  the size of the whole message
    OTHER               a complete line of another verb, for `verbs.parse_line`   the size of the line, LF included
    FULL                more, but `count_max` operations are written              0
    an error, >= 3      what the client did wrong: `protocol.ERROR_TEXTS`         0

What was written before an error stands: nats-server has handled it by then, too. An error is found as early as
nats-server finds it, and however the bytes were cut into reads. `max_payload` below 0 is no limit; `headers` says
whether the client may send HPUB.

Tolerances are those of nats-server 2.15 (any case of verbs, runs of space and tab, LF alone), except for three:
a CR or LF within a subject or reply closes the connection, because nats-server passes it on or drops it depending on
how the bytes were cut, and a subscriber would take it for the end of a line; what may be skipped (space after a verb,
words after PING) is bounded by `max_control_line`, because it is buffered here; HMSG is not known from a client.
A header line that starts with `Nats-` makes an operation special, and `Nats-Msg-Id` is marked: in the exact spelling
and after a CRLF, as nats-server looks for them.
"""

from __future__ import annotations

try:
    from jetlake.wire._tokenize_c import tokenize

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.wire._tokenize_py import tokenize

    COMPILED = False

__all__ = ["COMPILED", "tokenize"]
