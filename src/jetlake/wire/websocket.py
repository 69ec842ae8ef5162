"""WebSocket without I/O: frames that were received become plain bytes, and plain bytes become frames.

A `FrameReader` gives the bytes that frames carry as one stream: NATS does not care where a message begins or ends.
Without compression it takes frames apart in the buffer that they were received in (`receive`). With compression
everything goes through `read_into`, a piece at a time: a few bytes may inflate to a great many, and whoever reads them
decides when. Pings that want an answer, and the close frame to leave with, are picked up from `pongs` and `close`.

Each message is compressed by itself (RFC 7692 with both sides' `no_context_takeover`).
"""

from __future__ import annotations

import zlib
from array import array
from typing import NamedTuple

from jetlake.wire.unframe import unframe
from jetlake.wire.websocket_format import (
    BINARY,
    CLOSE,
    COMPRESSED,
    CONTINUATION,
    CONTROL_SIZE_MAX,
    DEFLATE_END,
    FINAL,
    KEY,
    KEY_SIZE,
    MASK,
    MESSAGE,
    NO_MESSAGE,
    OPCODE,
    PING,
    PLAIN,
    PONG,
    REMAINING,
    RSV1,
    RSV2,
    RSV3,
    SIZE_16,
    SIZE_64,
    SIZE_MAX,
    TEXT,
)

NORMAL, GOING_AWAY, PROTOCOL_ERROR, NO_STATUS, INVALID_DATA = 1000, 1001, 1002, 1005, 1007
POLICY_VIOLATION, TOO_BIG, INTERNAL_ERROR = 1008, 1009, 1011

BROWSER_FRAME_SIZE = 4096
COMPRESS_SIZE_MIN = 65  # what is shorter is sent as it is
_COMPRESS_LEVEL = 1
_RAW_DEFLATE = -15
_RESERVED_CODES = {1004, NO_STATUS, 1006, 1015, *range(1016, 3000)}
_CODE_MIN, _CODE_END = 1000, 5000


class Close(NamedTuple):
    """How a connection ends: the code and text of the close frame, and what was wrong, if anything was."""

    code: int
    text: str = ""
    problem: str = ""


class _BadFrame(Exception):
    """A frame that the peer should not have sent."""


