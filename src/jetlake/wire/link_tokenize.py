"""Find the messages in what was received over a link, without an object each.

    LMSG subject [reply] size                   HMSG subject [reply] headers-size size
    LMSG subject + reply queue... size          ... with a reply, for members of these queue groups
    LMSG subject | queue... size                ... without
    RMSG account subject ...                    HMSG account subject ...

`tokenize_link(data, start, end, ops, count_max, max_payload, line_size_max, is_route=False)` writes an operation for
each message, as `tokenize` does for those of clients, and returns (operations written, offset of the first byte not
consumed, reason, needed, start and size of the queue groups' names, is_mapped, start and size of the account's name).
Messages are those of a leaf node (LMSG), or with `is_route` those of a route (RMSG), which name an account first. All
operations of one call are of the same account and name the same queue groups, as the same text, and are all mapped or
none is: where that changes, it stops with FULL.

A message is mapped if it comes from a consumer of the other server: its subject is where it was delivered to, and its
reply `$JS.ACK....@<subject that it was stored with>`. `restore_subjects(data, ops, count)` gives the same operations as
a subscriber is to see them: with that subject, and the reply without it.
"""

from __future__ import annotations

try:
    from jetlake.wire._link_tokenize_c import restore_subjects, tokenize_link

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.wire._link_tokenize_py import restore_subjects, tokenize_link

    COMPILED = False

__all__ = ["COMPILED", "restore_subjects", "tokenize_link"]
