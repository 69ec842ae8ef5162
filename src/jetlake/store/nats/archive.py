"""The archive that a snapshot of nats-server 2.15 is: the face of the kernel. All of it is S2-compressed (`s2.py`).

    Archive = "NATSARC1" · entries
    Entry   = varint size of the name · zig-zag varint time_ns · varint seq · varint size of headers ·
              varint size of payload · name · headers · payload

    first       state.json, seq 0: the stream in numbers; `consumer_count` entries of consumers follow
    then        consumers/<name>, seq 0: {"config": {...}, "state": {...}}
    then        messages, in ascending order: the name is the subject
    last        five zeros

`pack(data, start, end, seed, first_seq, last_seq, gone_starts, gone_ends, out, used)` makes entries of the records of a
JetLake block, for as long as `out` has room. `unpack(data, start, end, ops, seqs, times)` makes operations (see
`walk.py`) of the messages in some bytes of an archive; it stops at an entry that is not complete, or that has no
sequence and so is not a message.
"""

from __future__ import annotations

from jetlake.store.kernels import COMPILED as STORE_COMPILED
from jetlake.store.nats._archive_py import Head, Packed, Unpacked, decode_numbers, encode_numbers

try:
    from jetlake.store.nats._archive_c import pack, unpack

    COMPILED = STORE_COMPILED
except ImportError:  # not built here: slower, never different
    COMPILED = False

if not COMPILED:
    from jetlake.store.nats._archive_py import pack, unpack

__all__ = ["COMPILED", "MAGIC", "SENTINEL", "Head", "Packed", "Unpacked", "decode_numbers", "entry", "pack", "unpack"]

MAGIC = b"NATSARC1"
SENTINEL = bytes(5)


def entry(name: str, time_ns: int, payload: bytes) -> bytes:
    """An entry that is not a message."""
    text = name.encode("utf-8", "surrogateescape")
    return encode_numbers(len(text), time_ns, 0, 0, len(payload)) + text + payload
