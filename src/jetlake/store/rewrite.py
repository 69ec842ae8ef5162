"""Write blocks anew, and make bytes unrecoverable.

A rewritten block keeps its id, its range of sequences and its hash seed, has the next generation, and begins with a
record of the sequences it left out. The new file is complete and durable before it takes the old one's name.

Erasing. The intention (a tombstone of kind ERASE, with the record's place) is durable first; recovery finishes an
erasure that was cut short. Without an envelope the record is overwritten in place with random bytes. In a compressed
or encrypted block the whole block is written anew without it, and the old file is overwritten before it is removed:

    x.blk.new   complete           and x.blk: forget it         no x.blk: it takes its place
    x.blk.shred the old file       to be overwritten and removed, once x.blk is there
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jetlake.store.block import MsgBlock
from jetlake.store.block_file import BlockFile, encode_frame, envelope_of, frame_cuts
from jetlake.store.block_scan import Body, read_body
from jetlake.store.files import atomic_write
from jetlake.store.format import ERASED, HEADER_SIZE, RECORD_SIZE_MIN, TOMBSTONE, BlockHeader
from jetlake.store.record import BadRecord, Record, decode, encode
from jetlake.store.removal import LOST, REMOVED, RemovalGroup
from jetlake.store.scan import Scan, scan
from jetlake.store.subject_table import SubjectTable
from jetlake.store.varint import U64_MAX, varint_size

if TYPE_CHECKING:
    from jetlake.store.filestore import FileStore

_SHRED_STEP_SIZE = 1024 * 1024


def rewrite_block(
    store: FileStore,
    block: MsgBlock,
    groups: Iterable[RemovalGroup],
    *,
    last_seq: int | None = None,
    shred: bool = False,
) -> None:
    """Write a block anew with its live messages only, up to a sequence; `groups` is what it says of other blocks."""
    old = store.block_files[block.id]
    last_seq = block.last_seq if last_seq is None else last_seq
    header = store.new_header(block.id, block.header.generation + 1, block.first_seq, block.floor_seq, block.seed)
    header = header._replace(last_time_ns=block.header.last_time_ns)
    body = read_body(old)
    found = scan(body.data, 0, len(body.data), block.seed, block.first_seq - 1, SubjectTable(), 0, 0)
    for seq in _unreadable(block, found, last_seq):
        store.mark_lost(block, seq)
    if not shred:
        _keep_evidence(store, old, body, found)
    records: list[Record | bytes] = [
        *_what_is_gone(block, groups, last_seq),
        *_live_records(block, body, found, last_seq),
    ]
    parts = _encode_file(store, header, block.path, records, last_seq)
    if shred:
        atomic_write(store.files, f"{block.path}.new", parts)
        old.release()
        store.files.rename(block.path, f"{block.path}.shred")
        store.files.sync_dir(store.directory)
        store.files.rename(f"{block.path}.new", block.path)
        store.files.sync_dir(store.directory)
        _shred(store, f"{block.path}.shred")
    else:
        atomic_write(store.files, block.path, parts)
        old.release()
    block.header = header
    store.reattach(block)


def erase_bytes(
    store: FileStore,
    block: MsgBlock,
    groups: Iterable[RemovalGroup],
    seq: int,
    place: tuple[int, int],
    time_ns: int = 0,
) -> None:
    """Overwrite a record, which is no longer live, on disk and in memory."""
    file = store.block_files[block.id]
    if not file.envelope.is_plain:
        rewrite_block(store, block, groups, shred=True)
        return
    noise = overwrite(file, seq, place, time_ns)
    for chunk in block.chunks:
        if chunk.base <= place[0] < chunk.end:
            chunk.data[place[0] - chunk.base : place[0] - chunk.base + place[1]] = noise
    if block.sealed:
        store.reattach(block)
    elif block.index is not None:
        block.index.drop(block.index.position(seq))


def overwrite(file: BlockFile, seq: int, place: tuple[int, int], time_ns: int) -> bytes:
    """Put noise in a record's place, durably; the noise."""
    noise = _erased_record(place[1], seq, time_ns, file.header.hash_seed)
    file.file.pwrite(HEADER_SIZE + place[0], noise)
    file.file.sync()
    return noise


def is_erased(file: BlockFile, place: tuple[int, int], seed: int) -> bool:
    """Has the record at a place been overwritten already?"""
    data = file.file.pread(HEADER_SIZE + place[0], place[1])
    try:
        return bool(decode(data, 0, len(data), seed)[0].flags & ERASED)
    except BadRecord:
        return False


