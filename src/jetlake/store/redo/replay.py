"""After a crash: what the redo log has and the files may not have.

`replay` makes every change of the log again, syncs the files, and then removes the log. It may be cut short at any
point and repeated: a change that is made twice is the same as one made once, and segments go only at the end, the
oldest first. `unapplied` only looks, for readers of a directory that no server has open.

The log lies in `<root>/~redo`, where root is the directory of the server's streams. No account has such a name.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import NamedTuple

from jetlake.store.disk.files import File, Files
from jetlake.store.format import HEADER_SIZE, decode_header
from jetlake.store.log.log import clear_log, read_log
from jetlake.store.redo.entries import Entry, Rename, Replace, Write, decode_entries, effective

DIRECTORY_NAME = "~redo"
PURPOSE = 1
_OPEN_FILES_MAX = 100


class Replayed(NamedTuple):
    """What a replay did, and could not do."""

    change_count: int  # that were made again
    damage: list[str]


def redo_directory(root: str) -> str:
    """Where the log of a server lies."""
    return f"{root}/{DIRECTORY_NAME}"


def replay(files: Files, root: str) -> Replayed:
    """Bring the files to what the log says, durably, and remove the log. Nobody else may use them meanwhile."""
    directory = redo_directory(root)
    if not files.exists(directory):
        return Replayed(0, [])
    entries, damage = _read(files, root)
    apply = _Apply(files, root)
    for entry in entries:
        apply.entry(entry)
    apply.sync()
    clear_log(files, directory)
    return Replayed(len(entries), damage + apply.damage)


def unapplied(files: Files, root: str, below: str) -> list[str]:
    """The files below a directory in which something is missing that the log has; nothing is changed."""
    if not files.exists(redo_directory(root)):
        return []
    entries = [entry for entry in read_entries(files, root) if entry.path.startswith(f"{below}/")]
    return sorted({entry.path for entry in entries if not _is_applied(files, entry)})


def entries_for(files: Files, root: str, path: str) -> list[Entry]:
    """What the log still says of one file."""
    return [entry for entry in read_entries(files, root) if entry.path == path]


def read_entries(files: Files, root: str) -> list[Entry]:
    """All that the log still says."""
    return _read(files, root)[0]


def _read(files: Files, root: str) -> tuple[list[Entry], list[str]]:
    found = read_log(files, redo_directory(root), purpose=PURPOSE)
    entries: list[Entry] = []
    for record in found.records:
        entries += decode_entries(record.body, root)
    return effective(entries), found.damage + ([found.tail] if found.tail else [])


def _is_applied(files: Files, entry: Entry) -> bool:
    exists = files.exists(entry.path)
    if isinstance(entry, Replace):
        return exists and files.read(entry.path) == entry.data
    if not isinstance(entry, Write):
        return not exists
    if not exists:
        return False
    with files.open(entry.path) as file:
        data = b"".join(entry.parts)
        return not is_meant(file, entry) or file.pread(entry.offset, len(data)) == data


def is_meant(file: File, entry: Write) -> bool:
    """Whether a file is the one that a change was meant for; a new one may not have its header yet."""
    header = decode_header(file.pread(0, HEADER_SIZE))
    if header is None:
        return entry.is_new
    return (header.hash_seed, header.generation) == (entry.seed, entry.generation)


class _Apply:
    """Makes changes, and then makes them durable."""

    def __init__(self, files: Files, root: str) -> None:
        self._files, self._root = files, root
        self._open: dict[str, File] = {}
        self._directories: set[str] = set()
        self.damage: list[str] = []

    def entry(self, entry: Entry) -> None:
        path = entry.path
        if isinstance(entry, Write):
            self._write(entry)
        elif isinstance(entry, Replace):
            self._make_parent(path)
            write_file(self._files, path, entry.data)
        elif not isinstance(entry, Rename):
            if self._files.exists(path):
                self._files.remove(path)
        elif self._files.exists(path) and not self._files.exists(entry.target):
            self._files.rename(path, entry.target)
        self._directories.update(parents(path, self._root))

    def _write(self, entry: Write) -> None:
        if not self._files.exists(entry.path):
            if not entry.is_new:
                self.damage.append(f"{entry.path}: is missing, and the redo log has a part of it")
                return
            self._make_parent(entry.path)
            self._keep(entry.path, self._files.open(entry.path, create=True))
        file = self._open.get(entry.path)
        if file is None:
            file = self._keep(entry.path, self._files.open(entry.path, write=True))
        if is_meant(file, entry):
            file.pwritev(entry.offset, entry.parts)

    def _keep(self, path: str, file: File) -> File:
        if len(self._open) >= _OPEN_FILES_MAX:
            self._sync_files()
        self._open[path] = file
        return file

    def _make_parent(self, path: str) -> None:
        self._files.make_dirs(path.rpartition("/")[0])

    def _sync_files(self) -> None:
        for file in self._open.values():
            with file:
                file.sync()
        self._open.clear()

    def sync(self) -> None:
        self._sync_files()
        for directory in sorted(self._directories):
            if self._files.exists(directory):
                self._files.sync_dir(directory)


def write_file(files: Files, path: str, data: bytes) -> None:
    """Put a file in place whose bytes are durable, and whose name is once its directory is synced."""
    temp = f"{path}.{secrets.token_hex(8)}.tmp"
    with files.open(temp, create=True) as file:
        file.pwrite(0, data)
        file.sync()
    files.rename(temp, path)


def parents(path: str, root: str) -> Iterable[str]:
    """The directories above a path, up to the root."""
    while len(path) > len(root):
        path = path.rpartition("/")[0]
        yield path
