"""RedoLog: whatever changed in any number of files becomes durable by one sync.

    redo = RedoLog(files, root)             # after `replay`
    redo.commit([change, ...])              # in any thread

A commit writes what is to happen to all its files into the log and syncs that. Then the files themselves are changed,
which readers see at once, but which the disk need not have yet: they are *live*, the log has them. `retire`, now and
then and in a thread of its own, syncs the live files and lets go of the log up to there.

Files that are replaced as a whole and that only the server reads need not even be written before `retire`.

Whoever changes a live file by other means must make it durable as it is and have the log forget it, or a replay would
undo the change: `settle`. `RedoFiles` does that for everything that has to do with names.

A failed write or sync of the log fails all commits of the turn. What the log has of them nobody knows, so until the
live files are synced and the log has been cleared, nothing that takes part in it may be written (`check`). A live file
whose sync failed gets its changes from the log again before the next attempt.

Always true: a change is in the log, durably, before it is made to its file; a segment goes after all that it says is
durable elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from jetlake.store.blocks.block_file import BlockFile
from jetlake.store.disk.files import Files
from jetlake.store.log.log import SEGMENT_SIZE, Log, clear_log
from jetlake.store.redo.entries import Entry, Remove, Rename, Replace, Void, Write, encode_entries
from jetlake.store.redo.replay import PURPOSE, entries_for, parents, redo_directory, write_file

RETIRE_SIZE = 8 * 1024 * 1024  # of what was logged, before the live files are synced


class Change(Protocol):
    """A part of a commit."""

    def entries(self) -> Sequence[Entry]:
        """What the log is to say; asked once, in the thread that commits."""

    def apply(self, files: Files) -> None:
        """Change the files: what a reader may look at. It is in the log, and not to be settled."""

    def block_files(self) -> Sequence[BlockFile]:
        """The files of the Write entries."""


What = BlockFile | bytes | Remove | Rename  # is live: a block, a whole file, one that is gone, a directory


class Live:
    """The files that the log has and the disk may not have."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.files: dict[str, What] = {}
        self._directories: set[str] = set()  # that hold them, and more that did

    def add(self, path: str, what: What) -> None:
        if path not in self.files:
            self._directories.update(parents(path, self._root))
        self.files[path] = what

    def take(self, other: Live) -> None:
        """Add all that another one has, which is younger."""
        self.files.update(other.files)
        self._directories |= other._directories

    def has(self, path: str) -> bool:
        """Whether a path may be live, or something below it."""
        return path in self.files or path in self._directories

    def below(self, path: str) -> dict[str, What]:
        """What is live at a path and below it."""
        if path not in self._directories:
            return {path: self.files[path]} if path in self.files else {}
        return {each: what for each, what in self.files.items() if each == path or each.startswith(f"{path}/")}

    def forget(self, path: str) -> None:
        for each in self.below(path):
            del self.files[each]


