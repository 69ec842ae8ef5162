"""Read a whole block and work out what it says: the slow, sure way to know a block, and the definition of its sidecar.

`read_body` assembles the plain body; frames that cannot be opened leave zeros, which no scan takes for a record.
`scan_block` walks its records and fills in a MsgBlock. Sequences inside the block's range that no record accounts for
are *holes*: lost, unless something outside the block explains them.

Of an atomic batch, a reader must find all or nothing. One that was cut short at the end of the block is cut off, as an
unfinished write is. One with a hole that was never written, which a power cut can leave, is lost as a whole. A member
that was written and is damaged is lost alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from jetlake.store.blocks.block import BlockIndex, MsgBlock
from jetlake.store.blocks.block_file import BlockFile, Frame, frame_at, open_frame
from jetlake.store.blocks.removal import ERASE, LOST, RemovalGroup, decode_group
from jetlake.store.format import (
    ERASED,
    FLOOR,
    FRAME_MAGIC,
    FRAME_TAIL_SIZE,
    HEADER_SIZE,
    MORE,
    NOT_MESSAGE,
    RECORD_SIZE_MIN,
    REST,
    SKIP,
    TOMBSTONE,
    TRAILER,
    Buffer,
    hash64,
)
from jetlake.store.index.sequence_set import SequenceSet
from jetlake.store.index.subject_table import SubjectTable
from jetlake.store.records.record import BadRecord, Record, decode, measure
from jetlake.store.records.scan import Scan, scan, uncount
from jetlake.store.records.varint import decode_varint

# A damaged end is believed to have used a sequence only if that is at most so far ahead.
_TAIL_SEQS_MAX = 1 << 20
_SECTOR_SIZE = 512
_TAIL_TIME_NS_MAX = 30 * 24 * 3600 * 10**9


class Body(NamedTuple):
    """The plain body of a block file."""

    data: bytes | memoryview
    frames: list[Frame]
    file_size: int
    file_end: int  # after the last sound frame; the end of the file where there are no frames
    tail: bytes  # what follows the last sound frame
    damage: list[tuple[int, int]]  # offset in the file and size of what is not a sound frame
    last_seq: int  # the last sequence in use when the last sound frame was written; 0 where there are no frames


class BlockScan(NamedTuple):
    """What a scan found beside what it filled into the block."""

    erases: list[RemovalGroup]
    damage: list[str]
    torn_size: int  # bytes of an unfinished write at the end, to be cut off
    records: Scan


def read_body(file: BlockFile, scratch: bytearray | None = None) -> Body:
    """The whole body, as far as it can be read.

    With `scratch`, a plain body lies in that buffer, which grows as needed, and only until it is used again: to read
    many blocks in a row into fresh memory costs more than to scan them.
    """
    file_size = file.file.size()
    size = max(file_size - HEADER_SIZE, 0)
    if scratch is not None and file.envelope.is_plain:
        scratch.extend(bytes(max(size - len(scratch), 0)))
        view = memoryview(scratch)[:size]
        return Body(view[: file.file.pread_into(HEADER_SIZE, view)], [], file_size, file_size, b"", [], 0)
    data = file.file.pread(HEADER_SIZE, size)
    if file.envelope.is_plain:
        return Body(data, [], file_size, file_size, b"", [], 0)
    plain, frames, damage = bytearray(), list[Frame](), list[tuple[int, int]]()
    offset = sound_end = last_seq = 0
    while offset < len(data):
        found = open_frame(file.envelope, data, offset, file.header.hash_seed)
        if isinstance(found, str):
            offset = _next_frame(data, offset + 1, file.header.hash_seed)
            continue
        if offset > sound_end:
            damage.append((HEADER_SIZE + sound_end, offset - sound_end))
        frame, piece = found
        plain.extend(bytes(max(frame.plain_offset - len(plain), 0)))
        plain[frame.plain_offset : frame.plain_offset + frame.plain_size] = piece
        frames.append(frame._replace(file_offset=HEADER_SIZE + offset))
        offset = sound_end = frame.file_end
        tail = data[sound_end - FRAME_TAIL_SIZE : sound_end]
        last_seq = max(last_seq, _seqs_of_frame_tail(tail, file.header.hash_seed)[0])
    return Body(bytes(plain), frames, file_size, HEADER_SIZE + sound_end, data[sound_end:], damage, last_seq)


def _next_frame(data: bytes, offset: int, seed: int) -> int:
    """Where the next sound frame header is; the end of the data when there is none."""
    while (offset := data.find(FRAME_MAGIC, offset)) >= 0:
        if frame_at(data, offset, seed) is not None:
            return offset
        offset += 1
    return len(data)


def scan_block(block: MsgBlock, file: BlockFile, body: Body, table: SubjectTable, sizes: tuple[int, int]) -> BlockScan:
    """Fill in a block from its body. Its messages, gone ones too, are counted into the table."""
    found = scan(body.data, 0, len(body.data), block.seed, block.first_seq - 1, table, *sizes)
    block.index = _index(found, table)
    block.last_seq, block.last_hash = found.last_seq, found.last_hash
    block.size, block.expiring = found.size, found.expiring
    block.time_ns_min, block.time_ns_max = found.time_ns_min, found.time_ns_max
    erases = _read_others(block, body.data, found.others)
    damage = [
        f"{size} bytes at offset {offset} are not a sound record"
        for offset, size in found.damage
        if file.envelope.is_plain or any(body.data[offset : offset + size])
    ] + [f"{size} bytes at offset {offset} are not a sound frame" for offset, size in body.damage]
    block.last_seq = max(block.last_seq, body.last_seq)
    _settle_last_damage(block, body, found)
    torn_size = _settle_tail(block, file, body, found, damage)
    if found.offsets and body.data[found.offsets[-1]] & MORE and block.last_seq == found.seqs[-1]:
        torn_size += _end_open_batch(block, file, body, found, sizes)
    holes = missing_seqs(found, block.gone, block.first_seq, block.last_seq)
    if holes and found.offsets:
        holes.update(_broken_batches(block, body, holes))
    block.gone.update(holes)
    block.lost.update(holes)
    file.frames = body.frames
    return BlockScan(erases, damage, torn_size, found)


def _end_open_batch(block: MsgBlock, file: BlockFile, body: Body, found: Scan, sizes: tuple[int, int]) -> int:
    """The block ends in the middle of an atomic batch: cut that off; how many bytes. If something follows, it stays."""
    index = block.index
    assert index is not None
    is_followed = block.body_size > found.end or (found.others and found.others[-1] > found.offsets[-1])
    if is_followed or not file.envelope.is_plain:
        block.last_seq += 1  # that is how far it went at least: a hole
        return 0
    first = _first_of_batch(body.data, index, index.count - 1)
    start, seq = index.offsets[first], index.seq(first)
    count, size = uncount(body.data, start, found.end, block.seed, index.table, *sizes, index.count - first, 2**63 - 1)
    assert count == index.count - first, "what was found is sound"
    cut_size = block.body_size - start
    index.cut(first)
    block.size -= size
    block.last_seq = seq - 1
    block.last_hash = int.from_bytes(body.data[start - 8 : start], "little") if start else 0
    block.expiring = [expiry for expiry in block.expiring if expiry[0] < seq]
    block.body_size = block.written_size = block.synced_size = start
    file.file_size = HEADER_SIZE + start
    return cut_size


def _first_of_batch(data: Buffer, index: BlockIndex, position: int) -> int:
    """Where the atomic batch of a message begins, as far as it is there."""
    while position and data[index.offsets[position]] & REST and index.seq(position - 1) == index.seq(position) - 1:
        position -= 1
    return position


def _broken_batches(block: MsgBlock, body: Body, holes: SequenceSet) -> SequenceSet:
    """What is there of atomic batches of which something was never written: around holes."""
    index, data, broken = block.index, body.data, SequenceSet()
    assert index is not None
    for first, last in holes.ranges():
        after = index.position_from(last + 1)
        is_open = bool(after) and bool(data[index.offsets[after - 1]] & MORE) and index.seq(after - 1) == first - 1
        is_rest = after < index.count and bool(data[index.offsets[after]] & REST) and index.seq(after) == last + 1
        start = measure(data, index.offsets[after - 1], len(data), block.seed).end if after else 0
        end = index.offsets[after] if after < index.count else len(data)
        if not (is_open or is_rest) or not _is_unwritten(data, start, end):
            continue
        if is_open:
            broken.add_range(index.seq(_first_of_batch(data, index, after - 1)), first - 1)
        if is_rest:
            seq = last + 1
            while after + 1 < index.count and data[index.offsets[after]] & MORE and index.seq(after + 1) == seq + 1:
                after, seq = after + 1, seq + 1
            broken.add_range(last + 1, seq)
    return broken


def _is_unwritten(data: Buffer, start: int, end: int) -> bool:
    """Is there a sector between two places that was never written?"""
    region = bytes(data[start:end])
    return not region.strip(b"\0") or bytes(_SECTOR_SIZE) in region


def uncount_gone(block: MsgBlock, index: BlockIndex, body: Body, sizes: tuple[int, int]) -> None:
    """Take the messages that a scan counted, but that are gone, out of the table and the block's size."""
    for first, last in block.gone.ranges():
        start, stop = index.position_from(first), index.position_from(last + 1)
        while start < stop:  # once, unless there is damage between them
            data_end = index.end(stop - 1, len(body.data))
            count, size = uncount(
                body.data, index.offsets[start], data_end, block.seed, index.table, *sizes, stop - start, 2**63 - 1
            )
            assert count, "what the index knows is sound"
            block.size -= size
            start += count


