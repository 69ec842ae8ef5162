"""Streams in the store directory of a nats-server that does not run: which there are, and what each of them is.

`path` is one of
    the server's store_dir            the directory that holds jetstream/
    one stream's own directory        the one with meta.inf and msgs/ in it
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag

from jetlake.errors import CorruptBlock, WrongKey
from jetlake.store.consumer_state import ConsumerState
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.nats import format
from jetlake.store.nats.blocks import BlockReader, Place, read_key
from jetlake.store.nats.consumers import decode_state
from jetlake.store.nats.index import MAGIC_BYTES, Index, checked_body, parse_index
from jetlake.store.nats.keys import AssetKey, unwrap
from jetlake.store.nats.live import Limits, Live, live_by_index, live_by_scan, why_stale
from jetlake.store.nats.walk import hash64

ROOT_NAME = "jetstream"
_KEY_SUFFIX, _OLD_INDEX_SUFFIX = ".key", ".idx"

TtlOf = Callable[[bytes], int]


class StreamDir(NamedTuple):
    """A stream on disk."""

    account: str
    name: str
    path: str


class Consumer(NamedTuple):
    """A consumer as its files tell."""

    name: str
    meta: dict[str, Any]  # of meta.inf: Created, Name, and its configuration
    state: ConsumerState


def is_nats_store(path: str, files: Files = OS_FILES) -> bool:
    """Whether a directory is a nats-server's, or a stream of one."""
    if files.exists(f"{path}/{format.META_NAME}"):
        return True
    try:
        return any(True for _ in list_streams(path, files=files))
    except OSError:
        return False


def list_streams(path: str, files: Files = OS_FILES) -> Iterator[StreamDir]:
    """All streams below a path, by account and name."""
    path = path.rstrip("/") or "/"
    if files.exists(f"{path}/{format.META_NAME}"):
        parent = os.path.dirname(os.path.abspath(path))
        yield StreamDir(os.path.basename(os.path.dirname(parent)), os.path.basename(os.path.abspath(path)), path)
        return
    root = f"{path}/{ROOT_NAME}"
    for account in _directories(files, root):
        streams = f"{root}/{account}/{format.STREAMS_NAME}"
        for name in _directories(files, streams):
            if files.exists(f"{streams}/{name}/{format.META_NAME}"):
                yield StreamDir(account, name, f"{streams}/{name}")


