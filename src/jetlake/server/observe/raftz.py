"""/raftz: the groups that this server is a member of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.server.observe.query import Query

if TYPE_CHECKING:
    from jetlake.server.server import Server


def raftz(server: Server, query: Query) -> dict[str, Any]:
    """The groups of an account (`acc`, the system account's by default), or one of them (`group`); none is empty."""
    if server.cluster is None:
        return {}
    from jetlake.cluster import observe

    return observe.raftz(server.cluster, query.text("acc"), query.text("group")) or {}
