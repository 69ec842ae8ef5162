"""JetStream in this process, without a server: what clients would send goes in, what they would get comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jetlake.broker.account import Account
from jetlake.broker.subscription import Msg
from jetlake.clock import Clock, system_clock
from jetlake.config.options import JetStreamOptions, ServerOptions
from jetlake.jetstream.service import JetStream
from jetlake.store.disk.files import OS_FILES, Files

SERVER_NAME = "test"


@dataclass
class FakeTimer:
    """A call that a test may make when its time has come."""

    time_ns: int
    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass(eq=False)
class FakeHost:
    """A host whose commits and calls happen when `settle` is called, on this thread."""

    options: ServerOptions = field(
        default_factory=lambda: ServerOptions(
            server_name=SERVER_NAME, jetstream=JetStreamOptions(enabled=True, max_memory=1 << 40, max_store=1 << 40)
        )
    )
    clock: Clock = system_clock
    server_id: str = "TESTID"
    server_name: str = SERVER_NAME
    lines: list[tuple[str, str]] = field(default_factory=list)
    timers: list[FakeTimer] = field(default_factory=list)
    fails: OSError | None = None  # what every commit ends in
    failures: list[str] | None = None  # what went wrong, in a test that expects it
    _units: dict[int, Any] = field(default_factory=dict)
    _calls: list[Callable[[], None]] = field(default_factory=list)

    def call_at(self, time_ns: int, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(time_ns, callback)
        self.timers.append(timer)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._calls.append(callback)

    def commit_soon(self, unit: Any) -> None:
        self._units[id(unit)] = unit

    def flush(self) -> None:
        pass  # tests look at what is queued

    def log(self, level: str, line: str) -> None:
        self.lines.append((level, line))

    def failed(self, what: str, error: BaseException) -> None:
        if self.failures is None:
            raise error  # a test is to see what it does not expect
        self.failures.append(f"{what}: {error}")

    def settle(self) -> None:
        """Do everything that is to be done soon."""
        while self._units or self._calls:
            calls, self._calls = self._calls, []
            for call in calls:
                call()
            self.commit_round()

    def commit_round(self) -> None:
        """Make the commits that were asked for."""
        units, self._units = self._units, {}
        for unit in units.values():
            self._commit(unit)

    def _commit(self, unit: Any) -> None:
        if self.fails is None and unit.commit_now():
            return
        commit = unit.prepare_commit()
        if self.fails is not None:
            unit.fail_commit(self.fails)
            return
        if commit is not None and commit.redo is not None and not commit.is_small:
            (error,) = commit.redo.commit([commit])
            if error is not None:
                unit.fail_commit(error)
                return
        elif commit is not None:
            try:
                commit.run()
            except OSError as error:
                unit.fail_commit(error)
                return
        unit.complete_commit(commit)


class InProcess:
    """One account with JetStream; requests are answered before they return."""

    def __init__(
        self, store_dir: str, host: FakeHost | None = None, account: str = "$G", files: Files = OS_FILES
    ) -> None:
        self.host = host or FakeHost()
        self.account = Account(account)
        self.service = JetStream(self.host, store_dir, files=files)
        self.service.start([self.account])
        self._answers: list[Msg] = []
        self.account.subscribe(b"_INBOX.>", self._answers.append)

    @property
    def js(self) -> Any:
        return self.account.jetstream

    def request(self, subject: str, payload: bytes = b"", headers: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Send a request; headers and payload of every answer."""
        self._answers.clear()
        self.account.send(subject.encode(), payload, reply=b"_INBOX.1", headers=headers)
        self.host.settle()
        return [(answer.headers, answer.payload) for answer in self._answers]

    def stop(self) -> None:
        self.host.settle()
        self.service.stop()
