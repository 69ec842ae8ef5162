"""The way of commands: from those who decide to the machine that applies them, and to those who wait for it.

`LocalLog` is the log of one server. It applies a command at once, and group commit makes it durable. What follows from
a command for others waits here until the command is durable: acks to publishers, answers to requests, republished
messages, deliveries. While a commit runs, the next one fills; when it fills faster than the disk takes it, publishers
are held. A commit that fails leaves a problem: nothing more can be stored until the owner has read its files anew, and
who waited gets an error.

Where a stream is replicated, a log that several servers agree on takes its place (`cluster.replica`), and the rules of
the stream work with either. There, a command is applied some time after it was submitted. So whoever decides asks the
log, not the store, for the next sequence and whatever else commands on their way may change. What the log cannot tell
before they are applied raises Unsettled; the decision is then to be made again, when the log calls back (`defer`).

Always true: acks and answers go out in the order of what they answer, and none before its commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from jetlake.jetstream import errors
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import CommitUnit, Host
from jetlake.jetstream.streams.answers import Ack, Acks, Answer, Failed, Waiting, refused_acks
from jetlake.jetstream.streams.commands import Append, Command
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.jetstream.streams.machine import StreamMachine
from jetlake.store import FileStore
from jetlake.store.disk.commit import LOGGED_SIZE_MAX, SmallCommit
from jetlake.store.format import Buffer
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.peer import Peer

UNCOMMITTED_SIZE_MAX = 32 * 1024 * 1024  # received and not committed; publishers are held beyond

Then = Callable[[Any], None]


class Unsettled(ApiError):
    """What was decided before has to be applied first."""

    def __init__(self) -> None:
        super().__init__(503, 10008, "commands are on their way")


class Owner(Protocol):
    """The stream, as its log sees it."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> StreamConfig: ...
    def send_ack(self, reply: bytes, body: bytes) -> None: ...
    def refusal(self) -> ApiError: ...  # why nothing is stored
    def committed(self) -> None: ...  # more is durable than before
    def commit_failed(self, error: BaseException) -> None: ...
    def configured(self, config: StreamConfig, removed_count: int) -> None: ...  # elsewhere; and it took effect here
    def expire_soon(self) -> None: ...  # there may be more that has its time
    def lead(self) -> None: ...  # it decides from now on
    def follow(self) -> None: ...  # somebody else does


class Log(CommitUnit, Protocol):
    """The log of a stream, as the stream sees it."""

    machine: StreamMachine
    problem: BaseException | None  # why nothing can be stored at the moment
    is_closed: bool
    is_suspended: bool  # nothing is written for now
    may_rewrite: bool  # whether commits go on by themselves until all blocks are as they should be

    # Deciding
    @property
    def is_leading(self) -> bool: ...  # whether it is for this server to decide
    @property
    def must_defer(self) -> bool: ...  # whether nothing can be decided now: `defer` it
    @property
    def next_seq(self) -> int: ...  # the sequence of the next message
    def next_time_ns(self, now_ns: int) -> int: ...
    def last_seq_of(self, filter: str) -> int: ...
    def check_new(self, subject: bytes, headers: Buffer, payload: Buffer, *, is_rollup: bool) -> None: ...
    @property
    def is_settled(self) -> bool: ...  # whether everything is applied
    def check_settled(self) -> None: ...  # raises Unsettled unless it is
    def defer(self, decide: Callable[[], None]) -> None: ...

    # Doing
    def append(self, command: Append) -> int: ...
    def submit(self, command: Command, then: Then | None = None) -> None: ...
    def commit_soon(self) -> None: ...
    def answer(self, answer: Answer) -> None: ...
    def answer_all(self) -> None: ...
    def received(self, origin: Peer, size: int) -> None: ...
    @property
    def committed_seq(self) -> int: ...
    def when_durable(self, done: Callable[[], None], failed: Failed = ...) -> None: ...
    def when_committed(self, seq: int, done: Callable[[], None], failed: Failed) -> None: ...
    def when_erased(self, done: Callable[[], None], failed: Failed) -> None: ...
    def when_idle(self, callback: Callable[[], None]) -> None: ...
    def call(self, callback: Callable[[], None], failed: Failed | None = None) -> None: ...


