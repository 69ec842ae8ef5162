"""A file system in memory that fails, loses power and loses what was not synced, where and when a test says.

    files = MemFiles()
    files.cut(7)                        # the seventh mutating call never happens
    with pytest.raises(PowerCut):
        workload(files)
    disk = files.after_cut()            # what the disk holds: open the store on it and look

An inode has the bytes that everyone sees, the bytes that are on the disk for certain, and in order the changes between
the two. A directory has the same for its names. `sync` moves a file's changes to the disk, `sync_dir` a directory's;
`after_cut` builds the file system that the next boot finds, with none, all or some of the changes that were not synced.

What is always true:
- Every mutating call counts one (`op_count`) and is logged (`ops`) before it takes effect, so that the same workload on
  the same numbers fails at the same place. Calls that only read are not counted.
- After the cut every call on the files raises PowerCut, except `close` and `release`, which do not reach the disk.
- After a failed sync the changes it was to write are lost, as on Linux: still visible, and on the disk only by luck. No
  later sync makes them durable.
- Paths are taken from the root, with or without a leading slash, and shown without one.
"""

from __future__ import annotations

import builtins
import errno
import os
import posixpath
import random
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from jetlake.errors import StoreLocked
from jetlake.store.disk.files import File, Files, Lock
from jetlake.store.format import Buffer


class PowerCut(BaseException):
    """The power went; not an Exception, so that no code under test can handle it."""


class _Fate(Enum):
    """What became of a change to a file."""

    UNSYNCED = auto()
    DURABLE = auto()
    LOST = auto()


@dataclass
class _Change:
    """A write of `data` at `offset`, or where `data` is None a truncation to `offset`."""

    offset: int
    data: bytearray | None
    fate: _Fate = _Fate.UNSYNCED

    def apply(self, content: bytearray) -> None:
        if self.data is not None and not self.data:
            return  # and no hole before it
        content.extend(bytes(max(0, self.offset - len(content))))  # a hole reads as zeros
        if self.data is None:
            del content[self.offset :]
        else:
            content[self.offset : self.offset + len(self.data)] = self.data


class _Inode:
    """A file: `data` is what everyone sees, `base` and then the durable ones of `changes` what survives for certain."""

    def __init__(self, content: Buffer = b"") -> None:
        self.data = bytearray(content)
        self.base = bytearray(content)
        self.changes: list[_Change] = []
        self.lock_count = 0  # how many share the lock; -1: one has it alone

    def change(self, change: _Change) -> None:
        change.apply(self.data)
        self.changes.append(change)

    def sync(self) -> None:
        self._settle(_Fate.DURABLE)
        if all(change.fate is _Fate.DURABLE for change in self.changes):
            for change in self.changes:
                change.apply(self.base)
            self.changes.clear()

    def lose(self) -> None:
        """What a failed sync does: the changes it was to write count as written from now on."""
        self._settle(_Fate.LOST)

    def _settle(self, fate: _Fate) -> None:
        for change in self.changes:
            if change.fate is _Fate.UNSYNCED:
                change.fate = fate

    def content(self, rng: random.Random | None = None) -> bytearray:
        """What survives for certain, and with `rng` each other change or not, as it falls."""
        content = bytearray(self.base)
        for change in self.changes:
            if change.fate is _Fate.DURABLE or (rng is not None and rng.random() < 0.5):
                change.apply(content)
        return content

    def flip(self, offset: int, mask: int) -> None:
        writes = [(change.offset, change.data) for change in self.changes if change.data is not None]
        for start, buffer in ((0, self.data), (0, self.base), *writes):
            if 0 <= offset - start < len(buffer):
                buffer[offset - start] ^= mask


class _Dir:
    """A directory: its visible names, its durable names, and the edits since the two were the same."""

    def __init__(self, entries: Mapping[str, _Node] | None = None) -> None:
        self.entries: dict[str, _Node] = dict(entries or {})
        self.durable: dict[str, _Node] = dict(self.entries)
        self.edits: list[Mapping[str, _Node | None]] = []

    def edit(self, edit: Mapping[str, _Node | None]) -> None:
        """Set names, or remove those that map to None, in one step."""
        _apply_edit(self.entries, edit)
        self.edits.append(edit)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.edits.clear()

    def kept(self, keep: str, rng: random.Random) -> dict[str, _Node]:
        """The names after a cut; a directory's edits reach the disk in order, so "random" takes the first few."""
        if keep == "all":
            return self.entries
        kept = dict(self.durable)
        if keep == "random":
            for edit in self.edits[: rng.randint(0, len(self.edits))]:
                _apply_edit(kept, edit)
        return kept


_Node: TypeAlias = _Inode | _Dir


