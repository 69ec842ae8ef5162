"""BlockStore: a stream's messages in blocks; the rules that MemStore and FileStore share.

Every change goes through here: append, remove, purge, limits, expiry. What differs between memory and disk is a handful
of hooks at the end of the class: what to remember of removed messages, and what to do with a block that is full, empty
or new.

Removals come in two kinds. Whatever leaves at the front of the stream (limits, age, compaction, acks in order) just
moves `first_seq`; on disk one floor record per commit says so. Whatever leaves from the middle is collected per block
in a removal group, which becomes a tombstone record at the next commit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice

from jetlake.clock import Clock, system_clock
from jetlake.errors import BadRequest, CorruptBlock, LimitExceeded, MessageNotFound, StoreClosed
from jetlake.ops import OP_MSG_ID, OP_SPECIAL, OP_WORDS
from jetlake.store.api import Discard, Pending, SimpleState, StoredMsg, StreamLimits, StreamState
from jetlake.store.block import BlockIndex, MsgBlock
from jetlake.store.catalog import Catalog
from jetlake.store.encode import encode_batch
from jetlake.store.expiry import Expiry
from jetlake.store.format import BLOCK_SEQ_SPAN_MAX, EXPIRES, MSG_ID, NEVER_NS, SEQ_MAX, SKIP, Buffer
from jetlake.store.queries import Queries
from jetlake.store.record import Record, check_sizes, encode
from jetlake.store.removal import RemovalGroup
from jetlake.store.scan import uncount
from jetlake.store.sequence_set import SequenceSet
from jetlake.store.varint import encode_varint
from jetlake.subjects import check_subject, decode_subject, encode_subject

_UNBOUNDED = 2**63 - 1
# How many bytes of records are looked at in one step when messages leave at the front.
_EVICT_STEP_SIZE = 1024 * 1024
# Flags, three lengths and the trailer.
_RECORD_OVERHEAD_MAX = 1 + 3 * 5 + 32


class BlockStore:
    """The contract of `api.StreamStore`, on blocks."""

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
        self.catalog = Catalog()
        self.queries = Queries(self.catalog)
        self.expiry = Expiry(self)
        self.removals: dict[int, RemovalGroup] = {}
        self.closed = False

    # Storing

    def append(
        self, subject: str, payload: Buffer, headers: Buffer = b"", *, ttl_ns: int = 0, msg_id: bool = False
    ) -> int:
        """Store a message; its sequence. ttl_ns: how long it stays, NEVER_NS: whatever its age."""
        self._check_writable()
        time_ns = self._now()
        subject_bytes = _subject_bytes(subject)
        check_sizes(len(subject_bytes), len(headers), len(payload))
        self._check_discard_new(subject_bytes, self._size(subject_bytes, headers, payload))
        expires_ns = NEVER_NS if ttl_ns >= NEVER_NS - time_ns else time_ns + ttl_ns if ttl_ns else 0
        seq = self.catalog.last_seq + 1
        self._put(seq, time_ns, subject_bytes, headers, payload, expires_ns, MSG_ID if msg_id else 0)
        self._done()
        return seq

    def append_at(
        self, seq: int, time_ns: int, subject: str, payload: Buffer, headers: Buffer = b"", *, expires_ns: int = 0
    ) -> None:
        """Store a message with a given sequence and time (replication). Sequences between are skipped."""
        self._check_writable()
        if not self.catalog.last_seq < seq <= SEQ_MAX:
            raise BadRequest(f"sequence {seq} does not follow {self.catalog.last_seq}")
        if not -(2**63) <= time_ns < 2**63:
            raise BadRequest(f"time {time_ns} is not a number of nanoseconds in 64 bits")
        subject_bytes = _subject_bytes(subject)
        check_sizes(len(subject_bytes), len(headers), len(payload))
        if seq > self.catalog.last_seq + 1:
            self._skip(seq - self.catalog.last_seq - 1, time_ns)
        self._put(seq, time_ns, subject_bytes, headers, payload, expires_ns, 0)
        self._done()

    def append_batch(self, data: Buffer, ops: array[int], first: int = 0, stop: int | None = None) -> tuple[int, int]:
        """Store the messages that operations first..stop-1 describe (see `jetlake.ops`), up to one that is special.

        Returns the sequence of the first one, and the operation at which it stopped. It also stops in front of one
        that discard=new refuses; if that is the first, it raises LimitExceeded.
        """
        self._check_writable()
        stop = len(ops) // OP_WORDS if stop is None else stop
        first_seq, start = self.catalog.last_seq + 1, first
        if self._must_store_singly():
            first = self._append_singly(data, ops, first, stop)
        else:
            first = self._append_all(data, ops, first, stop)
        if first > start:
            self._done()
        return first_seq, first

    def skip(self, count: int = 1) -> int:
        """Use up sequences without a message; the last one used."""
        self._check_writable()
        if not 0 < count <= SEQ_MAX - self.catalog.last_seq:
            raise BadRequest(f"cannot skip {count} sequences after {self.catalog.last_seq}")
        self._skip(count, self._now())
        self._done()
        return self.catalog.last_seq

    # Reading

    def load(self, seq: int) -> StoredMsg:
        """The message at a sequence; MessageNotFound when there is none."""
        return _message(self.catalog.record(seq))

    def load_next(self, start: int, filters: str | Sequence[str] = ">") -> StoredMsg | None:
        """The first matching message at or after a sequence."""
        return self._load_found(self.queries.next_seq(self.queries.filter(filters), start))

    def load_prev(self, start: int, filters: str | Sequence[str] = ">") -> StoredMsg | None:
        """The last matching message at or before a sequence."""
        return self._load_found(self.queries.prev_seq(self.queries.filter(filters), start))

    def load_last(self, filters: str | Sequence[str] = ">") -> StoredMsg | None:
        """The last matching message."""
        return self._load_found(self.queries.last_seq(self.queries.filter(filters)))

    def subject_of(self, seq: int) -> str:
        """The subject of the message at a sequence, without reading the message."""
        block = self.catalog.block_of(seq)
        if block is None or not block.is_live(seq):
            raise MessageNotFound(f"sequence {seq}")
        index = self.catalog.index(block)
        return decode_subject(index.table.subject(index.ids[index.position(seq)]))

    def seq_from_time(self, time_ns: int) -> int:
        """The first sequence stored at or after a time; the next one to be used when there is none."""
        return self.queries.seq_from_time(time_ns)

    def fast_state(self) -> StreamState:
        """The stream in numbers, without its deleted sequences."""
        catalog = self.catalog
        msgs, unused = catalog.table.total, catalog.last_seq == 0 and catalog.first_seq == 1
        return StreamState(
            msgs=msgs,
            bytes=catalog.size,
            first_seq=0 if unused else catalog.first_seq,
            first_time_ns=self._time_of(catalog.first_seq) if msgs else 0,
            last_seq=catalog.last_seq,
            last_time_ns=catalog.last_time_ns,
            num_subjects=len(catalog.table),
            num_deleted=catalog.last_seq - catalog.first_seq + 1 - msgs,
            lost=catalog.lost.copy(),
        )

    def state(self) -> StreamState:
        """The stream in numbers, with its deleted sequences."""
        state = self.fast_state()
        state.deleted = self.catalog.gone()
        return state

    def filtered_state(self, start: int, filters: str | Sequence[str] = ">") -> SimpleState:
        """The matching messages at or after a sequence in numbers."""
        return self.queries.filtered_state(start, self.queries.filter(filters))

    def subjects_state(self, filters: str | Sequence[str] = ">") -> dict[str, SimpleState]:
        """Messages, first and last sequence of each matching subject."""
        found = self.queries.subjects_state(self.queries.filter(filters))
        return {decode_subject(subject): state for subject, state in found.items()}

    def subjects_totals(self, filters: str | Sequence[str] = ">") -> dict[str, int]:
        """How many messages each matching subject has."""
        found = self.queries.subjects_totals(self.queries.filter(filters))
        return {decode_subject(subject): count for subject, count in found.items()}

    def all_last_seqs(self) -> list[int]:
        """The last sequence of every subject, ascending."""
        return self.queries.last_seqs(self.queries.filter(">"), None, None)

    def multi_last_seqs(
        self, filters: Sequence[str], max_seq: int | None = None, count_max: int | None = None
    ) -> list[int]:
        """The last sequence, at or before max_seq, of every subject that one of the filters matches, ascending."""
        return self.queries.last_seqs(self.queries.filter(filters), max_seq, count_max)

    def num_pending(self, start: int, filters: str | Sequence[str] = ">", *, last_per_subject: bool = False) -> Pending:
        """How many matching messages lie at or after a sequence; or only those that are the last of their subject."""
        return self.queries.num_pending(start, self.queries.filter(filters), last_per_subject)

    # Removing

    def remove(self, seq: int) -> bool:
        """Delete a message; False when there is none."""
        self._check_writable()
        if not self.catalog.is_live(seq):
            return False
        self._remove(seq)
        self._done()
        return True

    def erase(self, seq: int) -> bool:
        """Delete a message so that its bytes cannot be had again; False when there is none."""
        self._check_writable()
        if not self.catalog.is_live(seq):
            return False
        self._erase(seq)
        self._done()
        return True

    def purge(self, filters: str = ">", *, seq: int = 0, keep: int = 0) -> int:
        """Delete matching messages: all, or those below `seq`, or all but the newest `keep`. How many."""
        self._check_writable()
        if seq < 0 or keep < 0 or (seq and keep):
            raise BadRequest("purge takes a sequence or a number to keep")
        filter = self.queries.filter(filters)
        if not filter.subjects.is_all:
            purged = self._purge_matching(filters, seq, keep)
        elif keep:
            purged = self._evict(count=max(self.catalog.table.total - keep, 0))
        elif seq:
            purged = self._compact(seq)
        else:
            purged = self._purge_all(self.catalog.last_seq + 1)
        self._done()
        return purged

    def compact(self, seq: int) -> int:
        """Delete everything below a sequence; how many. Beyond the end, the next message gets that sequence."""
        self._check_writable()
        if not 0 <= seq <= SEQ_MAX:
            raise BadRequest(f"no sequence {seq}")
        purged = self._compact(seq)
        self._done()
        return purged

    def truncate(self, seq: int) -> None:
        """Undo everything after a sequence: the next message gets the one after it."""
        self._check_writable()
        if not 0 <= seq <= self.catalog.last_seq:
            raise BadRequest(f"cannot truncate to sequence {seq}: the last is {self.catalog.last_seq}")
        if seq < self.catalog.last_seq:
            self._truncate(seq)
        self._done()

    def update(self, limits: StreamLimits) -> None:
        """Take other limits, and enforce them at once."""
        self._check_writable()
        self.limits = limits
        self.expiry.restart()
        self._apply_limits()
        self._done()

    def expire(self, now_ns: int | None = None) -> int:
        """Delete what is too old; how many. Delete markers are stored where they are configured."""
        self._check_writable()
        expired = self.expiry.run(self.clock() if now_ns is None else now_ns)
        if expired:
            self._done()
        return expired

    def next_expiry_ns(self) -> int | None:
        """When the next message expires."""
        return self.expiry.next_ns()

    # How it is done

    def _put(
        self,
        seq: int,
        time_ns: int,
        subject: bytes,
        headers: Buffer,
        payload: Buffer,
        expires_ns: int,
        flags: int,
    ) -> None:
        """Store one message and let the limits have their say."""
        catalog = self.catalog
        block = self._block_for(seq)
        if expires_ns:
            flags |= EXPIRES
        record = encode(Record(flags, subject, bytes(headers), bytes(payload), seq, time_ns, expires_ns), block.seed)
        offset = block.stage(record)
        slot = catalog.table.intern(subject)
        catalog.table.add(slot, seq)
        assert block.index is not None
        block.index.add(seq, offset, slot)
        if expires_ns:
            block.expiring.append((seq, expires_ns))
            self.expiry.add(seq, expires_ns)
        self._count_in(block, seq, time_ns, self._size(subject, headers, payload))
        if 0 < self.limits.max_msgs_per_subject < catalog.table.count(slot):
            self._trim_subjects([slot])
        self._enforce()

    def _append_all(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Store operations with as few kernel calls as there are chunks and blocks to fill; where it stopped."""
        catalog, over, time_ns = self.catalog, list[int](), self._now()
        while first < stop:
            seq = catalog.last_seq + 1
            block = self._block_for(seq)
            index = block.index
            assert index is not None
            index.reserve(stop - first)
            chunk = block.room(_record_room(ops, first, len(data)))
            done, used, size = encode_batch(
                data,
                ops,
                first,
                stop,
                chunk.data,
                chunk.used,
                chunk.base,
                index.offsets,
                index.ids,
                index.count,
                catalog.table,
                seq,
                time_ns,
                block.seed,
                self.size_fixed,
                self.size_headers,
                self.limits.max_msgs_per_subject,
                over,
            )
            if done == first:
                break
            index.note_seqs(seq, done - first)
            index.count += done - first
            block.advance(chunk, used)
            self._count_in(block, seq + done - first - 1, time_ns, size)
            first = done
        self._trim_subjects(over)
        self._enforce()
        return first

    def _must_store_singly(self) -> bool:
        """Does a limit depend on each message of a batch in turn?"""
        limits = self.limits
        return limits.discard is Discard.NEW or (limits.max_bytes > 0 and limits.max_msgs_per_subject > 0)

    def _append_singly(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Store operations one by one; where it stopped."""
        view = memoryview(data)
        for number in range(first, stop):
            op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
            if op[9] & OP_SPECIAL:
                return number
            subject, headers, payload = (view[start : start + size] for start, size in (op[0:2], op[4:6], op[6:8]))
            try:
                self._check_discard_new(bytes(subject), self._size(subject, headers, payload))
            except LimitExceeded:
                if number == first:
                    raise
                return number
            flags = MSG_ID if op[9] & OP_MSG_ID else 0
            self._put(self.catalog.last_seq + 1, self._now(), bytes(subject), headers, payload, 0, flags)
        return stop

    def _skip(self, count: int, time_ns: int) -> None:
        """Use up sequences without a message."""
        catalog, seq = self.catalog, self.catalog.last_seq + 1
        block = self._block_for(seq)
        block.stage(encode(Record(SKIP, b"", b"", encode_varint(count), seq, time_ns), block.seed))
        block.gone.add_range(seq, seq + count - 1)
        block.last_seq = catalog.last_seq = seq + count - 1
        if not catalog.table.total:
            catalog.first_seq = catalog.last_seq + 1

    def _count_in(self, block: MsgBlock, last_seq: int, time_ns: int, size: int) -> None:
        """Messages up to `last_seq` were staged in the active block."""
        catalog = self.catalog
        block.last_seq = catalog.last_seq = last_seq
        block.time_ns_min, block.time_ns_max = min(block.time_ns_min, time_ns), max(block.time_ns_max, time_ns)
        block.size += size
        catalog.size += size
        catalog.last_time_ns = time_ns

    def _block_for(self, seq: int) -> MsgBlock:
        """The active block, or a new one when it is full."""
        block = self.catalog.active
        if block.body_size >= self.block_size_max or seq - block.first_seq > BLOCK_SEQ_SPAN_MAX // 2:
            self._rotate()
        return self.catalog.active

    def _check_discard_new(self, subject: bytes, size: int) -> None:
        """LimitExceeded when discard=new refuses this message."""
        limits, table = self.limits, self.catalog.table
        if limits.discard is not Discard.NEW:
            return
        replaced_size = 0
        replaces = False
        if limits.max_msgs_per_subject > 0:
            slot = table.find(subject)
            if slot >= 0 and table.count(slot) >= limits.max_msgs_per_subject:
                if limits.discard_new_per_subject:
                    raise LimitExceeded("messages per subject")
                replaces = True
                replaced_size = self._message_size(self.queries.first_of(slot))
        if 0 < limits.max_msgs <= table.total and not replaces:
            raise LimitExceeded("messages")
        if 0 < limits.max_bytes < self.catalog.size - replaced_size + size:
            raise LimitExceeded("bytes")

    def _enforce(self) -> None:
        """Let the oldest messages go until the stream is within its limits."""
        limits, catalog = self.limits, self.catalog
        if 0 < limits.max_msgs < catalog.table.total:
            self._evict(count=catalog.table.total - limits.max_msgs)
        if 0 < limits.max_bytes < catalog.size:
            self._evict(size=catalog.size - limits.max_bytes)

    def _apply_limits(self) -> None:
        """Enforce all limits on all that is there."""
        table, subject_max = self.catalog.table, self.limits.max_msgs_per_subject
        if subject_max > 0:
            slots = table.match(self.queries.filter(">").subjects)
            self._trim_subjects([slot for slot in slots if table.count(slot) > subject_max])
        self._enforce()
        self.expiry.run(self.clock())

    def _trim_subjects(self, slots: Sequence[int]) -> None:
        """Bring subjects back to max_msgs_per_subject, oldest messages first."""
        table, subject_max = self.catalog.table, self.limits.max_msgs_per_subject
        for slot in slots:
            for _ in range(table.count(slot) - subject_max):
                self._remove(self.queries.first_of(slot))

    def _evict(self, *, count: int = _UNBOUNDED, size: int = _UNBOUNDED) -> int:
        """Remove messages at the front until so many, or so many bytes, are gone; how many."""
        catalog, evicted = self.catalog, 0
        while count > 0 and size > 0 and catalog.table.total:
            block = catalog.block_of(catalog.first_seq)
            assert block is not None
            index = catalog.index(block)
            start = index.position(catalog.first_seq)
            run_last = next(block.live_runs(catalog.first_seq, block.last_seq))[1]
            stop = min(index.position_from(run_last + 1), start + max(_positions(index, start, _EVICT_STEP_SIZE), 1))
            data = block.read(index.offsets[start], index.end(stop - 1, block.body_size))
            done, done_size = uncount(
                data, 0, len(data), block.seed, catalog.table, self.size_fixed, self.size_headers, count, size
            )
            if not done:  # damaged since it was opened: it leaves all the same
                done, done_size = 1, self._uncount_damaged(block, index, start)
            self._gone_from_front(block, index.seq(start), index.seq(start + done - 1), done_size)
            count, size, evicted = count - done, size - done_size, evicted + done
        return evicted

    def _uncount_damaged(self, block: MsgBlock, index: BlockIndex, position: int) -> int:
        """Take a message that cannot be read out of the table; the size that it had, as near as can be told."""
        subject = index.table.subject(index.ids[position])
        self.catalog.table.remove(self.catalog.table.find(subject), index.seq(position))
        return self._damaged_size(block, index, position)

    def _gone_from_front(self, block: MsgBlock, first: int, last: int, size: int) -> None:
        """Messages first..last, the oldest of the stream, have left the table."""
        catalog = self.catalog
        block.gone.add_range(first, last)
        block.size -= size
        catalog.size -= size
        self.expiry.forget_range(first, last)
        following = catalog.next_live(last + 1) if catalog.table.total else None
        catalog.first_seq = catalog.last_seq + 1 if following is None else following
        self._drop_front()

    def _drop_front(self) -> None:
        """Let go of sealed blocks that lie wholly before the first message."""
        catalog = self.catalog
        while len(catalog.blocks) > 1 and catalog.blocks[0].last_seq < catalog.first_seq:
            block = catalog.blocks.pop(0)
            catalog.forget(block)
            self.removals.pop(block.id, None)
            self._dropped(block)

    def _remove(self, seq: int) -> None:
        """Remove one live message."""
        catalog = self.catalog
        if seq == catalog.first_seq:
            self._evict(count=1)
            return
        block = catalog.block_of(seq)
        assert block is not None
        index = catalog.index(block)
        position = index.position(seq)
        subject, size = index.table.subject(index.ids[position]), self._message_size(seq)
        self._leave(block, seq, subject, size)
        group = self.removals.get(block.id)
        if group is None:
            group = RemovalGroup(block.id, block.header.generation, SequenceSet())
            self.removals[block.id] = group
        group.seqs.add(seq)
        messages, total = group.subjects.get(subject, (0, 0))
        group.subjects[subject] = (messages + 1, total + size)
        if block.sealed and not block.message_count:
            self._drop_middle(block)

    def _leave(self, block: MsgBlock, seq: int, subject: bytes, size: int) -> None:
        """A message leaves the counters."""
        catalog = self.catalog
        slot = catalog.table.find(subject)
        assert slot >= 0
        catalog.table.remove(slot, seq)
        block.gone.add(seq)
        block.size -= size
        catalog.size -= size
        self.expiry.forget(seq)

    def _drop_middle(self, block: MsgBlock) -> None:
        """Let go of a sealed block in which no message is left, between others."""
        catalog = self.catalog
        self.removals.pop(block.id, None)
        self._note_dropped_middle(block)
        catalog.blocks.remove(block)
        catalog.forget(block)
        self._dropped(block)

    def _purge_matching(self, filters: str, seq: int, keep: int) -> int:
        """Remove the messages that match, below `seq` or but for the newest `keep`."""
        catalog, filter = self.catalog, self.queries.filter(filters)
        count = catalog.table.match_total(filter.subjects) - keep
        stop = min(seq, catalog.last_seq + 1) if seq else catalog.last_seq + 1
        seqs = list(_first(self.queries.matching(filter, catalog.first_seq, stop), count))
        for found in seqs:
            self._remove(found)
        return len(seqs)

    def _compact(self, seq: int) -> int:
        """Remove everything below a sequence."""
        catalog = self.catalog
        if seq > catalog.last_seq:
            return self._purge_all(max(seq, catalog.last_seq + 1))
        count = catalog.table.total - self.queries.num_pending(seq, self.queries.filter(">"), False).msgs
        return self._evict(count=count) if count > 0 else 0

    def _purge_all(self, next_seq: int) -> int:
        """Remove everything; the next message gets `next_seq`."""
        catalog, purged = self.catalog, self.catalog.table.total
        if next_seq == catalog.last_seq + 1 and not purged:
            return 0
        dropped, catalog.blocks = catalog.blocks, []
        for block in dropped:
            catalog.forget(block)
        self.removals.clear()
        catalog.table.clear()
        self.expiry.clear()
        catalog.size = 0
        catalog.first_seq, catalog.last_seq = next_seq, next_seq - 1
        self.add_block(dropped[-1].id + 1)
        for block in dropped:
            self._dropped(block)
        return purged

    def _message_size(self, seq: int) -> int:
        """How large JetStream counts the message at a sequence; as near as can be told when it is damaged."""
        try:
            record = self.catalog.record(seq)
        except CorruptBlock:
            block = self.catalog.block_of(seq)
            assert block is not None
            index = self.catalog.index(block)
            return self._damaged_size(block, index, index.position(seq))
        return self._size(record.subject, record.headers, record.payload)

    def _damaged_size(self, block: MsgBlock, index: BlockIndex, position: int) -> int:
        return min(index.end(position, block.body_size) - index.offsets[position], block.size)

    def _time_of(self, seq: int) -> int:
        """When a message was stored; 0 when it is damaged."""
        try:
            return self.catalog.record(seq).time_ns
        except CorruptBlock:
            return 0

    def _size(self, subject: Buffer, headers: Buffer, payload: Buffer) -> int:
        size = self.size_fixed + len(subject) + len(payload)
        return size + self.size_headers + len(headers) if len(headers) else size

    def _load_found(self, seq: int | None) -> StoredMsg | None:
        return None if seq is None else self.load(seq)

    def _now(self) -> int:
        """The time for a new message: the clock's, unless that went backwards."""
        return max(self.clock(), self.catalog.last_time_ns)

    def _check_writable(self) -> None:
        if self.closed:
            raise StoreClosed(self.name)

    def _done(self) -> None:
        """The end of every change."""
        if self.autocommit:
            self.commit()

    # What memory and disk do differently

    def commit(self) -> int:
        """Make everything so far as durable as configured; the last sequence that is."""
        raise NotImplementedError

    def add_block(self, block_id: int) -> None:
        """Start a new block at the next sequence and write to it from now on."""
        raise NotImplementedError

    def _rotate(self) -> None:
        """Seal the active block and start the next."""
        raise NotImplementedError

    def _erase(self, seq: int) -> None:
        """Remove one live message so that its bytes cannot be had again."""
        raise NotImplementedError

    def _truncate(self, seq: int) -> None:
        """Undo everything after a sequence below the last."""
        raise NotImplementedError

    def _note_dropped_middle(self, block: MsgBlock) -> None:
        """A block between others is about to go: remember that its sequences are."""

    def _dropped(self, block: MsgBlock) -> None:
        """A block is no longer part of the stream."""


def _message(record: Record) -> StoredMsg:
    return StoredMsg(
        record.seq,
        decode_subject(record.subject),
        record.headers,
        record.payload,
        record.time_ns,
        record.expires_ns,
    )


def _subject_bytes(subject: str) -> bytes:
    check_subject(subject)
    return encode_subject(subject)


def _record_room(ops: array[int], number: int, data_size: int) -> int:
    """At least as many bytes as an operation's record takes, if it is one at all."""
    op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
    return min(op[1] + op[5] + op[7], data_size) + _RECORD_OVERHEAD_MAX


def _positions(index: BlockIndex, start: int, size: int) -> int:
    """How many messages from a position on lie within so many bytes."""
    return bisect_right(index.offsets, index.offsets[start] + size, start, index.count) - start


def _first(seqs: Iterator[int], count: int) -> Iterator[int]:
    return islice(seqs, max(count, 0))
