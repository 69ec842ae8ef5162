"""The mark of a replicated stream: the file that says which group its blocks are of, and how far they go.

    <stream's directory>/replica.json                        of a stream in files
    <store_dir>/jetstream/_cluster_/memory/<group>.json      of one in memory, which has nothing else on disk

    {"checksum":"<XXH64 of the value of mark, 16 hex digits>","mark":{"group":…,"incarnation":…,"checkpoint":{…}}}

It is durable before the stream's first block, so a start never takes a replicated stream for one of a single server.
A checkpoint writes it anew before blocks are dropped or rewritten (`replica.ReplicatedLog.checkpoint`).
"""

from __future__ import annotations

import msgspec
import xxhash

from jetlake.cluster.replica import Checkpoint
from jetlake.errors import CorruptBlock
from jetlake.jetstream.streams.meta import REPLICA_NAME
from jetlake.store.disk.files import Files, atomic_write
from jetlake.wire.go_time import plain_time


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a replica beside its blocks."""

    group: int
    created_ns: int
    incarnation: int = 1  # of the raft id
    checkpoint: Checkpoint


class _File(msgspec.Struct, frozen=True):
    checksum: str
    mark: msgspec.Raw


def read_mark(files: Files, path: str) -> Mark | None:
    """A mark; None if there is none. Raises CorruptBlock or OSError."""
    if not files.exists(path):
        return None
    try:
        file = msgspec.json.decode(files.read(path), type=_File)
        if xxhash.xxh64_hexdigest(bytes(file.mark)) != file.checksum:
            raise CorruptBlock(path, 0, "the checksum does not match")
        return msgspec.json.decode(file.mark, type=Mark)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptBlock(path, 0, f"not the mark of a replica: {error}") from None


def write_mark(files: Files, path: str, mark: Mark) -> None:
    """Put a mark in place; durable when this returns."""
    files.make_dirs(path.rpartition("/")[0])
    data = msgspec.json.encode(mark, enc_hook=plain_time)
    line = b'{"checksum":"%s","mark":%s}\n' % (xxhash.xxh64_hexdigest(data).encode(), data)
    atomic_write(files, path, [line])


__all__ = ["REPLICA_NAME", "Mark", "read_mark", "write_mark"]
