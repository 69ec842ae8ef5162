"""What a stream is told to be: its configuration, read from requests and written in responses.

Attributes have the names of JSON, in the order in which nats-server writes them. Durations are nanoseconds. A
configuration never changes: an update makes a new one. What is allowed is in `rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from jetlake.config.options import JetStreamOptions
from jetlake.jetstream.api_level import API_LEVEL
from jetlake.jetstream.json import shape as shape
from jetlake.store import Cipher, FileOptions, KeySource, StreamLimits
from jetlake.store import Compression as StoreCompression
from jetlake.store.api import Discard
from jetlake.wire.go_time import format_time

# The nats-server whose rules these are: it goes into the metadata of every stream.
SERVER_VERSION = "2.15.1"
_LEVEL_KEY, _VERSION_KEY, _SERVER_LEVEL_KEY = "_nats.req.level", "_nats.ver", "_nats.level"


class Retention(StrEnum):
    """When a message leaves other than by a limit."""

    LIMITS = "limits"
    INTEREST = "interest"
    WORKQUEUE = "workqueue"


class Storage(StrEnum):
    FILE = "file"
    MEMORY = "memory"


class Compression(StrEnum):
    NONE = "none"
    S2 = "s2"


class PersistMode(StrEnum):
    DEFAULT = "default"
    ASYNC = "async"


class Placement(Struct, frozen=True):
    """Where in a cluster a stream may live: kept, and without effect on a single server."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""


class TransformConfig(Struct, frozen=True):
    """A subject transform."""

    src: str = ""
    dest: str = ""


class Republish(Struct, frozen=True):
    """Where stored messages are published again."""

    src: str = ""
    dest: str = ""
    headers_only: bool = False


class External(Struct, frozen=True):
    """How another account's or domain's stream is reached."""

    api: str = ""
    deliver: str = ""


class SourceConsumer(Struct, frozen=True):
    """A consumer made beforehand for a mirror or source."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(Struct, frozen=True, kw_only=True):
    """A stream to copy from. opt_start_time is nanoseconds since the epoch."""

    name: str = ""
    opt_start_seq: int = 0
    opt_start_time: int | None = None
    filter_subject: str = ""
    subject_transforms: tuple[TransformConfig, ...] = ()
    external: External | None = None
    consumer: SourceConsumer | None = None


class ConsumerLimits(Struct, frozen=True):
    """Defaults and ceilings for a stream's consumers; 0 is none."""

    inactive_threshold: int = 0
    max_ack_pending: int = 0


class StreamConfig(Struct, frozen=True, kw_only=True):
    """A stream's configuration. In counts and sizes -1 is no limit; requests may say 0 for it."""

    name: str
    description: str = ""
    subjects: tuple[str, ...] = ()
    retention: Retention = Retention.LIMITS
    max_consumers: int = -1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msgs_per_subject: int = -1
    max_msg_size: int = -1
    discard: Discard = Discard.OLD
    storage: Storage = Storage.FILE
    num_replicas: int = 1
    no_ack: bool = False
    duplicate_window: int = 0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: tuple[StreamSource, ...] = ()
    compression: Compression = Compression.NONE
    first_seq: int = 0
    subject_transform: TransformConfig | None = None
    republish: Republish | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: ConsumerLimits = ConsumerLimits()
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: int = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: PersistMode = PersistMode.DEFAULT
    allow_batched: bool = False
    metadata: dict[str, str] = {}


# Requests

_TRANSFORM = shape.Struct(
    "SubjectTransformConfig", {"src": shape.STRING, "dest": shape.STRING}, lambda fields: TransformConfig(**fields)
)
_SOURCE = shape.Struct(
    "StreamSource",
    {
        "name": shape.STRING,
        "opt_start_seq": shape.UINT64,
        "opt_start_time": shape.TIME,
        "filter_subject": shape.STRING,
        "subject_transforms": shape.List(_TRANSFORM),
        "external": shape.Struct(
            "ExternalStream", {"api": shape.STRING, "deliver": shape.STRING}, lambda fields: External(**fields)
        ),
        "consumer": shape.Struct(
            "StreamConsumerSource",
            {"name": shape.STRING, "deliver_subject": shape.STRING},
            lambda fields: SourceConsumer(**fields),
        ),
    },
    lambda fields: StreamSource(**fields),
)


