"""Subject summaries of sidecars, in Python: the reference of `_summary_c.pyx`. `summary.py` says what it is for."""

from __future__ import annotations

from array import array

from jetlake.store._subject_table_py import SubjectTable
from jetlake.store.format import NO_ID, SEQ_MAX, SUBJECT_SIZE_MAX
from jetlake.store.varint import decode_varint, encode_varint


def localize(
    table: SubjectTable, ids: array[int], seqs: array[int] | None, base_seq: int
) -> tuple[SubjectTable, array[int]]:
    """Give the subjects behind `ids` slots in a table of their own; see `summary.py`."""
    local, local_ids, slots = SubjectTable(), array("I"), {NO_ID: NO_ID}
    for position, slot in enumerate(ids):
        if slot not in slots:
            slots[slot] = local.intern(table.subject(slot))
        local_ids.append(slots[slot])
        if slot != NO_ID:
            local.add(slots[slot], base_seq + (position if seqs is None else seqs[position]))
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
