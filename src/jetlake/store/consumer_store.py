"""What a consumer remembers: how far it has delivered, what is acknowledged, what is pending, what was redelivered.

A `ConsumerStore` keeps a `ConsumerState` in memory and moves it forward, by deliveries and acknowledgements. Pending
messages are held in order of their stream sequence, so an explicit ack finds the new ack floor in O(1), however many
are pending. `MemConsumerStore` is only that. `FileConsumerStore` marks itself dirty on a change, and `flush` writes the
whole state as one new file in place of the old one. So any number of updates cost one write, and a crash at any point
leaves a flushed state whole: that of the last `flush` which returned, or of a later one that was under way.

Always true of a state (`check_state`, run before every write and after every read):
- ack floor <= delivered, in both kinds of sequence; all are u64
- a pending message lies above the ack floor and not above delivered, in both kinds of sequence
- pending consumer sequences rise with the stream sequences: the first delivery of a message gives it both, and a
  redelivery changes only the time. So the smallest pending stream sequence gives both halves of the floor.
- a redelivery count is at least 1, and its message was delivered. It need not be pending, nor above the floor: what
  reached max_deliver is no longer pending, and its count says so for as long as the message exists.

File, little-endian; a varint is unsigned LEB128:

    offset  size  field
         0     8  magic                    "JLCONSUM"
         8     4  version                  1
        12     4  pending_count
        16     4  redelivered_count
        20     4  meta_size
        24     8  delivered_consumer_seq
        32     8  delivered_stream_seq
        40     8  ack_floor_consumer_seq
        48     8  ack_floor_stream_seq
        56     8  time_base_ns             i64: the earliest pending time, 0 if nothing is pending
        64     m  meta                     bytes of the layer above, as they are
    then for each pending message, by stream sequence
               v  stream sequence          less the one before it; the first less ack_floor_stream_seq
               v  consumer sequence        less the one before it; the first less ack_floor_consumer_seq
               v  time_ns                  less time_base_ns
    then for each redelivered message, by stream sequence
               v  stream sequence          less the one before it; the first as it is
               v  redelivery count
    at the end
               8  hash                     XXH64, seed 0, over every byte before it

    Example: delivered 7 (consumer) and 9 (stream), ack floor 3 and 4, pending 5 (as 4, at 1000 ns) and 9 (as 7, at
    1300 ns), message 5 redelivered twice, meta "m".
    4a 4c 43 4f 4e 53 55 4d 01 00 00 00 02 00 00 00
    01 00 00 00 01 00 00 00 07 00 00 00 00 00 00 00
    09 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00
    04 00 00 00 00 00 00 00 e8 03 00 00 00 00 00 00
    6d 01 01 00 04 03 ac 02 05 02 bb de ed 25 43 b3
    67 09
"""

from __future__ import annotations

import hashlib
import re
import struct
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import xxhash

from jetlake.errors import BadRequest, CorruptBlock, StoreClosed
from jetlake.store.files import Files, atomic_write
from jetlake.store.format import Buffer
from jetlake.store.varint import U64_MAX, decode_varint, encode_varint

MAGIC = b"JLCONSUM"
VERSION = 1
HEADER = struct.Struct("<8sIIIIQQQQq")
HASH = struct.Struct("<Q")
PENDING_SIZE_MIN = 3
REDELIVERED_SIZE_MIN = 2
assert HEADER.size == 64

I64_MIN, I64_MAX = -(2**63), 2**63 - 1
FILE_NAME_SIZE_MAX = 200
_POSITIONS = ("delivered_consumer_seq", "delivered_stream_seq", "ack_floor_consumer_seq", "ack_floor_stream_seq")
_UNSAFE_BYTE = re.compile(rb"[^A-Za-z0-9_-]")


@dataclass(slots=True)
class Pending:
    """A message that was delivered and not yet acknowledged."""

    seq: int  # consumer sequence of its first delivery
    time_ns: int  # of its last delivery


