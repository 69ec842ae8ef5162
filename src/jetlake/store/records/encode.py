"""Encode a batch of messages straight from the buffer they arrived in into a block's chunk, without an object each.

`encode_batch(data, ops, first, stop, chunk, used, base, offsets, ids, count, table, seq, time_ns, seed, size_fixed,
size_headers, per_subject_max, over)` takes the operations first..stop-1 (see `jetlake.ops`), writes a record for each
into `chunk` from position `used`, notes its offset (base + position) and its subject's slot in offsets[count:] and
ids[count:], counts it in the table, and gives it the next sequence. It stops in front of an operation that does not
fit into the chunk or the index, or that is marked special. It returns (operations done up to, used, size of the
messages as JetStream counts it). The slot of each subject is left in the operation as a hint for the next time.
A slot that comes to hold one message more than per_subject_max is appended to `over` (0 or less: no limit).

`encode_batch_at(data, ops, seqs, times, expires, first, stop, chunk, used, base, offsets, ids, count, table, last_seq,
seed, size_fixed, size_headers, per_subject_max, over, gaps)` does the same with sequences and times that are given for
each message, and with times at which they expire (0: never; an empty array: none does). Sequences must rise from
last_seq + 1 on. Where one is left out, a SKIP record is written for those between, and their first and last are
appended to `gaps`. No operation is special here.

`check_batch(data, ops)` raises what is wrong with the first operation of which no record can be made.
"""

from __future__ import annotations

from jetlake.store.kernels import COMPILED

if COMPILED:
    from jetlake.store.records._encode_c import check_batch, encode_batch, encode_batch_at
else:
    from jetlake.store.records._encode_py import check_batch, encode_batch, encode_batch_at

__all__ = ["check_batch", "encode_batch", "encode_batch_at"]
