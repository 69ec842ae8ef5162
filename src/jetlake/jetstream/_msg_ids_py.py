"""Message ids and which publishes of a batch need no rule: the reference of `_msg_ids_c.pyx`. Import `msg_ids`."""

from __future__ import annotations

from array import array
from collections import OrderedDict

from jetlake.ops import OP_MSG_ID, OP_SPECIAL, OP_WORDS
from jetlake.store._record_py import BadRecord, decode
from jetlake.store.format import MSG_ID
from jetlake.wire.headers import header_value

PLAIN_BLOCK = b"NATS/1.0\r\n"
RESERVED = b"\r\nNats-"
MSG_ID_LINE = b"\r\nNats-Msg-Id:"
HEADERS_SIZE_MAX = 65535
ID_SIZE_MAX = 65535

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
            if not size:
                continue
            block = bytes(data[start : start + size])
            if not block.startswith(PLAIN_BLOCK):
                return number
            if ops[at + 9] & OP_SPECIAL:
                if not self._admit_id(block, ops[at + 9], seq + number - first, now_ns):
                    return number
                ops[at + 9] &= ~OP_SPECIAL
        return stop

    def _admit_id(self, block: bytes, flags: int, seq: int, now_ns: int) -> bool:
        """Take the id of a message that has one, and no other header of ours; False when it is known, or not alone."""
        if not flags & OP_MSG_ID or block.count(RESERVED) != 1:
            return False
        if not self.window_ns:
            return True
        msg_id = header_value(block, b"Nats-Msg-Id")
        if not self.is_loaded or not msg_id or msg_id in self._ids:
            return False
        self._ids[msg_id] = (seq, now_ns)
        return True


def check_door(ops_size: int, first: int, stop: int) -> None:
    """Raise IndexError unless the operations are in the array."""
    if not 0 <= first <= stop <= ops_size // OP_WORDS:
        raise IndexError(f"operations {first}..{stop} of {ops_size // OP_WORDS}")