def _apply_edit(entries: dict[str, _Node], edit: Mapping[str, _Node | None]) -> None:
    for name, node in edit.items():
        entries.pop(name, None)
        if node is not None:
            entries[name] = node


@dataclass
class _Fault:
    """An error to raise, after a write has written this many bytes."""

    error: OSError
    partial_bytes: int


@dataclass
class _Write:
    """The last write, which a cut may tear."""

    inode: _Inode
    offset: int
    data: bytes


@dataclass
class _Survivors:
    """What to keep of each node after a cut, and the nodes of the next boot made so far."""

    keep: str
    rng: random.Random
    inodes: dict[_Inode, _Inode] = field(default_factory=dict)

    def node(self, node: _Node) -> _Node:
        return self.dir(node) if isinstance(node, _Dir) else self.inode(node)

    def dir(self, node: _Dir) -> _Dir:
        kept = node.kept(self.keep, self.rng)
        return _Dir({name: self.node(kept[name]) for name in sorted(kept)})

    def inode(self, node: _Inode) -> _Inode:
        if node not in self.inodes:
            content = node.data if self.keep == "all" else node.content(self.rng if self.keep == "random" else None)
            self.inodes[node] = _Inode(content)
        return self.inodes[node]


class MemFiles(Files):
    """Files in memory, with faults and power cuts."""

    def __init__(self) -> None:
        self.capacity: int | None = None  # bytes of all files: beyond them the disk is full
        self.op_count = 0
        self.ops: list[str] = []
        self._root = _Dir()
        self._cut_at: int | None = None
        self._has_power = True
        self._faults: dict[int, _Fault] = {}
        self._last_write: _Write | None = None
        self._mutex = threading.RLock()

    # What a test does

    def fail(self, op_number: int, error: OSError, *, partial_bytes: int = 0) -> None:
        """Make that call raise `error` and do nothing; a write may write its first bytes before it."""
        self._require_ahead(op_number)
        self._faults[op_number] = _Fault(error, partial_bytes)

    @property
    def free_size(self) -> int:
        """How many bytes more the files may have; a name takes none."""
        sizes = (len(node.data) for _, node in _walk(self._root, "") if isinstance(node, _Inode))
        return sys.maxsize if self.capacity is None else max(self.capacity - sum(sizes), 0)

    def cut(self, op_number: int) -> None:
        """Cut the power just before that call takes effect."""
        self._require_ahead(op_number)
        self._cut_at = op_number

    def after_cut(
        self, *, torn_bytes: int | None = None, keep: str = "none", rng: random.Random | None = None
    ) -> MemFiles:
        """What the next boot finds if the power goes, or went, now.

        `keep` says which changes that were not synced are there: "none", "all" (as after kill -9: nothing was lost), or
        "random": any of a file's, in order, and the first few of a directory's. A file renamed into another directory
        can then be in both, or in neither. `torn_bytes` adds the first bytes of the last write, also of one that the
        cut prevented, unless a sync or truncation of that file came after it.
        """
        if keep not in ("none", "all", "random"):
            raise ValueError(f"keep is none, all or random, not {keep!r}")
        if keep == "random" and rng is None:
            raise ValueError("keep='random' needs an rng")
        with self._mutex:
            survivors = _Survivors(keep, rng or random.Random(0))
            root = survivors.dir(self._root)
            if torn_bytes is not None and self._last_write is not None:
                _tear(survivors, self._last_write, torn_bytes)
            return self._on(root)

    def copy(self) -> MemFiles:
        """The same visible files, all durable, apart from these."""
        return self.after_cut(keep="all")

    def snapshot(self) -> dict[str, bytes]:
        """The visible content of all files by path; a directory without files leaves no trace."""
        with self._mutex:
            nodes = _walk(self._root, "")
            return {path: bytes(node.data) for path, node in nodes if isinstance(node, _Inode)}

    def load(self, snapshot: Mapping[str, bytes]) -> None:
        """Have these files and no others, all durable."""
        with self._mutex:
            self._root = _Dir()
            for path, content in snapshot.items():
                *parents, name = _names(path)
                directory = self._make_missing(parents)
                directory.edit({name: _Inode(content)})
                directory.sync()

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, bytes]) -> MemFiles:
        """A file system with these files, all durable."""
        files = cls()
        files.load(snapshot)
        return files

    def flip(self, path: str, bit: int) -> None:
        """Damage one bit of a file, in memory and on the disk; bit 8 is the lowest of the second byte."""
        inode = self._inode(path)
        if not 0 <= bit < 8 * len(inode.data):
            raise ValueError(f"{path}: no bit {bit} in {len(inode.data)} bytes")
        inode.flip(bit // 8, 1 << bit % 8)

    # What the code under test does

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        if create:
            return _MemFile(self, path, self._create(path), writable=True)
        with self._reading():
            return _MemFile(self, path, self._inode(path), writable=write)

    def list(self, directory: str) -> builtins.list[str]:
        with self._reading():
            return sorted(self._dir(_names(directory), directory).entries)

    def exists(self, path: str) -> bool:
        with self._reading():
            try:
                self._node(_names(path), path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def size(self, path: str) -> int:
        with self._reading():
            return len(self._inode(path).data)

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        with self._reading() if self.exists(path) else self._mutating(f"make_dirs {_shown(path)}"):
            self._make_missing(_names(path), durable=durable)

    def rename(self, source: str, target: str) -> None:
        with self._mutating(f"rename {_shown(source)} {_shown(target)}"):
            source_dir, source_name = self._parent(source)
            target_dir, target_name = self._parent(target)
            node = self._node(_names(source), source)
            _check_replace(node, target_dir.entries.get(target_name), target)
            if _shown(target).startswith(_shown(source) + "/"):
                raise OSError(errno.EINVAL, "a directory cannot move into itself", target)
            if source_dir is target_dir:
                source_dir.edit({source_name: None, target_name: node})
            else:
                target_dir.edit({target_name: node})
                source_dir.edit({source_name: None})

    def remove(self, path: str) -> None:
        with self._mutating(f"remove {_shown(path)}"):
            self._inode(path)
            directory, name = self._parent(path)
            directory.edit({name: None})

    def remove_tree(self, path: str) -> None:
        with self._reading():
            if not self.exists(path):
                return
            top = self._dir(_names(path), path)
            for found, _ in (*_walk(top, _shown(path)), (path, top)):
                with self._mutating(f"remove {_shown(found)}"):
                    directory, name = self._parent(found)
                    directory.edit({name: None})

    def sync_dir(self, path: str) -> None:
        with self._mutating(f"sync_dir {_shown(path)}"):
            self._dir(_names(path), path).sync()

    def lock(self, path: str, *, shared: bool = False) -> Lock:
        with self._reading():
            inode = self._inode(path) if self.exists(path) else self._create(path)
            if inode.lock_count < 0 or (inode.lock_count and not shared):
                raise StoreLocked(path)
            inode.lock_count += 1 if shared else -1
            return _MemLock(path, inode)

    # How calls are counted and fail

    def _require_ahead(self, op_number: int) -> None:
        if op_number <= self.op_count:
            raise ValueError(f"operation {op_number} is past: {self.op_count} are done")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Do something that needs power, alone."""
        with self._mutex:
            if not self._has_power:
                raise PowerCut("the power is off")
            yield

    @contextmanager
    def _mutating(self, text: str) -> Iterator[None]:
        """Count an operation, and do it unless it is to fail."""
        with self._reading():
            fault = self._count(text)
            if fault is not None:
                raise fault.error
            yield

    def _count(self, text: str) -> _Fault | None:
        self.op_count += 1
        self.ops.append(text)
        if self.op_count == self._cut_at:
            self._has_power = False
            raise PowerCut(f"power cut at operation {self.op_count}: {text}")
        return self._faults.pop(self.op_count, None)

    def _write(self, text: str, inode: _Inode, offset: int, data: bytes) -> None:
        """Write, or write a part and fail, or remember what the cut prevented."""
        with self._reading():
            before, self._last_write = self._last_write, _Write(inode, offset, data)
            fault = self._count(text) or self._lack_of_space(inode, offset, data)
            if fault is not None:
                data = data[: fault.partial_bytes]
                self._last_write = _Write(inode, offset, data) if data else before
            inode.change(_Change(offset, bytearray(data)))
            if fault is not None:
                raise fault.error

    def _lack_of_space(self, inode: _Inode, offset: int, data: bytes) -> _Fault | None:
        """What a write does that does not fit: it writes what does."""
        missing = max(0, offset + len(data) - len(inode.data)) - self.free_size
        if missing <= 0:
            return None
        return _Fault(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), max(len(data) - missing, 0))

    def _truncate(self, text: str, inode: _Inode, size: int) -> None:
        with self._mutating(text):
            inode.change(_Change(size, None))
            self._forget_write(inode)

    def _sync(self, text: str, inode: _Inode) -> None:
        with self._reading():
            fault = self._count(text)
            if fault is not None:
                inode.lose()
                raise fault.error
            inode.sync()
            self._forget_write(inode)

    def _forget_write(self, inode: _Inode) -> None:
        if self._last_write is not None and self._last_write.inode is inode:
            self._last_write = None

    # How paths are found

    def _node(self, names: Sequence[str], path: str) -> _Node:
        node: _Node = self._root
        for name in names:
            if not isinstance(node, _Dir):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if name not in node.entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = node.entries[name]
        return node

    def _dir(self, names: Sequence[str], path: str) -> _Dir:
        node = self._node(names, path)
        if not isinstance(node, _Dir):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _inode(self, path: str) -> _Inode:
        node = self._node(_names(path), path)
        if isinstance(node, _Dir):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _parent(self, path: str) -> tuple[_Dir, str]:
        names = _names(path)
        if not names:
            raise OSError(errno.EBUSY, "the root stays", path)
        return self._dir(names[:-1], path), names[-1]

    def _create(self, path: str) -> _Inode:
        with self._mutating(f"create {_shown(path)}"):
            directory, name = self._parent(path)
            if name in directory.entries:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            inode = _Inode()
            directory.edit({name: inode})
            return inode

    def _make_missing(self, names: Sequence[str], *, durable: bool = True) -> _Dir:
        """Walk down, making directories that are not there."""
        directory = self._root
        for name in names:
            if name not in directory.entries:
                directory.edit({name: _Dir()})
                if durable:
                    directory.sync()
            child = directory.entries[name]
            if not isinstance(child, _Dir):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            directory = child
        return directory

    @classmethod
    def _on(cls, root: _Dir) -> MemFiles:
        files = cls()
        files._root = root
        return files


class _MemFile(File):
    """An open file of a MemFiles; it keeps its inode, whatever becomes of the name."""

    def __init__(self, files: MemFiles, path: str, inode: _Inode, *, writable: bool) -> None:
        self.path = path
        self._files = files
        self._inode = inode
        self._writable = writable
        self._closed = False

    def pread(self, offset: int, size: int) -> bytes:
        with self._files._reading():
            self._check(offset, size)
            return bytes(self._inode.data[offset : offset + size])

    def pread_into(self, offset: int, buffer: bytearray | memoryview) -> int:
        view = memoryview(buffer).cast("B")
        data = self.pread(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def pwrite(self, offset: int, data: Buffer) -> None:
        self._write("pwrite", offset, bytes(data))

    def pwritev(self, offset: int, parts: Sequence[Buffer]) -> None:
        self._write("pwritev", offset, b"".join(parts))

    def _write(self, verb: str, offset: int, data: bytes) -> None:
        with self._files._reading():
            self._check(offset, write=True)
            self._files._write(f"{verb} {_shown(self.path)} {offset}+{len(data)}", self._inode, offset, data)

    def size(self) -> int:
        with self._files._reading():
            self._check()
            return len(self._inode.data)

    def truncate(self, size: int) -> None:
        with self._files._reading():
            self._check(size, write=True)
            self._files._truncate(f"truncate {_shown(self.path)} {size}", self._inode, size)

    def sync(self) -> None:
        with self._files._reading():
            self._check()
            self._files._sync(f"sync {_shown(self.path)}", self._inode)

    def close(self) -> None:
        self._closed = True

    def _check(self, *numbers: int, write: bool = False) -> None:
        """Refuse what the OS refuses: a closed file, a write to one that is read only, a number below zero."""
        if self._closed or (write and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        if any(number < 0 for number in numbers):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)


class _MemLock(Lock):
    """A lock on an inode."""

    def __init__(self, path: str, inode: _Inode) -> None:
        self.path = path
        self._inode: _Inode | None = inode

    def release(self) -> None:
        if self._inode is not None:
            self._inode.lock_count -= 1 if self._inode.lock_count > 0 else -1
            self._inode = None


def _tear(survivors: _Survivors, write: _Write, size: int) -> None:
    """Add the first bytes of a write to the file it was for, if the next boot has that file."""
    inode = survivors.inodes.get(write.inode)
    if inode is not None:
        inode.change(_Change(write.offset, bytearray(write.data[:size])))
        inode.sync()


def _walk(directory: _Dir, path: str) -> Iterator[tuple[str, _Node]]:
    """All nodes below a directory with their paths, what a directory holds before itself."""
    for name, node in sorted(directory.entries.items()):
        found = f"{path}/{name}" if path else name
        if isinstance(node, _Dir):
            yield from _walk(node, found)
        yield found, node


def _check_replace(source: _Node, target: _Node | None, path: str) -> None:
    """Refuse a rename as the OS does: a directory replaces only an empty one, a file only a file."""
    if target is None or target is source:
        return
    if isinstance(target, _Dir) and not isinstance(source, _Dir):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if isinstance(source, _Dir) and not isinstance(target, _Dir):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if isinstance(target, _Dir) and target.entries:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)


def _names(path: str) -> builtins.list[str]:
    return [name for name in posixpath.normpath("/" + path).split("/") if name]


def _shown(path: str) -> str:
    return "/".join(_names(path))
