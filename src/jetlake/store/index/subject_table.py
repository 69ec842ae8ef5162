"""Which subjects hold messages, and how many: the face of the subject table.

The compiled twin if it is built, else the reference; `_subject_table_py` says how it works and what is always true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.store.index._subject_scan_py import NO_ID
from jetlake.store.index._subject_table_py import FIRST_STALE, LAST_STALE, SEQ_MAX, SUBJECT_SIZE_MAX
from jetlake.store.kernels import COMPILED

if TYPE_CHECKING:
    from jetlake.store.index._subject_filter_py import SubjectFilter
    from jetlake.store.index._subject_lists_py import last_seqs, seq_bounds, totals_json
    from jetlake.store.index._subject_scan_py import count_live, count_matches, find_match, find_match_back, list_live
    from jetlake.store.index._subject_table_py import SubjectTable
elif COMPILED:
    from jetlake.store.index._subject_filter_c import SubjectFilter
    from jetlake.store.index._subject_lists_c import last_seqs, seq_bounds, totals_json
    from jetlake.store.index._subject_scan_c import count_live, count_matches, find_match, find_match_back, list_live
    from jetlake.store.index._subject_table_c import SubjectTable
else:
    from jetlake.store.index._subject_filter_py import SubjectFilter
    from jetlake.store.index._subject_lists_py import last_seqs, seq_bounds, totals_json
    from jetlake.store.index._subject_scan_py import count_live, count_matches, find_match, find_match_back, list_live
    from jetlake.store.index._subject_table_py import SubjectTable

KERNEL = COMPILED

__all__ = [
    "FIRST_STALE",
    "KERNEL",
    "LAST_STALE",
    "NO_ID",
    "SEQ_MAX",
    "SUBJECT_SIZE_MAX",
    "SubjectFilter",
    "SubjectTable",
    "count_live",
    "count_matches",
    "find_match",
    "find_match_back",
    "last_seqs",
    "list_live",
    "seq_bounds",
    "totals_json",
]
