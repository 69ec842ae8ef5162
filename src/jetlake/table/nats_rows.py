"""Messages of a nats-server block into Arrow columns: the face of the kernel.

`fill(data, ops, seqs, times, first, stop, filter, time_ns_min, time_ns_max, columns)` takes what `store.nats.walk`
found (verified messages, in the order of their places in `data`) and copies those that subject and time let through.
"""

from __future__ import annotations

from jetlake.store.kernels import COMPILED as STORE_COMPILED
from jetlake.table._nats_py import Filled

try:
    from jetlake.table._nats_c import fill

    COMPILED = STORE_COMPILED
except ImportError:  # not built here: slower, never different
    COMPILED = False

if not COMPILED:
    from jetlake.table._nats_py import fill

__all__ = ["COMPILED", "Filled", "fill"]
