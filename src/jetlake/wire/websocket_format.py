"""The layout of a WebSocket frame (RFC 6455), and of the state that readers of frames keep.

    byte 0      FINAL | RSV1 (compressed) | RSV2 | RSV3 | opcode
    byte 1      MASK | size, if it is at most 125; SIZE_16 or SIZE_64 where 2 or 8 bytes with the size follow
    0, 2 or 8   the size, big-endian
    0 or 4      the key, with MASK: byte i of what follows was combined (xor) with byte i % 4 of it
    size        what the frame carries

A text of five bytes from a client, `Hello`:

    81 85 37 fa 21 3d 7f 9f 4d 51 58
"""

from __future__ import annotations

FINAL, RSV1, RSV2, RSV3, OPCODE = 0x80, 0x40, 0x20, 0x10, 0x0F
MASK = 0x80
SIZE_16, SIZE_64 = 126, 127
SIZE_MAX = 2**63 - 1
KEY_SIZE = 4

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
TEXT_OR_BINARY_MAX = BINARY
CONTROL_SIZE_MAX = 125

# The words of a reader's state; `unframe.py` says what they mean.
REMAINING, KEY, MESSAGE, MASKED = range(4)
STATE_WORDS = 4
NO_MESSAGE, PLAIN, COMPRESSED = range(3)

DEFLATE_END = b"\x00\x00\xff\xff"  # how a compressed message ends, and what is left out of it (RFC 7692)
