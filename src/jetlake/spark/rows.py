"""Rows of an Arrow table to records of a block: the face of the kernel that writes.

`encode_rows` is the batch encoder of a store (`store.encode`) for columns in place of received operations. A task does
not know how many rows come before its own, so it numbers its records from 1; `shift` gives them their sequences when
all tasks are done. `operations` describes records as a wire parser would describe messages, so that a store can append
them.
"""

from __future__ import annotations

from jetlake.store.kernels import COMPILED as STORE_COMPILED

try:
    from jetlake.spark._rows_c import encode_rows, operations, shift

    COMPILED = STORE_COMPILED
except ImportError:  # not built here: slower, never different
    COMPILED = False

if not COMPILED:
    from jetlake.spark._rows_py import encode_rows, operations, shift

__all__ = ["COMPILED", "encode_rows", "operations", "shift"]