def _index(found: Scan, table: SubjectTable) -> BlockIndex:
    index = BlockIndex(table, found.seqs[0] if found.seqs else 0)
    index.offsets, index.ids, index.count = found.offsets, found.ids, len(found.offsets)
    if not isinstance(found.seqs, range):
        base_seq = found.seqs[0]
        index.seqs = array("I", (seq - base_seq for seq in found.seqs))
    return index


def _read_others(block: MsgBlock, data: Buffer, offsets: list[int]) -> list[RemovalGroup]:
    """Take in the records that are not messages; the erasures among them."""
    erases, seen = [], set[bytes]()
    for offset in offsets:
        record, _ = decode(data, offset, len(data), block.seed)
        if record.flags & SKIP:
            block.gone.add_range(record.seq, record.seq + decode_varint(record.payload, 0)[0] - 1)
        elif record.flags & ERASED:
            block.gone.add(record.seq)
            if record.time_ns:
                block.note_time(record.time_ns)
        elif record.flags & FLOOR:
            block.floor_seq = max(block.floor_seq, record.seq)
        elif record.flags & TOMBSTONE and record.payload not in seen:
            seen.add(record.payload)
            group = decode_group(record.payload)
            if group.kind == ERASE:
                erases.append(group)
            elif group.block_id == block.id:
                if group.generation == block.header.generation:
                    block.gone.update(group.seqs)
                    if group.kind == LOST:
                        block.lost.update(group.seqs)
            elif not group.block_id and group.seqs.first >= block.first_seq:
                block.gone.update(group.seqs)  # a rewritten block says what it left out
                block.last_seq = max(block.last_seq, group.seqs.last)
                if group.kind == LOST:
                    block.lost.update(group.seqs)
            else:
                block.groups.append(group)
    below_floor = min(block.floor_seq - 1, block.last_seq)
    if below_floor >= block.first_seq:
        block.gone.add_range(block.first_seq, below_floor)
    return erases