class BaseLog:
    """What logs have in common: who waits, and who is held."""

    is_background = False

    def __init__(self, host: Host, machine: StreamMachine, owner: Owner) -> None:
        self._host, self.machine, self._owner = host, machine, owner
        self.problem: BaseException | None = None
        self.is_closed = False
        self.is_suspended = False
        self.may_rewrite = False
        self._idle: list[Callable[[], None]] = []
        self._held: dict[int, Peer] = {}
        self._uncommitted_size = 0

    @property
    def is_large(self) -> bool:
        return self.machine.store.catalog.blocks[-1].pending_size > LOGGED_SIZE_MAX

    @property
    def _is_writing(self) -> bool:
        return self.problem is None and not (self.is_closed or self.is_suspended)

    def received(self, origin: Peer, size: int) -> None:
        """A peer sent so many bytes of messages: hold it if they are not committed as fast as they come."""
        self._uncommitted_size += size
        if self._uncommitted_size > UNCOMMITTED_SIZE_MAX and id(origin) not in self._held:
            self._held[id(origin)] = origin
            origin.hold()

    def _release_held(self) -> None:
        if self._held and self._uncommitted_size <= UNCOMMITTED_SIZE_MAX:
            for peer in self._held.values():
                peer.release()
            self._held.clear()

    def _call_idle(self) -> None:
        if self._idle:
            idle, self._idle = self._idle, []
            for callback in idle:
                self.call(callback)

    def _prepare(self) -> Any:
        """Hand out what is to be written."""
        store = self.machine.store
        if isinstance(store, FileStore):
            return store.prepare_small() or store.prepare_commit()
        store.commit()
        return None

    def _complete(self, commit: Any) -> None:
        """What was handed out is written."""
        store = self.machine.store
        if commit is not None:
            assert isinstance(store, FileStore)
            if isinstance(commit, SmallCommit):
                store.complete_small(commit)
            else:
                store.complete_commit(commit)

    def _send(self, answers: list[Answer]) -> None:
        for answer in answers:
            if isinstance(answer, Acks):
                answer.client.send_msgs(answer.frames, answer.frames.count(b"}\r\n"))
            elif isinstance(answer, Ack):
                self._owner.send_ack(answer.reply, answer.body)
            else:
                self.call(answer.done, answer.failed)

    def call(self, callback: Callable[[], None], failed: Failed | None = None) -> None:
        """Call somebody who waited. Others wait too: what one of them raises is told to that one only."""
        try:
            callback()
        except Exception as error:
            self._host.failed(f"answer stream={self._owner.name}", error)
            if failed is not None:
                failed(errors.STREAM_GENERAL("internal error"))


