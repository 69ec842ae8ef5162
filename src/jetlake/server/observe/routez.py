"""/routez: the routes to other servers of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.broker.route import Route
from jetlake.clock import go_duration
from jetlake.server.observe.connz import sub_detail
from jetlake.server.observe.process import uptime
from jetlake.server.observe.query import Query
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server


def routez(server: Server, query: Query) -> dict[str, Any]:
    """All routes; with `subs` what each of the other servers wants."""
    now_ns = server.clock()
    subs = "detail" if query.text("subs").lower() == "detail" else "list" if query.flag("subs") else ""
    shown = [_route(route, now_ns, subs) for route in server.routes.open.values()]
    identity = {"server_id": server.server_id, "server_name": server.server_name}
    return identity | {"now": format_time(now_ns), "num_routes": len(shown), "routes": shown}


def _route(route: Route, now_ns: int, subs: str) -> dict[str, Any]:
    host, port = route.address
    shown: dict[str, Any] = {
        "rid": route.cid,
        "remote_id": route.server_id,
        "remote_name": route.server_name,
        "did_solicit": route.did_solicit,
        "is_configured": route.is_explicit,
        "ip": host,
        "port": port,
        "start": format_time(route.start_ns),
        "last_activity": format_time(route.active_ns),
        "rtt": go_duration(route.rtt_ns // 1000 * 1000),
        "uptime": uptime(now_ns - route.start_ns),
        "idle": uptime(now_ns - route.active_ns),
        "pending_size": route.connection.pending_size(),
        "in_msgs": route.in_msgs,
        "out_msgs": route.out_msgs,
        "in_bytes": route.in_bytes,
        "out_bytes": route.out_bytes,
        "subscriptions": route.subs_count,
    }
    if subs == "list":
        shown["subscriptions_list"] = [sub_detail(sub)["subject"] for sub in route.subs]
    elif subs:
        shown["subscriptions_list_detail"] = [
            {"account": sub.peer.account.name, "account_tag": sub.peer.account.name_tag, **sub_detail(sub)}
            for sub in route.subs
        ]
    return shown | {"compression": "not supported"}


def route_stats(server: Server) -> list[dict[str, Any]]:
    """The routes in a few numbers, as the system account is told."""
    return [
        {
            "rid": route.cid,
            "name": route.server_name,
            "sent": {"msgs": route.out_msgs, "bytes": route.out_bytes},
            "received": {"msgs": route.in_msgs, "bytes": route.in_bytes},
            "pending": route.connection.pending_size(),
        }
        for route in server.routes.open.values()
    ]
