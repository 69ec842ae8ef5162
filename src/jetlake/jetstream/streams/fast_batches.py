"""Fast-ingest batches: many messages, stored as they come, with an acknowledgement now and then.

All that is to know about a message's place stands in its reply subject:

    <prefix>.<batch id>.<flow>.<fail|ok>.<sequence>.<operation>.$FI

Operations are 0 begin, 1 append, 2 append and commit, 3 commit, 4 ping. `flow` is how many messages the publisher would
send between two acknowledgements. The mode says what a gap, or a message that is refused, means: the end of the batch
(fail), or nothing more than a report (ok). Acknowledgements go to the reply of the message that they follow from.

A run of plain appends is stored as any run of publishes is, and only the acknowledgements that fall due are made here.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from jetlake.broker.subscription import Buffer, Msg
from jetlake.jetstream import errors
from jetlake.jetstream.api_level import exceeds_api_level
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams import publish
from jetlake.jetstream.streams._msg_ids_py import FAST_SUFFIX
from jetlake.jetstream.streams.answers import Ack
from jetlake.jetstream.streams.atomic_batches import quoted
from jetlake.jetstream.streams.batch_rules import BatchCheck
from jetlake.jetstream.streams.batches import BATCH_ID_SIZE_MAX, FAST_PER_STREAM_MAX, FAST_TOTAL_MAX, BatchTable
from jetlake.jetstream.streams.members import fast_run
from jetlake.wire.headers import header_value, without_header
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

_BEGIN, _APPEND, _COMMIT, _COMMIT_ONLY, _PING = range(5)
_FLOW_DEFAULT, _FLOW_MAX = 10, 2**16 - 1
_ACK_EVERY_MAX = 500  # messages, shared by the open batches
_LEVEL = b"Nats-Required-Api-Level"


class Place(NamedTuple):
    """What the reply subject of a message says."""

    batch_id: bytes
    flow: int
    gap_ok: bool
    seq: int
    operation: int
    head: bytes  # of the reply: up to the sequence

    @property
    def commits(self) -> bool:
        return self.operation in (_COMMIT, _COMMIT_ONLY)


class _Batch:
    """One batch: how far it is."""

    __slots__ = ("ack_every", "acked", "flow", "gap_ok", "head", "heard_ns", "last_seq", "seq", "stored")

    def __init__(self, place: Place, ack_every: int, now_ns: int) -> None:
        self.heard_ns, self.gap_ok, self.flow, self.ack_every = now_ns, place.gap_ok, place.flow, ack_every
        self.head = place.head
        self.seq = 0  # the highest that came
        self.stored = 0  # the highest that is stored
        self.acked = 0  # up to which the last acknowledgement went
        self.last_seq = 0  # the stream's sequence of the last message that was stored


class FastBatches:
    """The open fast-ingest batches of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._open = stream, stream.js.service.open_batches
        self._table: BatchTable[_Batch] = BatchTable(stream, self._drop)
        self._last: _Batch | None = None  # of which a message came last

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._table.batches)

    # A run of appends

    def take(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Store a run of plain appends to the batch that was heard of last; where it ends."""
        batch, stream = self._last, self._stream
        if batch is None or not stream.takes_copies or batch.seq != batch.stored:
            return first
        end = fast_run(data, ops, first, stop, batch.head, batch.seq + 1, stream.config.max_msg_size)
        if end == first:
            return first
        seq, done = stream.append_run(data, ops, first, end)
        if done > first:
            batch.heard_ns = stream.host.clock()
            batch.last_seq = seq + done - first - 1
            batch.seq = batch.stored = batch.seq + done - first
            self._acknowledge_due(batch)
        return done

    def _acknowledge_due(self, batch: _Batch) -> None:
        """Send what falls due up to the last message of a run, each to the reply of the message it follows from."""
        while batch.stored >= batch.acked + batch.ack_every:
            batch.acked += batch.ack_every
            self._pace(batch)
            self._send(b"%s%d.%d%s" % (batch.head, batch.acked, _APPEND, FAST_SUFFIX), self._flow_ack(batch))

    # One message

    def receive(self, msg: Msg) -> None:
        """Take one message; raises ApiError where it is answered as a lone one would be."""
        stream, headers = self._stream, publish._without_status(msg.headers)
        stream.check_open()
        size = len(headers) + len(msg.payload)
        stream.js.check_room(stream.config.storage, size)
        if 0 <= stream.config.max_msg_size < size:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
        if not stream.config.allow_batched:
            raise errors.BATCH_PUBLISH_DISABLED()
        place = parse_reply(msg.reply)
        if place is None:
            raise errors.BATCH_PUBLISH_INVALID_PATTERN()
        stream.log.check_settled()  # before anything changes: the message may have to come again
        if len(place.batch_id) > BATCH_ID_SIZE_MAX:
            raise errors.BATCH_PUBLISH_INVALID_BATCH_ID()
        batch = self._batch(place)
        if header_value(headers, _LEVEL):
            if exceeds_api_level(headers):
                self._drop(place.batch_id)
                raise errors.REQUIRED_API_LEVEL()
            headers = without_header(headers, _LEVEL)
        batch.heard_ns = stream.host.clock()
        if place.operation == _PING:
            self._ping(batch, place, msg.reply)
        elif self._follows(batch, place, msg.reply):
            if place.operation == _COMMIT_ONLY:
                batch.seq -= 1  # it has a number, but it is no message
                self._finish(batch, place, msg.reply)
            else:
                self._store(batch, place, msg, headers)

    def _batch(self, place: Place) -> _Batch:
        batch = self._table.batches.get(place.batch_id)
        if batch is None:
            if place.seq != 1 or place.operation == _PING:
                raise errors.BATCH_PUBLISH_UNKNOWN_BATCH_ID()
            limits = self._stream.host.options.jetstream.limits
            if self.count >= (limits.batch_max_inflight_per_stream or FAST_PER_STREAM_MAX):
                raise errors.BATCH_PUBLISH_TOO_MANY_INFLIGHT()
            if self._open.fast_count >= (limits.batch_max_inflight_total or FAST_TOTAL_MAX):
                raise errors.BATCH_PUBLISH_TOO_MANY_INFLIGHT()
            ack_every = 1 if self.count else min(_ACK_EVERY_MAX, place.flow)
            batch = _Batch(place, ack_every, self._stream.host.clock())
            self._table.add(place.batch_id, batch)
            self._open.fast_count += 1
        batch.head = place.head
        self._last = batch
        return batch

    def _follows(self, batch: _Batch, place: Place, reply: bytes) -> bool:
        """Whether a message can be taken where it stands; a gap is reported, and may be the end of the batch."""
        expected = batch.seq + 1
        if place.seq != expected:
            self._send(reply, b'{"type":"gap","last_seq":%d,"seq":%d}' % (expected, place.seq))
            if place.seq < expected or not batch.gap_ok:
                self._finish(batch, place, reply)
                return False
        batch.seq = place.seq
        return True

    def _ping(self, batch: _Batch, place: Place, reply: bytes) -> None:
        if place.seq > batch.seq:
            self._send(reply, b'{"type":"gap","last_seq":%d,"seq":%d}' % (batch.seq + 1, place.seq + 1))
            if not batch.gap_ok:
                self._finish(batch, place, reply)
                return
            batch.seq = batch.stored = place.seq
            if self._check_flow(batch, reply):
                return
        self._send(reply, self._flow_ack(batch))

    def _store(self, batch: _Batch, place: Place, msg: Msg, headers: bytes) -> None:
        stream = self._stream
        if place.seq == 1 and not place.commits and not stream.config.no_ack:
            self._send(msg.reply, self._flow_ack(batch))
        seq, time_ns = stream.log.next_seq, stream.log.next_time_ns(stream.host.clock())
        subject = stream.transformed(msg.subject)
        try:
            ready = BatchCheck(stream, time_ns).check(subject, headers, msg.payload)
            publish._check_expected_msg_id(stream, headers)
            follow_ups = stream.store_ready(seq, time_ns, subject, ready)
        except publish.Duplicate as duplicate:
            self._skip_duplicate(batch, place, msg.reply, duplicate.seq)
            return
        except ApiError as error:
            self._refuse(batch, place, msg.reply, error)
            return
        batch.last_seq, batch.stored = seq, batch.seq
        if place.commits:
            self._finish(batch, place, msg.reply)
        else:
            self._check_flow(batch, msg.reply)
        for follow_up in follow_ups:
            stream.log.answer(follow_up)

    def _skip_duplicate(self, batch: _Batch, place: Place, reply: bytes, seq: int) -> None:
        """A message that was stored before counts as one that is stored now."""
        batch.stored = place.seq
        self._check_flow(batch, reply)
        if not place.commits:
            return
        if batch.seq == 1 and not place.gap_ok and seq:
            self._drop(place.batch_id)
            more = b',"duplicate": true,"batch":%s,"count":%d' % (quoted(place.batch_id), place.seq)
            self._stream.acknowledge_seq(reply, seq, more)
        else:
            self._finish(batch, place, reply)

    def _refuse(self, batch: _Batch, place: Place, reply: bytes, error: ApiError) -> None:
        """A message cannot be stored: the first one is told so as any publish is, the others by a report."""
        if batch.seq == 1 and not place.gap_ok:
            self._drop(place.batch_id)
            raise error
        self._send(reply, b'{"type":"err","seq":%d,"error":%s}' % (place.seq, encode_json(error.as_dict())))
        if not place.gap_ok or place.commits:
            batch.seq -= 1
            self._finish(batch, place, reply)

    # Acknowledgements

    def _check_flow(self, batch: _Batch, reply: bytes) -> bool:
        """Acknowledge if so many messages are stored; whether it did."""
        steps = (batch.stored - batch.acked) // batch.ack_every
        if steps <= 0:
            return False
        batch.acked += steps * batch.ack_every
        self._pace(batch)
        self._send(reply, self._flow_ack(batch))
        return True

    def _pace(self, batch: _Batch) -> None:
        """Come closer to the number of messages between two acknowledgements that a batch may have."""
        most = min(max(_ACK_EVERY_MAX // self.count, 1), batch.flow)
        if batch.ack_every < most:
            batch.ack_every = min(2 * batch.ack_every, most)
        elif batch.ack_every > most:
            batch.ack_every = max(batch.ack_every // 2, most)

    def _flow_ack(self, batch: _Batch) -> bytes:
        return b'{"type":"ack","seq":%d,"msgs":%d}' % (batch.acked, batch.ack_every)

    def _finish(self, batch: _Batch, place: Place, reply: bytes) -> None:
        """End a batch: say how far it came."""
        self._drop(place.batch_id)
        more = b',"batch":%s,"count":%d' % (quoted(place.batch_id), batch.seq)
        self._stream.acknowledge_seq(reply, batch.last_seq, more)

    def _send(self, reply: bytes, body: bytes) -> None:
        """Tell the publisher something, after all that it was told before."""
        self._stream.log.answer(Ack(reply, body))

    def _drop(self, batch_id: bytes) -> None:
        batch = self._table.batches.pop(batch_id)
        self._open.fast_count -= 1
        if self._last is batch:
            self._last = None

    def close(self) -> None:
        """Forget all batches: what they stored stays."""
        for batch_id in list(self._table.batches):
            self._drop(batch_id)
        self._table.stop()


def parse_reply(reply: bytes) -> Place | None:
    """What a reply subject with the suffix of a fast-ingest batch says; None when it is not well formed."""
    parts = reply[: -len(FAST_SUFFIX)].rsplit(b".", 5)
    if len(parts) < 6:
        return None
    _, batch_id, flow, mode, seq_text, operation_text = parts
    operation, seq = _parse_number(operation_text), _parse_number(seq_text)
    if operation is None or not _BEGIN <= operation <= _PING or not seq or seq >= 2**64 - 1:
        return None
    is_first = seq == 1
    if (operation in (_APPEND, _COMMIT_ONLY) and is_first) or (operation == _BEGIN and not is_first):
        return None
    if mode not in (b"fail", b"ok"):
        return None
    head = reply[: len(reply) - len(FAST_SUFFIX) - len(operation_text) - 1 - len(seq_text)]
    return Place(batch_id, min(_parse_number(flow) or _FLOW_DEFAULT, _FLOW_MAX), mode == b"ok", seq, operation, head)


def _parse_number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= 20 else None
