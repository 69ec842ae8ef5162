"""The rules that a message of a batch must pass, by its headers and by what came before it in the batch.

They are not quite those of a lone message (`publish.py`): the order of the checks is another one, an expected sequence
that the batch itself has changed is refused, and so is a roll-up of what the batch wrote. All of this is nats-server's.
A message of a fast-ingest batch is checked as a batch of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jetlake.errors import LimitExceeded
from jetlake.jetstream import errors
from jetlake.jetstream.schedules.rules import SCHEDULING, check_schedule
from jetlake.jetstream.streams import counters, publish
from jetlake.jetstream.streams.durations import parse_ttl
from jetlake.jetstream.streams.msg_ids import HEADERS_SIZE_MAX
from jetlake.jetstream.streams.publish import Duplicate, Ready
from jetlake.subjects import decode_subject

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream


class BatchCheck:
    """The checks of one batch, message by message, and what these will have changed."""

    def __init__(self, stream: Stream, now_ns: int) -> None:
        self._stream, self._now_ns = stream, now_ns
        self.count = 0
        self._size = 0
        self._subjects = Counter[bytes]()
        self._msg_ids = set[bytes]()
        self._expected: dict[str, int] = {}
        self._totals: dict[bytes, counters.Total] = {}

    def check(self, subject: bytes, headers: bytes, payload: bytes) -> Ready:
        """What to store of the next message; raises ApiError or Duplicate."""
        ready = Ready(headers, payload)
        if publish._RESERVED in headers:
            ready = self._check_headers(subject, headers, payload)
        elif self._stream.config.allow_msg_counter:
            raise errors.MESSAGE_INCR_MISSING()
        self._count(subject, ready)
        return ready

    def _check_headers(self, subject: bytes, headers: bytes, payload: bytes) -> Ready:
        stream, value = self._stream, publish._value
        if len(headers) > HEADERS_SIZE_MAX:
            raise errors.STREAM_HEADER_EXCEEDS_MAXIMUM()
        is_counter = stream.config.allow_msg_counter
        if not is_counter:
            counters.check_disabled(headers)
        elif value(headers, counters.INCREMENT):
            counters.check_increment(headers, payload)
        publish._check_expected_stream(stream, headers)
        ttl_ns = self._check_ttl(headers)
        msg_id = self._check_msg_id(headers)
        if value(headers, b"Nats-Stream-Source") is not None:
            raise errors.MESSAGE_SOURCE_HDR_NOT_ALLOWED()
        if is_counter:
            headers, payload = self._counted(subject, headers, payload)
        self._check_expected(subject, headers)
        timing = None
        if SCHEDULING in headers:
            headers, timing = check_schedule(stream, subject, headers, self._now_ns)
            publish._check_size(stream, headers, payload)
        rollup = self._check_rollup(subject, headers)
        if ttl_ns:
            headers, ttl_ns = publish._raise_ttl(stream, headers, ttl_ns)
        return Ready(headers, payload, ttl_ns, msg_id, rollup, timing=timing)

    def _check_ttl(self, headers: bytes) -> int:
        text = publish._value(headers, b"Nats-TTL")
        ttl_ns = parse_ttl(text.decode("utf-8", "replace")) if text is not None else 0
        if ttl_ns == 0:
            return 0
        if not self._stream.config.allow_msg_ttl:
            raise errors.MESSAGE_TTL_DISABLED()
        if ttl_ns is None:
            raise errors.MESSAGE_TTL_INVALID()
        return ttl_ns

    def _check_msg_id(self, headers: bytes) -> bytes:
        msg_id = publish._value(headers, b"Nats-Msg-Id") or b""
        if msg_id:
            seq = self._stream.machine.find_msg_id(msg_id, self._now_ns)
            if seq or msg_id in self._msg_ids:
                raise Duplicate(seq)
            self._msg_ids.add(msg_id)
        return msg_id

    def _counted(self, subject: bytes, headers: bytes, payload: bytes) -> tuple[bytes, bytes]:
        """The message as a counter stores it, on top of what the batch added to the subject before."""
        stream, total = self._stream, self._totals.get(subject)
        if total is None:
            if not publish._value(headers, counters.INCREMENT):
                raise errors.MESSAGE_INCR_MISSING()
            total = counters.last_total(stream, subject)
        counted = counters.count_on(total, headers, payload)
        publish._check_size(stream, counted.headers, counted.payload)
        self._totals[subject] = total._replace(value=int(counted.value))
        return counted.headers, counted.payload

    def _check_expected(self, subject: bytes, headers: bytes) -> None:
        value, last_seq = publish._value, self._stream.last_seq + self.count
        wanted = value(headers, b"Nats-Expected-Last-Sequence")
        if wanted is not None and publish._number(wanted) != last_seq:
            raise errors.WRONG_LAST_SEQUENCE(last_seq)
        if wanted is not None and self.count:
            raise errors.WRONG_LAST_SEQUENCE_CONSTANT()
        wanted = value(headers, b"Nats-Expected-Last-Subject-Sequence")
        filter = value(headers, b"Nats-Expected-Last-Subject-Sequence-Subject")
        if wanted is None:
            if filter is not None:
                raise errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID()
            return
        if (filter or subject) in self._subjects:
            raise errors.WRONG_LAST_SEQUENCE_CONSTANT()
        text = decode_subject(filter or subject)
        if text not in self._expected:
            self._expected[text] = self._stream.log.last_seq_of(text)
        if publish._number(wanted) != self._expected[text]:
            raise errors.WRONG_LAST_SEQUENCE(self._expected[text])

    def _check_rollup(self, subject: bytes, headers: bytes) -> str:
        rollup = publish._check_rollup(self._stream, headers)
        if rollup == "sub" and subject in self._subjects:
            raise errors.STREAM_ROLLUP_FAILED("batch rollup sub invalid")
        if rollup == "all" and self.count:
            raise errors.STREAM_ROLLUP_FAILED("batch rollup all invalid")
        return rollup

    def _count(self, subject: bytes, ready: Ready) -> None:
        """Take a message into account, if discard new allows for it and all before it."""
        store = self._stream.store
        self.count += 1
        self._subjects[subject] += 1
        self._size += store._size(subject, ready.headers, ready.payload)
        try:
            store.check_batch(self.count, self._size, subject, 0 if ready.rollup else self._subjects[subject])
        except LimitExceeded as error:
            raise errors.STREAM_STORE_FAILED(errors.reason(error)) from None
