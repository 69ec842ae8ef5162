"""/leafz: the leaf node connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetlake.broker.leaf import Leaf
from jetlake.clock import go_duration
from jetlake.server.observe.query import Query
from jetlake.subjects import decode_subject
from jetlake.wire.go_time import format_time

if TYPE_CHECKING:
    from jetlake.server.server import Server


def leafz(server: Server, query: Query) -> dict[str, Any]:
    """All leaf node connections, or those of one account; with `subs` what each of them wants."""
    account, has_subs = query.text("acc"), query.flag("subs")
    leafs = [leaf for leaf in server.leafs.open.values() if not account or leaf.account.name == account]
    shown = [_leaf(leaf, has_subs) for leaf in leafs]
    about = {"server_id": server.server_id, "now": format_time(server.clock())}
    return {**about, "leafnodes": len(shown), "leafs": shown}


def _leaf(leaf: Leaf, has_subs: bool) -> dict[str, Any]:
    host, port = leaf.address
    shown: dict[str, Any] = {"id": leaf.cid, "name": leaf.name, "is_spoke": leaf.is_spoke}
    if leaf.is_isolated:
        shown["is_isolated"] = True
    shown |= {
        "account": leaf.account.name,
        "ip": host,
        "port": port,
        "rtt": go_duration(leaf.rtt_ns // 1000 * 1000),
        "in_msgs": leaf.in_msgs,
        "out_msgs": leaf.out_msgs,
        "in_bytes": leaf.in_bytes,
        "out_bytes": leaf.out_bytes,
        "subscriptions": len(leaf.subs),
    }
    if has_subs:
        shown["subscriptions_list"] = sorted(decode_subject(sub.subject) for sub in leaf.subs.values())
    return shown
