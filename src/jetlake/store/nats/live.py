"""Which messages of a nats-server stream are live: as its index says, or found out from the blocks.

A clean stop leaves an index.db that is the only record of what limits removed. nats-server takes it when it is *fresh*:
whole, about the last block as it is, and about no block that is not there. Otherwise (after a crash) it reads all
blocks: what no tombstone names is live, and the limits of the configuration are applied again, in nats-server's order.
Times of limits are counted to the last record of the store, not to now, so that the same files always read the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from jetlake.ops import OP_SPECIAL, OP_WORDS
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.nats.blocks import Batch, BlockReader, LiveBlock, Place
from jetlake.store.nats.envelope import last_hash
from jetlake.store.nats.format import IS_TOMBSTONE
from jetlake.store.nats.index import Index
from jetlake.store.nats.keys import AssetKey

_SEQ_MAX = 2**62 - 1


class Limits(NamedTuple):
    """What a configuration says about how much a stream holds; 0 or less: no limit."""

    max_msgs: int = 0
    max_bytes: int = 0
    max_age_ns: int = 0
    max_msgs_per_subject: int = 0
    is_discard_old: bool = True
    has_marker_ttl: bool = False
    ttl_of: Callable[[bytes], int] | None = None  # how long a message with these headers stays; None: no TTLs


class Live(NamedTuple):
    """The live messages of a stream, block by block."""

    blocks: list[LiveBlock]
    last_seq: int
    last_time_ns: int
    lost: SequenceSet  # what is known to be missing because of damage
    problems: list[str]


def why_stale(index: Index, places: dict[int, Place], last_bytes: bytes, last_key: AssetKey | None) -> str:
    """Why nats-server would not take an index; "" for one that is fresh."""
    listed = [entry.number for entry in index.blocks]
    if not listed or listed[-1] != index.last_block or index.last_block not in places:
        return "is not about the last block"
    if max(places) > index.last_block:
        return f"does not know block {max(places)}"
    if last_hash(last_bytes, last_key) != index.last_hash:
        return "was written before the last messages"
    missing = [entry.number for entry in index.blocks if entry.msgs and entry.number not in places]
    if missing:
        return f"has messages of block {missing[0]}, which is not there"
    if sum(entry.msgs for entry in index.blocks) != index.msgs:
        return "does not add up"
    return ""


def live_by_index(index: Index, places: dict[int, Place], sizes: dict[int, int]) -> Live:
    """What a fresh index says."""
    blocks = [
        LiveBlock(places[entry.number], entry.first_seq, entry.last_seq, entry.gone, sizes[entry.number])
        for entry in index.blocks
        if entry.msgs
    ]
    return Live(blocks, index.last_seq, index.last_time_ns, SequenceSet(), [])


class _Found(NamedTuple):
    """What a block holds."""

    place: Place
    seqs: SequenceSet
    is_damaged: bool
    end_seq: int


def live_by_scan(places: dict[int, Place], sizes: dict[int, int], limits: Limits, reader: BlockReader) -> Live:
    """What the blocks themselves say, read up to the first damaged record of each."""
    tombs, found, problems = SequenceSet(), list[_Found](), list[str]()
    last_seq = last_time_ns = 0
    for number in sorted(places):
        seqs = SequenceSet()
        for batch in reader.everything(places[number]):
            messages, removed, time_ns = _sorted_out(batch)
            seqs.add_all(messages)
            if removed:
                tombs.add_all(array("Q", sorted(set(removed))))
                last_seq = max(last_seq, max(removed))
            last_time_ns = max(last_time_ns, time_ns)
        last_seq = max(last_seq, reader.end_seq)
        found.append(_Found(places[number], seqs, bool(reader.problem), reader.end_seq))
        if reader.problem:
            problems.append(f"{places[number].path}: {reader.problem}")
    lost = _lost(found, tombs)
    blocks = []
    for block in found:
        block.seqs.difference_update(tombs)
        if block.seqs:
            blocks.append(_live_block(block.place, block.seqs, sizes[block.place.number]))
    blocks = _Limiter(limits, reader, last_time_ns).apply(blocks)
    return Live(blocks, last_seq, last_time_ns, lost, problems)


def _sorted_out(batch: Batch) -> tuple[array[int], array[int], int]:
    """The sequences of messages, those of tombstones, and the last time."""
    flags = batch.ops[9 : batch.entries * OP_WORDS : OP_WORDS]
    seqs = batch.seqs[: batch.entries]
    time_ns = max(batch.times[: batch.entries])
    if not any(flag & IS_TOMBSTONE for flag in flags):
        return seqs, array("Q"), time_ns
    messages = array("Q", (seq for seq, flag in zip(seqs, flags, strict=True) if not flag & IS_TOMBSTONE))
    removed = array("Q", (seq for seq, flag in zip(seqs, flags, strict=True) if flag & IS_TOMBSTONE))
    return messages, removed, time_ns


def _lost(found: list[_Found], tombs: SequenceSet) -> SequenceSet:
    """What may have stood behind the damage in each block, up to where the next one begins."""
    lost = SequenceSet()
    for block, after in zip(found, [*found[1:], None], strict=True):
        first = block.end_seq + 1
        last = after.seqs.first - 1 if after is not None and after.seqs else 0
        if block.is_damaged and last >= first:
            lost.add_range(first, last)
    lost.difference_update(tombs)
    return lost


def _live_block(place: Place, seqs: SequenceSet, size: int) -> LiveBlock:
    first, last = seqs.first, seqs.last
    return LiveBlock(place, first, last, SequenceSet(seqs.gaps(first, last)), size)


class _Limiter:
    """Applies the limits of a configuration, as nats-server does when it starts."""

    def __init__(self, limits: Limits, reader: BlockReader, now_ns: int) -> None:
        self._limits, self._reader, self._now_ns = limits, reader, now_ns

    def apply(self, blocks: list[LiveBlock]) -> list[LiveBlock]:
        limits = self._limits
        if limits.is_discard_old and limits.max_msgs > 0:
            blocks = _from(blocks, self._first_by_count(blocks))
        if limits.is_discard_old and limits.max_bytes > 0:
            blocks = _from(blocks, self._first_by_size(blocks))
        if limits.max_age_ns > 0 and not limits.has_marker_ttl:
            blocks = _from(blocks, self._first_by_age(blocks))
        if limits.max_msgs_per_subject > 0 or limits.ttl_of is not None:
            blocks = self._without_single_ones(blocks)
        return blocks

    def _first_by_count(self, blocks: list[LiveBlock]) -> int:
        left = self._limits.max_msgs
        for block in reversed(blocks):
            if block.msgs >= left:
                return _nth_last(block.live, left)
            left -= block.msgs
        return 0

    def _first_by_size(self, blocks: list[LiveBlock]) -> int:
        left = self._limits.max_bytes
        for block in reversed(blocks):
            sizes, seqs = array("I"), array("Q")
            for batch in self._reader.live(block):
                sizes.extend(batch.ops[3 : batch.entries * OP_WORDS : OP_WORDS])
                seqs.extend(batch.seqs[: batch.entries])
            for size, seq in zip(reversed(sizes), reversed(seqs), strict=True):
                left -= size
                if left < 0:
                    return seq + 1
        return 0

    def _first_by_age(self, blocks: list[LiveBlock]) -> int:
        oldest_ns = self._now_ns - self._limits.max_age_ns
        for block in blocks:
            for batch in self._reader.live(block):
                for place in range(batch.entries):
                    if batch.times[place] > oldest_ns:
                        return batch.seqs[place]
        return _SEQ_MAX

    def _without_single_ones(self, blocks: list[LiveBlock]) -> list[LiveBlock]:
        """Without messages that expired, or that younger ones of their subject replaced."""
        kept, counts = list[LiveBlock](), dict[bytes, int]()
        for block in reversed(blocks):
            removed = sorted(seq for batch in self._batches_back(block) for seq in self._removed(batch, counts))
            seqs = block.live
            seqs.difference_update(SequenceSet((seq, seq) for seq in removed))
            if seqs:
                kept.append(_live_block(block.place, seqs, block.file_size))
        return kept[::-1]

    def _batches_back(self, block: LiveBlock) -> Iterator[Batch]:
        copies = [
            Batch(batch.data, batch.entries, batch.ops[:], batch.seqs[:], batch.times[:])
            for batch in self._reader.live(block)
        ]
        return reversed(copies)

    def _removed(self, batch: Batch, counts: dict[bytes, int]) -> Iterator[int]:
        for place in range(batch.entries - 1, -1, -1):
            start, size, *_ = op = batch.ops[place * OP_WORDS : (place + 1) * OP_WORDS]
            subject = bytes(batch.data[start : start + size])
            counts[subject] = counts.get(subject, 0) + 1
            if 0 < self._limits.max_msgs_per_subject < counts[subject] or self._is_expired(batch, place, op):
                yield batch.seqs[place]

    def _is_expired(self, batch: Batch, place: int, op: Sequence[int]) -> bool:
        if self._limits.ttl_of is None or not op[9] & OP_SPECIAL:
            return False
        ttl_ns = self._limits.ttl_of(bytes(batch.data[op[4] : op[4] + op[5]]))
        return ttl_ns > 0 and batch.times[place] + ttl_ns <= self._now_ns


def _nth_last(seqs: SequenceSet, count: int) -> int:
    for first, last in reversed(list(seqs.ranges())):
        if last + 1 - first >= count:
            return last + 1 - count
        count -= last + 1 - first
    return 0


def _from(blocks: list[LiveBlock], first_seq: int) -> list[LiveBlock]:
    """The messages at or after a sequence."""
    kept = []
    for block in blocks:
        if first_seq > block.last_seq:
            continue
        first = max(first_seq, block.first_seq)
        kept.append(
            _live_block(block.place, SequenceSet(block.live.ranges_between(first, block.last_seq)), block.file_size)
        )
    return kept
