"""Atomic batches: messages that are stored together, or not at all.

A publisher numbers the messages of a batch (`Nats-Batch-Id`, `Nats-Batch-Sequence`). They are held in memory, as the
bytes that came, until one says `Nats-Batch-Commit`: then all of them are checked, and stored by one command. A run of
members is one kernel call; only the first and the last of a batch, and those that want an answer, are looked at here.

What is given up is told in an advisory. Open batches do not outlive a restart.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from jetlake.broker.subscription import Buffer, Msg
from jetlake.errors import BadRequest, LimitExceeded, StoreError
from jetlake.jetstream import errors
from jetlake.jetstream.advisories import send_advisory
from jetlake.jetstream.api_level import exceeds_api_level
from jetlake.jetstream.streams import publish
from jetlake.jetstream.streams.answers import Waiting
from jetlake.jetstream.streams.batch_rules import BatchCheck
from jetlake.jetstream.streams.batches import (
    ATOMIC_PER_STREAM_MAX,
    ATOMIC_TOTAL_MAX,
    BATCH_ID_SIZE_MAX,
    HELD_SIZE_MAX,
    MSGS_MAX,
    BatchTable,
)
from jetlake.jetstream.streams.commands import AppendAll, Timing
from jetlake.jetstream.streams.members import atomic_run, moved
from jetlake.ops import OP_MSG_ID, OP_WORDS, append_op
from jetlake.store.format import NEVER_NS
from jetlake.subjects import decode_subject
from jetlake.wire.headers import append_headers, header_value, without_header
from jetlake.wire.json_text import encode_json

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

BATCH_ID = b"Nats-Batch-Id"
_SEQUENCE, _COMMIT, _LEVEL = b"Nats-Batch-Sequence", b"Nats-Batch-Commit", b"Nats-Required-Api-Level"
_RESERVED, _OWN = b"\r\nNats-", b"\r\nNats-Batch-"
_SEQ_MAX = 2**64 - 1


class _Batch:
    """The members of one batch so far."""

    __slots__ = ("count", "data", "heard_ns", "is_plain", "ops")

    def __init__(self, now_ns: int) -> None:
        self.heard_ns = now_ns
        self.count = 0
        self.data, self.ops = bytearray(), array("I")
        self.is_plain = True  # no member has a header of JetStream's but those of the batch


class AtomicBatches:
    """The open atomic batches of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._open = stream, stream.js.service.open_batches
        self._table: BatchTable[_Batch] = BatchTable(stream, self._time_out)
        self._last_id = b""  # of the batch whose members came last

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._table.batches)

    @property
    def _msgs_max(self) -> int:
        return self._stream.host.options.jetstream.limits.batch_max_msgs or MSGS_MAX

    # Members

    def take(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Hold a run of members of the batch that was heard of last; where it ends."""
        batch, stream = self._table.batches.get(self._last_id), self._stream
        if batch is None or not stream.takes_batches:
            return first
        stop = min(stop, first + self._msgs_max - batch.count)
        end, least, greatest, are_plain = atomic_run(
            data, ops, first, stop, self._last_id, batch.count + 1, stream.config.max_msg_size
        )
        size = greatest - least
        if end == first or size > min(stream.room_left(), HELD_SIZE_MAX - self._open.held_size):
            return first
        batch.ops.extend(moved(ops, first, end, len(batch.data) - least))
        batch.data += memoryview(data)[least:greatest]
        self._open.held_size += size
        batch.count += end - first
        batch.is_plain = batch.is_plain and are_plain
        batch.heard_ns = stream.host.clock()
        return end

    def receive(self, batch_id: bytes, msg: Msg) -> None:
        """Take one message of a batch: begin the batch with it, hold it, or commit the batch. Raises ApiError."""
        stream, headers = self._stream, publish._without_status(msg.headers)
        stream.check_open()
        size = len(headers) + len(msg.payload)
        stream.js.check_room(stream.config.storage, size)
        if 0 <= stream.config.max_msg_size < size:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM()
        if not stream.config.allow_atomic:
            raise errors.ATOMIC_PUBLISH_DISABLED()
        if len(batch_id) > BATCH_ID_SIZE_MAX:
            raise errors.ATOMIC_PUBLISH_INVALID_BATCH_ID()
        seq = _parse_seq(header_value(headers, _SEQUENCE))
        if seq is None:
            raise errors.ATOMIC_PUBLISH_MISSING_SEQ()
        commit = header_value(headers, _COMMIT)
        if commit is not None:
            stream.log.check_settled()  # before anything changes: the message may have to come again
        batch = self._batch(batch_id, seq, commit)
        if commit not in (None, b"1", b"eob"):
            self._drop(batch_id)
            raise errors.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT()
        if header_value(headers, _LEVEL):
            if exceeds_api_level(headers):
                self._abandon(batch_id, "unsupported")
                raise errors.REQUIRED_API_LEVEL()
            headers = without_header(headers, _LEVEL)
        self._check_place(batch_id, batch, seq, commit)
        batch.heard_ns = stream.host.clock()
        self._last_id = batch_id
        if commit != b"eob":
            self._hold(batch_id, batch, msg, headers)
        if commit is None:
            if msg.reply and not stream.config.no_ack:
                stream.account.send(msg.reply)
            return
        self._drop(batch_id)
        self._commit(batch_id, batch, msg.reply, is_marked=commit == b"1")

    def _batch(self, batch_id: bytes, seq: int, commit: bytes | None) -> _Batch:
        """The batch that a message belongs to; it may begin with it."""
        batch = self._table.batches.get(batch_id)
        if batch is not None:
            return batch
        if seq != 1:
            if seq - (commit == b"eob") > self._msgs_max:
                raise errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH(self._msgs_max)
            raise errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH()
        limits = self._stream.host.options.jetstream.limits
        if self.count >= (limits.batch_max_inflight_per_stream or ATOMIC_PER_STREAM_MAX):
            raise errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT()
        if self._open.atomic_count >= (limits.batch_max_inflight_total or ATOMIC_TOTAL_MAX):
            raise errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT()
        batch = _Batch(self._stream.host.clock())
        self._table.add(batch_id, batch)
        self._open.atomic_count += 1
        return batch

    def _check_place(self, batch_id: bytes, batch: _Batch, seq: int, commit: bytes | None) -> None:
        """Raise ApiError unless a message is the next one of its batch, and not one too many."""
        if seq != batch.count + 1 or (seq == 1 and commit == b"eob"):
            self._abandon(batch_id, "incomplete")
            raise errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH()
        if seq - (commit == b"eob") > self._msgs_max:
            self._abandon(batch_id, "large")
            raise errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH(self._msgs_max)

    def _hold(self, batch_id: bytes, batch: _Batch, msg: Msg, headers: bytes) -> None:
        before = len(batch.data)
        append_op(batch.ops, batch.data, msg.subject, msg.payload, headers)
        self._open.held_size += len(batch.data) - before
        batch.count += 1
        batch.is_plain = batch.is_plain and headers.count(_RESERVED) == headers.count(_OWN)
        if self._open.held_size > HELD_SIZE_MAX:
            self._drop(batch_id)
            raise errors.INSUFFICIENT_RESOURCES()

    # Giving up

    def _drop(self, batch_id: bytes) -> None:
        """Forget a batch; whoever has it may go on to store it."""
        batch = self._table.batches.pop(batch_id)
        self._open.atomic_count -= 1
        self._open.held_size -= len(batch.data)

    def _abandon(self, batch_id: bytes, reason: str) -> None:
        self._drop(batch_id)
        stream, text = self._stream, decode_subject(batch_id)
        fields = {"stream": stream.name, "batch": text, "reason": reason}
        subject = f"STREAM.BATCH_ABANDONED.{stream.name}"
        send_advisory(stream.account, stream.host, subject, "stream_batch_abandoned", fields)

    def _time_out(self, batch_id: bytes) -> None:
        self._abandon(batch_id, "timeout")

    def close(self) -> None:
        """Forget all batches: the stream stops, or takes none any more."""
        for batch_id in list(self._table.batches):
            self._drop(batch_id)
        self._table.stop()

    # The commit

    def _commit(self, batch_id: bytes, batch: _Batch, reply: bytes, *, is_marked: bool) -> None:
        """Store a batch and acknowledge it when it is safe; raises ApiError."""
        stream = self._stream
        if not is_marked:
            _mark_commit(batch)
        seq, time_ns = stream.log.next_seq, stream.log.next_time_ns(stream.host.clock())
        follow_ups: list[Waiting] = []
        if batch.is_plain and stream.takes_plain_batches:
            command = self._plain(batch, seq, time_ns)
        else:
            command = self._checked(batch, seq, time_ns, follow_ups)

        def stored(_: object) -> None:
            for _, filter in command.replaces:
                stream.purged(filter)
            for _, timing in command.timings:
                stream.scheduled(timing)

        try:
            stream.log.submit(command, stored if command.replaces or command.timings else None)
        except (BadRequest, StoreError) as error:
            raise errors.STREAM_STORE_FAILED(errors.reason(error)) from None
        last_seq = seq + batch.count - 1
        stream.acknowledge_seq(reply, last_seq, b',"batch":%s,"count":%d' % (quoted(batch_id), batch.count))
        for follow_up in follow_ups:
            stream.log.answer(follow_up)
        if command.unwanted:
            stream.skipped_ns = time_ns

    def _plain(self, batch: _Batch, seq: int, time_ns: int) -> AppendAll:
        """The command for members that no rule has anything to say about."""
        stream = self._stream
        if stream.room_left() < len(batch.data):
            stream.js.check_room(stream.config.storage, len(batch.data))
        try:
            stream.store.check_batch(batch.count, stream.store.batch_size(batch.ops))
        except LimitExceeded as error:
            raise errors.STREAM_STORE_FAILED(errors.reason(error)) from None
        return AppendAll(seq, time_ns, batch.data, batch.ops)

    def _checked(self, batch: _Batch, seq: int, time_ns: int, follow_ups: list[Waiting]) -> AppendAll:
        """The command for members that passed the rules one by one; what to do when it is durable."""
        stream, check = self._stream, BatchCheck(self._stream, time_ns)
        data, ops, expires = bytearray(), array("I"), array("q")
        msg_ids, replaces, unwanted = list[tuple[int, bytes]](), list[tuple[int, str]](), list[int]()
        timings = list[tuple[int, Timing]]()
        last_seqs: dict[bytes, int] = {}  # of subjects, in the batch
        for number in range(batch.count):
            subject, headers, payload = _member(batch, number)
            subject = stream.transformed(subject)
            if publish._value(headers, b"Nats-Expected-Last-Msg-Id") is not None:
                raise errors.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH("Nats-Expected-Last-Msg-Id")
            try:
                ready = check.check(subject, headers, payload)
            except publish.Duplicate:
                raise errors.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE() from None
            append_op(ops, data, subject, ready.payload, ready.headers, flags=OP_MSG_ID if ready.msg_id else 0)
            expires.append(min(time_ns + ready.ttl_ns, NEVER_NS) if ready.ttl_ns else 0)
            if ready.msg_id:
                msg_ids.append((number, ready.msg_id))
            if ready.timing is not None and not (ready.timing.due_ns and self._is_unwanted(subject)):
                timings.append((number, ready.timing))
            if ready.rollup:
                replaces.append((number, ">" if ready.rollup == "all" else decode_subject(subject)))
            if self._is_unwanted(subject):
                unwanted.append(number)
            else:
                follow_ups += stream.republishing(subject, ready, seq + number, time_ns, last_seqs.get(subject))
                last_seqs[subject] = seq + number
        stream.js.check_room(stream.config.storage, len(data))
        some_expires = expires if any(expires) else array("q")
        return AppendAll(seq, time_ns, data, ops, some_expires, msg_ids, replaces, unwanted, timings)

    def _is_unwanted(self, subject: bytes) -> bool:
        interest = self._stream.interest
        return interest is not None and not interest.wants(subject)


def quoted(batch_id: bytes) -> bytes:
    """An id as JSON."""
    return encode_json(decode_subject(batch_id))


def _parse_seq(text: bytes | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) <= 20 and int(text) <= _SEQ_MAX else None


def _member(batch: _Batch, number: int) -> tuple[bytes, bytes, bytes]:
    """Subject, headers and payload of a member."""
    subject, subject_size, _, _, headers, headers_size, payload, payload_size = batch.ops[
        number * OP_WORDS : number * OP_WORDS + 8
    ]
    parts = ((subject, subject_size), (headers, headers_size), (payload, payload_size))
    first, second, third = (bytes(batch.data[start : start + size]) for start, size in parts)
    return first, second, third


def _mark_commit(batch: _Batch) -> None:
    """The end was a message of its own, which is not stored: the last member says so instead."""
    _, headers, _ = _member(batch, batch.count - 1)
    headers = append_headers(headers, [(_COMMIT, b"1")])
    at = len(batch.ops) - OP_WORDS
    batch.ops[at + 4], batch.ops[at + 5] = len(batch.data), len(headers)
    batch.data += headers
