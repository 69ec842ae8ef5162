"""Keeps what a consumer remembers in a file.

The file is `store.consumer_state`'s, written as a whole: the state, and the configuration in its `meta`. Its name is
that of the consumer and of the time it was made, so that a consumer which is deleted and made again never shares a file
with what it was before; of two files for one name, recovery takes the younger.

A change that somebody waits for is committed at once (`when_durable`); others are written a little later, together.
Those writes stand in line, one at a time for a whole server, so that many busy consumers do not keep the disk from
streams.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from jetlake.clock import SECOND_NS
from jetlake.errors import CorruptBlock, WrongKey
from jetlake.jetstream.consumers.config import ConsumerConfig, config_json, read_config
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Host
from jetlake.store.blocks.block_file import BlockFile
from jetlake.store.blocks.envelope import Cipher
from jetlake.store.blocks.sealed_file import Sealer, is_sealed
from jetlake.store.consumer_state import (
    MAGIC,
    ConsumerState,
    PackedPending,
    consumer_file_name,
    decode_state,
    encode_state,
)
from jetlake.store.disk.files import Files, atomic_write, is_temp
from jetlake.store.redo.entries import Entry, Remove, Replace
from jetlake.store.redo.redo_log import RedoLog
from jetlake.wire.json_text import encode_json, readable

if TYPE_CHECKING:
    from jetlake.jetstream.host import Commit

LAZY_NS = SECOND_NS
RETRY_NS = 2 * SECOND_NS
REPLACED = ".replaced"  # behind the name of a file that cannot be read, once another consumer has its name
_PLAIN = Sealer()
_FILE_NAME = re.compile(r"(.+)\.([0-9a-f]+)")

Callback = Callable[[], None]


class Kept(NamedTuple):
    """What a file says."""

    name: str
    created_ns: int
    config: ConsumerConfig
    state: ConsumerState
    start_seq: int  # where it was told to start, by its configuration or a reset
    removing: list[int]  # acknowledged messages of a work queue that may not have left it yet
    path: str


class _Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    created_ns: int
    config: msgspec.Raw
    start_seq: int = 0
    removing: list[int] = []


def encode_meta(
    name: str, created_ns: int, config: ConsumerConfig, start_seq: int = 0, removing: Sequence[int] = ()
) -> bytes:
    """What is stored beside the state."""
    text = encode_json(config_json(config))
    return msgspec.json.encode(_Meta(readable(name), created_ns, msgspec.Raw(text), start_seq, list(removing)))


class Unreadable(NamedTuple):
    """A file of a consumer that cannot be read, or a directory of them."""

    path: str
    base: str  # of its name, as it is for this consumer whenever it is made; empty for the directory
    created_ns: int
    error: Exception

    @property
    def name(self) -> str:
        """What the consumer is called, as far as its file tells by its name."""
        return _unquote(self.base)

    @property
    def reason(self) -> str:
        """What clients may know: no paths."""
        error = self.error
        return error.strerror or "I/O error" if isinstance(error, OSError) else str(getattr(error, "problem", error))


class Directory(NamedTuple):
    """What is in the directory of a stream's consumers."""

    kept: list[Kept]  # by name
    unreadable: list[Unreadable]
    leftover: list[str]  # files of consumers that are in the way
    unknown: list[str]  # what is nothing of ours


