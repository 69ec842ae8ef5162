"""StreamInfo: a stream as responses show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw

from jetlake.jetstream import errors
from jetlake.jetstream.streams.config import config_json
from jetlake.wire.go_time import ZERO_TIME, format_time

if TYPE_CHECKING:
    from jetlake.jetstream.streams.stream import Stream

DELETED_COUNT_MAX = 1_000_000  # a response with more sequences than these is refused
LOST_COUNT_MAX = 10_000


def stream_info(
    stream: Stream,
    *,
    with_server: bool = True,
    with_domain: bool = True,
    with_cluster: bool = False,
    with_deleted: bool = False,
    subjects: bytes | None = None,
) -> dict[str, Any]:
    """The fields of a StreamInfo. Which calls show what is nats-server's choice. `subjects` is a JSON object.

    `with_cluster` is for a server that is alone: in a cluster all calls show it.
    """
    host = stream.host
    info: dict[str, Any] = {
        "config": config_json(stream.config, with_server=with_server),
        "created": format_time(stream.created_ns),
        "state": _state(stream, with_deleted, subjects),
    }
    if with_domain and host.options.jetstream.domain:
        info["domain"] = host.options.jetstream.domain
    if (cluster := stream.js.service.cluster) is not None:
        info["cluster"] = cluster.stream_block(stream)
    elif with_cluster:
        info["cluster"] = {"leader": host.server_name}
    info |= stream.copying.info()
    info["ts"] = format_time(host.clock())
    return info


def consumer_count(stream: Stream) -> int:
    """How many consumers a stream has, without those that only serve other streams."""
    return sum(not consumer.config.direct for consumer in stream.consumers.values())


def readable(subject: str) -> str:
    """A subject as JSON can hold it: bytes that are not UTF-8 are replaced."""
    if subject.isascii():
        return subject
    return subject.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _state(stream: Stream, with_deleted: bool, subjects: bytes | None) -> dict[str, Any]:
    state = stream.store.state() if with_deleted else stream.store.fast_state()
    last_time_ns = max(state.last_time_ns, stream.skipped_ns)
    shown: dict[str, Any] = {
        "messages": state.msgs,
        "bytes": state.bytes,
        "first_seq": state.first_seq or int(stream.config.first_seq == 1),  # one that was asked for is shown
        "first_ts": format_time(state.first_time_ns) if state.msgs else ZERO_TIME,
        "last_seq": state.last_seq,
        "last_ts": format_time(last_time_ns) if last_time_ns else ZERO_TIME,
    }
    if state.num_subjects:
        shown["num_subjects"] = state.num_subjects
    if subjects is not None:
        shown["subjects"] = Raw(subjects)
    if state.num_deleted:
        shown["num_deleted"] = state.num_deleted
    if with_deleted and state.num_deleted:
        if state.num_deleted > DELETED_COUNT_MAX:
            raise errors.STREAM_INFO_MAX_SUBJECTS()
        shown["deleted"] = Raw(state.deleted.as_json(DELETED_COUNT_MAX))
    if state.lost:
        shown["lost"] = {"msgs": Raw(state.lost.as_json(LOST_COUNT_MAX)), "bytes": 0}
    shown["consumer_count"] = consumer_count(stream)
    return shown