def _enum(values: Iterable[StrEnum], **options: Any) -> shape.Enum:
    return shape.Enum({value.value: value for value in values}, **options)


_FIELDS: dict[str, shape.Shape] = {
    "name": shape.STRING,
    "description": shape.STRING,
    "subjects": shape.STRINGS,
    "retention": _enum(Retention),
    "max_consumers": shape.INT,
    "max_msgs": shape.INT64,
    "max_bytes": shape.INT64,
    "max_age": shape.DURATION,
    "max_msgs_per_subject": shape.INT64,
    "max_msg_size": shape.INT32,
    "discard": _enum(Discard, any_case=True),
    "storage": _enum(Storage),
    "num_replicas": shape.INT,
    "no_ack": shape.BOOL,
    "duplicate_window": shape.DURATION,
    "placement": shape.Struct(
        "Placement",
        {"cluster": shape.STRING, "tags": shape.STRINGS, "preferred": shape.STRING},
        lambda fields: Placement(**fields),
    ),
    "mirror": _SOURCE,
    "sources": shape.List(_SOURCE, of_pointers=True),
    "compression": _enum(Compression, problem="unknown compression algorithm"),
    "first_seq": shape.UINT64,
    "subject_transform": _TRANSFORM,
    "republish": shape.Struct(
        "RePublish",
        {"src": shape.STRING, "dest": shape.STRING, "headers_only": shape.BOOL},
        lambda fields: Republish(**fields),
    ),
    "allow_direct": shape.BOOL,
    "mirror_direct": shape.BOOL,
    "discard_new_per_subject": shape.BOOL,
    "sealed": shape.BOOL,
    "deny_delete": shape.BOOL,
    "deny_purge": shape.BOOL,
    "allow_rollup_hdrs": shape.BOOL,
    "consumer_limits": shape.Struct(
        "StreamConsumerLimits",
        {"inactive_threshold": shape.DURATION, "max_ack_pending": shape.INT},
        lambda fields: ConsumerLimits(**fields),
    ),
    "allow_msg_ttl": shape.BOOL,
    "subject_delete_marker_ttl": shape.DURATION,
    "allow_msg_counter": shape.BOOL,
    "allow_atomic": shape.BOOL,
    "allow_msg_schedules": shape.BOOL,
    "persist_mode": shape.Enum({"default": PersistMode.DEFAULT, "async": PersistMode.ASYNC, "": PersistMode.DEFAULT}),
    "allow_batched": shape.BOOL,
    "metadata": shape.STRING_MAP,
}
assert list(_FIELDS) == list(StreamConfig.__struct_fields__)

_REQUEST = shape.Struct("StreamConfigRequest", {**_FIELDS, "pedantic": shape.BOOL})
CONFIG = shape.Struct("StreamConfig", _FIELDS, lambda fields: StreamConfig(**{"name": "", **fields}))


def parse_request(payload: bytes, *, strict: bool = True) -> tuple[StreamConfig, bool]:
    """The configuration that a create or update asks for, unchecked, and whether it is pedantic."""
    fields = shape.read_request(payload, _REQUEST, strict=strict)
    pedantic = fields.pop("pedantic", False)
    return StreamConfig(**{"name": "", **fields}), pedantic


# Responses

_ALWAYS = {
    "name", "retention", "max_consumers", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject", "discard",
    "storage", "num_replicas", "compression", "allow_direct", "mirror_direct", "sealed", "deny_delete", "deny_purge",
    "allow_rollup_hdrs", "consumer_limits", "allow_msg_ttl",
}  # fmt: skip


