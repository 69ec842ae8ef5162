"""Where a write into a directory goes, and what it may replace there.

Nothing is written over but a store: a directory that holds anything else is refused, and so is a part of a server's
directory that is named by itself, since the rest of it would not know.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from jetlake.config.options import AccountJetStream, JetStreamLimits
from jetlake.jetstream.encryption import STATE_NAME
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams.config import StreamConfig
from jetlake.jetstream.streams.meta import (
    META_NAME,
    MSGS_NAME,
    account_directory,
    read_meta,
    stream_directory,
    tomb_directory,
)
from jetlake.jetstream.streams.rules import check_config, check_create
from jetlake.spark.errors import SparkError
from jetlake.spark.ledger import LEDGER_NAME
from jetlake.store.disk.files import OS_FILES, is_temp
from jetlake.store.format import CHECKPOINT_NAME, LOCK_NAME, parse_block_name
from jetlake.subjects import overlaps
from jetlake.table.errors import BadOption
from jetlake.table.locate import ACCOUNT_DEFAULT, ROOT_NAME, directories
from jetlake.table.options import Options

_OWN_NAMES = {CHECKPOINT_NAME, LOCK_NAME, LEDGER_NAME}
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


class Target(NamedTuple):
    """Where a stream is to be written."""

    stream: str  # "" for a bare store
    directory: str  # what gets its name in one step: the stream's directory, or the bare store's
    msgs: str  # where the blocks lie in it, "" for a bare store
    root: str  # the server's directory, "" for a bare store

    @property
    def store(self) -> str:
        return f"{self.directory}/{self.msgs}" if self.msgs else self.directory

    def draft(self, writer: str) -> str:
        """A place beside it for what a writer has not finished; a server that starts clears it away."""
        return self._beside(hashlib.blake2b(f"{self.stream} {writer}".encode(), digest_size=8).hexdigest())

    def old(self) -> str:
        """A place beside it for what it replaces."""
        return self._beside(secrets.token_hex(8))

    def _beside(self, digits: str) -> str:
        if self.root:
            return f"{tomb_directory(self.directory.rsplit('/', 1)[0])[: -len(digits)]}{digits}"
        return f"{self.directory}.{digits}.tmp"

    def config(self) -> StreamConfig | None:
        """The configuration of the stream that is there."""
        if not self.stream or not OS_FILES.exists(f"{self.directory}/{META_NAME}"):
            return None
        return read_meta(OS_FILES, self.directory).config

    def check(self, config: StreamConfig) -> None:
        """SparkError for a configuration that a server would refuse beside the other streams."""
        try:
            check_create(config)
            check_config(config, pedantic=False, account=AccountJetStream(), server=JetStreamLimits())
        except ApiError as error:
            raise SparkError(
                f"stream {config.name} cannot have the subjects {_shown(config.subjects)}: {error}"
            ) from None
        for directory in directories(OS_FILES, self.directory.rsplit("/", 1)[0]):
            if directory == self.directory:
                continue
            other = read_meta(OS_FILES, directory).config
            if any(overlaps(mine, theirs) for mine in config.subjects for theirs in other.subjects):
                raise SparkError(
                    f"the subjects {_shown(config.subjects)} overlap with those of the stream {other.name}, "
                    f"{_shown(other.subjects)}: option subjects says which ones the new stream takes"
                )


def find_target(options: Options) -> Target:
    """The stream that options name: in a store directory, or, without a name, a bare store at the path itself."""
    path = os.path.abspath(options.path)
    names = OS_FILES.list(path) if OS_FILES.exists(path) else []
    if not options.stream:
        _check_bare(path, names)
        return Target("", path, "", "")
    if any(sign in options.stream for sign in "*?[,. >/\\"):
        raise BadOption(f"{options.stream!r} is not a name for a stream")
    if META_NAME in names or any(parse_block_name(name) is not None for name in names):
        raise BadOption(f"{path} is one stream's own directory, and cannot hold the stream {options.stream}")
    root = f"{path}/{ROOT_NAME}"
    if OS_FILES.exists(f"{root}/{STATE_NAME}"):
        raise SparkError(f"{path} is encrypted: write through its server (option url)")
    streams = account_directory(root, options.account or ACCOUNT_DEFAULT)
    return Target(options.stream, stream_directory(streams, options.stream), MSGS_NAME, root)


def _check_bare(path: str, names: list[str]) -> None:
    """BadOption unless a path is a bare store, or nothing yet."""
    if ROOT_NAME in names or META_NAME in names:
        raise BadOption("option stream is missing: which stream of this store directory?")
    if OS_FILES.exists(f"{os.path.dirname(path)}/{META_NAME}"):
        raise BadOption(f"{path} is part of a stream: give the server's directory as path, and option stream")
    for name in names:
        if not (name in _OWN_NAMES or ".blk" in name or ".idx" in name or is_temp(name)):
            raise BadOption(f"{path} holds {name}, which is no part of a store: give a directory of its own")


def swap_in(new: str, place: str, old: str) -> str:
    """Give a directory the place of another, in one step where the system can; where the other one is then."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        paths = os.fsencode(new), os.fsencode(place)
        if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
            return new
        number = ctypes.get_errno()
        if number not in _NO_EXCHANGE:
            raise OSError(number, os.strerror(number), place)
    OS_FILES.rename(place, old)
    OS_FILES.rename(new, place)
    return old


def _shown(subjects: Sequence[str]) -> str:
    return ", ".join(subjects)
