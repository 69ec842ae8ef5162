"""Take WebSocket frames apart, in Python: the reference of `_unframe_c.pyx`. `unframe.py` says what it is for."""

from __future__ import annotations

from array import array

from jetlake.wire.websocket_format import (
    CONTINUATION,
    FINAL,
    KEY,
    KEY_SIZE,
    MASK,
    MASKED,
    MESSAGE,
    NO_MESSAGE,
    OPCODE,
    PLAIN,
    REMAINING,
    RSV1,
    RSV2,
    RSV3,
    SIZE_16,
    SIZE_64,
    SIZE_MAX,
    STATE_WORDS,
    TEXT_OR_BINARY_MAX,
)

_KEY_BITS = 8 * KEY_SIZE


def unframe(data: bytearray | memoryview, offset: int, end: int, out: int, state: array[int]) -> tuple[int, int]:
    """Move what the frames of data[offset:end] carry to data[out:]; see `unframe.py`."""
    check_arguments(len(data), offset, end, out, len(state))
    while offset < end:
        if state[REMAINING]:
            size = min(state[REMAINING], end - offset)
            data[out : out + size] = _unmask(data[offset : offset + size], state[KEY])
            state[REMAINING] -= size
            state[KEY] = _rotate(state[KEY], size % KEY_SIZE)
            offset, out = offset + size, out + size
        elif header_size := _begin(data, offset, end, state):
            offset += header_size
        else:
            break
    return offset, out


def check_arguments(data_size: int, offset: int, end: int, out: int, state_size: int) -> None:
    """Raise IndexError unless everything lies in its buffer."""
    if not 0 <= out <= offset <= end <= data_size:
        raise IndexError(f"frames in {offset}..{end}, to be moved to {out}, of {data_size} bytes")
    if state_size != STATE_WORDS:
        raise IndexError(f"a state of {state_size} words, not {STATE_WORDS}")


def _begin(data: bytearray | memoryview, offset: int, end: int, state: array[int]) -> int:
    """Read the header of a plain frame with data: its size, or 0 when there is none."""
    if end - offset < 2:
        return 0
    first, second = data[offset], data[offset + 1]
    opcode = first & OPCODE
    wanted = PLAIN if opcode == CONTINUATION else NO_MESSAGE
    if first & (RSV1 | RSV2 | RSV3) or opcode > TEXT_OR_BINARY_MAX or state[MESSAGE] != wanted:
        return 0
    if state[MASKED] and not second & MASK:
        return 0
    size = second & ~MASK
    size_bytes = {SIZE_16: 2, SIZE_64: 8}.get(size, 0)
    header_size = 2 + size_bytes + (KEY_SIZE if state[MASKED] else 0)
    if header_size > end - offset:
        return 0
    at = offset + 2
    if size_bytes:
        size = int.from_bytes(data[at : at + size_bytes], "big")
        if size > SIZE_MAX:
            return 0
    state[REMAINING] = size
    state[KEY] = int.from_bytes(data[at + size_bytes : offset + header_size], "little")
    state[MESSAGE] = NO_MESSAGE if first & FINAL else PLAIN
    return header_size


def _unmask(masked: bytearray | memoryview, key: int) -> bytes:
    size = len(masked)
    if not key:
        return bytes(masked)
    keys = (key.to_bytes(KEY_SIZE, "little") * (size // KEY_SIZE + 1))[:size]
    return (int.from_bytes(masked, "little") ^ int.from_bytes(keys, "little")).to_bytes(size, "little")


def _rotate(key: int, count: int) -> int:
    return (key >> 8 * count | key << _KEY_BITS - 8 * count) & (1 << _KEY_BITS) - 1