def config_json(config: StreamConfig, *, with_server: bool) -> dict[str, Any]:
    """The `config` object of a response; the server's version and level are told except in lists."""
    found = {name: value for name, value in asdict(config).items() if value or name in _ALWAYS}
    if config.persist_mode is PersistMode.DEFAULT:
        found.pop("persist_mode")
    for name in ("placement", "consumer_limits"):
        if found.get(name) is not None:
            found[name] = _without_empty(asdict(found[name]))
    if config.republish is not None:
        found["republish"] = _without_empty(asdict(config.republish), "dest")
    if config.mirror is not None:
        found["mirror"] = _source_json(config.mirror)
    if config.sources:
        found["sources"] = [_source_json(source) for source in config.sources]
    metadata = dict(config.metadata)
    if with_server:
        metadata |= {_VERSION_KEY: SERVER_VERSION, _SERVER_LEVEL_KEY: str(API_LEVEL)}
    if metadata:
        found["metadata"] = dict(sorted(metadata.items()))
    return found


def _source_json(source: StreamSource) -> dict[str, Any]:
    found = _without_empty(asdict(source), "name")
    if source.opt_start_time is not None:
        found["opt_start_time"] = format_time(source.opt_start_time)
    if source.consumer is not None:
        found["consumer"] = _without_empty(asdict(source.consumer))
    return found


def _without_empty(fields: dict[str, Any], *always: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value or name in always}


# Metadata


def required_level(config: StreamConfig) -> int:
    """The API level that a server needs to serve this stream."""
    if config.allow_batched:
        return 4
    is_async = config.persist_mode is PersistMode.ASYNC
    if config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules or is_async:
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0


def with_level(config: StreamConfig) -> StreamConfig:
    """The configuration as it is stored: with the level it needs, and without what is only told in responses."""
    return replace(config, metadata={**own_metadata(config), _LEVEL_KEY: str(required_level(config))})


def own_metadata(config: StreamConfig) -> dict[str, str]:
    """The metadata without the server's part of it."""
    theirs = (_LEVEL_KEY, _VERSION_KEY, _SERVER_LEVEL_KEY)
    return {key: value for key, value in config.metadata.items() if key not in theirs}


def is_same(a: StreamConfig, b: StreamConfig) -> bool:
    """Whether two configurations ask for the same, whatever the server put into their metadata."""
    return replace(a, metadata=own_metadata(a)) == replace(b, metadata=own_metadata(b))


# The store


def limits(config: StreamConfig) -> StreamLimits:
    """What the store has to keep to."""
    return StreamLimits(
        max_msgs=config.max_msgs,
        max_bytes=config.max_bytes,
        max_age_ns=config.max_age,
        max_msgs_per_subject=config.max_msgs_per_subject,
        discard=config.discard,
        discard_new_per_subject=config.discard_new_per_subject,
        subject_delete_marker_ttl_ns=config.subject_delete_marker_ttl,
    )


def key_sources(options: JetStreamOptions) -> tuple[KeySource, ...]:
    """The keys of encrypted streams: the one that new blocks get first. Make them once: passphrases cost time."""
    return tuple(KeySource.passphrase(key) for key in (options.key, options.prev_key) if key)


CIPHERS = {"chachapoly": Cipher.CHACHA20_POLY1305, "aes": Cipher.AES_256_GCM}


def file_options(config: StreamConfig, options: JetStreamOptions, keys: Sequence[KeySource] = ()) -> FileOptions:
    """How the stream lies on disk. `persist_mode: async` gives up the sync before each ack."""
    is_synced = options.sync_always and config.persist_mode is PersistMode.DEFAULT
    return FileOptions(
        sync="always" if is_synced else options.sync_interval_s,
        compression=StoreCompression.SNAPPY if config.compression is Compression.S2 else StoreCompression.NONE,
        cipher=CIPHERS[options.cipher] if options.key else Cipher.NONE,
        keys=keys,
    )
