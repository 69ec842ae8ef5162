"""What a redo log says: changes of files, each of which can be made any number of times.

A record of the log is one commit of any number of streams and consumers, and holds entries behind each other:

    kind       u8
    path_size  u16
    path       relative to the directory of the server's streams
    ...        by the kind

    1 WRITE    seed u64, generation u32, is_new u8, offset u64, size u32, bytes    bytes of a block's file
    2 REPLACE  size u32, bytes                                                    a file as a whole
    3 REMOVE                                                                      a file that is not needed any more
    4 RENAME   path_size u16, path                                                a directory takes another name
    5 VOID                                                                        see below

A block's file is known by the seed and generation in its header: what was meant for one is never written to another
that took its name. VOID says that all entries before it for a path, or for what lies below it, are not to be made
again: their effect is durable, and the file may have been changed since by other means. RENAME voids what came before
it below the path. Of several REPLACE for a path only the last one counts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from jetlake.store.format import Buffer

WRITE, REPLACE, REMOVE, RENAME, VOID = 1, 2, 3, 4, 5
_HEAD = struct.Struct("<BH")
_WRITE = struct.Struct("<QIBQI")
_U32 = struct.Struct("<I")
_U16 = struct.Struct("<H")


class Write(NamedTuple):
    """Bytes of a block's file, at an offset."""

    path: str
    seed: int
    generation: int
    offset: int
    parts: Sequence[Buffer]
    is_new: bool = False  # the file is made


class Replace(NamedTuple):
    """A file as a whole."""

    path: str
    data: bytes


class Remove(NamedTuple):
    """A file that goes."""

    path: str


class Rename(NamedTuple):
    """A directory that gets another name, which nothing had before."""

    path: str
    target: str


class Void(NamedTuple):
    """Nothing before this is to be made again for a path, nor for what lies below it."""

    path: str


Entry: TypeAlias = Write | Replace | Remove | Rename | Void


def encode_entries(entries: Sequence[Entry], root: str) -> bytes:
    """The body of a record. All paths lie below the root."""
    parts: list[Buffer] = []
    skipped = len(root) + 1
    for entry in entries:
        path = entry.path[skipped:].encode("utf-8", "surrogateescape")
        if isinstance(entry, Write):
            size = sum(map(len, entry.parts))
            head = _WRITE.pack(entry.seed, entry.generation, entry.is_new, entry.offset, size)
            parts += (_HEAD.pack(WRITE, len(path)), path, head, *entry.parts)
        elif isinstance(entry, Replace):
            parts += (_HEAD.pack(REPLACE, len(path)), path, _U32.pack(len(entry.data)), entry.data)
        elif isinstance(entry, Rename):
            target = entry.target[skipped:].encode("utf-8", "surrogateescape")
            parts += (_HEAD.pack(RENAME, len(path)), path, _U16.pack(len(target)), target)
        else:
            parts += (_HEAD.pack(REMOVE if isinstance(entry, Remove) else VOID, len(path)), path)
    return b"".join(parts)


def decode_entries(body: bytes, root: str) -> list[Entry]:
    """The entries of a record; ValueError when they do not add up."""
    reader, entries = _Reader(body), list[Entry]()
    while reader.offset < len(body):
        kind, path_size = reader.fields(_HEAD)
        path = f"{root}/{reader.text(path_size)}"
        if kind == WRITE:
            seed, generation, is_new, offset, size = reader.fields(_WRITE)
            entries.append(Write(path, seed, generation, offset, [reader.take(size)], bool(is_new)))
        elif kind == REPLACE:
            entries.append(Replace(path, reader.take(reader.fields(_U32)[0])))
        elif kind == REMOVE:
            entries.append(Remove(path))
        elif kind == RENAME:
            entries.append(Rename(path, f"{root}/{reader.text(reader.fields(_U16)[0])}"))
        elif kind == VOID:
            entries.append(Void(path))
        else:
            raise ValueError(f"entry of kind {kind}")
    return entries


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self.offset = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self.offset:
            raise ValueError(f"{size} bytes wanted at offset {self.offset}, {len(self._data) - self.offset} remain")
        self.offset += size
        return self._data[self.offset - size : self.offset]

    def fields(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def text(self, size: int) -> str:
        return self.take(size).decode("utf-8", "surrogateescape")


def effective(entries: Sequence[Entry]) -> list[Entry]:
    """The entries that are still to be made, in order."""
    gone: set[str] = set()  # by what comes later: these paths and all below them
    replaced: set[str] = set()
    found: list[Entry] = []
    for entry in reversed(entries):
        if _is_below(entry.target if isinstance(entry, Rename) else entry.path, gone):
            if isinstance(entry, Rename):
                gone.add(entry.path)
            continue
        if isinstance(entry, Replace):
            if entry.path in replaced:
                continue
            replaced.add(entry.path)
        elif not isinstance(entry, Write):
            if entry.path not in replaced:
                found.append(entry)
            gone.add(entry.path)
            continue
        found.append(entry)
    return [entry for entry in reversed(found) if not isinstance(entry, Void)]


def _is_below(path: str, tops: set[str]) -> bool:
    """Whether a path, or a directory above it, is one of these."""
    while path:
        if path in tops:
            return True
        path = path.rpartition("/")[0]
    return False