@dataclass(slots=True)
class ConsumerState:
    """All that a consumer remembers."""

    delivered_consumer_seq: int = 0
    delivered_stream_seq: int = 0
    ack_floor_consumer_seq: int = 0
    ack_floor_stream_seq: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)  # by stream sequence
    redelivered: dict[int, int] = field(default_factory=dict)  # stream sequence → redelivery count

    def copy(self) -> ConsumerState:
        """An independent state."""
        pending = {seq: Pending(entry.seq, entry.time_ns) for seq, entry in self.pending.items()}
        return replace(self, pending=pending, redelivered=dict(self.redelivered))


class ConsumerStore(ABC):
    """Keeps one consumer's state. A call that raises has changed nothing."""

    def __init__(self, name: str, state: ConsumerState, meta: bytes = b"") -> None:
        self.name = name
        self._state = _ordered(state)
        self._meta = meta
        self._dirty = False
        self._closed = False

    @abstractmethod
    def flush(self) -> None:
        """Make the state durable."""

    @abstractmethod
    def delete(self) -> None:
        """Close the store and remove what it stored; also after `stop`, and again if it failed."""

    def stop(self) -> None:
        """Flush and close; a second call does nothing."""
        if not self._closed:
            self.flush()
            self._closed = True

    def state(self) -> ConsumerState:
        """A copy of the state."""
        self._check_open()
        return self._state.copy()

    @property
    def dirty(self) -> bool:
        """Whether anything changed since the last flush."""
        return self._dirty

    @property
    def meta(self) -> bytes:
        """The bytes that the layer above keeps beside the state."""
        return self._meta

    def set_meta(self, meta: bytes) -> None:
        """Replace the bytes that the layer above keeps beside the state."""
        self._check_open()
        if meta != self._meta:
            self._meta = meta
            self._dirty = True

    def update(self, state: ConsumerState) -> None:
        """Replace the state by one that is not older."""
        self._check_open()
        for position in _POSITIONS:
            before, after = getattr(self._state, position), getattr(state, position)
            if after < before:
                raise BadRequest(f"consumer {self.name!r}: {position} would go back from {before} to {after}")
        self.reset(state)

    def reset(self, state: ConsumerState) -> None:
        """Replace the state by any other, older ones included."""
        self._check_open()
        check_state(state)
        self._state = _ordered(state.copy())
        self._dirty = True

    def update_delivered(self, consumer_seq: int, stream_seq: int, delivery_count: int, time_ns: int) -> None:
        """Note a delivery, the first or a later one of its message. One at or below the ack floor is old news."""
        self._check_open()
        _check_delivery(consumer_seq, stream_seq, delivery_count, time_ns)
        state = self._state
        if consumer_seq <= state.ack_floor_consumer_seq:
            return
        if stream_seq > state.delivered_stream_seq:
            self._deliver_first(consumer_seq, stream_seq, time_ns)
        elif (pending := state.pending.get(stream_seq)) is not None:
            pending.time_ns = time_ns
        state.delivered_consumer_seq = max(state.delivered_consumer_seq, consumer_seq)
        if delivery_count > 1:
            state.redelivered[stream_seq] = max(state.redelivered.get(stream_seq, 0), delivery_count - 1)
        self._dirty = True

    def _deliver_first(self, consumer_seq: int, stream_seq: int, time_ns: int) -> None:
        state = self._state
        if consumer_seq <= state.delivered_consumer_seq:
            raise BadRequest(
                f"consumer {self.name!r}: message {stream_seq} is new, but its delivery {consumer_seq}"
                f" is not after {state.delivered_consumer_seq}"
            )
        state.pending[stream_seq] = Pending(consumer_seq, time_ns)  # at the end: it is the largest
        state.delivered_stream_seq = stream_seq

    def update_acks(self, consumer_seq: int, stream_seq: int) -> bool:
        """Note that one message was acknowledged; False if it was not pending. O(1).

        The ack floor moves only when the smallest pending message is acknowledged: to just below the next one that is
        pending, or to what was delivered if none is.
        """
        self._check_open()
        state = self._state
        if consumer_seq <= state.ack_floor_consumer_seq:
            return False
        is_smallest = next(iter(state.pending), None) == stream_seq
        was_redelivered = state.redelivered.pop(stream_seq, None) is not None
        was_pending = state.pending.pop(stream_seq, None) is not None
        if is_smallest:
            self._raise_floor()
        self._dirty |= was_pending or was_redelivered
        return was_pending

    def _raise_floor(self) -> None:
        state = self._state
        if state.pending:
            smallest = next(iter(state.pending))
            state.ack_floor_consumer_seq = state.pending[smallest].seq - 1
            state.ack_floor_stream_seq = smallest - 1
        else:
            state.ack_floor_consumer_seq = state.delivered_consumer_seq
            state.ack_floor_stream_seq = state.delivered_stream_seq

    def ack_all(self, consumer_seq: int, stream_seq: int) -> int:
        """Note that a message and all before it were acknowledged; how many were pending. O(that many)."""
        self._check_open()
        state = self._state
        if consumer_seq > state.delivered_consumer_seq or stream_seq > state.delivered_stream_seq:
            raise BadRequest(f"consumer {self.name!r}: message {stream_seq} was not delivered as {consumer_seq}")
        if consumer_seq <= state.ack_floor_consumer_seq or stream_seq <= state.ack_floor_stream_seq:
            return 0
        acked_count = self._drop_pending(stream_seq)
        # The sequence acknowledged may be that of a redelivery, which is above those of messages still pending.
        if state.pending:
            consumer_seq = min(consumer_seq, next(iter(state.pending.values())).seq - 1)
        state.ack_floor_consumer_seq, state.ack_floor_stream_seq = consumer_seq, stream_seq
        self._dirty = True
        return acked_count

    def _drop_pending(self, last: int) -> int:
        """Drop what is pending up to a stream sequence; how many there were."""
        state = self._state
        before = len(state.pending)
        while state.pending and (smallest := next(iter(state.pending))) <= last:
            del state.pending[smallest]
            state.redelivered.pop(smallest, None)
        return before - len(state.pending)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(self.name)


