"""A small file beside a stream's own, with what could be found in its messages, too, but not quickly.

Its first line is the XXH64 of what follows; on an encrypted server all of it is sealed. It is written as a whole in
place of the one before. One that is missing or cannot be read is made anew from the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

from jetlake.errors import JetLakeError
from jetlake.store.disk.files import atomic_write

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream


class SideFile:
    """One such file of one stream; a stream in memory has none."""

    def __init__(self, stream: Stream, name: str, kind: bytes) -> None:
        """`kind` tells it from other sealed files."""
        self._stream, self._name, self._kind = stream, name, kind

    @property
    def path(self) -> str | None:
        """Where it lies."""
        directory = self._stream.directory
        return None if directory is None else f"{directory.rpartition('/')[0]}/{self._name}"

    def write(self, body: bytes, *, durable: bool = False) -> bool:
        """Put the file in place; False when that is not possible, which is logged."""
        path, js = self.path, self._stream.js
        if path is None:
            return False
        data = b"%s\n%s" % (xxhash.xxh64_hexdigest(body).encode(), body)
        try:
            atomic_write(js.files, path, [js.encryption.sealer.seal(data, self._kind)], durable=durable)
        except OSError as error:
            self._stream.host.log("warning", f"file beside a stream not written path={path} error={error}")
            return False
        return True

    def read(self) -> bytes | None:
        """What the file says; None when it is not there or is damaged, which is logged."""
        path, js = self.path, self._stream.js
        if path is None or not js.files.exists(path):
            return None
        try:
            with js.files.open(path) as file:
                data = js.encryption.sealer.open(file.pread(0, file.size()), self._kind, path)
        except (OSError, JetLakeError) as error:
            self._stream.host.log("warning", f"file beside a stream not read path={path} error={error}")
            return None
        checksum, _, body = data.partition(b"\n")
        if xxhash.xxh64_hexdigest(body).encode() != checksum:
            self._stream.host.log("warning", f"file beside a stream not read path={path} error=wrong checksum")
            return None
        return body
