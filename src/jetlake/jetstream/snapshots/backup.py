"""Copies of stream directories: `jetlake backup`, while a server runs or not, and `jetlake restore`.

    BACKUP/jetlake-backup.json                           what was copied, and what it was copied from
    BACKUP/jetstream/<account>/streams/<stream>/...      a store directory like any other: Spark and `serve` read it

Sealed blocks do not change but for rewrites and erasures, so a second backup copies what is new or changed: a file is
known by its inode, size and time of change. Blocks are copied oldest first and the one being written to last, so that
it holds what was logged about the others; that is repeated until no block came or went meanwhile. What is copied is
then a state that a power cut could have left, and so one that the stream had. Every copy is read back and compared.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec
import xxhash

from jetlake.errors import CorruptBlock, JetLakeError, StoreError, WrongKey
from jetlake.jetstream.streams.meta import (
    CONSUMERS_NAME,
    LEDGER_NAME,
    LOCK_NAME,
    META_NAME,
    MSGS_NAME,
    STREAMS_NAME,
    is_tomb,
    is_vacant,
    name_of,
    tomb_directory,
)
from jetlake.store.blocks.catalog import Catalog
from jetlake.store.blocks.envelope import KeySource
from jetlake.store.disk.files import OS_FILES, atomic_write, is_temp
from jetlake.store.format import CHECKPOINT_NAME, parse_block_name, parse_sidecar_name
from jetlake.store.format import LOCK_NAME as STORE_LOCK_NAME
from jetlake.store.view import StreamView

MANIFEST_NAME = "jetlake-backup.json"
ROOT_NAME = "jetstream"
_COPY_SIZE = 4 * 1024 * 1024
_ATTEMPTS_MAX = 50
_SETTLED_NS = 2_000_000_000  # a file that changed later than that ago may change again within a tick of its clock


class Stamp(NamedTuple):
    """What tells a file from what it was."""

    inode: int
    size: int
    mtime_ns: int


class Manifest(msgspec.Struct):
    """Which files were copied, by their paths in the backup."""

    version: int = 1
    files: dict[str, Stamp] = msgspec.field(default_factory=dict)


class Copied(NamedTuple):
    """What became of a stream."""

    account: str
    stream: str
    msgs: int = 0
    first_seq: int = 0
    last_seq: int = 0
    files: int = 0  # that were copied
    bytes: int = 0  # of them
    lost: tuple[tuple[int, int], ...] = ()  # sequences that damage took, there as here
    problems: tuple[str, ...] = ()
    error: str = ""


class StreamPlace(NamedTuple):
    """A stream's directory below a store directory."""

    account: str
    name: str
    path: str  # relative


def find(root: str, streams: str = "", account: str = "") -> list[StreamPlace]:
    """The streams in a store directory that comma-separated names or patterns mean, or all."""
    patterns = [part.strip() for part in streams.split(",") if part.strip()]
    found = []
    for folder in _names(f"{root}/{ROOT_NAME}"):
        for name in _names(f"{root}/{ROOT_NAME}/{folder}/{STREAMS_NAME}"):
            path = f"{ROOT_NAME}/{folder}/{STREAMS_NAME}/{name}"
            place = StreamPlace(name_of(folder), name_of(name), path)
            is_named = not patterns or any(fnmatchcase(place.name, pattern) for pattern in patterns)
            is_meant = not is_tomb(name) and is_named and account in ("", place.account)
            if is_meant and os.path.exists(f"{root}/{path}/{META_NAME}"):
                found.append(place)
    if not found:
        raise StoreError(f"{root}: no stream there" + (f" is called {streams}" if streams else ""))
    return found


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def backup(
    source: str, target: str, *, streams: str = "", account: str = "", keys: Sequence[KeySource] = ()
) -> Iterator[Copied]:
    """Copy streams into a backup, or what changed since the last time; a server may be using them."""
    found = find(source, streams, account)
    OS_FILES.make_dirs(f"{target}/{ROOT_NAME}")
    with OS_FILES.lock(f"{target}/{ROOT_NAME}/{LOCK_NAME}"):
        manifest = _read_manifest(target)
        for place in found:
            try:
                yield _Backup(source, target, place, manifest, keys).run()
            except (OSError, JetLakeError) as error:
                yield Copied(place.account, place.name, error=str(error))
            finally:
                atomic_write(OS_FILES, f"{target}/{MANIFEST_NAME}", [msgspec.json.encode(manifest)])


