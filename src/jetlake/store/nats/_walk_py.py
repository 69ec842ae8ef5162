"""Walk the records of a nats-server block, in Python: the reference of `_walk_c.pyx`. `walk.py` says what it is for."""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

from jetlake.ops import OP_MSG_ID, OP_SPECIAL, OP_WORDS
from jetlake.store.format import Buffer
from jetlake.store.nats.format import (
    ERASED_BIT,
    HASH_SIZE,
    HEAD,
    HEAD_SIZE,
    HEADERS_BIT,
    IS_TOMBSTONE,
    RECORD_SIZE_MAX,
    TOMBSTONE_BIT,
)

_MASK = 2**64 - 1
_LOW = 2**32 - 1
_LANES = struct.Struct("<4Q")
_MUL_0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL_1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
# Which bytes of a pair of lanes, low one first, make the two new ones.
_ZIP = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
_MSG_ID_LINE, _TTL_LINE = b"\r\nNats-Msg-Id:", b"\r\nNats-TTL:"


class Walked(NamedTuple):
    """How far a call came."""

    end: int  # where to go on
    prev_seq: int  # the highest sequence of the block so far
    entries: int  # how many were filled
    is_bad: bool  # whether it stopped at bytes that are not a sound record
    bad_records: int  # how many were stepped over because their hash is wrong


class _Record(NamedTuple):
    size: int
    word: int  # of the sequence, with its bits
    time_ns: int
    subject: tuple[int, int]
    headers: tuple[int, int]
    payload: tuple[int, int]
    is_sound: bool


def walk(
    data: Buffer,
    start: int,
    end: int,
    key: bytes,
    is_strict: bool,
    prev_seq: int,
    first_seq: int,
    last_seq: int,
    gone_starts: array[int],
    gone_ends: array[int],
    ops: array[int],
    seqs: array[int],
    times: array[int],
) -> Walked:
    """Fill ops, seqs and times with the entries of data[start:end]; see `walk.py`."""
    room = _check_door(data, start, end, key, len(gone_starts), len(gone_ends), len(ops), len(seqs), len(times))
    count = bad_count = 0
    while start < end and count < room:
        record = _read(data, start, end, key)
        if record is None or (is_strict and not record.is_sound):
            return Walked(start, prev_seq, count, True, bad_count)
        start += record.size
        if not record.is_sound:
            bad_count += 1
            continue
        is_tombstone, seq = bool(record.word & TOMBSTONE_BIT), record.word & ~(ERASED_BIT | TOMBSTONE_BIT)
        if is_tombstone:
            if not is_strict:
                continue
        else:
            if seq <= prev_seq:
                continue
            prev_seq = seq
            if record.word & ERASED_BIT or not record.subject[1]:
                continue
            if not first_seq <= seq <= last_seq or _is_in(seq, gone_starts, gone_ends):
                continue
        flags = IS_TOMBSTONE if is_tombstone else _flags(bytes(data[slice(*_span(record.headers))]))
        at = count * OP_WORDS
        ops[at : at + OP_WORDS] = array(
            "I", [*record.subject, 0, record.size, *record.headers, *record.payload, 0, flags, 0, 0]
        )
        seqs[count], times[count] = seq, record.time_ns
        count += 1
    return Walked(start, prev_seq, count, False, bad_count)


def _span(part: tuple[int, int]) -> tuple[int, int]:
    return part[0], part[0] + part[1]


def _flags(headers: bytes) -> int:
    flags = OP_MSG_ID if _MSG_ID_LINE in headers else 0
    return flags | (OP_SPECIAL if _TTL_LINE in headers else 0)


def _is_in(seq: int, starts: array[int], ends: array[int]) -> bool:
    return any(first <= seq <= last for first, last in zip(starts, ends, strict=True))


