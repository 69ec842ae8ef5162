"""Read a snapshot of nats-server up to 2.14 (format 1) into a draft: a tar of the files of its store.

What says which messages are live comes last in it, so the files are put on the disk first, beside the draft, and are
then imported as a store directory is.
"""

from __future__ import annotations

import tarfile
from pathlib import PurePosixPath
from typing import NamedTuple

from jetlake.errors import CorruptBlock
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.snapshots.draft import Draft
from jetlake.jetstream.snapshots.nats_store import as_draft, expiry_of, ttl_of
from jetlake.jetstream.snapshots.restore_archive import RestoreError, Rules
from jetlake.store.disk.files import File, Files
from jetlake.store.nats.blocks import BlockReader
from jetlake.store.nats.format import META_NAME
from jetlake.store.nats.stream_dir import NatsStream, StreamDir
from jetlake.wire.go_time import parse_time

_BLOCK = tarfile.BLOCKSIZE
_EXTENDED, _GLOBAL = b"x", b"g"
_EXTENDED_SIZE_MAX = 1 << 20
_NOT_TAR = "archive/tar: invalid tar header"


class _Member(NamedTuple):
    name: str
    size: int


class TarReader:
    """Takes the plain bytes of a tar."""

    def __init__(self, rules: Rules, files: Files, directory: str, account: str, name: str) -> None:
        """`directory` is one of its own, for the files."""
        self._rules, self._files, self._directory, self._account, self._name = rules, files, directory, account, name
        self._rest = bytearray()
        self._extended: dict[str, str] = {}
        self._left = self._padding = 0  # of the member that is being read
        self._collected: bytearray | None = None  # of an extended header
        self._file: File | None = None
        self._offset = 0
        self._size = 0
        self._is_over = False
        self.draft: Draft | None = None
        self.last_seq = 0
        files.make_dirs(directory)

    def feed(self, plain: bytes | bytearray) -> None:
        """Take more bytes; raises RestoreError or ApiError."""
        self._rest += plain
        self._size += len(plain)
        self._rules.check_size(self._size)
        while not self._is_over and self._take():
            pass

    def _take(self) -> bool:
        if self._left:
            return self._take_content()
        if self._padding:
            cut = min(self._padding, len(self._rest))
            del self._rest[:cut]
            self._padding -= cut
            return bool(cut)
        self._end_member()
        if len(self._rest) < _BLOCK:
            return False
        block = bytes(self._rest[:_BLOCK])
        del self._rest[:_BLOCK]
        self._begin_member(block)
        return True

    def _begin_member(self, block: bytes) -> None:
        if block == bytes(_BLOCK):
            self._is_over = True
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            raise RestoreError(_NOT_TAR) from None
        if info.type in (_EXTENDED, _GLOBAL):
            if info.size > _EXTENDED_SIZE_MAX:
                raise RestoreError(_NOT_TAR)
            self._collected = bytearray()
            member = _Member("", info.size)
        else:
            member = _Member(self._extended.get("path", info.name), int(self._extended.get("size", info.size)))
            self._extended = {}
            if not info.isreg():
                raise RestoreError(f"unexpected content (account={self._account})")
            self._open(member.name)
        self._left, self._padding, self._offset = member.size, -member.size % _BLOCK, 0

    def _open(self, name: str) -> None:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or len(path.parts) > 3:
            raise RestoreError(f"unexpected content (account={self._account})")
        target = f"{self._directory}/{path}"
        self._files.make_dirs(target.rpartition("/")[0])
        self._file = self._files.open(target, create=True)

    def _take_content(self) -> bool:
        cut = min(self._left, len(self._rest))
        if not cut:
            return False
        part = bytes(self._rest[:cut])
        del self._rest[:cut]
        if self._collected is not None:
            self._collected += part
        elif self._file is not None:
            self._file.pwrite(self._offset, part)
        self._offset += cut
        self._left -= cut
        return True

    def _end_member(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._collected is not None:
            self._extended |= _pax_fields(bytes(self._collected))
            self._collected = None

    def finish(self) -> None:
        """Import what was put down; raises RestoreError, ApiError, OSError."""
        if self._left or (self._rest and not self._is_over):
            raise RestoreError("unexpected EOF")
        self._end_member()
        if not self._files.exists(f"{self._directory}/{META_NAME}"):
            raise RestoreError(f"unexpected content (account={self._account})" if self._size else "EOF")
        self._import()

    def _import(self) -> None:
        place = StreamDir(self._account, self._name, self._directory)
        try:
            source = NatsStream(place, (), ttl_of, self._files, is_checked=False)
        except CorruptBlock as error:
            raise RestoreError(error.problem) from None
        if source.meta.get("name") != self._name:
            raise RestoreError("stream names do not match")
        live = source.live()
        first_seq = live.blocks[0].first_seq if live.blocks else live.last_seq + 1
        self.last_seq = live.last_seq
        draft = self.draft = self._rules.make(parse_time(str(source.meta["Created"])), max(first_seq, 1))
        reader = BlockReader((), self._files)
        for block in live.blocks:
            for batch in reader.live(block):
                expires = expiry_of(batch) if draft.config.allow_msg_ttl else None
                arrays = (batch.data, batch.ops, batch.seqs, batch.times)
                draft.add(*arrays, *([expires] if expires is not None else []), stop=batch.entries)
        consumers, problems = source.consumers()
        if problems:
            raise RestoreError(problems[0].rpartition("/")[2])
        for consumer in consumers:
            try:
                draft.consumers.append(as_draft(consumer))
            except (ApiError, ValueError) as error:
                raise RestoreError(f'failed to add consumer "{consumer.name}": {error}') from None

    def close(self) -> None:
        """Remove the files."""
        if self._file is not None:
            self._file.close()
        self._files.remove_tree(self._directory)


def _pax_fields(data: bytes) -> dict[str, str]:
    """The fields of an extended header: "30 mtime=1700000000.5" and so on."""
    fields = {}
    while data:
        size, _, _ = data.partition(b" ")
        if not size.isdigit() or not 0 < int(size) <= len(data):
            raise RestoreError(_NOT_TAR)
        name, _, value = data[len(size) + 1 : int(size) - 1].decode("utf-8", "surrogateescape").partition("=")
        fields[name] = value
        data = data[int(size) :]
    return fields
