"""Retention: how messages leave a stream, whether by limits or because somebody said so.

Removals come in two kinds. Whatever leaves at the front of the stream (limits, age, compaction, acks in order) just
moves `first_seq`; on disk one floor record per commit says so. Whatever leaves from the middle is collected per block
in a removal group, which becomes a tombstone record at the next commit. A block in which nothing is left is let go.

Messages that turn out to be unreadable leave, too (`lose`), in groups of their own: they are listed as lost. Whoever
meets one goes on as if it had been removed before. This may happen in the middle of any search, so the blocks stay as
they are until the next commit.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import RLock

from jetlake.clock import Clock, system_clock
from jetlake.errors import LimitExceeded
from jetlake.store.api import Discard, StreamLimits
from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.blocks.removal import LOST, RemovalGroup
from jetlake.store.format import Buffer
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.queries import Queries
from jetlake.store.records.scan import uncount
from jetlake.store.records.trim import message_size
from jetlake.store.retention.bulk_removal import oldest_over, remove_all
from jetlake.store.retention.expiry import Expiry

_UNBOUNDED = 2**63 - 1
# How many bytes of records are looked at in one step when messages leave at the front.
_EVICT_STEP_SIZE = 1024 * 1024
_RUNS_MAX = 16  # of messages between deleted ones: a block with more of them is not looked through run by run


class Retention(ABC):
    """The part of a store that lets go of messages."""

    # What JetStream counts for a message beside its subject and payload, and beside its headers if it has any.
    size_fixed: int
    size_headers: int

    def __init__(
        self,
        name: str,
        limits: StreamLimits,
        *,
        block_size_max: int,
        clock: Clock = system_clock,
        autocommit: bool = True,
    ) -> None:
        self.name, self.limits, self.block_size_max, self.autocommit = name, limits, block_size_max, autocommit
        self.clock = clock
        self.lock = RLock()
        self.catalog = Catalog()
        self.queries = Queries(self.catalog)
        self.expiry = Expiry(self)
        self.removals: dict[int, RemovalGroup] = {}
        self.losses: dict[int, RemovalGroup] = {}  # by block: what turned out to be unreadable since the last commit
        self.on_lost: Callable[[SequenceSet, str], None] | None = None  # told of that, and where it was found
        self._unreadable: deque[int] = deque()  # the same, found by threads that do not write
        self._thread_id = threading.get_ident()
        self.catalog.on_unreadable = self._meet_unreadable
        self.closed = False

    def _apply_limits(self, now_ns: int) -> None:
        """Enforce all limits on all that is there."""
        if self.limits.max_msgs_per_subject > 0 and (over := self._over_subjects(self.limits.max_msgs_per_subject)):
            remove_all(self, over, are_oldest=True)
        self._enforce()
        self.expiry.run(now_ns)

    def _over_subjects(self, count_max: int) -> array[int]:
        """The messages, oldest first, by which subjects have more than so many."""
        table = self.catalog.table
        slots = table.match(self.queries.filter(">").subjects)
        return oldest_over(self.catalog, [slot for slot in slots if table.count(slot) > count_max], count_max)

    def _enforce(self) -> None:
        """Let the oldest messages go until the stream is within its limits; where new ones give way, none goes."""
        limits, catalog = self.limits, self.catalog
        if limits.discard is Discard.NEW:
            return
        if 0 < limits.max_msgs < catalog.table.total:
            self._evict(count=catalog.table.total - limits.max_msgs)
        if 0 < limits.max_bytes < catalog.size:
            self._evict(size=catalog.size - limits.max_bytes)

    def _check_discard_new(self, subject: bytes, size: int, is_rollup: bool = False) -> None:
        """LimitExceeded when discard=new refuses this message."""
        limits, table = self.limits, self.catalog.table
        if limits.discard is not Discard.NEW:
            return
        if not (limits.discard_new_per_subject or limits.max_msgs > 0 or limits.max_bytes > 0):
            return
        replaced_size = 0
        replaces = False
        if limits.max_msgs_per_subject > 0:
            slot = table.find(subject)
            if slot >= 0 and table.count(slot) >= limits.max_msgs_per_subject:
                if limits.discard_new_per_subject and not is_rollup:
                    raise LimitExceeded("messages per subject")
                replaces = True
                if limits.max_bytes > 0:
                    replaced_size = self._message_size(self.queries.first_of(slot))
        if 0 < limits.max_msgs <= table.total and not replaces:
            raise LimitExceeded("messages")
        # As in nats-server, what goes makes room for nothing larger than itself, even where that would fit.
        if 0 < limits.max_bytes < self.catalog.size + size and replaced_size < size:
            raise LimitExceeded("bytes")

    def _trim_subjects(self, slots: Sequence[int]) -> None:
        """Bring subjects back to max_msgs_per_subject, oldest messages first."""
        table, subject_max = self.catalog.table, self.limits.max_msgs_per_subject
        if len(slots) == 1 and table.count(slots[0]) == subject_max + 1:
            self._remove(self.queries.first_of(slots[0]))
        elif slots:
            remove_all(self, oldest_over(self.catalog, slots, subject_max), are_oldest=True)

    def _evict(self, *, count: int = _UNBOUNDED, size: int = _UNBOUNDED) -> int:
        """Remove messages at the front until so many, or so many bytes, are gone; how many."""
        catalog, evicted = self.catalog, 0
        while count > 0 and size > 0 and catalog.table.total:
            block = catalog.block_of(catalog.first_seq)
            assert block is not None
            if size == _UNBOUNDED and block.gone.range_count > _RUNS_MAX:
                done = self._evict_scattered(block, count)
                count, evicted = count - done, evicted + done
                continue
            first_seq, index = catalog.first_seq, catalog.index(block)
            if catalog.first_seq != first_seq:
                continue
            start = index.position(first_seq)
            run_last = next(block.live_runs(catalog.first_seq, block.last_seq))[1]
            stop = min(index.position_from(run_last + 1), start + max(_positions(index, start, _EVICT_STEP_SIZE), 1))
            data = block.read(index.offsets[start], index.end(stop - 1, block.body_size))
            done, done_size = uncount(
                data, 0, len(data), block.seed, catalog.table, self.size_fixed, self.size_headers, count, size
            )
            if not done:  # damaged since it was opened: it leaves all the same
                total, total_size = catalog.table.total, catalog.size
                self._lose(block, index, self.unreadable_at(block, index, start))
                count, size = count - (total - catalog.table.total), size - (total_size - catalog.size)
                self._advance_first(catalog.first_seq)
                continue
            self._gone_from_front(block, index.seq(start), index.seq(start + done - 1), done_size)
            count, size, evicted = count - done, size - done_size, evicted + done
        return evicted

    def _evict_scattered(self, block: MsgBlock, count: int) -> int:
        """Remove up to so many messages of the first block, which has deleted ones between them; how many."""
        seqs = self.queries.live_in(block, self.catalog.first_seq)[:count]
        remove_all(self, seqs, are_oldest=True)
        return len(seqs)

    def _gone_from_front(self, block: MsgBlock, first: int, last: int, size: int) -> None:
        """Messages first..last, the oldest of the stream, have left the table."""
        block.gone.add_range(first, last)
        block.size -= size
        self.catalog.size -= size
        self.expiry.forget_range(first, last)
        self._advance_first(last + 1)

    def _advance_first(self, seq: int) -> None:
        """Everything below a sequence is gone: find the first message, and let go of blocks before it."""
        catalog = self.catalog
        following = catalog.next_live(seq) if catalog.table.total else None
        catalog.first_seq = catalog.last_seq + 1 if following is None else following
        catalog.lost.remove_range(0, catalog.first_seq - 1)
        self._drop_front()

    def _drop_front(self) -> None:
        """Let go of sealed blocks that lie wholly before the first message, and of which nothing is on record."""
        catalog = self.catalog
        while len(catalog.blocks) > 1 and catalog.blocks[0].last_seq < catalog.floor_seq:
            block = catalog.blocks.pop(0)
            catalog.forget(block)
            self._forget_removals(block)
            self._dropped(block)

    def _remove(self, seq: int) -> None:
        """Remove one live message."""
        catalog = self.catalog
        block = catalog.block_of(seq)
        assert block is not None
        index = catalog.index(block)
        position = index.position(seq)
        if position < 0:
            return
        slot, size = index.ids[position], self._size_at(block, index, position)
        subject = index.table.subject(slot)
        self._leave(block, seq, slot if index.table is catalog.table else catalog.table.find(subject), size)
        if seq == catalog.first_seq:
            self._advance_first(seq + 1)
            return
        group = self._removal_group(block)
        group.seqs.add(seq)
        messages, total = group.subjects.get(subject, (0, 0))
        group.subjects[subject] = (messages + 1, total + size)
        self._after_removal(block)

    # Losing

    def lose(self, seqs: Iterable[int]) -> None:
        """Messages turned out to be unreadable: they are lost, with all that cannot be read for the same reason."""
        catalog = self.catalog
        for seq in seqs:
            block = catalog.block_of(seq)
            if block is not None and block.is_live(seq):
                index = catalog.index(block)
                self._lose(block, index, self.unreadable_at(block, index, index.position(seq)))

    def _lose(self, block: MsgBlock, index: BlockIndex, positions: range, *, on_record: bool = False) -> None:
        """Messages of a block are lost. `on_record`: its file says so already."""
        catalog, lost, subjects = self.catalog, SequenceSet(), dict[bytes, tuple[int, int]]()
        for position in positions:
            seq = index.seq(position)
            if block.is_live(seq):
                subject, size = index.table.subject(index.ids[position]), self._damaged_size(block, index, position)
                self._leave(block, seq, catalog.table.find(subject), size)
                lost.add(seq)
                count, total = subjects.get(subject, (0, 0))
                subjects[subject] = (count + 1, total + size)
        if not lost:
            return
        block.lost.update(lost)
        catalog.lost.update(lost)
        if not on_record:
            self._note_lost(block, lost, subjects)
        if catalog.first_seq in lost:
            following = catalog.next_live(catalog.first_seq)
            catalog.first_seq = catalog.last_seq + 1 if following is None else following
        self._tell_lost(lost, f"{block.path}: at offset {index.offsets[positions.start]}")

    def _note_lost(self, block: MsgBlock, lost: SequenceSet, subjects: dict[bytes, tuple[int, int]]) -> None:
        """Have the next commit put losses on record."""
        group = self.losses.get(block.id)
        if group is None:
            group = self.losses[block.id] = RemovalGroup(block.id, block.header.generation, SequenceSet(), kind=LOST)
        group.seqs.update(lost)
        for subject, (count, size) in subjects.items():
            before_count, before_size = group.subjects.get(subject, (0, 0))
            group.subjects[subject] = (before_count + count, before_size + size)

    def unreadable_at(self, block: MsgBlock, index: BlockIndex, position: int) -> range:
        """The positions of the messages that cannot be read because the one at a position cannot."""
        return range(position, position + 1)

    def body_of(self, block: MsgBlock) -> bytes:
        """The whole body of a block, with zeros, which are no record, where it cannot be read."""
        parts, offset = list[bytes](), 0
        while offset < block.body_size:
            parts.append(block.read(offset, block.body_size))
            offset += len(parts[-1])
            if offset < block.body_size:
                parts.append(bytes(self._readable_from(block, offset) - offset))
                offset += len(parts[-1])
        return b"".join(parts)

    def _readable_from(self, block: MsgBlock, offset: int) -> int:
        """Where a body can perhaps be read again after damage."""
        return block.body_size

    def _meet_unreadable(self, seq: int) -> None:
        """A reader met damage; one in another thread than the writer's leaves it to that to make sure."""
        if threading.get_ident() == self._thread_id:
            self.lose([seq])
        else:
            self._unreadable.append(seq)

    def _look_at_unreadable(self) -> None:
        """See to what other threads found to be unreadable."""
        self._thread_id = threading.get_ident()
        while self._unreadable:
            self.catalog.find(self._unreadable.popleft())

    def _let_go_of_lost(self) -> None:
        """Blocks from which messages were lost may not be worth their room any more."""
        for block in [block for block in self.catalog.blocks if block.id in self.losses]:
            self._after_removal(block)

    def _tell_lost(self, lost: SequenceSet, where: str) -> None:
        if self.on_lost is not None:
            self.on_lost(lost, where)

    def _forget_removals(self, block: MsgBlock) -> None:
        """A block goes, and with it what was to be said of it."""
        self.removals.pop(block.id, None)
        self.losses.pop(block.id, None)

    def _removal_group(self, block: MsgBlock) -> RemovalGroup:
        """What was removed from the middle of a block since the last commit."""
        group = self.removals.get(block.id)
        if group is None:
            group = self.removals[block.id] = RemovalGroup(block.id, block.header.generation, SequenceSet())
        return group

    def _after_removal(self, block: MsgBlock) -> None:
        """Messages left the middle of the stream: is their block still worth its room?"""
        if block.sealed and not block.message_count:
            self._drop_middle(block)
        elif block.sealed:
            self._thinned(block)

    def _leave(self, block: MsgBlock, seq: int, slot: int, size: int) -> None:
        """A message leaves the counters."""
        self.catalog.table.remove(slot, seq)
        block.gone.add(seq)
        block.size -= size
        self.catalog.size -= size
        self.expiry.forget(seq)

    def _drop_middle(self, block: MsgBlock) -> None:
        """Let go of a sealed block in which no message is left, between others."""
        catalog = self.catalog
        self._forget_removals(block)
        self._note_dropped_middle(block)
        catalog.blocks.remove(block)
        catalog.forget(block)
        self._dropped(block)

    def _purge_matching(self, filters: str, seq: int, keep: int) -> int:
        """Remove the messages that match, below `seq` or but for the newest `keep`."""
        catalog, filter = self.catalog, self.queries.filter(filters)
        count = catalog.table.match_total(filter.subjects) - keep
        last = min(seq - 1, catalog.last_seq) if seq else catalog.last_seq
        return len(self._purge_first(filters, catalog.first_seq, last, count))

    def _purge_first(self, filters: str, first: int, last: int, count_max: int) -> array[int]:
        """Remove the oldest of the messages that match between two sequences; which they were."""
        seqs = array("Q")
        for found in self.queries.matching(self.queries.filter(filters), first, last + 1):
            seqs += found[: max(count_max - len(seqs), 0)]
            if len(seqs) >= count_max:
                break
        if seqs:
            remove_all(self, seqs, are_oldest=first <= self.catalog.first_seq)
        return seqs

    def _compact(self, seq: int) -> int:
        """Remove everything below a sequence."""
        catalog = self.catalog
        if seq > catalog.last_seq:
            return self._purge_all(max(seq, catalog.last_seq + 1))
        count = catalog.table.total - self.queries.num_pending(seq, self.queries.filter(">"), False).msgs
        return self._evict(count=count) if count > 0 else 0

    def _expel(self, stop: int, count_max: int | None) -> int:
        """Remove everything below a sequence, or the first so many messages; how many. The stream goes on as it is."""
        left = self.queries.num_pending(stop, self.queries.filter(">"), False).msgs
        count = self.catalog.table.total - left
        return self._evict(count=count if count_max is None else min(count, count_max)) if count else 0

    def _purge_all(self, next_seq: int) -> int:
        """Remove everything; the next message gets `next_seq`."""
        catalog, purged = self.catalog, self.catalog.table.total
        if next_seq == catalog.last_seq + 1 and not purged:
            return 0
        dropped, catalog.blocks = catalog.blocks, []
        for block in dropped:
            catalog.forget(block)
        self.removals.clear()
        self.losses.clear()
        catalog.table.clear()
        self.expiry.clear()
        catalog.size = 0
        catalog.first_seq, catalog.last_seq = next_seq, next_seq - 1
        self.add_block(dropped[-1].id + 1)
        for block in dropped:
            self._dropped(block)
        return purged

    def _message_size(self, seq: int) -> int:
        """How large JetStream counts the message at a sequence."""
        block = self.catalog.block_of(seq)
        assert block is not None
        index = self.catalog.index(block)
        return self._size_at(block, index, index.position(seq))

    def _size_at(self, block: MsgBlock, index: BlockIndex, position: int) -> int:
        """The same for a message whose place is known; as near as can be told when it is damaged."""
        start, end = index.offsets[position], index.end(position, block.body_size)
        chunk = block.chunk_at(start)
        data, base = (block.read(start, end), start) if chunk is None else (chunk.data, chunk.base)
        size = message_size(data, start - base, end - base, block.seed, self.size_fixed, self.size_headers)
        return size if size >= 0 else self._damaged_size(block, index, position)

    def _damaged_size(self, block: MsgBlock, index: BlockIndex, position: int) -> int:
        return min(index.end(position, block.body_size) - index.offsets[position], block.size)

    def _size(self, subject: Buffer, headers: Buffer, payload: Buffer) -> int:
        size = self.size_fixed + len(subject) + len(payload)
        return size + self.size_headers + len(headers) if len(headers) else size

    def _now(self) -> int:
        """The time for a new message: the clock's, unless that went backwards."""
        return max(self.clock(), self.catalog.last_time_ns)

    # What the rest of the store does

    @abstractmethod
    def _put(
        self, seq: int, time_ns: int, subject: bytes, headers: Buffer, payload: Buffer, expires_ns: int, flags: int
    ) -> None:
        """Store one message and let the limits have their say."""

    @abstractmethod
    def add_block(self, block_id: int) -> None:
        """Start a new block at the next sequence and write to it from now on."""

    def _thinned(self, block: MsgBlock) -> None:  # noqa: B027  not everybody needs to know
        """A sealed block has one message less."""

    def _note_dropped_middle(self, block: MsgBlock) -> None:  # noqa: B027
        """A block between others is about to go: remember that its sequences are."""

    def _dropped(self, block: MsgBlock) -> None:  # noqa: B027
        """A block is no longer part of the stream."""


def _positions(index: BlockIndex, start: int, size: int) -> int:
    """How many messages from a position on lie within so many bytes."""
    return bisect_right(index.offsets, index.offsets[start] + size, start, index.count) - start