def _check_door(
    data: Buffer,
    start: int,
    end: int,
    key: bytes,
    gone_starts: int,
    gone_ends: int,
    words: int,
    seqs: int,
    times: int,
) -> int:
    """Refuse arguments that do not fit; how many entries there is room for."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"range {start}..{end} of {len(data)} bytes")
    if len(key) != 32:
        raise ValueError(f"a key has 32 bytes, not {len(key)}")
    if gone_starts != gone_ends:
        raise ValueError("gone ranges have as many starts as ends")
    return min(words // OP_WORDS, seqs, times)


def _read(data: Buffer, start: int, end: int, key: bytes) -> _Record | None:
    """The record at an offset, sound or not; None when its sizes cannot be right."""
    if end - start < HEAD_SIZE + HASH_SIZE:
        return None
    length, word, time_ns, subject_size = HEAD.unpack_from(data, start)
    has_headers, size = bool(length & HEADERS_BIT), length & ~HEADERS_BIT
    prefix = 4 if has_headers else 0
    if size > end - start or size > RECORD_SIZE_MAX or size < HEAD_SIZE + HASH_SIZE + subject_size + prefix:
        return None
    subject_start, after = start + HEAD_SIZE, start + size - HASH_SIZE
    headers_start, headers_size = subject_start + subject_size, 0
    if has_headers:
        headers_size = int.from_bytes(data[headers_start : headers_start + 4], "little")
        headers_start += 4
        if headers_size > after - headers_start:
            return None
    payload_start = headers_start + headers_size
    subject = bytes(data[subject_start : subject_start + subject_size])
    hashed = bytes(data[start + 4 : start + 20]) + subject + bytes(data[headers_start:after])
    return _Record(
        size,
        word,
        time_ns,
        (subject_start, subject_size),
        (headers_start, headers_size),
        (payload_start, after - payload_start),
        hash64(key, hashed) == int.from_bytes(data[after : after + HASH_SIZE], "little"),
    )


def hash64(key: bytes, data: Buffer, is_plain: bool = True) -> int:
    """HighwayHash-64; the compiled twin has two ways to it."""
    if len(key) != 32:
        raise ValueError(f"a key has 32 bytes, not {len(key)}")
    return _Hash(key).run(bytes(data))


class _Hash:
    def __init__(self, key: bytes) -> None:
        lanes = _LANES.unpack(key)
        self.mul0, self.mul1 = list(_MUL_0), list(_MUL_1)
        self.v0 = [mul ^ lane for mul, lane in zip(_MUL_0, lanes, strict=True)]
        self.v1 = [mul ^ _swap(lane) for mul, lane in zip(_MUL_1, lanes, strict=True)]

    def run(self, data: bytes) -> int:
        whole = len(data) & ~31
        for offset in range(0, whole, 32):
            self.update(_LANES.unpack_from(data, offset))
        if len(data) > whole:
            self._tail(data[whole:])
        for _ in range(4):
            self.update(tuple(_swap(self.v0[place]) for place in (2, 3, 0, 1)))
        total: int = self.v0[0] + self.v1[0] + self.mul0[0] + self.mul1[0]
        return total & _MASK

    def update(self, lanes: tuple[int, ...]) -> None:
        v0, v1, mul0, mul1 = self.v0, self.v1, self.mul0, self.mul1
        for i in range(4):
            v1[i] = (v1[i] + mul0[i] + lanes[i]) & _MASK
            mul0[i] ^= (v1[i] & _LOW) * (v0[i] >> 32)
            v0[i] = (v0[i] + mul1[i]) & _MASK
            mul1[i] ^= (v0[i] & _LOW) * (v1[i] >> 32)
        for target, source in ((v0, v1), (v1, v0)):
            zipped = _LANES.unpack(_zip(source[0], source[1]) + _zip(source[2], source[3]))
            for i in range(4):
                target[i] = (target[i] + zipped[i]) & _MASK

    def _tail(self, rest: bytes) -> None:
        size, few = len(rest), len(rest) & 3
        whole = size - few
        for i in range(4):
            self.v0[i] = (self.v0[i] + (size << 32) + size) & _MASK
            self.v1[i] = _rotate(self.v1[i] >> 32, size) << 32 | _rotate(self.v1[i] & _LOW, size)
        packet = bytearray(32)
        packet[:whole] = rest[:whole]
        if size >= 16:
            packet[28:] = rest[-4:]
        elif few:
            packet[16:19] = bytes([rest[whole], rest[whole + (few >> 1)], rest[-1]])
        self.update(_LANES.unpack(packet))


def _swap(lane: int) -> int:
    return lane >> 32 | (lane & _LOW) << 32


def _rotate(half: int, by: int) -> int:
    return (half << by | half >> (32 - by)) & _LOW


def _zip(low: int, high: int) -> bytes:
    pair = low.to_bytes(8, "little") + high.to_bytes(8, "little")
    return bytes(pair[place] for place in _ZIP)
