"""What a feed asks its origin for: a consumer that delivers everything from somewhere on, and goes by itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from jetlake.clock import SECOND_NS
from jetlake.jetstream.sourcing.names import filters
from jetlake.jetstream.streams.config import StreamSource
from jetlake.wire.go_time import format_time
from jetlake.wire.json_text import encode_json

HEARTBEAT_NS = SECOND_NS
ACK_WAIT_NS = 22 * 3600 * SECOND_NS
INACTIVE_NS = 10 * SECOND_NS

_FIXED = {
    "ack_policy": "none",
    "ack_wait": ACK_WAIT_NS,
    "max_deliver": 1,
    "replay_policy": "instant",
    "flow_control": True,
    "idle_heartbeat": HEARTBEAT_NS,
    "inactive_threshold": INACTIVE_NS,
    "num_replicas": 0,
    "direct": True,
}


class Start(NamedTuple):
    """Where an origin is to begin; everything when neither is given."""

    seq: int = 0
    time_ns: int | None = None


def create_request(
    source: StreamSource, name: str, start: Start, deliver: str, metadata: dict[str, str], *, is_plain: bool
) -> tuple[str, bytes]:
    """The subject, after the API's prefix, and the body; `is_plain` for a server that does not know of sourcing."""
    wanted, subject = filters(source), f"CONSUMER.CREATE.{source.name}"
    if len(wanted) == 1:
        subject += f".{name}.{wanted[0]}"
    config = {"name": name, **_start_fields(start), **_FIXED, "deliver_subject": deliver}
    config |= {"filter_subject": wanted[0]} if len(wanted) == 1 else {"filter_subjects": wanted} if wanted else {}
    config |= {} if is_plain else {"sourcing": True}
    config["metadata"] = metadata
    return subject, encode_json({"stream_name": source.name, "config": config, "action": ""})


def _start_fields(start: Start) -> dict[str, Any]:
    if start.seq:
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": start.seq}
    if start.time_ns is not None:
        return {"deliver_policy": "by_start_time", "opt_start_time": format_time(start.time_ns)}
    return {"deliver_policy": "all"}
