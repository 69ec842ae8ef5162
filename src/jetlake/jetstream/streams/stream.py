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
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.frames import msgs_size
from jetlake.broker.subscription import Buffer, Msg, read_msg
from jetlake.broker.transform import SubjectTransform
from jetlake.clock import SECOND_NS
from jetlake.errors import BadRequest, BadSubject, StoreClosed, StoreError, StoreFrozen
from jetlake.jetstream import errors
from jetlake.jetstream.api.direct_run import DirectRun
from jetlake.jetstream.consumers.signals import Signals
from jetlake.jetstream.consumers.state_files import ConsumerFiles
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Timer
from jetlake.jetstream.sourcing.copying import Copying
from jetlake.jetstream.streams import publish
from jetlake.jetstream.streams.answers import Ack, Acks, Failed, Waiting
from jetlake.jetstream.streams.commands import Append, Configure, Erase, Expire, Purge, PurgeSome, Put, Remove, Skip
from jetlake.jetstream.streams.config import Retention, StreamConfig, limits
from jetlake.jetstream.streams.interest import Interest
from jetlake.jetstream.streams.log import LocalLog
from jetlake.jetstream.streams.machine import Store, StreamMachine
from jetlake.jetstream.streams.meta import CONSUMERS_NAME
from jetlake.jetstream.streams.pub_acks import ack_frames
from jetlake.jetstream.streams.republish import Republisher
from jetlake.ops import OP_WORDS
from jetlake.store import FileStore, MemStore
from jetlake.store.disk.compaction import Compaction
from jetlake.store.disk.files import is_no_space
from jetlake.store.format import NEVER_NS
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.subjects import decode_subject, encode_subject
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.peer import Peer
    from jetlake.jetstream.consumers.consumer import Consumer
    from jetlake.jetstream.consumers.state_files import Unreadable
    from jetlake.jetstream.js_account import JsAccount

SUBJECTS_AT_ONCE = 1000  # that a stream takes up before others have their turn
EXPIRED_COUNT_MAX = 500  # messages that leave by themselves before others have their turn
PURGED_COUNT_MAX = 5000  # messages of a filter that are purged before others have their turn
EXPIRY_STEP_NS = 50_000_000  # messages that are due together leave together
REOPEN_S = 2
_NO_MORE = object()


class Compacted(NamedTuple):
    """What compaction did to a stream's files."""

    blocks: int  # written anew
    size_before: int
    size_after: int


Guard = Callable[[Callable[[], None]], Callable[[], None]]