class RedoLog:
    """The log of one server. Any thread may use it."""

    def __init__(self, files: Files, root: str, *, segment_size: int = SEGMENT_SIZE) -> None:
        """The log of an earlier run has been replayed."""
        self._files, self._root, self._directory = files, root, redo_directory(root)
        self._segment_size = segment_size
        self._lock = threading.RLock()
        self._retire_lock = threading.Lock()
        self._log: Log | None = None
        self._live = Live(root)
        self._retiring = Live(root)  # of segments that are about to go
        self._failed: set[str] = set()  # whose sync failed
        self._logged_size = 0
        self.failed: BaseException | None = None

    @property
    def is_due(self) -> bool:
        """Whether enough was logged for `retire` to be worth it."""
        return self._logged_size >= RETIRE_SIZE

    @property
    def is_clean(self) -> bool:
        """Whether the log has nothing that the files do not have."""
        return not (self._live.files or self._retiring.files or self.failed)

    # Committing

    def commit(self, changes: Sequence[Change]) -> list[Exception | None]:
        """Make changes durable and visible, all by one sync. What could not be made visible, by change.

        Raises OSError when they are not durable: none of them may be told to anybody, and `check` tells when
        whoever made them may try again.
        """
        entries = [entry for change in changes for entry in change.entries()]
        errors: list[Exception | None] = []
        with self._lock:
            self.check()
            self._write(entries)
            for entry in entries:
                self._note(entry)
            for change in changes:
                for file in change.block_files():
                    self._live.add(file.path, file)
                try:
                    change.apply(self._files)
                    errors.append(None)
                except Exception as error:
                    errors.append(error)
        return errors

    def _note(self, entry: Entry) -> None:
        if isinstance(entry, Replace):
            self._live.add(entry.path, entry.data)
        elif isinstance(entry, Remove):
            self._live.add(entry.path, entry)
        elif isinstance(entry, Rename):
            self._forget(entry.path)
            self._live.add(entry.target, entry)

    def _write(self, entries: Sequence[Entry]) -> None:
        """Write entries to the log, durably."""
        body = encode_entries(entries, self._root)
        try:
            if self._log is None:
                self._files.make_dirs(self._directory)
                self._log = Log(self._files, self._directory, purpose=PURPOSE, segment_size=self._segment_size)
            self._log.append([body])
            self._log.sync()
        except OSError as error:
            self._fail(error)
            raise
        self._logged_size += len(body)

    def _fail(self, error: OSError) -> None:
        """What the log says is not so, or not for sure. Begin it anew, at once if that is possible."""
        self.failed = error
        with suppress(OSError):
            self._restart()

    def check(self) -> None:
        """Raise OSError while the log cannot be written; it is begun anew if that is possible."""
        with self._lock:
            if self.failed is not None:
                self._restart()

    def _restart(self) -> None:
        """After an error: what is live is made durable by itself, and the log is cleared."""
        live = {**self._retiring.files, **self._live.files}
        for path, what in live.items():
            self._sync(path, what)
        self._sync_names(live)
        if self._log is not None:
            self._log.close()
        if self._files.exists(self._directory):
            clear_log(self._files, self._directory)
        self._live, self._retiring, self._log, self._logged_size = Live(self._root), Live(self._root), None, 0
        self._failed.clear()
        self.failed = None

    # Letting go

    def retire(self) -> None:
        """Make all live files durable by themselves, and let go of the log up to here. It waits for the disk."""
        with self._retire_lock:
            with self._lock:
                if self._log is None or self.failed is not None:
                    return
                log, number = self._log, self._log.next_segment()
                self._retiring.take(self._live)
                live, self._live, self._logged_size = list(self._retiring.files), Live(self._root), 0
            for path in live:
                self._retire(path)
            self._sync_names(live)
            with self._lock:
                if self._log is not log or self.failed is not None:
                    return
                self._retiring = Live(self._root)
            log.retire(number)

    def _retire(self, path: str) -> None:
        """Make one file durable, unless somebody has done so."""
        with self._lock:
            what = self._retiring.files.get(path)
            if what is None:
                return
            if not isinstance(what, BlockFile):  # it must not change meanwhile
                self._sync(path, what)
                return
        try:
            self._sync(path, what)
        except OSError:
            if path in self._retiring.files:
                raise

    def _sync(self, path: str, what: What) -> None:
        """Make one live file durable; its name too, once its directory is synced."""
        if isinstance(what, bytes):
            self._files.make_dirs(path.rpartition("/")[0])
            write_file(self._files, path, what)
        elif isinstance(what, BlockFile):
            if not self._files.exists(path):
                return  # it could not be made, and its commit was refused
            try:
                if path in self._failed:
                    self._write_again(path, what)
                what.sync_beside()
                self._failed.discard(path)
            except OSError:
                self._failed.add(path)
                raise
        elif isinstance(what, Remove) and self._files.exists(path):
            self._files.remove(path)

    def _write_again(self, path: str, file: BlockFile) -> None:
        """After a failed sync the pages may be gone without another error: write them once more."""
        for entry in entries_for(self._files, self._root, path):
            if isinstance(entry, Write):
                file.file.pwritev(entry.offset, entry.parts)

    def _sync_names(self, live: Iterable[str]) -> None:
        directories = {directory for path in live for directory in parents(path, self._root)}
        for directory in sorted(directories):
            if self._files.exists(directory):
                self._files.sync_dir(directory)

    def settle(self, path: str) -> None:
        """Make a live file, or all of them below a directory, durable as they are; the log forgets them.

        From then on they may be changed by other means.
        """
        if not (self.failed or self._live.has(path) or self._retiring.has(path)):
            return
        with self._lock:
            self.check()
            live = {**self._retiring.below(path), **self._live.below(path)}
            if not live:
                return
            for each, what in live.items():
                self._sync(each, what)
            self._sync_names(live)
            self._write([Void(path)])
            self._forget(path)

    def discard(self, path: str) -> None:
        """The log forgets a directory that is about to go with all that is in it."""
        if not (self.failed or self._live.has(path) or self._retiring.has(path)):
            return
        with self._lock:
            self.check()
            live = {**self._retiring.below(path), **self._live.below(path)}
            if live:
                self._sync_names([each for each, what in live.items() if isinstance(what, Rename)])
                self._write([Void(path)])
                self._forget(path)

    def _forget(self, path: str) -> None:
        self._live.forget(path)
        self._retiring.forget(path)

    def rename(self, path: str, target: str) -> None:
        """Give a directory another name, durably; what is live below it is forgotten with it."""
        with self._lock:
            self.check()
            self._write([Rename(path, target)])
            try:
                self._files.rename(path, target)
            except OSError as error:
                self._fail(error)  # the log says so: it must be cleared
                raise
            self._note(Rename(path, target))

    def close(self) -> None:
        """Make everything durable, and leave no log. Raises OSError if that is not possible: the log stays then."""
        self.retire()
        with self._retire_lock, self._lock:
            self.check()
            self._restart()
