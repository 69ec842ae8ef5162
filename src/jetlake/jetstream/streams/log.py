"""LocalLog: the way of commands on one server. It applies them at once, and group commit makes them durable.

What follows from a command for others waits here until the command is durable: acks to publishers, answers to requests,
republished messages, deliveries. While a commit runs, the next one fills; when it fills faster than the disk takes it,
publishers are held.

A commit that fails leaves a problem: nothing more can be stored until the owner has read its files anew, and who waited
gets an error.

Always true: acks and answers go out in the order of what they answer, and none before its commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from jetlake.jetstream import errors
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Host
from jetlake.jetstream.streams.answers import Ack, Acks, Answer, Failed, Waiting, refused_acks
from jetlake.jetstream.streams.commands import Command
from jetlake.jetstream.streams.machine import StreamMachine
from jetlake.store import FileStore
from jetlake.store.disk.commit import LOGGED_SIZE_MAX, SmallCommit
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.broker.peer import Peer

UNCOMMITTED_SIZE_MAX = 32 * 1024 * 1024  # received and not committed; publishers are held beyond


class Owner(Protocol):
    """The stream, as its log sees it."""

    @property
    def name(self) -> str: ...
    def send_ack(self, reply: bytes, body: bytes) -> None: ...
    def refusal(self) -> ApiError: ...  # why nothing is stored
    def committed(self) -> None: ...  # more is durable than before
    def commit_failed(self, error: BaseException) -> None: ...


class LocalLog:
    """The commands of one stream: applied, committed, answered."""

    is_background = False

    def __init__(self, host: Host, machine: StreamMachine, owner: Owner) -> None:
        self._host, self.machine, self._owner = host, machine, owner
        self.problem: BaseException | None = None  # why nothing can be stored at the moment
        self.is_closed = False
        self.is_suspended = False  # nothing is written for now
        self.may_rewrite = False  # whether commits go on by themselves until all blocks are as they should be
        self._answers: list[Answer] = []
        self._committing: list[Answer] | None = None  # answers that the running commit sends
        self._idle: list[Callable[[], None]] = []
        self._held: dict[int, Peer] = {}
        self._uncommitted_size = self._committing_size = 0

    # What the stream does

    def submit(self, command: Command) -> Any:
        """Apply a command; its result. It is durable after the next commit."""
        result = self.machine.apply(command)
        self.commit_soon()
        return result

    def commit_soon(self) -> None:
        """Something was done that has to be committed, or answered."""
        if not self.is_closed:
            self._host.commit_soon(self)

    def answer(self, answer: Answer) -> None:
        """Send something once everything done so far is durable."""
        self._answers.append(answer)

    def received(self, origin: Peer, size: int) -> None:
        """A peer sent so many bytes of messages: hold it if the disk does not keep up."""
        self._uncommitted_size += size
        if self._uncommitted_size > UNCOMMITTED_SIZE_MAX and id(origin) not in self._held:
            self._held[id(origin)] = origin
            origin.hold()

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

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when no commit is running, at once if none is; it must finish what it does."""
        if self._committing is None:
            callback()
        else:
            self._idle.append(callback)

    # What the commit loop does: see `host.CommitUnit`

    @property
    def is_large(self) -> bool:
        return self.machine.store.catalog.blocks[-1].pending_size > LOGGED_SIZE_MAX

    @property
    def is_synced(self) -> bool:
        store = self.machine.store
        return isinstance(store, FileStore) and store.options.sync == "always"

    @property
    def _is_writing(self) -> bool:
        return self.problem is None and not (self.is_closed or self.is_suspended)

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
        store = self.machine.store
        if isinstance(store, FileStore):
            return store.prepare_small() or store.prepare_commit()
        store.commit()
        return None

    def complete_commit(self, commit: Any) -> None:
        """What was handed out is durable: answer, and let consumers see it."""
        if commit is not None:
            store = self.machine.store
            assert isinstance(store, FileStore)
            if isinstance(commit, SmallCommit):
                store.complete_small(commit)
            else:
                store.complete_commit(commit)
            if store.has_more and self.may_rewrite:
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
        if self._held and self._uncommitted_size <= UNCOMMITTED_SIZE_MAX:
            for peer in self._held.values():
                peer.release()
            self._held.clear()
        if self._idle:
            idle, self._idle = self._idle, []
            for callback in idle:
                self.call(callback)
        self._owner.committed()

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
