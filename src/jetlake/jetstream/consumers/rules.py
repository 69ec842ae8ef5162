"""The rules that a consumer's configuration must keep: defaults, checks in nats-server's order, and what may change."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from jetlake.clock import SECOND_NS, go_duration
from jetlake.errors import BadSubject
from jetlake.jetstream import errors
from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig, DeliverPolicy, PriorityPolicy
from jetlake.jetstream.streams.config import Retention, StreamConfig
from jetlake.subjects import FilterSet, check_filter, is_literal, is_subset

NAME_SIZE_MAX = 255
DESCRIPTION_SIZE_MAX = 4 * 1024
METADATA_SIZE_MAX = 128 * 1024
ACK_WAIT_DEFAULT_NS = 30 * SECOND_NS
MAX_WAITING_DEFAULT = 512
MAX_ACK_PENDING_DEFAULT = 1000
PRIORITY_TIMEOUT_DEFAULT_NS = 120 * SECOND_NS
INACTIVE_DEFAULT_NS = 5 * SECOND_NS
HEARTBEAT_MIN_NS = SECOND_NS // 10
SOURCE_HEARTBEAT_NS = SECOND_NS

REQUIRED_LEVEL_KEY = "_nats.req.level"
DYNAMIC_KEYS = ("_nats.ver", "_nats.level")

_INT_MAX, _INT_DIGITS_MAX = 2**63 - 1, 19
GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_BAD_NAME = re.compile(r"[ \t\r\n\f.*>\\/]")
_BAD_NAME_TEXT = "consumer {}name can not contain '.', '*', '>', '\\', '/'"


class Ceilings(NamedTuple):
    """What the server and the account allow a consumer; 0 or less is no limit."""

    max_ack_pending: int = 0
    max_request_batch: int = 0
    account_max_ack_pending: int = 0


def is_valid_name(name: str) -> bool:
    """Whether a consumer can be called so."""
    return bool(name) and not _BAD_NAME.search(name)


def stamped(config: ConsumerConfig) -> ConsumerConfig:
    """The configuration with the API level that it asks for in its metadata, and nothing else of the server's there."""
    level = 0
    if config.paused_until is not None or config.priority_policy is not PriorityPolicy.NONE:
        level = 1
    if config.priority_timeout or config.priority_groups:
        level = 1
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        level = 4
    kept = {key: value for key, value in config.metadata.items() if key not in DYNAMIC_KEYS}
    return replace(config, metadata={**kept, REQUIRED_LEVEL_KEY: str(level)})


# Defaults

# Fields that may not be negative, and what a pedantic request is told; -1 is what max_ack_pending becomes.
_NOT_NEGATIVE = (
    ("max_waiting", 0, 0, "max_waiting must not be negative"),
    ("max_ack_pending", -1, -1, "max_ack_pending must be set to -1"),
    ("max_batch", 0, 0, "max_batch must not be negative"),
    ("max_expires", 0, 0, "max_expires must not be negative"),
    ("max_bytes", 0, 0, "max_bytes must not be negative"),
    ("idle_heartbeat", 0, 0, "idle_heartbeat must not be negative"),
    ("inactive_threshold", 0, 0, "inactive_threshold must not be negative"),
    ("priority_timeout", 0, 0, "priority_timeout must not be negative"),
)


def with_defaults(
    config: ConsumerConfig, stream: StreamConfig, ceilings: Ceilings, *, pedantic: bool = False
) -> ConsumerConfig:
    """The configuration with every default; a pedantic one is refused where that would change what it says."""
    if config.max_deliver == 0 or config.max_deliver < -1:
        _pedantic(pedantic and config.max_deliver < -1, "max_deliver must be set to -1")
        config = replace(config, max_deliver=-1)
    for name, lowest, becomes, text in _NOT_NEGATIVE:
        if getattr(config, name) < lowest:
            _pedantic(pedantic, text)
            config = replace(config, **{name: becomes})
    if not config.is_push and config.max_waiting == 0:
        config = replace(config, max_waiting=MAX_WAITING_DEFAULT)
    config = _ack_wait_default(config, pedantic)
    config = _stream_defaults(config, stream, ceilings, pedantic)
    if config.priority_policy is PriorityPolicy.PINNED_CLIENT and config.priority_timeout == 0:
        config = replace(config, priority_timeout=PRIORITY_TIMEOUT_DEFAULT_NS)
    if config.ack_policy is AckPolicy.FLOW_CONTROL and not pedantic:
        config = replace(config, flow_control=True, idle_heartbeat=SOURCE_HEARTBEAT_NS)
    return config


