"""Scheduler: makes a stream's schedules happen when they are due.

What a schedule makes is stored as any message is, by one command that also says when the schedule is due again, or that
it is over and its message goes. So a crash leaves either both or neither, and a restart makes nothing twice.

Which schedules there are is part of the stream's state (`schedules.py`). At a start it is read from a small file, and
from the messages that were stored since the file was written; without the file, from all messages. What was due while
nobody served the stream happens once, a moment after the start.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from jetlake.clock import SECOND_NS
from jetlake.errors import MessageNotFound
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.host import Timer
from jetlake.jetstream.schedules import rules
from jetlake.jetstream.schedules.schedules import Schedule
from jetlake.jetstream.streams import publish
from jetlake.jetstream.streams.commands import Purge, Timing
from jetlake.jetstream.streams.durations import parse_ttl
from jetlake.jetstream.streams.side_file import SideFile
from jetlake.store.api import StoredMsg
from jetlake.subjects import encode_subject
from jetlake.wire.headers import append_headers, header_value

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

FILE_NAME = "schedules.json"
OVERDUE_NS = 250_000_000  # how soon something happens that was due before
RETRY_NS = 5 * SECOND_NS  # how soon something is tried again that could not be stored
COUNT_MAX = 100  # schedules that happen before others have their turn
STAMP_STEP = 10_000  # messages, or as many as there are schedules, after which the file is written anew
KIND = b"schedules"
_MARK = re.compile(re.escape(rules.SCHEDULING))
_DROPPED = re.compile(
    rb"\r\n(?:Nats-(?:Schedule|Expected-|Batch-)[^\r\n]*|Nats-(?:Msg-Id|TTL|Rollup):[^\r\n]*)(?=\r\n)"
)


class _File(msgspec.Struct):
    stamp_seq: int  # up to which message it is true
    schedules: list[tuple[str, int, int, int]]


class Scheduler:
    """The schedules of one stream, as time goes by."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._host = stream, stream.host
        self._file = SideFile(stream, FILE_NAME, KIND)
        self._timer: Timer | None = None
        self._wake_ns = 0
        self._stamp_seq = 0
        self._loading: Iterator[None] | None = None
        self._is_open = self._is_loaded = False

    # Life

    def open(self) -> None:
        """Begin, or go on from what is stored."""
        self._is_open, self._is_loaded = True, False
        self._loading = self._load()
        self._load_some(self._loading)

    def configure(self) -> None:
        """The stream has another configuration."""
        if self._is_open:
            self.arm()
        elif not self._stream.is_closed:
            self.open()

    def close(self) -> None:
        """Let nothing happen any more."""
        if self._is_open and self._is_loaded and self._stream.log.problem is None:
            self._save()
        self._is_open, self._loading = False, None
        self._disarm()

    def changed(self, timing: Timing) -> None:
        """A message was stored that is a schedule, comes from one, or ends one."""
        if timing.scheduler and not timing.next_ns:
            self._stream.purged(timing.scheduler)
        self.arm()

    def stored(self) -> None:
        """Messages were stored: keep what a restart has to read small."""
        if self._is_loaded:
            step = max(STAMP_STEP, len(self._stream.machine.schedules))
            if self._stream.log.committed_seq - self._stamp_seq >= step:
                self._save()

    # Waiting

    def arm(self) -> None:
        """Wake up when the first schedule is due."""
        due_ns = self._stream.machine.schedules.next_ns()
        if due_ns is None or not self._may_run():
            self._disarm()
            return
        now_ns = self._host.clock()
        self._arm_at(due_ns if due_ns > now_ns else now_ns + OVERDUE_NS)

    def _may_run(self) -> bool:
        stream = self._stream
        is_able = stream.log.problem is None and not (stream.is_closed or stream.config.sealed)
        return self._is_open and self._is_loaded and is_able

    def _arm_at(self, time_ns: int) -> None:
        if self._timer is not None:
            if self._wake_ns <= time_ns:
                return
            self._timer.cancel()
        self._wake_ns = time_ns
        self._timer = self._host.call_at(time_ns, self._wake)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._timer = None
        if not self._may_run():
            return
        schedules, now_ns = self._stream.machine.schedules, self._host.clock()
        due = schedules.take_due(now_ns, COUNT_MAX)
        failed = [(subject, schedule) for subject, schedule in due if not self._fire(subject, schedule, now_ns)]
        if len(due) == COUNT_MAX and not failed:
            self._arm_at(now_ns)
            return
        self.arm()
        for subject, schedule in failed:
            schedules.put_back(subject, schedule)
        if failed:
            self._arm_at(now_ns + RETRY_NS)

    # Happening

    def _fire(self, subject: str, schedule: Schedule, now_ns: int) -> bool:
        """Make the message of a schedule; False when it could not be stored."""
        stream, schedules = self._stream, self._stream.machine.schedules
        message = stream.store.load_last(subject)
        pattern = rules.stored_pattern(message.headers) if message is not None else None
        if message is None or message.seq != schedule.seq or pattern is None or self._is_expired(message, now_ns):
            schedules.end(subject)
            return True
        next_ns = pattern.next_ns(schedule.due_ns, now_ns)
        following = pattern.shown(next_ns).encode() if next_ns else rules.PURGE
        target = header_value(message.headers, rules.TARGET) or b""
        try:
            stream.produce(target, self._produced(message, following, Timing(0, subject, next_ns)))
        except ApiError as error:
            facts = f"account={stream.account.name} stream={stream.name} schedule={subject}"
            self._host.log("warning", f"scheduled message not stored {facts} error={error.description}")
            return False
        return True

    def _is_expired(self, message: StoredMsg, now_ns: int) -> bool:
        """Whether a schedule should have left by now."""
        config = self._stream.config
        ttl = header_value(message.headers, b"Nats-TTL") if config.allow_msg_ttl else None
        life_ns = parse_ttl(ttl.decode("utf-8", "replace")) if ttl else config.max_age
        return bool(life_ns) and message.time_ns + (life_ns or 0) <= now_ns

    def _produced(self, message: StoredMsg, following: bytes, timing: Timing) -> publish.Ready:
        source = header_value(message.headers, rules.SOURCE)
        sample = self._stream.store.load_last(source.decode("utf-8", "surrogateescape")) if source else None
        content = message if sample is None else sample
        pairs = [(rules.SCHEDULER, encode_subject(message.subject)), (rules.NEXT, following)]
        ttl, rollup = (header_value(message.headers, name) for name in (rules.TTL, rules.ROLLUP))
        if ttl:
            pairs.append((b"Nats-TTL", ttl))
        if rollup:
            pairs.append((b"Nats-Rollup", b"sub"))
        headers = append_headers(_DROPPED.sub(b"", content.headers), pairs)
        ttl_ns = (parse_ttl(ttl.decode("utf-8", "replace")) or 0) if ttl else 0
        return publish.Ready(headers, content.payload, ttl_ns, rollup="sub" if rollup else "", timing=timing)

    # Keeping

    def _save(self) -> None:
        """Write the file. What it leaves out is in messages with higher sequences."""
        if self._file.path is None:
            return
        stamp_seq = self._stream.log.committed_seq
        entries = [each for each in self._stream.machine.schedules.entries() if each[3] <= stamp_seq]
        if len(entries) < len(self._stream.machine.schedules):
            return  # some are about to be durable; another time will do
        if self._file.write(msgspec.json.encode(_File(stamp_seq, entries))):
            self._stamp_seq = stamp_seq

    def _load_some(self, steps: Iterator[None]) -> None:
        """Read on, after others had their turn; when all is read, begin."""
        if self._loading is not steps or self._stream.is_closed:
            return
        if next(steps, steps) is not steps:
            self._host.call_soon(lambda: self._load_some(steps))
            return
        self._loading, self._is_loaded = None, True
        self.arm()

    def _load(self) -> Iterator[None]:
        """Read which schedules there are."""
        schedules, store = self._stream.machine.schedules, self._stream.store
        kept = self._read()
        for number, (subject, seq, due_ns, set_seq) in enumerate(kept.schedules, 1):
            if self._stream.log.last_seq_of(subject) == seq:
                schedules.put(subject, seq, due_ns, set_seq)
            if number % (10 * COUNT_MAX) == 0:
                yield
        for seqs in self._marked(kept.stamp_seq):
            for number, seq in enumerate(seqs, 1):
                with suppress(MessageNotFound):
                    self._take(store.load(seq))
                if number % COUNT_MAX == 0:
                    yield
            yield
        self._stamp_seq = kept.stamp_seq

    def _read(self) -> _File:
        body, nothing = self._file.read(), _File(0, [])
        kept = msgspec.json.decode(body, type=_File) if body is not None else nothing
        return kept if kept.stamp_seq <= self._stream.last_seq else nothing

    def _marked(self, after_seq: int) -> Iterator[list[int]]:
        """The sequences of messages that may have to do with schedules, block by block."""
        store = self._stream.store
        for block in list(store.catalog.blocks):
            if block.last_seq > after_seq:
                index, body = store.catalog.index(block), store.body_of(block)
                places = {bisect_right(index.offsets, m.start(), 0, index.count) - 1 for m in _MARK.finditer(body)}
                yield [seq for seq in (index.seq(place) for place in sorted(places) if place >= 0) if seq > after_seq]

    def _take(self, message: StoredMsg) -> None:
        """What a stored message says of schedules."""
        schedules, timing = self._stream.machine.schedules, rules.stored_timing(message.headers, message.time_ns)
        if timing is None:
            return
        if timing.due_ns and self._stream.log.last_seq_of(message.subject) == message.seq:
            schedules.put(message.subject, message.seq, timing.due_ns)
        if timing.scheduler and timing.next_ns:
            schedules.move(timing.scheduler, message.seq, timing.next_ns)
        elif timing.scheduler:
            known = schedules.get(timing.scheduler)
            if known is not None and known.seq < message.seq:  # a crash came between the message and the purge
                schedules.end(timing.scheduler)
                self._stream.log.submit(Purge(timing.scheduler, message.seq))