def _directories(files: Files, path: str) -> list[str]:
    """The names in a directory that may be accounts or streams: what begins with a dot is on its way out."""
    try:
        return sorted(name for name in files.list(path) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


class NatsStream:
    """One stream: its configuration, its live messages and its consumers."""

    def __init__(
        self,
        found: StreamDir,
        secrets: Sequence[bytes] = (),
        ttl_of: TtlOf | None = None,
        files: Files = OS_FILES,
        *,
        is_checked: bool = True,
    ) -> None:
        """Reads meta.inf; raises CorruptBlock, WrongKey or OSError. Without `is_checked` its hash may be missing."""
        self.account, self.name, self.path = found
        self._files, self._secrets = files, secrets
        self._key = self._unwrap(self.path, self.name)
        self.meta = self._read_meta(self.path, format.key_of(self.name), self._key, is_required=is_checked)
        self._ttl_of = ttl_of if self.meta.get("allow_msg_ttl") else None
        self.problems: list[str] = []

    def live(self) -> Live:
        """What is live; raises WrongKey or OSError. What cannot be read is told in `problems` of it."""
        self.problems = self._old_indexes()
        places, sizes = self._places()
        if not places:
            return Live([], 0, 0, SequenceSet(), self.problems)
        reader = BlockReader(self._secrets, self._files)
        index, problem = self._index()
        if index is not None:
            last = places[max(places)]
            problem = why_stale(index, places, self._files.read(last.path), read_key(last, self._secrets, self._files))
            if not problem:
                return live_by_index(index, places, sizes)
        found = live_by_scan(places, sizes, self._limits(), reader)
        note = [f"{self.path}/{format.MSGS_NAME}/{format.INDEX_NAME}: {problem}; all blocks were read instead"]
        return found._replace(problems=note + self.problems + found.problems)

    def _index(self) -> tuple[Index | None, str]:
        """index.db, or what is wrong with it."""
        path = f"{self._msgs()}/{format.INDEX_NAME}"
        try:
            body = checked_body(self._files.read(path), self.name)
            if self._key is not None:
                try:
                    body = self._key.open(body)
                except InvalidTag:
                    if body[:2] not in MAGIC_BYTES:  # a server that got its key later leaves a plain one
                        return None, "cannot be opened with the stream's key"
            return parse_index(body), ""
        except FileNotFoundError:
            return None, "is not there"
        except ValueError as error:
            return None, f"cannot be used: {error}"

    def _msgs(self) -> str:
        """The directory of the blocks: the new one, where a purge was cut short after it was made."""
        new = f"{self.path}/{format.NEW_MSGS_NAME}"
        is_done = self._files.exists(new) and any(format.parse_block_name(n) is not None for n in self._files.list(new))
        return new if is_done else f"{self.path}/{format.MSGS_NAME}"

    def _places(self) -> tuple[dict[int, Place], dict[int, int]]:
        """The block files by number, and their sizes."""
        msgs, new = self._msgs(), f"{self.path}/{format.NEW_MSGS_NAME}"
        names = set(self._files.list(msgs)) if self._files.exists(msgs) else set()
        moved = set(self._files.list(new)) if self._files.exists(new) and msgs != new else set()
        places = {}
        for name in names:
            number = format.parse_block_name(name)
            key_name = f"{number}{_KEY_SUFFIX}"
            if number is None or key_name in moved:
                continue
            key_path = f"{msgs}/{key_name}" if key_name in names else ""
            places[number] = Place(self.account, self.name, number, f"{msgs}/{name}", key_path)
        return places, {number: self._files.size(place.path) for number, place in places.items()}

    def _old_indexes(self) -> list[str]:
        msgs = self._msgs()
        names = self._files.list(msgs) if self._files.exists(msgs) else []
        if any(name.endswith(_OLD_INDEX_SUFFIX) for name in names):
            return [f"{msgs}: *.idx of nats-server before 2.10 is not read: deleted messages may come back"]
        return []

    def _limits(self) -> Limits:
        meta = self.meta
        return Limits(
            meta.get("max_msgs", 0),
            meta.get("max_bytes", 0),
            meta.get("max_age", 0),
            meta.get("max_msgs_per_subject", 0),
            meta.get("discard", "old") == "old",
            meta.get("subject_delete_marker_ttl", 0) > 0,
            self._ttl_of,
        )

    def fingerprint(self) -> list[tuple[str, int]]:
        """What changes when a server writes to the stream."""
        places, sizes = self._places()
        return sorted((place.path, sizes[number]) for number, place in places.items())

    def consumers(self) -> tuple[list[Consumer], list[str]]:
        """Its consumers, and what is wrong with others."""
        found, problems = [], []
        for name in _directories(self._files, f"{self.path}/{format.CONSUMERS_NAME}"):
            path = f"{self.path}/{format.CONSUMERS_NAME}/{name}"
            try:
                found.append(self._consumer(name, path))
            except (CorruptBlock, WrongKey, OSError, ValueError) as error:
                problems.append(f"{path}: {error}")
        return found, problems

    def _consumer(self, name: str, path: str) -> Consumer:
        key = self._unwrap(path, f"{self.name}.{name}")
        meta = self._read_meta(path, format.key_of(f"{self.name}/{name}"), key, is_required=False)
        state_path = f"{path}/{format.STATE_NAME}"
        data = self._files.read(state_path) if self._files.exists(state_path) else b""
        if data and key is not None:
            try:
                data = key.open(data)
            except InvalidTag:
                raise CorruptBlock(state_path, 0, "cannot be opened with the consumer's key") from None
        return Consumer(name, meta, decode_state(data))

    def _unwrap(self, directory: str, context: str) -> AssetKey | None:
        path = f"{directory}/{format.KEY_NAME}"
        if not self._files.exists(path):
            return None
        return unwrap(self._files.read(path), self._secrets, self.account, context, path)

    def _read_meta(self, directory: str, hash_key: bytes, key: AssetKey | None, *, is_required: bool) -> dict[str, Any]:
        """meta.inf, after a look at its hash. nats-server wants a consumer's to be there, no more."""
        path = f"{directory}/{format.META_NAME}"
        data = self._files.read(path)
        try:
            stored = self._files.read(f"{directory}/{format.SUM_NAME}")
        except FileNotFoundError:
            if directory == self.path and not is_required:
                stored = b""
            else:
                raise CorruptBlock(path, 0, "there is no meta.sum beside it") from None
        if is_required and stored.strip() != hash64(hash_key, data).to_bytes(8, "little").hex().encode():
            raise CorruptBlock(path, 0, "the checksum does not match")
        try:
            plain = data if key is None else key.open(data)
            found = msgspec.json.decode(plain)
        except (InvalidTag, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CorruptBlock(path, 0, f"not a configuration: {error or 'its key does not open it'}") from None
        if not isinstance(found, dict):
            raise CorruptBlock(path, 0, "not a configuration")
        return found