def _read_manifest(target: str) -> Manifest:
    """What an earlier backup copied; nothing, if that is not known for certain."""
    try:
        return msgspec.json.decode(OS_FILES.read(f"{target}/{MANIFEST_NAME}"), type=Manifest)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return Manifest()


class _Backup:
    """The backup of one stream."""

    def __init__(
        self, source: str, target: str, place: StreamPlace, manifest: Manifest, keys: Sequence[KeySource]
    ) -> None:
        self._from, self._to, self._place = f"{source}/{place.path}", f"{target}/{place.path}", place
        self._manifest, self._keys = manifest, keys
        self._files = self._bytes = 0

    def run(self) -> Copied:
        OS_FILES.make_dirs(f"{self._to}/{MSGS_NAME}")
        self._copy_all(CONSUMERS_NAME, [name for name in self._list(CONSUMERS_NAME) if not is_temp(name)])
        self._copy_all("", [name for name in (META_NAME, LEDGER_NAME) if os.path.exists(f"{self._from}/{name}")])
        self._copy_blocks()
        place, copied = self._place, (self._files, self._bytes)
        try:
            view = StreamView(f"{self._to}/{MSGS_NAME}", keys=self._keys)
            catalog = view.refresh()
        except WrongKey:
            note = "encrypted: copied and compared, but not checked without its key"
            return Copied(place.account, place.name, 0, 0, 0, *copied, (), (note,))
        numbers = (_live_count(catalog), catalog.first_seq, catalog.last_seq)
        return Copied(place.account, place.name, *numbers, *copied, tuple(catalog.lost.ranges()), tuple(view.damage))

    def _copy_blocks(self) -> None:
        """Copy blocks until none came or went meanwhile."""
        for _ in range(_ATTEMPTS_MAX):
            before = self._blocks()
            # Before the blocks: what it says of them must not be younger than they are.
            self._copy_all(MSGS_NAME, [name for name in self._list(MSGS_NAME) if name == CHECKPOINT_NAME])
            try:
                for name in sorted(before, key=lambda name: parse_block_name(name) or 0):
                    self._copy(f"{MSGS_NAME}/{name}")
                if self._blocks() == before:
                    break
            except FileNotFoundError:
                continue
        else:
            raise StoreError(f"{self._from}: changes faster than it can be copied")
        sidecars = [name for name in self._list(MSGS_NAME) if parse_sidecar_name(name) is not None]
        self._copy_all(MSGS_NAME, sidecars)
        self._drop(MSGS_NAME, {*before, *sidecars, CHECKPOINT_NAME, STORE_LOCK_NAME})
        OS_FILES.sync_dir(f"{self._to}/{MSGS_NAME}")

    def _blocks(self) -> dict[str, int]:
        """Block files and their inodes, which a rewrite changes."""
        names = [name for name in self._list(MSGS_NAME) if parse_block_name(name) is not None]
        found = {}
        for name in names:
            with suppress(FileNotFoundError):
                found[name] = os.stat(f"{self._from}/{MSGS_NAME}/{name}").st_ino
        return found

    def _list(self, folder: str) -> list[str]:
        return _names(f"{self._from}/{folder}")

    def _copy_all(self, folder: str, names: list[str]) -> None:
        """Copy small files, all of them; one that is gone by now is none."""
        for name in names:
            with suppress(FileNotFoundError):
                self._copy(f"{folder}/{name}" if folder else name)
        if folder == CONSUMERS_NAME:
            self._drop(folder, set(names))

    def _drop(self, folder: str, names: set[str]) -> None:
        """Remove from the backup what is gone from the stream."""
        for name in _names(f"{self._to}/{folder}"):
            if name not in names:
                self._manifest.files.pop(f"{self._place.path}/{folder}/{name}", None)
                os.unlink(f"{self._to}/{folder}/{name}")

    def _copy(self, name: str) -> None:
        """Copy a file, unless it is there as it is."""
        key, path, target = f"{self._place.path}/{name}", f"{self._from}/{name}", f"{self._to}/{name}"
        stamp = _stamp(path)
        if self._manifest.files.get(key) == stamp and os.path.exists(target):
            return
        self._bytes += copy_file(path, target)
        self._files += 1
        self._manifest.files.pop(key, None)
        if time.time_ns() - stamp.mtime_ns > _SETTLED_NS and _stamp(path) == stamp:
            self._manifest.files[key] = stamp


