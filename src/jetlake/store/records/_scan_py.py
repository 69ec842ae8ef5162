"""Walk the records of a block, in Python: the reference of `_scan_c.pyx`. `scan.py` says what it is for."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from jetlake.store.format import BLOCK_SEQ_SPAN_MAX, ERASED, EXPIRES, NOT_MESSAGE, SEQ_MAX, SKIP, TRAILER, Buffer
from jetlake.store.index._subject_table_py import SubjectTable
from jetlake.store.records._record_py import BadRecord, Record, decode, measure
from jetlake.store.records.varint import decode_varint


class Scan(NamedTuple):
    """What a walk over records found."""

    offsets: array[int]  # u32: where each message starts
    ids: array[int]  # u32: its subject's slot in the table
    seqs: array[int] | range  # u64; a range as long as each one follows the last
    others: list[int]  # offsets of the records that are not messages
    expiring: list[tuple[int, int]]  # (seq, expires_ns)
    damage: list[tuple[int, int]]  # (offset, size) of what lies unreadable between sound records
    end: int  # after the last sound record
    last_seq: int  # the highest sequence used, skipped ones included
    last_hash: int  # of the last sound record, 0 when there is none
    size: int  # of all messages, as JetStream counts it
    time_ns_min: int
    time_ns_max: int


def scan(
    data: Buffer,
    start: int,
    end: int,
    seed: int,
    prev_seq: int,
    table: SubjectTable,
    size_fixed: int,
    size_headers: int,
) -> Scan:
    """Every sound record of data[start:end], counting messages into the table; see `scan.py`."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"scan range {start}..{end} of {len(data)} bytes")
    if not 0 <= prev_seq <= SEQ_MAX:
        raise ValueError(f"no sequence {prev_seq}")
    offsets, ids, seqs = array("I"), array("I"), array("Q")
    others: list[int] = []
    expiring: list[tuple[int, int]] = []
    damage: list[tuple[int, int]] = []
    last_hash = size = 0
    time_ns_min, time_ns_max = 2**63 - 1, -(2**63)
    offset = sound_end = start
    while offset < end:
        found = _sound_record(data, offset, end, seed, prev_seq)
        if found is None:
            offset += 1
            continue
        record, after, last_seq = found
        if offset > sound_end:
            damage.append((sound_end, offset - sound_end))
        if record.is_message:
            slot = table.intern(record.subject)
            table.add(slot, record.seq)
            offsets.append(offset)
            ids.append(slot)
            seqs.append(record.seq)
            size += size_fixed + len(record.subject) + len(record.payload)
            size += size_headers + len(record.headers) if record.headers else 0
            time_ns_min, time_ns_max = min(time_ns_min, record.time_ns), max(time_ns_max, record.time_ns)
            if record.flags & EXPIRES:
                expiring.append((record.seq, record.expires_ns))
        else:
            others.append(offset)
        prev_seq, last_hash = last_seq, int.from_bytes(data[after - 8 : after], "little")
        offset = sound_end = after
    columns = (offsets, ids, _plainest(seqs))
    return Scan(*columns, others, expiring, damage, sound_end, prev_seq, last_hash, size, time_ns_min, time_ns_max)


def _plainest(seqs: array[int]) -> array[int] | range:
    first = seqs[0] if seqs else 0
    has_gaps = bool(seqs) and seqs[-1] - first + 1 != len(seqs)
    return seqs if has_gaps else range(first, first + len(seqs))


def _sound_record(data: Buffer, offset: int, end: int, seed: int, prev_seq: int) -> tuple[Record, int, int] | None:
    """The record at `offset`, where it ends, and the last sequence used after it; None when it is not sound."""
    try:
        at = measure(data, offset, end, seed)
        seq = TRAILER.unpack_from(data, at.end - TRAILER.size)[0]
        flags = data[offset]
        if _takes_sequence(flags) and not (seq <= SEQ_MAX and 0 < seq - prev_seq <= BLOCK_SEQ_SPAN_MAX):
            return None
        record, after = decode(data, offset, end, seed)
    except BadRecord:
        return None
    if record.is_message and not record.subject:
        return None
    last_seq = record.seq if _takes_sequence(flags) else prev_seq
    if flags & SKIP:
        try:
            count = decode_varint(record.payload, 0)[0]
        except ValueError:
            return None
        if not 0 < count <= SEQ_MAX - last_seq + 1:
            return None
        last_seq += count - 1
    return record, after, last_seq


def _takes_sequence(flags: int) -> bool:
    return not flags & NOT_MESSAGE or bool(flags & (SKIP | ERASED))


def uncount(
    data: Buffer,
    start: int,
    end: int,
    seed: int,
    table: SubjectTable,
    size_fixed: int,
    size_headers: int,
    count_max: int,
    size_max: int,
) -> tuple[int, int]:
    """Take messages of data[start:end] out of the table; see `scan.py`. How many, and their size."""
    if not 0 <= start <= end <= len(data):
        raise IndexError(f"scan range {start}..{end} of {len(data)} bytes")
    count = size = 0
    while start < end and count < count_max and size < size_max:
        try:
            record, start = decode(data, start, end, seed)
        except BadRecord:
            break
        if not record.is_message:
            continue
        if not record.subject:
            break
        slot = table.find(record.subject)
        if slot < 0:
            break
        table.remove(slot, record.seq)
        size += size_fixed + len(record.subject) + len(record.payload)
        size += size_headers + len(record.headers) if record.headers else 0
        count += 1
    return count, size


def copy_live(
    head: bytes,
    data: Buffer,
    offsets: Sequence[int],
    seqs: Sequence[int],
    seed: int,
    starts: Sequence[int],
    ends: Sequence[int],
) -> tuple[bytearray, array[int]]:
    """`head`, then those messages of a scan that are not gone, and where each of them starts; see `scan.py`."""
    check_copy(len(offsets), len(seqs), len(starts), len(ends))
    out, places, gap, end = bytearray(head), array("I"), 0, 0
    for offset, seq in zip(offsets, seqs, strict=True):
        while gap < len(ends) and ends[gap] < seq:
            gap += 1
        if gap == len(ends) or seq < starts[gap]:
            try:
                start, end = max(offset, end), measure(data, offset, len(data), seed).end
            except BadRecord:
                start = -1
            if start != offset:
                raise ValueError(f"no message at offset {offset}")
            places.append(len(out))
            out += data[start:end]
    return out, places


def check_copy(offsets_count: int, seqs_count: int, starts_count: int, ends_count: int) -> None:
    """Raise unless columns that belong together are as long as each other."""
    if offsets_count != seqs_count:
        raise ValueError(f"{offsets_count} offsets and {seqs_count} sequences of messages")
    if starts_count != ends_count:
        raise ValueError(f"{starts_count} starts and {ends_count} ends of ranges")
