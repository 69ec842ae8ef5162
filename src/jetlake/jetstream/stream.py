"""A stream: messages of some subjects, stored in order, acknowledged when they are safe.

Publishes come in runs, as the bytes that were received (`ingest`). What needs no rule goes into the store by one kernel
call, and its PubAcks are made by another; the rest goes message by message through the rules of `publish.py`.

Acks wait: the store stages, the host commits (see `host.CommitUnit`), and what was done before a commit is answered
when it is over. While a commit runs, the next one fills; when it fills faster than the disk takes it, publishers are
held. Consumers and gets see a message once it is committed, and it is republished then, after its ack: nobody acts on
what a power cut could take back.

A commit that fails freezes the store: its publishers get an error. From then on the stream tries now and then to open
its files anew, and goes on from what it finds there.

Always true: acks and answers go out in the order of what they answer, and none before its commit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from jetlake.broker.frames import ack_frames
from jetlake.broker.subscription import Buffer, Msg, read_msg
from jetlake.broker.transform import SubjectTransform
from jetlake.clock import SECOND_NS
from jetlake.errors import BadRequest, BadSubject, MessageNotFound, StoreClosed, StoreError, StoreFrozen
from jetlake.jetstream import errors, publish
from jetlake.jetstream.answers import Ack, Acks, Answer, Failed, Waiting, refused_acks
from jetlake.jetstream.api.direct_run import DirectRun
from jetlake.jetstream.consumer_keeper import ConsumerFiles
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Timer
from jetlake.jetstream.interest import Interest
from jetlake.jetstream.msg_ids import MsgIds
from jetlake.jetstream.republish import Republisher
from jetlake.jetstream.stream_config import Retention, Storage, StreamConfig, limits
from jetlake.jetstream.stream_meta import CONSUMERS_NAME
from jetlake.ops import OP_WORDS
from jetlake.store import FileStore, MemStore
from jetlake.store.check import show_ranges
from jetlake.store.compaction import Compaction
from jetlake.store.files import is_no_space
from jetlake.store.sequence_set import SequenceSet
from jetlake.subjects import decode_subject, encode_subject
from jetlake.wire.headers import header_value
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.client import Client
    from jetlake.jetstream.consumer_keeper import Unreadable
    from jetlake.jetstream.js_account import JsAccount

SUBJECTS_AT_ONCE = 1000  # that a stream takes up before others have their turn
UNCOMMITTED_SIZE_MAX = 32 * 1024 * 1024  # received and not committed; publishers are held beyond
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


Store = FileStore | MemStore
Guard = Callable[[Callable[[], None]], Callable[[], None]]


class Stream:
    """One stream of an account."""

    def __init__(self, js: JsAccount, config: StreamConfig, created_ns: int, directory: str | None) -> None:
        """Open the stream's store, which is made if it is not there; `directory` is None for one in memory."""
        self.js, self.host, self.account = js, js.host, js.account
        self.config, self.created_ns, self.directory = config, created_ns, directory
        self.store: Store = self._open_store()
        self.store.on_lost = self._lost
        place = f"{directory.rpartition('/')[0]}/{CONSUMERS_NAME}" if directory is not None else ""
        self.consumer_files = ConsumerFiles(js.files, place, js.encryption.sealer, config.name)
        self.consumers: dict[str, Any] = {}
        self.offline_consumers: dict[str, Unreadable] = {}  # whose files cannot be read, by the base of their names
        self.waiting: dict[int, Any] = {}  # consumers, by identity, that can deliver the next message at once
        self.interest: Interest | None = None  # unless limits alone say what stays
        self.msg_ids = MsgIds(config.duplicate_window, is_loaded=False)
        self._room = js.room(config.storage)
        self._direct_run = DirectRun(self, js.api)
        self.skipped_ns = 0  # when a message came that nobody was interested in; counted as the stream's last
        self.problem: BaseException | None = None  # why nothing can be stored at the moment
        self._answers: list[Answer] = []
        self._committing: list[Answer] | None = None  # answers that the running commit sends
        self._idle: list[Callable[[], None]] = []
        self._held: dict[int, Client] = {}
        self._uncommitted_size = self._committing_size = 0
        self._signalled_seq = self.store.catalog.last_seq
        self._expiry: Timer | None = None
        self._sync: Timer | None = None
        self._expiry_ns = 0
        self._is_open = self._is_closed = False
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
    def committed_seq(self) -> int:
        """The last sequence that consumers may see."""
        return self.store.durable_seq if isinstance(self.store, FileStore) else self.store.catalog.last_seq

    def last_seq_of(self, filter: str) -> int:
        """The last sequence of a subject, or of those that a filter matches; 0 when there is none."""
        queries = self.store.queries
        try:
            return queries.last_seq(queries.filter(filter)) or 0
        except BadSubject:  # which nothing has
            return 0

    def last_msg_id(self) -> bytes:
        """The id of the last message; empty when it has none or is gone."""
        try:
            return header_value(self.store.load(self.last_seq).headers, b"Nats-Msg-Id") or b""
        except MessageNotFound:
            return b""

    # Opening

    def _open_store(self) -> Store:
        first_seq = max(self.config.first_seq, 1)
        if self.config.storage is Storage.MEMORY:
            return MemStore(
                limits(self.config),
                name=self.config.name,
                first_seq=first_seq,
                clock=self.host.clock,
                autocommit=False,
            )
        assert self.directory is not None
        return FileStore(
            self.directory,
            limits(self.config),
            self.js.encryption.file_options(self.config),
            first_seq=first_seq,
            files=self.js.files,
            clock=self.host.clock,
            autocommit=False,
            tree_locked=True,
        )

    def find_msg_id(self, msg_id: bytes, now_ns: int) -> int:
        """The sequence of the message with this id; 0 when there is none in the window."""
        if not self.msg_ids.is_loaded:
            self._load_msg_ids(now_ns)
        return self.msg_ids.find(msg_id, now_ns)

    def _load_msg_ids(self, now_ns: int) -> None:
        """Remember the ids of the messages that are still within the window."""
        catalog = self.store.catalog
        start = self.store.seq_from_time(now_ns - self.config.duplicate_window)
        for block in catalog.blocks if self.config.duplicate_window else ():
            if block.last_seq >= start:
                index, body = catalog.index(block), self.store.body_of(block)
                for first, last in block.live_runs(start, block.last_seq):
                    positions = index.position_from(first), index.position_from(last + 1)
                    self.msg_ids.load(body, index.offsets, *positions, block.seed)
        self.msg_ids.is_loaded = True

    def _use(self, config: StreamConfig) -> None:
        """Derive from the configuration what publishing asks of it."""
        transform, republish = config.subject_transform, config.republish
        self._transform = SubjectTransform(transform.src, transform.dest) if transform is not None else None
        self._republisher = Republisher(self, republish) if republish is not None else None
        self.msg_ids.window_ns = config.duplicate_window
        if config.retention is Retention.LIMITS:
            self.interest = None
        elif self.interest is None:
            self.interest = Interest(self)
        has_rules = self._transform is not None or self._republisher is not None or config.sealed
        self._is_plain = not has_rules
        domain = self.host.options.jetstream.domain
        in_domain = b'"domain":%s,' % encode_json(domain) if domain else b""
        self._ack_head = b'{"stream":%s,%s"seq":' % (encode_json(config.name), in_domain)

    # Publishing

    def ingest(self, client: Client | None, data: Buffer, ops: array[int], first: int, stop: int) -> None:
        """Store a run of publishes and acknowledge them when they are safe."""
        size = _extent(ops, first, stop)
        while first < stop:
            end = self._ingest_plain(data, ops, first, stop, size) if self._may_ingest() else first
            if end == first:
                self.ingest_msg(read_msg(data, ops, first, client))
                end += 1
            first = end
        self._uncommitted_size += size
        if client is not None and self._uncommitted_size > UNCOMMITTED_SIZE_MAX and client.cid not in self._held:
            self._held[client.cid] = client
            client.connection.hold()

    def _may_ingest(self) -> bool:
        """Can messages be stored without a look at each?"""
        if not self._is_plain or self.problem is not None or self._is_closed:
            return False
        return self.interest is None or self.interest.wants_all

    def _ingest_plain(self, data: Buffer, ops: array[int], first: int, stop: int, size: int) -> int:
        """Store publishes up to one that needs a rule; where that is. All of them take about `size` bytes."""
        store, seq = self.store, self.store.catalog.last_seq + 1
        if self._room.left() < size:
            return first
        end = self.msg_ids.admit(data, ops, first, stop, seq, self.host.clock(), self.config.max_msg_size)
        if end == first:
            return first
        try:
            seq, done = store.append_batch(data, ops, first, end)
        except (BadRequest, StoreError):  # the message in front of it is told why, by itself
            done = first
        if done < end:
            self.msg_ids.forget_from(seq + done - first)
        if done > first:
            self._acknowledge_run(data, ops, first, done, seq)
            self._changed()
        return done

    def _acknowledge_run(self, data: Buffer, ops: array[int], first: int, stop: int, seq: int) -> None:
        if self.config.no_ack:
            return
        route = self.account.last_reply
        while first < stop:
            end = first
            if route is not None:
                frames, end = ack_frames(
                    data, ops, first, stop, route.prefix, route.may_have_dots, route.sid, self._ack_head, seq
                )
                if frames:
                    self._answers.append(Acks(route.client, frames))
            if end == first:  # its reply goes elsewhere, or it wants none
                start, size = ops[first * OP_WORDS + 2 : first * OP_WORDS + 4]
                if size:
                    reply = bytes(data[start : start + size])
                    found = self.account.reply_route(reply)
                    if found is not None and found is not route:
                        route = found
                        continue
                    self._acknowledge(reply, b"%s%d}" % (self._ack_head, seq))
                end += 1
            seq += end - first
            first = end

    @property
    def is_closed(self) -> bool:
        """Whether it is stopped or deleted."""
        return self._is_closed

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
                self._answers.append(follow_up)
        self._changed()

    def _refuse(self, reply: bytes, error: ApiError) -> None:
        fields = {"error": error.as_dict(), "stream": self.config.name, "seq": 0}
        self._acknowledge(reply, encode_json(fields))

    def _store(self, msg: Msg) -> tuple[bytes, Waiting | None]:
        """Store a message; what its ack says after `"seq":`, and what is to follow the ack. Raises ApiError."""
        if self.problem is not None or self._is_closed:
            raise self._refusal()
        subject = msg.subject
        if self._transform is not None:
            subject = self._transform.apply_bytes(subject) or subject
        now_ns = self.host.clock()
        try:
            ready = publish.check(self, subject, msg.headers, msg.payload, now_ns)
        except publish.Duplicate as duplicate:
            return b'%d,"duplicate": true}' % duplicate.seq, None
        if self.interest is not None and not self.interest.wants(subject):
            seq, self.skipped_ns = self.store.skip(), now_ns
            self.msg_ids.add(ready.msg_id, seq, now_ns)
            return b"%d}" % seq, None
        previous = self.last_seq_of(decode_subject(subject)) if self._republisher is not None else 0
        seq = self._append(subject, msg.payload, ready)
        if ready.msg_id:
            self.msg_ids.add(ready.msg_id, seq, now_ns)
        if ready.rollup:
            self._roll_up(subject, seq, ready.rollup)
        follow_up = None
        if self._republisher is not None:
            facts = (subject, ready.headers, msg.payload, seq, now_ns, previous)
            follow_up = Waiting(partial(self._republisher.publish, *facts), _ignore)
        return b"%d}" % seq, follow_up

    def _append(self, subject: bytes, payload: bytes, ready: publish.Ready) -> int:
        try:
            return self.store.append(
                decode_subject(subject),
                payload,
                ready.headers,
                ttl_ns=ready.ttl_ns,
                msg_id=bool(ready.msg_id),
                is_rollup=bool(ready.rollup),
            )
        except (BadRequest, StoreError) as error:
            raise errors.STREAM_STORE_FAILED(errors.reason(error)) from None

    def _roll_up(self, subject: bytes, seq: int, rollup: str) -> None:
        """The message stands for all before it, of its subject or of the stream."""
        self.purge(decode_subject(subject) if rollup == "sub" else ">", seq=seq)

    def _acknowledge(self, reply: bytes, body: bytes) -> None:
        if reply and not self.config.no_ack:
            self._answers.append(Ack(reply, body))

    # Committing

    def _changed(self) -> None:
        """Something was done that has to be committed, or answered."""
        if not self._is_closed:
            self.host.commit_soon(self)
            if self.store.may_expire:
                self._schedule_expiry()

    def when_durable(self, done: Callable[[], None], failed: Failed = lambda error: None) -> None:
        """Call back once everything done so far is as durable as configured, or `failed` if it can not be."""
        self._answers.append(Waiting(done, failed))
        self._changed()
        if self._is_closed:
            self._answer_all()

    def when_committed(self, seq: int, done: Callable[[], None], failed: Failed) -> None:
        """Call back once the messages up to a sequence are as durable as configured, at once if they are."""
        if seq <= self.committed_seq:
            done()
        else:
            self.when_durable(done, failed)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when no commit is running, at once if none is; it must finish what it does."""
        if self._committing is None:
            callback()
        else:
            self._idle.append(callback)

    is_background = False

    @property
    def is_synced(self) -> bool:
        return isinstance(self.store, FileStore) and self.store.options.sync == "always"

    def commit_now(self) -> bool:
        """Commit and answer at once, if that is a matter of a few bytes."""
        if self.problem is not None or self._is_closed or not self.store.commit_small():
            return False
        answers, self._answers = self._answers, []
        self._committing_size = self._uncommitted_size
        self._send(answers)
        self.host.flush()  # somebody waits for just this
        self._after_commit()
        return True

    def prepare_commit(self) -> Any:
        """Hand out what is to be written; what is answered from now on waits for the next commit."""
        self._committing, self._answers = self._answers, []
        self._committing_size = self._uncommitted_size
        if self.problem is not None or self._is_closed:
            return None  # nothing is stored: what waits to be answered are refusals
        if isinstance(self.store, FileStore):
            return self.store.prepare_commit()
        self.store.commit()
        return None

    def complete_commit(self, commit: Any) -> None:
        """What was handed out is durable: answer, and let consumers see it."""
        if commit is not None:
            assert isinstance(self.store, FileStore)
            self.store.complete_commit(commit)
            if self.store.has_more and self._is_open:  # who waits for the end waits for no rewriting
                self._changed()
        answers, self._committing = self._committing or [], None
        self._send(answers)
        self._after_commit()

    def fail_commit(self, error: BaseException) -> None:
        """The disk failed: what was waiting is not safe, and nothing more is stored until the files are read anew."""
        if isinstance(self.store, FileStore):
            self.store.fail_commit(error)
        self.problem = error
        self.host.log("error", f"stream cannot write name={self.name} account={self.account.name} error={error}")
        answers = (self._committing or []) + self._answers
        self._committing, self._answers, self._committing_size = None, [], self._uncommitted_size
        refusal = encode_json({"error": self._refusal().as_dict(), "stream": self.name, "seq": 0})
        for answer in answers:
            if isinstance(answer, Acks):
                self._send([Acks(answer.client, refused_acks(answer.frames, refusal))])
            elif isinstance(answer, Ack):
                self._send([Ack(answer.reply, refusal)])
            else:
                answer.failed(self._refusal())
        self._after_commit()
        self.host.call_at(self.host.clock() + REOPEN_S * SECOND_NS, self._reopen)

    def _refusal(self) -> ApiError:
        """Why nothing is stored."""
        if is_no_space(self.problem.cause if isinstance(self.problem, StoreFrozen) else self.problem):
            return errors.INSUFFICIENT_RESOURCES()
        return errors.STREAM_STORE_FAILED(errors.reason(self.problem) if self.problem else "stream is stopped")

    def _after_commit(self) -> None:
        self._uncommitted_size -= self._committing_size
        self._committing_size = 0
        if self._held and self._uncommitted_size <= UNCOMMITTED_SIZE_MAX:
            for client in self._held.values():
                client.connection.release()
            self._held.clear()
        if self._idle:
            idle, self._idle = self._idle, []
            for callback in idle:
                self._call(callback)
        self._signal()
        if self._sync is None:
            self._schedule_sync()

    def _signal(self) -> None:
        """Tell consumers that can deliver that there is something new."""
        last = self.committed_seq
        if last > self._signalled_seq:
            first, self._signalled_seq = self._signalled_seq + 1, last
            for consumer in list(self.waiting.values()):
                consumer.stored(first, last)

    def _answer_all(self) -> None:
        answers, self._answers = self._answers, []
        self._send(answers)

    def _send(self, answers: list[Answer]) -> None:
        for answer in answers:
            if isinstance(answer, Acks):
                answer.client.send_msgs(answer.frames, answer.frames.count(b"}\r\n"))
            elif isinstance(answer, Ack):
                self.account.send(answer.reply, answer.body)
            else:
                self._call(answer.done, answer.failed)

    def _call(self, callback: Callable[[], None], failed: Failed | None = None) -> None:
        """Call somebody who waited. Others wait too: what one of them raises is told to that one only."""
        try:
            callback()
        except Exception as error:
            self.host.failed(f"answer stream={self.name}", error)
            if failed is not None:
                failed(errors.STREAM_GENERAL("internal error"))

    def _reopen(self) -> None:
        """Read the files anew after a failure."""
        if self._is_closed or self.problem is None:
            return
        assert isinstance(self.store, FileStore)
        try:
            self.store.release()
            self.store = self._open_store()
            self.store.on_lost = self._lost
            self.store.check_writable()
        except (OSError, StoreError) as error:
            self.problem = error
            self.host.call_at(self.host.clock() + REOPEN_S * SECOND_NS, self._reopen)
            return
        self.problem = None
        self.msg_ids = MsgIds(self.config.duplicate_window, is_loaded=False)
        self._signalled_seq = min(self._signalled_seq, self.last_seq)
        self.host.log("info", f"stream writes again name={self.name} account={self.account.name} seq={self.last_seq}")
        for consumer in list(self.consumers.values()):
            consumer.stream_reopened()
        if self.interest is not None:
            self.interest.check()

    # Removing

    def purge(self, filter: str = ">", *, seq: int = 0, keep: int = 0) -> int:
        """Remove messages; how many. Consumers are told even if it is none: they may not know what limits took."""
        purged = self.store.purge(filter, seq=seq, keep=keep)
        self._purged(filter)
        return purged

    def _purged(self, filter: str) -> None:
        for consumer in list(self.consumers.values()):
            consumer.purged(filter)
        self._changed()

    def purge_in_slices(self, filter: str, seq: int, keep: int, done: Callable[[int], None], guard: Guard) -> None:
        """The same for a client; others have their turn if many are to go. `done` is told how many these are.

        What is stored meanwhile stays, since the end is fixed now. `guard` is put around what happens later.
        """
        catalog = self.store.catalog
        count, last = self.store.num_pending(0, filter).msgs - keep, catalog.last_seq

        def step(first: int, purged: int) -> None:
            if self._is_closed:
                raise errors.STREAM_NOT_FOUND()
            some = min(count - purged, PURGED_COUNT_MAX)
            seqs = self.store.purge_first(filter, first, min(seq - 1, last) if seq else last, some)
            purged += len(seqs)
            if len(seqs) == PURGED_COUNT_MAX:
                self._changed()
                self.host.call_soon(guard(lambda: step(seqs[-1] + 1, purged)))
            else:
                self._purged(filter)
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
                removed = self.store.erase_soon(seq) if erase else self.store.remove(seq)
            except (OSError, StoreError) as error:
                failed(errors.STREAM_MSG_DELETE_FAILED(errors.reason(error)))
                return
            if removed:
                for consumer in list(self.consumers.values()):
                    consumer.removed(seq)

            def finish() -> None:
                if self.store.is_erasing and not self._is_closed:
                    self.when_durable(finish, fail)
                else:
                    done(removed)

            self.when_durable(finish, fail)

        if erase:
            self.when_idle(delete)
        else:
            delete()

    def compact(self, dead_part_max: float, done: Callable[[Compacted], None], failed: Failed) -> None:
        """Write blocks anew of which more than a part is dead, one by each commit; `done` when all of them are."""

        def begin() -> None:
            store = self.store
            if isinstance(store, MemStore):
                size = store.utilisation()[0]
                done(Compacted(0, size, size))
            elif self.problem is not None:
                failed(self._refusal())
            else:
                proceed(Compaction(store, dead_part_max))

        def proceed(compaction: Compaction) -> None:
            if compaction.is_done:
                done(Compacted(compaction.block_count, compaction.size_before, compaction.size_after))
            elif not self._is_open:
                failed(self._refusal())
            else:
                self.when_durable(lambda: proceed(compaction), failed)

        self.when_idle(begin)

    def update(self, config: StreamConfig) -> None:
        """Take another configuration. The account has checked it and keeps it."""
        had_interest, count = self.interest is not None, self.store.fast_state().msgs
        old, self.config = self.config, config
        self.store.update(limits(config))
        if isinstance(self.store, FileStore):
            self.store.use_options(self.js.encryption.file_options(config))
        self._use(config)
        if self.store.fast_state().msgs < count:
            for consumer in list(self.consumers.values()):
                consumer.purged()
        if self.interest is not None and not had_interest:
            self.interest.begin()
        if config.subjects != old.subjects:
            self._capture()
        self._direct_run.open()
        self._changed()

    def _lost(self, seqs: SequenceSet, where: str) -> None:
        """Messages turned out to be unreadable, and count as removed from now on."""
        facts = f"name={self.name} account={self.account.name} seqs={show_ranges(seqs)} where={where}"
        self.host.log("warning", f"messages lost {facts}")
        if not self._is_closed:
            self.host.commit_soon(self)

    # Time

    def _schedule_expiry(self) -> None:
        due_ns = self.store.next_expiry_ns()
        if due_ns is None or self._is_closed:
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
        if not self._is_closed and isinstance(self.store, FileStore):
            due_ns = self.store.next_sync_ns()
            if due_ns is not None:
                self._sync = self.host.call_at(due_ns, self._sync_now)

    def _sync_now(self) -> None:
        self._sync = None
        self._changed()

    def _expire(self) -> None:
        self._expiry = None
        if self.problem is None and not self._is_closed:
            expired = self.store.expire(count_max=EXPIRED_COUNT_MAX)
            if expired:
                for consumer in list(self.consumers.values()):
                    consumer.purged()
                self._changed()
            if expired >= EXPIRED_COUNT_MAX and self._expiry is None:  # there is more, after others had their turn
                self._expiry_ns = 0
                self._expiry = self.host.call_at(0, self._expire)
            self._schedule_expiry()

    # Leaving

    def open(self, *, at_once: bool = True) -> None:
        """Take messages from now on; or soon, if it has many subjects: see `when_open`."""
        self._is_open = True
        if at_once:
            self.account.add_capture(self)
        else:
            self._capture()
        if isinstance(self.store, FileStore) and self.store.has_more:  # blocks with another compression
            self.host.commit_soon(self)
        self._direct_run.open()

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
            self._call(callback)

    def when_open(self, callback: Callable[[], None]) -> None:
        """Call back once messages of all its subjects are taken, at once if they are; or if it is closed."""
        if self._capturing is None:
            callback()
        else:
            self._opening.append(callback)

    def close(self) -> None:
        """Take no more messages. What was taken has to be committed before `stop`."""
        self._is_open = False
        self._captured()
        self.account.remove_capture(self)
        self._direct_run.close()

    def _end(self) -> None:
        self.close()
        self._is_closed = True
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
        self._answer_all()

    def delete(self) -> None:
        """Remove all messages and files. No commit may be running."""
        self._end()
        self._answer_all()  # what was asked before is done, and gone with the rest
        self.store.delete()


def _ignore(error: ApiError) -> None:
    """What was not stored is not told to anybody else."""


def _extent(ops: array[int], first: int, stop: int) -> int:
    """How many bytes the publishes first..stop-1 take in the buffer they came in, about."""
    last = (stop - 1) * OP_WORDS
    return ops[last + 6] + ops[last + 7] - ops[first * OP_WORDS]
