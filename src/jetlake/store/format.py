"""Every byte of every block file and sidecar. This page is the specification; readers and writers import from here.

All integers are little-endian. A *varint* is unsigned LEB128. A *hash* is XXH64 over every byte of its structure that
comes before it, seeded with the block's own random `hash_seed`: a payload that contains a forged record can therefore
never be taken for one when a scanner looks for the next good record after damage.

Files of a stream's directory
    000001.blk ...      blocks, in order of their ids; the last one is active, the others are sealed
    000001.idx ...      sidecars: what a scan of the block would find; rebuildable, see `sidecar.py`
    stream.state        checkpoint, see `checkpoint.py`
    stream.lock         held while a process has the store open for writing

Block = header, header again (a damaged byte then costs neither the seed nor the key), body.

    Header, 128 bytes
    offset  size  field
         0     8  magic          "JLBLOCK1"
         8     2  version        2; 1 when stream_id is zero
        10     1  compression    0 none, 1 snappy, 2 zstd
        11     1  cipher         0 none, 1 ChaCha20-Poly1305, 2 AES-256-GCM
        12     4  block_id
        16     4  generation     0 when new, one more each time the block is rewritten
        20     4  zero
        24     8  first_seq      the sequence that was next when the block was made
        32     8  floor_seq      every sequence below it is gone; raised in place only where no record fits on the disk
        40     8  last_time_ns   when the message before the block was stored
        48     8  hash_seed
        56    16  store_salt     turns a passphrase into the store's key
        72    16  block_salt     turns the store's key into the block's key, from version 2 on with the whole header
        88     8  key_check      tells a wrong key
        96    16  stream_id      random, the same in all blocks of a stream; zero: from before there were ids
       112     8  zero
       120     8  hash           (the only one with seed 0: the seed is in it)

A body without compression and cipher is a row of records; in the active block zeros may follow it, room that the next
records are written into. Otherwise it is a row of frames, each of which holds whole records. An `offset` always counts
plain bytes from the start of the body.

    Frame
         0     4  magic          "JLFR"
         4     4  plain_offset   where its first byte stands in the plain body
         8     4  plain_size
        12     4  stored_size
        16     8  head_hash      over the 16 bytes before it
        24     n  stored bytes   see `envelope.py`; the first 12 bytes of the frame, and from version 2 on last_seq, are
                                 authenticated with them
      24+n     8  last_seq       the last sequence in use when the frame was written
      32+n     8  the same, xor hash_seed: with it the end of a whole frame is known for one, even if its head is not
      40+n     8  hash           over everything before it

    Record
         0     1  flags
         1     v  varint         size of the subject
               v  varint         size of the headers
               v  varint         size of the payload
               2  size_check     over flags and sizes, keyed: see `size_check`
               s  subject        UTF-8
               h  headers        the NATS header block, byte for byte
               p  payload
               8  expires_ns     only with the flag EXPIRES: when the message goes; NEVER_NS: not even by age
               8  seq
               8  time_ns        nanoseconds since the Unix epoch
               8  hash

A record without any of the first four flags is a message. The others:
    TOMBSTONE   payload is a removal group (`removal.py`): sequences that are gone from one block. seq is the smallest.
    SKIP        sequences that never held a message: seq is the first, payload a varint, how many.
    ERASED      was a message; subject, headers and payload are random bytes now. seq and time_ns are as they were.
    FLOOR       every sequence below seq is gone.
TOMBSTONE and FLOOR records are written twice in a block that messages are appended to, so that one damaged byte brings
nothing back; in two frames where there are frames.
and four that describe a message: EXPIRES (see above), MSG_ID (its headers hold a Nats-Msg-Id to remember), and in an
atomic batch MORE (the next sequence belongs to the batch too) and REST (the one before does). A batch lies in one
block. One of which the end was never written does not count: see `block_scan.py`.

Example: the message "hi" on "a.b" with sequence 7 at time 1 in a block whose hash_seed is 42

    00 03 00 02 795a 612e62 6869 0700000000000000 0100000000000000 8cf9d51a9528f589

The size check is for scanners in search of the next record after damage: without it they would have to hash whatever
some bytes claim to be the size of, which a payload made for that purpose turns into hours.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple, TypeAlias

import xxhash

Buffer: TypeAlias = bytes | bytearray | memoryview

TOMBSTONE, SKIP, ERASED, FLOOR, EXPIRES, MSG_ID, MORE, REST = (1 << bit for bit in range(8))
NOT_MESSAGE = TOMBSTONE | SKIP | ERASED | FLOOR
IN_BATCH = MORE | REST

NEVER_NS = 2**63 - 1
SEQ_MAX = 2**64 - 2  # so that the one after it still fits

SUBJECT_SIZE_MAX = 65_535
HEADERS_SIZE_MAX = 64 * 1024 * 1024
PAYLOAD_SIZE_MAX = 256 * 1024 * 1024
TRAILER = struct.Struct("<QqQ")
RECORD_SIZE_MIN = 6 + TRAILER.size
# A block is sealed long before, but one record more than its limit must still fit into a 32-bit offset.
BODY_SIZE_MAX = 2**32 - 1
# Sequences inside a block are held as 32-bit distances from its first.
BLOCK_SEQ_SPAN_MAX = 2**32 - 1

BLOCK_MAGIC = b"JLBLOCK1"
VERSION = 2
_VERSION_UNMARKED = 1
_HEADER = struct.Struct("<8sHBBII4xQQqQ16s16s8s16s8xQ")
HEADER_COPY_SIZE = 128
_HASHED_SIZE = HEADER_COPY_SIZE - 8
HEADER_SIZE = 2 * HEADER_COPY_SIZE

FRAME_MAGIC = b"JLFR"
FRAME_HEAD = struct.Struct("<4sIII")
FRAME_HEAD_SIZE = FRAME_HEAD.size + 8
FRAME_TAIL_SIZE = 24

assert _HEADER.size == HEADER_COPY_SIZE
assert TRAILER.size == 24
assert FRAME_HEAD.size == 16

NO_ID = 0xFFFF_FFFF

_MASK = 2**64 - 1
_MIX_1, _MIX_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F  # odd, with bits all over
SALT_SIZE = 16
NO_STREAM = bytes(16)


def hash64(data: Buffer, seed: int) -> int:
    """XXH64."""
    return xxhash.xxh64_intdigest(data, seed)


def size_check(flags: int, subject_size: int, headers_size: int, payload_size: int, seed: int) -> int:
    """16 bits that nobody can guess who does not know the seed."""
    mixed = (flags | subject_size << 8 | headers_size << 24) ^ seed
    mixed = ((mixed & _MASK) * _MIX_1 ^ payload_size) & _MASK
    mixed = ((mixed ^ mixed >> 29) * _MIX_2) & _MASK
    return mixed >> 48


class BlockHeader(NamedTuple):
    """What stands at the start of a block file, twice."""

    compression: int
    cipher: int
    block_id: int
    generation: int
    first_seq: int
    floor_seq: int
    last_time_ns: int
    hash_seed: int
    store_salt: bytes = bytes(16)
    block_salt: bytes = bytes(16)
    key_check: bytes = bytes(8)
    stream_id: bytes = NO_STREAM

    @property
    def version(self) -> int:
        return _VERSION_UNMARKED if self.stream_id == NO_STREAM else VERSION

    @property
    def key_context(self) -> bytes:
        """What the key of an encrypted block is bound to: all of its header, from version 2 on."""
        return b"" if self.version == _VERSION_UNMARKED else self._replace(key_check=bytes(8)).encode()[:_HASHED_SIZE]

    def encode(self) -> bytes:
        """Both copies."""
        head = _HEADER.pack(BLOCK_MAGIC, self.version, *self, 0)[:-8]
        return (head + hash64(head, 0).to_bytes(8, "little")) * 2


def decode_header(data: bytes) -> BlockHeader | None:
    """The header from whichever copy is sound; None when neither is."""
    for start in (0, HEADER_COPY_SIZE):
        copy = data[start : start + HEADER_COPY_SIZE]
        if len(copy) < HEADER_COPY_SIZE:
            break
        fields = _HEADER.unpack(copy)
        if fields[0] == BLOCK_MAGIC and fields[-1] == hash64(copy[:-8], 0):
            if fields[1] not in (_VERSION_UNMARKED, VERSION):
                raise ValueError(f"block version {fields[1]} is newer than {VERSION}")
            return BlockHeader(*fields[2:-1])
    return None


def block_name(block_id: int) -> str:
    """The file name of a block."""
    return f"{block_id:06d}.blk"


def sidecar_name(block_id: int) -> str:
    """The file name of a block's sidecar."""
    return f"{block_id:06d}.idx"


