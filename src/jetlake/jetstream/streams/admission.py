"""Whether a stream may be made or changed, given the other streams of its account. Nothing is changed here.

On one server the others are the streams that it has. In a cluster they are the streams of all servers as the leader of
the meta group sees them, with those that are about to be made: whatever has a configuration will do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from jetlake.config.options import AccountJetStream, JetStreamLimits
from jetlake.jetstream import errors
from jetlake.jetstream.consumers.admission import KnownConsumer
from jetlake.jetstream.errors import ApiError
from jetlake.jetstream.sourcing.rules import Known, check_origins
from jetlake.jetstream.streams.config import Storage, StreamConfig, is_same, with_level
from jetlake.jetstream.streams.rules import check_config, check_update
from jetlake.subjects import FilterSet, first_tokens


class Surroundings(NamedTuple):
    """Everything outside of a stream that decides about it."""

    streams: Mapping[str, Known]  # of the account
    limits: AccountJetStream
    server: JetStreamLimits
    exceeds: Callable[[Storage, int], bool]  # whether so many bytes more are beyond what the server may reserve
    offline: Mapping[str, str] = {}  # streams that could not be opened, and why
    restoring: Collection[str] = ()  # names of streams that are about to be there
    replicas_max: int = 1

    def absence(self, name: str) -> ApiError:
        """Why there is no stream of that name."""
        reason = self.offline.get(name)
        return errors.STREAM_NOT_FOUND() if reason is None else errors.STREAM_OFFLINE_REASON(reason)


def admit_new(config: StreamConfig, around: Surroundings, *, pedantic: bool = False) -> StreamConfig | None:
    """A new stream's configuration as it is to be; None if there is the same one already. Raises ApiError."""
    others = sum(name != config.name for name in around.streams)
    if 0 < around.limits.max_streams <= others:
        raise errors.MAXIMUM_STREAMS()
    config = check_config(config, pedantic=pedantic, account=around.limits, server=around.server)
    if config.num_replicas > around.replicas_max:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if config.name in around.restoring:
        raise errors.STREAM_NAME_EXIST()
    existing = around.streams.get(config.name)
    if existing is not None:
        if is_same(existing.config, config):
            return None
        raise errors.STREAM_NAME_EXIST()
    if config.name in around.offline:
        raise around.absence(config.name)
    config = check_origins(config, around.streams, pedantic=pedantic)
    check_limits(config, config.max_bytes, 0, around)
    check_overlap(config, around.streams)
    return with_level(config)


def admit_restored(config: StreamConfig, around: Surroundings) -> None:
    """Raise ApiError when a stream of a backup cannot be made."""
    if 0 < around.limits.max_streams <= len(around.streams):
        raise errors.MAXIMUM_STREAMS()
    if config.num_replicas > around.replicas_max:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if config.name in around.streams or config.name in around.offline or config.name in around.restoring:
        raise errors.STREAM_NAME_EXIST_RESTORE_FAILED()
    check_limits(config, config.max_bytes, 0, around)
    check_overlap(config, around.streams)


def admit_change(
    old: StreamConfig, config: StreamConfig, consumers: Mapping[str, KnownConsumer], around: Surroundings
) -> StreamConfig:
    """The configuration that an update leads to; `config` passed `check_config`. Raises ApiError."""
    config = check_update(old, config, replicas_max=around.replicas_max)
    added_bytes = max(max(config.max_bytes, 0) - max(old.max_bytes, 0), 0)
    check_limits(config, added_bytes, config.max_bytes - added_bytes, around)
    check_consumers(old, config, consumers)
    config = check_origins(config, around.streams, pedantic=False)
    check_overlap(config, around.streams)
    return with_level(config)


# The parts


def reserved_size(streams: Mapping[str, Known], storage: Storage, *, besides: str = "") -> int:
    """The bytes that streams reserve by their max_bytes, on all their servers."""
    return sum(
        stream.config.max_bytes * max(stream.config.num_replicas, 1)
        for name, stream in streams.items()
        if name != besides and stream.config.storage is storage and stream.config.max_bytes > 0
    )


def check_limits(config: StreamConfig, added_bytes: int, own_bytes: int, around: Surroundings) -> None:
    """Would the stream's reservation, the added bytes on top of its own, fit with all others?"""
    limits, replicas, is_file = around.limits, max(config.num_replicas, 1), config.storage is Storage.FILE
    if 0 < limits.max_consumers < config.max_consumers:
        raise errors.MAXIMUM_CONSUMERS()
    added_bytes = 1 if added_bytes < 0 else added_bytes
    reserved = reserved_size(around.streams, config.storage, besides=config.name) + max(own_bytes, 0) * replicas
    limit = limits.max_store if is_file else limits.max_memory
    if (0 <= limit < reserved + added_bytes * replicas) or around.exceeds(config.storage, added_bytes):
        raise (errors.STORAGE_RESOURCES_EXCEEDED if is_file else errors.MEMORY_RESOURCES_EXCEEDED)()


def check_overlap(config: StreamConfig, streams: Mapping[str, Known]) -> None:
    """Raise ApiError when another stream has a subject in common with this one."""
    mine, tokens = None, first_tokens(config.subjects)
    for name, stream in streams.items():
        theirs = stream.config.subjects
        if name == config.name or _begin_apart(tokens, first_tokens(theirs)):
            continue
        mine = mine or FilterSet(config.subjects)
        if any(map(mine.overlaps, theirs)):
            raise errors.STREAM_SUBJECT_OVERLAP()


def _begin_apart(some: set[str], others: set[str]) -> bool:
    """Whether no subject can begin as filters of both do."""
    return some.isdisjoint(others) and not (some | others) & {"*", ">"}


def check_consumers(old: StreamConfig, config: StreamConfig, consumers: Mapping[str, KnownConsumer]) -> None:
    """Consumers that are beyond new ceilings stand in the way of an update."""
    before, new = old.consumer_limits, config.consumer_limits
    threshold_ns = new.inactive_threshold if new.inactive_threshold != before.inactive_threshold else 0
    ack_pending = new.max_ack_pending if new.max_ack_pending != before.max_ack_pending else 0
    if threshold_ns <= 0 and ack_pending <= 0:
        return
    beyond = [
        name
        for name, consumer in consumers.items()
        if (0 < new.inactive_threshold < consumer.config.inactive_threshold)
        or (0 < new.max_ack_pending < consumer.config.max_ack_pending)
    ]
    if beyond:
        raise errors.STREAM_UPDATE(f"change to limits violates consumers: {', '.join(beyond)}")
