"""The write-ahead log of a node as the host's commit loop sees it (`jetstream.host.CommitUnit`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.cluster.wal import Wal, Write

if TYPE_CHECKING:
    from jetlake.cluster.node import Node


class WalUnit:
    """The log as something that the host's commit loop writes."""

    is_synced = is_large = True
    is_background = False

    def __init__(self, node: Node) -> None:
        self._node = node

    def commit_now(self) -> bool:
        """Write in the loop's thread what is small."""
        if not self._node.is_small:
            return False
        commit = self._node.take()
        if commit is not None:
            commit.run()
            self._node.written(commit)
        return True

    def prepare_commit(self) -> Write | None:
        return self._node.take()

    def complete_commit(self, commit: Write | None) -> None:
        if commit is not None:
            self._node.written(commit)

    def fail_commit(self, error: BaseException) -> None:
        self._node.freeze(error)


class _Retire:
    """Segments that go."""

    redo = None
    is_small = False

    def __init__(self, wal: Wal, number: int) -> None:
        self._wal, self.number = wal, number

    def run(self) -> None:
        self._wal.retire(self.number)


class Retirement:
    """Old segments as something that the host's commit loop removes, in the background."""

    is_synced = is_large = is_background = True

    def __init__(self, node: Node) -> None:
        self._node = node

    def commit_now(self) -> bool:
        return False

    def prepare_commit(self) -> _Retire | None:
        number = self._node.wal.retirable()
        return _Retire(self._node.wal, number) if number else None

    def complete_commit(self, commit: _Retire | None) -> None:
        if commit is not None:
            self._node.wal.retired(commit.number)

    def fail_commit(self, error: BaseException) -> None:
        self._node.retirement_failed(error)
