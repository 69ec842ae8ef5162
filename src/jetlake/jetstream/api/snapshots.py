"""Snapshot and restore: not there yet, and said so. Requests that are wrong anyway get nats-server's errors."""

from __future__ import annotations

from msgspec.structs import replace

from jetlake.jetstream import errors
from jetlake.jetstream.api.request import Endpoint, Request
from jetlake.jetstream.json_shape import BOOL, INT, STRING, TIME, UINT64, List, Map, Struct, is_empty_request
from jetlake.jetstream.stream_config import CONFIG, StreamConfig
from jetlake.jetstream.stream_rules import is_valid_subject
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


def snapshot(request: Request) -> None:
    if is_empty_request(request.payload):
        raise errors.BAD_REQUEST()
    assert request.stream
    subject = request.read(_SNAPSHOT).get("deliver_subject", "")
    if not is_valid_subject(subject) or not is_literal(subject):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID()
    raise errors.STREAM_SNAPSHOT("snapshots are not supported by JetLake yet")


def restore(request: Request) -> None:
    if is_empty_request(request.payload):
        raise errors.BAD_REQUEST()
    config, name = request.read(_RESTORE).get("config", StreamConfig(name="")), request.names[0]
    if config.name not in ("", name):
        raise errors.STREAM_NAME_MISMATCH()
    request.account.checked(replace(config, name=name), pedantic=False)
    if name in request.account.streams:
        raise errors.STREAM_NAME_EXIST_RESTORE_FAILED()
    raise errors.STREAM_RESTORE("restoring is not supported by JetLake yet")


ENDPOINTS = [
    Endpoint("STREAM.SNAPSHOT.*", "stream_snapshot_response", snapshot),
    Endpoint("STREAM.RESTORE.*", "stream_restore_response", restore, {"deliver_subject": ""}),
]
