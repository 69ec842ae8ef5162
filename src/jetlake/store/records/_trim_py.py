"""Take many messages out of a stream at once, in Python: the reference of `_trim_c.pyx`. `trim.py` says what for.

Sequences come in ascending order. Message i of an index has the sequence base_seq + seqs[i], or base_seq + i without
`seqs`. `need` holds a u32 per slot of a table: how many of its oldest messages are still to be found.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from jetlake.store.format import NOT_MESSAGE, Buffer
from jetlake.store.index._subject_table_py import FIRST_STALE, SubjectTable
from jetlake.store.records._record_py import BadRecord, decode
from jetlake.store.records.varint import U64_MAX, decode_varint, encode_varint


def oldest_known(
    table: SubjectTable, slots: Sequence[int], count_max: int, need: bytearray
) -> tuple[array[int], int, int]:
    """By which messages subjects exceed `count_max`, as far as the table knows: where that is the first one.

    Returns their sequences in no order, how many others there are (noted in `need`), and from which sequence on.
    """
    check_need(need, table.slot_limit)
    seqs, left, low, needs = array("Q"), 0, U64_MAX, memoryview(need).cast("I")
    for slot in slots:
        excess = table.count(slot) - count_max
        if excess == 1 and not table.flags(slot) & FIRST_STALE:
            seqs.append(table.first(slot))
        elif excess > 0:
            left += excess - needs[slot]
            needs[slot] = excess
            low = min(low, table.first(slot))
    return seqs, left, low


def oldest_in(
    ids: Sequence[int],
    place: int,
    stop: int,
    seqs: Sequence[int] | None,
    base_seq: int,
    starts: Sequence[int],
    ends: Sequence[int],
    need: bytearray,
    left: int,
) -> array[int]:
    """Find needed messages, `left` at most, among those at place..stop-1 that are not gone; their sequences."""
    check_columns(len(ids), place, stop, None if seqs is None else len(seqs), len(starts), len(ends))
    found, gap, needs = array("Q"), 0, memoryview(need).cast("I")
    for position in range(place, stop):
        if len(found) == left:
            break
        slot = ids[position]
        if slot >= len(needs) or not needs[slot]:
            continue
        seq = base_seq + (position if seqs is None else seqs[position])
        while gap < len(ends) and ends[gap] < seq:
            gap += 1
        if gap == len(ends) or seq < starts[gap]:
            needs[slot] -= 1
            found.append(seq)
    return found


def locate(wanted: Sequence[int], seqs: Sequence[int] | None, base_seq: int, count: int) -> array[int]:
    """The positions of some sequences in an index of `count` messages; LookupError when one is not there."""
    if not 0 <= count <= (count if seqs is None else len(seqs)):
        raise IndexError(f"no {count} messages")
    positions = array("I")
    for seq in wanted:
        distance = seq - base_seq
        position = distance if seqs is None else bisect_left(seqs, distance, 0, count)
        if not 0 <= position < count or (seqs is not None and seqs[position] != distance):
            raise LookupError(f"sequence {seq} is not in the index")
        positions.append(position)
    return positions


def measure_at(
    data: Buffer,
    base: int,
    offsets: Sequence[int],
    count: int,
    body_size: int,
    seed: int,
    positions: Sequence[int],
    place: int,
    wanted: Sequence[int],
    table: SubjectTable,
    size_fixed: int,
    size_headers: int,
    slots: array[int],
    sizes: array[int],
) -> int:
    """Fill in slots[i] and sizes[i], as JetStream counts them, for the messages at positions[i], from `place` on.

    `data` holds bytes of the body from offset `base` on. It stops in front of a message that is damaged, or beyond
    `data`; where is returned. wanted[i] is the sequence that the message must have.
    """
    check_places(offsets, count, positions, place, len(wanted), len(slots), len(sizes))
    for number in range(place, len(positions)):
        position = positions[number]
        start = offsets[position] - base
        end = (offsets[position + 1] if position + 1 < count else body_size) - base
        if not 0 <= start <= min(end, len(data)):
            return number
        try:
            record = decode(data, start, min(end, len(data)), seed)[0]
        except BadRecord:
            return number
        if record.seq != wanted[number] or record.flags & NOT_MESSAGE or not record.subject:
            return number
        slot = table.find(record.subject)
        if slot < 0:
            return number
        size = size_fixed + len(record.subject) + len(record.payload)
        slots[number] = slot
        sizes[number] = size + size_headers + len(record.headers) if record.headers else size
    return len(positions)


def message_size(data: Buffer, start: int, end: int, seed: int, size_fixed: int, size_headers: int) -> int:
    """How large JetStream counts the message at data[start:end]; -1 when there is none, or a damaged one."""
    if not 0 <= start <= end:
        raise IndexError(f"message range {start}..{end} of {len(data)} bytes")
    try:
        record = decode(data, min(start, len(data)), min(end, len(data)), seed)[0]
    except BadRecord:
        return -1
    if record.flags & NOT_MESSAGE:
        return -1
    size = size_fixed + len(record.subject) + len(record.payload)
    return size + size_headers + len(record.headers) if record.headers else size


def leave(
    table: SubjectTable,
    slots: Sequence[int],
    wanted: Sequence[int],
    sizes: Sequence[int],
    start: int,
    stop: int,
    subjects: dict[bytes, tuple[int, int]] | None,
    are_oldest: bool,
) -> int:
    """Take messages start..stop-1 out of the table; their size. `are_oldest`: each is the first of its subject.

    What each subject loses, messages and bytes, is added in `subjects`.
    """
    if not 0 <= start <= stop <= min(len(slots), len(wanted), len(sizes)):
        raise IndexError(f"messages {start}..{stop} of {len(slots)}")
    total = 0
    for number in range(start, stop):
        slot, size = slots[number], sizes[number]
        if subjects is not None:
            subject = table.subject(slot)
            messages, lost = subjects.get(subject, (0, 0))
            subjects[subject] = (messages + 1, lost + size)
        if are_oldest:
            table.remove_first(slot, wanted[number])
        else:
            table.remove(slot, wanted[number])
        total += size
    return total


def encode_losses(subjects: dict[bytes, tuple[int, int]]) -> bytes:
    """What each subject loses, as a removal group encodes it: the subject and its size, messages, bytes."""
    parts = list[bytes]()
    for subject, (count, size) in subjects.items():
        parts += [encode_varint(len(subject)), subject, encode_varint(count), encode_varint(size)]
    return b"".join(parts)


def skip_losses(data: bytes, offset: int) -> int:
    """The offset after what subjects lose, their number included; ValueError when it is cut off."""
    count, offset = decode_varint(data, offset)
    for _ in range(count):
        size, offset = decode_varint(data, offset)
        if size > len(data) - offset:
            raise ValueError("removal group is cut off")
        offset = decode_varint(data, decode_varint(data, offset + size)[1])[1]
    return offset


def check_need(need: bytearray, slot_limit: int) -> None:
    """Raise unless there is a number for each slot."""
    if len(need) != 4 * slot_limit:
        raise ValueError(f"need of {len(need)} bytes for {slot_limit} slots")


def check_columns(
    ids_count: int, place: int, stop: int, seqs_count: int | None, starts_count: int, ends_count: int
) -> None:
    """Raise unless the range lies in every column of an index."""
    if not 0 <= place <= stop <= ids_count or (seqs_count is not None and stop > seqs_count):
        raise IndexError(f"positions {place}..{stop} of {ids_count}")
    if starts_count != ends_count:
        raise ValueError(f"{starts_count} starts and {ends_count} ends of ranges")


def check_places(
    offsets: Sequence[int],
    count: int,
    positions: Sequence[int],
    place: int,
    wanted_count: int,
    slots_count: int,
    sizes_count: int,
) -> None:
    """Raise unless every position lies in the index and has a place for what is found."""
    if not 0 <= place <= len(positions) or len(positions) > min(wanted_count, slots_count, sizes_count):
        raise IndexError(f"positions {place}..{len(positions)}")
    if not 0 <= count <= len(offsets) or any(position >= count for position in positions[place:]):
        raise IndexError(f"a position is beyond {count} messages")