class LocalLog(BaseLog):
    """The commands of one stream on one server: applied, committed, answered."""

    is_leading, must_defer, is_settled = True, False, True

    def __init__(self, host: Host, machine: StreamMachine, owner: Owner) -> None:
        super().__init__(host, machine, owner)
        self._answers: list[Answer] = []
        self._committing: list[Answer] | None = None  # answers that the running commit sends
        self._committing_size = 0

    # What rules ask: everything is applied, so the store tells

    @property
    def next_seq(self) -> int:
        return self.machine.store.catalog.last_seq + 1

    def next_time_ns(self, now_ns: int) -> int:
        """The time of the next message: now, unless the clock went backwards."""
        return max(now_ns, self.machine.store.catalog.last_time_ns)

    def last_seq_of(self, filter: str) -> int:
        """The last sequence of a subject, or of those that a filter matches; 0 when there is none."""
        return self.machine.last_seq_of(filter)

    def check_new(self, subject: bytes, headers: Buffer, payload: Buffer, *, is_rollup: bool) -> None:
        """LimitExceeded when discard=new refuses a message."""
        self.machine.store.check_new(subject, headers, payload, is_rollup=is_rollup)

    def check_settled(self) -> None:
        """Everything is applied."""

    def defer(self, decide: Callable[[], None]) -> None:
        """Decide something once everything is applied, which it is."""
        decide()

    # What the stream does

    def append(self, command: Append) -> int:
        """Store messages; the operation at which it stopped. What it stored is durable after the next commit."""
        done: int = self.machine.apply(command)
        self.commit_soon()
        return done

    def submit(self, command: Command, then: Then | None = None) -> None:
        """Apply a command, and tell its result. It is durable after the next commit."""
        result = self.machine.apply(command)
        self.commit_soon()
        if then is not None:
            then(result)

    def commit_soon(self) -> None:
        """Something was done that has to be committed, or answered."""
        if not self.is_closed:
            self._host.commit_soon(self)

    def answer(self, answer: Answer) -> None:
        """Send something once everything done so far is durable."""
        self._answers.append(answer)

    @property
    def committed_seq(self) -> int:
        """The last sequence that readers may see."""
        store = self.machine.store
        return store.durable_seq if isinstance(store, FileStore) else store.catalog.last_seq

    def when_durable(self, done: Callable[[], None], failed: Failed = lambda error: None) -> None:
        """Call back once everything done so far is as durable as configured, or `failed` if it can not be."""
        self._answers.append(Waiting(done, failed))
        self.commit_soon()
        if self.is_closed:
            self.answer_all()

    def when_committed(self, seq: int, done: Callable[[], None], failed: Failed) -> None:
        """Call back once the messages up to a sequence are as durable as configured, at once if they are."""
        if seq <= self.committed_seq:
            done()
        else:
            self.when_durable(done, failed)

    def when_erased(self, done: Callable[[], None], failed: Failed) -> None:
        """Call back once everything done so far is durable, and the bytes of what was erased cannot be had again."""

        def finish() -> None:
            if self.machine.store.is_erasing and not self.is_closed:
                self.when_durable(finish, failed)
            else:
                done()

        self.when_durable(finish, failed)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when no commit is running, at once if none is; it must finish what it does."""
        if self._committing is None:
            callback()
        else:
            self._idle.append(callback)

    # What the commit loop does: see `host.CommitUnit`

    @property
    def is_synced(self) -> bool:
        store = self.machine.store
        return isinstance(store, FileStore) and store.options.sync == "always"

    def commit_now(self) -> bool:
        """Commit and answer at once, if that is a matter of a few bytes."""
        if not self._is_writing or not self.machine.store.commit_small():
            return False
        answers, self._answers = self._answers, []
        self._committing_size = self._uncommitted_size
        self._send(answers)
        self._host.flush()  # somebody waits for just this
        self._after_commit()
        return True

    def prepare_commit(self) -> Any:
        """Hand out what is to be written; what is answered from now on waits for the next commit."""
        self._committing, self._answers = self._answers, []
        self._committing_size = self._uncommitted_size
        if not self._is_writing:
            return None  # nothing is stored: what waits to be answered are refusals
        return self._prepare()

    def complete_commit(self, commit: Any) -> None:
        """What was handed out is durable: answer, and let consumers see it."""
        self._complete(commit)
        store = self.machine.store
        if commit is not None and self.may_rewrite and isinstance(store, FileStore) and store.has_more:
            self.commit_soon()
        answers, self._committing = self._committing or [], None
        self._send(answers)
        self._after_commit()

    def fail_commit(self, error: BaseException) -> None:
        """The disk failed: what was waiting is not safe, and nothing more is stored until the files are read anew."""
        if isinstance(self.machine.store, FileStore):
            self.machine.store.fail_commit(error)
        self.problem = error
        answers = (self._committing or []) + self._answers
        self._committing, self._answers, self._committing_size = None, [], self._uncommitted_size
        refusal = encode_json({"error": self._owner.refusal().as_dict(), "stream": self._owner.name, "seq": 0})
        for answer in answers:
            if isinstance(answer, Acks):
                self._send([Acks(answer.client, refused_acks(answer.frames, refusal))])
            elif isinstance(answer, Ack):
                self._send([Ack(answer.reply, refusal)])
            else:
                answer.failed(self._owner.refusal())
        self._after_commit()
        self._owner.commit_failed(error)

    def answer_all(self) -> None:
        """Send what waits: nothing more will be committed."""
        answers, self._answers = self._answers, []
        self._send(answers)

    def _after_commit(self) -> None:
        self._uncommitted_size -= self._committing_size
        self._committing_size = 0
        self._release_held()
        self._call_idle()
        self._owner.committed()
