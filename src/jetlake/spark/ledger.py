"""The ledger beside a store: which batch each writer has written, so that one which is written again is written once.

`spark.json` is a line of JSON and a line with its hash. A writer is a streaming query (its id) or a batch job (its job
id). Before a batch is appended its entry says where it begins; when it is durable the entry says that it is done. So a
crash in between leaves an entry that is begun, and whoever opens the store next for writing from Spark takes that batch
back before doing anything else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from jetlake.errors import CorruptBlock, StoreError
from jetlake.jetstream.streams.meta import LEDGER_NAME
from jetlake.store import FileStore
from jetlake.store.disk.files import OS_FILES, Files, atomic_write
from jetlake.store.format import hash64

__all__ = ["LEDGER_NAME", "Entry", "Ledger"]


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """The last batch of one writer."""

    batch: int
    state: Literal["begun", "done"]
    first_seq: int = 0  # of a batch that is begun
    count: int = 0


class Ledger:
    """The entries of a stream's directory."""

    def __init__(self, directory: str, files: Files = OS_FILES) -> None:
        self._path, self._files = f"{directory}/{LEDGER_NAME}", files
        self.entries: dict[str, Entry] = {}
        if files.exists(self._path):
            self.entries = _decode(files.read(self._path), self._path)

    def is_done(self, writer: str, batch: int) -> bool:
        """Was this batch, or a later one, written?"""
        entry = self.entries.get(writer)
        return entry is not None and entry.state == "done" and entry.batch >= batch

    def set(self, writer: str, entry: Entry) -> None:
        """Record an entry, durably."""
        self.entries[writer] = entry
        body = msgspec.json.encode(self.entries) + b"\n"
        atomic_write(self._files, self._path, [body, b"%016x\n" % hash64(body, 0)])

    def take_back(self, store: FileStore) -> None:
        """Undo a batch that was begun and not finished."""
        for writer, entry in self.entries.items():
            if entry.state != "begun":
                continue
            last_seq = store.fast_state().last_seq
            if last_seq > entry.first_seq + entry.count - 1:
                raise StoreError(
                    f"{store.directory}: batch {entry.batch} of {writer} was cut short at sequence {entry.first_seq}, "
                    f"and others have written since, up to {last_seq}: it cannot be taken back"
                )
            if last_seq >= entry.first_seq:
                store.truncate(entry.first_seq - 1)
            self.set(writer, Entry(entry.batch - 1, "done"))


def _decode(data: bytes, path: str) -> dict[str, Entry]:
    body, hash_line = data[:-17], data[-17:]
    if hash_line != b"%016x\n" % hash64(body, 0):
        raise CorruptBlock(path, 0, "the checksum does not match")
    return msgspec.json.decode(body, type=dict[str, Entry])
