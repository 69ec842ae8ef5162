"""Where a stream lies on disk, and the file that says what it is.

    <store_dir>/jetstream/jetlake.lock                      one server at a time
    <store_dir>/jetstream/<account>/streams/<stream>/
        meta.json                                           this file
        replica.json                                        of a replicated stream: how far its blocks go
        msgs/                                               the store's blocks
        consumers/<consumer>.<created_ns in hex>            what consumers remember
    <store_dir>/jetstream/<account>/streams/~<16 hex>/      a stream that was deleted; its files are on their way out

Names of accounts and streams become file names through `consumer_file_name`, so that none can lead elsewhere, and none
begins with "~". A directory without meta.json and msgs/ is no stream: a start leaves it alone, whatever is in it.

meta.json is one line, written as a whole in place of the one before:

    {"checksum":"<XXH64 of the value of meta, 16 hex digits>","meta":{"version":1,"created_ns":...,"config":{...}}}

The config has every field of StreamConfig. A reader takes nothing but exactly these bytes around the two values, so a
changed byte anywhere is noticed. On an encrypted server the line is sealed (`store.sealed_file`).
"""

from __future__ import annotations

import re
import secrets

import msgspec
import xxhash

from jetlake.errors import CorruptBlock
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.store.blocks.sealed_file import MAGIC as SEALED_MAGIC
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.consumer_state import MAGIC, consumer_file_name
from jetlake.store.disk.files import Files, atomic_write, is_temp, temp_target
from jetlake.store.format import TREE_LOCK_NAME
from jetlake.wire.go_time import plain_time

META_NAME = "meta.json"
MSGS_NAME = "msgs"
CONSUMERS_NAME = "consumers"
STREAMS_NAME = "streams"
REPLICA_NAME = "replica.json"  # of a stream that several servers hold: see `cluster.marks`
LEDGER_NAME = "spark.json"  # what Spark has written into the directory: see `spark.ledger`
LOCK_NAME = TREE_LOCK_NAME
_VERSION = 1
_KIND = b"meta"
_PLAIN = Sealer()
_TOMB = "~"
_TOMB_NAME = re.compile(rf"{_TOMB}[0-9a-f]{{16}}")


class StreamMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored of a stream beside its messages."""

    version: int = _VERSION
    created_ns: int
    config: StreamConfig


class _File(msgspec.Struct, frozen=True):
    checksum: str
    meta: msgspec.Raw


def account_directory(root: str, account: str) -> str:
    """The directory of an account's streams, which may not be there."""
    return f"{root}/{consumer_file_name(account)}/{STREAMS_NAME}"


def stream_directory(streams: str, name: str) -> str:
    """The directory of a stream among those of its account."""
    return f"{streams}/{consumer_file_name(name)}"


def tomb_directory(streams: str) -> str:
    """A new name for the directory of a stream that is deleted."""
    return f"{streams}/{_TOMB}{secrets.token_hex(8)}"


def is_tomb(file_name: str) -> bool:
    """Whether a directory is what is left of a deleted stream."""
    return _TOMB_NAME.fullmatch(file_name) is not None


def unfinished_files(files: Files, directory: str) -> list[str]:
    """What interrupted writes of meta.json left in a stream's directory."""
    return [f"{directory}/{name}" for name in files.list(directory) if temp_target(name) == META_NAME]


def is_vacant(files: Files, directory: str) -> bool:
    """Whether a stream may be made in a directory: it is not there, or holds only what an interrupted creation left."""
    return not files.exists(directory) or len(files.list(directory)) == len(unfinished_files(files, directory))


def is_remnant(files: Files, directory: str) -> bool:
    """Whether a directory holds nothing but consumers that were just being written when their stream was deleted."""
    consumers = f"{directory}/{CONSUMERS_NAME}"
    if not files.exists(consumers) or len(files.list(directory)) > 1 + len(unfinished_files(files, directory)):
        return False
    return all(_is_consumer(files, f"{consumers}/{name}") for name in files.list(consumers))


def _is_consumer(files: Files, path: str) -> bool:
    with files.open(path) as file:
        start = file.pread(0, len(MAGIC))
    return start in (MAGIC, SEALED_MAGIC) or is_temp(path)


def name_of(file_name: str) -> str:
    """The stream's name as far as its directory tells: of a very long name, only the beginning."""
    from urllib.parse import unquote  # not needed by a server without streams

    return unquote(file_name, errors="replace")


def encode_meta(meta: StreamMeta) -> bytes:
    """The bytes of a meta.json."""
    data = msgspec.json.encode(meta, enc_hook=plain_time)
    return b'{"checksum":"%s","meta":%s}\n' % (xxhash.xxh64_hexdigest(data).encode(), data)


def decode_meta(data: bytes, path: str) -> StreamMeta:
    """What the bytes of a meta.json say; raises CorruptBlock."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptBlock(path, 0, f"not a stream's meta: {error}") from None
    raw = bytes(file.meta)
    if data != b'{"checksum":"%s","meta":%s}\n' % (xxhash.xxh64_hexdigest(raw).encode(), raw):
        raise CorruptBlock(path, 0, "the checksum does not match")
    try:
        meta = msgspec.json.decode(raw, type=StreamMeta)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptBlock(path, 0, f"not a stream's meta: {error}") from None
    if meta.version != _VERSION:
        raise CorruptBlock(path, 0, f"version is {meta.version}, not {_VERSION}")
    return meta


def write_meta(files: Files, directory: str, meta: StreamMeta, sealer: Sealer = _PLAIN) -> None:
    """Put a stream's meta.json in place; durable when this returns."""
    atomic_write(files, f"{directory}/{META_NAME}", [seal_meta(meta, sealer)])


def seal_meta(meta: StreamMeta, sealer: Sealer) -> bytes:
    """The bytes of a meta.json as they lie on the disk."""
    return sealer.seal(encode_meta(meta), _KIND)


def read_meta(files: Files, directory: str, sealer: Sealer = _PLAIN) -> StreamMeta:
    """A stream's meta.json; raises OSError, WrongKey or CorruptBlock."""
    path = f"{directory}/{META_NAME}"
    return decode_meta(sealer.open(files.read(path), _KIND, path), path)
