"""Pages about what no server here has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.server.observe.query import Query
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server


def gatewayz(server: Server, query: Query) -> dict[str, Any]:
    now = format_time(server.clock())
    return {"server_id": server.server_id, "now": now, "outbound_gateways": {}, "inbound_gateways": {}}
