"""Republishing: what a stream stored goes out again under another subject, with where it was stored in its headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetlake.broker.transform import SubjectTransform
from jetlake.jetstream.streams.config import Republish
from jetlake.wire.go_time import format_time
from jetlake.wire.headers import append_headers

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream


class Republisher:
    """Publishes what one stream stored."""

    def __init__(self, stream: Stream, config: Republish) -> None:
        self._stream, self._headers_only = stream, config.headers_only
        self._transform = SubjectTransform(config.src or ">", config.dest)

    def publish(
        self, subject: bytes, headers: bytes, payload: bytes, seq: int, time_ns: int, previous_seq: int
    ) -> None:
        """A message was stored; `previous_seq` is the one before it on its subject, 0 if there was none."""
        target = self._transform.apply_bytes(subject)
        if target is None:
            return
        pairs = [
            (b"Nats-Stream", self._stream.name.encode()),
            (b"Nats-Subject", subject),
            (b"Nats-Sequence", b"%d" % seq),
            (b"Nats-Time-Stamp", format_time(time_ns).encode()),
            (b"Nats-Last-Sequence", b"%d" % previous_seq),
        ]
        if self._headers_only:
            pairs.append((b"Nats-Msg-Size", b"%d" % len(payload)))
        block = append_headers(headers, pairs)
        self._stream.account.send(target, b"" if self._headers_only else payload, headers=block)
