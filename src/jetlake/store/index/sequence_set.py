"""A set of sequences (u64) that costs 16 bytes for each unbroken range: what is deleted, lost or skipped in a stream.

The ranges lie in two parallel arrays, the first and the last sequence of each. Every search is a bisection. Adding at
the end, as deleting in ascending order does, is O(1) amortised; a change elsewhere moves the ranges behind it, which
is one memmove. A set must not be changed while it is iterated over.

Always true: starts[i] <= ends[i] and ends[i] + 1 < starts[i+1] (sorted, disjoint, not adjacent), so equal sets have
equal arrays; and `count` is the sum of all lengths. All bounds are inclusive.

Encoded form (varints are unsigned LEB128 in their shortest form):

    size  field
       1  version      1
       v  count        of ranges
    then for each range
       v  gap          from the previous range's last sequence (from 0 for the first range); at least 2 after the first
       v  length - 1

    Example: the ranges 1-3, 10-10 and 300-431 are
    01 03 01 02 07 00 a2 02 83 01
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from jetlake.store.index._ranges_py import decode_number
from jetlake.store.index.ranges import decode_ranges, encode_ranges, merge_ranges, seqs_json
from jetlake.store.records.varint import U64_MAX, encode_varint

VERSION = 1
REPR_RANGES_MAX = 8
REBUILD_RATIO = 8  # against a set of at least an eighth of our ranges, one pass over both beats range by range


class SequenceSet:
    """A sorted set of u64, held as inclusive ranges."""

    __slots__ = ("_count", "_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: array[int] = array("Q")
        self._ends: array[int] = array("Q")
        self._count = 0
        for first, last in ranges:
            self.add_range(first, last)

    # Changing

    def add(self, seq: int) -> bool:
        """Add one sequence; True if it is new."""
        _check_range(seq, seq)
        starts, ends = self._starts, self._ends
        if not ends or seq > ends[-1]:
            return self._append(seq, seq) == 1
        low = bisect_left(ends, seq - 1)
        if ends[low] == seq - 1:
            if low + 1 < len(starts) and starts[low + 1] == seq + 1:  # it joins two ranges
                ends[low] = ends.pop(low + 1)
                del starts[low + 1]
            else:
                ends[low] = seq
        elif starts[low] == seq + 1:
            starts[low] = seq
        elif starts[low] <= seq:
            return False
        else:
            starts.insert(low, seq)
            ends.insert(low, seq)
        self._count += 1
        return True

    def add_range(self, first: int, last: int) -> int:
        """Add first to last; how many of them are new."""
        _check_range(first, last)
        if not self._ends or first > self._ends[-1]:
            return self._append(first, last)
        low = bisect_left(self._ends, first - 1)
        high = bisect_right(self._starts, last + 1)
        if low < high:  # these ranges overlap the new one or touch it: all become one
            first = min(first, self._starts[low])
            last = max(last, self._ends[high - 1])
        return self._splice(low, high, [first], [last])

    def add_all(self, seqs: array[int]) -> None:
        """Add sequences, given in ascending order: one pass over them and all ranges."""
        self._starts, self._ends, self._count = merge_ranges(self._starts, self._ends, seqs, seqs)

    def append_from(self, other: SequenceSet, first: int, last: int) -> None:
        """Add what another set holds of first to last, which must lie above all that is here; one copy of arrays."""
        low, high = other._touched(first, last) if first <= last else (0, 0)
        if low >= high:
            return
        starts, ends = other._starts[low:high], other._ends[low:high]
        starts[0], ends[-1] = max(first, starts[0]), min(last, ends[-1])
        _check_range(self._ends[-1] + 1 if self._ends else 0, starts[0])
        self._count += sum(ends) - sum(starts) + len(starts)
        if self._ends and self._ends[-1] + 1 == starts[0]:
            self._ends[-1] = ends.pop(0)
            del starts[0]
        self._starts += starts
        self._ends += ends

    def remove(self, seq: int) -> bool:
        """Remove one sequence; True if it was there."""
        return self.remove_range(seq, seq) == 1

    def remove_range(self, first: int, last: int) -> int:
        """Remove first to last; how many of them were there."""
        _check_range(first, last)
        low, high = self._touched(first, last)
        if low >= high:
            return 0
        starts, ends = [], []
        if self._starts[low] < first:
            starts.append(self._starts[low])
            ends.append(first - 1)
        if self._ends[high - 1] > last:
            starts.append(last + 1)
            ends.append(self._ends[high - 1])
        return -self._splice(low, high, starts, ends)

    def update(self, other: SequenceSet) -> None:
        """Add every sequence of another set: one pass over the ranges of both."""
        if other:
            self._starts, self._ends, self._count = merge_ranges(self._starts, self._ends, other._starts, other._ends)

    def difference_update(self, other: SequenceSet) -> None:
        """Remove every sequence of another set."""
        if other.range_count * REBUILD_RATIO >= self.range_count:
            self._become(SequenceSet(kept for first, last in self.ranges() for kept in other.gaps(first, last)))
            return
        for first, last in other.ranges():
            self.remove_range(first, last)

    def clear(self) -> None:
        """Remove every sequence."""
        self._become(SequenceSet())

    # Asking

    def __contains__(self, seq: int) -> bool:
        index = bisect_left(self._ends, seq)
        return index < len(self._starts) and self._starts[index] <= seq

    def __len__(self) -> int:
        """How many sequences; raises OverflowError above sys.maxsize, where `count` still answers."""
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceSet):
            return NotImplemented
        return self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]  # a set that changes cannot be a key

    def __repr__(self) -> str:
        shown = [f"{first}-{last}" for first, last in zip(self._starts[:REPR_RANGES_MAX], self._ends, strict=False)]
        if self.range_count > REPR_RANGES_MAX:
            shown.append(f"... {self.range_count} ranges")
        return f"SequenceSet({', '.join(shown)})"

    @property
    def count(self) -> int:
        """How many sequences."""
        return self._count

    @property
    def first(self) -> int:
        """The smallest sequence; LookupError if there is none."""
        if not self._starts:
            raise LookupError("the set is empty")
        return self._starts[0]

    @property
    def last(self) -> int:
        """The largest sequence; LookupError if there is none."""
        if not self._ends:
            raise LookupError("the set is empty")
        return self._ends[-1]

    @property
    def range_count(self) -> int:
        """How many ranges."""
        return len(self._starts)

    @property
    def size_bytes(self) -> int:
        """Bytes of memory that the ranges take."""
        return (len(self._starts) + len(self._ends)) * self._starts.itemsize

    @property
    def arrays(self) -> tuple[array[int], array[int]]:
        """The first and the last sequences of all ranges, for kernels to read: the set's own arrays, not copies."""
        return self._starts, self._ends

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Every range, ascending."""
        return zip(self._starts, self._ends, strict=True)

    def ranges_between(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """What the set holds of first to last, as ranges, ascending."""
        low, high = self._touched(first, last) if first <= last else (0, 0)
        for index in range(low, high):
            yield max(first, self._starts[index]), min(last, self._ends[index])

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """What the set lacks of first to last, as ranges, ascending; numbers outside 0..2**64-1 are left out."""
        missing = max(first, 0)
        last = min(last, U64_MAX)
        for start, end in self.ranges_between(missing, last):
            if missing < start:
                yield missing, start - 1
            missing = end + 1
        if missing <= last:
            yield missing, last

    def count_between(self, first: int, last: int) -> int:
        """How many of first to last the set holds: O(log ranges) and the ranges in between."""
        return sum(end - start + 1 for start, end in self.ranges_between(first, last))

    def next_missing(self, seq: int) -> int:
        """The smallest number from seq upwards that is not in the set; 2**64 if the set holds them all."""
        index = bisect_left(self._ends, seq)
        if index < len(self._starts) and self._starts[index] <= seq:
            return self._ends[index] + 1
        return seq

    def prev_missing(self, seq: int) -> int:
        """The largest number from seq downwards that is not in the set; -1 if the set holds them all."""
        index = bisect_left(self._ends, seq)
        if index < len(self._starts) and self._starts[index] <= seq:
            return self._starts[index] - 1
        return seq

    def copy(self) -> SequenceSet:
        """An independent set with the same sequences."""
        twin = SequenceSet()
        twin._starts, twin._ends, twin._count = self._starts[:], self._ends[:], self._count
        return twin

    # Encoded form

    def encode(self) -> bytes:
        """The encoded form; equal sets have equal bytes."""
        return bytes((VERSION,)) + encode_varint(self.range_count) + encode_ranges(self._starts, self._ends)

    def as_json(self, count_max: int) -> bytes:
        """The sequences as a JSON array, the first so many of them."""
        return seqs_json(self._starts, self._ends, count_max)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> SequenceSet:
        """The set that `encode` made these bytes of; ValueError if none did."""
        data = bytes(data)
        if not data or data[0] != VERSION:
            raise ValueError(f"sequence set: expected version {VERSION}, found {data[:1].hex() or 'nothing'}")
        range_count, offset = decode_number(data, 1)
        if range_count > (len(data) - offset) // 2:
            raise ValueError(f"sequence set: {range_count} ranges do not fit in {len(data) - offset} bytes")
        result = cls()
        result._starts, result._ends, result._count, offset = decode_ranges(data, offset, range_count)
        if offset != len(data):
            raise ValueError(f"sequence set: {len(data) - offset} bytes follow the last range")
        return result

    # Inside

    def _touched(self, first: int, last: int) -> tuple[int, int]:
        """The half-open index range of the ranges that share a sequence with first to last."""
        return bisect_left(self._ends, first), bisect_right(self._starts, last)

    def _append(self, first: int, last: int) -> int:
        """Add a range that lies above every other; how many are new."""
        if self._ends and self._ends[-1] + 1 == first:
            self._ends[-1] = last
        else:
            self._starts.append(first)
            self._ends.append(last)
        self._count += last - first + 1
        return last - first + 1

    def _splice(self, low: int, high: int, starts: list[int], ends: list[int]) -> int:
        """Put these ranges in place of those at low to high (half-open); by how much the count grew."""
        before = sum(self._ends[low:high]) - sum(self._starts[low:high]) + high - low
        grown = sum(ends) - sum(starts) + len(starts) - before
        self._starts[low:high] = array("Q", starts)
        self._ends[low:high] = array("Q", ends)
        self._count += grown
        return grown

    def _become(self, other: SequenceSet) -> None:
        self._starts, self._ends, self._count = other._starts, other._ends, other._count


def _check_range(first: int, last: int) -> None:
    if not 0 <= first <= last <= U64_MAX:
        raise ValueError(f"sequences {first} to {last} are not a range within 0..2**64-1")
