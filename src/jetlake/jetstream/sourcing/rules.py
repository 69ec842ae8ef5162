"""What is asked of a mirror or of sources that only the other streams of the account can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from msgspec.structs import replace

from jetlake.jetstream import errors
from jetlake.jetstream.sourcing.names import filters
from jetlake.jetstream.streams.config import StreamConfig, StreamSource
from jetlake.subjects import FilterSet


class Known(Protocol):
    """A stream, or an assignment of one."""

    @property
    def config(self) -> StreamConfig: ...


Streams = Mapping[str, Known]


def check_origins(config: StreamConfig, streams: Streams, *, pedantic: bool) -> StreamConfig:
    """The configuration as its origins want it; raises ApiError."""
    for source in _origins(config):
        origin = streams.get(source.name) if source.external is None else None
        if origin is not None and 0 <= config.max_msg_size < origin.config.max_msg_size:
            is_mirror = config.mirror is not None
            raise (errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG if is_mirror else errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG)()
    _check_deliver_prefixes(config, streams)
    if _has_cycle(config, streams):
        raise errors.STREAM_INVALID_CONFIG("detected cycle")
    return _with_mirror_direct(config, streams, pedantic)


def _origins(config: StreamConfig) -> Iterator[StreamSource]:
    if config.mirror is not None:
        yield config.mirror
    yield from config.sources


def _check_deliver_prefixes(config: StreamConfig, streams: Streams) -> None:
    prefixes = [each.external.deliver for each in _origins(config) if each.external is not None]
    for source in _origins(config):
        origin = streams.get(source.name) if source.external is None else None
        for prefix in prefixes if origin is not None else ():
            for subject in origin.config.subjects if origin is not None and prefix else ():
                if FilterSet([f"{prefix}.>", prefix]).overlaps(subject):
                    raise errors.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS(prefix, subject)


def _has_cycle(config: StreamConfig, streams: Streams) -> bool:
    """Whether a message could come back to the stream it was copied from."""
    visited: set[str] = set()

    def comes_back(current: StreamConfig) -> bool:
        visited.add(current.name)
        for source in _origins(current):
            if source.external is not None:
                continue
            if source.name == config.name:
                wanted = filters(source)
                is_free = current.mirror is None and wanted and not _collide(wanted, current.subjects)
                if not is_free:
                    return True
            origin = streams.get(source.name)
            if origin is not None and source.name not in visited and comes_back(origin.config):
                return True
        return False

    return comes_back(config)


def _collide(wanted: list[str], subjects: tuple[str, ...]) -> bool:
    return any(map(FilterSet(wanted).overlaps, subjects))


def _with_mirror_direct(config: StreamConfig, streams: Streams, pedantic: bool) -> StreamConfig:
    """A mirror answers direct gets of its origin where the origin does itself."""
    mirror = config.mirror
    origin = streams.get(mirror.name) if mirror is not None and mirror.external is None else None
    if origin is None or origin.config.allow_direct == config.mirror_direct:
        return config
    if pedantic:
        raise errors.PEDANTIC("origin stream has direct get set, mirror has it disabled")
    return replace(config, mirror_direct=origin.config.allow_direct)