def read_tombstones(data: Buffer, offsets: list[int], seed: int) -> Iterator[tuple[int, Record]]:
    """Offset and record of each tombstone; the first where it was written twice."""
    seen = set[bytes]()
    for offset in offsets:
        if data[offset] & TOMBSTONE:
            record, _ = decode(data, offset, len(data), seed)
            if record.payload not in seen:
                seen.add(record.payload)
                yield offset, record


def missing_seqs(found: Scan, gone: SequenceSet, first: int, last: int) -> SequenceSet:
    """Sequences from first to last that are neither gone nor those of messages that a scan found."""
    known = gone.copy()
    if not isinstance(found.seqs, range):
        known.add_all(found.seqs)
    elif found.seqs:
        known.add_range(found.seqs[0], found.seqs[-1])
    return SequenceSet(known.gaps(first, last))


def _settle_last_damage(block: MsgBlock, body: Body, found: Scan) -> None:
    """Damage after which only records without a sequence follow: work out which sequences it took."""
    sequenced = [offset for offset in found.others if body.data[offset] & (SKIP | ERASED)]
    last_offset = max([*found.offsets[-1:], *sequenced[-1:]], default=-1)
    for offset, size in found.damage:
        if offset > last_offset:
            region = bytes(body.data[offset : offset + size])
            seq = _record_tail_seq(region, block, max(block.time_ns_max, block.header.last_time_ns))
            block.last_seq = max(block.last_seq, seq or 0)


