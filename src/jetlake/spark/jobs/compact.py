"""Give back the room of deleted messages: write blocks anew without them. The server must be stopped."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from jetlake.errors import StoreLocked
from jetlake.jetstream.stream_meta import LOCK_NAME
from jetlake.spark.errors import SparkError
from jetlake.spark.locate import ROOT_NAME, find_streams
from jetlake.spark.options import parse_options
from jetlake.store import FileOptions, FileStore
from jetlake.store.files import OS_FILES


class Compacted(NamedTuple):
    """What became of one stream."""

    stream: str
    blocks: int  # written anew
    size_before: int
    size_after: int


def compact(path: str, stream: str = "*", dead_part_max: float = 0.0, **more: str) -> list[Compacted]:
    """Rewrite every block of which more than a part is dead. A store that is in use is refused."""
    settings = parse_options({"path": path, "stream": stream, **more})
    is_root = OS_FILES.exists(f"{path}/{ROOT_NAME}")
    done = []
    with ExitStack() as stack:
        try:
            if is_root:
                stack.enter_context(OS_FILES.lock(f"{path}/{ROOT_NAME}/{LOCK_NAME}"))
            for name, directory in find_streams(path, stream if is_root else "", settings.account):
                options = FileOptions(keys=settings.keys)
                with FileStore(directory, options=options) as store:
                    before = store.utilisation()[0]
                    blocks = store.compact_files(dead_part_max)
                    done.append(Compacted(name, blocks, before, store.utilisation()[0]))
        except StoreLocked as error:
            raise SparkError(f"{error.path}: a server is using it; stop it first") from None
    return done
