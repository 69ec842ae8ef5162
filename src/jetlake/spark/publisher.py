"""Publish the rows of one task, each of them once.

Acks are awaited in a window of two halves: while one is being filled the other is acknowledged, and a half is used
again when every message of it has its ack. Until then its frames are kept. When the connection is lost they are sent
again on a new one; the server drops those that it has, by their ids.

Two attempts at the same task may be alive at once. The last one that came owns it: the other notices within a quarter
of the time that the server remembers ids, and gives up. What it published until then is found by the owner, who looks
into the stream a second time after half of it; until then the ids protect it.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import xxhash

from jetlake.clock import SECOND_NS
from jetlake.spark.server_ledger import ServerLedger
from jetlake.table.blocks import Selection
from jetlake.table.errors import ServerError
from jetlake.table.nats import Connection, Disconnected
from jetlake.table.options import Options
from jetlake.table.url_origin import UrlOrigin

_FLUSH_SIZE = 256 * 1024
_HALF_SIZE_MAX = 8 * 1024 * 1024
_SETTLE_S = 0.2
_SUBJECTS_MAX = 100
_MEMORY_NS = 120 * SECOND_NS  # where a stream does not remember ids at all
# What headers of a message that was read said to the server which stored it: a second one would take it as said to it.
_SPENT = re.compile(rb"^Nats-(?:Msg-Id|Stream-Source|Expected-[^:]*|Batch-[^:]*):.*\n", re.MULTILINE)
_NOT_ACKS = (b'"error"', b"HMSG", b"-ERR", b"PING", b"INFO")


class _Half:
    """Half of the messages that may wait for their acks."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark  # the first letter of their reply tokens
        self.clear()

    def clear(self) -> None:
        self.frames: list[bytes] = []
        self.size = self.waiting = 0