class FrameReader:
    """The frames of one peer."""

    def __init__(self, *, is_masked: bool = True, inflated_max: int | None = None) -> None:
        """`inflated_max` bounds what a compressed message may come to; None: compression was not agreed on."""
        self.pongs: list[bytes] = []  # what pings carried that were not answered yet
        self.close: Close | None = None  # nothing is read after it
        self._state = array("Q", (0, 0, NO_MESSAGE, is_masked))
        self._is_masked, self._inflated_max = is_masked, inflated_max
        self._head = bytearray()  # the beginning of a header, or of a control frame
        self._is_final = True
        self._received, self._plain = memoryview(b""), memoryview(b"")
        self._inflater: _Inflater | None = None

    @property
    def has_compression(self) -> bool:
        return self._inflated_max is not None

    def receive(self, data: memoryview, size: int) -> int:
        """Take the received data[:size] apart: how many plain bytes lie in front now. Without compression."""
        offset = out = 0
        try:
            while offset < size and self.close is None:
                if not self._head:
                    offset, out = unframe(data, offset, size, out, self._state)
                if offset < size:
                    offset = self._take_head(data, offset, size)
        except _BadFrame as error:
            self.close = Close(PROTOCOL_ERROR, str(error), str(error))
        return out

    # With compression

    def add(self, data: memoryview, size: int) -> None:
        """Keep the received data[:size]; everything that was kept before has been read."""
        self._received = memoryview(bytearray(data[:size]))

    def read_into(self, view: memoryview) -> int:
        """Write the next plain bytes, as many as fit; 0 when there are none."""
        try:
            while self.close is None:
                if self._inflater is not None:
                    if piece := self._inflater.read(len(view)):
                        view[: len(piece)] = piece
                        return len(piece)
                    if self._inflater.is_last:
                        self._inflater = None
                if self._plain:
                    size = min(len(self._plain), len(view))
                    view[:size] = self._plain[:size]
                    self._plain = self._plain[size:]
                    return size
                if not self._received:
                    return 0
                self._go_on()
        except _BadFrame as error:
            self.close = Close(PROTOCOL_ERROR, str(error), str(error))
        except (zlib.error, _TooLong) as error:
            self.close = Close(GOING_AWAY, "Read Error", str(error))
        return 0

    def _go_on(self) -> None:
        """Take what was received further apart."""
        data, end, remaining = self._received, len(self._received), self._state[REMAINING]
        if self._inflater is not None and remaining:
            end = min(end, remaining)
        if not self._head:
            offset, out = unframe(data, 0, end, 0, self._state)
            self._received = data[offset:]
            if out and self._inflater is not None:
                self._inflate(data[:out])
            else:
                self._plain = data[:out]
            if offset:
                return  # what came before a header is read before the header is looked at, which may be a wrong one
        self._received = data[self._take_head(data, 0, end) :]

    def _inflate(self, piece: memoryview) -> None:
        assert self._inflater is not None
        is_last = self._is_final and not self._state[REMAINING]
        self._inflater.feed(bytes(piece) + (DEFLATE_END if is_last else b""))
        self._inflater.is_last = is_last

    # Headers

    def _take_head(self, data: memoryview, offset: int, end: int) -> int:
        """Complete the header at the offset, or the one that began before; the offset behind it."""
        head = self._head
        while (missing := self._head_size(head) - len(head)) > 0:
            if offset == end:
                return offset
            piece = data[offset : min(offset + missing, end)]
            head += piece
            offset += len(piece)
        self._head = bytearray()
        self._begin(head)
        return offset

    def _head_size(self, head: bytearray) -> int:
        """How many bytes the header has, or with what it carries the control frame, as far as can be said."""
        if len(head) < 2:
            return 2
        first, second = head[0], head[1]
        size = second & ~MASK
        self._check(first & OPCODE, first, second)
        size_bytes = {SIZE_16: 2, SIZE_64: 8}.get(size, 0)
        return 2 + size_bytes + (KEY_SIZE if self._is_masked else 0) + (size if first & OPCODE >= CLOSE else 0)

    def _check(self, opcode: int, first: int, second: int) -> None:
        is_compressed, message = first & RSV1 != 0, self._state[MESSAGE]
        if first & (RSV2 | RSV3):
            raise _BadFrame("RSV2 and RSV3 must be clear")
        if is_compressed and not self.has_compression:
            raise _BadFrame("compressed frame received without negotiated permessage-deflate")
        if self._is_masked and not second & MASK:
            raise _BadFrame("mask bit missing")
        if opcode in (CLOSE, PING, PONG):
            if second & ~MASK > CONTROL_SIZE_MAX:
                raise _BadFrame(f"control frame length bigger than maximum allowed of {CONTROL_SIZE_MAX} bytes")
            if not first & FINAL:
                raise _BadFrame("control frame does not have final bit set")
            if is_compressed:
                raise _BadFrame("control frame must not be compressed")
        elif opcode in (TEXT, BINARY):
            if message != NO_MESSAGE:
                raise _BadFrame("new message started before final frame for previous message was received")
        elif opcode != CONTINUATION:
            raise _BadFrame(f"unknown opcode {opcode}")
        elif message == NO_MESSAGE or is_compressed:
            raise _BadFrame("invalid continuation frame")

    def _begin(self, head: bytearray) -> None:
        """A header is complete, and right as far as it was looked at."""
        opcode, size, at = head[0] & OPCODE, head[1] & ~MASK, 2
        if size in (SIZE_16, SIZE_64):
            at += 2 if size == SIZE_16 else 8
            size = int.from_bytes(head[2:at], "big")
        if size > SIZE_MAX:
            raise _BadFrame("invalid 64-bit payload length")
        key = int.from_bytes(head[at : at + KEY_SIZE], "little") if self._is_masked else 0
        if opcode >= CLOSE:
            self._control(opcode, _unmasked(head[len(head) - size :], key))
            return
        self._is_final = head[0] & FINAL != 0
        if opcode != CONTINUATION:
            self._inflater = (
                _Inflater(self._inflated_max) if head[0] & RSV1 and self._inflated_max is not None else None
            )
        kind = PLAIN if self._inflater is None else COMPRESSED
        self._state[REMAINING], self._state[KEY] = size, key
        self._state[MESSAGE] = NO_MESSAGE if self._is_final else kind
        if not size and self._inflater is not None:
            self._inflate(memoryview(b""))

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self.pongs.append(payload)
        elif opcode == CLOSE:
            self.close = _answer_to_close(payload)


