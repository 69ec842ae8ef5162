"""A stream that is being made of messages with given sequences and times: an import, or a restore.

It is written into a directory of its own, which has the name of a deleted stream: nobody serves it, and if it is never
finished the next start of a server removes it. When everything is there and durable, one rename makes it the stream.
So it is there whole, or not at all.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from jetlake.clock import Clock, system_clock
from jetlake.errors import StoreError
from jetlake.jetstream.consumers.config import ConsumerConfig
from jetlake.jetstream.consumers.state_files import ConsumerFiles, encode_meta
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.jetstream.streams.meta import (
    CONSUMERS_NAME,
    MSGS_NAME,
    StreamMeta,
    is_vacant,
    stream_directory,
    tomb_directory,
    write_meta,
)
from jetlake.store import FileOptions, FileStore, MemStore
from jetlake.store.api import StreamState
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.consumer_state import ConsumerState, encode_state
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.store.format import Buffer

_PLAIN = Sealer()
_NO_EXPIRY: array[int] = array("q")
PENDING_SIZE_MAX = 8 * 1024 * 1024  # staged messages are written when there are so many bytes of them


class DraftConsumer(NamedTuple):
    """A consumer with what it remembers."""

    name: str
    created_ns: int
    config: ConsumerConfig
    state: ConsumerState

    @property
    def is_in_memory(self) -> bool:
        """Whether it has no file."""
        return self.config.mem_storage or self.config.direct

    def encode(self) -> bytes:
        """The bytes of its file."""
        return encode_state(self.state, encode_meta(self.name, self.created_ns, self.config))


class StreamDraft:
    """A stream in the making. Not for memory streams, which have no files."""

    def __init__(
        self,
        streams: str,
        config: StreamConfig,
        created_ns: int,
        *,
        first_seq: int = 1,
        options: FileOptions = FileOptions(),  # noqa: B008  frozen
        sealer: Sealer = _PLAIN,
        files: Files = OS_FILES,
        clock: Clock = system_clock,
    ) -> None:
        """`streams` is the directory of the account's streams."""
        self.config, self.created_ns = config, created_ns
        self._streams, self._sealer, self._files = streams, sealer, files
        self._target = stream_directory(streams, config.name)
        self._check_vacant()
        self.directory = tomb_directory(streams)
        self.consumers: list[DraftConsumer] = []
        files.make_dirs(self.directory)
        try:
            # Only `finish` syncs, and limits are applied when the stream is opened.
            self.store = FileStore(
                f"{self.directory}/{MSGS_NAME}",
                options=options,
                first_seq=first_seq,
                files=files,
                clock=clock,
                autocommit=False,
                tree_locked=True,
            )
        except BaseException:
            files.remove_tree(self.directory)
            raise

    def add(
        self,
        data: Buffer,
        ops: array[int],
        seqs: array[int],
        times: array[int],
        expires: array[int] = _NO_EXPIRY,
        *,
        stop: int | None = None,
    ) -> None:
        """Store messages: see `append_batch_at`."""
        self.store.append_batch_at(data, ops, seqs, times, expires, stop=stop)
        if sum(block.pending_size for block in self.store.catalog.blocks[-2:]) > PENDING_SIZE_MAX:
            self.store.commit(sync=False)

    def finish(self, last_seq: int = 0) -> StreamState:
        """Give the stream its place, durable when this returns; its state. Sequences up to `last_seq` are used up."""
        state = self.seal(last_seq)
        self.place()
        return state

    def seal(self, last_seq: int = 0) -> StreamState:
        """Make everything durable where it is; the stream's state."""
        if last_seq > self.store.fast_state().last_seq:
            self.store.skip(last_seq - self.store.fast_state().last_seq)
        self.store.commit(sync=True)
        state = self.store.fast_state()
        self.store.stop()
        files = ConsumerFiles(self._files, f"{self.directory}/{CONSUMERS_NAME}", self._sealer, self.config.name)
        for consumer in self.consumers:
            if not consumer.is_in_memory:
                files.write(files.path(consumer.name, consumer.created_ns), consumer.encode())
        meta = StreamMeta(created_ns=self.created_ns, config=self.config)
        write_meta(self._files, self.directory, meta, self._sealer)
        self._files.sync_dir(self.directory)
        return state

    def place(self) -> None:
        """Let a sealed draft be the stream."""
        self._check_vacant()
        if self._files.exists(self._target):  # what an interrupted creation left
            self._files.remove_tree(self._target)
        self._files.rename(self.directory, self._target)
        self._files.sync_dir(self._streams)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self.store.release()
        self._files.remove_tree(self.directory)

    def _check_vacant(self) -> None:
        if not is_vacant(self._files, self._target):
            raise StoreError(f"{self._target}: there is a stream or something else already")


class MemoryDraft:
    """A memory stream in the making: the same, and nothing of it is anywhere before it is the stream."""

    def __init__(self, config: StreamConfig, created_ns: int, *, first_seq: int, clock: Clock) -> None:
        self.config, self.created_ns = config, created_ns
        self.consumers: list[DraftConsumer] = []
        self.store = MemStore(name=config.name, first_seq=first_seq, clock=clock, autocommit=False)

    def add(
        self,
        data: Buffer,
        ops: array[int],
        seqs: array[int],
        times: array[int],
        expires: array[int] = _NO_EXPIRY,
        *,
        stop: int | None = None,
    ) -> None:
        """Store messages: see `append_batch_at`."""
        self.store.append_batch_at(data, ops, seqs, times, expires, stop=stop)

    def seal(self, last_seq: int = 0) -> StreamState:
        """Use up sequences up to `last_seq`; the stream's state."""
        if last_seq > self.store.fast_state().last_seq:
            self.store.skip(last_seq - self.store.fast_state().last_seq)
        return self.store.fast_state()

    def place(self) -> None:
        """It has its place when it is opened."""

    def abandon(self) -> None:
        """Leave nothing behind."""


Draft = StreamDraft | MemoryDraft