class Publisher:
    """A connection that publishes, and knows what is stored."""

    def __init__(self, options: Options, prefix: str) -> None:
        """`prefix` is what the message ids of this task begin with."""
        self._options, self._prefix = options, prefix
        self.link = Connection(options)
        self._size_max: int = self.link.info.get("max_payload", 2**63)
        self.count = self.skipped = self._row = 0
        self._half, self._other = _Half(b"A"), _Half(b"B")
        info = self.link.api(f"STREAM.INFO.{options.stream}")
        self._memory_s = (info["config"].get("duplicate_window") or _MEMORY_NS) / SECOND_NS
        self._stored: dict[int, str] = {}  # rows that are in the stream, with the hashes of their content
        self._look_from_seq, self._look_again_s = 0, 0.0
        self._owner, self._task = str(uuid.uuid4()), ("", 0)
        self._checked_s, self._started_s = _now_s(), time.monotonic()
        self._head = b"NATS/1.0\r\nNats-Msg-Id: %s" % prefix.encode()
        self._expect = b"Nats-Expected-Stream: %s\r\n" % options.stream.encode()
        self._ack_text = b'"stream":"%s"' % options.stream.encode()
        self._subjects: set[bytes] = set()  # that the stream is known to take

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *error: object) -> None:
        self.link.close()

    def claim(self, writer: str, task: int) -> None:
        """Tell other attempts at this task to stop."""
        self._task = (writer, task)
        ServerLedger(self.link, self._options.stream).claim(writer, task, self._owner)
        self._checked_s = _now_s()

    def look_for_rows(self, start_seq: int) -> None:
        """Find out which rows are in the stream behind a sequence, now and once more."""
        self._look_from_seq = self._find_stored(start_seq)
        self._look_again_s = _now_s() + self._memory_s / 2

    def _find_stored(self, start_seq: int) -> int:
        """Take note of this task's rows behind a sequence; where the stream ended."""
        origin, stream = UrlOrigin(self._options), self._options.stream
        try:
            origin.refresh()
            last_seq = origin.bounds(stream).last_seq
            if last_seq <= start_seq:
                return last_seq
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": start_seq + 1, "headers_only": True}
            for _, columns in origin.pull(stream, start, ["headers"], Selection(last_seq=last_seq)).batches():
                for headers in columns["headers"].to_pylist():
                    for message_id in dict(headers).get("Nats-Msg-Id", []):
                        if message_id.startswith(self._prefix):
                            row, _, content = message_id[len(self._prefix) :].partition(":")
                            self._stored[int(row)] = content
            return last_seq
        finally:
            origin.close()

    def add(self, messages: Iterator[tuple[bytes, bytes, bytes]]) -> None:
        """Publish (subject, header lines, payload) of rows, but for those that are stored."""
        for subject, lines, payload in messages:
            if self._options.rate:
                self._pace()
            self._stay_owner()
            content = b"%016x" % xxhash.xxh64_intdigest(payload, xxhash.xxh64_intdigest(subject + lines))
            known = self._stored.get(self._row)
            if known is None:
                self._send(subject, lines, payload, content)
            elif known != content.decode():
                raise ServerError(
                    f"row {self._row} of {self._prefix[:-1]} was stored with another content: the query does not give "
                    "the same rows again, so they cannot be written exactly once"
                )
            else:
                self.skipped += 1
            self._row += 1

    def finish(self) -> None:
        """Wait for the last acks."""
        self._keep(self._settle, self._half, self._other)

    def _pace(self) -> None:
        """Wait until it is this row's turn."""
        turn_s = self._started_s + self._row / self._options.rate
        if turn_s > time.monotonic():
            self.finish()
            time.sleep(max(turn_s - time.monotonic(), 0))

    def _stay_owner(self) -> None:
        """Now and then: does this task still belong to this attempt, and what did the one before it publish last?"""
        now_s = _now_s()
        if now_s - self._checked_s < self._memory_s / 4:
            return
        self.finish()  # nothing may be on its way while the connection is used for questions
        self._keep(self._check_owner)
        self._checked_s = now_s
        if self._look_again_s and now_s >= self._look_again_s:
            self._find_stored(self._look_from_seq)
            self._look_again_s = 0.0

    def _check_owner(self) -> None:
        if not ServerLedger(self.link, self._options.stream).is_owner(*self._task, self._owner):
            raise ServerError("another attempt at this task has taken its place")

    def _send(self, subject: bytes, lines: bytes, payload: bytes, content: bytes) -> None:
        half, row = self._half, self._row
        lines = _SPENT.sub(b"", lines) if b"Nats-" in lines else lines
        if subject not in self._subjects and len(self._subjects) < _SUBJECTS_MAX:
            # Only the first: any rule but the id's costs a server more than the message. Acks name their stream too.
            self._subjects.add(subject)
            lines = self._expect + lines
        headers = b"%s%d:%s\r\n%s\r\n" % (self._head, row, content, lines)
        size = len(headers)
        if size + len(payload) > self._size_max:
            raise ServerError(
                f"row {row}, subject {subject.decode()}: {size + len(payload)} bytes with headers; {self.link.where} "
                f"takes at most {self._size_max} (max_payload)"
            )
        reply = b"%s.%s%d" % (self.link.inbox_bytes, half.mark, row)
        frame = b"HPUB %s %s %d %d\r\n%s%s\r\n" % (subject, reply, size, size + len(payload), headers, payload)
        half.frames.append(frame)
        half.size += len(frame)
        half.waiting += 1
        self.count += 1
        self.link.publish(frame)
        if self.link.queued_size >= _FLUSH_SIZE:
            self._keep(self._flush)
        if 2 * len(half.frames) >= self._options.window or half.size >= _HALF_SIZE_MAX:
            self._keep(self._flush)
            self._keep(self._settle, self._other)
            self._other.clear()
            self._half, self._other = self._other, half

    def _flush(self) -> None:
        self.link.flush()

    def _settle(self, *halves: _Half) -> None:
        """Wait until every message of some halves has its ack."""
        self.link.flush()
        while any(half.waiting for half in halves):
            deadline = time.monotonic() + self._options.timeout_s
            if not self._take_acks() and not self.link.receive(deadline):
                raise Disconnected(f"{self.link.where}: no ack within {self._options.timeout_s:g} s")

    def _take_acks(self) -> bool:
        """Count the acks that have arrived; False when there is none."""
        received = self.link.received
        end = received.rfind(b"}\r\n") + 3
        if end > 3:
            block = bytes(received[:end])
            counts = [block.count(b"%s.%s" % (self.link.inbox_bytes, half.mark)) for half in (self._half, self._other)]
            is_plain = not any(sign in block for sign in _NOT_ACKS)
            if is_plain and block.count(self._ack_text) == sum(counts):
                del received[:end]
                self._half.waiting -= counts[0]
                self._other.waiting -= counts[1]
                return True
        reply = self.link.next_reply()
        if reply is None:
            return False
        self._check(reply.status, reply.description, reply.payload)
        mark = reply.subject.rpartition(b".")[2][:1]
        for half in (self._half, self._other):
            half.waiting -= half.mark == mark
        return True

    def _check(self, status: int, description: str, payload: bytes) -> None:
        if status == 503:
            raise ServerError(f"{self.link.where}: no stream takes messages of these subjects")
        if status:
            raise ServerError(f"{self.link.where}: {status} {description}")
        answer: dict[str, Any] = json.loads(payload)
        if "error" in answer:
            raise ServerError(f"{self.link.where}: a message was refused: {answer['error'].get('description')}")
        if answer.get("stream") != self._options.stream:
            raise ServerError(f"{self.link.where}: a message went to the stream {answer.get('stream')}")

    def _keep(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do something; when the connection is lost meanwhile, send on a new one what may not have arrived."""
        for attempt in range(self._options.retries + 1):
            try:
                if attempt:
                    self._reconnect()
                action(*arguments)
                return
            except Disconnected as error:
                if attempt == self._options.retries:
                    raise ServerError(
                        f"writing stopped after {self.count} rows, and {attempt + 1} attempts to go on failed: {error}"
                    ) from None
                time.sleep(_SETTLE_S * 2**attempt)

    def _reconnect(self) -> None:
        """Connect again, and publish again whatever may have no ack."""
        self.link.close()
        old = self.link.inbox_bytes
        self.link = Connection(self._options)
        for half in (self._other, self._half):
            half.frames = [frame.replace(old, self.link.inbox_bytes, 1) for frame in half.frames]
            half.waiting = len(half.frames)
            for frame in half.frames:
                self.link.publish(frame)


def _now_s() -> float:
    """A clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
