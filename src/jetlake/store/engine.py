"""BlockStore: a stream's messages in blocks; the rules that MemStore and FileStore share.

Every call of the contract is here; how messages leave is in `retention.py` and `expiry.py`. What differs between memory
and disk is a handful of hooks: what to remember of removed messages, and what to do with a block that is full, empty or
new.

Any number of threads may use a store: each call has it alone, also while it waits for the disk.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from jetlake.errors import BadRequest, CorruptBlock, LimitExceeded, MessageNotFound, StoreClosed
from jetlake.ops import OP_ADMITTED, OP_EXPECTS, OP_MSG_ID, OP_SPECIAL, OP_WORDS
from jetlake.store.api import Discard, Pending, SimpleState, StoredMsg, StreamLimits, StreamState
from jetlake.store.batch_at import SEQ_SPAN_MAX, append_some, append_together, record_room
from jetlake.store.blocks.block import MsgBlock
from jetlake.store.format import EXPIRES, MORE, MSG_ID, NEVER_NS, SEQ_MAX, SKIP, Buffer
from jetlake.store.locked import locked
from jetlake.store.queries import Filter
from jetlake.store.records._encode_py import op_problem
from jetlake.store.records.encode import check_batch, encode_batch
from jetlake.store.records.record import Record, check_sizes, encode
from jetlake.store.records.varint import encode_varint
from jetlake.store.retention.bulk_removal import remove_all
from jetlake.store.retention.retention import Retention
from jetlake.subjects import check_tokens, decode_subject, encode_subject

_NO_EXPIRY: array[int] = array("q")
BATCH_SIZE_MAX = 256 * 1024 * 1024  # of an atomic batch: it may be that much more than fits into a block


class BlockStore(Retention):
    """The contract of `api.StreamStore`, on blocks."""

    # Storing

    def append(
        self,
        subject: str,
        payload: Buffer,
        headers: Buffer = b"",
        *,
        ttl_ns: int = 0,
        msg_id: bool = False,
        is_rollup: bool = False,
    ) -> int:
        """Store a message; its sequence. ttl_ns: how long it stays, NEVER_NS: whatever its age.

        A roll-up is about to replace the messages of its subject: discard_new_per_subject lets it pass.
        """
        with self.lock:
            self._check_writable()
            self._seqs_left()
            if ttl_ns < 0:
                raise BadRequest(f"a time to live of {ttl_ns} ns")
            time_ns = self._now()
            subject_bytes = _subject_bytes(subject)
            check_sizes(len(subject_bytes), len(headers), len(payload))
            self._check_discard_new(subject_bytes, self._size(subject_bytes, headers, payload), is_rollup)
            expires_ns = NEVER_NS if ttl_ns >= NEVER_NS - time_ns else time_ns + ttl_ns if ttl_ns else 0
            seq = self.catalog.last_seq + 1
            self._put(seq, time_ns, subject_bytes, headers, payload, expires_ns, MSG_ID if msg_id else 0)
            self._done()
            return seq

    @locked
    def append_at(
        self,
        seq: int,
        time_ns: int,
        subject: str,
        payload: Buffer,
        headers: Buffer = b"",
        *,
        expires_ns: int = 0,
        msg_id: bool = False,
    ) -> None:
        """Store a message with a given sequence and time. Sequences between are skipped; discard=new is not asked."""
        self._check_writable()
        if not self.catalog.last_seq < seq <= SEQ_MAX:
            raise BadRequest(f"sequence {seq} does not follow {self.catalog.last_seq}")
        if not -(2**63) <= time_ns < 2**63:
            raise BadRequest(f"time {time_ns} is not a number of nanoseconds in 64 bits")
        if not 0 <= expires_ns <= NEVER_NS:
            raise BadRequest(f"expires at {expires_ns}, which is not between 0 and {NEVER_NS}")
        subject_bytes = _subject_bytes(subject)
        check_sizes(len(subject_bytes), len(headers), len(payload))
        if seq > self.catalog.last_seq + 1:
            self._skip(seq - self.catalog.last_seq - 1, time_ns)
        self._put(seq, time_ns, subject_bytes, headers, payload, expires_ns, MSG_ID if msg_id else 0)
        self._done()

    @locked
    def check_new(self, subject: bytes, headers: Buffer, payload: Buffer, *, is_rollup: bool = False) -> None:
        """LimitExceeded when discard=new refuses a message."""
        self._check_discard_new(subject, self._size(subject, headers, payload), is_rollup)

    def append_batch(
        self,
        data: Buffer,
        ops: array[int],
        first: int = 0,
        stop: int | None = None,
        time_ns: int | None = None,
    ) -> tuple[int, int]:
        """Store the messages that operations first..stop-1 describe (see `jetlake.ops`), up to one that is special, or
        whose subject has another last sequence than it expects.

        All of them get one time, the clock's if none is given. Returns the sequence of the first one, and the operation
        at which it stopped. It also stops in front of one that discard=new refuses; if that is the first, it raises
        LimitExceeded.
        """
        with self.lock:
            self._check_writable()
            stop = len(ops) // OP_WORDS if stop is None else stop
            stop = min(stop, first + self._seqs_left())
            first_seq = self.catalog.last_seq + 1
            time_ns = self._now() if time_ns is None else time_ns
            if self.limits.is_bounded and self._must_store_singly(ops, first, stop):
                done = self._append_singly(data, ops, first, stop, time_ns)
            else:
                done = self._append_all(data, ops, first, stop, time_ns)
            if self.autocommit and done > first:
                self.commit()
            return first_seq, done

    @locked
    def append_batch_at(
        self,
        data: Buffer,
        ops: array[int],
        seqs: array[int],
        times: array[int],
        expires: array[int] = _NO_EXPIRY,
        *,
        stop: int | None = None,
    ) -> None:
        """Store the messages that operations up to `stop` describe, with given sequences and times (replication).

        Sequences must rise; those between are skipped. `expires` has a time for each message, 0 for one that stays, or
        nothing. Nothing is refused: limits remove the oldest. What is wrong with a message is raised after those
        before it are stored.
        """
        self._check_writable()
        stop, first = len(ops) // OP_WORDS if stop is None else stop, 0
        over: list[int] = []
        while first < stop:
            first = append_some(self, data, ops, seqs, times, expires, first, stop, over)
        if over:
            self._trim_subjects(over)
        if self.limits.is_bounded:
            self._enforce()
        self._done()

    @locked
    def append_together(
        self,
        data: Buffer,
        ops: array[int],
        time_ns: int,
        expires: array[int] = _NO_EXPIRY,
        replaces: Sequence[tuple[int, str]] = (),
    ) -> None:
        """Store an atomic batch: the messages of all operations, of which a reader ever finds all or none.

        `expires` is as in `append_batch_at`. `replaces` has numbers of operations, and filters of the messages before
        them that go. Nothing is stored if one of them cannot be. discard=new is not asked (see `check_batch`); in the
        end, limits remove the oldest.
        """
        self._check_writable()
        if len(ops) // OP_WORDS > self._seqs_left():
            raise BadRequest("too few sequences are left")
        if len(data) > BATCH_SIZE_MAX:
            raise BadRequest(f"an atomic batch of {len(data)} bytes, more than {BATCH_SIZE_MAX}")
        check_batch(data, ops)
        over: list[int] = []
        seq = self.catalog.last_seq + 1
        append_together(self, data, ops, time_ns, expires, over)
        if over:
            self._trim_subjects(over)
        for number, filter in replaces:
            self.purge(filter, seq=seq + number)
        if self.limits.is_bounded:
            self._enforce()
        self._done()

    @locked
    def check_batch(self, count: int, size: int, subject: bytes = b"", subject_count: int = 0) -> None:
        """LimitExceeded when discard=new refuses so many messages of so many bytes at once, or so many of a subject."""
        limits, table = self.limits, self.catalog.table
        if limits.discard is not Discard.NEW:
            return
        if 0 < limits.max_msgs < table.total + count:
            raise LimitExceeded("messages")
        if 0 < limits.max_bytes < self.catalog.size + size:
            raise LimitExceeded("bytes")
        if limits.discard_new_per_subject and subject_count:
            slot = table.find(subject)
            if (table.count(slot) if slot >= 0 else 0) + subject_count > limits.max_msgs_per_subject:
                raise LimitExceeded("messages per subject")

    def batch_size(self, ops: array[int]) -> int:
        """How many bytes JetStream counts for the messages of some operations."""
        with_headers = len(ops) // OP_WORDS - ops[5::OP_WORDS].count(0)
        sizes = sum(sum(ops[field::OP_WORDS]) for field in (1, 5, 7))
        return sizes + len(ops) // OP_WORDS * self.size_fixed + with_headers * self.size_headers

    @locked
    def skip(self, count: int = 1, time_ns: int | None = None) -> int:
        """Use up sequences without a message; the last one used."""
        self._check_writable()
        if not 0 < count <= SEQ_MAX - self.catalog.last_seq:
            raise BadRequest(f"cannot skip {count} sequences after {self.catalog.last_seq}")
        self._skip(count, self._now() if time_ns is None else time_ns)
        self._done()
        return self.catalog.last_seq

    # Reading

    def load(self, seq: int) -> StoredMsg:
        """The message at a sequence; MessageNotFound when there is none, or damage took it."""
        with self.lock:
            record = self.catalog.find(seq)
        if record is None:
            raise MessageNotFound(f"sequence {seq}")
        return _message(record)

    @locked
    def stored_records(self, seqs: Sequence[int], size_max: int) -> tuple[list[bytes], array[int]]:
        """The bytes of live messages as they are stored, and the seeds of their hashes; nothing of them is checked.

        It ends in front of one whose bytes cannot be read, or with the one that reaches the size.
        """
        catalog, records, seeds, size = self.catalog, list[bytes](), array("Q"), 0
        block = None
        for seq in seqs:
            if block is None or not block.first_seq <= seq <= block.last_seq:
                block = catalog.block_of(seq)
                assert block is not None, f"sequence {seq} is live but in no block"
                index, seed = catalog.index(block), block.seed
            position = index.position(seq)
            try:
                records.append(block.read(index.offsets[position], index.end(position, block.body_size)))
            except CorruptBlock:
                break
            seeds.append(seed)
            size += len(records[-1])
            if size >= size_max:
                break
        return records, seeds

    def load_next(self, start: int, filters: str | Sequence[str] = ">") -> StoredMsg | None:
        """The first matching message at or after a sequence."""
        filter = self.queries.filter(filters)
        with self.lock:
            while (seq := self.queries.next_seq(filter, start)) is not None:
                record = self.catalog.find(seq)
                if record is not None:
                    return _message(record)
                start = seq + 1
        return None

    @locked
    def load_prev(self, start: int, filters: str | Sequence[str] = ">") -> StoredMsg | None:
        """The last matching message at or before a sequence."""
        filter = self.queries.filter(filters)
        return self._load_back(filter, self.queries.prev_seq(filter, start))

    def load_last(self, filters: str | Sequence[str] = ">") -> StoredMsg | None:
        """The last matching message."""
        filter = self.queries.filter(filters)
        with self.lock:
            return self._load_back(filter, self.queries.last_seq(filter))

    def messages(self, start: int = 1, filters: str | Sequence[str] = ">") -> Iterator[StoredMsg]:
        """Every matching message from a sequence on, in order, as long as it is there when its turn comes."""
        while (message := self.load_next(start, filters)) is not None:
            yield message
            start = message.seq + 1

    @locked
    def subject_of(self, seq: int) -> str:
        """The subject of the message at a sequence, without reading the message."""
        block = self.catalog.block_of(seq)
        if block is None or not block.is_live(seq):
            raise MessageNotFound(f"sequence {seq}")
        index = self.catalog.index(block)
        position = index.position(seq)
        if position < 0:
            raise MessageNotFound(f"sequence {seq}")
        return decode_subject(index.table.subject(index.ids[position]))

    @locked
    def seq_from_time(self, time_ns: int) -> int:
        """The first sequence stored at or after a time; the next one to be used when there is none."""
        return self.queries.seq_from_time(time_ns)

    @locked
    def fast_state(self) -> StreamState:
        """The stream in numbers, without its deleted sequences."""
        catalog, first_time_ns = self.catalog, self._first_time_ns()
        msgs, unused = catalog.table.total, catalog.last_seq == 0 and catalog.first_seq == 1
        return StreamState(
            msgs=msgs,
            bytes=catalog.size,
            first_seq=0 if unused else catalog.first_seq,
            first_time_ns=first_time_ns,
            last_seq=catalog.last_seq,
            last_time_ns=catalog.last_time_ns,
            num_subjects=len(catalog.table),
            num_deleted=catalog.last_seq - catalog.first_seq + 1 - msgs,
            lost=catalog.lost.copy(),
        )

    @locked
    def state(self) -> StreamState:
        """The stream in numbers, with its deleted sequences."""
        state = self.fast_state()
        state.deleted = self.catalog.gone()
        return state

    @locked
    def filtered_state(self, start: int, filters: str | Sequence[str] = ">") -> SimpleState:
        """The matching messages at or after a sequence in numbers."""
        return self.queries.filtered_state(start, self.queries.filter(filters))

    @locked
    def subjects_state(self, filters: str | Sequence[str] = ">") -> dict[str, SimpleState]:
        """Messages, first and last sequence of each matching subject."""
        found = self.queries.subjects_state(self.queries.filter(filters))
        return {decode_subject(subject): state for subject, state in found.items()}

    @locked
    def subjects_totals(self, filters: str | Sequence[str] = ">") -> dict[str, int]:
        """How many messages each matching subject has."""
        found = self.queries.subjects_totals(self.queries.filter(filters))
        return {decode_subject(subject): count for subject, count in found.items()}

    @locked
    def subjects_page(self, filters: str | Sequence[str], offset: int, count_max: int) -> tuple[int, bytes]:
        """How many subjects match, and some of their totals as a JSON object; any number of subjects is a short job."""
        return self.queries.subjects_page(self.queries.filter(filters), offset, count_max)

    @locked
    def all_last_seqs(self) -> list[int]:
        """The last sequence of every subject, ascending."""
        return self.queries.last_seqs(self.queries.filter(">"), None, None).tolist()

    @locked
    def multi_last_seqs(
        self, filters: Sequence[str], max_seq: int | None = None, count_max: int | None = None
    ) -> list[int]:
        """The last sequence, at or before max_seq, of every subject that one of the filters matches, ascending."""
        return self.queries.last_seqs(self.queries.filter(filters), max_seq, count_max).tolist()

    @locked
    def matching_seqs(self, filters: str | Sequence[str], first: int, last: int) -> list[int]:
        """The live messages between two sequences that one of the filters matches, ascending."""
        return list(chain.from_iterable(self.queries.matching(self.queries.filter(filters), first, last + 1)))

    @locked
    def num_pending(self, start: int, filters: str | Sequence[str] = ">", *, last_per_subject: bool = False) -> Pending:
        """How many matching messages lie at or after a sequence; or only those that are the last of their subject."""
        return self.queries.num_pending(start, self.queries.filter(filters), last_per_subject)

    # Removing

    def remove(self, seq: int) -> bool:
        """Delete a message; False when there is none."""
        with self.lock:
            self._check_writable()
            if not self.catalog.is_live(seq):
                return False
            self._remove(seq)
            self._done()
            return True

    def remove_many(self, seqs: Iterable[int]) -> int:
        """Delete messages; how many of them there were."""
        with self.lock:
            self._check_writable()
            is_live = self.catalog.is_live
            live = array("Q", sorted({seq for seq in seqs if is_live(seq)}))
            if len(live) == 1:
                self._remove(live[0])
            elif live:
                remove_all(self, live, are_oldest=False)
            if live:
                self._done()
            return len(live)

    @locked
    def erase(self, seq: int) -> bool:
        """Delete a message so that its bytes cannot be had again; False when there is none."""
        self._check_writable()
        if not self.catalog.is_live(seq):
            return False
        self._erase(seq)
        self._done()
        return True

    def erase_soon(self, seq: int) -> bool:
        """The same; the bytes may stay as long as `is_erasing` says so."""
        return self.erase(seq)

    @property
    def is_erasing(self) -> bool:
        """Whether an erasure is not over."""
        return False

    @locked
    def purge_first(self, filters: str, first: int, last: int, count_max: int) -> array[int]:
        """Delete the oldest of the matching messages between two sequences, so many at most; which they were.

        For a purge of so many that others should have their turn in between.
        """
        self._check_writable()
        seqs = self._purge_first(filters, first, last, count_max)
        self._done()
        return seqs

    @locked
    def purge(self, filters: str = ">", *, seq: int = 0, keep: int = 0) -> int:
        """Delete matching messages: all, or those below `seq`, or all but the newest `keep`. How many."""
        self._check_writable()
        if seq < 0 or keep < 0 or (seq and keep):
            raise BadRequest("purge takes a sequence or a number to keep")
        filter = self.queries.filter(filters)
        table = self.catalog.table
        if not filter.subjects.is_all and table.match_total(filter.subjects) < table.total:
            purged = self._purge_matching(filters, seq, keep)
        elif keep:
            purged = self._evict(count=max(table.total - keep, 0))
        elif seq:
            purged = self._compact(seq if filter.subjects.is_all else min(seq, self.catalog.last_seq + 1))
        else:
            purged = self._purge_all(self.catalog.last_seq + 1)
        self._done()
        return purged

    @locked
    def compact(self, seq: int) -> int:
        """Delete everything below a sequence; how many. Beyond the end, the next message gets that sequence."""
        self._check_writable()
        if not 0 <= seq <= SEQ_MAX:
            raise BadRequest(f"no sequence {seq}")
        purged = self._compact(seq)
        self._done()
        return purged

    @locked
    def truncate(self, seq: int) -> None:
        """Undo everything after a sequence: the next message gets the one after it."""
        self._check_writable()
        if not 0 <= seq <= self.catalog.last_seq:
            raise BadRequest(f"cannot truncate to sequence {seq}: the last is {self.catalog.last_seq}")
        record = self.catalog.find(seq)
        if record is not None and record.flags & MORE and seq < self.catalog.last_seq:
            raise BadRequest(f"cannot truncate to sequence {seq}: it is in the middle of an atomic batch")
        if seq < self.catalog.last_seq:
            self._truncate(seq)
        self._done()

    @locked
    def update(self, limits: StreamLimits, now_ns: int | None = None) -> None:
        """Take other limits, and enforce them at once."""
        self._check_writable()
        self.limits = limits
        self.expiry.restart()
        self._apply_limits(self.clock() if now_ns is None else now_ns)
        self._done()

    @locked
    def over_subjects(self, count_max: int) -> array[int]:
        """The messages by which subjects have more than so many, oldest first."""
        return self._over_subjects(count_max)

    @locked
    def expire(self, now_ns: int | None = None, *, count_max: int | None = None) -> int:
        """Delete what is too old; how many. Delete markers are stored where they are configured.

        With a `count_max` there may be more to delete if so many, or more, were.
        """
        self._check_writable()
        expired = self.expiry.run(self.clock() if now_ns is None else now_ns, count_max)
        if expired:
            self._done()
        return expired

    @property
    def may_expire(self) -> bool:
        """Whether there is anything that leaves by itself."""
        return self.limits.max_age_ns > 0 or len(self.expiry.wheel) > 0

    @locked
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

    def _append_all(self, data: Buffer, ops: array[int], first: int, stop: int, time_ns: int) -> int:
        """Store operations with as few kernel calls as there are chunks and blocks to fill; where it stopped."""
        catalog = self.catalog
        over: list[int] = []
        while first < stop:
            seq = catalog.last_seq + 1
            block = self._block_for(seq)
            index = block.index
            assert index is not None
            chunk = block.chunks[-1] if block.chunks else block.room(record_room(ops, first, len(data)))
            if index.count + stop - first > len(index.offsets):
                index.reserve(stop - first)
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
                block.header.hash_seed,
                self.size_fixed,
                self.size_headers,
                self.limits.max_msgs_per_subject,
                over,
            )
            if done == first:
                if block.room(record_room(ops, first, len(data))) is chunk:
                    break  # not for want of room
                continue
            index.extend(seq, done - first)
            chunk.used = used
            block.body_size = chunk.base + used
            self._count_in(block, seq + done - first - 1, time_ns, size)
            first = done
        if over:
            self._trim_subjects(over)
        if self.limits.is_bounded:
            self._enforce()
        return first

    def _must_store_singly(self, ops: array[int], first: int, stop: int) -> bool:
        """Does a limit depend on each message of a batch in turn?"""
        limits, catalog = self.limits, self.catalog
        if limits.discard_new_per_subject:
            return True
        if limits.discard is Discard.NEW and 0 < limits.max_msgs < catalog.table.total + stop - first:
            return True
        if limits.max_bytes > 0 and (limits.discard is Discard.NEW or limits.max_msgs_per_subject > 0):
            return catalog.size + self._size_max(ops, first, stop) > limits.max_bytes
        return False

    def _size_max(self, ops: array[int], first: int, stop: int) -> int:
        """At least as many bytes as JetStream counts for the messages of some operations."""
        columns = (sum(ops[first * OP_WORDS + field : stop * OP_WORDS : OP_WORDS]) for field in (1, 5, 7))
        return sum(columns) + (stop - first) * (self.size_fixed + self.size_headers)

    def _append_singly(self, data: Buffer, ops: array[int], first: int, stop: int, time_ns: int) -> int:
        """Store operations one by one; where it stopped."""
        view = memoryview(data)
        for number in range(first, stop):
            op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
            if op[9] & (OP_SPECIAL | OP_ADMITTED) == OP_SPECIAL or op[9] & OP_EXPECTS:
                return number
            problem = op_problem(len(data), op)
            if problem is not None:
                if number == first:
                    raise problem
                return number
            subject, headers, payload = (view[start : start + size] for start, size in (op[0:2], op[4:6], op[6:8]))
            try:
                self._check_discard_new(bytes(subject), self._size(subject, headers, payload))
            except LimitExceeded:
                if number == first:
                    raise
                return number
            flags = MSG_ID if op[9] & OP_MSG_ID else 0
            self._put(self.catalog.last_seq + 1, time_ns, bytes(subject), headers, payload, 0, flags)
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
        block.size += size
        catalog.size += size
        catalog.last_time_ns = time_ns
        if time_ns > block.time_ns_max:
            block.time_ns_max = time_ns
        if time_ns < block.time_ns_min:
            block.time_ns_min = time_ns

    def _block_for(self, seq: int) -> MsgBlock:
        """The active block, or a new one when it is full."""
        block = self.catalog.blocks[-1]
        if block.body_size < self.block_size_max and seq - block.first_seq <= SEQ_SPAN_MAX:
            return block
        self._rotate()
        return self.catalog.active

    def _first_time_ns(self) -> int:
        """When the first message was stored; 0 when there is none."""
        seq = self.catalog.next_live(self.catalog.first_seq) if self.catalog.table.total else None
        while seq is not None:
            record = self.catalog.find(seq)
            if record is not None:
                return record.time_ns
            seq = self.catalog.next_live(seq + 1)
        return 0

    def _seqs_left(self) -> int:
        """How many sequences are left; BadRequest when there is none."""
        left = SEQ_MAX - self.catalog.last_seq
        if left <= 0:
            raise BadRequest(f"no sequence is left after {self.catalog.last_seq}")
        return left

    def _load_back(self, filter: Filter, seq: int | None) -> StoredMsg | None:
        """The matching message at a sequence, or the last one before it that can be read."""
        while seq is not None:
            record = self.catalog.find(seq)
            if record is not None:
                return _message(record)
            seq = self.queries.prev_seq(filter, seq - 1)
        return None

    def check_writable(self) -> None:
        """StoreClosed or StoreFrozen when nothing can be stored."""
        self._check_writable()

    def _check_writable(self) -> None:
        if self.closed:
            raise StoreClosed(self.name)
        if self._unreadable:
            self._look_at_unreadable()

    def _done(self) -> None:
        """The end of every change."""
        if self.autocommit:
            self.commit()

    # What memory and disk do differently

    @abstractmethod
    def commit(self) -> int:
        """Make everything so far as durable as configured; the last sequence that is."""

    @abstractmethod
    def _rotate(self) -> None:
        """Seal the active block and start the next."""

    @abstractmethod
    def _erase(self, seq: int) -> None:
        """Remove one live message so that its bytes cannot be had again."""

    @abstractmethod
    def _truncate(self, seq: int) -> None:
        """Undo everything after a sequence below the last."""


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
    check_tokens(subject)
    return encode_subject(subject)
