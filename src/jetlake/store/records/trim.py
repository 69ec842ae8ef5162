"""Take many messages out of a stream at once: what `bulk_removal.py` does in loops.

What each function is for
    oldest_known    which messages are too many, where the subject table knows them
    oldest_in       the others, by one pass over the index of a block
    locate          where messages lie in an index
    measure_at      the sizes of messages, from the bytes of their block
    message_size    the same of one message
    leave           take messages out of the subject table
    encode_losses   what subjects lose by that, in bytes
    skip_losses     where those bytes end
"""

from __future__ import annotations

from jetlake.store.kernels import COMPILED

if COMPILED:
    from jetlake.store.records._trim_c import (
        encode_losses,
        leave,
        locate,
        measure_at,
        message_size,
        oldest_in,
        oldest_known,
        skip_losses,
    )
else:
    from jetlake.store.records._trim_py import (
        encode_losses,
        leave,
        locate,
        measure_at,
        message_size,
        oldest_in,
        oldest_known,
        skip_losses,
    )

__all__ = [
    "encode_losses",
    "leave",
    "locate",
    "measure_at",
    "message_size",
    "oldest_in",
    "oldest_known",
    "skip_losses",
]
