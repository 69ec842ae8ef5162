"""The only door to the operating system: every byte that a store reads or writes passes through here.

`Files` is what a store may ask of a file system and `File` is one open file. `OsFiles` is the real thing;
`jetlake.testing.memfiles` is a twin in memory that loses what was not synced. Nothing else in the store opens a file.

What is always true:
- I/O is positional, so one `File` serves any number of threads; only `close` must come after the last of them.
- A write writes everything or raises. A read is short at the end of the file only.
- `sync` makes a file's bytes and size durable, but not its name: that takes `sync_dir` on the directory that holds it.
- Whatever the system refuses is an OSError, except a lock held by someone else, which is StoreLocked.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from jetlake.errors import StoreLocked
from jetlake.store.format import Buffer

_FILE_MODE = 0o640
_SECRET_MODE = 0o600
SECRET_MARK = ".secret"  # in the name of a file that is for its owner alone
_DIR_MODE = 0o750
_PARTS_MAX = os.sysconf("SC_IOV_MAX")  # how many buffers one pwritev takes
_TEMP_NAME = re.compile(r"(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)


class File(ABC):
    """An open file; positional I/O only."""

    path: str

    @abstractmethod
    def pread(self, offset: int, size: int) -> bytes:
        """Read `size` bytes, or what there is before the end of the file."""

    @abstractmethod
    def pread_into(self, offset: int, buffer: bytearray | memoryview) -> int:
        """Fill `buffer`, and say how many bytes there were before the end of the file."""

    @abstractmethod
    def pwrite(self, offset: int, data: Buffer) -> None:
        """Write all of `data`."""

    @abstractmethod
    def pwritev(self, offset: int, parts: Sequence[Buffer]) -> None:
        """Write all parts, one right after the other."""

    @abstractmethod
    def size(self) -> int:
        """The size of the file in bytes."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros, to `size` bytes."""

    @abstractmethod
    def sync(self) -> None:
        """Make the bytes and the size durable; after an error no one knows which bytes are."""

    @abstractmethod
    def close(self) -> None:
        """Give the file back; a second call does nothing."""

    def __enter__(self) -> File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Lock(ABC):
    """A held lock on a path; it ends with `release`, or with the process."""

    path: str

    @abstractmethod
    def release(self) -> None:
        """Let others have it; a second call does nothing."""

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class Files(ABC):
    """What a store may ask of a file system."""

    @abstractmethod
    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file that exists, or with `create` a new one, for writing, that must not exist."""

    @abstractmethod
    def list(self, directory: str) -> builtins.list[str]:
        """The names in a directory, sorted."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether a file or directory is there; an error other than its absence is raised."""

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a file in bytes."""

    @abstractmethod
    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        """Make a directory and its parents; new ones are `durable`, those already there are taken to be."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had that name, in one step."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Remove a directory and all that is in it; it may be gone already."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    @abstractmethod
    def lock(self, path: str, *, shared: bool = False) -> Lock:
        """Lock a file, made if need be; StoreLocked when anyone holds it, this process included.

        Any number may have it `shared`, while nobody has it alone.
        """

    def settle(self, path: str) -> None:  # noqa: B027  only below a redo log there is something to do
        """Say that a file, or what lies below a directory, is about to be changed in place: see `store.redo`."""

    def read(self, path: str) -> bytes:
        """All the bytes of a file."""
        with self.open(path) as file:
            return file.pread(0, file.size())


def atomic_write(files: Files, path: str, parts: Sequence[Buffer], *, durable: bool = True) -> None:
    """Put a whole file in place, or leave what was there; of two writers the last wins, and they never mix."""
    temp = f"{path}.{secrets.token_hex(8)}.tmp"
    file = files.open(temp, create=True)
    try:
        with file:
            file.pwritev(0, parts)
            if durable:
                file.sync()
        files.rename(temp, path)
    except BaseException:
        with suppress(OSError):
            files.remove(temp)
        raise
    if durable:
        files.sync_dir(os.path.dirname(path) or ".")


def is_no_space(error: BaseException | None) -> bool:
    """Whether the disk is full, or the user's share of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_temp(name: str) -> bool:
    """Whether a name is that of a file which an interrupted atomic_write left over."""
    return _TEMP_NAME.fullmatch(name) is not None


def temp_target(name: str) -> str:
    """The name of the file that an interrupted atomic_write was to put in place; "" for any other name."""
    match = _TEMP_NAME.fullmatch(name)
    return match[1] if match is not None else ""


class OsFile(File):
    """An open file of the operating system."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd  # -1 once closed, so that a late call cannot reach a file that got the same number

    def __del__(self) -> None:
        self.close()

    def pread(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) in (size, 0):
            return data
        buffer = bytearray(size)
        buffer[: len(data)] = data
        rest = memoryview(buffer)[len(data) :]
        return bytes(memoryview(buffer)[: len(data) + self.pread_into(offset + len(data), rest)])

    def pread_into(self, offset: int, buffer: bytearray | memoryview) -> int:
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], offset + done)
            if not count:
                break
            done += count
        return done

    def pwrite(self, offset: int, data: Buffer) -> None:
        written = os.pwrite(self._fd, data, offset)
        if written == len(data):
            return
        view = memoryview(data).cast("B")
        while view := view[self._progress(written) :]:
            offset += written
            written = os.pwrite(self._fd, view, offset)

    def pwritev(self, offset: int, parts: Sequence[Buffer]) -> None:
        if len(parts) == 1:
            self.pwrite(offset, parts[0])
            return
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        first = 0
        while first < len(views):
            written = self._progress(os.pwritev(self._fd, views[first : first + _PARTS_MAX], offset))
            offset += written
            while first < len(views) and written >= len(views[first]):
                written -= len(views[first])
                first += 1
            if written:
                views[first] = views[first][written:]

    def _progress(self, written: int) -> int:
        """Refuse a write that wrote nothing, on which a loop would never end."""
        if not written:
            raise OSError(errno.EIO, "a write wrote nothing", self.path)
        return written

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        if self._fd < 0:  # fdatasync would call it a ValueError
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        os.fdatasync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsLock(Lock):
    """A flock: it belongs to the open file, so a second one in the same process is refused too."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone would leave it to a forked child that shares the file
            os.close(fd)


class OsFiles(Files):
    """The operating system's files."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        is_secret = SECRET_MARK in os.path.basename(path)
        return OsFile(path, os.open(path, flags, _SECRET_MODE if is_secret else _FILE_MODE))

    def list(self, directory: str) -> builtins.list[str]:
        return sorted(os.listdir(directory))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path.rstrip("/")) or "."
        self.make_dirs(parent, durable=durable)
        try:
            os.mkdir(path, _DIR_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        if durable:
            self.sync_dir(parent)  # even when someone else made it just now: their sync may still be to come

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        import shutil  # it brings compressors along, which every start would wait for

        shutil.rmtree(path, onerror=_unless_gone)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str, *, shared: bool = False) -> OsLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE)
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StoreLocked(path) from None
        except BaseException:
            os.close(fd)
            raise
        return OsLock(path, fd)


def _unless_gone(function: Any, path: str, error: Any) -> None:
    """What rmtree does about an error: only the absence of what it was to remove is fine."""
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]


OS_FILES = OsFiles()
