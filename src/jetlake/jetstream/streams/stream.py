"""A stream: messages of some subjects, stored in order, acknowledged when they are safe.

Publishes come in runs, as the bytes that were received (`ingest`). What needs no rule goes into the store by one kernel
call, and its PubAcks are made by another; the rest goes message by message through the rules of `publish.py`.

What the rules decide becomes a command (`commands.py`), which the stream's log applies and commits (`log.py`). Acks
wait for the commit. Consumers and gets see a message once it is committed, and it is republished then, after its ack:
nobody acts on what a power cut could take back.

A commit that fails freezes the store: its publishers get an error. From then on the stream tries now and then to open
its files anew, and goes on from what it finds there.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.frames import msgs_size
from jetlake.broker.subscription import Buffer, Msg, read_msg
from jetlake.broker.transform import SubjectTransform
from jetlake.clock import SECOND_NS
from jetlake.errors import BadRequest, StoreClosed, StoreError, StoreFrozen
from jetlake.jetstream import errors
from jetlake.jetstream.api.direct_run import DirectRun
from jetlake.jetstream.consumers.signals import Signals
from jetlake.jetstream.consumers.state_files import ConsumerFiles
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Host, Timer
from jetlake.jetstream.schedules.scheduler import Scheduler
from jetlake.jetstream.sourcing.copying import Copying
from jetlake.jetstream.streams import publish
from jetlake.jetstream.streams._msg_ids_py import FAST_SUFFIX
from jetlake.jetstream.streams.answers import Ack, Acks, Failed, Waiting
from jetlake.jetstream.streams.atomic_batches import BATCH_ID, AtomicBatches
from jetlake.jetstream.streams.commands import (
    Append,
    Configure,
    Erase,
    Expire,
    Purge,
    Put,
    Remove,
    Skip,
    Timing,
)
from jetlake.jetstream.streams.config import Retention, StreamConfig, limits
from jetlake.jetstream.streams.counter_runs import CounterRuns
from jetlake.jetstream.streams.fast_batches import FastBatches
from jetlake.jetstream.streams.interest import Interest
from jetlake.jetstream.streams.log import LocalLog, Log, Owner, Unsettled
from jetlake.jetstream.streams.machine import Store, StreamMachine
from jetlake.jetstream.streams.meta import CONSUMERS_NAME
from jetlake.jetstream.streams.pub_acks import ack_frames
from jetlake.jetstream.streams.republish import Republisher
from jetlake.ops import OP_ADMITTED, OP_EXPECTS, OP_WORDS, append_op
from jetlake.store import FileOptions, FileStore, MemStore
from jetlake.store.disk.compaction import Compaction
from jetlake.store.disk.files import is_no_space
from jetlake.store.format import NEVER_NS
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.subjects import decode_subject, encode_subject
from jetlake.wire.headers import header_value
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.peer import Peer
    from jetlake.broker.recipients import Stored
    from jetlake.jetstream.consumers.consumer import Consumer
    from jetlake.jetstream.consumers.state_files import Unreadable
    from jetlake.jetstream.js_account import JsAccount

SUBJECTS_AT_ONCE = 1000  # that a stream takes up before others have their turn
EXPIRED_COUNT_MAX = 500  # messages that leave by themselves before others have their turn
EXPIRY_STEP_NS = 50_000_000  # messages that are due together leave together
REOPEN_S = 2
_NO_MORE = object()


class Compacted(NamedTuple):
    """What compaction did to a stream's files."""

    blocks: int  # written anew
    size_before: int
    size_after: int


Cut = tuple[int, int]  # the id of a block, and an offset in its file
MakeLog = Callable[[Host, StreamMachine, Owner], Log]