class MemConsumerStore(ConsumerStore):
    """A consumer's state in memory only."""

    def __init__(self, name: str) -> None:
        super().__init__(name, ConsumerState())

    def flush(self) -> None:
        self._check_open()
        self._dirty = False

    def delete(self) -> None:
        self._closed = True


class FileConsumerStore(ConsumerStore):
    """A consumer's state in a file, written as a whole by `flush`.

    Opening reads the file, if there is one, and raises CorruptBlock if it is damaged. A flush that fails leaves the
    store dirty and the old file in place; the next one writes everything anew, to another file, so it may be tried.
    """

    def __init__(self, files: Files, directory: str, name: str, *, sync: bool = True) -> None:
        self.path = f"{directory}/{consumer_file_name(name)}"
        self._files = files
        self._directory = directory
        self._sync = sync
        state, meta = ConsumerState(), b""
        if files.exists(self.path):
            state, meta = decode_state(files.read(self.path), self.path)
        super().__init__(name, state, meta)

    def flush(self) -> None:
        self._check_open()
        if not self._dirty:
            return
        data = encode_state(self._state, self._meta)
        self._files.make_dirs(self._directory)
        atomic_write(self._files, self.path, [data], durable=self._sync)
        self._dirty = False

    def delete(self) -> None:
        self._closed = True
        if not self._files.exists(self.path):
            return
        self._files.remove(self.path)
        if self._sync:
            self._files.sync_dir(self._directory)


def consumer_file_name(name: str) -> str:
    """The file name of a consumer: safe in any directory, and different for different names where case counts.

    Letters, digits, "_" and "-" stay; every other byte of the UTF-8 form becomes %XX. What is then too long is cut and
    gets "~" and a hash, which no other name can contain.
    """
    if not name:
        raise BadRequest("a consumer needs a name")
    raw = name.encode("utf-8", "surrogatepass")
    encoded = _UNSAFE_BYTE.sub(lambda match: b"%%%02X" % match[0][0], raw).decode("ascii")
    if len(encoded) <= FILE_NAME_SIZE_MAX:
        return encoded
    suffix = "~" + hashlib.blake2b(raw, digest_size=20).hexdigest()
    return encoded[: FILE_NAME_SIZE_MAX - len(suffix)] + suffix


