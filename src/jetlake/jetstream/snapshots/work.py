"""Work for a thread, carried out as a background commit: the loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jetlake.jetstream.host import Host


class Work:
    """One call in a thread, and then one of two on the loop: a CommitUnit."""

    is_synced = is_background = is_large = True
    is_small, redo = False, None

    def __init__(
        self, host: Host, run: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._run, self._done, self._failed = run, done, failed
        self._result: Any = None
        host.commit_soon(self)

    def commit_now(self) -> bool:
        return False

    def prepare_commit(self) -> Work:
        return self

    def run(self) -> None:
        self._result = self._run()

    def complete_commit(self, commit: Work) -> None:
        self._done(self._result)

    def fail_commit(self, error: BaseException) -> None:
        self._failed(error)
