"""Who this server is in its cluster: kept beside the log that it votes by.

    <store_dir>/jetstream/_cluster_/node.json

    {"checksum":"<XXH64 of the value of node, 16 hex digits>","node":{"name":…,"store_uuid":…,"number":…}}

The uuid is drawn when the directory is used in a cluster for the first time. So a server whose disk was wiped is a new
one, which can never vote with a log that it lost. The number is given out by the meta group, once, and is part of the
server's raft ids. The file is written as a whole in place of the one before, and is durable before the server says who
it is.
"""

from __future__ import annotations

import msgspec
import xxhash

from jetlake.errors import CorruptBlock
from jetlake.store.disk.files import Files, atomic_write

NAME = "node.json"
PROTOCOL = 1  # of what JetLake servers say to each other


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """This server, as it is known to the cluster."""

    name: str
    store_uuid: str
    cluster_id: str = ""  # empty: it is in no cluster yet
    number: int = 0
    was_member: bool = False  # of the meta group, at some time
    is_settled: bool = False  # the cluster was told of the streams that the server had before

    def shown(self) -> dict[str, object]:
        """What INFO says under `jetlake`."""
        return {"cluster_id": self.cluster_id, "node": self.number, "proto": PROTOCOL}


class _File(msgspec.Struct, frozen=True):
    checksum: str
    node: msgspec.Raw


def read_identity(files: Files, directory: str) -> Identity | None:
    """Who this server was; None if it is new. Raises CorruptBlock or OSError."""
    path = f"{directory}/{NAME}"
    if not files.exists(path):
        return None
    try:
        file = msgspec.json.decode(files.read(path), type=_File)
        if xxhash.xxh64_hexdigest(bytes(file.node)) != file.checksum:
            raise CorruptBlock(path, 0, "the checksum does not match")
        return msgspec.json.decode(file.node, type=Identity)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptBlock(path, 0, f"not a server's identity: {error}") from None


def write_identity(files: Files, directory: str, identity: Identity) -> None:
    """Keep who this server is; durable when this returns."""
    files.make_dirs(directory)
    data = msgspec.json.encode(identity)
    line = b'{"checksum":"%s","node":%s}\n' % (xxhash.xxh64_hexdigest(data).encode(), data)
    atomic_write(files, f"{directory}/{NAME}", [line])
