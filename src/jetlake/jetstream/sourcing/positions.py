"""Positions: how far the copies of each origin have come, kept in a small file beside the stream's.

Every copied message names its origin and its sequence there, so the file is needed only for what left the stream since:
by a purge, by limits, by age. It says up to which sequence of the stream it is true (`stamp_seq`); what was stored
after that is read from the messages. It is written a moment after a change, before a purge is answered, and at a stop.
Without it, or where it cannot be read, the messages are searched from the last one backwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jetlake.jetstream.sourcing.names import SOURCE_HEADER, read_source_header
from jetlake.jetstream.streams.side_file import SideFile
from jetlake.wire.headers import header_value

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

FILE_NAME = "sources.json"
KIND = b"sources"
SCAN_COUNT_MAX = 1_000_000  # messages that are searched for one that names an origin


class Position(NamedTuple):
    """The last sequence of an origin that was copied, and which origin it was."""

    seq: int = 0
    identity: str = ""


class _File(msgspec.Struct):
    stamp_seq: int
    positions: dict[str, tuple[int, str]]


class Positions:
    """How far one stream has come with its origins, by their index names; the mirrored one has none."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._file = SideFile(stream, FILE_NAME, KIND)
        self._positions: dict[str, Position] = {}
        self._is_dirty = False

    def get(self, index_name: str) -> Position:
        """How far it is; nothing known is 0."""
        return self._positions.get(index_name, Position())

    def put(self, index_name: str, position: Position) -> None:
        """It has come further."""
        self._positions[index_name] = position
        self._is_dirty = True

    def forget(self, index_name: str) -> None:
        """Begin anew with an origin."""
        self._positions.pop(index_name, None)
        self._is_dirty = True

    # Keeping

    def save(self, *, durable: bool = False) -> None:
        """Write the file, if something changed."""
        if self._file.path is None or not (self._is_dirty or durable):
            return
        entries = {name: (position.seq, position.identity) for name, position in self._positions.items()}
        if self._file.write(msgspec.json.encode(_File(self._stream.last_seq, entries)), durable=durable):
            self._is_dirty = False

    def load(self, wanted: set[str]) -> None:
        """Read the file, and what the stream stored since; `wanted`: the index names of its sources."""
        kept = self._read()
        self._positions = {name: Position(*at) for name, at in kept.positions.items() if name in wanted or not name}
        missing = wanted - set(self._positions)
        self._search(wanted, kept.stamp_seq if not missing else 0)

    def _read(self) -> _File:
        body = self._file.read()
        return msgspec.json.decode(body, type=_File) if body is not None else _File(0, {})

    def _search(self, wanted: set[str], after_seq: int) -> None:
        """Look for the newest message of each origin, from the last one back to a sequence."""
        store, seq = self._stream.store, self._stream.last_seq
        missing, count = set(wanted), 0
        while missing and seq > after_seq and count < SCAN_COUNT_MAX:
            message = store.load_prev(seq)
            if message is None or message.seq <= after_seq:
                return
            seq, count = message.seq - 1, count + 1
            value = header_value(message.headers, SOURCE_HEADER)
            origin = read_source_header(value) if value else None
            if origin is not None and origin.index_name in missing:
                missing.discard(origin.index_name)
                if origin.seq > self.get(origin.index_name).seq:
                    self.put(origin.index_name, Position(origin.seq, origin.identity))
