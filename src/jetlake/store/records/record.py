"""One record: to bytes and back. `format.py` has the layout; `encode.py` and `scan.py` do many at once."""

from __future__ import annotations

from jetlake.store.kernels import COMPILED
from jetlake.store.records._record_py import BadRecord, Layout, Record, check_sizes, measure

if COMPILED:
    from jetlake.store.records._record_c import decode, encode
else:
    from jetlake.store.records._record_py import decode, encode

__all__ = ["BadRecord", "Layout", "Record", "check_sizes", "decode", "encode", "measure"]