def check_state(state: ConsumerState) -> None:
    """Raise BadRequest if a state breaks what is always true of one."""
    for position in _POSITIONS:
        if not 0 <= getattr(state, position) <= U64_MAX:
            raise BadRequest(f"consumer state: {position} is {getattr(state, position)}, not a u64")
    for kind in ("consumer", "stream"):
        floor, delivered = getattr(state, f"ack_floor_{kind}_seq"), getattr(state, f"delivered_{kind}_seq")
        if floor > delivered:
            raise BadRequest(f"consumer state: {kind} ack floor {floor} is above delivered {delivered}")
    _check_pending(state)
    for seq, count in state.redelivered.items():
        if not (1 <= seq <= state.delivered_stream_seq and 1 <= count <= U64_MAX):
            raise BadRequest(
                f"consumer state: message {seq} has redelivery count {count}, delivered is {state.delivered_stream_seq}"
            )


def _check_pending(state: ConsumerState) -> None:
    previous = state.ack_floor_consumer_seq
    for stream_seq in sorted(state.pending):
        entry = state.pending[stream_seq]
        if not state.ack_floor_stream_seq < stream_seq <= state.delivered_stream_seq:
            raise BadRequest(
                f"consumer state: pending message {stream_seq} is not above the ack floor"
                f" {state.ack_floor_stream_seq} and up to delivered {state.delivered_stream_seq}"
            )
        if not previous < entry.seq <= state.delivered_consumer_seq:
            raise BadRequest(
                f"consumer state: pending message {stream_seq} has consumer sequence {entry.seq}, which is not above"
                f" {previous} and up to delivered {state.delivered_consumer_seq}"
            )
        if not I64_MIN <= entry.time_ns <= I64_MAX:
            raise BadRequest(f"consumer state: pending message {stream_seq} has time {entry.time_ns}, not an i64")
        previous = entry.seq


class PackedPending(NamedTuple):
    """Pending messages as they stand in the file."""

    entry_count: int
    time_base_ns: int
    data: bytes


def encode_state(state: ConsumerState, meta: bytes = b"", packed: PackedPending | None = None) -> bytes:
    """The bytes of a state's file. Its pending messages may be packed already: there may be very many."""
    check_state(state)
    assert packed is None or not state.pending
    packed = packed or _pack_pending(state)
    header = HEADER.pack(
        MAGIC,
        VERSION,
        packed.entry_count,
        len(state.redelivered),
        len(meta),
        *(getattr(state, position) for position in _POSITIONS),
        packed.time_base_ns,
    )
    parts = [header, meta, packed.data]
    stream_seq = 0
    for seq, count in sorted(state.redelivered.items()):
        parts.append(encode_varint(seq - stream_seq))
        parts.append(encode_varint(count))
        stream_seq = seq
    body = b"".join(parts)
    return body + HASH.pack(xxhash.xxh64_intdigest(body))


def _pack_pending(state: ConsumerState) -> PackedPending:
    time_base_ns = min((entry.time_ns for entry in state.pending.values()), default=0)
    parts: list[bytes] = []
    stream_seq, consumer_seq = state.ack_floor_stream_seq, state.ack_floor_consumer_seq
    for seq, entry in sorted(state.pending.items()):
        steps = (seq - stream_seq, entry.seq - consumer_seq, entry.time_ns - time_base_ns)
        parts += map(encode_varint, steps)
        stream_seq, consumer_seq = seq, entry.seq
    return PackedPending(len(state.pending), time_base_ns, b"".join(parts))


