"""The consumers of a nats-server stream: their configuration, and what o.dat remembers of them.

o.dat, version 2: u8 22 · u8 2 · varints: ack floor (consumer, stream), delivered (consumer, stream), number pending
    when there are any: zig-zag base time in seconds; each: stream seq and consumer seq above the floor, zig-zag age
    varint number redelivered; each: stream seq above the floor, how often
version 1: no consumer seq, the time is base + value, and delivered counts from the floor
"""

from __future__ import annotations

from jetlake.clock import SECOND_NS
from jetlake.errors import BadRequest
from jetlake.store.consumer_state import ConsumerState, Pending, check_state
from jetlake.store.records.varint import decode_varint, encode_varint

_MAGIC, _VERSION = 22, 2


def decode_state(data: bytes) -> ConsumerState:
    """What an o.dat says; ValueError when it cannot be right. An empty one: nothing was delivered."""
    if not data:
        return ConsumerState()
    if data[:1] != bytes([_MAGIC]) or data[1:2] not in (b"\x01", b"\x02"):
        raise ValueError("not a consumer's state")
    reader, version = _Reader(data, 2), data[1]
    floor_consumer, floor_stream, delivered_consumer, delivered_stream = (reader.uint() for _ in range(4))
    if version == 1 and floor_consumer > 1:
        delivered_consumer += floor_consumer - 1
    if version == 1 and floor_stream > 1:
        delivered_stream += floor_stream - 1
    state = ConsumerState(delivered_consumer, delivered_stream, floor_consumer, floor_stream)
    pending_count = reader.uint()
    base = reader.int() if pending_count else 0
    for _ in range(pending_count):
        seq = floor_stream + reader.uint()
        consumer_seq = floor_consumer + reader.uint() if version == _VERSION else 0
        age = reader.int()
        time_s = base - age if version == _VERSION else base + age
        state.pending[seq] = Pending(consumer_seq, time_s * SECOND_NS)
    for _ in range(reader.uint()):
        seq = floor_stream + reader.uint()
        state.redelivered[seq] = reader.uint()
    return mended(state)


def mended(state: ConsumerState) -> ConsumerState:
    """A state of nats-server's as ours must be; ValueError when it cannot be right at all.

    Pending consumer sequences rise with the stream's here. nats-server does not promise that (version 1 had none at
    all), and keeps entries that acks have overtaken.
    """
    state.delivered_consumer_seq = max(state.delivered_consumer_seq, state.ack_floor_consumer_seq)
    state.delivered_stream_seq = max(state.delivered_stream_seq, state.ack_floor_stream_seq)
    floor, top = state.ack_floor_stream_seq, state.delivered_stream_seq
    state.pending = {seq: entry for seq, entry in sorted(state.pending.items()) if floor < seq <= top}
    previous = state.ack_floor_consumer_seq
    for entry in state.pending.values():
        entry.seq = previous = max(entry.seq, previous + 1)
    state.delivered_consumer_seq = max(state.delivered_consumer_seq, previous)
    state.redelivered = {seq: count for seq, count in state.redelivered.items() if 1 <= seq <= top and count >= 1}
    try:
        check_state(state)
    except BadRequest as error:
        raise ValueError(str(error)) from None
    return state


def encode_state(state: ConsumerState) -> bytes:
    """The bytes of an o.dat."""
    parts = [bytes([_MAGIC, _VERSION])]
    floor_consumer, floor_stream = state.ack_floor_consumer_seq, state.ack_floor_stream_seq
    numbers = (floor_consumer, floor_stream, state.delivered_consumer_seq, state.delivered_stream_seq)
    parts += map(encode_varint, (*numbers, len(state.pending)))
    base = max((entry.time_ns // SECOND_NS for entry in state.pending.values()), default=0)
    if state.pending:
        parts.append(_zigzag(base))
    for seq, entry in state.pending.items():
        parts += map(encode_varint, (seq - floor_stream, entry.seq - floor_consumer))
        parts.append(_zigzag(base - entry.time_ns // SECOND_NS))
    redelivered = {seq: count for seq, count in state.redelivered.items() if seq > floor_stream}
    parts.append(encode_varint(len(redelivered)))
    for seq, count in redelivered.items():
        parts += map(encode_varint, (seq - floor_stream, count))
    return b"".join(parts)


def _zigzag(value: int) -> bytes:
    return encode_varint(value << 1 if value >= 0 else -value * 2 - 1)


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at

    def uint(self) -> int:
        value, self._at = decode_varint(self._data, self._at)
        return value

    def int(self) -> int:
        value = self.uint()
        return value >> 1 ^ -(value & 1)
