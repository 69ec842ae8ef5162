"""Give back the room of deleted messages: write blocks anew without them.

In a directory, with the server stopped; or through a running server, which goes on meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

from jetlake.errors import StoreLocked
from jetlake.jetstream.streams.meta import LOCK_NAME
from jetlake.spark.errors import SparkError
from jetlake.store import FileStore
from jetlake.store.disk.file_options import options_of
from jetlake.store.disk.files import OS_FILES
from jetlake.store.redo.replay import replay
from jetlake.table.errors import ServerError
from jetlake.table.locate import ROOT_NAME, find_streams
from jetlake.table.nats import ApiRefused, Connection, Reply, pub_frame
from jetlake.table.options import Options, parse_options
from jetlake.table.url_origin import UrlOrigin


class Compacted(NamedTuple):
    """What became of one stream."""

    stream: str
    blocks: int  # written anew
    size_before: int
    size_after: int


def compact(path: str = "", stream: str = "*", dead_part_max: float = 0.0, **more: str) -> list[Compacted]:
    """Rewrite every block of which more than a part is dead. With `url` a server does it, which has to be JetLake."""
    settings = parse_options({"path": path, "stream": stream, **more})
    return _through_server(settings, dead_part_max) if settings.url else _in_directory(settings, dead_part_max)


def _in_directory(settings: Options, dead_part_max: float) -> list[Compacted]:
    path, done = settings.path, []
    is_root = OS_FILES.exists(f"{path}/{ROOT_NAME}")
    with ExitStack() as stack:
        try:
            if is_root:
                stack.enter_context(OS_FILES.lock(f"{path}/{ROOT_NAME}/{LOCK_NAME}"))
                replay(OS_FILES, f"{path}/{ROOT_NAME}")
            keys, stream = settings.keys, settings.stream if is_root else ""
            for name, directory in find_streams(path, stream, settings.account, keys=keys):
                options = options_of(OS_FILES, directory, keys)
                with FileStore(directory, options=options, tree_locked=is_root) as store:
                    before = store.utilisation()[0]
                    blocks = store.compact_files(dead_part_max)
                    done.append(Compacted(name, blocks, before, store.utilisation()[0]))
        except StoreLocked as error:
            raise SparkError(
                f"{error.path}: a server is using it; stop it first, or have it do the work: --url nats://host:port"
            ) from None
    return done


def _through_server(settings: Options, dead_part_max: float) -> list[Compacted]:
    with closing(UrlOrigin(settings)) as origin:
        origin.refresh()
        names = origin.streams()
    with Connection(settings) as link:
        return [_compact_one(link, settings, name, dead_part_max) for name in names]


def _compact_one(link: Connection, settings: Options, stream: str, dead_part_max: float) -> Compacted:
    subject = f"$JETLAKE.API.STREAM.COMPACT.{stream}"
    payload = json.dumps({"dead": dead_part_max}).encode()
    link.publish(pub_frame(subject.encode(), payload, reply=link.inbox_bytes + b".compact"))
    link.flush()
    reply = next(_replies(link, settings, stream))
    answer = {} if reply.status else json.loads(reply.payload)
    if "type" not in answer:  # nobody listens there, or a stream that stores whatever is said
        raise ServerError(f"{link.where}: not a JetLake server, or one of an older version: it can not compact")
    if "error" in answer:
        raise ApiRefused(link.where, f"compact {stream}", answer["error"])
    return Compacted(stream, answer["blocks"], answer["size_before"], answer["size_after"])


def _replies(link: Connection, settings: Options, stream: str) -> Iterator[Reply]:
    """What the server answers. That may take long, so after each while of silence it must at least know the stream."""
    while True:
        yield from link.replies()
        with Connection(settings) as other:
            other.api(f"STREAM.INFO.{stream}")
