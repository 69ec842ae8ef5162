"""Encode a batch of messages, in Python: the reference of `_encode_c.pyx`. `encode.py` says what it is for."""

from __future__ import annotations

from array import array

from jetlake.errors import BadRequest, MessageTooLarge
from jetlake.ops import OP_ADMITTED, OP_EXPECTS, OP_MORE, OP_MSG_ID, OP_REST, OP_SPECIAL, OP_WORDS
from jetlake.store.format import EXPIRES, MORE, MSG_ID, REST, SEQ_MAX, SKIP, Buffer
from jetlake.store.index._subject_table_py import LAST_STALE, SubjectTable
from jetlake.store.records._record_py import Record, check_sizes, encode
from jetlake.store.records.varint import encode_varint


def encode_batch(
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
    chunk: bytearray,
    used: int,
    base: int,
    offsets: array[int],
    ids: array[int],
    count: int,
    table: SubjectTable,
    seq: int,
    time_ns: int,
    seed: int,
    size_fixed: int,
    size_headers: int,
    per_subject_max: int,
    over: list[int],
) -> tuple[int, int, int]:
    """Encode operations first..stop-1 for as long as they fit; see `encode.py`."""
    _check_door(data, ops, first, stop, len(chunk), used, len(offsets), len(ids), count, seq)
    size = 0
    done = first
    while done < stop and count < len(offsets):
        op = ops[done * OP_WORDS : (done + 1) * OP_WORDS]
        subject_at, subject_size, _, _, headers_at, headers_size, payload_at, payload_size, _, flags, low, high = op
        if flags & (OP_SPECIAL | OP_ADMITTED) == OP_SPECIAL:
            break
        problem = op_problem(len(data), op)
        if problem is not None:
            if done > first:  # what is done stands; the next call says what is wrong
                break
            raise problem
        subject = bytes(data[subject_at : subject_at + subject_size])
        headers = bytes(data[headers_at : headers_at + headers_size])
        payload = bytes(data[payload_at : payload_at + payload_size])
        record = encode(Record(MSG_ID if flags & OP_MSG_ID else 0, subject, headers, payload, seq, time_ns), seed)
        if len(record) > len(chunk) - used:
            break
        if flags & OP_EXPECTS and not has_last(table, subject, low | high << 32):
            break
        slot = table.intern(subject)
        table.add(slot, seq)
        ops[done * OP_WORDS + 8] = slot + 1
        if per_subject_max > 0 and table.count(slot) == per_subject_max + 1:
            over.append(slot)
        offsets[count], ids[count] = base + used, slot
        chunk[used : used + len(record)] = record
        used += len(record)
        size += size_fixed + subject_size + payload_size + (size_headers + headers_size if headers_size else 0)
        count += 1
        seq += 1
        done += 1
    return done, used, size


def encode_batch_at(
    data: Buffer,
    ops: array[int],
    seqs: array[int],
    times: array[int],
    expires: array[int],
    first: int,
    stop: int,
    chunk: bytearray,
    used: int,
    base: int,
    offsets: array[int],
    ids: array[int],
    count: int,
    table: SubjectTable,
    last_seq: int,
    seed: int,
    size_fixed: int,
    size_headers: int,
    per_subject_max: int,
    over: list[int],
    gaps: list[int],
) -> tuple[int, int, int]:
    """Encode operations first..stop-1, whose sequences and times are given; see `encode.py`."""
    _check_door(data, ops, first, stop, len(chunk), used, len(offsets), len(ids), count, last_seq + 1)
    check_given(len(seqs), len(times), len(expires), stop)
    size = 0
    done = first
    while done < stop and count < len(offsets):
        op, seq, time_ns = ops[done * OP_WORDS : (done + 1) * OP_WORDS], seqs[done], times[done]
        problem = op_problem(len(data), op) or seq_problem(seq, last_seq)
        if problem is not None:
            if done > first:  # what is done stands; the next call says what is wrong
                break
            raise problem
        subject, headers, payload = (bytes(data[start : start + size]) for start, size in (op[0:2], op[4:6], op[6:8]))
        expires_ns = expires[done] if expires else 0
        flags = (MSG_ID if op[9] & OP_MSG_ID else 0) | (EXPIRES if expires_ns else 0)
        flags |= (MORE if op[9] & OP_MORE else 0) | (REST if op[9] & OP_REST else 0)
        skip = b""
        if seq > last_seq + 1:
            between = encode_varint(seq - last_seq - 1)
            skip = encode(Record(SKIP, b"", b"", between, last_seq + 1, time_ns), seed)
        record = encode(Record(flags, subject, headers, payload, seq, time_ns, expires_ns), seed)
        if len(skip) + len(record) > len(chunk) - used:
            break
        if skip:
            gaps += [last_seq + 1, seq - 1]
            chunk[used : used + len(skip)] = skip
            used += len(skip)
        slot = table.intern(subject)
        table.add(slot, seq)
        if per_subject_max > 0 and table.count(slot) == per_subject_max + 1:
            over.append(slot)
        offsets[count], ids[count] = base + used, slot
        chunk[used : used + len(record)] = record
        used += len(record)
        size += size_fixed + len(subject) + len(payload) + (size_headers + len(headers) if headers else 0)
        count, last_seq, done = count + 1, seq, done + 1
    return done, used, size


def seq_problem(seq: int, last_seq: int) -> Exception | None:
    """Why a sequence cannot follow another."""
    if not last_seq < seq <= SEQ_MAX:
        return BadRequest(f"sequence {seq} does not follow {last_seq}")
    return None


def check_given(seqs: int, times: int, expires: int, stop: int) -> None:
    """IndexError unless there is a sequence and a time for each operation."""
    if min(seqs, times, expires or stop) < stop:
        raise IndexError(f"{stop} operations, {seqs} sequences, {times} times, {expires} times of expiry")


def has_last(table: SubjectTable, subject: bytes, seq: int) -> bool:
    """Whether this is for certain the last sequence of a subject; 0 of one without messages."""
    slot = table.find(subject)
    return seq == 0 if slot < 0 else not table.flags(slot) & LAST_STALE and table.last(slot) == seq


def check_batch(data: Buffer, ops: array[int]) -> None:
    """Raise unless a record can be made of every operation."""
    for start in range(0, len(ops) // OP_WORDS * OP_WORDS, OP_WORDS):
        problem = op_problem(len(data), ops[start : start + OP_WORDS])
        if problem is not None:
            raise problem


def op_problem(data_size: int, op: array[int]) -> Exception | None:
    """Why no record can be made of an operation."""
    for start, size in (op[0:2], op[4:6], op[6:8]):
        if start > data_size or size > data_size - start:
            return IndexError("operation reaches beyond the buffer")
    if not op[1]:
        return BadRequest("the subject is empty")
    try:
        check_sizes(op[1], op[5], op[7])
    except MessageTooLarge as error:
        return error
    return None


def _check_door(
    data: Buffer,
    ops: array[int],
    first: int,
    stop: int,
    chunk_size: int,
    used: int,
    offsets_size: int,
    ids_size: int,
    count: int,
    seq: int,
) -> None:
    if not 0 <= first <= stop <= len(ops) // OP_WORDS:
        raise IndexError(f"operations {first}..{stop} of {len(ops) // OP_WORDS}")
    if not 0 <= used <= chunk_size or not 0 <= count <= offsets_size or ids_size < offsets_size:
        raise IndexError("chunk or index has no such place")
    if not 1 <= seq <= SEQ_MAX + 1 - (stop - first):
        raise ValueError(f"no {stop - first} sequences from {seq}")
