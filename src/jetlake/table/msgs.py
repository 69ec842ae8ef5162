"""Decode what a server sends to a pull consumer into Arrow columns: the face of the kernel for live servers.

`receive` takes bytes as they came from the socket. Each delivered message (MSG or HMSG with an ack subject, which holds
its sequence and time) up to `last_seq` becomes a row. It stops at a message that is not complete, when there is no room
for more rows, or in front of a line of another kind, which is left to Python: statuses, PING, errors. Texts are copied
in steps of SLACK bytes, so there must be that many readable bytes behind `end`.
"""

from __future__ import annotations

from jetlake.store.kernels import COMPILED as STORE_COMPILED
from jetlake.table._msgs_py import SLACK, Received

try:
    from jetlake.table._msgs_c import receive

    COMPILED = STORE_COMPILED
except ImportError:  # not built here: slower, never different
    COMPILED = False

if not COMPILED:
    from jetlake.table._msgs_py import receive

__all__ = ["COMPILED", "SLACK", "Received", "receive"]
