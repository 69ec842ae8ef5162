"""Loops over the ranges of a SequenceSet: merging two sets, and their encoded forms."""

from __future__ import annotations

from jetlake.store.kernels import COMPILED

if COMPILED:
    from jetlake.store.index._ranges_c import decode_ranges, encode_ranges, merge_ranges, seqs_json, seqs_within
else:
    from jetlake.store.index._ranges_py import decode_ranges, encode_ranges, merge_ranges, seqs_json, seqs_within

__all__ = ["decode_ranges", "encode_ranges", "merge_ranges", "seqs_json", "seqs_within"]
