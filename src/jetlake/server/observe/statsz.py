"""STATSZ: the server in a few numbers, as the system account is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.server.observe.process import core_count, resident_size
from jetlake.server.observe.query import Query
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
        "sent_to_clients": sent,
        "received": received,
        "received_from_clients": received,
        "slow_consumers": broker.slow_consumers,
        "active_servers": 1,
    }
    if server.jetstream is not None:
        jetstream = jetstream_varz(server)
        del jetstream["config"]["store_dir"]
        stats["jetstream"] = jetstream
    return stats | {"gomaxprocs": core_count()}
