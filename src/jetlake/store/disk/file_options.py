"""FileOptions: how a stream lies on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jetlake.errors import BadRequest
from jetlake.store.blocks.block_file import read_header
from jetlake.store.blocks.envelope import Cipher, Compression, KeySource
from jetlake.store.disk.files import Files
from jetlake.store.format import parse_block_name

BLOCK_SIZE_DEFAULT = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a stream lies on disk. What a block was written with is in its header; these are for new blocks."""

    block_size_max: int = BLOCK_SIZE_DEFAULT
    # A number: at least so many seconds between two syncs. "checkpoint": by `FileStore.prepare_checkpoint` alone, for a
    # store whose changes are in a log elsewhere. Opened again, it is cut there, and the log is applied from there.
    sync: Literal["always", "never", "checkpoint"] | float = "always"
    compression: Compression = Compression.NONE
    cipher: Cipher = Cipher.NONE
    keys: Sequence[KeySource] = ()  # the first one encrypts; all of them are tried to decrypt
    salt: bytes = b""  # of passphrases; one for many stores saves the time to stretch one for each. Empty: its own
    convert: bool = False  # rewrite what was written with other compression, cipher or key
    requires_cipher: bool = False  # take what is not encrypted for damage

    def __post_init__(self) -> None:
        if not 0 < self.block_size_max <= 2**30:
            raise BadRequest(f"block_size_max {self.block_size_max} is not between 1 and 2^30")
        if self.cipher is not Cipher.NONE and not self.keys:
            raise BadRequest("a cipher needs a key")
        if self.requires_cipher and self.cipher is Cipher.NONE:
            raise BadRequest("a cipher is required, and none is given")
        if isinstance(self.sync, str) and self.sync not in ("always", "never", "checkpoint"):
            raise BadRequest(f"sync is {self.sync!r}, not always, never, checkpoint or a number of seconds")

    @property
    def by_checkpoint(self) -> bool:
        """Whether everything since the last checkpoint is as if it were not there when the store is opened again."""
        return self.sync == "checkpoint"


def options_of(files: Files, directory: str, keys: Sequence[KeySource] = ()) -> FileOptions:
    """The options to open a store with that somebody else made: compression and cipher as in its last block."""
    names = [name for name in files.list(directory) if parse_block_name(name) is not None]
    for name in sorted(names, key=lambda name: (len(name), name), reverse=True):
        header = read_header(files, f"{directory}/{name}")
        if header is not None:
            cipher = Cipher(header.cipher) if keys else Cipher.NONE  # without its key it will not be opened
            return FileOptions(compression=Compression(header.compression), cipher=cipher, keys=keys)
    return FileOptions(keys=keys)
