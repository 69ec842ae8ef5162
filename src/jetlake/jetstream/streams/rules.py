"""Which configurations a stream may have, and what the server makes of those that leave something open.

Rules, their order and their words are nats-server's: of several mistakes a client sees the same first one. Most
refusals are STREAM_INVALID_CONFIG with a text. What JetLake cannot do yet is refused last, so that a configuration
which is wrong anyway gets the error that clients know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from msgspec.structs import replace

from jetlake.broker.transform import BadTransform, SubjectTransform
from jetlake.clock import SECOND_NS, go_duration
from jetlake.config.options import AccountJetStream, JetStreamLimits
from jetlake.errors import BadSubject
from jetlake.jetstream import errors
from jetlake.jetstream.errors import ApiError, Failure
from jetlake.jetstream.streams.config import (
    PersistMode,
    Placement,
    Retention,
    Storage,
    StreamConfig,
    StreamSource,
    TransformConfig,
)
from jetlake.store.api import Discard
from jetlake.store.format import SEQ_MAX
from jetlake.subjects import check_filter, encode_subject, first_overlap, is_literal, is_subset, overlaps

NAME_SIZE_MAX = 255
DESCRIPTION_SIZE_MAX = 4096
METADATA_SIZE_MAX = 128 * 1024
REPLICAS_MAX = 5
DUPLICATE_WINDOW_DEFAULT_NS = 120 * SECOND_NS
_WINDOW_MIN_NS = SECOND_NS // 10
_MARKER_TTL_MIN_NS = SECOND_NS
_API_PREFIX = "$JS.API"

_NOT_IN_NAME = re.compile(r"[ \t\r\n\f.*>\\/]")


def is_valid_name(name: str) -> bool:
    """Whether a stream or consumer may have this name, apart from its length."""
    return bool(name) and not _NOT_IN_NAME.search(name)


def is_valid_subject(subject: str) -> bool:
    """Whether this is a subject, or a pattern of subjects."""
    try:
        check_filter(subject)
    except BadSubject:
        return False
    return True


def check_config(
    config: StreamConfig, *, pedantic: bool, account: AccountJetStream, server: JetStreamLimits
) -> StreamConfig:
    """The configuration with everything filled in; raises ApiError. Doing it again changes nothing."""
    check_sizes(config)
    config = _with_counts(config, pedantic)
    config = _with_window(config, pedantic, server.duplicate_window_ns)
    if config.deny_purge and config.allow_rollup_hdrs:
        raise _invalid("roll-ups require the purge permission")
    _check_counter(config)
    _check_discard_new_per_subject(config)
    config = _with_delete_markers(config, pedantic)
    config = _with_schedules(config, pedantic)
    _check_persist_mode(config)
    if config.mirror is not None:
        _check_mirror(config, config.mirror)
    if config.sources:
        _check_sources(config)
    config = _with_subjects(config)
    _check_account_limits(config, account)
    _check_transform(config.subject_transform)
    config = _with_republish(config, pedantic)
    if config.placement == Placement():
        config = replace(config, placement=None)
    if config.placement is not None and config.placement.preferred:
        raise _invalid("preferred server not permitted in placement")
    return config


def check_create(config: StreamConfig) -> None:
    """What only a new stream may not be; asked before `check_config`."""
    if "/" in config.name or "\\" in config.name:
        raise errors.STREAM_NAME_CONTAINS_PATH_SEPARATORS()
    if config.sealed:
        raise _invalid("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise _invalid("stream has no mirror but does have mirror direct")


def check_update(old: StreamConfig, new: StreamConfig, *, replicas_max: int = 1) -> StreamConfig:
    """The configuration that an update leads to; `new` passed `check_config`. Raises ApiError."""
    if new.num_replicas > replicas_max:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    if new.storage is not old.storage:
        raise _invalid("stream configuration update can not change storage type")
    if new.retention is not old.retention and Retention.WORKQUEUE in (new.retention, old.retention):
        raise _invalid("stream configuration update can not change retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise _invalid("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise _invalid("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise _invalid("stream configuration update can not cancel deny purge")
    if new.mirror is not None and new.mirror != old.mirror:
        raise errors.STREAM_MIRROR_NOT_UPDATABLE()
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise _invalid("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        raise _invalid("stream configuration update can not change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise _invalid("message schedules can not be disabled")
    if new.persist_mode is not old.persist_mode:
        raise _invalid("stream configuration update can not change persist mode")
    if new.republish is not None and not new.republish.dest:
        # nats-server publishes again to the same subject then, and stores that again
        raise _invalid("stream configuration for republish destination forms a cycle")
    if new.sealed:
        new = replace(new, max_age=0, discard=Discard.NEW, deny_delete=True, deny_purge=True, allow_rollup_hdrs=False)
    return new


def _invalid(text: str) -> ApiError:
    return errors.STREAM_INVALID_CONFIG(text)


def check_sizes(config: StreamConfig) -> None:
    """Raise ApiError for a name, or anything else of any length, that is too long."""
    if not is_valid_name(config.name):
        raise _invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(encode_subject(config.name)) > NAME_SIZE_MAX:
        raise _invalid(f"stream name is too long, maximum allowed is {NAME_SIZE_MAX}")
    if len(config.description.encode()) > DESCRIPTION_SIZE_MAX:
        raise _invalid(f"stream description is too long, maximum allowed is {DESCRIPTION_SIZE_MAX}")
    if sum(len(key.encode()) + len(value.encode()) for key, value in config.metadata.items()) > METADATA_SIZE_MAX:
        raise _invalid(f"stream metadata exceeds maximum size of {METADATA_SIZE_MAX} bytes")
    if config.first_seq > SEQ_MAX:  # nats-server has one more
        raise _invalid(f"first sequence is too large, maximum allowed is {SEQ_MAX}")


def _with_counts(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """Replicas, and -1 for every count that is no limit."""
    replicas = config.num_replicas or 1
    if replicas > REPLICAS_MAX:
        raise _invalid(f"maximum replicas is {REPLICAS_MAX}")
    if replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE()
    unlimited = {}
    for name in ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers"):
        count: int = getattr(config, name)
        if pedantic and count < -1:
            raise errors.PEDANTIC(f"{name} must be set to -1")
        if count <= 0:
            unlimited[name] = -1
    return replace(config, num_replicas=replicas, **unlimited)


def _with_window(config: StreamConfig, pedantic: bool, window_max_ns: int) -> StreamConfig:
    """The age that messages may reach, and the window in which duplicates are found."""
    age_ns = config.max_age
    if age_ns < 0:
        raise _invalid("max age can not be negative")
    if 0 < age_ns < _WINDOW_MIN_NS:
        raise _invalid("max age needs to be >= 100ms")
    if config.duplicate_window == 0 and config.mirror is None and not config.sources:
        config = replace(config, duplicate_window=_default_window(age_ns, pedantic, window_max_ns))
    window_ns = config.duplicate_window
    if window_ns < 0:
        raise _invalid("duplicates window can not be negative")
    if age_ns and window_ns > age_ns:
        raise _invalid("duplicates window can not be larger then max age")
    if 0 < window_max_ns < window_ns:
        raise _invalid(f"duplicates window can not be larger then server limit of {go_duration(window_max_ns)}")
    if 0 < window_ns < _WINDOW_MIN_NS:
        raise _invalid("duplicates window needs to be >= 100ms")
    return config


def _default_window(age_ns: int, pedantic: bool, window_max_ns: int) -> int:
    window_ns = DUPLICATE_WINDOW_DEFAULT_NS
    if 0 < window_max_ns < window_ns:
        if pedantic:
            raise errors.PEDANTIC("duplicate window limits are higher than current limits")
        window_ns = window_max_ns
    if 0 < age_ns < window_ns:
        if pedantic:
            raise errors.PEDANTIC("duplicate window cannot be bigger than max age")
        window_ns = age_ns
    return window_ns


def _check_counter(config: StreamConfig) -> None:
    if not config.allow_msg_counter:
        return
    if config.discard is Discard.NEW:
        raise _invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise _invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise _invalid("counter stream cannot use message schedules")
    if config.retention is not Retention.LIMITS:
        raise _invalid("counter stream can only use limits retention")


def _check_discard_new_per_subject(config: StreamConfig) -> None:
    if not config.discard_new_per_subject:
        return
    if config.discard is not Discard.NEW:
        raise _invalid("discard new per subject requires discard new policy to be set")
    if config.max_msgs_per_subject <= 0:
        raise _invalid("discard new per subject requires max msgs per subject > 0")


def _with_delete_markers(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """Delete markers need message TTLs and roll-ups, and turn them on."""
    ttl_ns = config.subject_delete_marker_ttl
    if ttl_ns < 0:
        raise _invalid("subject delete marker TTL must not be negative")
    if ttl_ns == 0:
        return config
    if ttl_ns < _MARKER_TTL_MIN_NS:
        raise _invalid("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if pedantic:
            raise _invalid("subject delete marker cannot be set if message TTLs are disabled")
        config = replace(config, allow_msg_ttl=True)
    if not config.allow_rollup_hdrs:
        if pedantic:
            raise _invalid("subject delete marker cannot be set if roll-ups are disabled")
        config = replace(config, allow_rollup_hdrs=True, deny_purge=False)
    return config


def _with_schedules(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """Schedules need roll-ups, and turn them on."""
    if not config.allow_msg_schedules:
        return config
    if config.discard is Discard.NEW:
        raise _invalid("message scheduling cannot use discard new")
    if not config.allow_rollup_hdrs:
        if pedantic:
            raise _invalid("message scheduling cannot be set if roll-ups are disabled")
        config = replace(config, allow_rollup_hdrs=True, deny_purge=False)
    return config


def _check_persist_mode(config: StreamConfig) -> None:
    if config.persist_mode is not PersistMode.ASYNC:
        return
    if config.storage is not Storage.FILE:
        raise _invalid("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        raise _invalid("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        raise _invalid("async persist mode is not supported with atomic batch publish")


def _check_mirror(config: StreamConfig, mirror: StreamSource) -> None:
    """What excludes a mirror, and what is wrong with it as far as it can be told without the origin."""
    conflicts: tuple[tuple[object, Failure], ...] = (
        (config.first_seq > 0, errors.MIRROR_WITH_FIRST_SEQ),
        (config.subjects, errors.MIRROR_WITH_SUBJECTS),
        (config.sources, errors.MIRROR_WITH_SOURCES),
        (config.allow_msg_counter, errors.MIRROR_WITH_COUNTERS),
        (config.allow_atomic, errors.MIRROR_WITH_ATOMIC_PUBLISH),
        (config.allow_batched, errors.MIRROR_WITH_BATCH_PUBLISH),
        (config.allow_msg_schedules, errors.MIRROR_WITH_MSG_SCHEDULES),
        (mirror.filter_subject and mirror.subject_transforms, errors.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED),
    )
    for is_there, failure in conflicts:
        if is_there:
            raise failure()
    if config.subject_delete_marker_ttl > 0:
        raise _invalid("subject delete markers forbidden on mirrors")
    _check_source_transforms(
        mirror.subject_transforms, errors.MIRROR_INVALID_SUBJECT_FILTER, errors.MIRROR_INVALID_TRANSFORM_DESTINATION
    )
    if _some_overlap([transform.src for transform in mirror.subject_transforms]):
        raise errors.MIRROR_OVERLAPPING_SUBJECT_FILTERS()
    if mirror.external is None and not is_valid_name(mirror.name):
        raise errors.MIRROR_INVALID_STREAM_NAME()
    _check_origin(mirror, "mirror", errors.MIRROR_CONSUMER_INVALID)


def _check_sources(config: StreamConfig) -> None:
    if config.allow_msg_schedules:
        raise errors.SOURCE_WITH_MSG_SCHEDULES()
    seen: list[StreamSource] = []
    for source in config.sources:
        if source is None or not is_valid_name(source.name):  # a null in the request is one without a name
            raise errors.SOURCE_INVALID_STREAM_NAME()
        identity = StreamSource(
            name=source.name,
            filter_subject=source.filter_subject,
            subject_transforms=source.subject_transforms,
            external=source.external,
        )
        if identity in seen:
            raise errors.SOURCE_DUPLICATE_DETECTED()
        seen.append(identity)
        if source.filter_subject and source.subject_transforms:
            raise errors.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED()
        _check_source_transforms(
            source.subject_transforms,
            errors.SOURCE_INVALID_SUBJECT_FILTER,
            errors.SOURCE_INVALID_TRANSFORM_DESTINATION,
        )
        if _some_overlap([transform.src for transform in source.subject_transforms]):
            raise errors.SOURCE_OVERLAPPING_SUBJECT_FILTERS()
        _check_origin(source, "source:", errors.SOURCE_CONSUMER_INVALID)
    consumers = [(source.name, source.consumer.name) for source in config.sources if source.consumer is not None]
    if len(set(consumers)) < len(consumers):
        raise errors.SOURCE_CONSUMER_DUPLICATE()


def _check_origin(source: StreamSource, kind: str, bad_consumer: Failure) -> None:
    """What may be wrong with the way to an origin."""
    if source.filter_subject and not is_valid_subject(source.filter_subject):
        raise errors.STREAM_SUBJECT_FILTER_INVALID(source.filter_subject, kind)
    external, consumer = source.external, source.consumer
    if external is not None:
        if external.api == _API_PREFIX:
            raise errors.STREAM_EXTERNAL_API_OVERLAP(external.api, _API_PREFIX)
        if external.api and (not is_literal(external.api) or not is_valid_subject(external.api)):
            text = f"stream external api prefix {_quoted(external.api)} must be a valid subject without wildcards"
            raise _invalid(text)
        if external.deliver and (not is_literal(external.deliver) or not is_valid_subject(external.deliver)):
            raise errors.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ(external.deliver)
    if consumer is not None:
        has_start = source.opt_start_seq > 0 or source.opt_start_time is not None
        is_deliverable = is_valid_subject(consumer.deliver_subject) and is_literal(consumer.deliver_subject)
        if not is_valid_name(consumer.name) or not is_deliverable or has_start or source.filter_subject:
            raise bad_consumer()


def _check_source_transforms(transforms: Sequence[TransformConfig], bad_src: Failure, bad_dest: Failure) -> None:
    for transform in transforms:
        if transform.src and not is_valid_subject(transform.src):
            raise bad_src(f"invalid subject {transform.src}")
        try:
            SubjectTransform(transform.src, transform.dest)
        except BadTransform as error:
            raise bad_dest(error.problem) from None


def _some_overlap(subjects: Sequence[str]) -> bool:
    return first_overlap(subjects) is not None


def _with_subjects(config: StreamConfig) -> StreamConfig:
    """The subjects, by default the name; none of which may be the server's own or overlap with another."""
    if not config.subjects:
        is_copy = config.mirror is not None or bool(config.sources)
        return config if is_copy else replace(config, subjects=(config.name,))
    found = first_overlap(config.subjects)
    for subject in config.subjects if found is None else config.subjects[: found[0] + 1]:
        _check_subject(config, subject)
    if found is not None:
        subject, other = (config.subjects[place] for place in found)
        raise _invalid(f"subject {_quoted(subject)} overlaps with {_quoted(other)}")
    return config


