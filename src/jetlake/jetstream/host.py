"""What JetStream asks of the server it runs in: time, timers, group commit and a log.

Everything here is called on the loop thread, and calls back on it. `Commit.run` alone runs in another thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from jetlake.clock import Clock
from jetlake.config.options import RemoteOptions, ServerOptions
from jetlake.store.redo.redo_log import RedoLog


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None: ...


class Commit(Protocol):
    """The disk's part of a commit.

    `run` carries it out by itself. With a `redo` log it is a `store.redo.redo_log.Change` too, and can be made through
    the log together with others, by one sync for all.
    """

    @property
    def redo(self) -> RedoLog | None: ...
    @property
    def is_small(self) -> bool: ...  # whether it takes one write and, by itself, no more than one sync
    def run(self) -> None: ...


class CommitUnit(Protocol):
    """Something with changes in memory that a commit makes durable: a stream's store, a consumer's state.

    `prepare_commit` hands out all that is to be written, or None. `run` of what it handed out is called in any thread,
    and then one of `complete_commit` and `fail_commit` here. One commit at a time. `commit_now` is the short way, in no
    thread; it may raise what `run` may raise.
    """

    @property
    def is_synced(self) -> bool: ...  # whether its commits wait for the disk
    @property
    def is_large(self) -> bool: ...  # whether its next commit takes long, so that it should not wait for others
    @property
    def is_background(self) -> bool: ...  # whether it must not keep others waiting: there may be thousands of them
    def commit_now(self) -> bool: ...  # commits if that is a matter of a few bytes; False when it is not
    def prepare_commit(self) -> Commit | None: ...
    def complete_commit(self, commit: Any) -> object: ...
    def fail_commit(self, error: BaseException) -> None: ...


class Dialed(Protocol):
    """Who talks to another server as its client."""

    def connected(self) -> None: ...  # and logged in
    def received(self, data: bytes) -> None: ...
    def lost(self, problem: str) -> None: ...  # it is tried again by itself


class Line(Protocol):
    """A connection to another server, which is made again when it is lost, until it is closed."""

    def write(self, data: bytes) -> None: ...
    def reconnect(self) -> None: ...
    def close(self) -> None: ...


class Host(Protocol):
    """The server, as JetStream sees it."""

    @property
    def clock(self) -> Clock: ...
    @property
    def options(self) -> ServerOptions: ...
    @property
    def server_id(self) -> str: ...
    @property
    def server_name(self) -> str: ...

    def call_at(self, time_ns: int, callback: Callable[[], None]) -> Timer: ...
    def call_soon(self, callback: Callable[[], None]) -> None: ...
    def commit_soon(self, unit: CommitUnit) -> None: ...
    def flush(self) -> None: ...  # hands what is queued to the sockets, sooner than at the end of the turn
    def dial(self, remote: RemoteOptions, client: Dialed) -> Line: ...
    def log(self, level: str, line: str) -> None: ...
    def failed(self, what: str, error: BaseException) -> None: ...  # tells of an error that nobody foresaw
