"""JsAccount: the streams of one account, what they may take, and how they come and go.

A stream is durable before anybody is told that it exists: its meta.json and its store are made by its first commit. A
deleted one is renamed to a tomb first, in one durable step, and its files are removed after that; recovery removes
what a crash left over. A stream whose files cannot be read is offline: its name is taken, its files are not touched.

Always true: the subjects of two streams do not overlap; a stream in `streams` has a meta.json that says its config,
unless it is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from jetlake.broker.account import Account
from jetlake.broker.subscription import InternalSubscription
from jetlake.config.options import AccountJetStream
from jetlake.errors import JetLakeError, StoreError
from jetlake.jetstream import advisories, errors
from jetlake.jetstream.api.message_run import MessageRun
from jetlake.jetstream.api.stream_info import consumer_count
from jetlake.jetstream.api_level import API_LEVEL
from jetlake.jetstream.consumers.registry import drop_consumers, take_consumers
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Host
from jetlake.jetstream.sourcing.remotes import Remotes
from jetlake.jetstream.streams.admission import Surroundings, admit_change, admit_new, admit_restored, reserved_size
from jetlake.jetstream.streams.config import Storage, StreamConfig
from jetlake.jetstream.streams.log import LocalLog
from jetlake.jetstream.streams.meta import (
    META_NAME,
    MSGS_NAME,
    StreamMeta,
    account_directory,
    is_vacant,
    seal_meta,
    stream_directory,
    tomb_directory,
)
from jetlake.jetstream.streams.rules import check_config
from jetlake.jetstream.streams.stream import Cut, MakeLog, Stream
from jetlake.store import FileStore, MemStore
from jetlake.subjects import FilterSet

if TYPE_CHECKING:
    from jetlake.jetstream.service import JetStream

UNLIMITED = 1 << 62
_STEP_SIZE_MIN = 4 * 1024 * 1024
_STEPS_MAX = 1024


class JsAccount:
    """The JetStream side of an account."""

    def __init__(
        self, service: JetStream, account: Account, limits: AccountJetStream, api: InternalSubscription
    ) -> None:
        """`api` is the subscription that brings the account's requests."""
        self.service, self.account, self.limits, self.api = service, account, limits, api
        self.host: Host = service.host
        self.files, self.encryption = service.files, service.encryption
        self.directory = account_directory(service.directory, account.name)
        self.streams: dict[str, Stream] = {}
        self.offline: dict[str, str] = {}  # streams that could not be opened, and why
        self.restoring: set[str] = set()  # names of streams that are about to be there
        self.api_total = self.api_errors = 0
        self.message_run = MessageRun(self)
        self._deleting: dict[str, list[Callable[[], None]]] = {}  # who waits for the end of a stream, by its name
        self._room = {storage: Room(self, storage) for storage in Storage}
        self.remotes = Remotes(self)

    # Streams

    def stream(self, name: str) -> Stream:
        """A stream by its name; raises ApiError."""
        found = self.streams.get(name)
        if found is None:
            raise self.surroundings().absence(name)
        return found

    def streams_about(self, subject: str = "") -> list[Stream]:
        """The streams that have a subject in common with a filter, or all, by name."""
        found = (self.streams[name] for name in sorted(self.streams))
        if not subject:
            return list(found)
        wanted = FilterSet([subject])
        return [stream for stream in found if any(map(wanted.overlaps, stream.config.subjects))]

    def when_gone(self, name: str, callback: Callable[[], None]) -> bool:
        """If a stream is being deleted, call back when that is over; False if none is."""
        waiting = self._deleting.get(name)
        if waiting is None:
            return False
        waiting.append(callback)
        return True

    def surroundings(self) -> Surroundings:
        """What decides about a stream of this account, on a server that is alone."""
        return Surroundings(
            self.streams,
            self.limits,
            self.host.options.jetstream.limits,
            self.service.exceeds,
            self.offline,
            self.restoring,
        )

    def create(self, config: StreamConfig, *, pedantic: bool = False) -> Stream:
        """Make a stream, or find the one that is the same; raises ApiError."""
        admitted = admit_new(config, self.surroundings(), pedantic=pedantic)
        return self.streams[config.name] if admitted is None else self.make(admitted, self.host.clock())

    def reserve(self, config: StreamConfig) -> None:
        """Keep the name of a stream that is about to be restored; raises ApiError when it cannot be made."""
        admit_restored(config, self.surroundings())
        self.restoring.add(config.name)

    def updated(self, stream: Stream, config: StreamConfig) -> StreamConfig:
        """The configuration that an update gives a stream; raises ApiError."""
        return admit_change(stream.config, config, stream.consumers, self.surroundings())

    def update(self, stream: Stream, config: StreamConfig) -> None:
        """Give a stream another configuration, which passed `checked`; raises ApiError."""
        self.change(stream, self.updated(stream, config))

    def change(self, stream: Stream, config: StreamConfig) -> None:
        """Give a stream a configuration that was admitted; raises ApiError when it cannot be written."""
        if stream.log.problem is not None:
            raise errors.STREAM_STORE_FAILED("stream can not write at the moment")
        old = stream.config
        self.write_meta(stream, config)
        stream.update(config)
        stream.log.when_durable(
            lambda: advisories.stream_action(self.account, self.host, config.name, "modify"),
            lambda error: stream.revert(old),
        )

    def write_meta(self, stream: Stream, config: StreamConfig) -> None:
        """Have meta.json written by the stream's next commit."""
        if isinstance(stream.store, FileStore):
            path = f"{stream_directory(self.directory, config.name)}/{META_NAME}"
            meta = StreamMeta(created_ns=stream.created_ns, config=config)
            stream.store.replaced.append((path, seal_meta(meta, self.encryption.sealer)))

    def remove(self, stream: Stream, done: Callable[[], None], failed: Callable[[ApiError], None]) -> None:
        """Remove a stream with all it has; one of the two is called when that is durable, or when it went wrong."""
        name = stream.config.name
        del self.streams[name]
        self._deleting[name] = []
        stream.close()

        def bury() -> None:
            if stream.config.storage is Storage.MEMORY:
                finish(None)
                return
            stream.suspend()
            self.host.commit_soon(_Burial(self, name, finish, refuse))

        def refuse(error: BaseException) -> None:
            self.host.log("error", f"stream cannot be deleted name={name} account={self.account.name} {error=!s}")
            self.streams[name] = stream
            stream.resume()
            failed(errors.STREAM_DELETE("stream files can not be removed"))
            self._is_gone(name)

        def finish(tomb: str | None) -> None:
            consumers = take_consumers(stream)
            written = self._clearing(name, tomb, 1 + sum(consumer.keeper is not None for consumer in consumers))
            stream.delete()
            drop(drop_consumers(consumers, written), written)

        def drop(steps: Iterator[None], written: Callable[[], None]) -> None:
            for _ in steps:
                self.host.call_soon(lambda: drop(steps, written))
                return
            advisories.stream_action(self.account, self.host, name, "delete")
            done()
            written()

        stream.log.when_idle(bury)

    def _clearing(self, name: str, tomb: str | None, waiting_for: int) -> Callable[[], None]:
        """Removes what is left of a stream when it was called so many times: its consumers may be written just now."""

        def step() -> None:
            nonlocal waiting_for
            waiting_for -= 1
            if waiting_for == 0:
                directories = [tomb, stream_directory(self.directory, name)] if tomb is not None else []
                self.host.commit_soon(_Removal(self, directories, lambda: self._is_gone(name)))

        return step

    def _is_gone(self, name: str) -> None:
        for callback in self._deleting.pop(name):
            callback()

    def make(self, config: StreamConfig, created_ns: int) -> Stream:
        """Make a stream whose configuration was admitted; raises ApiError when its files cannot be made."""
        directory = stream_directory(self.directory, config.name)
        is_made = False  # whether what is in the directory is the new stream's
        try:
            if config.storage is Storage.FILE:
                self.encryption.check()
                if not is_vacant(self.files, directory):
                    raise StoreError(f"{directory} holds files that are no stream's")
                is_made = True
                self.files.make_dirs(self.directory)
            stream = self.open_stream(config, created_ns, at_once=False, is_new=True)
        except (OSError, JetLakeError) as error:
            self._not_made(config.name, error, directory if is_made else None)
            raise errors.STREAM_CREATE("error creating store for stream") from error
        self.write_meta(stream, config)

        def undo(error: ApiError) -> None:
            if self.streams.get(config.name) is stream:
                del self.streams[config.name]
            stream.abandon()
            self._not_made(config.name, error, directory if is_made else None)

        stream.log.when_durable(
            lambda: advisories.stream_action(self.account, self.host, config.name, "create"),
            undo,
        )
        return stream

    def _not_made(self, name: str, error: BaseException, directory: str | None) -> None:
        self.host.log("error", f"stream not created name={name} account={self.account.name} {error=!s}")
        if directory is not None:
            self._forget(directory)

    def open_stream(
        self,
        config: StreamConfig,
        created_ns: int,
        recover: Callable[[Stream], None] = lambda stream: None,
        *,
        at_once: bool = True,
        is_new: bool = False,
        store: MemStore | FileStore | None = None,
        make_log: MakeLog = LocalLog,
        cut: Cut | None = None,
    ) -> Stream:
        """Open a stream's store, unless it is given, and let it take messages once `recover` is through."""
        is_file = config.storage is Storage.FILE
        directory = f"{stream_directory(self.directory, config.name)}/{MSGS_NAME}" if is_file else None
        stream = Stream(
            self, config, created_ns, directory, store, is_new=is_new and is_file, make_log=make_log, cut=cut
        )
        try:
            recover(stream)
        except BaseException:
            stream.abandon()
            raise
        self.streams[config.name] = stream
        stream.open(at_once=at_once)
        return stream

    def _forget(self, directory: str) -> None:
        """Remove what was made for a stream that did not come to be."""
        try:
            self.files.remove_tree(directory)
        except OSError as error:
            self.host.log("warning", f"directory left over path={directory} {error=!s}")

    # Rules

    def checked(self, config: StreamConfig, *, pedantic: bool) -> StreamConfig:
        """A configuration with everything filled in; raises ApiError."""
        server = self.host.options.jetstream.limits
        return check_config(config, pedantic=pedantic, account=self.limits, server=server)

    def _limit(self, storage: Storage) -> int:
        return self.limits.max_store if storage is Storage.FILE else self.limits.max_memory

    # Usage

    def reserved(self, storage: Storage) -> int:
        """The bytes that streams reserved by their max_bytes."""
        return reserved_size(self.streams, storage)

    def used(self, storage: Storage) -> int:
        """The bytes that messages take."""
        return sum(stream.store.catalog.size for stream in self.streams.values() if stream.config.storage is storage)

    def room(self, storage: Storage) -> Room:
        """Tells how many received bytes may be stored for sure; it is asked for every run of publishes."""
        return self._room[storage]

    def check_room(self, storage: Storage, size: int) -> None:
        """Raise ApiError when a message of this size does not fit into the account or the server."""
        limit = self._limit(storage)
        if 0 <= limit < self.used(storage) + size:
            raise errors.ACCOUNT_RESOURCES_EXCEEDED()
        if self.service.left(storage) < size:
            raise errors.INSUFFICIENT_RESOURCES()

    def left(self, storage: Storage) -> int:
        """The bytes that may still be stored."""
        limit = self._limit(storage)
        own = UNLIMITED if limit < 0 else limit - self.used(storage)
        return min(own, self.service.left(storage))

    def info(self) -> dict[str, Any]:
        """The account in numbers, as the API tells it."""
        limits, domain = self.limits, self.host.options.jetstream.domain
        usage = {
            "memory": self.used(Storage.MEMORY),
            "storage": self.used(Storage.FILE),
            "reserved_memory": self.reserved(Storage.MEMORY),
            "reserved_storage": self.reserved(Storage.FILE),
            "streams": len(self.streams),
            "consumers": sum(consumer_count(stream) for stream in self.streams.values()),
        }
        own, nothing = _limits_json(limits), dict.fromkeys(usage, 0)
        tiers = {
            name: {**(usage if name == "R1" else nothing), "limits": _limits_json(tier)}
            for name, tier in limits.tiers.items()
        }
        return {
            **usage,
            "limits": dict.fromkeys(own, 0) | {"max_bytes_required": False} if tiers else own,
            **({"domain": domain} if domain else {}),
            "api": {"level": API_LEVEL, "total": self.api_total, "errors": self.api_errors},
            **({"tiers": tiers} if tiers else {}),
        }


