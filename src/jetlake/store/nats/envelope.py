"""From a block file's bytes to its records: decrypted, then decompressed.

    Compressed block
         0     3  "cmp"
         3     1  1: S2. Anything else is no envelope: a record may begin with the same three bytes
         4     v  varint      a size, which some versions got wrong: not used
               n  S2 stream   of the records without their last 8 bytes
      -8     8  the last 8 bytes of the records, as they are: the hash of the last one

Whether a block is compressed is told by its bytes alone, not by the stream's configuration.
"""

from __future__ import annotations

from typing import NamedTuple

from jetlake.store.format import Buffer
from jetlake.store.nats.format import HASH_SIZE
from jetlake.store.nats.keys import AssetKey
from jetlake.store.nats.s2 import BadS2, Decoder
from jetlake.store.records.varint import decode_varint

_COMPRESSED = b"cmp\x01"


SLACK = 16  # readable bytes behind the records: kernels copy texts in steps of that size


class Body(NamedTuple):
    """The records of a block: data[:size]. SLACK bytes or more follow."""

    data: Buffer
    size: int
    problem: str = ""  # why the rest of them could not be had


def open_body(stored: bytearray, size: int, key: AssetKey | None = None) -> Body:
    """The records in the bytes stored[:size] of a block file, which SLACK bytes follow.

    Where compressed records are damaged, they are as many as could be had.
    """
    data: Buffer = stored
    if key is not None:
        with memoryview(stored) as view:
            data = key.decrypt(view[:size]) + bytes(SLACK)
    if bytes(data[:4]) != _COMPRESSED or size < len(_COMPRESSED) + 1 + HASH_SIZE:
        return Body(data, size)
    try:
        _, start = decode_varint(data, len(_COMPRESSED), size - HASH_SIZE)
    except ValueError:
        return Body(bytes(SLACK), 0, "the size in its head is cut off")
    decoder, out, problem = Decoder(), bytearray(), ""
    with memoryview(data) as view:
        try:
            for plain in decoder.feed(view[start : size - HASH_SIZE]):
                out += plain
            decoder.finish()
            out += view[size - HASH_SIZE : size]
        except BadS2 as error:
            problem = f"S2: {error}"
    out_size = len(out)
    out += bytes(SLACK)
    return Body(out, out_size, problem)


def last_hash(stored: bytes, key: AssetKey | None = None) -> bytes:
    """The last 8 bytes of a block after decryption, which index.db remembers; zeros for a shorter one."""
    data = stored if key is None else key.decrypt(stored)
    return bytes(data[-HASH_SIZE:]) if len(data) >= HASH_SIZE else bytes(HASH_SIZE)
