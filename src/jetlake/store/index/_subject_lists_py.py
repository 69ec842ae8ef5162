"""What is told of many subjects at once: the reference twin of `_subject_lists_c.pyx`. Import `subject_table`.

A stream may have millions of subjects, and somebody may ask for all of them in one request: here that takes no Python
object for each. `slots` are those of subjects with live messages, as `SubjectTable.match` gives them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from jetlake.store.index._subject_table_py import LAST_STALE, SubjectTable


def totals_json(table: SubjectTable, slots: Sequence[int]) -> bytes:
    """A JSON object: how many messages each subject has. Bytes that are not UTF-8 are replaced."""
    _check(table, slots)
    return b"{%s}" % b",".join(b"%s:%d" % (quoted(table.subject(slot)), table.count(slot)) for slot in slots)


def last_seqs(table: SubjectTable, slots: Sequence[int]) -> tuple[array[int], array[int]]:
    """The last sequences of subjects, ascending, and the slots of those of which only a bound is known."""
    _check(table, slots)
    stale = array("I", (slot for slot in slots if table.flags(slot) & LAST_STALE))
    seqs = sorted(table.last(slot) for slot in slots if not table.flags(slot) & LAST_STALE)
    return array("Q", seqs), stale


def seq_bounds(table: SubjectTable, slots: Sequence[int], start: int) -> tuple[int, int]:
    """Sequences between which every message of these subjects at or after `start` lies; (0, 0) when there is none."""
    _check(table, slots)
    later = [slot for slot in slots if table.last(slot) >= start]
    if not later:
        return 0, 0
    return max(min(map(table.first, later)), start), max(map(table.last, later))


def quoted(subject: bytes) -> bytes:
    """A subject as a JSON string."""
    return msgspec.json.encode(subject.decode("utf-8", "replace"))


def _check(table: SubjectTable, slots: Sequence[int]) -> None:
    for slot in slots:
        if slot >= table.slot_limit or table.live_subject(slot) is None:
            raise IndexError(f"slot {slot} has no messages")
