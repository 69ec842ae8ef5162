"""Source: one of the streams whose messages a stream takes in, with sequences and times of its own.

Every copy says in a header where it comes from. That header, and a small file (`positions.py`), tell where to go on.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from jetlake.broker.subscription import Buffer, Msg, read_msg
from jetlake.errors import BadRequest, StoreError
from jetlake.jetstream import errors
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.sourcing.consumer_request import Start
from jetlake.jetstream.sourcing.copied import MSG_ID, Copied, Transforms, error_fields, kept_headers, may_act, put_copy
from jetlake.jetstream.sourcing.deliveries import read_run
from jetlake.jetstream.sourcing.feed import Feed
from jetlake.jetstream.sourcing.names import SOURCE_HEADER, index_name, source_header
from jetlake.jetstream.sourcing.positions import Position, Positions
from jetlake.jetstream.streams.commands import Append
from jetlake.jetstream.streams.config import StreamSource
from jetlake.jetstream.streams.counters import count_copy
from jetlake.ops import OP_ADMITTED, OP_MSG_ID, OP_SPECIAL, append_op
from jetlake.wire.headers import append_headers, header_value, without_header

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

_ADMITTED = OP_SPECIAL | OP_ADMITTED


class Source:
    """The stream's side of one source."""

    def __init__(self, stream: Stream, source: StreamSource, consumer: str, positions: Positions) -> None:
        self._stream, self.source, self._positions = stream, source, positions
        self.index_name = index_name(source)
        self._transforms = Transforms(source)
        self.feed = Feed(stream, source, consumer, self, is_mirror=False)

    # What the feed asks

    def start(self) -> Start:
        """Go on after the last copy; at first, where the configuration says."""
        position = self._positions.get(self.index_name)
        if position.seq:
            return Start(seq=position.seq + 1)
        if self.source.opt_start_seq:
            return Start(seq=self.source.opt_start_seq)
        return Start(time_ns=self.source.opt_start_time)

    @property
    def identity(self) -> str:
        """The origin that the copies are of."""
        return self._positions.get(self.index_name).identity

    def accept(self, identity: str, delivered_seq: int) -> str:
        """Begin with an origin; with another one than before, from its beginning."""
        if not identity:
            self._positions.forget(self.index_name)
            facts = f"account={self._stream.account.name} stream={self._stream.name} source={self.source.name}"
            self._stream.host.log("warning", f"source was made anew, and is copied from its start {facts}")
        else:
            self._positions.put(self.index_name, Position(self._positions.get(self.index_name).seq, identity))
        return ""

    def take(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Store deliveries in order; where it stopped."""
        feed, count = self.feed, stop - first
        seqs, times = array("Q", bytes(8 * count)), array("q", bytes(8 * count))
        end, pending = read_run(data, ops, first, stop, feed.consumer, feed.consumer_seq + 1, 0, seqs, times)
        if end == first:
            return first
        batch = _Batch(self._stream)
        try:
            for number in range(first, end):
                self._add(batch, read_msg(data, ops, number, self._stream.account.internal), seqs[number - first])
            batch.store()
        except ApiError as error:
            self._stored(batch.done_seq, 0)
            feed.refused(error_fields(error))
            return stop
        self._stored(seqs[end - first - 1], end - first)
        feed.lag = pending
        return end

    def _stored(self, seq: int, count: int) -> None:
        self.feed.consumer_seq += count
        if seq:
            self.feed.stored_seq = seq
            self._positions.put(self.index_name, Position(seq, self.identity))
            self._stream.changed()

    def _add(self, batch: _Batch, msg: Msg, seq: int) -> None:
        value = source_header(self.index_name, seq, msg.subject, self.identity)
        headers = append_headers(without_header(kept_headers(msg.headers), SOURCE_HEADER), [(SOURCE_HEADER, value)])
        subject, payload = self._stream.transformed(self._transforms.apply(msg.subject)), msg.payload
        if self._stream.config.allow_msg_counter:
            origin = self.index_name.split(" ")[0]
            headers, payload, _ = count_copy(self._stream, subject, headers, payload, origin, msg.subject)
        batch.add(Copied(subject, headers, payload), seq)

    def info(self) -> dict[str, Any]:
        """What stream info shows."""
        seq, fields = self._positions.get(self.index_name).seq, self.feed.info()
        return {"lag": fields.pop("lag"), **({"seq": seq} if seq else {}), **fields}


class _Batch:
    """Copies that are stored together, as long as none of them meets a rule."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._data, self._ops = bytearray(), array("I")
        self._seqs: list[int] = []  # of the origin, of those that wait here
        self.done_seq = 0  # of the origin, of the last one that is stored or need not be

    def add(self, copied: Copied, seq: int) -> None:
        """Store a message of the origin, now or with those that follow; raises ApiError."""
        stream, msg_id = self._stream, header_value(copied.headers, MSG_ID) or b""
        has_window = stream.config.duplicate_window > 0
        if has_window and msg_id and self._is_duplicate(msg_id):
            self.store()
            self.done_seq = seq
            return
        size = len(copied.headers) + len(copied.payload)
        is_plain = stream.takes_copies and not may_act(stream, copied.headers) and not (has_window and msg_id)
        if is_plain and not 0 <= stream.config.max_msg_size < size:
            flags = _ADMITTED | (OP_MSG_ID if msg_id else 0)
            append_op(self._ops, self._data, copied.subject, copied.payload, copied.headers, flags=flags)
            self._seqs.append(seq)
        else:
            self.store()
            time_ns, own_seq = stream.log.next_time_ns(stream.host.clock()), stream.log.next_seq
            put_copy(stream, copied, own_seq, time_ns, takes_id=has_window)
            stream.republish_copy(copied.subject, copied.headers, copied.payload, own_seq, time_ns)
            self.done_seq = seq

    def store(self) -> None:
        """Store what was added; raises ApiError."""
        first, count = 0, len(self._seqs)
        while first < count:
            first = self._append(first, count)
            self.done_seq = self._seqs[first - 1]
        self._data, self._ops, self._seqs = bytearray(), array("I"), []

    def _append(self, first: int, stop: int) -> int:
        """Store some of what was added; where it stopped, which is never in front of the first."""
        stream, log = self._stream, self._stream.log
        stream.js.check_room(stream.config.storage, len(self._data))
        time_ns = log.next_time_ns(stream.host.clock())
        try:
            done = log.append(Append(log.next_seq, time_ns, self._data, self._ops, first, stop))
        except (BadRequest, StoreError) as error:
            raise errors.STREAM_STORE_FAILED(errors.reason(error)) from None
        assert done > first, "an admitted message is stored or refused"
        return done

    def _is_duplicate(self, msg_id: bytes) -> bool:
        return self._stream.machine.find_msg_id(msg_id, self._stream.host.clock()) > 0
