"""Which stream a block belongs to, so that a block copied from another one is not served as this one's.

A stream gets a random id when its store is made. The id stands in the checkpoint and in the header of every block; a
block that has another one is foreign: it is damage, like a block that is missing, and its file is kept aside.

Blocks of version 1 have no id. A store that has such blocks gets an id when it is first opened for writing, and its
checkpoint then lists them with their hash seeds, which are random too. New and rewritten blocks have the id.

The checkpoint may be missing or damaged. Then the id that most blocks have is taken for the stream's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jetlake.store.blocks.checkpoint import Checkpoint
from jetlake.store.format import NO_STREAM, BlockHeader


class Identity(NamedTuple):
    """What tells a stream's blocks from those of others."""

    stream_id: bytes  # NO_STREAM while nobody has given it one
    unmarked: Mapping[int, int] | None  # the hash seeds of blocks without an id, by block; None: nobody knows

    def owns(self, header: BlockHeader) -> bool:
        """Whether a block belongs to the stream."""
        if header.stream_id != NO_STREAM:
            return header.stream_id == self.stream_id
        return self.unmarked is None or self.unmarked.get(header.block_id) == header.hash_seed


def identify(checkpoint: Checkpoint | None, headers: Iterable[BlockHeader]) -> Identity:
    """The identity of a stream by its checkpoint, else by its blocks; of two ids that are as frequent, the later."""
    if checkpoint is not None and checkpoint.stream_id:
        return Identity(bytes.fromhex(checkpoint.stream_id), dict(checkpoint.unmarked))
    ordered = sorted(headers, key=lambda header: header.block_id, reverse=True)
    votes = Counter(header.stream_id for header in ordered if header.stream_id != NO_STREAM).most_common(1)
    return Identity(votes[0][0] if votes else NO_STREAM, None)