class ConsumerFiles:
    """The files of a stream's consumers; under a key, neither their contents nor their names tell anything."""

    def __init__(
        self,
        files: Files,
        directory: str,
        sealer: Sealer = _PLAIN,
        stream: str = "",
        redo: RedoLog | None = None,
    ) -> None:
        self._files, self._directory, self._sealer, self.redo = files, directory, sealer, redo
        self._stream = stream
        self._kind = b"consumer " + stream.encode("utf-8", "surrogatepass")

    def base(self, name: str) -> str:
        """What the names of all files begin with that a consumer of this name ever has."""
        if self._sealer.cipher is Cipher.NONE:
            return consumer_file_name(name)
        return self._sealer.opaque_name(f"{self._stream} {name}")

    def path(self, name: str, created_ns: int) -> str:
        return f"{self._directory}/{self.base(name)}.{created_ns:x}"

    def write(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Put a file in place."""
        self._files.make_dirs(self._directory)
        atomic_write(self._files, path, [self.seal(data)], durable=durable)

    def seal(self, data: bytes) -> bytes:
        """The bytes of a file."""
        return self._sealer.seal(data, self._kind)

    def remove(self, path: str, *, durable: bool = True) -> None:
        """Remove a file, which may be gone already."""
        if self._files.exists(path):
            self._files.remove(path)
            if durable:
                self._files.sync_dir(self._directory)

    def read(self) -> Directory:
        """Read all consumers. What is wrong with one of them costs no other."""
        self._files.settle(self._directory)
        found: dict[str, Kept] = {}
        unreadable: list[Unreadable] = []
        leftover: list[str] = []
        unknown: list[str] = []
        try:
            names = self._files.list(self._directory) if self._files.exists(self._directory) else []
        except OSError as error:
            return Directory([], [Unreadable(self._directory, "", 0, error)], [], [])
        for file_name in names:
            path, name = f"{self._directory}/{file_name}", _FILE_NAME.fullmatch(file_name)
            if is_temp(file_name):
                leftover.append(path)
                continue
            if name is None:
                unknown.append(path)
                continue
            try:
                kept = _decode(path, self._sealer.open(self._files.read(path), self._kind, path))
            except (OSError, CorruptBlock, WrongKey) as error:
                unreadable.append(Unreadable(path, name[1], int(name[2], 16), error))
                continue
            if path != self.path(kept.name, kept.created_ns):  # somebody's copy
                unknown.append(path)
                continue
            older = found.get(kept.name)
            if older is None or older.created_ns < kept.created_ns:
                found[kept.name], kept = kept, older  # type: ignore[assignment]  # the older one, if there is one
            if kept is not None:
                leftover.append(kept.path)
        return Directory(sorted(found.values(), key=lambda kept: kept.name), unreadable, leftover, unknown)

    def convert(self) -> None:
        """Bring all files under the key, damaged ones too. What was made by somebody else stays as it is."""
        for file_name in self._files.list(self._directory) if self._files.exists(self._directory) else ():
            path, name = f"{self._directory}/{file_name}", _FILE_NAME.fullmatch(file_name.removesuffix(REPLACED))
            if is_temp(file_name):
                self._files.remove(path)
            elif name is not None:
                self._convert(path, name[1], int(name[2], 16), REPLACED if path.endswith(REPLACED) else "")

    def _convert(self, path: str, base: str, created_ns: int, suffix: str) -> None:
        data = self._files.read(path)
        was_plain = not is_sealed(data)
        if was_plain and not data.startswith(MAGIC):
            return
        with suppress(CorruptBlock):  # what is sealed and damaged tells nothing anyway
            plain = self._sealer.open(data, self._kind, path)
            target = self._target(path, plain, base, created_ns, was_plain).removesuffix(suffix) + suffix
            if target == path and self._sealer.is_current(data):
                return
            self.write(target, plain)
            if target != path:
                self.remove(path)

    def _target(self, path: str, plain: bytes, base: str, created_ns: int, was_plain: bool) -> str:
        """Where a file belongs; a damaged one as far as its name tells."""
        try:
            return self.path(_decode(path, plain).name, created_ns)
        except CorruptBlock:
            return self.path(_unquote(base), created_ns) if was_plain else path


def _decode(path: str, data: bytes) -> Kept:
    state, meta = decode_state(data, path)
    try:
        fields = msgspec.json.decode(meta, type=_Meta)
        config = read_config(bytes(fields.config))
    except (msgspec.MsgspecError, ApiError) as error:
        raise CorruptBlock(path, 0, f"its configuration: {error}") from error
    return Kept(fields.name, fields.created_ns, config, state, fields.start_seq, fields.removing, path)


class Snapshot(NamedTuple):
    """What a file is to say."""

    state: ConsumerState
    pending: PackedPending
    meta: bytes


class _Write:
    """One commit: a new file in place of the old one, or no file."""

    is_small = False

    def __init__(self, files: ConsumerFiles, path: str, snapshot: Snapshot | None, sync: bool) -> None:
        self._files, self._path, self._snapshot, self.sync = files, path, snapshot, sync
        self.redo = files.redo if sync else None

    def run(self) -> None:
        if self._snapshot is not None:
            self._files.write(self._path, self._encode(self._snapshot), durable=self.sync)
        else:
            self._files.remove(self._path, durable=self.sync)

    def _encode(self, snapshot: Snapshot) -> bytes:
        return encode_state(snapshot.state, snapshot.meta, snapshot.pending)

    # Through the redo log

    def entries(self) -> Sequence[Entry]:
        if self._snapshot is None:
            return (Remove(self._path),)
        return (Replace(self._path, self._files.seal(self._encode(self._snapshot))),)

    def apply(self, files: Files) -> None:
        """The file itself is written when the log is retired: nobody reads it before."""

    def block_files(self) -> Sequence[BlockFile]:
        return ()


class Keeper:
    """The file of one consumer: a CommitUnit."""

    is_background = True
    is_synced = True
    is_large = False

    def __init__(
        self,
        host: Host,
        files: ConsumerFiles,
        name: str,
        created_ns: int,
        snapshot: Callable[[], Snapshot],
    ) -> None:
        self._host, self._files, self._snapshot, self._name = host, files, snapshot, name
        self.path = files.path(name, created_ns)
        self._sync = host.options.jetstream.sync_always
        self.is_dirty = self.is_in_line = self._is_deleted = False
        self._is_running = False
        self._waiting: list[Callback] = []
        self._committing: list[Callback] = []
        self.failed: Callable[[BaseException], None] | None = None  # who hears of the next failure, once

    def changed(self) -> None:
        """Something changed that is to be written some time soon."""
        self.is_dirty = True
        if not self.is_in_line and not self._is_deleted:
            _line(self._host).enter(self)

    def when_durable(self, callback: Callback) -> None:
        """Call back once everything up to now is in the file, at once if it is."""
        if not self.is_dirty and not self._is_running:
            callback()
            return
        self._waiting.append(callback)
        self._host.commit_soon(self)

    def delete(self, callback: Callback) -> None:
        """Remove the file, and call back when that is durable."""
        self._is_deleted = self.is_dirty = True
        self.when_durable(callback)

    def flush(self) -> None:
        """Write what is to be written."""
        if self.is_dirty:
            self._host.commit_soon(self)

    # As a CommitUnit

    def commit_now(self) -> bool:
        return False  # it makes and renames a file: not for the loop's thread

    def prepare_commit(self) -> Commit | None:
        self._committing, self._waiting = self._committing + self._waiting, []
        if not self.is_dirty:
            return None
        self.is_dirty, self._is_running = False, True
        return _Write(self._files, self.path, None if self._is_deleted else self._snapshot(), self._sync)

    def complete_commit(self, commit: Any) -> None:
        self._is_running = False
        self._leave_line()
        done, self._committing = self._committing, []
        for callback in done:
            try:
                callback()
            except Exception as error:  # the others wait too
                self._host.failed(f"answer consumer={self._name}", error)

    def fail_commit(self, error: BaseException) -> None:
        """The old file is as it was: try again, and let those who wait go on waiting, or time out."""
        self._is_running = False
        self.is_dirty = True
        self._leave_line()
        self._host.log("error", f"consumer state not written name={self._name} error={error}")
        self._waiting, self._committing = self._committing + self._waiting, []
        failed, self.failed = self.failed, None
        if failed is not None:
            self._waiting.clear()
            failed(error)
        else:
            self._host.call_at(self._host.clock() + RETRY_NS, self.flush)

    def _leave_line(self) -> None:
        """It was written, whoever asked for it; what changed meanwhile has to stand in line."""
        _line(self._host).leave(self)
        if self.is_dirty:
            self.changed()


class _Line:
    """Keepers with changes that nobody waits for, each at most once, written one after the other."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._keepers: deque[tuple[int, Keeper]] = deque()
        self._current: Keeper | None = None
        self._is_waiting = False

    def enter(self, keeper: Keeper) -> None:
        keeper.is_in_line = True
        self._keepers.append((self._host.clock() + LAZY_NS, keeper))
        self._next()

    def leave(self, keeper: Keeper) -> None:
        """A keeper was written. If it stands in line it stays there, and is passed over unless it changes again."""
        if keeper is self._current:
            self._current = None
            self._next()

    def _next(self) -> None:
        if self._current is not None or self._is_waiting or not self._keepers:
            return
        due_ns = self._keepers[0][0]
        if due_ns > self._host.clock():
            self._is_waiting = True
            self._host.call_at(due_ns, self._due)
            return
        _, keeper = self._keepers.popleft()
        keeper.is_in_line = False
        if keeper.is_dirty:
            self._current = keeper
            self._host.commit_soon(keeper)
        else:
            self._host.call_soon(self._next)

    def _due(self) -> None:
        self._is_waiting = False
        self._next()


_lines: WeakKeyDictionary[Host, _Line] = WeakKeyDictionary()


def _line(host: Host) -> _Line:
    found = _lines.get(host)
    if found is None:
        found = _lines[host] = _Line(host)
    return found


def _unquote(text: str) -> str:
    from urllib.parse import unquote  # only for files that cannot be read

    return unquote(text)