def _settle_tail(block: MsgBlock, file: BlockFile, body: Body, found: Scan, damage: list[str]) -> int:
    """Tell a write that was cut short from damage to a finished one. The size of the former.

    A write cut short ends in the middle of a record or frame. Where the bytes make a whole one that is not sound, or
    end in a sequence that comes next, they were written in full: their sequences count as used.
    """
    plain = file.envelope.is_plain
    tail = without_reserve(bytes(body.data[found.end :]), block.seed) if plain else body.tail
    block.body_size = found.end if plain else len(body.data)
    file.file_size = HEADER_SIZE + found.end if plain else body.file_end
    if not tail:
        block.written_size = block.synced_size = block.body_size
        return 0
    if plain:
        time_ns = max(block.time_ns_max, block.header.last_time_ns)
        last_seq = _record_tail_seq(tail, block, time_ns)
    else:
        last_seq = _frame_tail_seq(tail, block)
    if last_seq is None:
        block.written_size = block.synced_size = block.body_size
        return len(tail)
    damage.append(f"{len(tail)} bytes at offset {file.file_size} are not sound")
    if plain:
        block.body_size += len(tail)
    file.file_size += len(tail)
    block.written_size = block.synced_size = block.body_size
    block.last_seq = max(block.last_seq, last_seq)
    return 0


def without_reserve(tail: bytes, seed: int) -> bytes:
    """Unsound bytes without the zeros at their end, which are reserved room.

    A record ends in a hash, and some end in zeros. Whether they are its own or where the write was cut short is told by
    the rest of the hash: when that is right, the record is sound as far as it goes.
    """
    written = tail.rstrip(b"\0")
    try:
        end = measure(tail, 0, len(tail), seed).end
    except BadRecord:
        return written
    if end <= len(written):
        return written
    expected = hash64(memoryview(tail)[: end - 8], seed).to_bytes(8, "little")
    is_cut_short = expected.startswith(written[end - 8 :])
    return written if is_cut_short else tail[:end]


def _record_tail_seq(tail: bytes, block: MsgBlock, prev_time_ns: int) -> int | None:
    """The last sequence that unsound bytes at the end used; None when they are an unfinished write."""
    prev_seq = block.last_seq
    seqs = []
    known_seq = None
    try:
        end = measure(tail, 0, len(tail), block.seed).end
        seqs.append(TRAILER.unpack_from(tail, end - TRAILER.size)[0])
        known_seq = prev_seq if tail[0] & NOT_MESSAGE else prev_seq + 1
    except BadRecord:
        pass
    if len(tail) >= RECORD_SIZE_MIN:
        seq, time_ns, _ = TRAILER.unpack_from(tail, len(tail) - TRAILER.size)
        if abs(time_ns - prev_time_ns) < _TAIL_TIME_NS_MAX and 0 < seq <= prev_seq + _TAIL_SEQS_MAX:
            seqs.append(seq)
            known_seq = known_seq or prev_seq
    return _plausible_seq(seqs, prev_seq, known_seq)


def _frame_tail_seq(tail: bytes, block: MsgBlock) -> int | None:
    """The same for bytes that are not a sound frame."""
    seqs = list[int]()
    frame = frame_at(tail, 0, block.seed)
    whole = frame is not None and frame.file_end <= len(tail)
    if frame is not None and whole:
        seqs += _seqs_of_frame_tail(tail[: frame.file_end], block.seed)
    elif len(tail) >= FRAME_TAIL_SIZE:
        first, second = _seqs_of_frame_tail(tail, block.seed)
        if first == second:
            seqs.append(first)
            whole = True
    return _plausible_seq(seqs, block.last_seq, block.last_seq if whole else None)


def _seqs_of_frame_tail(frame: bytes, seed: int) -> tuple[int, int]:
    """The last sequence as a frame's end says it twice."""
    tail = frame[-FRAME_TAIL_SIZE:]
    return int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:16], "little") ^ seed


def _plausible_seq(seqs: list[int], prev_seq: int, known_seq: int | None) -> int | None:
    """The highest believable sequence; else the one that was used for sure, or None when that is not known."""
    believable = [seq for seq in seqs if prev_seq < seq <= prev_seq + _TAIL_SEQS_MAX]
    return max(believable, default=known_seq)
