"""MetaFiles: the snapshots of the meta group on disk, kept twice.

    <store_dir>/jetstream/_cluster_/meta.0, meta.1

         0     8  "JLMETA\\0\\1"
         8     8  index       everything up to this entry is in the snapshot; little-endian, as all numbers here
        16     8  XXH64       of the index and what follows it
        24     n  the snapshot (`meta_codec.py`)

Both files hold the same snapshot. They are written one after the other, each as a whole in place of the one before, so
a power cut leaves at least one that is whole, and a damaged one is written anew from the other. The log keeps the
entries of a snapshot until both files are durable. On a server with an encryption key the files are sealed as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import xxhash

from jetlake.clock import SECOND_NS, Clock
from jetlake.errors import CorruptBlock
from jetlake.jetstream.host import Host
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.disk.files import Files, atomic_write, temp_target

NAMES = ("meta.0", "meta.1")
_MAGIC = b"JLMETA\0\1"
_KIND = b"meta snapshot"
_HEAD = struct.Struct("<8sQQ")
assert _HEAD.size == 24
_RETRY_NS = 5 * SECOND_NS


@dataclass(frozen=True, order=True)
class Snapshot:
    """The state of the meta group after an entry."""

    index: int
    data: bytes


def encode_file(snapshot: Snapshot) -> bytes:
    """The bytes of one of the files."""
    digest = xxhash.xxh64_intdigest(snapshot.index.to_bytes(8, "little") + snapshot.data)
    return _HEAD.pack(_MAGIC, snapshot.index, digest) + snapshot.data


def decode_file(data: bytes, path: str) -> Snapshot:
    """The snapshot in a file; raises CorruptBlock."""
    if len(data) < _HEAD.size:
        raise CorruptBlock(path, 0, f"{len(data)} bytes are no snapshot")
    magic, index, digest = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptBlock(path, 0, "not a snapshot of the meta group")
    body = data[_HEAD.size :]
    if xxhash.xxh64_intdigest(index.to_bytes(8, "little") + body) != digest:
        raise CorruptBlock(path, 0, "the checksum does not match")
    return Snapshot(index, body)


class MetaFiles:
    """Reads and writes the two files."""

    def __init__(self, files: Files, directory: str, sealer: Sealer | None = None) -> None:
        self._files, self.directory, self._sealer = files, directory, sealer or Sealer()

    def convert(self) -> None:
        """Bring both files under the first key of the sealer. WrongKey when one is under none of the keys."""
        for path in (f"{self.directory}/{name}" for name in NAMES):
            if self._files.exists(path) and not self._sealer.is_current(data := self._files.read(path)):
                plain = self._sealer.open(data, _KIND, path)
                atomic_write(self._files, path, [self._sealer.seal(plain, _KIND)])

    def read(self, log: Callable[[str, str], None]) -> Snapshot | None:
        """The newest snapshot that is whole; None if there never was one. CorruptBlock if none is, or WrongKey."""
        if not self._files.exists(self.directory):
            return None
        for name in self._files.list(self.directory):
            if temp_target(name) in NAMES:
                self._files.remove(f"{self.directory}/{name}")
        found, problems = self._read_both()
        for problem in problems:
            log("error", f"meta snapshot damaged {problem}")
        if not found:
            if problems:
                raise problems[0]
            return None
        newest = max(found)
        if found != [newest, newest]:
            self.write(newest)
        return newest

    def _read_both(self) -> tuple[list[Snapshot], list[CorruptBlock]]:
        found, problems = [], []
        for path in (f"{self.directory}/{name}" for name in NAMES):
            if not self._files.exists(path):
                continue
            try:
                found.append(decode_file(self._sealer.open(self._files.read(path), _KIND, path), path))
            except CorruptBlock as error:
                problems.append(error)
            except OSError as error:
                problems.append(CorruptBlock(path, 0, error.strerror or "I/O error"))
        return found, problems

    def write(self, snapshot: Snapshot) -> None:
        """Put a snapshot in both files; durable when this returns."""
        self._files.make_dirs(self.directory)
        data = self._sealer.seal(encode_file(snapshot), _KIND)
        for name in NAMES:
            atomic_write(self._files, f"{self.directory}/{name}", [data])


class MetaKeeper:
    """Writes snapshots by way of the commit loop, which keeps the disk out of the loop's thread."""

    is_synced = is_background = is_large = True
    is_small, redo = False, None

    def __init__(self, files: MetaFiles, host: Host) -> None:
        self._files, self._host = files, host
        self._clock: Clock = host.clock
        self._waiting: tuple[Snapshot, Callable[[], None]] | None = None
        self._writing: tuple[Snapshot, Callable[[], None]] | None = None
        self._begun_ns = 0
        self.last_ns = self.last_duration_ns = 0  # of the last snapshot that is durable

    def write(self, index: int, data: bytes, done: Callable[[], None]) -> None:
        """Keep a snapshot; `done` is called when it is durable. One that fails is tried again with the next."""
        self._waiting = Snapshot(index, data), done
        self._host.commit_soon(self)

    # What the commit loop does: see `jetstream.host.CommitUnit`

    def commit_now(self) -> bool:
        return False

    def prepare_commit(self) -> MetaKeeper | None:
        self._writing, self._waiting = self._waiting, None
        self._begun_ns = self._clock()
        return self if self._writing is not None else None

    def run(self) -> None:
        assert self._writing is not None
        self._files.write(self._writing[0])

    def complete_commit(self, commit: MetaKeeper | None) -> None:
        done, self._writing = self._writing, None
        if done is not None:
            self.last_ns = self._clock()
            self.last_duration_ns = max(self.last_ns - self._begun_ns, 0)
            done[1]()

    def fail_commit(self, error: BaseException) -> None:
        """The log keeps the entries, so nothing is lost; the snapshot is tried again later."""
        failed, self._writing = self._writing, None
        self._host.log("error", f"meta snapshot not written {error=!s}")
        if failed is not None and self._waiting is None:
            self._host.call_at(self._clock() + _RETRY_NS, lambda: self._again(failed))

    def _again(self, failed: tuple[Snapshot, Callable[[], None]]) -> None:
        if self._waiting is None and self._writing is None:
            self._waiting = failed
            self._host.commit_soon(self)