def _answer_to_close(payload: bytes) -> Close:
    if not payload:
        return Close(NO_STATUS)
    if len(payload) == 1:
        raise _BadFrame("close frame payload cannot be 1 byte")
    code = int.from_bytes(payload[:2], "big")
    if not _CODE_MIN <= code < _CODE_END or code in _RESERVED_CODES:
        raise _BadFrame(f"invalid close status code {code}")
    try:
        return Close(code, payload[2:].decode())
    except UnicodeDecodeError:
        return Close(INVALID_DATA, "invalid utf8 body in close frame")


def _unmasked(payload: bytearray, key: int) -> bytes:
    return bytes(byte ^ key >> 8 * (place % KEY_SIZE) & 0xFF for place, byte in enumerate(payload))


class _TooLong(Exception):
    """A compressed message that comes to more than it may."""

    def __init__(self) -> None:
        super().__init__("maximum payload exceeded")


class _Inflater:
    """One compressed message. What zlib was not shown yet is kept: it is asked for as much as there is a place for."""

    def __init__(self, size_max: int) -> None:
        self._zlib = zlib.decompressobj(_RAW_DEFLATE)
        self._left, self._input = size_max, b""
        self._has_input = self.is_last = False

    def feed(self, piece: bytes) -> None:
        """More of the message; everything before was read."""
        self._input, self._has_input = piece, True

    def read(self, size_max: int) -> bytes:
        """The next plain bytes; none when more has to be fed first. Raises zlib.error or _TooLong."""
        if not self._has_input or self._zlib.eof:
            return b""
        size_max = min(size_max, self._left + 1)  # one more than it may be: then it is known to be too long
        if not size_max:
            raise _TooLong
        piece = self._zlib.decompress(self._input, size_max)
        self._input = self._zlib.unconsumed_tail
        self._has_input = bool(self._input) or len(piece) == size_max
        self._left -= len(piece)
        if self._left < 0 and len(piece) == 1:
            raise _TooLong
        return piece if self._left >= 0 else piece[:-1]


# Sending


def header(size: int, first: int = FINAL | BINARY) -> bytes:
    """The header of a frame that is not masked."""
    if size <= CONTROL_SIZE_MAX:
        return bytes((first, size))
    if size < 1 << 16:
        return bytes((first, SIZE_16)) + size.to_bytes(2, "big")
    return bytes((first, SIZE_64)) + size.to_bytes(8, "big")


def frame(payload: bytes, first: int = FINAL | BINARY) -> bytes:
    """A frame that is not masked."""
    return header(len(payload), first) + payload


def masked_frame(payload: bytes, key: bytes, first: int = FINAL | BINARY) -> bytes:
    """A frame as the side sends it that connected."""
    head = header(len(payload), first)
    mask = int.from_bytes((key * (len(payload) // KEY_SIZE + 1))[: len(payload)])
    masked = (int.from_bytes(payload) ^ mask).to_bytes(len(payload))
    return b"".join((head[:1], bytes((head[1] | MASK,)), head[2:], key, masked))


def small_frames(payload: bytes, *, is_compressed: bool = False) -> bytes:
    """Frames as small as browsers like them: messages of their own, or fragments of one that is compressed."""
    pieces = []
    for at in range(0, len(payload), BROWSER_FRAME_SIZE):
        piece = payload[at : at + BROWSER_FRAME_SIZE]
        first = FINAL | BINARY
        if is_compressed:
            is_last = at + len(piece) == len(payload)
            first = (CONTINUATION if at else BINARY | RSV1) | (FINAL if is_last else 0)
        pieces += [header(len(piece), first), piece]
    return b"".join(pieces)


def deflate(payload: bytes) -> bytes:
    """What a compressed message carries."""
    compressor = zlib.compressobj(_COMPRESS_LEVEL, zlib.DEFLATED, _RAW_DEFLATE)
    return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH)).removesuffix(DEFLATE_END)


def close_frame(code: int, text: str = "") -> bytes:
    """A close frame; without a code it carries nothing."""
    return frame(close_payload(code, text), FINAL | CLOSE)


def close_payload(code: int, text: str = "") -> bytes:
    """What a close frame carries."""
    if code == NO_STATUS:
        return b""
    body = text.encode("utf-8", "replace")
    if len(body) > CONTROL_SIZE_MAX - 2:
        body = body[: CONTROL_SIZE_MAX - 5] + b"..."
    return code.to_bytes(2, "big") + body