def _check_subject(config: StreamConfig, subject: str) -> None:
    if not is_valid_subject(subject):
        raise _invalid("invalid subject")
    if subject == ">":
        if not config.no_ack:
            raise _invalid("capturing all subjects requires no-ack to be true")
        if config.num_replicas != 1:
            raise _invalid("capturing all subjects requires replicas of 1")
    if config.no_ack or subject[0] not in "$*>":
        return
    is_api = any(overlaps(subject, space) for space in ("$JS.>", "$JSC.>", "$NRG.>"))
    if is_api and not is_subset(subject, "$JS.EVENT.>"):
        raise _invalid("subjects that overlap with jetstream api require no-ack to be true")
    if overlaps(subject, "$SYS.>") and not is_subset(subject, "$SYS.ACCOUNT.>"):
        raise _invalid("subjects that overlap with system api require no-ack to be true")


def _check_account_limits(config: StreamConfig, account: AccountJetStream) -> None:
    if account.max_bytes_required and config.max_bytes <= 0:
        raise errors.STREAM_MAX_BYTES_REQUIRED()
    is_file = config.storage is Storage.FILE
    bytes_max = account.store_max_stream_bytes if is_file else account.memory_max_stream_bytes
    if 0 < bytes_max < config.max_bytes:
        raise errors.STREAM_MAX_STREAM_BYTES_EXCEEDED()