def finish_shredding(store: FileStore, names: list[str]) -> None:
    """Finish what `rewrite_block` was doing when it was cut short."""
    for name in names:
        path = f"{store.directory}/{name}"
        if name.endswith(".blk.new"):
            target = path.removesuffix(".new")
            if store.files.exists(target):
                store.files.remove(path)
            else:
                store.files.rename(path, target)
            store.files.sync_dir(store.directory)
    for name in names:
        path = f"{store.directory}/{name}"
        if name.endswith(".blk.shred"):
            if not store.files.exists(path.removesuffix(".shred")):  # the new file is damaged or missing: take it back
                store.files.rename(path, path.removesuffix(".shred"))
                store.files.sync_dir(store.directory)
            else:
                _shred(store, path)


def _what_is_gone(block: MsgBlock, groups: Iterable[RemovalGroup], last_seq: int) -> Iterator[Record]:
    """Tombstones for the sequences that a rewritten block leaves out, and those it had for other blocks."""
    gone, lost = block.gone.copy(), block.lost.copy()
    for seqs in (gone, lost):
        seqs.remove_range(last_seq + 1, U64_MAX)
    gone.difference_update(lost)
    own = [RemovalGroup(0, 0, gone, kind=REMOVED), RemovalGroup(0, 0, lost, kind=LOST)]
    for group in [*own, *groups]:
        if group.seqs:
            yield Record(TOMBSTONE, b"", b"", group.encode(), group.seqs.first, 0)


def _unreadable(block: MsgBlock, found: Scan, last_seq: int) -> list[int]:
    """Live messages that a scan no longer finds."""
    seqs, missing = found.seqs, list[int]()
    for first, last in block.live_runs(block.first_seq, last_seq):
        start, stop = bisect_left(seqs, first), bisect_right(seqs, last)
        if stop - start < last - first + 1:
            missing += sorted({*range(first, last + 1)}.difference(seqs[start:stop]))
    return missing


def _keep_evidence(store: FileStore, file: BlockFile, body: Body, found: Scan) -> None:
    """Keep the bytes that nobody can read beside the block that is written without them."""
    regions = list(body.damage)
    if file.envelope.is_plain:
        regions += [(HEADER_SIZE + offset, size) for offset, size in found.damage]
    if regions:
        parts = [file.file.pread(offset, size) for offset, size in regions]
        atomic_write(store.files, f"{file.path}.{file.header.generation}.damaged", parts)


def _live_records(block: MsgBlock, body: Body, found: Scan, last_seq: int) -> Iterator[bytes]:
    """The bytes of each live message."""
    seqs, offsets = found.seqs, found.offsets
    ends = sorted([*found.others, *(offset for offset, _ in found.damage), found.end])  # beside the next message
    for first, last in block.live_runs(block.first_seq, last_seq):
        for place in range(bisect_left(seqs, first), bisect_right(seqs, last)):
            end = ends[bisect_right(ends, offsets[place])]
            if place + 1 < len(offsets):
                end = min(end, offsets[place + 1])
            yield bytes(body.data[offsets[place] : end])


def _encode_file(
    store: FileStore, header: BlockHeader, path: str, records: list[Record | bytes], last_seq: int
) -> list[bytes]:
    """A whole block file."""
    encoded = [encode(record, header.hash_seed) if isinstance(record, Record) else record for record in records]
    envelope = envelope_of(header, store.options.keys, path)
    if envelope.is_plain:
        return [header.encode(), b"".join(encoded)]
    offsets = [0]
    for record in encoded:
        offsets.append(offsets[-1] + len(record))
    body = memoryview(b"".join(encoded))
    parts, start = [header.encode()], 0
    for cut in frame_cuts(offsets, len(offsets), 0, len(body)):
        parts.append(encode_frame(envelope, body[start:cut], start, last_seq, header.hash_seed))
        start = cut
    return parts


def _erased_record(size: int, seq: int, time_ns: int, seed: int) -> bytes:
    """A record of exactly `size` bytes that holds nothing but noise and its sequence."""
    room = size - RECORD_SIZE_MIN + 1  # for the payload and its length
    payload_size = room - varint_size(room)
    padding = room - payload_size - varint_size(payload_size)  # a length just below a power of 128 leaves a byte over
    noise = secrets.token_bytes(padding + payload_size)
    record = encode(Record(ERASED, b"", noise[:padding], noise[padding:], seq, time_ns), seed)
    assert len(record) == size
    return record


def _shred(store: FileStore, path: str) -> None:
    """Overwrite a file with random bytes, and remove it."""
    with store.files.open(path, write=True) as file:
        size = file.size()
        for offset in range(0, size, _SHRED_STEP_SIZE):
            file.pwrite(offset, secrets.token_bytes(min(_SHRED_STEP_SIZE, size - offset)))
        file.sync()
    store.files.remove(path)
    store.files.sync_dir(store.directory)
