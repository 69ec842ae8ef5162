"""Loops over the ranges of a SequenceSet, in Python: the reference of `_ranges_c.pyx`. `sequence_set.py` has the rules.

Ranges lie in two columns, first and last sequences; they ascend, and neither overlap nor touch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from heapq import merge
from itertools import chain, islice

from jetlake.store.records.varint import U64_MAX, decode_varint, encode_varint, varint_size


def merge_ranges(
    starts: Sequence[int], ends: Sequence[int], firsts: Sequence[int], lasts: Sequence[int]
) -> tuple[array[int], array[int], int]:
    """The ranges of both, as one set, and how many sequences they hold. The second ones may touch."""
    check_columns(len(starts), len(ends))
    check_columns(len(firsts), len(lasts))
    new_starts, new_ends = array("Q"), array("Q")
    pairs = merge(zip(starts, ends, strict=True), zip(firsts, lasts, strict=True))
    for first, last in pairs:
        if new_ends and first <= new_ends[-1] + 1:
            new_ends[-1] = max(new_ends[-1], last)
        else:
            new_starts.append(first)
            new_ends.append(last)
    return new_starts, new_ends, sum(new_ends) - sum(new_starts) + len(new_ends)


def encode_ranges(starts: Sequence[int], ends: Sequence[int]) -> bytes:
    """For each range, how far it is from the one before it, and its length less one."""
    check_columns(len(starts), len(ends))
    parts, previous = list[bytes](), 0
    for first, last in zip(starts, ends, strict=True):
        parts += [encode_varint(first - previous), encode_varint(last - first)]
        previous = last
    return b"".join(parts)


def seqs_within(starts: Sequence[int], ends: Sequence[int], seqs: Sequence[int]) -> array[int]:
    """Those of some sequences, in ascending order, that lie in a range."""
    check_columns(len(starts), len(ends))
    found, place = array("Q"), 0
    for seq in seqs:
        place = bisect_left(ends, seq, place)
        if place == len(ends):
            break
        if starts[place] <= seq:
            found.append(seq)
    return found


def seqs_json(starts: Sequence[int], ends: Sequence[int], count_max: int) -> bytes:
    """A JSON array of the sequences in ranges, the first so many of them."""
    check_columns(len(starts), len(ends))
    seqs = chain.from_iterable(range(first, last + 1) for first, last in zip(starts, ends, strict=True))
    return b"[%s]" % b",".join(b"%d" % seq for seq in islice(seqs, max(count_max, 0)))


def decode_ranges(data: bytes, offset: int, range_count: int) -> tuple[array[int], array[int], int, int]:
    """So many ranges from an offset on, how many sequences they hold, and the offset after them."""
    if not 0 <= offset <= len(data) or range_count < 0:
        raise IndexError(f"{range_count} ranges at offset {offset} of {len(data)} bytes")
    starts, ends, count = array("Q"), array("Q"), 0
    for _ in range(range_count):
        gap, after_gap = decode_number(data, offset)
        extra, after = decode_number(data, after_gap)
        if ends and gap < 2:
            raise ValueError(f"sequence set: the range at offset {offset} overlaps or touches the one before it")
        first = gap + (ends[-1] if ends else 0)
        if first + extra > U64_MAX:
            raise ValueError(f"sequence set: the range at offset {offset} exceeds 2**64-1")
        starts.append(first)
        ends.append(first + extra)
        count += extra + 1
        offset = after
    return starts, ends, count, offset


def decode_number(data: bytes, offset: int) -> tuple[int, int]:
    """A varint in its shortest form, and the offset after it."""
    value, after = decode_varint(data, offset)
    if after - offset > 1 and after - offset != varint_size(value):
        raise ValueError(f"sequence set: the varint at offset {offset} is longer than its value needs")
    return value, after


def check_columns(starts_count: int, ends_count: int) -> None:
    """Raise unless there are as many first as last sequences."""
    if starts_count != ends_count:
        raise ValueError(f"{starts_count} starts and {ends_count} ends of ranges")