def _check_transform(transform: TransformConfig | None) -> None:
    if transform is None:
        return
    try:
        SubjectTransform(transform.src, transform.dest)
    except BadTransform as error:
        is_source = error.part == "source"
        failure = errors.STREAM_TRANSFORM_INVALID_SOURCE if is_source else errors.STREAM_TRANSFORM_INVALID_DESTINATION
        raise failure(error.problem) from None


def _with_republish(config: StreamConfig, pedantic: bool) -> StreamConfig:
    """Where messages are published again: by default all of them, and never into the stream itself."""
    republish, transform = config.republish, config.subject_transform
    if republish is None:
        return config
    if not republish.src:
        if pedantic:
            raise errors.PEDANTIC("republish source can not be empty")
        republish = replace(republish, src=">")
    if (republish.src, republish.dest) == (">", ">") and transform is not None and config.subjects == (transform.src,):
        if pedantic:
            raise errors.PEDANTIC("implicit republish based on subject transform")
        republish = replace(republish, src=transform.dest, dest=transform.dest)
    if any(overlaps(republish.dest, subject) for subject in config.subjects):
        raise _invalid("stream configuration for republish destination forms a cycle")
    try:
        SubjectTransform(republish.src, republish.dest)
    except BadTransform:
        raise _invalid(
            f"stream configuration for republish with transform from '{republish.src}' to '{republish.dest}' not valid"
        ) from None
    return replace(config, republish=republish)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
