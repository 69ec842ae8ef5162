"""The checkpoint `stream.state`: a few facts about the whole stream that no single block can vouch for.

Recovery does not need it: blocks and sidecars say everything. It is a second witness: the last sequence (a tail that
vanished cannot be taken for one that was never written), what was deleted, a truncation that was under way, and which
blocks are the stream's (`identity.py`). It is JSON and a line with its hash, so that a person can read it; in an
encrypted store that is sealed (`sealed_file.py`). Written when the stream is made and when a block is sealed, and with
`gone` on a clean stop.

The block that is being written to can vanish as a whole. `block_id` says that it was there, and `reserved_seq` how far
its sequences may have gone: before a higher one is acknowledged, the checkpoint is written again with some to spare.
"""

from __future__ import annotations

import msgspec

from jetlake.errors import CorruptBlock
from jetlake.store.blocks.sealed_file import Sealer
from jetlake.store.disk.files import Files, atomic_write
from jetlake.store.format import CHECKPOINT_NAME, hash64
from jetlake.store.index.sequence_set import SequenceSet

KIND = b"checkpoint"
_PLAIN = Sealer()
VERSION = 2
_VERSIONS = (1, VERSION)  # the first one had no stream_id


class Checkpoint(msgspec.Struct, forbid_unknown_fields=True):
    """What `stream.state` holds."""

    first_seq: int
    last_seq: int
    last_time_ns: int
    msgs: int
    bytes: int
    gone: list[tuple[int, int]] | None = None  # between first and last; only of a clean stop
    lost: list[tuple[int, int]] = []
    truncate_seq: int | None = None  # a truncation to this sequence was begun
    truncations: int = 0  # how many there were, so that a reader notices one
    stream_id: str = ""  # in hex
    unmarked: list[tuple[int, int]] = []  # id and hash seed of the blocks that do not have it in their headers
    block_id: int = 0  # the block that was being written to
    reserved_seq: int = 0  # no sequence above it was acknowledged
    version: int = VERSION

    @property
    def gone_seqs(self) -> SequenceSet:
        return SequenceSet(self.gone or ())

    @property
    def lost_seqs(self) -> SequenceSet:
        return SequenceSet(self.lost)

    def end_seq(self, last_block_id: int) -> int:
        """The last sequence that may have been in use, where `last_block_id` is the last block that is there."""
        return max(self.last_seq, self.reserved_seq) if self.block_id > last_block_id else self.last_seq


def write_checkpoint(
    files: Files, directory: str, checkpoint: Checkpoint, sealer: Sealer = _PLAIN, *, durable: bool = True
) -> None:
    """Replace the checkpoint."""
    data = sealer.seal(encode_checkpoint(checkpoint), KIND)
    atomic_write(files, f"{directory}/{CHECKPOINT_NAME}", [data], durable=durable)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of the file."""
    body = msgspec.json.encode(checkpoint) + b"\n"
    return body + b"%016x\n" % hash64(body, 0)


def read_checkpoint(files: Files, directory: str, sealer: Sealer = _PLAIN) -> Checkpoint | None:
    """The checkpoint; None when there is none, or a damaged one. Raises WrongKey."""
    try:
        path = f"{directory}/{CHECKPOINT_NAME}"
        return decode_checkpoint(sealer.open(files.read(path), KIND, path))
    except (FileNotFoundError, CorruptBlock, ValueError):
        return None


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The checkpoint from its bytes; ValueError when they are damaged."""
    body, hash_line = data[:-17], data[-17:]
    if hash_line != b"%016x\n" % hash64(body, 0):
        raise ValueError("checkpoint hash does not match")
    try:
        checkpoint = msgspec.json.decode(body, type=Checkpoint)
    except msgspec.DecodeError as error:
        raise ValueError(f"checkpoint: {error}") from error
    if checkpoint.version not in _VERSIONS:
        raise ValueError(f"checkpoint version {checkpoint.version}, expected {VERSION}")
    return checkpoint
