"""Find streams on disk: from the options `path`, `account` and `stream` to the directories that hold their blocks.

`path` is one of
    the directory given to `jetlake serve -sd`     streams by name or pattern: ORDERS, or "ORDERS,EVENTS-*"
    one stream's own directory                     the one with meta.json and msgs/ in it
    a bare store                                   a directory of blocks, as FileStore makes it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import NamedTuple

from jetlake.errors import CorruptBlock, WrongKey
from jetlake.jetstream.streams.meta import META_NAME, MSGS_NAME, account_directory, is_tomb, name_of, read_meta
from jetlake.store.blocks.envelope import KeySource
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.disk.files import OS_FILES, Files
from jetlake.store.format import CHECKPOINT_NAME, parse_block_name
from jetlake.table.errors import BadOption, NoStream

ACCOUNT_DEFAULT = "$G"
ROOT_NAME = "jetstream"


class StreamDir(NamedTuple):
    """A stream on disk."""

    name: str
    directory: str  # of its blocks


def find_streams(
    path: str, stream: str = "", account: str = "", files: Files = OS_FILES, keys: Sequence[KeySource] = ()
) -> list[StreamDir]:
    """The streams that options name, by name; NoStream when there is none."""
    path = path.rstrip("/") or "/"
    try:
        names = files.list(path)
    except FileNotFoundError:
        raise NoStream(f"{path}: there is no such directory") from None
    except NotADirectoryError:
        raise NoStream(f"{path}: not a directory") from None
    if ROOT_NAME in names:
        return _in_store(f"{path}/{ROOT_NAME}", stream, account or ACCOUNT_DEFAULT, files, keys)
    if META_NAME in names:
        return _alone(StreamDir(_name(files, path, keys), f"{path}/{MSGS_NAME}"), stream, account, path)
    if any(name == CHECKPOINT_NAME or parse_block_name(name) is not None for name in names):
        return _alone(StreamDir(path.rsplit("/", 1)[-1], path), stream, account, path)
    raise NoStream(f"{path}: neither a store directory nor a stream's directory")


def _alone(found: StreamDir, patterns: str, account: str, path: str) -> list[StreamDir]:
    """A stream whose own directory the path is, if it is the one that is meant."""
    if account:
        raise BadOption(f"option account is for a server's directory; {path} is one stream's own")
    if patterns:
        match_names([found.name], patterns, path)
    return [found]


def match_names(names: list[str], patterns: str, where: str) -> list[str]:
    """Those of some stream names that comma-separated names or patterns mean; NoStream when one means none."""
    found: set[str] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            raise NoStream(f"{where}: no stream {pattern}; there is {', '.join(sorted(names)) or 'none at all'}")
        found.update(matching)
    if not found:
        raise BadOption(f"option stream is missing; {where} has {', '.join(sorted(names)) or 'no streams'}")
    return sorted(found)


def _in_store(root: str, patterns: str, account: str, files: Files, keys: Sequence[KeySource]) -> list[StreamDir]:
    streams = account_directory(root, account)
    found = {}
    try:
        for path in directories(files, streams):
            with suppress(FileNotFoundError):  # deleted just now
                found[_name(files, path, keys)] = path
    except FileNotFoundError:
        raise NoStream(f"{root}: account {account} has no streams") from None
    names = match_names(list(found), patterns, f"account {account} in {root}")
    return [StreamDir(name, f"{found[name]}/{MSGS_NAME}") for name in names]


def directories(files: Files, streams: str) -> Iterator[str]:
    """The directories of the streams of an account."""
    for name in files.list(streams):
        if not is_tomb(name) and files.exists(f"{streams}/{name}/{META_NAME}"):
            yield f"{streams}/{name}"


def _name(files: Files, directory: str, keys: Sequence[KeySource]) -> str:
    """A stream's name from its meta.json; when that cannot be read, as far as the directory's name tells."""
    try:
        return read_meta(files, directory, Sealer(keys=keys)).config.name
    except (CorruptBlock, WrongKey):
        return name_of(directory.rsplit("/", 1)[-1])
