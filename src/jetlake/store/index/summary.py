"""The subjects of one block: as a table of their own, and as bytes in its sidecar.

`localize(table, ids, seqs, base_seq, starts, ends)` takes the slots of a block's messages in the whole stream's table
(NO_ID: not a live message) and returns a table of just those subjects, with slots 0..n-1 in order of appearance,
counted by sequence, and the same messages' slots in it. The message at position i has the sequence base_seq + seqs[i],
or base_seq + i where seqs is None; those whose sequences lie in the ranges starts..ends are not live either.

Encoded: varint count, then for each slot: varint size, subject, varint messages, varint first (from base_seq), varint
last (from first). `merge_subjects` adds such bytes to a table and returns the offset after them.

`subject_bits` makes a Bloom filter of such bytes, about one byte for each subject and at most 8 KiB: what `may_hold`
says no to is not among them. It stays in memory, so that a search need not read the sidecar of every block on its way.
"""

from __future__ import annotations

from collections.abc import Iterable

from jetlake.store.kernels import COMPILED

if COMPILED:
    from jetlake.store.index._summary_c import encode_subjects, localize, merge_subjects, subject_bits
else:
    from jetlake.store.index._summary_py import encode_subjects, localize, merge_subjects, subject_bits

__all__ = ["encode_subjects", "localize", "may_hold", "merge_subjects", "subject_bits"]


def may_hold(bits: bytes, subject_hashes: Iterable[int]) -> bool:
    """Whether a subject with one of these hashes (`hash64`, seed 0) may be among those of some `subject_bits`."""
    mask = len(bits) - 1
    return any(
        bits[number >> 3 & mask] >> (number & 7) & bits[number >> 35 & mask] >> (number >> 32 & 7) & 1
        for number in subject_hashes
    )
