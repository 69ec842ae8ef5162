"""Messages in flat bytes, as the entries of a group carry them.

A message is a head and its parts, and the next one follows at once:

    offset  size  field
    0       1     flags           OP_MSG_ID, if its headers hold an id
    1       2     subject_size
    3       4     headers_size
    7       4     payload_size
    11            subject, headers, payload

Numbers are little-endian. Example, subject `a`, no headers, payload `hi`:

    00 0100 00000000 02000000 61 6869

`pack(data, ops, first, stop, out, takes_all)` appends the messages of some operations (`jetlake.ops`) to `out` and
returns where it stopped. Unless it `takes_all`, that is in front of an operation which a batch append would stop at,
too: one that needs a rule, or one that expects a last sequence of its subject. Of a message that no store can take it
raises what a store would raise, after those before it are packed.

`unpack(entry, offset, count)` makes operations that point into the entry itself, so nothing is copied. The messages
must end where the entry ends. None of them is special: the rules that they met were asked before they were packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetlake.cluster._pack_py import pack, unpack

    COMPILED: bool
else:
    try:
        from jetlake.cluster._pack_c import pack, unpack

        COMPILED = True
    except ImportError:  # not built here: slower, never different
        from jetlake.cluster._pack_py import pack, unpack

        COMPILED = False

__all__ = ["COMPILED", "pack", "unpack"]
