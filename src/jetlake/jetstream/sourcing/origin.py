"""The origin's side: consumers that other streams make of a stream to copy it.

Such a consumer is hidden and goes by itself. On a stream whose messages leave when they are acknowledged it is a
durable instead, whose acks are the answers to flow control: nothing leaves before the copy is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from jetlake.jetstream import errors
from jetlake.jetstream.consumers.config import AckPolicy, ConsumerConfig
from jetlake.jetstream.sourcing.names import IDENTITY_HEADER, identity_of, random8
from jetlake.jetstream.streams.config import Retention
from jetlake.wire.headers import append_headers, header_value

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

MAX_ACK_PENDING = 1000


def serves_copies(config: ConsumerConfig) -> bool:
    """Whether a consumer is for a stream that copies."""
    return config.direct or config.sourcing


def check_identity(stream: Stream, headers: bytes) -> None:
    """Raise ApiError when a request means another stream of this name."""
    identity, wanted = identity_of(stream.created_ns), header_value(headers, IDENTITY_HEADER)
    if wanted and wanted != identity.encode():
        raise errors.CONSUMER_STREAM_IDENTITY_MISMATCH(identity)


def identity_headers(stream: Stream) -> bytes:
    """What tells who copies which stream it is."""
    return append_headers(b"", [(IDENTITY_HEADER, identity_of(stream.created_ns).encode())])


def for_copies(stream: Stream, config: ConsumerConfig) -> ConsumerConfig:
    """The configuration that a request for a consumer to copy from leads to."""
    if not (config.direct and config.sourcing and config.name):
        return config
    if stream.config.retention is Retention.LIMITS:
        return replace(config, name=f"{config.name}-{random8()}")
    return replace(
        config,
        direct=False,
        durable_name=config.name,
        ack_policy=AckPolicy.FLOW_CONTROL,
        ack_wait=0,
        inactive_threshold=0,
        max_deliver=-1,
        max_ack_pending=MAX_ACK_PENDING,
    )