def _ack_wait_default(config: ConsumerConfig, pedantic: bool) -> ConsumerConfig:
    if config.ack_wait == 0 and config.ack_policy in (AckPolicy.EXPLICIT, AckPolicy.ALL):
        config = replace(config, ack_wait=ACK_WAIT_DEFAULT_NS)
    if config.backoff:
        differs = config.ack_wait != config.backoff[0]
        _pedantic(pedantic and differs, "first backoff value has to equal batch AckWait")
        config = replace(config, ack_wait=config.backoff[0])
    return config


def _stream_defaults(
    config: ConsumerConfig, stream: StreamConfig, ceilings: Ceilings, pedantic: bool
) -> ConsumerConfig:
    limits = stream.consumer_limits
    if config.max_ack_pending == 0:
        text = "max_ack_pending must be set if it's configured in stream limits"
        _pedantic(pedantic and limits.max_ack_pending > 0, text)
        config = replace(config, max_ack_pending=limits.max_ack_pending)
    if config.inactive_threshold == 0:
        text = "inactive_threshold must be set if it's configured in stream limits"
        _pedantic(pedantic and limits.inactive_threshold > 0, text)
        config = replace(config, inactive_threshold=limits.inactive_threshold)
    if config.max_ack_pending == 0 and config.ack_policy is not AckPolicy.NONE:
        lower = (ceilings.max_ack_pending, ceilings.account_max_ack_pending)
        allowed = min((MAX_ACK_PENDING_DEFAULT, *(limit for limit in lower if limit > 0)))
        config = replace(config, max_ack_pending=allowed)
    if not config.is_push and config.max_batch == 0 and ceilings.max_request_batch > 0:
        _pedantic(pedantic, "max_request_batch must be set if it's JetStream limits are set")
        config = replace(config, max_batch=ceilings.max_request_batch)
    return config


def _pedantic(is_refused: bool, text: str) -> None:
    if is_refused:
        raise errors.PEDANTIC(text)


# Checks


def check_config(config: ConsumerConfig, stream: StreamConfig, ceilings: Ceilings) -> None:
    """Raise ApiError for the first rule that a configuration, defaults and all, breaks."""
    _check_names(config)
    _check_replicas(config, stream)
    _check_waits(config)
    if config.ack_policy is AckPolicy.FLOW_CONTROL:
        _check_ack_flow_control(config)
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF()
    if len(config.description.encode()) > DESCRIPTION_SIZE_MAX:
        raise errors.CONSUMER_DESCRIPTION_TOO_LONG(DESCRIPTION_SIZE_MAX)
    if config.is_push:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, ceilings)
    _check_ceilings(config, stream, ceilings)
    if config.direct and not config.is_push:
        raise errors.CONSUMER_DIRECT_REQUIRES_PUSH()
    if config.direct and config.is_durable:
        raise errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL()
    _check_filters(config)
    _check_start(config)
    _check_sampling(config)
    if config.flow_control and config.idle_heartbeat == 0:
        raise errors.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH()
    if sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()) > METADATA_SIZE_MAX:
        raise errors.CONSUMER_METADATA_LENGTH(f"{METADATA_SIZE_MAX // 1024}KB")
    _check_priority(config)


def _check_names(config: ConsumerConfig) -> None:
    for kind, name in (("", config.name), ("durable ", config.durable_name)):
        if name and not is_valid_name(name):
            raise errors.STREAM_INVALID_CONFIG(_BAD_NAME_TEXT.format(kind))


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas > stream.num_replicas:
        raise errors.CONSUMER_REPLICAS_EXCEEDS_STREAM()
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    if stream.retention is not Retention.LIMITS and config.num_replicas not in (0, stream.num_replicas):
        raise errors.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM()


def _check_waits(config: ConsumerConfig) -> None:
    if any(wait < 0 for wait in config.backoff):
        raise errors.CONSUMER_BACK_OFF_NEGATIVE()
    if config.ack_wait < 0:
        raise errors.CONSUMER_ACK_WAIT_NEGATIVE()


