"""Mirror: a stream whose messages are another's, with the same sequences and times.

What is missing there is missing here: a gap in the sequences of the origin is skipped. What leaves the origin later
does not leave the mirror, which has limits of its own.

The stream remembers which origin it mirrors (its identity): one that was deleted and made anew is another stream, and
its messages are not mixed with those of the first.
"""

from __future__ import annotations

from array import array
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from jetlake.broker.subscription import Buffer, read_msg
from jetlake.errors import BadRequest, StoreError
from jetlake.jetstream import errors
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.sourcing.consumer_request import Start
from jetlake.jetstream.sourcing.copied import Copied, Transforms, error_fields, kept_headers, may_act, put_copy
from jetlake.jetstream.sourcing.deliveries import read_run
from jetlake.jetstream.sourcing.feed import Feed
from jetlake.jetstream.sourcing.names import stable_id
from jetlake.jetstream.sourcing.positions import Position, Positions
from jetlake.jetstream.streams.commands import Copy, Skip
from jetlake.jetstream.streams.config import StreamSource
from jetlake.ops import OP_SPECIAL, OP_WORDS
from jetlake.store import Discard

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

_HEADERS, _PAYLOAD, _FLAGS = 4, 6, 9


class Mirror:
    """The stream's side of what it mirrors."""

    def __init__(self, stream: Stream, source: StreamSource, positions: Positions) -> None:
        self._stream, self._source, self._positions = stream, source, positions
        self._transforms = Transforms(source)
        domain = stream.host.options.jetstream.domain
        name = f"JS_MIRROR_{stable_id(stream.name, stream.account.name, domain)}"
        self.feed = Feed(stream, source, name, self, is_mirror=True)

    # What the feed asks

    def start(self) -> Start:
        """Go on after the last message; at first, where the configuration says."""
        last_seq = self._stream.last_seq
        if last_seq or self._stream.store.catalog.first_seq > 1:
            return Start(seq=last_seq + 1)
        return Start(self._source.opt_start_seq, None if self._source.opt_start_seq else self._source.opt_start_time)

    @property
    def identity(self) -> str:
        """The origin that is mirrored."""
        return self._positions.get("").identity

    def accept(self, identity: str, delivered_seq: int) -> str:
        """Begin with an origin, unless it is another one than before; why not."""
        if self.identity and identity and identity != self.identity and self._stream.last_seq:
            return "the origin was deleted and made anew: its messages are not those that are mirrored"
        if identity and identity != self.identity:
            self._positions.put("", Position(delivered_seq, identity))
            self._positions.save()
        if delivered_seq > self._stream.last_seq:
            self._skip_to(delivered_seq)
        return ""

    def take(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Store deliveries in order; where it stopped."""
        feed, count = self.feed, stop - first
        seqs, times = array("Q", bytes(8 * count)), array("q", bytes(8 * count))
        end, pending = read_run(data, ops, first, stop, feed.consumer, feed.consumer_seq + 1, 0, seqs, times)
        known = sum(1 for _ in takewhile(self._is_known, seqs[: end - first]))
        try:
            self._store(data, ops, first + known, end, seqs[known : end - first], times[known:])
        except ApiError as error:
            feed.refused(error_fields(error))
            return stop
        if end > first:
            feed.consumer_seq += end - first
            feed.stored_seq, feed.lag = self._stream.last_seq, pending
            self._stream.changed()
        return end

    # How

    def _is_known(self, seq: int) -> bool:
        return seq <= self._stream.last_seq

    def _store(self, data: Buffer, ops: array[int], first: int, stop: int, seqs: array[int], times: array[int]) -> None:
        base = first
        while first < stop:
            end = first if self._needs_rules(ops, first, stop) else self._plain_end(data, ops, first, stop)
            if end > first:
                self._copy(data, ops, first, end, seqs[first - base :], times[first - base :])
            else:
                self._put(data, ops, first, seqs[first - base], times[first - base])
                end += 1
            first = end

    def _needs_rules(self, ops: array[int], first: int, stop: int) -> bool:
        """Whether each message has to be looked at."""
        stream = self._stream
        if self._transforms or not stream.takes_copies or stream.config.discard is Discard.NEW:
            return True
        header_sizes, payload_sizes = (
            ops[first * OP_WORDS + field + 1 : stop * OP_WORDS : OP_WORDS] for field in (_HEADERS, _PAYLOAD)
        )
        if 0 <= stream.config.max_msg_size < max(header_sizes) + max(payload_sizes):
            return True
        return stream.room_left() < sum(header_sizes) + sum(payload_sizes)

    def _plain_end(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Where the first message stands whose headers are not stored as they are, or act here."""
        flags = ops[first * OP_WORDS + _FLAGS : stop * OP_WORDS : OP_WORDS]
        if max(flags):
            for number in range(first, stop):
                if flags[number - first] & OP_SPECIAL:
                    at = number * OP_WORDS + _HEADERS
                    headers = bytes(data[ops[at] : ops[at] + ops[at + 1]])
                    if kept_headers(headers) != headers or may_act(self._stream, headers):
                        return number
        return stop

    def _copy(self, data: Buffer, ops: array[int], first: int, stop: int, seqs: array[int], times: array[int]) -> None:
        count = stop - first
        try:
            self._stream.log.submit(Copy(data, ops[first * OP_WORDS : stop * OP_WORDS], seqs[:count], times[:count]))
        except (BadRequest, StoreError) as error:
            raise errors.STREAM_STORE_FAILED(errors.reason(error)) from None

    def _put(self, data: Buffer, ops: array[int], number: int, seq: int, time_ns: int) -> None:
        stream, msg = self._stream, read_msg(data, ops, number, self._stream.account.internal)
        subject = stream.transformed(self._transforms.apply(msg.subject))
        self._skip_to(seq - 1)
        put_copy(stream, Copied(subject, kept_headers(msg.headers), msg.payload), seq, time_ns, takes_id=False)
        stream.republish_copy(subject, msg.headers, msg.payload, seq, time_ns)

    def _skip_to(self, seq: int) -> None:
        """The sequences up to this one are missing at the origin."""
        stream = self._stream
        if seq >= stream.log.next_seq:
            stream.log.submit(Skip(seq, stream.log.next_time_ns(0)))

    def info(self) -> dict[str, Any]:
        """What stream info shows."""
        return self.feed.info()
