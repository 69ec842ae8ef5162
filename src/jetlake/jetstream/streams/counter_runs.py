"""A run of increments, stored at once.

What an increment becomes depends on the total before it. Totals are remembered from run to run (`totals.py`), and a run
of plain increments of subjects whose totals are known is one kernel call. Where a total has to be read first, or is
very large, increments are added up here, and stored in one piece as well. An increment with any other header of
JetStream's is not for here, nor one of a counter with origins.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from jetlake.broker.subscription import Buffer
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.streams import counters
from jetlake.jetstream.streams._msg_ids_py import FAST_SUFFIX, HEADERS_SIZE_MAX, PLAIN_BLOCK, RESERVED
from jetlake.jetstream.streams.answers import Acks
from jetlake.jetstream.streams.members import moved
from jetlake.jetstream.streams.totals import Totals, total_frames
from jetlake.ops import OP_ADMITTED, OP_WORDS

if TYPE_CHECKING:
    from jetlake.jetstream.streams.machine import Store
    from jetlake.jetstream.streams.stream import Stream

_PAYLOAD_SIZE = 64  # of a total, or more


class CounterRuns:
    """The runs of increments of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._store: Store | None = None  # whose totals are known
        self._totals = Totals(stream.store.catalog.table)
        self._next_seq = 0  # after the last run

    def take(self, data: Buffer, ops: array[int], first: int, stop: int) -> int:
        """Store increments up to a message that is none, or needs more of a look; where that is."""
        stream, seq = self._stream, self._stream.log.next_seq
        if self._store is not stream.store or seq < self._next_seq:  # sequences are used again
            self._store, self._totals = stream.store, Totals(stream.store.catalog.table)
        if self._may_evict(ops, first, stop):
            stop = first + 1
        end, payloads, least, greatest, words = self._totals.count(
            data, ops, first, stop, seq, stream.config.max_msg_size
        )
        if end == first:
            return self._add_up(data, ops, first, stop, seq)
        done = first + stream.append_run(bytes(memoryview(data)[least:greatest]) + payloads, words, 0, end - first)[1]
        if done < end:
            self._totals.clear()
        self._next_seq = stream.log.next_seq
        self._acknowledge(data, ops, first, done, seq, payloads, words)
        return done

    def _may_evict(self, ops: array[int], first: int, stop: int) -> bool:
        """Could a limit take the last message of a subject in the middle of a run? Its counter starts over then."""
        store, count = self._stream.store, stop - first
        limits, catalog = store.limits, store.catalog
        if 0 < limits.max_msgs < catalog.table.total + count:
            return True
        size = store._size_max(ops, first, stop) + _PAYLOAD_SIZE * count if limits.max_bytes > 0 else 0
        return 0 < limits.max_bytes < catalog.size + size

    def _add_up(self, data: Buffer, ops: array[int], first: int, stop: int, seq: int) -> int:
        """Store increments whose totals have to be read; where it stopped."""
        running, payloads, end = dict[bytes, tuple[int, int]](), list[bytes](), first
        for end in range(first, stop + 1):
            increment = self._increment(data, ops, end * OP_WORDS) if end < stop else None
            if increment is None:
                break
            start, size = ops[end * OP_WORDS : end * OP_WORDS + 2]
            subject = bytes(data[start : start + size])
            total = running[subject][1] if subject in running else self._total(subject)
            payload = b'{"val":"%d"}' % (total + increment) if total is not None else b""
            if total is None or 0 <= self._stream.config.max_msg_size < ops[end * OP_WORDS + 5] + len(payload):
                break
            running[subject] = (seq + end - first, total + increment)
            payloads.append(payload)
        if end == first:
            return first
        copy, words = bytearray(data), moved(ops, first, end, 0)
        starts = [len(copy)]
        for payload in payloads:
            starts.append(starts[-1] + len(payload))
        words[6::OP_WORDS], words[7::OP_WORDS] = array("I", starts[:-1]), array("I", map(len, payloads))
        words[9::OP_WORDS] = array("I", (flags | OP_ADMITTED for flags in words[9::OP_WORDS]))
        text = b"".join(payloads)
        done = first + self._stream.append_run(copy + text, words, 0, end - first)[1]
        if done == end:
            for subject, (place, total) in running.items():
                self._totals.put(subject, place, total)
        self._next_seq = self._stream.log.next_seq
        self._acknowledge(data, ops, first, done, seq, text, words)
        return done

    def _increment(self, data: Buffer, ops: array[int], at: int) -> int | None:
        """How much a message adds; None when it needs more of a look."""
        _, _, reply, reply_size, start, size, _, payload_size = ops[at : at + 8]
        block = bytes(data[start : start + size])
        if payload_size or size > HEADERS_SIZE_MAX or not block.startswith(PLAIN_BLOCK) or block.count(RESERVED) != 1:
            return None
        if data[reply : reply + reply_size].endswith(FAST_SUFFIX):
            return None
        try:
            return counters.check_increment(block, b"")
        except ApiError:
            return None

    def _total(self, subject: bytes) -> int | None:
        """What a subject counts now; None when that needs more of a look."""
        if self._stream.store.catalog.table.find(subject) < 0:
            return 0
        known = self._totals.get(subject)
        if known is not None:
            return known
        try:
            total = counters.last_total(self._stream, subject)
        except ApiError:
            return None
        return None if total.sources else total.value

    def _acknowledge(
        self, data: Buffer, ops: array[int], first: int, stop: int, seq: int, payloads: bytes, words: array[int]
    ) -> None:
        """Answer each with its sequence and total, those of one client in one piece."""
        stream, begin = self._stream, first
        target = stream.account.last_reply
        while first < stop and not stream.config.no_ack:
            end = first
            if target is not None:
                facts = (target.prefix, target.may_have_dots, target.sid, stream.ack_head, seq + first - begin)
                rest = words[(first - begin) * OP_WORDS :]
                frames, end = total_frames(data, ops, first, stop, *facts, payloads[rest[6] - words[6] :], rest)
                if frames:
                    stream.log.answer(Acks(target.client, frames))
            if end == first:  # its reply goes elsewhere, or it wants none
                start, size = ops[first * OP_WORDS + 2 : first * OP_WORDS + 4]
                reply = bytes(data[start : start + size])
                found = stream.account.reply_target(reply) if reply else None
                if found is not None and found is not target:
                    target = found
                    continue
                at = (first - begin) * OP_WORDS
                start, size = words[at + 6] - words[6] + 1, words[at + 7] - 1
                more = b",%s" % payloads[start : start + size].removesuffix(b"}")
                stream.acknowledge_seq(reply, seq + first - begin, more)
                end += 1
            first = end
