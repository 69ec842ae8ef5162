"""Make streams of a nats-server's store directory: messages, times, sequences, configuration and consumers as they are.

The server that wrote it must not be running, and neither must the one that will serve the copy. A stream is imported
whole or not at all; what damaged files lose of it is listed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from msgspec.structs import replace

from jetlake.config.options import AccountJetStream, JetStreamLimits
from jetlake.errors import JetLakeError, StoreError
from jetlake.jetstream.consumers.config import read_config as read_consumer_config
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.json.shape import Struct, read_request
from jetlake.jetstream.snapshots.draft import DraftConsumer, StreamDraft
from jetlake.jetstream.streams.config import CONFIG, Compression, StreamConfig, with_level
from jetlake.jetstream.streams.durations import parse_ttl
from jetlake.jetstream.streams.meta import LOCK_NAME, account_directory
from jetlake.jetstream.streams.rules import check_config
from jetlake.ops import OP_SPECIAL, OP_WORDS
from jetlake.store import Compression as StoreCompression
from jetlake.store import FileOptions
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.store.format import NEVER_NS
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.nats.blocks import Batch, BlockReader
from jetlake.store.nats.live import Live
from jetlake.store.nats.stream_dir import Consumer, NatsStream, StreamDir, list_streams
from jetlake.store.redo.replay import replay
from jetlake.wire.go_time import parse_time
from jetlake.wire.headers import header_value
from jetlake.wire.json_text import encode_json

ROOT_NAME = "jetstream"
_CONFIG = Struct("", {"config": CONFIG})
_NO_EXPIRY: array[int] = array("q")
Progress = Callable[[str, int], None]  # the stream, and how many bytes of its blocks are done


class Imported(NamedTuple):
    """What became of a stream."""

    account: str
    stream: str
    msgs: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    consumers: int = 0
    lost: tuple[tuple[int, int], ...] = ()  # sequences that damaged files cost
    problems: tuple[str, ...] = ()  # what was wrong with files, or is not as it was
    error: str = ""  # why it was not imported


def ttl_of(headers: bytes) -> int:
    """How long a message with these headers stays, in ns; 0: no TTL of its own."""
    value = header_value(headers, b"Nats-TTL")
    return (parse_ttl(value.decode("utf-8", "replace")) or 0) if value is not None else 0


def import_store(
    source: str,
    target: str,
    *,
    secrets: Sequence[bytes] = (),
    streams: str = "",
    account: str = "",
    progress: Progress = lambda stream, size: None,
    files: Files = OS_FILES,
) -> Iterator[Imported]:
    """Import the streams that comma-separated names or patterns mean, or all, into a store directory.

    Raises StoreError when nothing can be imported at all, StoreLocked when a server has the target open.
    """
    found = [each for each in list_streams(source, files) if _is_meant(each, streams, account)]
    if not found:
        raise StoreError(f"{source}: no stream of a nats-server there" + (f" is called {streams}" if streams else ""))
    root = f"{target}/{ROOT_NAME}"
    files.make_dirs(root)
    with ExitStack() as stack:
        stack.enter_context(files.lock(f"{root}/{LOCK_NAME}"))
        replay(files, root)
        for each in found:
            try:
                yield _Import(each, root, secrets, progress, files).run()
            except ApiError as error:
                yield Imported(each.account, each.name, error=error.description)
            except (OSError, JetLakeError) as error:
                yield Imported(each.account, each.name, error=str(error))


def _is_meant(found: StreamDir, streams: str, account: str) -> bool:
    patterns = [part.strip() for part in streams.split(",") if part.strip()]
    is_named = not patterns or any(fnmatchcase(found.name, pattern) for pattern in patterns)
    return is_named and account in ("", found.account)


class _Import:
    """The import of one stream."""

    def __init__(self, found: StreamDir, root: str, secrets: Sequence[bytes], progress: Progress, files: Files) -> None:
        self._source = NatsStream(found, secrets, ttl_of, files)
        self._root, self._secrets, self._progress, self._files = root, secrets, progress, files
        self._problems: list[str] = []

    def run(self) -> Imported:
        source = self._source
        config = self._config()
        before = source.fingerprint()
        live = source.live()
        self._problems += live.problems
        first_seq = live.blocks[0].first_seq if live.blocks else live.last_seq + 1
        is_s2 = config.compression is Compression.S2
        options = FileOptions(compression=StoreCompression.SNAPPY if is_s2 else StoreCompression.NONE)
        created_ns = parse_time(str(source.meta.get("Created", "1970-01-01T00:00:00Z")))
        streams = account_directory(self._root, source.account)
        self._files.make_dirs(streams)
        draft = StreamDraft(
            streams, config, created_ns, first_seq=max(first_seq, 1), options=options, files=self._files
        )
        try:
            lost = self._copy(draft, live)
            consumers = self._add_consumers(draft)
            if source.fingerprint() != before:
                raise StoreError(f"{source.path}: changed while it was read: is its nats-server running?")
            state = draft.finish(live.last_seq)
        except BaseException:
            draft.abandon()
            raise
        numbers = (state.msgs, state.bytes, state.first_seq, state.last_seq, consumers)
        return Imported(source.account, source.name, *numbers, tuple(lost.ranges()), tuple(self._problems))

    def _config(self) -> StreamConfig:
        """The configuration as this server keeps it; raises ApiError for what it cannot do."""
        fields = {name: value for name, value in self._source.meta.items() if name != "Created"}
        text = b'{"config":%s}' % encode_json(fields)
        config: StreamConfig = read_request(text, _CONFIG, strict=False)["config"]
        if config.num_replicas > 1:
            self._problems.append(f"it had {config.num_replicas} replicas, and has one now")
            config = replace(config, num_replicas=1)
        config = check_config(config, pedantic=False, account=AccountJetStream(), server=JetStreamLimits())
        return with_level(config)

    def _copy(self, draft: StreamDraft, live: Live) -> SequenceSet:
        """Copy the messages; which of them cannot be had."""
        reader, lost = BlockReader(self._secrets, self._files), SequenceSet()
        lost.update(live.lost)
        has_ttls = draft.config.allow_msg_ttl
        for block in live.blocks:
            wanted = block.live
            for batch in reader.live(block):
                expires = expiry_of(batch) if has_ttls else _NO_EXPIRY
                draft.add(batch.data, batch.ops, batch.seqs, batch.times, expires, stop=batch.entries)
                _forget(wanted, batch)
            if wanted:
                lost.update(wanted)
                self._problems.append(f"{block.place.path}: {reader.problem or 'messages are missing'}")
            self._progress(self._source.name, block.file_size)
        return lost

    def _add_consumers(self, draft: StreamDraft) -> int:
        consumers, problems = self._source.consumers()
        self._problems += problems
        count = 0
        for consumer in consumers:
            try:
                draft.consumers.append(as_draft(consumer))
                count += 1
            except (ApiError, ValueError) as error:
                text = error.description if isinstance(error, ApiError) else str(error)
                self._problems.append(f"consumer {consumer.name}: {text}")
        return count


def as_draft(consumer: Consumer) -> DraftConsumer:
    """A consumer of nats-server as one of ours; raises ApiError or ValueError."""
    fields: dict[str, Any] = {name: value for name, value in consumer.meta.items() if name not in ("Created", "Name")}
    config = read_consumer_config(encode_json(fields))
    created_ns = parse_time(str(consumer.meta.get("Created", "1970-01-01T00:00:00Z")))
    return DraftConsumer(consumer.name, created_ns, config, consumer.state)


def expiry_of(batch: Batch) -> array[int]:
    """When each message expires; nothing when none of them has a TTL."""
    flags = batch.ops[9 : batch.entries * OP_WORDS : OP_WORDS]
    if not any(flag & OP_SPECIAL for flag in flags):
        return _NO_EXPIRY
    expires = array("q", bytes(8 * batch.entries))
    for place, flag in enumerate(flags):
        if flag & OP_SPECIAL:
            start, size = batch.ops[place * OP_WORDS + 4 : place * OP_WORDS + 6]
            ttl_ns = ttl_of(bytes(batch.data[start : start + size]))
            if ttl_ns:
                expires[place] = min(batch.times[place] + ttl_ns, NEVER_NS) if ttl_ns < NEVER_NS else NEVER_NS
    return expires


def _forget(wanted: SequenceSet, batch: Batch) -> None:
    """Take the sequences of a batch out of a set."""
    seqs = batch.seqs
    first, last = seqs[0], seqs[batch.entries - 1]
    if last - first + 1 == batch.entries:
        wanted.remove_range(first, last)
        return
    found = SequenceSet()
    found.add_all(seqs[: batch.entries])
    wanted.difference_update(found)