def _live_count(catalog: Catalog) -> int:
    runs = (run for block in catalog.blocks for run in block.live_runs(block.first_seq, block.last_seq))
    return sum(last - first + 1 for first, last in runs)


def _stamp(path: str) -> Stamp:
    found = os.stat(path)
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


def copy_file(source: str, target: str) -> int:
    """Put a durable copy of a file in place, read back and compared; its size."""
    OS_FILES.make_dirs(target.rpartition("/")[0])
    temp, digest, offset = f"{target}.copy", xxhash.xxh64(), 0
    try:
        with OS_FILES.open(source) as file, OS_FILES.open(temp, create=True) as copy:
            copy.truncate(0)
            while part := file.pread(offset, _COPY_SIZE):
                copy.pwrite(offset, part)
                digest.update(part)
                offset += len(part)
            copy.sync()
            _compare(copy.pread, offset, digest, temp)
        OS_FILES.rename(temp, target)
    except BaseException:
        with suppress(FileNotFoundError):
            OS_FILES.remove(temp)
        raise
    return offset


def _compare(pread: object, size: int, digest: xxhash.xxh64, path: str) -> None:
    again, offset = xxhash.xxh64(), 0
    assert callable(pread)
    while offset < size:
        part = pread(offset, min(_COPY_SIZE, size - offset))
        if not part:
            break
        again.update(part)
        offset += len(part)
    if again.digest() != digest.digest():
        raise CorruptBlock(path, 0, "what was read back is not what was written")


def restore(
    source: str, target: str, *, streams: str = "", account: str = "", keys: Sequence[KeySource] = ()
) -> Iterator[Copied]:
    """Copy streams of a backup into a store directory whose server does not run. One that is there is left alone."""
    found = find(source, streams, account)
    OS_FILES.make_dirs(f"{target}/{ROOT_NAME}")
    with OS_FILES.lock(f"{target}/{ROOT_NAME}/{LOCK_NAME}"):
        for place in found:
            try:
                yield _restore(source, target, place, keys)
            except (OSError, JetLakeError) as error:
                yield Copied(place.account, place.name, error=str(error))


def _restore(source: str, target: str, place: StreamPlace, keys: Sequence[KeySource]) -> Copied:
    """Copy a stream beside its place first, so that it is there whole or not at all."""
    final, streams = f"{target}/{place.path}", f"{target}/{place.path}".rpartition("/")[0]
    if not is_vacant(OS_FILES, final):
        raise StoreError(f"{final}: there is a stream or something else already")
    OS_FILES.make_dirs(streams)
    draft = tomb_directory(streams)
    count = size = 0
    try:
        for folder in (MSGS_NAME, CONSUMERS_NAME, ""):
            for name in _names(f"{source}/{place.path}/{folder}"):
                path = f"{folder}/{name}" if folder else name
                if name != STORE_LOCK_NAME and os.path.isfile(f"{source}/{place.path}/{path}"):
                    size += copy_file(f"{source}/{place.path}/{path}", f"{draft}/{path}")
                    count += 1
        for folder in (MSGS_NAME, CONSUMERS_NAME):
            if os.path.isdir(f"{draft}/{folder}"):
                OS_FILES.sync_dir(f"{draft}/{folder}")
        OS_FILES.sync_dir(draft)
        view = StreamView(f"{draft}/{MSGS_NAME}", keys=keys)
        catalog = view.refresh()
        if os.path.exists(final):
            OS_FILES.remove_tree(final)
        OS_FILES.rename(draft, final)
        OS_FILES.sync_dir(streams)
    except BaseException:
        with suppress(FileNotFoundError):
            OS_FILES.remove_tree(draft)
        raise
    numbers = (_live_count(catalog), catalog.first_seq, catalog.last_seq, count, size)
    return Copied(place.account, place.name, *numbers, tuple(catalog.lost.ranges()), tuple(view.damage))
