"""Snapshot and restore: a stream as an archive, and back. See `jetlake.jetstream.snapshots`."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from jetlake.broker.client_info import client_info
from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Endpoint, Request
from jetlake.jetstream.api.stream_info import stream_info
from jetlake.jetstream.clustering import AnsweredBy
from jetlake.jetstream.json.shape import BOOL, INT, STRING, TIME, UINT64, List, Map, Struct, is_empty_request
from jetlake.jetstream.streams.config import CONFIG, StreamConfig
from jetlake.jetstream.streams.rules import is_valid_subject
from jetlake.subjects import is_literal

_SNAPSHOT = Struct(
    "JSApiStreamSnapshotRequest",
    {"deliver_subject": STRING, "no_consumers": BOOL, "chunk_size": INT, "window_size": INT, "jsck": BOOL},
)
_LOST = Struct("LostStreamData", {"msgs": List(UINT64), "bytes": UINT64})
_STATE = Struct(
    "StreamState",
    {
        "messages": UINT64,
        "bytes": UINT64,
        "first_seq": UINT64,
        "first_ts": TIME,
        "last_seq": UINT64,
        "last_ts": TIME,
        "num_subjects": INT,
        "subjects": Map(UINT64),
        "num_deleted": INT,
        "deleted": List(UINT64),
        "lost": _LOST,
        "consumer_count": INT,
    },
)
_RESTORE = Struct("JSApiStreamRestoreRequest", {"config": CONFIG, "state": _STATE})


# What works on archives is imported by the first request: it takes a fifth of the time of a start, and few need it.


def snapshot(request: Request) -> None:
    from jetlake.jetstream.snapshots.archive_source import ArchiveSource
    from jetlake.jetstream.snapshots.sending import Sending

    if is_empty_request(request.payload):
        raise errors.BAD_REQUEST()
    stream, fields = request.stream, request.read(_SNAPSHOT)
    subject = fields.get("deliver_subject", "")
    if not is_valid_subject(subject) or not is_literal(subject):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    if stream.is_closed:
        raise errors.STREAM_SNAPSHOT("stream closed")
    info = stream_info(stream, with_server=False)
    kept = [] if fields.get("no_consumers") else [each for each in stream.consumers.values() if not each.config.direct]
    consumers = [(each.name, each.created_ns, each.snapshot()) for each in kept]
    source = ArchiveSource(stream.store, info["state"], consumers, stream.created_ns, request.host.clock())
    sizes = (fields.get("chunk_size", 0), fields.get("window_size", 0))
    sending = Sending(stream, source, subject, *sizes, _client(request))
    request.reply({"config": info["config"], "state": info["state"]})
    sending.begin(info["state"])


def restore(request: Request) -> None:
    from jetlake.jetstream.snapshots.receiving import Receiving

    if is_empty_request(request.payload):
        raise errors.BAD_REQUEST()
    config, name = request.read(_RESTORE).get("config", StreamConfig(name="")), request.names[0]
    if config.name not in ("", name):
        raise errors.STREAM_NAME_MISMATCH()
    config = request.account.checked(replace(config, name=name), pedantic=False)
    if name in request.account.streams:
        raise errors.STREAM_NAME_EXIST_RESTORE_FAILED()
    receiving = Receiving(request.account, config, _client(request))
    receiving.begin()
    request.reply({"deliver_subject": receiving.subject})


def _client(request: Request) -> dict[str, Any]:
    """Who asked, for advisories."""
    client = request.msg.client
    return {**client_info(client), "server": request.host.server_name} if client is not None else {}


ENDPOINTS = [
    Endpoint("STREAM.SNAPSHOT.*", "stream_snapshot_response", snapshot),
    Endpoint(
        "STREAM.RESTORE.*",
        "stream_restore_response",
        restore,
        {"deliver_subject": ""},
        answered_by=AnsweredBy.META_LEADER,
    ),
]