class _Burial:
    """Takes a stream's directory out of the way in one durable step, as a commit."""

    is_synced = is_background = is_large = True
    is_small, redo = False, None

    def __init__(
        self, account: JsAccount, name: str, done: Callable[[str], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._redo, self._done, self._failed = account.service.redo, done, failed
        self._directory, self._tomb = stream_directory(account.directory, name), tomb_directory(account.directory)

    def commit_now(self) -> bool:
        return False

    def prepare_commit(self) -> _Burial:
        return self

    def run(self) -> None:
        self._redo.rename(self._directory, self._tomb)

    def complete_commit(self, commit: _Burial) -> None:
        self._done(self._tomb)

    def fail_commit(self, error: BaseException) -> None:
        self._failed(error)


def _limits_json(limits: AccountJetStream) -> dict[str, Any]:
    return {
        "max_memory": limits.max_memory,
        "max_storage": limits.max_store,
        "max_streams": limits.max_streams,
        "max_consumers": limits.max_consumers,
        "max_ack_pending": limits.max_ack_pending,
        "memory_max_stream_bytes": limits.memory_max_stream_bytes,
        "storage_max_stream_bytes": limits.store_max_stream_bytes,
        "max_bytes_required": limits.max_bytes_required,
    }


class _Removal:
    """Directories that are to go, as a commit, which keeps the disk out of the loop's thread."""

    is_synced = is_background = is_large = True
    is_small, redo = False, None

    def __init__(self, account: JsAccount, directories: list[str], done: Callable[[], None]) -> None:
        self._files, self._host, self._directories, self._done = account.files, account.host, directories, done

    def commit_now(self) -> bool:
        return False

    def prepare_commit(self) -> _Removal:
        return self

    def run(self) -> None:
        for directory in self._directories:
            self._files.remove_tree(directory)

    def complete_commit(self, commit: _Removal) -> None:
        self._done()

    def fail_commit(self, error: BaseException) -> None:
        """The stream is gone all the same; the next start tries again."""
        self._host.log("warning", f"files of a deleted stream left over paths={self._directories} {error=!s}")
        self._done()


class Room:
    """What is left of a storage, counted anew only when it could have run out since.

    Nobody can store more than a step's worth of bytes between two questions, so with much room left there is no need to
    add up all streams for each of them. A message takes up to four times the bytes that were received of it.
    """

    def __init__(self, account: JsAccount, storage: Storage) -> None:
        self._account, self._storage = account, storage
        self._step_size = max(_STEP_SIZE_MIN, 4 * account.host.options.max_payload)
        self._steps = 0

    def left(self) -> int:
        if self._steps:
            self._steps -= 1
            return self._step_size
        left = max(self._account.left(self._storage), 0)
        self._steps = min(left // self._step_size, _STEPS_MAX) // 8
        return left // 4
