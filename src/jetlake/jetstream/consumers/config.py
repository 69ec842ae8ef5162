"""What a consumer is told to be: the fields of its configuration, named as in JSON, and how a request gives them.

Durations are nanoseconds, times nanoseconds since the epoch. A configuration never changes: an update makes a new one.
Defaults and rules are in `rules.py`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
import msgspec.structs

from jetlake.jetstream.api_level import API_LEVEL
from jetlake.jetstream.json.shape import (
    BOOL,
    DURATION,
    INT,
    STRING,
    STRING_MAP,
    STRINGS,
    TIME,
    UINT64,
    BadShape,
    Enum,
    List,
    Place,
    Shape,
    Struct,
    read_request,
)
from jetlake.jetstream.json.syntax import Node
from jetlake.jetstream.streams.config import SERVER_VERSION
from jetlake.wire.go_time import ZERO_NS, format_time


class DeliverPolicy(StrEnum):
    """Where a consumer starts."""

    ALL = "all"
    LAST = "last"
    NEW = "new"
    BY_START_SEQUENCE = "by_start_sequence"
    BY_START_TIME = "by_start_time"
    LAST_PER_SUBJECT = "last_per_subject"


class AckPolicy(StrEnum):
    """What counts as an acknowledgement of a message."""

    NONE = "none"
    ALL = "all"
    EXPLICIT = "explicit"
    FLOW_CONTROL = "flow_control"


class ReplayPolicy(StrEnum):
    INSTANT = "instant"
    ORIGINAL = "original"


class PriorityPolicy(StrEnum):
    """Which of several waiting requests is served."""

    NONE = "none"
    OVERFLOW = "overflow"
    PINNED_CLIENT = "pinned_client"
    PRIORITIZED = "prioritized"


class Action(StrEnum):
    """What a create request may do to a consumer that is there, or is not."""

    CREATE_OR_UPDATE = ""
    CREATE = "create"
    UPDATE = "update"


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's configuration, in the order nats-server writes it. Zero and empty mean: not given."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = DeliverPolicy.ALL
    opt_start_seq: int = 0
    opt_start_time: int | None = None
    ack_policy: AckPolicy = AckPolicy.NONE
    ack_wait: int = 0
    max_deliver: int = 0
    backoff: tuple[int, ...] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    replay_policy: ReplayPolicy = ReplayPolicy.INSTANT
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = {}
    pause_until: int | None = None
    priority_groups: tuple[str, ...] = ()
    priority_policy: PriorityPolicy = PriorityPolicy.NONE
    priority_timeout: int = 0

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects it wants; none of them is all of them."""
        return (*self.filter_subjects, self.filter_subject) if self.filter_subject else self.filter_subjects

    @property
    def paused_until(self) -> int | None:
        """Until when it rests; Go's zero time, which some clients send, is none."""
        return None if self.pause_until == ZERO_NS else self.pause_until

    @property
    def is_push(self) -> bool:
        return bool(self.deliver_subject)

    @property
    def is_durable(self) -> bool:
        return bool(self.durable_name)

    @property
    def sample_percent(self) -> int:
        """How many of a hundred acks are reported."""
        return int(self.sample_freq.removesuffix("%")) if self.sample_freq else 0


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a create request."""

    stream_name: str = ""
    config: ConsumerConfig = ConsumerConfig()
    action: Action = Action.CREATE_OR_UPDATE
    pedantic: bool = False


class _Word(Shape):
    """One of some words; another is refused in words of its own."""

    go_type = "string"
    takes_null = True

    def __init__(self, words: type[StrEnum], problem: str) -> None:
        self._words, self._problem = {str(word): word for word in words}, problem

    def read(self, node: Node, place: Place, strict: bool) -> StrEnum:
        word = node.value if node.kind == "string" else None
        if not isinstance(word, str) or word not in self._words:
            raise BadShape(f"{self._problem}: {node.text}")
        return self._words[word]


def _words(words: type[StrEnum]) -> Enum:
    return Enum({str(word): word for word in words})


_CONFIG = Struct(
    "ConsumerConfig",
    {
        "durable_name": STRING,
        "name": STRING,
        "description": STRING,
        "deliver_policy": Enum({str(word): word for word in DeliverPolicy} | {"undefined": DeliverPolicy.ALL}),
        "opt_start_seq": UINT64,
        "opt_start_time": TIME,
        "ack_policy": _words(AckPolicy),
        "ack_wait": DURATION,
        "max_deliver": INT,
        "backoff": List(DURATION),
        "filter_subject": STRING,
        "filter_subjects": STRINGS,
        "replay_policy": _words(ReplayPolicy),
        "rate_limit_bps": UINT64,
        "sample_freq": STRING,
        "max_waiting": INT,
        "max_ack_pending": INT,
        "flow_control": BOOL,
        "headers_only": BOOL,
        "max_batch": INT,
        "max_expires": DURATION,
        "max_bytes": INT,
        "deliver_subject": STRING,
        "deliver_group": STRING,
        "idle_heartbeat": DURATION,
        "inactive_threshold": DURATION,
        "num_replicas": INT,
        "mem_storage": BOOL,
        "direct": BOOL,
        "sourcing": BOOL,
        "metadata": STRING_MAP,
        "pause_until": TIME,
        "priority_groups": STRINGS,
        "priority_policy": _Word(PriorityPolicy, "unknown priority policy"),
        "priority_timeout": DURATION,
    },
    lambda fields: ConsumerConfig(**fields),
)
_CREATE = Struct(
    "CreateConsumerRequest",
    {
        "stream_name": STRING,
        "config": _CONFIG,
        "action": _Word(Action, "unknown consumer action"),
        "pedantic": BOOL,
    },
)
_ALWAYS_SHOWN = frozenset({"deliver_policy", "ack_policy", "replay_policy", "num_replicas"})
_TIMES = frozenset({"opt_start_time", "pause_until"})


def read_create(payload: bytes, *, strict: bool = True) -> CreateRequest:
    """The request that a payload makes; ApiError 10025 when it is none."""
    return CreateRequest(**read_request(payload, _CREATE, strict=strict))


def read_config(text: bytes) -> ConsumerConfig:
    """A configuration that `config_json` wrote."""
    fields: ConsumerConfig = read_request(b'{"config":%s}' % text, _CREATE)["config"]
    return fields


def config_json(config: ConsumerConfig, *, with_server: bool = False) -> dict[str, Any]:
    """The configuration as nats-server shows it: what is zero or empty is left out, but for a few."""
    if with_server:
        server = {"_nats.ver": SERVER_VERSION, "_nats.level": str(API_LEVEL)}
        config = msgspec.structs.replace(config, metadata={**config.metadata, **server})
    shown: dict[str, Any] = {}
    for name in ConsumerConfig.__struct_fields__:
        value = getattr(config, name)
        if name in _TIMES:
            if value is not None:
                shown[name] = format_time(value)
        elif name == "metadata":
            if value:
                shown[name] = dict(sorted(value.items()))
        elif name == "priority_policy":
            if value is not PriorityPolicy.NONE:
                shown[name] = value
        elif value or name in _ALWAYS_SHOWN:
            shown[name] = value
    return shown