def decode_state(data: Buffer, path: str = "consumer state") -> tuple[ConsumerState, bytes]:
    """The state and meta of a file's bytes; CorruptBlock, naming the path, if they are not what was written."""
    data = bytes(data)
    _check_envelope(data, path)
    try:
        state, meta = _decode_body(data, len(data) - HASH.size)
        check_state(state)
    except ValueError as error:
        raise CorruptBlock(path, HEADER.size, str(error)) from error
    return state, meta


def _check_envelope(data: bytes, path: str) -> None:
    """Check size, magic, version and hash."""
    if len(data) < HEADER.size + HASH.size:
        raise CorruptBlock(path, 0, f"expected at least {HEADER.size + HASH.size} bytes, found {len(data)}")
    magic, version = struct.unpack_from("<8sI", data)
    if magic != MAGIC:
        raise CorruptBlock(path, 0, f"expected magic {MAGIC!r}, found {magic!r}")
    if version != VERSION:
        raise CorruptBlock(path, len(MAGIC), f"expected version {VERSION}, found {version}")
    end = len(data) - HASH.size
    expected, found = HASH.unpack_from(data, end)[0], xxhash.xxh64_intdigest(data[:end])
    if expected != found:
        raise CorruptBlock(path, end, f"expected hash {expected:016x}, found {found:016x}")


def _decode_body(data: bytes, end: int) -> tuple[ConsumerState, bytes]:
    """Decode all that the hash covers; ValueError if it does not add up."""
    _, _, pending_count, redelivered_count, meta_size, *positions, time_base_ns = HEADER.unpack_from(data)
    room = end - HEADER.size
    if meta_size + pending_count * PENDING_SIZE_MIN + redelivered_count * REDELIVERED_SIZE_MIN > room:
        raise ValueError(f"{pending_count} pending, {redelivered_count} redelivered do not fit in {room} bytes")
    state = ConsumerState(*positions)
    meta = data[HEADER.size : HEADER.size + meta_size]
    offset = _decode_pending(data, HEADER.size + meta_size, end, pending_count, time_base_ns, state)
    offset = _decode_redelivered(data, offset, end, redelivered_count, state)
    if offset != end:
        raise ValueError(f"{end - offset} bytes follow the last entry")
    return state, meta


def _decode_pending(data: bytes, offset: int, end: int, count: int, time_base_ns: int, state: ConsumerState) -> int:
    stream_seq, consumer_seq = state.ack_floor_stream_seq, state.ack_floor_consumer_seq
    for _ in range(count):
        step, offset = decode_varint(data, offset, end)
        stream_seq += step
        step, offset = decode_varint(data, offset, end)
        consumer_seq += step
        step, offset = decode_varint(data, offset, end)
        state.pending[stream_seq] = Pending(consumer_seq, time_base_ns + step)
    if len(state.pending) != count:
        raise ValueError("a pending message is there twice")
    return offset


def _decode_redelivered(data: bytes, offset: int, end: int, count: int, state: ConsumerState) -> int:
    stream_seq = 0
    for _ in range(count):
        step, offset = decode_varint(data, offset, end)
        stream_seq += step
        state.redelivered[stream_seq], offset = decode_varint(data, offset, end)
    if len(state.redelivered) != count:
        raise ValueError("a redelivered message is there twice")
    return offset


def _ordered(state: ConsumerState) -> ConsumerState:
    """The state with its pending messages by stream sequence, in a dict whose first key is found in O(1).

    A plain dict keeps the order too, but looks for its first key among all the keys deleted before it.
    """
    state.pending = OrderedDict(sorted(state.pending.items()))
    return state


def _check_delivery(consumer_seq: int, stream_seq: int, delivery_count: int, time_ns: int) -> None:
    if not (
        1 <= consumer_seq <= U64_MAX
        and 1 <= stream_seq <= U64_MAX
        and 1 <= delivery_count <= U64_MAX
        and I64_MIN <= time_ns <= I64_MAX
    ):
        raise BadRequest(f"delivery {consumer_seq} of message {stream_seq}: count {delivery_count}, time {time_ns}")
