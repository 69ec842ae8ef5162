"""Walk the records of a nats-server block: the face of the kernel.

`walk(data, start, end, key, is_strict, prev_seq, first_seq, last_seq, gone_starts, gone_ends, ops, seqs, times)` reads
records from data[start:end] and verifies their hashes with the block's key. Each message becomes an operation (see
`jetlake.ops`: where its parts lie in `data`, and in `reply_size` the size of its record), a sequence and a time.
Messages outside first_seq..last_seq or in a gone range are left out, and so is one whose sequence is not above all
before it in the block. It stops at the end, when there is no room for more entries, or at bytes that are no record.

nats-server has two ways to read a block, and so has this. Not strict: the caller knows from an index what is live; a
record whose hash is wrong is stepped over, tombstones are of no interest. Strict: the block is all there is to know, so
a wrong hash ends it, and tombstones are entries of their own, with the flag IS_TOMBSTONE.

An operation is OP_MSG_ID when its headers hold a Nats-Msg-Id, and OP_SPECIAL when they hold a Nats-TTL.
"""

from __future__ import annotations

from jetlake.store.kernels import COMPILED as STORE_COMPILED
from jetlake.store.nats._walk_py import Walked

try:
    from jetlake.store.nats._walk_c import hash64, walk

    COMPILED = STORE_COMPILED
except ImportError:  # not built here: slower, never different
    COMPILED = False

if not COMPILED:
    from jetlake.store.nats._walk_py import hash64, walk

__all__ = ["COMPILED", "Walked", "hash64", "walk"]
