"""A stream as a snapshot archive (`store.nats.archive`), piece by piece: what is read is what the stream has by then.

The state is fixed when the snapshot begins: messages stored later are not in it, and ones that are removed before their
piece is read are missing, as in nats-server. Memory follows the size of a piece.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import msgspec

from jetlake.jetstream.consumers.config import config_json, read_config
from jetlake.jetstream.consumers.state_files import Snapshot
from jetlake.store import FileStore, MemStore
from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.consumer_state import ConsumerState, decode_state, encode_state
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.nats.archive import MAGIC, SENTINEL, entry, pack
from jetlake.store.nats.s2 import IDENTIFIER, encode_chunk
from jetlake.wire.go_time import format_time
from jetlake.wire.json_text import encode_json

_WINDOW_SIZE = 1024 * 1024  # of a block that is read at once; also about the size of an S2 chunk
_ENTRY_OVERHEAD_MAX = 24  # by which an entry may be larger than the record that it is made of
_ENTRIES_OVERHEAD = 64 * 1024


class ArchiveSource:
    """Reads a store from a sequence on. Used by one thread at a time."""

    def __init__(
        self,
        store: FileStore | MemStore,
        state: dict[str, Any],
        consumers: list[tuple[str, int, Snapshot]],
        created_ns: int,
        time_ns: int,
    ) -> None:
        """`state` is the stream's as responses show it; `consumers` are names, times of creation, what is kept."""
        self._store, self._state, self._consumers = store, state, consumers
        self._created_ns, self._time_ns = created_ns, time_ns
        self._seq, self._last_seq = state["first_seq"], state["last_seq"]
        self._out = bytearray(_WINDOW_SIZE + _ENTRIES_OVERHEAD)
        self._is_begun = self.is_done = False

    def read(self, size_min: int) -> bytes:
        """About so many more plain bytes of the archive, compressed; all that is left when it says `is_done`."""
        parts, size = list[bytes](), 0
        if not self._is_begun:
            self._is_begun = True
            head = self._head()
            parts.append(IDENTIFIER)
            for start in range(0, len(head), _WINDOW_SIZE):
                parts += encode_chunk(head[start : start + _WINDOW_SIZE])
        while size < size_min and not self.is_done:
            used = self._fill()
            if used:
                with memoryview(self._out) as view:
                    parts += encode_chunk(view[:used])
                size += used
            elif self._seq > self._last_seq:
                parts += encode_chunk(SENTINEL)
                self.is_done = True
        return b"".join(parts)

    def _head(self) -> bytes:
        """Everything before the messages. nats-server skips what it does not know: when things were created."""
        state = {**self._state, "consumer_count": len(self._consumers), "created": format_time(self._created_ns)}
        state.pop("deleted", None)
        parts = [MAGIC, entry("state.json", self._time_ns, encode_json(state))]
        for name, created_ns, snapshot in self._consumers:
            packed = encode_state(snapshot.state, snapshot.meta, snapshot.pending)
            kept, meta = decode_state(packed)
            config = config_json(read_config(_config_of(meta)))
            fields = {"config": config, "state": state_json(kept, self._last_seq), "created": format_time(created_ns)}
            parts.append(entry(f"consumers/{name}", self._time_ns, encode_json(fields)))
        return b"".join(parts)

    def _fill(self) -> int:
        """Fill the buffer with entries of one window of one block; how many bytes. 0: nothing in this window."""
        with self._store.lock:
            block = next(iter(self._store.catalog.blocks_from(self._seq)), None)
            if block is None or self._seq > self._last_seq:
                self._seq = self._last_seq + 1
                return 0
            index = self._store.catalog.index(block)
            position = index.position_from(self._seq)
            if position == index.count:
                self._seq = block.last_seq + 1
                return 0
            data, following = _window(block, index, position)
            gone = SequenceSet(block.gone.ranges_between(self._seq, max(block.last_seq, self._seq)))
        return self._pack(block, index, position, following, data, gone)

    def _pack(
        self, block: MsgBlock, index: BlockIndex, position: int, following: int, data: bytes, gone: SequenceSet
    ) -> int:
        if len(self._out) < len(data) + _ENTRY_OVERHEAD_MAX + _ENTRIES_OVERHEAD:
            self._out = bytearray(len(data) + _ENTRY_OVERHEAD_MAX + _ENTRIES_OVERHEAD)
        starts, ends = gone.arrays
        found = pack(data, 0, len(data), block.seed, self._seq, self._last_seq, starts, ends, self._out, 0)
        if found.end < len(data):  # no more room, or a damaged record: the store tells of that
            offset = index.offsets[position] + found.end
            at = bisect_right(index.offsets, offset - (0 if found.is_bad else 1), position, following)
            following = max(at, position + 1)
        self._seq = index.seq(following) if following < index.count else block.last_seq + 1
        return found.used


def _window(block: MsgBlock, index: BlockIndex, position: int) -> tuple[bytes, int]:
    """Some records from a position on, at least one, and the position after them."""
    start = index.offsets[position]
    following = max(bisect_right(index.offsets, start + _WINDOW_SIZE, position, index.count) - 1, position + 1)
    if following == index.count - 1 and index.end(following, block.body_size) - start <= _WINDOW_SIZE:
        following = index.count
    return block.read(start, index.end(following - 1, block.body_size)), following


def _config_of(meta: bytes) -> bytes:
    return bytes(msgspec.json.decode(meta, type=dict[str, msgspec.Raw])["config"])


def state_json(state: ConsumerState, last_seq: int) -> dict[str, Any]:
    """A consumer's state as nats-server writes it in an archive."""
    shown: dict[str, Any] = {
        "delivered": {
            "consumer_seq": state.delivered_consumer_seq,
            "stream_seq": min(state.delivered_stream_seq, last_seq),
        },
        "ack_floor": {
            "consumer_seq": state.ack_floor_consumer_seq,
            "stream_seq": min(state.ack_floor_stream_seq, last_seq),
        },
    }
    pending = {
        str(seq): {"Sequence": each.seq, "Timestamp": each.time_ns}
        for seq, each in state.pending.items()
        if seq <= last_seq
    }
    redelivered = {str(seq): count for seq, count in state.redelivered.items() if seq <= last_seq}
    return shown | ({"pending": pending} if pending else {}) | ({"redelivered": redelivered} if redelivered else {})
