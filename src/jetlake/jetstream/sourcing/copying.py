"""Copying: what a stream copies from others, its mirror or its sources, for as long as it is configured so.

Which consumer names they use at their origins, how far they are, and what stream info and health checks say of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jetlake.clock import SECOND_NS
from jetlake.jetstream.consumers.ack_words import account_hash
from jetlake.jetstream.host import Timer
from jetlake.jetstream.sourcing.feed import Feed
from jetlake.jetstream.sourcing.mirror import Mirror
from jetlake.jetstream.sourcing.names import index_name, stable_id
from jetlake.jetstream.sourcing.positions import Positions
from jetlake.jetstream.sourcing.source import Source
from jetlake.jetstream.streams.config import StreamSource

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

SAVE_NS = SECOND_NS  # how soon a changed position is written


class Copying:
    """The mirror or the sources of one stream."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._positions = Positions(stream)
        self.mirror: Mirror | None = None
        self.sources: dict[str, Source] = {}
        self._timer: Timer | None = None

    def open(self) -> None:
        """Begin, or go on from what is stored."""
        config = self._stream.config
        self._positions.load({index_name(source) for source in config.sources})
        self.configure()
        self._save()

    def configure(self) -> None:
        """Copy what the configuration says now."""
        config, positions = self._stream.config, self._positions
        if self.mirror is not None and config.mirror is None:
            self._end(self.mirror.feed)
            self.mirror = None
        if self.mirror is None and config.mirror is not None:
            self.mirror = Mirror(self._stream, config.mirror, positions)
            self.mirror.feed.begin()
        wanted = {index_name(source): source for source in config.sources}
        for name in [name for name in self.sources if name not in wanted]:
            self._end(self.sources.pop(name).feed)
            positions.forget(name)
        for name, source in wanted.items():
            if name not in self.sources:
                self.sources[name] = Source(self._stream, source, self._consumer_name(source, name), positions)
                self.sources[name].feed.begin()

    def close(self) -> None:
        """Copy no more: the stream is stopped."""
        for feed in self.feeds():
            feed.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._positions.save()

    def deleted(self) -> None:
        """The stream is deleted: its origins need keep nothing for it."""
        for feed in self.feeds():
            self._end(feed)

    def purged(self) -> None:
        """Messages that say how far the copies are may be gone."""
        if self.sources:
            self._positions.save(durable=True)

    def feeds(self) -> Iterator[Feed]:
        """All that is heard of origins."""
        if self.mirror is not None:
            yield self.mirror.feed
        for source in self.sources.values():
            yield source.feed

    def info(self) -> dict[str, Any]:
        """The fields of stream info."""
        fields: dict[str, Any] = {}
        if self.mirror is not None and self._stream.config.mirror is not None:
            fields["mirror"] = _shown(self._stream.config.mirror, self.mirror.info())
        if self.sources:
            fields["sources"] = [_shown(source.source, source.info()) for source in self.sources.values()]
        return fields

    def _consumer_name(self, source: StreamSource, index: str) -> str:
        stream = self._stream
        stable = stable_id(stream.name, stream.account.name, stream.host.options.jetstream.domain)
        counts = Counter(each.name for each in stream.config.sources)
        return f"JS_SRC_{account_hash(f'{stable} {index}') if counts[source.name] > 1 else stable}"

    def _end(self, feed: Feed) -> None:
        feed.stop()
        feed.delete_consumer()

    def _save(self) -> None:
        self._positions.save()
        stream = self._stream
        if not stream.is_closed:
            self._timer = stream.host.call_at(stream.host.clock() + SAVE_NS, self._save)


def _shown(source: StreamSource, numbers: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": source.name}
    if source.external is not None:
        fields["external"] = {"api": source.external.api, "deliver": source.external.deliver}
    fields |= numbers
    if source.filter_subject:
        fields["filter_subject"] = source.filter_subject
    if source.subject_transforms:
        fields["subject_transforms"] = [{"src": each.src, "dest": each.dest} for each in source.subject_transforms]
    return fields
