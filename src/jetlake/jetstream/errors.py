"""What the JetStream API refuses, in the words and numbers of nats-server 2.15.

A failure is an HTTP-like `code`, an `err_code` that clients test for, and a description; `{}` in it stands for a value
that belongs to the case:

    raise STREAM_NOT_FOUND()
    raise WRONG_LAST_SEQUENCE(12)

Names follow nats-server's (JSStreamNotFoundErr).
"""

from __future__ import annotations

from typing import NamedTuple

from jetlake.errors import CorruptBlock, JetLakeError, StoreClosed, StoreFrozen, WrongKey


class ApiError(JetLakeError):
    """A request that JetStream refuses: the request's fault, or the state's, but told to who asked."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} ({err_code})")
        self.code, self.err_code, self.description = code, err_code, description

    def as_dict(self) -> dict[str, int | str]:
        """The `error` object of a response."""
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


def reason(error: BaseException) -> str:
    """What clients may know of an error: no paths."""
    if isinstance(error, StoreFrozen):
        return f"writes are refused after: {reason(error.cause)}"
    if isinstance(error, StoreClosed):
        return "store is closed"
    if isinstance(error, OSError):
        return error.strerror or "I/O error"
    return error.problem if isinstance(error, CorruptBlock | WrongKey) else str(error)


class Failure(NamedTuple):
    """One row of the table; calling it makes the error to raise."""

    code: int
    err_code: int
    template: str

    def __call__(self, *values: object) -> ApiError:
        assert len(values) == self.template.count("{}"), f"{self.template!r} takes other values than {values}"
        return ApiError(self.code, self.err_code, self.template.format(*values))


# Any request

ACCOUNT_RESOURCES_EXCEEDED = Failure(400, 10002, "resource limits exceeded for account")
BAD_REQUEST = Failure(400, 10003, "bad request")
CLUSTER_NO_PEERS = Failure(400, 10005, "{}")
CLUSTER_NOT_AVAIL = Failure(503, 10008, "JetStream system temporarily unavailable")
CLUSTER_REQUIRED = Failure(503, 10010, "JetStream clustering support required")
CLUSTER_UNSUPPORTED_FEATURE = Failure(503, 10036, "not currently supported in clustered mode")
CLUSTER_PEER_NOT_MEMBER = Failure(400, 10040, "peer not a member")
CLUSTER_SERVER_NOT_MEMBER = Failure(400, 10044, "server is not a member of the cluster")
CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT = Failure(400, 10202, "cluster member change is in progress")
INSUFFICIENT_RESOURCES = Failure(503, 10023, "insufficient resources")
INVALID_JSON = Failure(400, 10025, "invalid JSON: {}")
MEMORY_RESOURCES_EXCEEDED = Failure(500, 10028, "insufficient memory resources available")
NO_MESSAGE_FOUND = Failure(404, 10037, "no message found")
NOT_EMPTY_REQUEST = Failure(400, 10038, "expected an empty request payload")
NOT_ENABLED_FOR_ACCOUNT = Failure(503, 10039, "JetStream not enabled for account")
SEQUENCE_NOT_FOUND = Failure(400, 10043, "sequence {} not found")
PEER_REMAP = Failure(503, 10075, "peer remap failed")
STORAGE_RESOURCES_EXCEEDED = Failure(500, 10047, "insufficient storage resources available")
NOT_ENABLED = Failure(503, 10076, "JetStream not enabled")
PEDANTIC = Failure(400, 10157, "pedantic mode: {}")
REQUIRED_API_LEVEL = Failure(412, 10185, "JetStream minimum api level required")

# Streams

SNAPSHOT_DELIVER_SUBJECT_INVALID = Failure(400, 10015, "deliver subject not valid")
MAXIMUM_STREAMS = Failure(400, 10027, "maximum number of streams reached")
STREAM_CREATE = Failure(500, 10049, "{}")
STREAM_DELETE = Failure(500, 10050, "{}")
STREAM_GENERAL = Failure(500, 10051, "{}")  # what nobody foresaw
STREAM_INVALID_CONFIG = Failure(500, 10052, "{}")
STREAM_MIRROR_NOT_UPDATABLE = Failure(400, 10055, "stream mirror configuration can not be updated")
STREAM_NAME_MISMATCH = Failure(400, 10056, "stream name in subject does not match request")
STREAM_MSG_DELETE_FAILED = Failure(500, 10057, "{}")
STREAM_NAME_EXIST = Failure(400, 10058, "stream name already in use with a different configuration")
STREAM_NOT_FOUND = Failure(404, 10059, "stream not found")
STREAM_RESTORE = Failure(500, 10062, "restore failed: {}")
STREAM_SNAPSHOT = Failure(500, 10064, "snapshot failed: {}")
STREAM_SUBJECT_OVERLAP = Failure(400, 10065, "subjects overlap with an existing stream")
STREAM_UPDATE = Failure(500, 10069, "{}")
STREAM_REPLICAS_NOT_SUPPORTED = Failure(500, 10074, "replicas > 1 not supported in non-clustered mode")
STREAM_PURGE_FAILED = Failure(500, 10110, "{}")
STREAM_MAX_BYTES_REQUIRED = Failure(400, 10113, "account requires a stream config to have max bytes set")
STREAM_INFO_MAX_SUBJECTS = Failure(500, 10117, "subject details would exceed maximum allowed")
STREAM_OFFLINE = Failure(500, 10118, "stream is offline")
STREAM_RECONFIGURE_NOT_IN_PROGRESS = Failure(400, 10129, "stream reconfiguration not in progress")
STREAM_OFFLINE_REASON = Failure(500, 10194, "stream is offline: {}")
STREAM_MAX_STREAM_BYTES_EXCEEDED = Failure(400, 10122, "stream max bytes exceeds account limit max stream bytes")
STREAM_NAME_CONTAINS_PATH_SEPARATORS = Failure(400, 10128, "Stream name can not contain path separators")
STREAM_NAME_EXIST_RESTORE_FAILED = Failure(400, 10130, "stream name already in use, cannot restore")
REPLICAS_COUNT_CANNOT_BE_NEGATIVE = Failure(400, 10133, "replicas count cannot be negative")
STREAM_TRANSFORM_INVALID_SOURCE = Failure(400, 10155, "stream transform source: {}")
STREAM_TRANSFORM_INVALID_DESTINATION = Failure(400, 10156, "stream transform: {}")

# Mirrors and sources
MIRROR_CONSUMER_INVALID = Failure(400, 10213, "stream mirror consumer config is invalid")
SOURCE_CONSUMER_INVALID = Failure(400, 10215, "stream source consumer config is invalid")
SOURCE_CONSUMER_DUPLICATE = Failure(400, 10216, "duplicate stream source consumer detected")
CONSUMER_STREAM_IDENTITY_MISMATCH = Failure(400, 10225, "consumer's stream identity does not match: {}")
STREAM_SUBJECT_FILTER_INVALID = Failure(500, 10049, "subject filter '{}' for the {} invalid subject")

STREAM_EXTERNAL_API_OVERLAP = Failure(400, 10021, "stream external api prefix {} must not overlap with {}")
STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS = Failure(
    400, 10022, "stream external delivery prefix {} overlaps with stream subject {}"
)
STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ = Failure(
    400, 10024, "stream external delivery prefix {} must not contain wildcards"
)
MIRROR_MAX_MESSAGE_SIZE_TOO_BIG = Failure(400, 10030, "stream mirror must have max message size >= source")
MIRROR_WITH_SOURCES = Failure(400, 10031, "stream mirrors can not also contain other sources")
MIRROR_WITH_START_SEQ_AND_TIME = Failure(
    400, 10032, "stream mirrors can not have both start seq and start time configured"
)
MIRROR_WITH_SUBJECT_FILTERS = Failure(400, 10033, "stream mirrors can not contain filtered subjects")
MIRROR_WITH_SUBJECTS = Failure(400, 10034, "stream mirrors can not contain subjects")
SOURCE_MAX_MESSAGE_SIZE_TOO_BIG = Failure(400, 10046, "stream source must have max message size >= target")
SOURCE_DUPLICATE_DETECTED = Failure(400, 10140, "duplicate source configuration detected")
SOURCE_INVALID_STREAM_NAME = Failure(400, 10141, "sourced stream name is invalid")
MIRROR_INVALID_STREAM_NAME = Failure(400, 10142, "mirrored stream name is invalid")
MIRROR_WITH_FIRST_SEQ = Failure(400, 10143, "stream mirrors can not have first sequence configured")
SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED = Failure(
    400, 10144, "source with multiple subject transforms cannot also have a single subject filter"
)
SOURCE_INVALID_SUBJECT_FILTER = Failure(400, 10145, "source transform source: {}")
SOURCE_INVALID_TRANSFORM_DESTINATION = Failure(400, 10146, "source transform: {}")
SOURCE_OVERLAPPING_SUBJECT_FILTERS = Failure(400, 10147, "source filters can not overlap")
MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED = Failure(
    400, 10150, "mirror with multiple subject transforms cannot also have a single subject filter"
)
MIRROR_INVALID_SUBJECT_FILTER = Failure(400, 10151, "mirror transform source: {}")
MIRROR_OVERLAPPING_SUBJECT_FILTERS = Failure(400, 10152, "mirror subject filters can not overlap")
MIRROR_INVALID_TRANSFORM_DESTINATION = Failure(400, 10154, "mirror transform: {}")
MIRROR_WITH_COUNTERS = Failure(400, 10173, "stream mirrors can not also calculate counters")
MIRROR_WITH_MSG_SCHEDULES = Failure(400, 10186, "stream mirrors can not also schedule messages")
SOURCE_WITH_MSG_SCHEDULES = Failure(400, 10187, "stream source can not also schedule messages")
MIRROR_WITH_ATOMIC_PUBLISH = Failure(400, 10198, "stream mirrors can not also use atomic publishing")
MIRROR_WITH_BATCH_PUBLISH = Failure(400, 10209, "stream mirrors can not also use batch publishing")

# Publishing a message

STREAM_MESSAGE_EXCEEDS_MAXIMUM = Failure(400, 10054, "message size exceeds maximum allowed")
EXPECTED_STREAM_MISMATCH = Failure(400, 10060, "expected stream does not match")
WRONG_LAST_MSG_ID = Failure(400, 10070, "wrong last msg ID: {}")
WRONG_LAST_SEQUENCE = Failure(400, 10071, "wrong last sequence: {}")
STREAM_STORE_FAILED = Failure(503, 10077, "{}")
STREAM_HEADER_EXCEEDS_MAXIMUM = Failure(400, 10097, "header size exceeds maximum allowed of 64k")
STREAM_SEALED = Failure(400, 10109, "invalid operation on sealed stream")
STREAM_ROLLUP_FAILED = Failure(500, 10111, "{}")
STREAM_DUPLICATE_MESSAGE_CONFLICT = Failure(409, 10158, "duplicate message id is in process")
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_NOT_READY = Failure(
    503, 10163, "expected last sequence per subject temporarily unavailable"
)
WRONG_LAST_SEQUENCE_CONSTANT = Failure(400, 10164, "wrong last sequence")
MESSAGE_TTL_INVALID = Failure(400, 10165, "invalid per-message TTL")
MESSAGE_TTL_DISABLED = Failure(400, 10166, "per-message TTL is disabled")
STREAM_TOO_MANY_REQUESTS = Failure(429, 10167, "too many requests")
MESSAGE_INCR_DISABLED = Failure(400, 10168, "message counters is disabled")
MESSAGE_INCR_MISSING = Failure(400, 10169, "message counter increment is missing")
MESSAGE_INCR_PAYLOAD = Failure(400, 10170, "message counter has payload")
MESSAGE_INCR_INVALID = Failure(400, 10171, "message counter increment is invalid")
MESSAGE_COUNTER_BROKEN = Failure(400, 10172, "message counter is broken")
MESSAGE_SCHEDULES_DISABLED = Failure(400, 10188, "message schedules is disabled")
MESSAGE_SCHEDULES_PATTERN_INVALID = Failure(400, 10189, "message schedules pattern is invalid")
MESSAGE_SCHEDULES_TARGET_INVALID = Failure(400, 10190, "message schedules target is invalid")
MESSAGE_SCHEDULES_TTL_INVALID = Failure(400, 10191, "message schedules invalid per-message TTL")
MESSAGE_SCHEDULES_ROLLUP_INVALID = Failure(400, 10192, "message schedules invalid rollup")
STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID = Failure(
    400, 10193, "missing sequence for expected last sequence per subject"
)
MESSAGE_SCHEDULES_SOURCE_INVALID = Failure(400, 10203, "message schedules source is invalid")
MESSAGE_SCHEDULES_SCHEDULER_INVALID = Failure(400, 10212, "message schedules invalid scheduler")
MESSAGE_SCHEDULES_TIME_ZONE_INVALID = Failure(400, 10223, "message schedules time zone is invalid")
MESSAGE_SOURCE_HDR_NOT_ALLOWED = Failure(400, 10227, "message stream source header is not allowed")

# Publishing batches

ATOMIC_PUBLISH_DISABLED = Failure(400, 10174, "atomic publish is disabled")
ATOMIC_PUBLISH_MISSING_SEQ = Failure(400, 10175, "atomic publish sequence is missing")
ATOMIC_PUBLISH_INCOMPLETE_BATCH = Failure(400, 10176, "atomic publish batch is incomplete")
ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH = Failure(400, 10177, "atomic publish unsupported header used: {}")
ATOMIC_PUBLISH_INVALID_BATCH_ID = Failure(400, 10179, "atomic publish batch ID is invalid")
ATOMIC_PUBLISH_TOO_LARGE_BATCH = Failure(400, 10199, "atomic publish batch is too large: {}")
ATOMIC_PUBLISH_INVALID_BATCH_COMMIT = Failure(400, 10200, "atomic publish batch commit is invalid")
ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE = Failure(400, 10201, "atomic publish batch contains duplicate message id")
BATCH_PUBLISH_DISABLED = Failure(400, 10205, "batch publish is disabled")
BATCH_PUBLISH_INVALID_PATTERN = Failure(400, 10206, "batch publish pattern is invalid")
BATCH_PUBLISH_INVALID_BATCH_ID = Failure(400, 10207, "batch publish ID is invalid")
BATCH_PUBLISH_UNKNOWN_BATCH_ID = Failure(400, 10208, "batch publish ID unknown")
ATOMIC_PUBLISH_TOO_MANY_INFLIGHT = Failure(429, 10210, "atomic publish too many inflight")
BATCH_PUBLISH_TOO_MANY_INFLIGHT = Failure(429, 10211, "batch publish too many inflight")

# Consumers

CONSUMER_CREATE = Failure(500, 10012, "{}")
CONSUMER_NAME_EXIST = Failure(400, 10013, "consumer name already in use")
CONSUMER_NOT_FOUND = Failure(404, 10014, "consumer not found")
CONSUMER_OFFLINE_REASON = Failure(500, 10195, "consumer is offline: {}")
CONSUMER_DURABLE_NAME_NOT_MATCH_SUBJECT = Failure(
    400, 10017, "consumer name in subject does not match durable name in request"
)
CONSUMER_DURABLE_NAME_NOT_SET = Failure(400, 10018, "consumer expected to be durable but a durable name was not set")
CONSUMER_EPHEMERAL_WITH_DURABLE_NAME = Failure(
    400, 10020, "consumer expected to be ephemeral but a durable name was set in request"
)
MAXIMUM_CONSUMERS = Failure(400, 10026, "maximum consumers limit reached")
CONSUMER_CONFIG_REQUIRED = Failure(400, 10078, "consumer config required")
CONSUMER_DELIVER_TO_WILDCARDS = Failure(400, 10079, "consumer deliver subject has wildcards")
CONSUMER_PUSH_MAX_WAITING = Failure(400, 10080, "consumer in push mode can not set max waiting")
CONSUMER_DELIVER_CYCLE = Failure(400, 10081, "consumer deliver subject forms a cycle")
CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED = Failure(400, 10082, "consumer requires ack policy for max ack pending")
CONSUMER_SMALL_HEARTBEAT = Failure(400, 10083, "consumer idle heartbeat needs to be >= 100ms")
CONSUMER_PULL_REQUIRES_ACK = Failure(
    400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"
)
CONSUMER_PULL_WITH_RATE_LIMIT = Failure(400, 10086, "consumer in pull mode can not have rate limit set")
CONSUMER_MAX_WAITING_NEGATIVE = Failure(400, 10087, "consumer max waiting needs to be positive")
CONSUMER_HB_REQUIRES_PUSH = Failure(400, 10088, "consumer idle heartbeat requires a push based consumer")
CONSUMER_FC_REQUIRES_PUSH = Failure(400, 10089, "consumer flow control requires a push based consumer")
CONSUMER_DIRECT_REQUIRES_PUSH = Failure(400, 10090, "consumer direct requires a push based consumer")
CONSUMER_DIRECT_REQUIRES_EPHEMERAL = Failure(400, 10091, "consumer direct requires an ephemeral consumer")
CONSUMER_FILTER_NOT_SUBSET = Failure(
    400, 10093, "consumer filter subject is not a valid subset of the interest subjects"
)
CONSUMER_INVALID_POLICY = Failure(400, 10094, "{}")
CONSUMER_INVALID_SAMPLING = Failure(400, 10095, "failed to parse consumer sampling configuration: {}")
CONSUMER_WQ_REQUIRES_EXPLICIT_ACK = Failure(400, 10098, "workqueue stream requires explicit ack")
CONSUMER_WQ_MULTIPLE_UNFILTERED = Failure(400, 10099, "multiple non-filtered consumers not allowed on workqueue stream")
CONSUMER_WQ_CONSUMER_NOT_UNIQUE = Failure(400, 10100, "filtered consumer not unique on workqueue stream")
CONSUMER_WQ_CONSUMER_NOT_DELIVER_ALL = Failure(400, 10101, "consumer must be deliver all on workqueue stream")
CONSUMER_NAME_TOO_LONG = Failure(400, 10102, "consumer name is too long, maximum allowed is {}")
CONSUMER_STORE_FAILED = Failure(500, 10104, "error creating store for consumer: {}")
CONSUMER_EXISTING_ACTIVE = Failure(400, 10105, "consumer already exists and is still active")
CONSUMER_DESCRIPTION_TOO_LONG = Failure(400, 10107, "consumer description is too long, maximum allowed is {}")
CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS = Failure(400, 10108, "consumer with flow control also needs heartbeats")
CONSUMER_INVALID_DELIVER_SUBJECT = Failure(400, 10112, "invalid push consumer deliver subject")
CONSUMER_MAX_REQUEST_BATCH_NEGATIVE = Failure(400, 10114, "consumer max request batch needs to be > 0")
CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL = Failure(400, 10115, "consumer max request expires needs to be >= 1ms")
CONSUMER_MAX_DELIVER_BACKOFF = Failure(400, 10116, "max deliver is required to be > length of backoff values")
CONSUMER_MAX_PENDING_ACK_EXCESS = Failure(400, 10121, "consumer max ack pending exceeds system limit of {}")
CONSUMER_MAX_REQUEST_BATCH_EXCEEDED = Failure(400, 10125, "consumer max request batch exceeds server limit of {}")
CONSUMER_REPLICAS_EXCEEDS_STREAM = Failure(400, 10126, "consumer config replica count exceeds parent stream")
CONSUMER_NAME_CONTAINS_PATH_SEPARATORS = Failure(400, 10127, "Consumer name can not contain path separators")
CONSUMER_CREATE_FILTER_SUBJECT_MISMATCH = Failure(
    400, 10131, "Consumer create request did not match filtered subject from create subject"
)
CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH = Failure(
    400, 10132, "Consumer Durable and Name have to be equal if both are provided"
)
CONSUMER_REPLICAS_SHOULD_MATCH_STREAM = Failure(
    400, 10134, "consumer config replicas must match interest retention stream's replicas"
)
CONSUMER_METADATA_LENGTH = Failure(400, 10135, "consumer metadata exceeds maximum size of {}")
CONSUMER_DUPLICATE_FILTER_SUBJECTS = Failure(
    400, 10136, "consumer cannot have both FilterSubject and FilterSubjects specified"
)
CONSUMER_MULTIPLE_FILTERS_NOT_ALLOWED = Failure(
    400, 10137, "consumer with multiple subject filters cannot use subject based API"
)
CONSUMER_OVERLAPPING_SUBJECT_FILTERS = Failure(400, 10138, "consumer subject filters cannot overlap")
CONSUMER_EMPTY_FILTER = Failure(400, 10139, "consumer filter in FilterSubjects cannot be empty")
CONSUMER_ALREADY_EXISTS = Failure(400, 10148, "consumer already exists")
CONSUMER_DOES_NOT_EXIST = Failure(400, 10149, "consumer does not exist")
CONSUMER_INACTIVE_THRESHOLD_EXCESS = Failure(400, 10153, "consumer inactive threshold exceeds system limit of {}")
CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP = Failure(
    400, 10159, "Setting PriorityPolicy requires at least one PriorityGroup to be set"
)
CONSUMER_INVALID_PRIORITY_GROUP = Failure(400, 10160, "Provided priority group does not exist for this consumer")
CONSUMER_EMPTY_GROUP_NAME = Failure(400, 10161, "Group name cannot be an empty string")
CONSUMER_INVALID_GROUP_NAME = Failure(
    400, 10162, "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters"
)
CONSUMER_PUSH_WITH_PRIORITY_GROUP = Failure(400, 10178, "priority groups can not be used with push consumers")
CONSUMER_ACK_POLICY_INVALID = Failure(400, 10181, "consumer ack policy invalid")
CONSUMER_REPLAY_POLICY_INVALID = Failure(400, 10182, "consumer replay policy invalid")
CONSUMER_ACK_WAIT_NEGATIVE = Failure(400, 10183, "consumer ack wait needs to be positive")
CONSUMER_BACK_OFF_NEGATIVE = Failure(400, 10184, "consumer backoff needs to be positive")
CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE = Failure(
    400, 10196, "consumer can not have priority groups when policy is none"
)
CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY = Failure(400, 10197, "PinnedTTL cannot be set when PriorityPolicy is none")
CONSUMER_INVALID_RESET = Failure(400, 10204, "invalid reset: {}")
CONSUMER_ACK_FC_REQUIRES_PUSH = Failure(400, 10218, "flow control ack policy requires a push based consumer")
CONSUMER_ACK_FC_REQUIRES_FC = Failure(400, 10219, "flow control ack policy requires flow control")
CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING = Failure(400, 10220, "flow control ack policy requires max ack pending")
CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT = Failure(400, 10221, "flow control ack policy requires unset ack wait")
CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER = Failure(400, 10222, "flow control ack policy requires unset max deliver")
