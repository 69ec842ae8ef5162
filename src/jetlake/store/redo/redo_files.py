"""Files below a redo log: whoever renames or removes one that is live in the log has it settled first."""

from __future__ import annotations

import builtins

from jetlake.store.disk.files import File, Files, Lock
from jetlake.store.redo.redo_log import RedoLog


class RedoFiles(Files):
    """The same files. Of a change inside a file the log must be told with `settle`."""

    def __init__(self, files: Files, redo: RedoLog) -> None:
        self._files, self.redo = files, redo

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        return self._files.open(path, write=write, create=create)

    def list(self, directory: str) -> builtins.list[str]:
        return self._files.list(directory)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def size(self, path: str) -> int:
        return self._files.size(path)

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        self._files.make_dirs(path, durable=durable)

    def sync_dir(self, path: str) -> None:
        self._files.sync_dir(path)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def lock(self, path: str, *, shared: bool = False) -> Lock:
        return self._files.lock(path, shared=shared)

    def rename(self, source: str, target: str) -> None:
        self.redo.settle(source)
        self.redo.settle(target)
        self._files.rename(source, target)

    def remove(self, path: str) -> None:
        self.redo.settle(path)
        self._files.remove(path)

    def remove_tree(self, path: str) -> None:
        self.redo.discard(path)
        self._files.remove_tree(path)

    def settle(self, path: str) -> None:
        self.redo.settle(path)
