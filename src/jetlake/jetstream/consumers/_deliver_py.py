"""Stored messages as frames for a consumer, in Python: the reference of `_deliver_c.pyx`. Import `deliver`.

`select` finds which messages of a block are to be delivered, from the index alone. A `Framer` turns them into frames
from the bytes of the block's body; it holds what grows with each message of a run.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from jetlake.store.format import NOT_MESSAGE, Buffer
from jetlake.store.index._subject_filter_py import SubjectFilter
from jetlake.store.index._subject_scan_py import check_live
from jetlake.store.index._subject_table_py import SubjectTable
from jetlake.store.records._record_py import BadRecord, Record, decode

_CRLF = b"\r\n"
_UNKNOWN, _NO, _YES = range(3)  # what a memo says of a slot

# Why a framer stopped: it is done with what it was given, it has enough, the next message would exceed the size, or the
# next message lies beyond the bytes it was given.
END, COUNT, SIZE, BEYOND = range(4)


def select(
    table: SubjectTable,
    filter: SubjectFilter,
    ids: Sequence[int],
    place: int,
    stop: int,
    seqs: Sequence[int] | None,
    base_seq: int,
    starts: Sequence[int],
    ends: Sequence[int],
    memo: bytearray,
    out: array[int],
) -> tuple[int, int]:
    """Write the positions of place..stop-1 that are live and match to `out`, until it is full.

    Returns how many, and where to go on. Message i has the sequence base_seq + seqs[i], or base_seq + i without `seqs`;
    gone are starts[i]..ends[i], the arrays of a SequenceSet. `memo` is as in `store._subject_scan_py`.
    """
    check_live(table, ids, stop, seqs, base_seq, 0, 0, starts, ends, memo)
    if place < 0:
        raise IndexError(f"place {place} of {len(ids)} ids")
    count, gap = 0, 0
    while place < stop and count < len(out):
        seq = base_seq + (place if seqs is None else seqs[place])
        while gap < len(ends) and ends[gap] < seq:
            gap += 1
        is_live = gap == len(ends) or seq < starts[gap]
        if is_live and (filter.is_all or _matches(table, filter, ids[place], memo)):
            out[count] = place
            count += 1
        place += 1
    return count, place


def _matches(table: SubjectTable, filter: SubjectFilter, slot: int, memo: bytearray) -> bool:
    """Does the subject of a live message match? The filter is asked once per slot."""
    if memo[slot] == _UNKNOWN:
        memo[slot] = _YES if filter.matches(table.subject(slot)) else _NO
    return memo[slot] == _YES


class Framer:
    """The frames of one run: the first has the consumer sequence given, and one of `num_pending` less behind it."""

    def __init__(
        self,
        sid: bytes,
        ack_prefix: bytes,
        consumer_seq: int,
        num_pending: int,
        count_max: int,
        size_max: int,
        headers_only: bool,
        extra_headers: bytes,
    ) -> None:
        check_framer(consumer_seq, num_pending, count_max, size_max)
        self.sid, self.ack_prefix, self.headers_only, self.extra_headers = sid, ack_prefix, headers_only, extra_headers
        self.consumer_seq, self.num_pending = consumer_seq, num_pending
        self.count_max, self.size_max = count_max, size_max
        self.size = 0  # as a pull request's max_bytes counts it
        self.damaged: list[int] = []  # sequences of messages that cannot be read
        self._data, self._seqs = bytearray(), array("Q")

    @property
    def count(self) -> int:
        """How many messages are framed."""
        return len(self._seqs)

    def take(self) -> tuple[bytearray, array[int]]:
        """The frames and the sequences of their messages; the framer is of no use afterwards."""
        return self._data, self._seqs

    def frame(
        self,
        data: Buffer,
        base: int,
        offsets: Sequence[int],
        index_count: int,
        body_size: int,
        seqs: Sequence[int] | None,
        base_seq: int,
        seed: int,
        positions: Sequence[int],
        place: int,
        stop: int,
    ) -> tuple[int, int]:
        """Frame the messages at positions[place:stop] of a block's index; where it stopped, and why.

        `data` holds bytes of the body from offset `base` on: the first message in any case, or it counts as damaged.
        """
        check_frame(offsets, index_count, seqs, positions, place, stop)
        first = place
        while place < stop:
            if self.count >= self.count_max:
                return place, COUNT
            position = positions[place]
            start = offsets[position] - base
            end = (offsets[position + 1] if position + 1 < index_count else body_size) - base
            seq = base_seq + (position if seqs is None else seqs[position])
            record = _record(data, start, min(end, len(data)), seed, seq)
            if record is not None:
                if not self._add(record):
                    return place, SIZE
            elif place > first and end > len(data):
                return place, BEYOND
            else:
                self.damaged.append(seq)
                self.num_pending = max(self.num_pending - 1, 0)
            place += 1
        return place, END

    def _add(self, record: Record) -> bool:
        """Frame one message, unless it is too much."""
        pending = max(self.num_pending - 1, 0)
        reply = ack_reply(self.ack_prefix, 1, record.seq, self.consumer_seq, record.time_ns, pending)
        frame, size = delivery(
            record.subject, record.headers, record.payload, self.sid, reply, self.headers_only, self.extra_headers
        )
        if size > self.size_max - self.size:
            return False
        self._data += frame
        self._seqs.append(record.seq)
        self.size += size
        self.consumer_seq += 1
        self.num_pending = pending
        return True


def _record(data: Buffer, start: int, end: int, seed: int, seq: int) -> Record | None:
    """The message with this sequence, if it is there and sound."""
    if not 0 <= start <= end:
        return None
    try:
        record = decode(data, start, end, seed)[0]
    except BadRecord:
        return None
    return record if record.seq == seq and not record.flags & NOT_MESSAGE else None


def ack_reply(prefix: bytes, deliveries: int, seq: int, consumer_seq: int, time_ns: int, num_pending: int) -> bytes:
    """The subject to which a delivery is acknowledged."""
    return b"%s%d.%d.%d.%d.%d" % (prefix, deliveries, seq, consumer_seq, time_ns, num_pending)


def delivery(
    subject: bytes, headers: bytes, payload: bytes, sid: bytes, reply: bytes, headers_only: bool, extra_headers: bytes
) -> tuple[bytes, int]:
    """A frame, and what it counts for a request's max_bytes: all but the extra headers."""
    if headers_only:
        headers = _extended(headers, b"Nats-Msg-Size: %d\r\n" % len(payload))
        payload = b""
    size = len(subject) + len(reply) + len(headers) + len(payload)
    if extra_headers:
        headers = _extended(headers, extra_headers)
    if not headers:
        return b"MSG %s %s %s %d\r\n%s\r\n" % (subject, sid, reply, len(payload), payload), size
    line = b"HMSG %s %s %s %d %d\r\n" % (subject, sid, reply, len(headers), len(headers) + len(payload))
    return line + headers + payload + _CRLF, size