def _check_ack_flow_control(config: ConsumerConfig) -> None:
    if not config.is_push:
        raise errors.CONSUMER_ACK_FC_REQUIRES_PUSH()
    if not config.flow_control:
        raise errors.CONSUMER_ACK_FC_REQUIRES_FC()
    if config.idle_heartbeat != SOURCE_HEARTBEAT_NS:
        raise errors.STREAM_INVALID_CONFIG("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise errors.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING()
    if config.ack_wait or config.backoff:
        raise errors.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT()
    if config.max_deliver > 0:
        raise errors.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER()


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    subject = config.deliver_subject
    if not is_literal(subject):
        raise errors.CONSUMER_DELIVER_TO_WILDCARDS()
    if not _is_valid_subject(subject):
        raise errors.CONSUMER_INVALID_DELIVER_SUBJECT()
    if any(is_subset(subject, captured) for captured in stream.subjects):
        raise errors.CONSUMER_DELIVER_CYCLE()
    if config.max_waiting != 0:
        raise errors.CONSUMER_PUSH_MAX_WAITING()
    if config.max_ack_pending > 0 and config.ack_policy is AckPolicy.NONE:
        raise errors.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED()
    if 0 < config.idle_heartbeat < HEARTBEAT_MIN_NS:
        raise errors.CONSUMER_SMALL_HEARTBEAT()


def _check_pull(config: ConsumerConfig, stream: StreamConfig, ceilings: Ceilings) -> None:
    if config.ack_policy is AckPolicy.NONE and stream.retention is Retention.WORKQUEUE:
        raise errors.CONSUMER_PULL_REQUIRES_ACK()
    if config.rate_limit_bps > 0:
        raise errors.CONSUMER_PULL_WITH_RATE_LIMIT()
    if config.idle_heartbeat > 0:
        raise errors.CONSUMER_HB_REQUIRES_PUSH()
    if config.flow_control:
        raise errors.CONSUMER_FC_REQUIRES_PUSH()
    if 0 < config.max_expires < SECOND_NS // 1000:
        raise errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL()
    if 0 < ceilings.max_request_batch < config.max_batch:
        raise errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED(ceilings.max_request_batch)


def _check_ceilings(config: ConsumerConfig, stream: StreamConfig, ceilings: Ceilings) -> None:
    limits = stream.consumer_limits
    for limit in (ceilings.max_ack_pending, ceilings.account_max_ack_pending, limits.max_ack_pending):
        if 0 < limit < config.max_ack_pending:
            raise errors.CONSUMER_MAX_PENDING_ACK_EXCESS(limit)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        raise errors.CONSUMER_INACTIVE_THRESHOLD_EXCESS(go_duration(limits.inactive_threshold))


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.CONSUMER_DUPLICATE_FILTER_SUBJECTS()
    if "" in config.filter_subjects:
        raise errors.CONSUMER_EMPTY_FILTER()
    all_filters, count = FilterSet(config.filters), Counter(config.filters)
    for subject in config.filters:
        if not _is_valid_subject(subject):
            raise errors.STREAM_INVALID_CONFIG("invalid subject")
        if count[subject] > 1 or all_filters.covers(subject):
            raise errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS()


# How a deliver policy is called in errors, and which start it needs.
_POLICIES = {
    DeliverPolicy.ALL: ("all", ""),
    DeliverPolicy.LAST: ("last", ""),
    DeliverPolicy.LAST_PER_SUBJECT: ("last per subject", ""),
    DeliverPolicy.NEW: ("new", ""),
    DeliverPolicy.BY_START_SEQUENCE: ("by start sequence", "sequence"),
    DeliverPolicy.BY_START_TIME: ("by start time", "time"),
}


def _check_start(config: ConsumerConfig) -> None:
    name, needed = _POLICIES[config.deliver_policy]
    given = {"sequence": config.opt_start_seq > 0, "time": config.opt_start_time is not None}
    if needed and not given[needed]:
        raise _bad_policy(name, f"optional start {needed} is not set")
    for start in ("sequence", "time"):
        if given[start] and start != needed:
            # nats-server says "start" twice in one of these.
            word = "start start sequence" if needed == "time" else f"start {start}"
            raise _bad_policy(name, f"optional {word} is also set")
    if config.deliver_policy is DeliverPolicy.LAST_PER_SUBJECT and not config.filters:
        raise _bad_policy(name, "optional filter subject is not set")


def _bad_policy(name: str, problem: str) -> errors.ApiError:
    return errors.CONSUMER_INVALID_POLICY(f"consumer delivery policy is deliver {name}, but {problem}")


def _check_sampling(config: ConsumerConfig) -> None:
    text = config.sample_freq.removesuffix("%")
    if not config.sample_freq:
        return
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise errors.CONSUMER_INVALID_SAMPLING(f'strconv.Atoi: parsing "{text}": invalid syntax')
    if len(text.lstrip("+-0")) > _INT_DIGITS_MAX or abs(int(text)) > _INT_MAX:
        raise errors.CONSUMER_INVALID_SAMPLING(f'strconv.Atoi: parsing "{text}": value out of range')
    if int(text) < 0:
        raise errors.CONSUMER_INVALID_SAMPLING("<nil>")


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy is PriorityPolicy.NONE:
        if config.priority_groups:
            raise errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE()
        if config.priority_timeout > 0:
            raise errors.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY()
        return
    if config.is_push:
        raise errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP()
    if not config.priority_groups:
        raise errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP()
    for group in config.priority_groups:
        if not group:
            raise errors.CONSUMER_EMPTY_GROUP_NAME()
        if not GROUP_NAME.fullmatch(group):
            raise errors.CONSUMER_INVALID_GROUP_NAME()


def _is_valid_subject(subject: str) -> bool:
    try:
        check_filter(subject)
    except BadSubject:
        return False
    return True


# Work queues


def check_work_queue(config: ConsumerConfig, others: list[ConsumerConfig]) -> None:
    """Raise ApiError unless a new consumer can share a work queue with those that are there."""
    if config.direct or config.sourcing:
        return
    if config.ack_policy not in (AckPolicy.EXPLICIT, AckPolicy.FLOW_CONTROL):
        raise errors.CONSUMER_WQ_REQUIRES_EXPLICIT_ACK()
    if config.deliver_policy is not DeliverPolicy.ALL:
        raise errors.CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL()
    others = [other for other in others if not (other.direct or other.sourcing)]
    if others and not config.filters:
        raise errors.CONSUMER_WQ_MULTIPLE_UNFILTERED()
    check_partition(config, others)


def check_partition(config: ConsumerConfig, others: list[ConsumerConfig]) -> None:
    """Raise ApiError if two consumers of a work queue would want the same message."""
    mine = FilterSet(config.filters)
    for other in others:
        if other.direct or other.sourcing:
            continue
        if config.filters and (not other.filters or any(map(mine.overlaps, other.filters))):
            raise errors.CONSUMER_WQ_CONSUMER_NOT_UNIQUE()


# Updates

# What may never change, with the words of the refusal, in order.
_FIXED = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat", "heart beats"),
    ("flow_control", "flow control"),
)


def check_update(old: ConsumerConfig, new: ConsumerConfig, *, is_bound: bool) -> None:
    """Raise ApiError unless one configuration may take the place of the other. is_bound: someone listens to it."""
    if old == new:
        return
    for field, words in _FIXED:
        if getattr(old, field) != getattr(new, field):
            raise errors.CONSUMER_CREATE(f"{words} can not be updated")
    if old.deliver_subject != new.deliver_subject:
        if not old.is_push:
            raise errors.CONSUMER_CREATE("can not update pull consumer to push based")
        if not new.is_push:
            raise errors.CONSUMER_CREATE("can not update push consumer to pull based")
        if is_bound:
            raise errors.CONSUMER_NAME_EXIST()
    if old.max_waiting != new.max_waiting:
        raise errors.CONSUMER_CREATE("max waiting can not be updated")


def same_config(old: ConsumerConfig, new: ConsumerConfig) -> bool:
    """Whether two configurations ask for the same, whatever the server noted in their metadata."""
    own = (REQUIRED_LEVEL_KEY, *DYNAMIC_KEYS)
    first, second = (
        replace(config, metadata={key: value for key, value in config.metadata.items() if key not in own})
        for config in (old, new)
    )
    return first == second
