"""STATSZ: the server in a few numbers, as the system account is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.server.observe.process import core_count, resident_size
from jetlake.server.observe.query import Query
from jetlake.server.observe.routez import route_stats
from jetlake.server.observe.varz import jetstream_varz
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server


def statsz(server: Server, query: Query) -> dict[str, Any]:
    """The numbers."""
    broker = server.broker
    sent = {"msgs": broker.out_msgs, "bytes": broker.out_bytes}
    received = {"msgs": broker.in_msgs, "bytes": broker.in_bytes}
    stats: dict[str, Any] = {
        "start": format_time(server.start_ns),
        "mem": resident_size(),
        "cores": core_count(),
        "cpu": server.cpu.percent(),
        "connections": len(broker.clients),
        "total_connections": broker.total_connections,
        "active_accounts": sum(bool(account.clients) for account in broker.accounts.values()),
        "subscriptions": sum(account.sublist.count for account in broker.accounts.values()),
        "sent": sent,
        "sent_to_clients": {
            "msgs": broker.out_msgs - broker.link_out_msgs,
            "bytes": broker.out_bytes - broker.link_out_bytes,
        },
        "received": received,
        "received_from_clients": {
            "msgs": broker.in_msgs - broker.link_in_msgs,
            "bytes": broker.in_bytes - broker.link_in_bytes,
        },
        "slow_consumers": broker.slow_consumers,
        **({"routes": routes} if (routes := route_stats(server)) else {}),
        "active_servers": 1 + len(server.routes.open),
    }
    if server.jetstream is not None:
        jetstream = jetstream_varz(server)
        del jetstream["config"]["store_dir"]
        stats["jetstream"] = jetstream
    return stats | {"gomaxprocs": core_count()}