def open_store(js: JsAccount, config: StreamConfig, directory: str | None, *, is_new: bool = False) -> Store:
    """The store of a stream, made if it is not there; `directory` is None for one in memory."""
    first_seq = max(config.first_seq, 1)
    if directory is None:
        return MemStore(limits(config), name=config.name, first_seq=first_seq, clock=js.host.clock, autocommit=False)
    return FileStore(
        directory,
        limits(config),
        js.encryption.file_options(config),
        first_seq=first_seq,
        files=js.files,
        clock=js.host.clock,
        autocommit=False,
        tree_locked=True,
        redo=js.service.redo,
        is_new=is_new,
    )


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
    ) -> None:
        """Open the stream's store, which is made if it is not there; `directory` is None for one in memory.

        One that was restored may have its `store` open already. If it `is_new`, nothing of it is durable before its
        first commit.
        """
        self.js, self.host, self.account = js, js.host, js.account
        self.config, self.created_ns, self.directory = config, created_ns, directory
        store = self._open_store(is_new=is_new) if store is None else store
        if isinstance(store, FileStore):
            store.on_lost = self._lost
        self.machine = StreamMachine(store, config.duplicate_window)
        self.log = LocalLog(self.host, self.machine, self)
        place = f"{directory.rpartition('/')[0]}/{CONSUMERS_NAME}" if directory is not None else ""
        self.consumer_files = ConsumerFiles(js.files, place, js.encryption.sealer, config.name, js.service.redo)
        self.consumers: dict[str, Consumer] = {}
        self.offline_consumers: dict[str, Unreadable] = {}  # whose files cannot be read, by the base of their names
        self.signals: Signals = Signals(self)
        self.interest: Interest | None = None  # unless limits alone say what stays
        self._room = js.room(config.storage)
        self.copying = Copying(self)
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

    def last_seq_of(self, filter: str) -> int:
        """The last sequence of a subject, or of those that a filter matches; 0 when there is none."""
        queries = self.store.queries
        try:
            return queries.last_seq(queries.filter(filter)) or 0
        except BadSubject:  # which nothing has
            return 0

    # Opening

    def _open_store(self, *, is_new: bool = False) -> Store:
        return open_store(self.js, self.config, self.directory, is_new=is_new)

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
        domain = self.host.options.jetstream.domain
        in_domain = b'"domain":%s,' % encode_json(domain) if domain else b""
        self._ack_head = b'{"stream":%s,%s"seq":' % (encode_json(config.name), in_domain)

    # Publishing

    def ingest(self, origin: Peer, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        """Store a run of publishes and acknowledge them when they are safe."""
        size, begin = _extent(ops, first, stop), first
        while first < stop:
            end = self._ingest_plain(data, ops, first, stop, size) if self._may_ingest() else first
            if end == first:
                self.ingest_msg(read_msg(data, ops, first, origin))
                end += 1
            first = end
        self.log.received(origin, msgs_size(ops, begin, stop))

    def _may_ingest(self) -> bool:
        """Can messages be stored without a look at each?"""
        if not self._is_plain or self.log.problem is not None or self.log.is_closed:
            return False
        return self.interest is None or self.interest.wants_all

    def _ingest_plain(self, data: Buffer, ops: array[int], first: int, stop: int, size: int) -> int:
        """Store publishes up to one that needs a rule; where that is. All of them take `size` bytes, or less."""
        if self._room.left() < size:
            return first
        machine = self.machine
        seq, time_ns = machine.next_seq, machine.next_time_ns(self.host.clock())
        end = machine.msg_ids.admit(data, ops, first, stop, seq, time_ns, self.config.max_msg_size)
        if end == first:
            return first
        try:
            done: int = self.log.submit(Append(seq, time_ns, data, ops, first, end))
        except (BadRequest, StoreError):  # retry the first one alone, so that it gets its own error
            return first
        if done > first:
            self._acknowledge_run(data, ops, first, done, seq)
            if machine.store.may_expire:
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
                    data, ops, first, stop, target.prefix, target.may_have_dots, target.sid, self._ack_head, seq
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
                    self._acknowledge(reply, b"%s%d}" % (self._ack_head, seq))
                end += 1
            seq += end - first
            first = end

    def ingest_msg(self, msg: Msg) -> None:
        """Store one message by all the rules, and acknowledge it when it is safe."""
        try:
            tail, follow_up = self._store(msg)
        except ApiError as error:
            self._refuse(msg.reply, error)
        except Exception as error:
            self.host.failed(f"publish stream={self.name} subject={decode_subject(msg.subject)}", error)
            self._refuse(msg.reply, errors.STREAM_GENERAL("internal error"))
        else:
            self._acknowledge(msg.reply, self._ack_head + tail)
            if follow_up is not None:
                self.log.answer(follow_up)
        self.changed()

    def _refuse(self, reply: bytes, error: ApiError) -> None:
        fields = {"error": error.as_dict(), "stream": self.config.name, "seq": 0}
        self._acknowledge(reply, encode_json(fields))

    def _store(self, msg: Msg) -> tuple[bytes, Waiting | None]:
        """Store a message; what its ack says after `"seq":`, and what is to follow the ack. Raises ApiError."""
        if self.log.problem is not None or self.log.is_closed:
            raise self.refusal()
        subject = self.transformed(msg.subject)
        seq, time_ns = self.machine.next_seq, self.machine.next_time_ns(self.host.clock())
        try:
            ready = publish.check(self, subject, msg.headers, msg.payload, time_ns)
        except publish.Duplicate as duplicate:
            return b'%d,"duplicate": true}' % duplicate.seq, None
        if self.interest is not None and not self.interest.wants(subject):
            self.log.submit(Skip(seq, time_ns, ready.msg_id))
            self.skipped_ns = time_ns
            return b"%d}" % seq, None
        previous = self.last_seq_of(decode_subject(subject)) if self._republisher is not None else 0
        self._put(seq, time_ns, subject, ready)
        follow_up = None
        if self._republisher is not None:
            facts = (subject, ready.headers, ready.payload, seq, time_ns, previous)
            follow_up = Waiting(partial(self._republisher.publish, *facts), _ignore)
        return (b'%d,"val":"%s"}' % (seq, ready.value.encode()) if ready.value else b"%d}" % seq), follow_up

    def _put(self, seq: int, time_ns: int, subject: bytes, ready: publish.Ready) -> None:
        """Store one message; raises ApiError."""
        text = decode_subject(subject)
        replaces = {"": "", "sub": text, "all": ">"}[ready.rollup]
        expires_ns = min(time_ns + ready.ttl_ns, NEVER_NS) if ready.ttl_ns else 0
        try:
            self.store.check_new(subject, ready.headers, ready.payload, is_rollup=bool(replaces))
            self.log.submit(Put(seq, time_ns, text, ready.headers, ready.payload, expires_ns, ready.msg_id, replaces))
        except (BadRequest, StoreError) as error:
            raise errors.STREAM_STORE_FAILED(errors.reason(error)) from None
        if replaces:
            self.purged(replaces)

    def _acknowledge(self, reply: bytes, body: bytes) -> None:
        if reply and not self.config.no_ack:
            self.log.answer(Ack(reply, body))

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
        if self._republisher is not None and self.last_seq == seq:
            facts = (subject, headers, payload, seq, time_ns, 0)
            self.log.answer(Waiting(partial(self._republisher.publish, *facts), _ignore))

    # Committing

    def changed(self) -> None:
        """Something was done that has to be committed, or answered."""
        self.log.commit_soon()
        if not self.log.is_closed and self.store.may_expire:
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
        if self._sync is None:
            self._schedule_sync()

    def _reopen(self) -> None:
        """Read the files anew after a failure."""
        if self.log.is_closed or self.log.problem is None:
            return
        assert isinstance(self.store, FileStore)
        try:
            self.store.release()
            store = self._open_store()
            assert isinstance(store, FileStore)
            store.on_lost = self._lost
            self.machine.use(store, self.config.duplicate_window)
            store.check_writable()
        except (OSError, StoreError) as error:
            self.log.problem = error
            self.host.call_at(self.host.clock() + REOPEN_S * SECOND_NS, self._reopen)
            return
        self.log.problem = None
        self._signalled_seq = min(self._signalled_seq, self.last_seq)
        self.host.log("info", f"stream writes again name={self.name} account={self.account.name} seq={self.last_seq}")
        for consumer in list(self.consumers.values()):
            consumer.stream_reopened()
        if self.interest is not None:
            self.interest.check()

    # Removing

    def purge(self, filter: str = ">", *, seq: int = 0, keep: int = 0) -> int:
        """Remove messages; how many. Consumers are told even if it is none: they may not know what limits took."""
        purged: int = self.log.submit(Purge(filter, seq, keep))
        self.purged(filter)
        return purged

    def purged(self, filter: str) -> None:
        """Messages that match a filter left by somebody's will: consumers may have waited for them."""
        self.copying.purged()
        for consumer in list(self.consumers.values()):
            consumer.purged(filter)
        self.changed()

    def purge_in_slices(self, filter: str, seq: int, keep: int, done: Callable[[int], None], guard: Guard) -> None:
        """The same for a client; others have their turn if many are to go. `done` is told how many these are.

        What is stored meanwhile stays, since the end is fixed now. `guard` is put around what happens later.
        """
        catalog = self.store.catalog
        count, last = self.store.num_pending(0, filter).msgs - keep, catalog.last_seq

        def step(first: int, purged: int) -> None:
            if self.log.is_closed:
                raise errors.STREAM_NOT_FOUND()
            some = min(count - purged, PURGED_COUNT_MAX)
            seqs = self.log.submit(PurgeSome(filter, first, min(seq - 1, last) if seq else last, some))
            purged += len(seqs)
            if len(seqs) == PURGED_COUNT_MAX:
                self.host.call_soon(guard(lambda: step(seqs[-1] + 1, purged)))
            else:
                self.purged(filter)
                done(purged)

        if count <= PURGED_COUNT_MAX or count + keep == catalog.table.total:
            done(self.purge(filter, seq=seq, keep=keep))
        else:
            step(catalog.first_seq, 0)

    def delete_message(self, seq: int, *, erase: bool, done: Callable[[bool], None], failed: Failed) -> None:
        """Remove one message, with its bytes if told so; `done` is told whether there was one, when that is durable."""

        def fail(error: ApiError) -> None:
            failed(errors.STREAM_MSG_DELETE_FAILED(error.description))

        def delete() -> None:
            try:
                removed = bool(self.log.submit(Erase(seq) if erase else Remove((seq,))))
            except (OSError, StoreError) as error:
                failed(errors.STREAM_MSG_DELETE_FAILED(errors.reason(error)))
                return
            if removed:
                for consumer in list(self.consumers.values()):
                    consumer.removed(seq)

            def finish() -> None:
                if self.store.is_erasing and not self.log.is_closed:
                    self.log.when_durable(finish, fail)
                else:
                    done(removed)

            self.log.when_durable(finish, fail)

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
        had_interest = self.interest is not None
        old, self.config = self.config, config
        removed_count = self.log.submit(Configure(limits(config), config.duplicate_window, self.host.clock()))
        if isinstance(self.store, FileStore):
            self.store.use_options(self.js.encryption.file_options(config))
        self._use(config)
        if removed_count:
            for consumer in list(self.consumers.values()):
                consumer.purged()
        if self.interest is not None and not had_interest:
            self.interest.begin()
        if config.subjects != old.subjects:
            self._capture()
        self.copying.configure()
        self._direct_run.open()
        self.changed()

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
        due_ns = self.store.next_expiry_ns()
        if due_ns is None or self.log.is_closed:
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
        if self.log.problem is None and not self.log.is_closed:
            expired = self.log.submit(Expire(self.host.clock(), EXPIRED_COUNT_MAX))
            if expired:
                for consumer in list(self.consumers.values()):
                    consumer.purged()
            if expired >= EXPIRED_COUNT_MAX and self._expiry is None:  # there is more, after others had their turn
                self._expiry_ns = 0
                self._expiry = self.host.call_at(0, self._expire)
            self._schedule_expiry()

    # Leaving

    def open(self, *, at_once: bool = True) -> None:
        """Take messages from now on; or soon, if it has many subjects: see `when_open`."""
        self.log.may_rewrite = True
        if at_once:
            self.account.add_capture(self)
        else:
            self._capture()
        if isinstance(self.store, FileStore) and self.store.has_more:  # blocks with another compression
            self.log.commit_soon()
        self._direct_run.open()
        self.copying.open()

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
        self._captured()
        self.account.remove_capture(self)
        self._direct_run.close()
        self.copying.close()

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


def _extent(ops: array[int], first: int, stop: int) -> int:
    """At least as many bytes as the publishes first..stop-1 take in the buffer they came in."""
    last = (stop - 1) * OP_WORDS
    return ops[last + 6] + ops[last + 7] - ops[first * OP_WORDS]