def open_store(
    js: JsAccount, config: StreamConfig, directory: str | None, *, is_new: bool = False, cut: Cut | None = None
) -> Store:
    """The store of a stream, made if it is not there; `directory` is None for one in memory.

    With a `cut` it is synced by checkpoints alone, and what lies after the last one is removed (see `FileStore`).
    """
    first_seq = max(config.first_seq, 1)
    if directory is None:
        return MemStore(limits(config), name=config.name, first_seq=first_seq, clock=js.host.clock, autocommit=False)
    return FileStore(
        directory,
        limits(config),
        _file_options(js, config, by_checkpoint=cut is not None),
        first_seq=first_seq,
        files=js.files,
        clock=js.host.clock,
        autocommit=False,
        tree_locked=True,
        redo=js.service.redo,
        is_new=is_new,
        cut=cut,
    )


def _file_options(js: JsAccount, config: StreamConfig, *, by_checkpoint: bool) -> FileOptions:
    options = js.encryption.file_options(config)
    return replace(options, sync="checkpoint") if by_checkpoint else options


class Stream:
    """One stream of an account."""

    def __init__(
        self,
        js: JsAccount,
        config: StreamConfig,
        created_ns: int,
        directory: str | None,
        store: Store | None = None,
        *,
        is_new: bool = False,
        make_log: MakeLog = LocalLog,
        cut: Cut | None = None,
    ) -> None:
        """Open the stream's store, which is made if it is not there; `directory` is None for one in memory.

        One that was restored may have its `store` open already. If it `is_new`, nothing of it is durable before its
        first commit. A replicated one gets a log that its servers agree on, and is cut at its last checkpoint.
        """
        self.js, self.host, self.account = js, js.host, js.account
        self.config, self.created_ns, self.directory = config, created_ns, directory
        store = open_store(js, config, directory, is_new=is_new, cut=cut) if store is None else store
        if isinstance(store, FileStore):
            store.on_lost = self._lost
        self.machine = StreamMachine(store, config.duplicate_window)
        self.log = make_log(self.host, self.machine, self)
        place = f"{directory.rpartition('/')[0]}/{CONSUMERS_NAME}" if directory is not None else ""
        self.consumer_files = ConsumerFiles(js.files, place, js.encryption.sealer, config.name, js.service.redo)
        self.consumers: dict[str, Consumer] = {}
        self.offline_consumers: dict[str, Unreadable] = {}  # whose files cannot be read, by the base of their names
        self.signals: Signals = Signals(self)
        self.interest: Interest | None = None  # unless limits alone say what stays
        self._room = js.room(config.storage)
        self.copying = Copying(self)
        self.atomic_batches, self.fast_batches = AtomicBatches(self), FastBatches(self)
        self.counter_runs = CounterRuns(self)
        self.scheduler: Scheduler | None = None  # unless messages may be schedules
        self._direct_run = DirectRun(self, js.api)
        self.skipped_ns = 0  # when a message came that nobody was interested in; counted as the stream's last
        self._signalled_seq = self.store.catalog.last_seq
        self._expiry: Timer | None = None
        self._sync: Timer | None = None
        self._expiry_ns = 0
        self._capturing: Iterator[None] | None = None  # what is left of taking up its subjects
        self._opening: list[Callable[[], None]] = []  # who waits for that
        self._use(config)
        self._schedule_expiry()

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def patterns(self) -> tuple[bytes, ...]:
        """The subjects whose messages the stream wants."""
        return tuple(map(encode_subject, self.config.subjects))

    @property
    def last_seq(self) -> int:
        return self.store.catalog.last_seq

    @property
    def store(self) -> Store:
        """Its messages, to be read: `machine` alone changes them."""
        return self.machine.store

    @property
    def is_closed(self) -> bool:
        """Whether it is stopped or deleted."""
        return self.log.is_closed

    # Opening

    def _use(self, config: StreamConfig) -> None:
        """Derive from the configuration what publishing asks of it."""
        transform, republish = config.subject_transform, config.republish
        self._transform = SubjectTransform(transform.src, transform.dest) if transform is not None else None
        self._republisher = Republisher(self, republish) if republish is not None else None
        if config.retention is Retention.LIMITS:
            self.interest = None
        elif self.interest is None:
            self.interest = Interest(self)
        is_changed = self._transform is not None or config.allow_msg_counter
        has_rules = is_changed or self._republisher is not None or config.sealed
        self._is_plain = not has_rules
        other_rules = self._transform is not None or self._republisher is not None or config.sealed
        self._is_plain_counter = config.allow_msg_counter and not other_rules
        if config.allow_msg_schedules and self.scheduler is None:
            self.scheduler = Scheduler(self)
        domain = self.host.options.jetstream.domain
        in_domain = b'"domain":%s,' % encode_json(domain) if domain else b""
        self.ack_head = b'{"stream":%s,%s"seq":' % (encode_json(config.name), in_domain)

    # Publishing

    def ingest(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        """Store a run of publishes and acknowledge them when they are safe."""
        self.log.received(origin, msgs_size(ops, first, stop))
        self._ingest(origin, data, ops, first, stop)

    def _ingest(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        size = _extent(ops, first, stop)
        while first < stop:
            if self.log.must_defer:
                self.log.defer(partial(self._ingest, origin, *_copied(data, ops, first, stop)))
                return
            end = self._ingest_plain(data, ops, first, stop, size) if self._may_ingest() else first
            if end == first and self._counts_runs and self.log.is_settled:
                end = self.counter_runs.take(data, ops, first, stop)
            if end == first and self.atomic_batches.count:
                end = self.atomic_batches.take(data, ops, first, stop)
            if end == first and self.fast_batches.count:
                end = self.fast_batches.take(data, ops, first, stop)
            if end == first:
                self.ingest_msg(read_msg(data, ops, first, origin))
                end += 1
            first = end

    def _may_ingest(self) -> bool:
        """Can messages be stored without a look at each?"""
        log = self.log
        if not self._is_plain or log.problem is not None or log.is_closed:
            return False
        return self.interest is None or self.interest.wants_all

    @property
    def _may_store(self) -> bool:
        return self.log.problem is None and not self.log.is_closed

    @property
    def _counts_runs(self) -> bool:
        """Can increments be stored run by run?"""
        return self._is_plain_counter and self._may_store

    def _ingest_plain(self, data: Buffer, ops: array[int], first: int, stop: int, size: int) -> int:
        """Store publishes up to one that needs a rule; where that is. All of them take `size` bytes, or less."""
        if self._room.left() < size:
            return first
        machine, log = self.machine, self.log
        seq, time_ns = log.next_seq, log.next_time_ns(self.host.clock())
        end = machine.msg_ids.admit(data, ops, first, stop, seq, time_ns, self.config.max_msg_size)
        if end == first:
            return first
        done = self._append(Append(seq, time_ns, data, ops, first, end))
        if done > first:
            self._acknowledge_run(data, ops, first, done, seq)
        return done

    def append_run(self, data: Buffer, ops: array[int], first: int, stop: int) -> tuple[int, int]:
        """Store publishes that need no rule: the sequence of the first, and the operation at which it stopped."""
        seq, time_ns = self.log.next_seq, self.log.next_time_ns(self.host.clock())
        if self._room.left() < _extent(ops, first, stop):
            return seq, first
        return seq, self._append(Append(seq, time_ns, data, ops, first, stop))

    def _append(self, command: Append) -> int:
        try:
            done = self.log.append(command)
        except (BadRequest, StoreError):  # the first one is tried alone then, so that it gets its own error
            return command.first
        if done > command.first and self.store.may_expire:
            self._schedule_expiry()
        return done

    def _acknowledge_run(self, data: Buffer, ops: array[int], first: int, stop: int, seq: int) -> None:
        if self.config.no_ack:
            return
        target = self.account.last_reply
        while first < stop:
            end = first
            if target is not None:
                frames, end = ack_frames(
                    data, ops, first, stop, target.prefix, target.may_have_dots, target.sid, self.ack_head, seq
                )
                if frames:
                    self.log.answer(Acks(target.client, frames))
            if end == first:  # its reply goes elsewhere, or it wants none
                start, size = ops[first * OP_WORDS + 2 : first * OP_WORDS + 4]
                if size:
                    reply = bytes(data[start : start + size])
                    found = self.account.reply_target(reply)
                    if found is not None and found is not target:
                        target = found
                        continue
                    self.acknowledge(reply, b"%s%d}" % (self.ack_head, seq))
                end += 1
            seq += end - first
            first = end

    def ingest_msg(self, msg: Msg) -> None:
        """Store one message by all the rules, and acknowledge it when it is safe."""
        try:
            self._receive(msg)
        except Unsettled:
            self.log.defer(partial(self.ingest_msg, msg))
            return
        except ApiError as error:
            self.refuse(msg.reply, error)
        except Exception as error:
            self.host.failed(f"publish stream={self.name} subject={decode_subject(msg.subject)}", error)
            self.refuse(msg.reply, errors.STREAM_GENERAL("internal error"))
        self.changed()

    def ingest_traced(self, msg: Msg, is_only: bool, done: Stored) -> None:
        """Store a message that is traced, or if `is_only` find out whether it would be stored; `done` is told."""
        from jetlake.jetstream.streams.traced import ingest_traced  # few messages are

        ingest_traced(self, msg, is_only, done)

    def _receive(self, msg: Msg) -> None:
        batch_id = header_value(msg.headers, BATCH_ID) if msg.headers else None
        if msg.reply.endswith(FAST_SUFFIX):
            self.fast_batches.receive(msg)
        elif batch_id:
            self.atomic_batches.receive(batch_id, msg)
        else:
            tail, follow_ups = self._store(msg)
            self.acknowledge(msg.reply, self.ack_head + tail)
            for follow_up in follow_ups:
                self.log.answer(follow_up)

    def check_open(self) -> None:
        """Raise ApiError when nothing can be stored, whatever it is."""
        if not self._may_store:
            raise self.refusal()
        if self.config.sealed:
            raise errors.STREAM_SEALED()

    def refuse(self, reply: bytes, error: ApiError) -> None:
        """Say why a message is not stored."""
        fields = {"error": error.as_dict(), "stream": self.config.name, "seq": 0}
        self.acknowledge(reply, encode_json(fields))

    def _store(self, msg: Msg) -> tuple[bytes, list[Waiting]]:
        """Store a message; what its ack says after `"seq":`, and what is to follow the ack. Raises ApiError."""
        if not self._may_store:
            raise self.refusal()
        subject = self.transformed(msg.subject)
        seq, time_ns = self.log.next_seq, self.log.next_time_ns(self.host.clock())
        try:
            ready = publish.check(self, subject, msg.headers, msg.payload, time_ns)
        except publish.Duplicate as duplicate:
            return b'%d,"duplicate": true}' % duplicate.seq, []
        follow_ups = self.store_ready(seq, time_ns, subject, ready)
        return (b'%d,"val":"%s"}' % (seq, ready.value.encode()) if ready.value else b"%d}" % seq), follow_ups

    def store_ready(self, seq: int, time_ns: int, subject: bytes, ready: publish.Ready) -> list[Waiting]:
        """Store a message that passed the rules; what is to follow when it is durable. Raises ApiError."""
        if self.interest is not None and not self.interest.wants(subject):
            timing = ready.timing if ready.timing is not None and not ready.timing.due_ns else None
            then = (lambda _: self.scheduled(timing)) if timing is not None else None
            self.log.submit(Skip(seq, time_ns, ready.msg_id, timing), then)
            self.skipped_ns = time_ns
            return []
        follow_ups = self.republishing(subject, ready, seq, time_ns)
        self._put(seq, time_ns, subject, ready)
        return follow_ups

    def produce(self, target: bytes, ready: publish.Ready) -> None:
        """Store a message that a schedule makes; raises ApiError."""
        subject = self.transformed(target)
        seq, time_ns = self.log.next_seq, self.log.next_time_ns(self.host.clock())
        ready = publish.check_produced(self, ready)
        for follow_up in self.store_ready(seq, time_ns, subject, ready):
            self.log.answer(follow_up)
        self.changed()

    def republishing(
        self, subject: bytes, ready: publish.Ready, seq: int, time_ns: int, previous: int | None = None
    ) -> list[Waiting]:
        """What publishes a message again, if that is configured; `previous` is the last sequence of its subject."""
        if self._republisher is None:
            return []
        previous = self.log.last_seq_of(decode_subject(subject)) if previous is None else previous
        facts = (subject, ready.headers, ready.payload, seq, time_ns, previous)
        return [Waiting(partial(self._republisher.publish, *facts), _ignore)]

    def _put(self, seq: int, time_ns: int, subject: bytes, ready: publish.Ready) -> None:
        """Store one message; raises ApiError."""
        text = decode_subject(subject)
        replaces = {"": "", "sub": text, "all": ">"}[ready.rollup]
        expires_ns = min(time_ns + ready.ttl_ns, NEVER_NS) if ready.ttl_ns else 0
        facts = (ready.headers, ready.payload, expires_ns, ready.msg_id, replaces, ready.timing)
        self.put(Put(seq, time_ns, text, *facts))

    def put(self, command: Put) -> None:
        """Store one message that passed all rules but discard=new; raises ApiError."""
        subject, replaces = encode_subject(command.subject), command.replaces
        try:
            self.log.check_new(subject, command.headers, command.payload, is_rollup=bool(replaces))
            self.log.submit(command, partial(self._stored, command) if replaces or command.timing else None)
        except (BadRequest, StoreError) as error:
            raise errors.STREAM_STORE_FAILED(errors.reason(error)) from None

    def _stored(self, command: Put, _: object) -> None:
        """A message is there that others stand back for, or that has to do with schedules."""
        if command.replaces:
            self.purged(command.replaces)
        if command.timing is not None:
            self.scheduled(command.timing)

    def scheduled(self, timing: Timing) -> None:
        """A message is there that is a schedule, comes from one, or ends one."""
        if self.scheduler is not None:
            self.scheduler.changed(timing)

    def acknowledge_seq(self, reply: bytes, seq: int, more: bytes = b"") -> None:
        """Send the ack of a sequence once it is durable, with more fields."""
        self.acknowledge(reply, b"%s%d%s}" % (self.ack_head, seq, more))

    def acknowledge(self, reply: bytes, body: bytes) -> None:
        """Answer a message once everything done so far is durable."""
        if reply and not self.config.no_ack:
            self.log.answer(Ack(reply, body))

    @property
    def takes_batches(self) -> bool:
        """Whether members of atomic batches can be held without a look at each."""
        return self.config.allow_atomic and self.log.problem is None and not (self.log.is_closed or self.config.sealed)

    @property
    def takes_plain_batches(self) -> bool:
        """Whether an atomic batch of plain messages can be stored without a look at each."""
        return self._may_ingest() and not self.config.discard_new_per_subject

    # What other streams' messages go by (`jetlake.jetstream.sourcing`)

    @property
    def takes_copies(self) -> bool:
        """Whether messages can be stored without a look at each."""
        return self._may_ingest()

    def room_left(self) -> int:
        """How many bytes may be stored for sure."""
        return self._room.left()

    def transformed(self, subject: bytes) -> bytes:
        """The subject that a message is stored under."""
        return (self._transform.apply_bytes(subject) or subject) if self._transform is not None else subject

    def answers_for(self, name: str) -> bool:
        """Whether it answers direct gets of a stream that it mirrors."""
        mirror = self.config.mirror
        return self.config.mirror_direct and mirror is not None and mirror.name == name

    def republish_copy(self, subject: bytes, headers: bytes, payload: bytes, seq: int, time_ns: int) -> None:
        """Publish a copy again, if configured, once it is durable."""
        if self._republisher is not None and self.log.next_seq == seq + 1:
            facts = (subject, headers, payload, seq, time_ns, 0)
            self.log.answer(Waiting(partial(self._republisher.publish, *facts), _ignore))

    # Committing

    def changed(self) -> None:
        """Something was done that has to be committed, or answered."""
        self.log.commit_soon()
        self.expire_soon()

    def expire_soon(self) -> None:
        """See to messages that leave by themselves, if there are any."""
        if self.store.may_expire:
            self._schedule_expiry()

    def send_ack(self, reply: bytes, body: bytes) -> None:
        """Send the answer to one message."""
        self.account.send(reply, body)

    def commit_failed(self, error: BaseException) -> None:
        """The disk failed: try now and then to read the files anew."""
        self.host.log("error", f"stream cannot write name={self.name} account={self.account.name} error={error}")
        self.host.call_at(self.host.clock() + REOPEN_S * SECOND_NS, self._reopen)

    def refusal(self) -> ApiError:
        """Why nothing is stored."""
        problem = self.log.problem
        if is_no_space(problem.cause if isinstance(problem, StoreFrozen) else problem):
            return errors.INSUFFICIENT_RESOURCES()
        return errors.STREAM_STORE_FAILED(errors.reason(problem) if problem else "stream is stopped")

    def committed(self) -> None:
        """More is durable than before: tell consumers that can deliver."""
        last = self.log.committed_seq
        if last > self._signalled_seq:
            first, self._signalled_seq = self._signalled_seq + 1, last
            self.signals.stored(first, last)
            if self.scheduler is not None:
                self.scheduler.stored()
        if self._sync is None:
            self._schedule_sync()

    def _reopen(self) -> None:
        """Read the files anew after a failure."""
        if self.log.is_closed or self.log.problem is None:
            return
        assert isinstance(self.store, FileStore)
        try:
            self.store.release()
            store = open_store(self.js, self.config, self.directory)
            assert isinstance(store, FileStore)
            store.on_lost = self._lost
            self.machine.use(store, self.config.duplicate_window)
            store.check_writable()
        except (OSError, StoreError) as error:
            self.log.problem = error
            self.host.call_at(self.host.clock() + REOPEN_S * SECOND_NS, self._reopen)
            return
        self.log.problem = None
        if self.scheduler is not None:
            self.scheduler.open()
        self._signalled_seq = min(self._signalled_seq, self.last_seq)
        self.host.log("info", f"stream writes again name={self.name} account={self.account.name} seq={self.last_seq}")
        for consumer in list(self.consumers.values()):
            consumer.stream_reopened()
        if self.interest is not None:
            self.interest.check()

    # Removing

    def purge(
        self, filter: str = ">", *, seq: int = 0, keep: int = 0, done: Callable[[int], None] = lambda count: None
    ) -> None:
        """Remove messages; `done` is told how many. Consumers are told even if it is none: they may not know what
        limits took."""

        def then(count: int) -> None:
            self.purged(filter)
            done(count)

        self.log.submit(Purge(filter, seq, keep), then)

    def purged(self, filter: str) -> None:
        """Messages that match a filter left by somebody's will: consumers may have waited for them."""
        self.copying.purged()
        for consumer in list(self.consumers.values()):
            consumer.purged(filter)
        self.changed()

    def shrunk(self) -> None:
        """Messages left by limits or age: consumers may have waited for them."""
        for consumer in list(self.consumers.values()):
            consumer.purged()

    def delete_message(self, seq: int, *, erase: bool, done: Callable[[bool], None], failed: Failed) -> None:
        """Remove one message, with its bytes if told so; `done` is told whether there was one, when that is durable."""

        def fail(error: ApiError) -> None:
            failed(errors.STREAM_MSG_DELETE_FAILED(error.description))

        def delete() -> None:
            try:
                self.log.submit(Erase(seq) if erase else Remove((seq,)), then)
            except (OSError, StoreError) as error:
                failed(errors.STREAM_MSG_DELETE_FAILED(errors.reason(error)))

        def then(count: int) -> None:
            if count:
                for consumer in list(self.consumers.values()):
                    consumer.removed(seq)
            self.log.when_erased(lambda: done(count > 0), fail)

        if erase:
            self.log.when_idle(delete)
        else:
            delete()

    def compact(self, dead_part_max: float, done: Callable[[Compacted], None], failed: Failed) -> None:
        """Write blocks anew of which more than a part is dead, one by each commit; `done` when all of them are."""

        def begin() -> None:
            store = self.store
            if isinstance(store, MemStore):
                size = store.utilisation()[0]
                done(Compacted(0, size, size))
            elif store.options.by_checkpoint:
                failed(errors.STREAM_GENERAL("a replicated stream is compacted by its checkpoints"))
            elif self.log.problem is not None:
                failed(self.refusal())
            else:
                proceed(Compaction(store, dead_part_max))

        def proceed(compaction: Compaction) -> None:
            if compaction.is_done:
                done(Compacted(compaction.block_count, compaction.size_before, compaction.size_after))
            elif not self.log.may_rewrite:
                failed(self.refusal())
            else:
                self.log.when_durable(lambda: proceed(compaction), failed)

        self.log.when_idle(begin)

    def update(self, config: StreamConfig) -> None:
        """Take another configuration. The account has checked it and keeps it."""
        now_ns = self.host.clock()
        self.log.submit(
            Configure(limits(config), config.duplicate_window, now_ns, config),
            lambda count: self.configured(config, count),
        )
        self.changed()

    def configured(self, config: StreamConfig, removed_count: int) -> None:
        """Limits and the like are those of another configuration: take the rest of it. So many messages went."""
        had_interest = self.interest is not None
        old, self.config = self.config, config
        if isinstance(self.store, FileStore):
            by_checkpoint = self.store.options.by_checkpoint
            self.store.use_options(_file_options(self.js, config, by_checkpoint=by_checkpoint))
        self._use(config)
        if removed_count:
            self.shrunk()
        if self.interest is not None and not had_interest:
            self.interest.begin()
        if not config.allow_atomic:
            self.atomic_batches.close()
        if not config.allow_batched:
            self.fast_batches.close()
        self._direct_run.open()
        if self.log.is_leading:
            if self.scheduler is not None:
                self.scheduler.configure()
            if config.subjects != old.subjects:
                self._capture()
            self.copying.configure()

    def revert(self, config: StreamConfig) -> None:
        """Go back to the configuration before an update that could not be stored; its files will be read anew."""
        old, self.config = self.config, config
        self._use(config)
        if config.subjects != old.subjects:
            self._capture()
        self._direct_run.open()

    def _lost(self, seqs: SequenceSet, where: str) -> None:
        """Messages turned out to be unreadable, and count as removed from now on."""
        from jetlake.store.verify.check import show_ranges  # seldom needed, and every start would wait for it

        facts = f"name={self.name} account={self.account.name} seqs={show_ranges(seqs)} where={where}"
        self.host.log("warning", f"messages lost {facts}")
        self.log.commit_soon()

    # Time

    def _schedule_expiry(self) -> None:
        if self.log.is_closed or not self.log.is_leading:
            return
        due_ns = self.store.next_expiry_ns()
        if due_ns is None:
            return
        due_ns = max(due_ns, self.host.clock() + EXPIRY_STEP_NS // 2)
        if self._expiry is not None:
            if self._expiry_ns <= due_ns + EXPIRY_STEP_NS:
                return
            self._expiry.cancel()
        self._expiry_ns = due_ns
        self._expiry = self.host.call_at(due_ns, self._expire)

    def _schedule_sync(self) -> None:
        """With an interval between syncs, the last messages of a burst must be synced too."""
        if not self.log.is_closed and isinstance(self.store, FileStore):
            due_ns = self.store.next_sync_ns()
            if due_ns is not None:
                self._sync = self.host.call_at(due_ns, self._sync_now)

    def _sync_now(self) -> None:
        self._sync = None
        self.changed()

    def _expire(self) -> None:
        self._expiry = None
        if self.log.is_leading and self._may_store:
            self.log.submit(Expire(self.host.clock(), EXPIRED_COUNT_MAX), self._expired)

    def _expired(self, count: int) -> None:
        if count:
            self.shrunk()
        if count >= EXPIRED_COUNT_MAX and self._expiry is None:  # there is more, after others had their turn
            self._expiry_ns = 0
            self._expiry = self.host.call_at(0, self._expire)
        self._schedule_expiry()

    # Leaving

    def open(self, *, at_once: bool = True) -> None:
        """Take messages from now on; or soon, if it has many subjects: see `when_open`."""
        self.log.may_rewrite = True
        if isinstance(self.store, FileStore) and self.store.has_more:  # blocks with another compression
            self.log.commit_soon()
        self._direct_run.open()
        if self.log.is_leading:
            self.lead(at_once=at_once)

    def lead(self, *, at_once: bool = False) -> None:
        """It is for this server to decide what is stored: take messages, and see to what has its time."""
        if not self.log.may_rewrite:
            return  # it is not open
        if at_once:
            self.account.add_capture(self)
        else:
            self._capture()
        self.copying.open()
        self._direct_run.open()
        self._schedule_expiry()
        if self.scheduler is not None:
            self.scheduler.open()

    def follow(self) -> None:
        """Another server decides, or nobody: take nothing but what is agreed on."""
        self._captured()
        self.account.remove_capture(self)
        self._direct_run.close()
        self.copying.close()
        if self.scheduler is not None:
            self.scheduler.close()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _capture(self) -> None:
        """Take messages of the subjects that are configured now. Of many it takes some after others had their turn."""
        steps = self._capturing = self.account.add_capture_in_steps(self, SUBJECTS_AT_ONCE)

        def step() -> None:
            if self._capturing is not steps:
                return
            if next(steps, _NO_MORE) is None:
                self.host.call_soon(step)
            else:
                self._captured()

        step()

    def _captured(self) -> None:
        self._capturing, waiting, self._opening = None, self._opening, []
        for callback in waiting:
            self.log.call(callback)

    def when_open(self, callback: Callable[[], None]) -> None:
        """Call back once messages of all its subjects are taken, at once if they are; or if it is closed."""
        if self._capturing is None:
            callback()
        else:
            self._opening.append(callback)

    def close(self) -> None:
        """Take no more messages. What was taken has to be committed before `stop`."""
        self.log.may_rewrite = False  # callers of `stop` should not wait for a block to be rewritten
        self.follow()
        self._direct_run.close()
        self.atomic_batches.close()
        self.fast_batches.close()

    def suspend(self) -> None:
        """It is closed, and its files are on their way out: nothing more is written to them."""
        self.log.is_suspended = True

    def resume(self) -> None:
        """They stay after all."""
        self.log.is_suspended = False
        self.open()
        self.log.commit_soon()

    def _end(self) -> None:
        self.close()
        self.log.is_closed = True
        for timer in (self._expiry, self._sync):
            if timer is not None:
                timer.cancel()

    def abandon(self) -> None:
        """Let the files go as they are, before anything was taken: the stream cannot be served."""
        for consumer in self.consumers.values():
            consumer.close(409, "Server Shutdown")
        self._end()
        if isinstance(self.store, FileStore):
            self.store.release()

    def stop(self) -> None:
        """Write everything, and let the files go. No commit may be running."""
        self._end()
        with suppress(StoreFrozen, StoreClosed):  # it said so when it happened
            self.store.stop()
        self.log.answer_all()

    def delete(self) -> None:
        """Let go of everything: the files are on their way out. No commit may be running."""
        self._end()
        self.copying.deleted()
        self.log.answer_all()  # what was asked before is done, and gone with the rest
        if isinstance(self.store, FileStore):
            self.store.release()
        else:
            self.store.delete()


def _ignore(error: ApiError) -> None:
    """What was not stored is not told to anybody else."""


def _copied(data: Buffer, ops: array[int], first: int, stop: int) -> tuple[Buffer, array[int], int, int]:
    """The publishes first..stop-1 in a buffer of their own: the one they came in will be used again."""
    copy, copied = bytearray(), array("I")
    for number in range(first, stop):
        op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
        subject, reply, headers, payload = (bytes(data[op[at] : op[at] + op[at + 1]]) for at in range(0, 8, 2))
        append_op(copied, copy, subject, payload, headers, reply, op[9] & ~(OP_ADMITTED | OP_EXPECTS))
    return copy, copied, 0, stop - first


def _extent(ops: array[int], first: int, stop: int) -> int:
    """At least as many bytes as the publishes first..stop-1 take in the buffer they came in."""
    last = (stop - 1) * OP_WORDS
    return ops[last + 6] + ops[last + 7] - ops[first * OP_WORDS]
