"""Whether a consumer may be made or changed, given its stream and the other consumers. Nothing is changed here.

As with streams (`streams/admission.py`), the others may be consumers of this server or assignments in a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from jetlake.jetstream import errors
from jetlake.jetstream.consumers.config import Action, ConsumerConfig
from jetlake.jetstream.consumers.rules import (
    INACTIVE_DEFAULT_NS,
    NAME_SIZE_MAX,
    Ceilings,
    check_config,
    check_partition,
    check_update,
    check_work_queue,
    same_config,
    with_defaults,
)
from jetlake.jetstream.streams.config import Retention, StreamConfig
from jetlake.subjects import encode_subject


class KnownConsumer(Protocol):
    """A consumer, or an assignment of one."""

    @property
    def config(self) -> ConsumerConfig: ...


class ConsumerSurroundings(NamedTuple):
    """Everything outside of a consumer that decides about it."""

    stream: StreamConfig
    consumers: Mapping[str, KnownConsumer]  # of the stream
    ceilings: Ceilings
    account_max: int  # consumers per stream, as the account may have them
    is_bound: Callable[[str], bool] = lambda name: False  # whether somebody listens to what a push consumer delivers


class Admitted(NamedTuple):
    """A consumer as it is to be."""

    name: str  # empty if it has to be given one
    config: ConsumerConfig
    is_new: bool


def admit_consumer(
    config: ConsumerConfig, action: Action, around: ConsumerSurroundings, *, pedantic: bool = False
) -> Admitted:
    """What a create request leads to: a new consumer, or a change of the one that has its name. Raises ApiError."""
    stream = around.stream
    config = with_defaults(config, stream, around.ceilings, pedantic=pedantic)
    check_config(config, stream, around.ceilings)
    name = config.durable_name or config.name
    existing = around.consumers.get(name) if name else None
    if existing is not None:
        return Admitted(name, _admit_change(name, existing.config, config, action, around), False)
    if action is Action.UPDATE:
        raise errors.CONSUMER_DOES_NOT_EXIST()
    if counts(config):
        _check_count(around)
    if stream.retention is Retention.WORKQUEUE:
        check_work_queue(config, [other.config for other in around.consumers.values()])
    if len(encode_subject(name)) > NAME_SIZE_MAX:
        raise errors.CONSUMER_NAME_TOO_LONG(NAME_SIZE_MAX)
    return Admitted(name, config if config.is_durable else _with_threshold(config), True)


def _admit_change(
    name: str, old: ConsumerConfig, config: ConsumerConfig, action: Action, around: ConsumerSurroundings
) -> ConsumerConfig:
    if action is Action.CREATE and not same_config(old, config):
        raise errors.CONSUMER_ALREADY_EXISTS()
    if around.stream.retention is Retention.WORKQUEUE:
        check_partition(config, [other.config for key, other in around.consumers.items() if key != name])
    check_update(old, config, is_bound=around.is_bound(name))
    # What it is decides, not what it is called now: a durable without a threshold gets none by losing its durable name.
    is_lasting = old.is_durable or not old.inactive_threshold
    return config if is_lasting else _with_threshold(config)


def _check_count(around: ConsumerSurroundings) -> None:
    count_max, account_max = around.stream.max_consumers, around.account_max
    if count_max <= 0 or 0 < account_max < count_max:
        count_max = account_max
    if not 0 < count_max <= len(around.consumers):
        return
    if count_max <= sum(counts(other.config) for other in around.consumers.values()):
        raise errors.MAXIMUM_CONSUMERS()


def counts(config: ConsumerConfig) -> bool:
    """Whether a consumer is one of those that are limited."""
    return not (config.direct or config.sourcing)


def _with_threshold(config: ConsumerConfig) -> ConsumerConfig:
    """One that is not durable always goes when nobody uses it."""
    return config if config.inactive_threshold > 0 else replace(config, inactive_threshold=INACTIVE_DEFAULT_NS)
