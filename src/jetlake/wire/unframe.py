"""Take WebSocket frames apart, in place, without an object each.

`unframe(data, offset, end, out, state)` walks the frames of data[offset:end], from within a frame or from between two,
and moves what they carry, unmasked, to data[out:]. It returns (offset of the first byte not consumed, end of what was
moved). It stops at `end`, and before a header that is not complete or not that of a plain frame with data (control
frames, compressed ones, wrong ones): `websocket.py` takes those.

`state` is an array("Q") of STATE_WORDS words, kept from call to call:

    REMAINING   bytes of the current frame that are still to come
    KEY         its mask, the byte to use next lowest; 0 for a frame without one
    MESSAGE     NO_MESSAGE between two messages, PLAIN or COMPRESSED between two frames of one
    MASKED      whether frames have to be masked

Always true: out <= offset, since a header has to be read before what follows it is moved.
"""

from __future__ import annotations

try:
    from jetlake.wire._unframe_c import unframe

    COMPILED = True
except ImportError:  # not built here: slower, never different
    from jetlake.wire._unframe_py import unframe

    COMPILED = False

__all__ = ["COMPILED", "unframe"]
