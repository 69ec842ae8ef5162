"""Messages that were delivered and not yet acknowledged, in Python: the reference of `_ack_pending_c.pyx`.

Import `ack_pending`, where it is explained.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict

from jetlake.ops import OP_WORDS
from jetlake.store.records.varint import encode_varint

TIME_MAX_NS = 2**63 - 1
_ACK_PAYLOADS = (b"", b"+ACK", b"+OK")
_ACK_NUMBERS = 5  # deliveries, stream sequence, consumer sequence, time, num pending
_NUMBER_SIZE_MAX = 19


class AckPending:
    """Pending messages by stream sequence: the consumer sequence and the time of each."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, list[int]] = OrderedDict()
        self._last = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add_run(self, seqs: array[int], consumer_seq: int, time_ns: int) -> None:
        """Add messages that were delivered together, in order; the first one got this consumer sequence."""
        check_run(seqs, self._last, consumer_seq)
        for place, seq in enumerate(seqs):
            self._entries[seq] = [consumer_seq + place, time_ns]
        self._last = seqs[-1] if seqs else self._last

    def consumer_seq(self, seq: int) -> int:
        """The consumer sequence of a pending message; 0 when it is not pending."""
        entry = self._entries.get(seq)
        return entry[0] if entry else 0

    def time_ns(self, seq: int) -> int:
        """The time of a pending message; 0 when it is not pending."""
        entry = self._entries.get(seq)
        return entry[1] if entry else 0

    def touch(self, seq: int, time_ns: int) -> bool:
        """Give a pending message another time; False when it is not pending."""
        entry = self._entries.get(seq)
        if entry is None:
            return False
        entry[1] = time_ns
        return True

    def remove(self, seq: int) -> int:
        """Remove a message; its consumer sequence, 0 when it was not pending."""
        entry = self._entries.pop(seq, None)
        return entry[0] if entry else 0

    def remove_many(self, seqs: array[int], count: int) -> int:
        """Remove the first `count` of some sequences; those that were pending, so many, move to the front."""
        if not 0 <= count <= len(seqs):
            raise IndexError(f"{count} of {len(seqs)} sequences")
        removed = 0
        for place in range(count):
            seq = seqs[place]
            if self.remove(seq):
                seqs[removed], removed = seq, removed + 1
        return removed

    def remove_through(self, last: int) -> array[int]:
        """Remove all up to a stream sequence; which they were."""
        removed = array("Q")
        while self._entries and (seq := next(iter(self._entries))) <= last:
            del self._entries[seq]
            removed.append(seq)
        return removed

    def first(self) -> tuple[int, int]:
        """The stream and consumer sequence of the smallest one; zeros when nothing is pending."""
        for seq, entry in self._entries.items():
            return seq, entry[0]
        return 0, 0

    def overdue(self, first: int, last: int, limit_ns: int) -> tuple[array[int], int]:
        """Those of first..last whose time is not after a limit, and the earliest time among the others."""
        found, earliest_ns = array("Q"), TIME_MAX_NS
        for seq, (_, time_ns) in self._entries.items():
            if seq > last:
                break
            if seq < first:
                continue
            if time_ns <= limit_ns:
                found.append(seq)
            elif time_ns < earliest_ns:
                earliest_ns = time_ns
        return found, earliest_ns

    def entries(self) -> list[tuple[int, int, int]]:
        """Stream sequence, consumer sequence and time of each, ascending."""
        return [(seq, entry[0], entry[1]) for seq, entry in self._entries.items()]

    def pack(self, stream_seq: int, consumer_seq: int, stream_max: int, consumer_max: int) -> tuple[int, int, bytes]:
        """How many there are, the earliest time, and their entries as `store.consumer_state` has them in its file.

        They lie above a stream and a consumer sequence, the ack floor, and not above two others, which were delivered
        last; if not, it raises ValueError.
        """
        entries = self.entries()
        if not entries:
            return 0, 0, b""
        base_ns = min(time_ns for _, _, time_ns in entries)
        parts: list[bytes] = []
        for seq, own_seq, time_ns in entries:
            if seq <= stream_seq or own_seq <= consumer_seq:
                raise ValueError(misplaced(seq, own_seq))
            parts += map(encode_varint, (seq - stream_seq, own_seq - consumer_seq, time_ns - base_ns))
            stream_seq, consumer_seq = seq, own_seq
        if stream_seq > stream_max or consumer_seq > consumer_max:
            raise ValueError(misplaced(stream_seq, consumer_seq))
        return len(entries), base_ns, b"".join(parts)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._last = 0


def misplaced(seq: int, consumer_seq: int) -> str:
    """What is wrong with a pending message that does not lie above the one before it, or the ack floor."""
    return f"pending message {seq}, delivered as {consumer_seq}, is not where it can be"


def parse_acks(
    data: bytes | bytearray | memoryview,
    ops: array[int],
    first: int,
    stop: int,
    prefix: bytes,
    seqs: array[int],
    consumer_seqs: array[int],
) -> int:
    """Read operations from the first one on for as long as they are plain acks of one consumer; where that ends.

    A plain ack is published to `<prefix><deliveries>.<stream seq>.<consumer seq>.<time>.<pending>`, has neither reply
    nor headers, and says nothing or +ACK. Its two sequences are written to the arrays, which have room for all.
    """
    check_acks(ops, first, stop, seqs, consumer_seqs)
    view = memoryview(data)
    for number in range(first, stop):
        op = ops[number * OP_WORDS : (number + 1) * OP_WORDS]
        if op[0] + op[1] > len(view) or op[6] + op[7] > len(view):
            raise IndexError(f"operation {number} reaches beyond {len(view)} bytes")
        if op[3] or op[5] or bytes(view[op[6] : op[6] + op[7]]) not in _ACK_PAYLOADS:
            return number
        numbers = _numbers(bytes(view[op[0] : op[0] + op[1]]), prefix)
        if numbers is None:
            return number
        seqs[number - first], consumer_seqs[number - first] = numbers[1], numbers[2]
    return stop


def _numbers(subject: bytes, prefix: bytes) -> list[int] | None:
    tokens = subject[len(prefix) :].split(b".")
    if not subject.startswith(prefix) or len(tokens) != _ACK_NUMBERS:
        return None
    if any(len(token) > _NUMBER_SIZE_MAX or not token.isdigit() for token in tokens):
        return None
    return [int(token) for token in tokens]


def check_run(seqs: array[int], last: int, consumer_seq: int) -> None:
    """Raise unless a run can be added behind the last one."""
    if seqs.typecode != "Q" or consumer_seq < 1:
        raise ValueError(f"a run of {seqs.typecode!r} from consumer sequence {consumer_seq}")
    for seq in seqs:
        if seq <= last:
            raise ValueError(f"sequence {seq} does not follow {last}")
        last = seq


def check_acks(ops: array[int], first: int, stop: int, seqs: array[int], consumer_seqs: array[int]) -> None:
    """Raise unless the operations are there, and room for what is read from them."""
    if not 0 <= first <= stop or stop * OP_WORDS > len(ops):
        raise IndexError(f"operations {first}..{stop} of {len(ops) // OP_WORDS}")
    if seqs.typecode != "Q" or consumer_seqs.typecode != "Q" or min(len(seqs), len(consumer_seqs)) < stop - first:
        raise ValueError(f"no room for {stop - first} sequences")
