"""Pages about other servers, of which a single one has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.server.observe.query import Query
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server


def routez(server: Server, query: Query) -> dict[str, Any]:
    identity = {"server_id": server.server_id, "server_name": server.server_name}
    return identity | {"now": format_time(server.clock()), "num_routes": 0, "routes": []}


def gatewayz(server: Server, query: Query) -> dict[str, Any]:
    now = format_time(server.clock())
    return {"server_id": server.server_id, "now": now, "outbound_gateways": {}, "inbound_gateways": {}}


def raftz(server: Server, query: Query) -> dict[str, Any]:
    return {}