def _extended(headers: bytes, lines: bytes) -> bytes:
    """A header block with more lines; a new one where there is none."""
    if len(headers) <= len(_CRLF):
        headers = b"NATS/1.0\r\n\r\n"
    return headers.removesuffix(_CRLF) + lines + _CRLF


def check_framer(consumer_seq: int, num_pending: int, count_max: int, size_max: int) -> None:
    """Raise unless the numbers of a run fit into 64 bits to its end."""
    for number in (consumer_seq, num_pending, count_max, size_max):
        if not 0 <= number < 2**63:
            raise ValueError(f"{number} is not between 0 and 2**63")


def check_frame(
    offsets: Sequence[int],
    index_count: int,
    seqs: Sequence[int] | None,
    positions: Sequence[int],
    place: int,
    stop: int,
) -> None:
    """Raise unless every position that is asked for lies in the index."""
    if not 0 <= place <= stop <= len(positions):
        raise IndexError(f"positions {place}..{stop} of {len(positions)}")
    if not 0 <= index_count <= len(offsets) or (seqs is not None and len(seqs) < index_count):
        raise IndexError(f"{index_count} messages in an index of {len(offsets)}")
    if any(positions[i] >= index_count for i in range(place, stop)):
        raise IndexError(f"a position is beyond {index_count} messages")
