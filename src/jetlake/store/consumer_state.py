"""What a consumer remembers: how far it has delivered, what is acknowledged, what is pending, what was redelivered.

A `ConsumerState` is what is kept of a consumer; this module knows its bytes. Who changes it and when it is written is
up to `jetlake.jetstream.consumers`.

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
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import xxhash

from jetlake.errors import BadRequest, CorruptBlock
from jetlake.store.format import Buffer
from jetlake.store.records.varint import U64_MAX, decode_varint, encode_varint

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
