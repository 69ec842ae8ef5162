"""A consumer in numbers, as the API shows it: names and order of nats-server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.jetstream.consumers.config import config_json
from jetlake.wire.go_time import ZERO_TIME, format_time

if TYPE_CHECKING:
    from jetlake.jetstream.consumers.consumer import Consumer


def consumer_info(consumer: Consumer, now_ns: int, *, with_server: bool) -> dict[str, Any]:
    """Everything about a consumer; the version of the server too, where nats-server adds it."""
    ledger, config = consumer.ledger, consumer.config
    info: dict[str, Any] = {
        "stream_name": consumer.stream.name,
        "name": consumer.name,
        "created": format_time(consumer.created_ns),
        "config": config_json(config, with_server=with_server),
        "delivered": _position(ledger.delivered_consumer_seq, _delivered_seq(consumer), consumer.delivered_ns),
        "ack_floor": _position(ledger.floor_consumer_seq, ledger.floor_stream_seq, consumer.acked_ns),
        "num_ack_pending": len(ledger.pending),
        "num_redelivered": 0 if config.max_deliver == 1 else len(ledger.redelivered),
        "num_waiting": len(consumer.requests),
        "num_pending": consumer.num_pending(),
    }
    if (cluster := consumer.stream.js.service.cluster) is not None:
        info["cluster"] = cluster.consumer_block(consumer)
    if consumer.push is not None and consumer.push.is_active:
        info["push_bound"] = True
    if consumer.pause.is_on(now_ns):
        info |= {"paused": True, "pause_remaining": consumer.pause.left_ns(now_ns)}
    info["ts"] = format_time(now_ns)
    if config.priority_groups:
        info["priority_groups"] = [_group(consumer)]
    return info


def _delivered_seq(consumer: Consumer) -> int:
    """The last message that was delivered; nats-server shows how far the search for the first has come, in memory."""
    ledger = consumer.ledger
    if consumer.keeper is None and ledger.delivered_consumer_seq == ledger.delivered_stream_seq == 0:
        return ledger.next_seq - 1
    return ledger.delivered_stream_seq


def _position(consumer_seq: int, stream_seq: int, active_ns: int) -> dict[str, Any]:
    position: dict[str, Any] = {"consumer_seq": consumer_seq, "stream_seq": stream_seq}
    if active_ns:
        position["last_active"] = format_time(active_ns)
    return position


def _group(consumer: Consumer) -> dict[str, Any]:
    groups = consumer.groups
    shown: dict[str, Any] = {"group": groups.groups[0]}
    if groups.pin_id:
        shown["pinned_client_id"] = groups.pin_id
    shown["pinned_ts"] = format_time(groups.pinned_ns) if groups.pinned_ns else ZERO_TIME
    return shown
