"""Message ids and which publishes of a batch need no rule: the reference of `_msg_ids_c.pyx`. Import `msg_ids`."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator

from jetlake.ops import OP_ADMITTED, OP_EXPECTS, OP_MSG_ID, OP_SPECIAL, OP_WORDS
from jetlake.store.format import MSG_ID
from jetlake.store.records._record_py import BadRecord, decode
from jetlake.wire.headers import header_value

PLAIN_BLOCK = b"NATS/1.0\r\n"
RESERVED = b"\r\nNats-"
MSG_ID_LINE = b"\r\nNats-Msg-Id:"
LAST_OF_SUBJECT_LINE = b"\r\nNats-Expected-Last-Subject-Sequence:"
LAST_LINE = b"\r\nNats-Expected-Last-Sequence:"
SEQ_DIGITS_MAX = 19
HEADERS_SIZE_MAX = 65535
ID_SIZE_MAX = 65535
FAST_SUFFIX = b".$FI"  # a reply with this end is that of a fast-ingest batch

Buffer = bytes | bytearray


class MsgIds:
    """The ids of recent messages and their sequences, oldest first."""

    def __init__(self, window_ns: int, is_loaded: bool = True) -> None:
        self.window_ns, self.is_loaded = window_ns, is_loaded
        self._ids: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # sequence and time

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, msg_id: bytes, now_ns: int) -> int:
        """The sequence of the message with this id; 0 when there is none in the window."""
        self.expire(now_ns)
        return self._ids.get(msg_id, (0, 0))[0]

    def add(self, msg_id: bytes, seq: int, time_ns: int) -> None:
        """Remember an id."""
        if self.window_ns and 0 < len(msg_id) <= ID_SIZE_MAX and msg_id not in self._ids:
            self._ids[msg_id] = (seq, time_ns)

    def load(self, body: Buffer, offsets: array[int], first: int, stop: int, seed: int) -> None:
        """Remember the ids of stored messages: those of a block's records first..stop-1 that are marked with one."""
        if not 0 <= first <= stop <= len(offsets):
            raise IndexError(f"records {first}..{stop} of {len(offsets)}")
        for offset in offsets[first:stop]:
            try:
                record, _ = decode(body, offset, len(body), seed)
            except BadRecord:
                continue
            if record.flags & MSG_ID:
                self.add(header_value(record.headers, b"Nats-Msg-Id") or b"", record.seq, record.time_ns)

    def expire(self, now_ns: int) -> None:
        """Forget what is older than the window."""
        while self._ids and next(iter(self._ids.values()))[1] <= now_ns - self.window_ns:
            self._ids.popitem(last=False)

    def forget_from(self, seq: int) -> None:
        """Forget the ids of messages that were not stored after all: those from a sequence on."""
        while self._ids and next(reversed(self._ids.values()))[0] >= seq:
            self._ids.popitem()

    def admit(self, data: Buffer, ops: array[int], first: int, stop: int, seq: int, now_ns: int, size_max: int) -> int:
        """Where the first publish of first..stop-1 stands that needs a rule; see `msg_ids.py`."""
        check_door(len(ops), first, stop)
        self.expire(now_ns)
        for number in range(first, stop):
            at = number * OP_WORDS
            start, size, payload_size = ops[at + 4], ops[at + 5], ops[at + 7]
            if 0 <= size_max < size + payload_size or size > HEADERS_SIZE_MAX:
                return number
            if data[ops[at + 2] : ops[at + 2] + ops[at + 3]].endswith(FAST_SUFFIX):
                return number
            if not size:
                continue
            block = bytes(data[start : start + size])
            if not block.startswith(PLAIN_BLOCK):
                return number
            if ops[at + 9] & OP_SPECIAL:
                ops[at + 9] &= ~(OP_ADMITTED | OP_EXPECTS)
                expected = self._admit_headers(block, seq + number - first, now_ns)
                if expected is None:
                    return number
                ops[at + 9] |= OP_ADMITTED
                if expected >= 0:
                    ops[at + 9] |= OP_EXPECTS
                    ops[at + 10], ops[at + 11] = expected & 0xFFFFFFFF, expected >> 32
        return stop

    def take(self, data: Buffer | memoryview, ops: array[int], first: int, stop: int, seq: int, time_ns: int) -> None:
        """Remember the ids of messages first..stop-1 that were admitted elsewhere, and are stored from `seq` on."""
        check_door(len(ops), first, stop)
        self.expire(time_ns)
        for number in range(first, stop):
            at = number * OP_WORDS
            if ops[at + 9] & OP_MSG_ID:
                block = bytes(data[ops[at + 4] : ops[at + 4] + ops[at + 5]])
                self.add(header_value(block, b"Nats-Msg-Id") or b"", seq + number - first, time_ns)

    def _admit_headers(self, block: bytes, seq: int, now_ns: int) -> int | None:
        """Look at the headers of ours: the expected last sequence of the subject, or -1; None when it needs a rule."""
        expected = -1
        is_known = {MSG_ID_LINE: False, LAST_OF_SUBJECT_LINE: False, LAST_LINE: False}
        for line in _reserved_lines(block):
            name = line[: line.find(b":") + 1]
            if is_known.get(name, True):
                return None
            is_known[name] = True
            value = line[len(name) :].lstrip(b" ")
            if name != MSG_ID_LINE and not (0 < len(value) <= SEQ_DIGITS_MAX and value.isdigit()):
                return None
            if name == LAST_LINE and int(value) != seq - 1:
                return None
            if name == LAST_OF_SUBJECT_LINE:
                expected = int(value)
        return expected if not is_known[MSG_ID_LINE] or self._admit_id(block, seq, now_ns) else None

    def _admit_id(self, block: bytes, seq: int, now_ns: int) -> bool:
        """Take the id of a message; False when it is known, or cannot be told."""
        if not self.window_ns:
            return True
        msg_id = header_value(block, b"Nats-Msg-Id")
        if not self.is_loaded or not msg_id or msg_id in self._ids:
            return False
        self._ids[msg_id] = (seq, now_ns)
        return True


def _reserved_lines(block: bytes) -> Iterator[bytes]:
    """The lines of a header block that begin as ours do, each with the line end before it and without its own."""
    at = block.find(RESERVED)
    while at >= 0:
        end = block.find(b"\r\n", at + 2)
        yield block[at : end if end >= 0 else len(block)]
        at = block.find(RESERVED, at + 2)


def check_door(ops_size: int, first: int, stop: int) -> None:
    """Raise IndexError unless the operations are in the array."""
    if not 0 <= first <= stop <= ops_size // OP_WORDS:
        raise IndexError(f"operations {first}..{stop} of {ops_size // OP_WORDS}")
