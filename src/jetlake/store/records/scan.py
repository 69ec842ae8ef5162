"""Walk the records of a block: recovery, rebuilt sidecars and verification all come through here.

`scan` verifies the checksum of every record and fills the arrays from which a block is read. After damage it looks for
the next sound record, byte by byte; only one with a plausible sequence is hashed at all. Messages are counted into a
subject table. What follows the last sound record is left to the caller, who knows whether the block was still being
written to. Ascending order of sequences is part of what makes a record sound.

`uncount` takes a run of messages out of a table again, until so many or so many bytes have left (limits that evict from
the front). It stops in front of a damaged record.

`copy_live(head, data, offsets, seqs, seed, starts, ends)` makes the body of a rewritten block: bytes to begin with,
then the messages that a scan of `data` found, but for those whose sequences lie in the ranges starts..ends.
"""

from __future__ import annotations

from jetlake.store.kernels import COMPILED
from jetlake.store.records._scan_py import Scan

if COMPILED:
    from jetlake.store.records._scan_c import copy_live, scan, uncount
else:
    from jetlake.store.records._scan_py import copy_live, scan, uncount

__all__ = ["Scan", "copy_live", "scan", "uncount"]
