"""Subject summaries of sidecars, in Python: the reference of `_summary_c.pyx`. `summary.py` says what it is for."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from jetlake.store.format import NO_ID, SEQ_MAX, SUBJECT_SIZE_MAX, hash64
from jetlake.store.index._subject_table_py import SubjectTable
from jetlake.store.records._trim_py import check_columns
from jetlake.store.records.varint import decode_varint, encode_varint

_BITS_SIZE_MIN, _BITS_SIZE_MAX = 8, 8192


def localize(
    table: SubjectTable,
    ids: Sequence[int],
    seqs: Sequence[int] | None,
    base_seq: int,
    starts: Sequence[int],
    ends: Sequence[int],
) -> tuple[SubjectTable, array[int]]:
    """Give the subjects behind `ids` slots in a table of their own; see `summary.py`."""
    check_columns(len(ids), 0, len(ids), None if seqs is None else len(seqs), len(starts), len(ends))
    local, local_ids, slots, gap = SubjectTable(), array("I"), dict[int, int](), 0
    for position, slot in enumerate(ids):
        seq = base_seq + (position if seqs is None else seqs[position])
        while gap < len(ends) and ends[gap] < seq:
            gap += 1
        if slot == NO_ID or (gap < len(ends) and starts[gap] <= seq):
            local_ids.append(NO_ID)
            continue
        if slot not in slots:
            slots[slot] = local.intern(table.subject(slot))
        local_ids.append(slots[slot])
        local.add(slots[slot], seq)
    return local, local_ids


def encode_subjects(table: SubjectTable, base_seq: int) -> bytes:
    """The live entries of a table whose slots are 0..n-1."""
    parts = []
    for slot in range(table.slot_limit):
        subject, first = table.subject(slot), table.first(slot)
        numbers = (table.count(slot), first - base_seq, table.last(slot) - first)
        parts += [encode_varint(len(subject)), subject, *map(encode_varint, numbers)]
    return encode_varint(table.slot_limit) + b"".join(parts)


def merge_subjects(data: bytes, offset: int, end: int, base_seq: int, table: SubjectTable) -> int:
    """Count encoded subjects into a table; the offset after them."""
    if not 0 <= offset <= end <= len(data):
        raise IndexError(f"summary range {offset}..{end} of {len(data)} bytes")
    try:
        count, offset = decode_varint(data, offset, end)
        for _ in range(count):
            size, offset = decode_varint(data, offset, end)
            if not 0 < size <= min(end - offset, SUBJECT_SIZE_MAX):
                raise ValueError
            subject = bytes(data[offset : offset + size])
            messages, offset = decode_varint(data, offset + size, end)
            first, offset = decode_varint(data, offset, end)
            span, offset = decode_varint(data, offset, end)
            last_seq = base_seq + first + span
            if not messages or last_seq > SEQ_MAX:
                raise ValueError
            table.add_many(table.intern(subject), messages, base_seq + first, last_seq, 0)
    except ValueError:
        raise ValueError("subject summary is damaged") from None
    return offset


def subject_bits(data: bytes, offset: int, end: int) -> bytes:
    """A Bloom filter of encoded subjects: see `summary.py`."""
    if not 0 <= offset <= end <= len(data):
        raise IndexError(f"summary range {offset}..{end} of {len(data)} bytes")
    try:
        count, offset = decode_varint(data, offset, end)
        size = _BITS_SIZE_MIN
        while size < min(count, _BITS_SIZE_MAX):
            size *= 2
        bits = bytearray(size)
        for _ in range(count):
            subject_size, offset = decode_varint(data, offset, end)
            if not 0 < subject_size <= min(end - offset, SUBJECT_SIZE_MAX):
                raise ValueError
            number = hash64(data[offset : offset + subject_size], 0)
            bits[number >> 3 & size - 1] |= 1 << (number & 7)
            bits[number >> 35 & size - 1] |= 1 << (number >> 32 & 7)
            offset += subject_size
            for _ in range(3):
                offset = decode_varint(data, offset, end)[1]
    except ValueError:
        raise ValueError("subject summary is damaged") from None
    return bytes(bits)
