"""The files of nats-server's own store, as far as reading and writing messages needs them. This page is the table.

All integers are little-endian. A *hash* is HighwayHash-64 (`highwayhash.h`) with a key of 32 bytes, SHA-256 of a name:

    meta.inf of a stream, index.db      STREAM
    records of block N                  STREAM-N
    meta.inf of a consumer              STREAM/CONSUMER

Files of a store
    jetstream/<account>/streams/<stream>/meta.inf, meta.sum     configuration and its hash in hex
                                        /meta.key               under a key: the stream's own key, wrapped
                                        /msgs/<N>.blk, <N>.key  messages
                                        /msgs/index.db          what is live (`index.py`)
                                        /obs/<consumer>/meta.inf, meta.sum, meta.key, o.dat

Block = records, then perhaps compressed as a whole (`envelope.py`), then perhaps encrypted as a whole (`keys.py`).

    Record
         0     4  length      of the whole record; bit 31: it has headers
         4     8  seq         bit 63: erased or skipped; bit 62: a tombstone, which says that seq is gone
        12     8  time_ns
        20     2  size of the subject
        22     s  subject
               4  size of the headers, only with bit 31 of the length
               h  headers
               p  payload     whatever is left
               8  hash        over seq, time_ns, subject, headers and payload

Example: "hi" on "v.a" with sequence 1, in block 1 of the stream V

    23000000 0100000000000000 820b11a55f4de818 0300 762e61 6869 7a0c134397524b3c
"""

from __future__ import annotations

import hashlib
import re
import struct

HEAD = struct.Struct("<IQqH")
HEAD_SIZE = HEAD.size
HASH_SIZE = 8
RECORD_SIZE_MIN = HEAD_SIZE + HASH_SIZE
RECORD_SIZE_MAX = 32 * 1024 * 1024
HEADERS_BIT = 1 << 31
ERASED_BIT, TOMBSTONE_BIT = 1 << 63, 1 << 62
SEQ_MASK = TOMBSTONE_BIT - 1

# What `walk` says of an entry beside the flags of `jetlake.ops`.
IS_TOMBSTONE = 1 << 16

META_NAME, SUM_NAME, KEY_NAME = "meta.inf", "meta.sum", "meta.key"
MSGS_NAME, CONSUMERS_NAME, STREAMS_NAME = "msgs", "obs", "streams"
INDEX_NAME, STATE_NAME = "index.db", "o.dat"
NEW_MSGS_NAME = "__new_msgs__"  # of a purge that was cut short
_BLOCK_NAME = re.compile(r"([0-9]+)\.blk")

assert HEAD_SIZE == 22


def key_of(name: str) -> bytes:
    """The key of a hash."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()


def block_key(stream: str, number: int) -> bytes:
    """The key of the hashes in a block."""
    return key_of(f"{stream}-{number}")


def block_name(number: int) -> str:
    """The file name of a block."""
    return f"{number}.blk"


def parse_block_name(name: str) -> int | None:
    """The number of a block from its file name; None for any other name."""
    found = _BLOCK_NAME.fullmatch(name)
    return int(found[1]) if found is not None else None