def parse_block_name(name: str) -> int | None:
    """The id of a block from its file name; None for any other name."""
    stem, dot, suffix = name.partition(".")
    if dot and suffix == "blk" and stem.isascii() and stem.isdigit() and block_name(int(stem)) == name:
        return int(stem)
    return None


def parse_sidecar_name(name: str) -> int | None:
    """The id of a block from the file name of its sidecar; None for any other name."""
    stem, dot, suffix = name.rpartition(".")
    return parse_block_name(f"{stem}.blk") if dot and suffix == "idx" else None


def is_own_name(name: str) -> bool:
    """Whether a store gives this name to a file that it writes as a whole and puts in place."""
    match = _BLOCK_OR_SIDECAR.match(name)
    if match is None or block_name(int(match[1])) != f"{match[1]}.blk":
        return name in (CHECKPOINT_NAME, MARKER_NAME)
    return True


CHECKPOINT_NAME = "stream.state"
# Stands beside an old `messages.jsonl` while its blocks are being written: whatever blocks there are then are not to be
# kept. See `legacy.py`.
MARKER_NAME = "messages.migrating"
_BLOCK_OR_SIDECAR = re.compile(r"([0-9]+)(?:\.blk|\.idx|\.blk\.new|(?:\.blk|\.idx)(?:\.[0-9]+)?\.damaged)\Z")
LOCK_NAME = "stream.lock"
# In a directory with many streams below it: whoever holds it may use all of them.
TREE_LOCK_NAME = "jetlake.lock"
